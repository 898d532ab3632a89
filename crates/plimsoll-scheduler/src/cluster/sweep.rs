//! Which strings are in use. To find out takes a look at all there is, so it is done in parts: what comes meanwhile is in use,
//! since its strings are interned, and what goes is not missed.

use super::{Cluster, NodeId, PodId, ShapeId};
use plimsoll_state::intern::{Marks, Sym};
use plimsoll_state::slab::Id;

/// What is to be looked at next, and from which number on.
#[derive(Clone, Copy, Debug, Default)]
pub(super) enum Unmarked {
    Shapes(usize),
    Pods(usize),
    Nodes(usize),
    /// What there is less of, at once.
    Others,
    #[default]
    Nothing,
}

impl Cluster {
    /// Begins to look for strings that nothing holds any more.
    pub(crate) fn begin_sweep(&mut self) {
        self.strings.begin_sweep();
        self.unmarked = Unmarked::Shapes(0);
    }

    /// Whether all strings are marked that are in use.
    pub(crate) const fn is_marked(&self) -> bool {
        matches!(self.unmarked, Unmarked::Nothing)
    }

    /// Marks the strings of as many rows; how many more it could have looked at.
    pub(crate) fn mark_some(&mut self, most: usize) -> usize {
        let Some(mut marks) = self.strings.take_marks() else { return most };
        let mut left = most;
        while left > 0 {
            let (from, bound) = match self.unmarked {
                Unmarked::Shapes(from) => (from, self.shapes.bound()),
                Unmarked::Pods(from) => (from, self.pods.bound()),
                Unmarked::Nodes(from) => (from, self.nodes.bound()),
                Unmarked::Others => (0, 1),
                Unmarked::Nothing => break,
            };
            let to = bound.min(from.saturating_add(left));
            (from..to).for_each(|row| self.mark_row(row, &mut marks));
            left -= to.saturating_sub(from);
            self.unmarked = match self.unmarked {
                Unmarked::Shapes(_) if to < bound => Unmarked::Shapes(to),
                Unmarked::Shapes(_) => Unmarked::Pods(0),
                Unmarked::Pods(_) if to < bound => Unmarked::Pods(to),
                Unmarked::Pods(_) => Unmarked::Nodes(0),
                Unmarked::Nodes(_) if to < bound => Unmarked::Nodes(to),
                Unmarked::Nodes(_) => Unmarked::Others,
                Unmarked::Others | Unmarked::Nothing => Unmarked::Nothing,
            };
        }
        self.strings.put_marks(marks);
        left
    }

    /// Marks what a row holds.
    fn mark_row(&self, row: usize, marks: &mut Marks) {
        match self.unmarked {
            Unmarked::Shapes(_) => self.shapes.mark(row, marks),
            Unmarked::Pods(_) => self.mark_pod(PodId::new(row), marks),
            Unmarked::Nodes(_) => {
                self.nodes.get(NodeId::new(row)).into_iter().for_each(|node| node.mark(marks));
            }
            Unmarked::Others => self.mark_others(marks),
            Unmarked::Nothing => {}
        }
    }

    fn mark_pod(&self, id: PodId, marks: &mut Marks) {
        let Some(pod) = self.pods.get(id) else { return };
        marks.all(pod.owner.iter().map(|(_, name)| name));
        pod.extra.iter().filter_map(|e| e.usage.as_ref()).for_each(|u| u.mark(marks));
    }

    fn mark_others(&self, marks: &mut Marks) {
        let Self {
            strings: _,
            namespaces,
            shapes: _,
            pods: _,
            pods_by_uid: _,
            hasher: _,
            nodes: _,
            nodes_by_name: _,
            columns: _,
            node_count: _,
            // Images of nodes.
            image_nodes: _,
            with_affinity: _,
            groups,
            group_keys,
            workloads: _,
            nominees: _,
            objects,
            preempting: _,
            changes: _,
            sources: _,
            to_come,
            unmarked: _,
            now: _,
        } = self;
        for (name, labels) in namespaces {
            marks.mark(*name);
            labels.mark(marks);
        }
        groups.keys().chain(group_keys.values()).for_each(|(namespace, _)| marks.mark(*namespace));
        objects.mark(marks);
        to_come.values().for_each(|t| t.mark(marks));
    }

    /// The log of changes begins anew: it holds strings of what is gone.
    pub(crate) fn forget_changes(&mut self) {
        self.changes.forget();
    }

    /// A shape for pods like those of another one that also select nodes by these labels.
    pub(crate) fn selecting(&mut self, like: ShapeId, labels: &[(Sym, Sym)]) -> ShapeId {
        let shape = self.shapes.selecting(like, labels);
        // It takes what the other one has, which may be gone before a sweep comes to it.
        if let Some(mut marks) = self.strings.take_marks() {
            let new = self.shapes.get(shape);
            marks.mark(new.namespace);
            new.labels.mark(&mut marks);
            new.spec.mark(&mut marks);
            self.strings.put_marks(marks);
        }
        shape
    }

    /// What is held is there.
    ///
    /// # Panics
    /// When a string was freed that is in use.
    pub(super) fn check_strings(&self) {
        let mut marks = self.strings.no_marks();
        (0..self.shapes.bound()).for_each(|row| self.shapes.mark(row, &mut marks));
        (0..self.pods.bound()).for_each(|row| self.mark_pod(PodId::new(row), &mut marks));
        self.nodes.iter().for_each(|(_, node)| node.mark(&mut marks));
        self.mark_others(&mut marks);
        marks.all(self.nodes_by_name.keys().chain(self.image_nodes.keys()));
        assert!(self.strings.has_all(&marks), "a string that is in use was freed");
    }
}

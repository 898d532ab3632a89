//! Building the tree from the objects: edges, cycles, subtree quotas, heights.

use plimsoll_state::collect::InsertEach as _;
use plimsoll_state::slab::Id;

use super::{Cell, Node, NodeId, Quota, Tree};
use crate::amount::Exact;
use crate::ids::{FlavorResource, Map, ResourceId};

/// A node as the objects describe it.
#[derive(Clone, Debug, Default)]
pub(crate) struct NodeSpec {
    pub(crate) name: String,
    /// Name of the parent cohort, possibly empty.
    pub(crate) parent: String,
    /// Whether it is a ClusterQueue.
    pub(crate) leaf: bool,
    /// Whether a ClusterQueue takes part in scheduling. What it uses counts either way.
    pub(crate) active: bool,
    pub(crate) weight: f64,
    pub(crate) quotas: Vec<(FlavorResource, Quota)>,
}

impl Tree {
    /// Builds a tree without usage. Nodes keep the order of `specs`; parents that are not among them are
    /// appended as cohorts without quota. `resource_of` gives the resource of every column.
    pub(crate) fn build(specs: Vec<NodeSpec>, resource_of: Vec<ResourceId>) -> Self {
        let specs = with_implicit_cohorts(specs);
        let cohort_ids: Map<&str, NodeId> = specs
            .iter()
            .enumerate()
            .filter(|(_, s)| !s.leaf)
            .map(|(i, s)| (s.name.as_str(), NodeId::new(i)))
            .collect();
        let parents: Vec<Option<NodeId>> =
            specs.iter().map(|s| cohort_ids.get(s.parent.as_str()).copied()).collect();
        let cyclic = endless(&parents);
        let mut nodes: Vec<Node> = specs
            .iter()
            .enumerate()
            .map(|(i, s)| Node {
                name: s.name.clone(),
                parent: if cyclic[i] { None } else { parents[i] },
                cohorts: Vec::new(),
                queues: Vec::new(),
                leaf: s.leaf,
                weight: s.weight,
                height: 0,
                cyclic: cyclic[i],
            })
            .collect();
        let mut by_name: Vec<usize> = (0..nodes.len()).collect();
        by_name.sort_by(|&a, &b| nodes[a].name.cmp(&nodes[b].name));
        for i in by_name {
            let Some(p) = nodes[i].parent else { continue };
            if !specs[i].leaf {
                nodes[p.index()].cohorts.push(NodeId::new(i));
            } else if specs[i].active {
                nodes[p.index()].queues.push(NodeId::new(i));
            }
        }
        let columns = resource_of.len();
        let mut cells = vec![Cell::default(); nodes.len() * columns];
        for (i, s) in specs.iter().enumerate() {
            for &(fr, quota) in &s.quotas {
                let cell = &mut cells[i * columns + fr.index()];
                *cell = Cell { quota, subtree: quota.nominal, present: true, ..Cell::default() };
            }
        }
        let exact = vec![Exact::default(); cells.len()];
        let mut tree =
            Self { nodes, columns, cells, exact, resource_of, log: Vec::new(), of_cohorts: Vec::new() };
        tree.accumulate();
        tree
    }

    /// Fills subtree quotas and heights from the leaves up, then potentials from the roots down.
    fn accumulate(&mut self) {
        let order = self.top_down();
        for &n in order.iter().rev() {
            let node = &self.nodes[n.index()];
            let below = node.cohorts.iter().map(|&c| self.nodes[c.index()].height + 1).max();
            let some = u32::from(!node.cohorts.is_empty() || !node.queues.is_empty());
            let (height, parent) = (below.unwrap_or(0).max(some), node.parent);
            self.nodes[n.index()].height = height;
            let Some(parent) = parent else { continue };
            for fr in FlavorResource::first(self.columns) {
                let child = self.cells[self.at(n, fr)];
                if child.present {
                    let i = self.at(parent, fr);
                    let up = &mut self.cells[i];
                    up.subtree = up.subtree.add(child.subtree.sub(child.local_quota()));
                    up.present = true;
                }
            }
        }
        for n in order {
            for fr in FlavorResource::first(self.columns) {
                let c = self.cells[self.at(n, fr)];
                let potential = match self.nodes[n.index()].parent {
                    None => c.subtree,
                    Some(p) => {
                        let all = c.local_quota().add(self.cells[self.at(p, fr)].potential);
                        c.quota.borrowing.map_or(all, |l| all.min(c.subtree.add(l)))
                    }
                };
                let i = self.at(n, fr);
                self.cells[i].potential = potential;
            }
        }
    }

    /// All nodes, parents before children.
    fn top_down(&self) -> Vec<NodeId> {
        let depth = |n: NodeId| self.ancestors(n).count();
        let mut order: Vec<(usize, NodeId)> = self.nodes().map(|(n, _)| (depth(n), n)).collect();
        order.sort_unstable();
        order.into_iter().map(|(_, n)| n).collect()
    }
}

fn with_implicit_cohorts(mut specs: Vec<NodeSpec>) -> Vec<NodeSpec> {
    let known: std::collections::BTreeSet<String> =
        specs.iter().filter(|s| !s.leaf).map(|s| s.name.clone()).insert_each();
    let missing: std::collections::BTreeSet<String> = specs
        .iter()
        .filter(|s| !s.parent.is_empty() && !known.contains(&s.parent))
        .map(|s| s.parent.clone())
        .insert_each();
    specs.extend(missing.into_iter().map(|name| NodeSpec { name, weight: 1.0, ..NodeSpec::default() }));
    specs
}

/// For every node, whether following its parents never ends. Each node is looked at once.
fn endless(parents: &[Option<NodeId>]) -> Vec<bool> {
    #[derive(Clone, Copy, PartialEq)]
    enum Known {
        No,
        Walking,
        Ends(bool),
    }
    let mut known = vec![Known::No; parents.len()];
    for start in 0..parents.len() {
        let mut path = Vec::new();
        let mut at = Some(start);
        let ends = loop {
            let Some(i) = at else { break true };
            match known[i] {
                Known::Ends(e) => break e,
                Known::Walking => break false,
                Known::No => {
                    known[i] = Known::Walking;
                    path.push(i);
                    at = parents[i].map(Id::index);
                }
            }
        };
        for i in path {
            known[i] = Known::Ends(ends);
        }
    }
    known.into_iter().map(|k| k == Known::Ends(false)).collect()
}

impl Tree {
    /// Plain reference for [`Tree::check_usage`]: usage of every cell from the leaves' usage alone.
    pub(crate) fn recompute_usage(&self) -> Vec<Exact> {
        let mut usage: Vec<Exact> = (0..self.nodes.len())
            .flat_map(|n| {
                let leaf = self.nodes[n].leaf;
                (0..self.columns).map(move |fr| (n, fr, leaf))
            })
            .map(|(n, fr, leaf)| if leaf { self.exact[n * self.columns + fr] } else { Exact::default() })
            .collect();
        for &(n, fr, amount) in &self.of_cohorts {
            let i = self.at(n, fr);
            usage[i] = usage[i].add(Exact::of(amount));
        }
        for n in self.top_down().into_iter().rev() {
            let Some(parent) = self.nodes[n.index()].parent else { continue };
            for fr in FlavorResource::first(self.columns) {
                let up = usage[self.at(n, fr)].above(self.cells[self.at(n, fr)].local_quota());
                let i = self.at(parent, fr);
                usage[i] = usage[i].add(up);
            }
        }
        usage
    }

    /// Whether the usage kept in every cohort is what its children's usage says.
    pub(crate) fn check_usage(&self) -> bool {
        let kept = self.cells.iter().zip(&self.exact);
        kept.zip(self.recompute_usage()).all(|((c, exact), want)| *exact == want && c.usage == want.amount())
    }
}

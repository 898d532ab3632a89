//! Tournaments over nodes, one per class: the best score and how many share it, in logarithmic time per change.
//!
//! All trees have the same shape over node numbers and keep only the branches they need, so that together they
//! are hardly larger than one, and the nth of several trees' best nodes is found by going down all at once.

/// No cell.
const NONE: u32 = u32::MAX;

/// A tree; empty until a node is put in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Root(u32);

impl Default for Root {
    fn default() -> Self {
        Self(NONE)
    }
}

#[derive(Clone, Copy, Debug)]
struct Cell {
    best: i64,
    count: u32,
    parent: u32,
    kids: [u32; 2],
}

/// Trees over the same node numbers; a node is in at most one of them.
#[derive(Debug)]
pub(crate) struct Forest {
    depth: u32,
    cells: Vec<Cell>,
    free: Vec<u32>,
    leaves: Vec<u32>,
}

impl Forest {
    /// Trees over node numbers below `len`.
    pub fn new(len: usize) -> Self {
        let depth = len.next_power_of_two().trailing_zeros();
        Self { depth, cells: Vec::new(), free: Vec::new(), leaves: vec![NONE; len] }
    }

    fn cell(&mut self, parent: u32) -> u32 {
        let new = Cell { best: i64::MIN, count: 0, parent, kids: [NONE; 2] };
        match self.free.pop() {
            Some(at) => {
                self.cells[at as usize] = new;
                at
            }
            None => {
                self.cells.push(new);
                (self.cells.len() - 1) as u32
            }
        }
    }

    /// Puts a node into a tree; it must be in none.
    pub fn insert(&mut self, root: &mut Root, node: usize, score: i64) {
        if root.0 == NONE {
            root.0 = self.cell(NONE);
        }
        let mut at = root.0;
        for level in (0..self.depth).rev() {
            let side = (node >> level) & 1;
            let kid = self.cells[at as usize].kids[side];
            at = if kid == NONE {
                let new = self.cell(at);
                self.cells[at as usize].kids[side] = new;
                new
            } else {
                kid
            };
        }
        self.leaves[node] = at;
        self.update(node, score);
    }

    /// Changes the score of a node that is in a tree.
    pub fn update(&mut self, node: usize, score: i64) {
        let leaf = self.leaves[node] as usize;
        self.cells[leaf].best = score;
        self.cells[leaf].count = 1;
        self.join_up(self.cells[leaf].parent);
    }

    /// Takes a node out of its tree.
    pub fn remove(&mut self, root: &mut Root, node: usize) {
        let mut at = std::mem::replace(&mut self.leaves[node], NONE);
        loop {
            let parent = self.cells[at as usize].parent;
            self.free.push(at);
            if parent == NONE {
                root.0 = NONE;
                return;
            }
            let kids = &mut self.cells[parent as usize].kids;
            let side = usize::from(kids[1] == at);
            kids[side] = NONE;
            at = parent;
            if kids[1 - side] != NONE {
                break;
            }
        }
        self.join_up(at);
    }

    fn join_up(&mut self, mut at: u32) {
        while at != NONE {
            let cell = self.cells[at as usize];
            let (best, count) = match cell.kids.map(|k| self.cells.get(k as usize)) {
                [Some(a), Some(b)] if a.best == b.best => (a.best, a.count + b.count),
                [Some(a), Some(b)] if a.best < b.best => (b.best, b.count),
                [Some(a), _] | [None, Some(a)] => (a.best, a.count),
                [None, None] => (i64::MIN, 0),
            };
            if (cell.best, cell.count) == (best, count) {
                return;
            }
            let cell = &mut self.cells[at as usize];
            (cell.best, cell.count) = (best, count);
            at = cell.parent;
        }
    }

    /// The best score in a tree and how many nodes share it.
    pub fn best(&self, root: Root) -> (i64, u32) {
        self.cells.get(root.0 as usize).map_or((i64::MIN, 0), |c| (c.best, c.count))
    }

    /// Score of a node, if it is in a tree.
    pub fn score(&self, node: usize) -> Option<i64> {
        self.cells.get(*self.leaves.get(node)? as usize).map(|c| c.best)
    }

    /// The `n`th, in order, of the nodes that are best in their trees.
    pub fn nth_best(&self, roots: impl Iterator<Item = Root>, mut n: u32) -> Option<usize> {
        let cells = roots.filter_map(|r| Some((r.0, self.cells.get(r.0 as usize)?.best)));
        let mut at: smallvec::SmallVec<[(u32, i64); 8]> = cells.collect();
        let mut node = 0;
        for _ in 0..self.depth {
            let kid = |(cell, best): &(u32, i64), side: usize| {
                let kid = self.cells.get(*cell as usize)?.kids[side];
                Some((kid, self.cells.get(kid as usize).filter(|c| c.best == *best)?.count))
            };
            let left: u32 = at.iter().filter_map(|c| kid(c, 0)).map(|(_, count)| count).sum();
            let side = usize::from(n >= left);
            n -= if side == 1 { left } else { 0 };
            node = 2 * node + side;
            at.retain(|c| match kid(c, side) {
                Some((kid, _)) => {
                    c.0 = kid;
                    true
                }
                None => false,
            });
        }
        (n == 0 && !at.is_empty()).then_some(node)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_best_of_several_trees_are_found_among_changes() {
        let mut rng = crate::rng::Rng::new(3);
        for len in [1usize, 2, 7, 64, 100] {
            let mut rows: Vec<Option<(usize, i64)>> = vec![None; len];
            let mut forest = Forest::new(len);
            let mut roots = [Root::default(); 3];
            for _ in 0..1000 {
                let at = rng.below(len as u32) as usize;
                let new = (rng.below(4) > 0).then(|| (rng.below(3) as usize, i64::from(rng.below(5))));
                match (rows[at], new) {
                    (Some((old, _)), Some((tree, score))) if old == tree => forest.update(at, score),
                    (old, new) => {
                        if let Some((tree, _)) = old {
                            forest.remove(&mut roots[tree], at);
                        }
                        if let Some((tree, score)) = new {
                            forest.insert(&mut roots[tree], at, score);
                        }
                    }
                }
                rows[at] = new;
                assert_eq!(forest.score(at), new.map(|(_, s)| s));
                let of = |tree: usize| rows.iter().flatten().filter(move |r| r.0 == tree).map(|r| r.1).max();
                let best: Vec<usize> = (0..len)
                    .filter(|i| rows[*i].is_some_and(|(tree, s)| tree < 2 && Some(s) == of(tree)))
                    .collect();
                let ties = forest.best(roots[0]).1 + forest.best(roots[1]).1;
                let nth = |n| forest.nth_best(roots[..2].iter().copied(), n);
                assert_eq!((0..ties).filter_map(nth).collect::<Vec<_>>(), best);
                assert_eq!(nth(ties), None);
            }
            assert!(forest.cells.len() - forest.free.len() <= 3 * 2 * len.next_power_of_two());
        }
    }
}

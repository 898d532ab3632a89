//! Tournaments over nodes, one per class: the best score and how many share it, in logarithmic time per change.
//!
//! All trees have the same shape over node numbers and keep only the blocks they need, so that together they are
//! hardly larger than one, and the nth of several trees' best nodes is found by going down all at once. Blocks are
//! wide: a change usually touches two cache lines, not one per level of a binary tree.

use plimsoll_state::cast::index32;
use smallvec::SmallVec;

/// No block.
const NONE: u32 = u32::MAX;
/// Entries of a block.
const WIDTH: usize = 16;
const BITS: u32 = 4;
/// Nothing is there.
const ABSENT: i32 = i32::MIN;

/// A tree; empty until a node is put in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Root(u32);

impl Default for Root {
    fn default() -> Self {
        Self(NONE)
    }
}

/// Where a node is in its tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Leaf(u32);

impl Default for Leaf {
    fn default() -> Self {
        Self(NONE)
    }
}

/// Scores of 16 nodes in a row: one cache line.
#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
struct Scores([i32; WIDTH]);

/// What 16 blocks below have.
#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
struct Fork {
    best: [i32; WIDTH],
    count: [u32; WIDTH],
    kids: [u32; WIDTH],
    parent: u32,
}

/// Trees over the same node numbers; a node is in at most one of them.
#[derive(Debug)]
pub(crate) struct Forest {
    /// Levels of forks, at least one.
    levels: u32,
    scores: Vec<Scores>,
    /// Forks above `scores`.
    parents: Vec<u32>,
    free_scores: Vec<u32>,
    forks: Vec<Fork>,
    free_forks: Vec<u32>,
}

fn put<T>(list: &mut Vec<T>, free: &mut Vec<u32>, new: T) -> u32 {
    match free.pop() {
        Some(at) => {
            list[at as usize] = new;
            at
        }
        None => {
            list.push(new);
            index32(list.len() - 1)
        }
    }
}

/// The best of a block and how many share it.
fn sum(best: &[i32; WIDTH], count: impl Fn(usize) -> u32) -> (i32, u32) {
    let max = best.iter().copied().fold(ABSENT, i32::max);
    let ties = best.iter().enumerate().map(|(i, b)| if *b == max { count(i) } else { 0 }).sum();
    (max, ties)
}

impl Forest {
    /// Trees over node numbers below `len`.
    pub fn new(len: usize) -> Self {
        let mut levels = 1;
        while len > 1 << (BITS * (levels + 1)) {
            levels += 1;
        }
        Self {
            levels,
            scores: Vec::new(),
            parents: Vec::new(),
            free_scores: Vec::new(),
            forks: Vec::new(),
            free_forks: Vec::new(),
        }
    }

    fn fork(&mut self, parent: u32) -> u32 {
        let new = Fork { best: [ABSENT; WIDTH], count: [0; WIDTH], kids: [NONE; WIDTH], parent };
        put(&mut self.forks, &mut self.free_forks, new)
    }

    /// Puts a node into a tree; it must be in none.
    pub fn insert(&mut self, root: &mut Root, node: usize, score: i32) -> Leaf {
        if root.0 == NONE {
            root.0 = self.fork(NONE);
        }
        let mut at = root.0;
        for level in (1..=self.levels).rev() {
            let side = (node >> (BITS * level)) % WIDTH;
            let mut kid = self.forks[at as usize].kids[side];
            if kid == NONE {
                kid = if level > 1 {
                    self.fork(at)
                } else {
                    let new = put(&mut self.scores, &mut self.free_scores, Scores([ABSENT; WIDTH]));
                    self.parents.resize(self.scores.len(), NONE);
                    self.parents[new as usize] = at;
                    new
                };
                self.forks[at as usize].kids[side] = kid;
            }
            at = kid;
        }
        self.update(Leaf(at), node, score);
        Leaf(at)
    }

    /// Changes the score of a node that is in a tree.
    pub fn update(&mut self, leaf: Leaf, node: usize, score: i32) {
        // The lowest number means that there is none.
        self.set(leaf, node, score.max(ABSENT + 1));
    }

    /// Takes a node out of its tree.
    pub fn remove(&mut self, root: &mut Root, leaf: Leaf, node: usize) {
        self.set(leaf, node, ABSENT);
        if self.scores[leaf.0 as usize].0.iter().any(|b| *b != ABSENT) {
            return;
        }
        let mut at = self.parents[leaf.0 as usize];
        self.free_scores.push(leaf.0);
        let mut place = node / WIDTH;
        while let Some(fork) = self.forks.get_mut(at as usize) {
            fork.kids[place % WIDTH] = NONE;
            if fork.kids.iter().any(|k| *k != NONE) {
                return;
            }
            self.free_forks.push(at);
            at = fork.parent;
            place /= WIDTH;
        }
        root.0 = NONE;
    }

    fn set(&mut self, leaf: Leaf, node: usize, score: i32) {
        let block = &mut self.scores[leaf.0 as usize];
        block.0[node % WIDTH] = score;
        let (mut best, mut count) = sum(&block.0, |_| 1);
        let mut at = self.parents[leaf.0 as usize];
        let mut place = node / WIDTH;
        while let Some(fork) = self.forks.get_mut(at as usize) {
            let i = place % WIDTH;
            if (fork.best[i], fork.count[i]) == (best, count) {
                return;
            }
            (fork.best[i], fork.count[i]) = (best, count);
            (best, count) = sum(&fork.best, |i| fork.count[i]);
            at = fork.parent;
            place /= WIDTH;
        }
    }

    /// The best score in a tree and how many nodes share it.
    pub fn best(&self, root: Root) -> (i32, u32) {
        self.forks.get(root.0 as usize).map_or((ABSENT, 0), |f| sum(&f.best, |i| f.count[i]))
    }

    /// Score of a node that is in a tree.
    pub fn score(&self, leaf: Leaf, node: usize) -> Option<i32> {
        self.scores.get(leaf.0 as usize).map(|s| s.0[node % WIDTH]).filter(|s| *s != ABSENT)
    }

    /// The `n`th, in order, of the nodes that are best in their trees.
    pub fn nth_best(&self, roots: impl Iterator<Item = Root>, mut n: u32) -> Option<usize> {
        let mut at: SmallVec<[(u32, i32); 8]> =
            roots.filter(|r| r.0 != NONE).map(|r| (r.0, self.best(r).0)).collect();
        let mut node = 0;
        for _ in 0..self.levels {
            let ties = |(block, best): &(u32, i32), i: usize| {
                let fork = &self.forks[*block as usize];
                if fork.best[i] == *best { fork.count[i] } else { 0 }
            };
            let side = Self::side(&mut n, |i| at.iter().map(|one| ties(one, i)).sum())?;
            node = node * WIDTH + side;
            at.retain(|one| {
                let stays = ties(one, side) > 0;
                one.0 = self.forks[one.0 as usize].kids[side];
                stays
            });
        }
        let ties = |i: usize| at.iter().filter(|(b, best)| self.scores[*b as usize].0[i] == *best).count();
        let side = Self::side(&mut n, |i| index32(ties(i)))?;
        Some(node * WIDTH + side)
    }

    /// The entry in which the `n`th is, and which one it is there.
    fn side(n: &mut u32, ties: impl Fn(usize) -> u32) -> Option<usize> {
        for i in 0..WIDTH {
            let here = ties(i);
            if *n < here {
                return Some(i);
            }
            *n -= here;
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_best_of_several_trees_are_found_among_changes() {
        let mut rng = plimsoll_state::rng::Rng::new(3);
        for len in [1usize, 2, 7, 16, 17, 64, 256, 257, 700] {
            let mut rows: Vec<Option<(usize, i32, Leaf)>> = vec![None; len];
            let mut forest = Forest::new(len);
            let mut roots = [Root::default(); 3];
            for step in 0..1500 {
                let at = rng.below(len as u32) as usize;
                let stays = rng.below(if step < 1000 { 4 } else { 2 }) > 0;
                let new = stays.then(|| (rng.below(3) as usize, rng.below(5) as i32));
                rows[at] = match (rows[at], new) {
                    (Some((old, _, leaf)), Some((tree, score))) if old == tree => {
                        forest.update(leaf, at, score);
                        Some((tree, score, leaf))
                    }
                    (old, new) => {
                        if let Some((tree, _, leaf)) = old {
                            forest.remove(&mut roots[tree], leaf, at);
                        }
                        new.map(|(tree, score)| (tree, score, forest.insert(&mut roots[tree], at, score)))
                    }
                };
                if let Some((_, score, leaf)) = rows[at] {
                    assert_eq!(forest.score(leaf, at), Some(score));
                }
                if step % 10 > 0 {
                    continue;
                }
                let of = |tree: usize| rows.iter().flatten().filter(move |r| r.0 == tree).map(|r| r.1).max();
                let tops = [of(0), of(1)];
                let best: Vec<usize> = (0..len)
                    .filter(|i| rows[*i].is_some_and(|(tree, s, _)| tree < 2 && Some(s) == tops[tree]))
                    .collect();
                let ties = forest.best(roots[0]).1 + forest.best(roots[1]).1;
                let nth = |n| forest.nth_best(roots[..2].iter().copied(), n);
                assert_eq!((0..ties).filter_map(nth).collect::<Vec<_>>(), best);
                assert_eq!(nth(ties), None);
            }
            for (at, row) in rows.into_iter().enumerate() {
                if let Some((tree, _, leaf)) = row {
                    forest.remove(&mut roots[tree], leaf, at);
                }
            }
            assert_eq!(roots, [Root::default(); 3]);
            assert_eq!(forest.scores.len(), forest.free_scores.len());
            assert_eq!(forest.forks.len(), forest.free_forks.len());
        }
    }
}

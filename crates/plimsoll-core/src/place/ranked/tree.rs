//! A tournament over nodes: the best score and how many share it, in logarithmic time per change.

/// Scores by index; `None` takes no part.
#[derive(Clone, Debug)]
pub(crate) struct Tree {
    leaves: usize,
    /// Best score and number of leaves that have it, root at 1.
    cells: Vec<(i64, u32)>,
}

const ABSENT: (i64, u32) = (i64::MIN, 0);

fn join(a: (i64, u32), b: (i64, u32)) -> (i64, u32) {
    match (a.1, b.1) {
        (_, 0) => a,
        (0, _) => b,
        _ if a.0 == b.0 => (a.0, a.1 + b.1),
        _ if a.0 > b.0 => a,
        _ => b,
    }
}

impl Tree {
    pub fn new(len: usize) -> Self {
        let leaves = len.next_power_of_two().max(1);
        Self { leaves, cells: vec![ABSENT; 2 * leaves] }
    }

    /// Sets all scores.
    pub fn fill(&mut self, scores: &[Option<i64>]) {
        for i in 0..self.leaves {
            self.cells[self.leaves + i] = scores.get(i).copied().flatten().map_or(ABSENT, |s| (s, 1));
        }
        for i in (1..self.leaves).rev() {
            self.cells[i] = join(self.cells[2 * i], self.cells[2 * i + 1]);
        }
    }

    /// Sets one score.
    pub fn set(&mut self, index: usize, score: Option<i64>) {
        let mut i = self.leaves + index;
        self.cells[i] = score.map_or(ABSENT, |s| (s, 1));
        while i > 1 {
            i /= 2;
            let joined = join(self.cells[2 * i], self.cells[2 * i + 1]);
            if self.cells[i] == joined {
                return;
            }
            self.cells[i] = joined;
        }
    }

    /// How many share the best score.
    pub fn ties(&self) -> u32 {
        self.cells[1].1
    }

    /// The `n`th index, in order, of those with the best score.
    pub fn nth_best(&self, n: u32) -> Option<usize> {
        let (best, count) = self.cells[1];
        if n >= count {
            return None;
        }
        let (mut i, mut n) = (1, n);
        while i < self.leaves {
            let left = self.cells[2 * i];
            let here = if left.0 == best { left.1 } else { 0 };
            i *= 2;
            if n >= here {
                n -= here;
                i += 1;
            }
        }
        Some(i - self.leaves)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_best_is_found_among_changes() {
        let mut rng = crate::rng::Rng::new(3);
        for len in [1usize, 2, 7, 64, 100] {
            let mut scores: Vec<Option<i64>> = vec![None; len];
            let mut tree = Tree::new(len);
            tree.fill(&scores);
            for _ in 0..500 {
                let at = rng.below(len as u32) as usize;
                scores[at] = (rng.below(4) > 0).then(|| i64::from(rng.below(5)));
                tree.set(at, scores[at]);
                let best = scores.iter().flatten().max();
                let want: Vec<usize> =
                    (0..len).filter(|i| scores[*i].is_some() && scores[*i].as_ref() == best).collect();
                let got: Vec<usize> = (0..tree.ties()).filter_map(|n| tree.nth_best(n)).collect();
                assert_eq!(got, want);
                assert_eq!(tree.nth_best(tree.ties()), None);
            }
        }
    }
}

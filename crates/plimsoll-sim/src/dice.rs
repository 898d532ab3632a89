//! Randomness that survives shrinking: a draw depends on the seed and on what it is about, not on how many draws came
//! before it, so that dropping one operation of a run leaves the fate of all others as it was.

use plimsoll_state::rng::Rng;

/// A source of draws for one thing.
#[derive(Clone, Copy, Debug)]
pub struct Dice(u64);

impl Dice {
    /// Draws of a whole run.
    pub const fn new(seed: u64) -> Self {
        Self(seed ^ 0xcbf2_9ce4_8422_2325)
    }

    /// Draws for the part of it that this number names.
    pub const fn of(self, number: u64) -> Self {
        Self(Rng::new(self.0 ^ number.wrapping_mul(0x9e37_79b9_7f4a_7c15)).next())
    }

    /// Draws for the part of it that this text names (FNV-1a).
    pub fn about(self, text: &str) -> Self {
        let fnv = |h: u64, b: u8| (h ^ u64::from(b)).wrapping_mul(0x0100_0000_01b3);
        Self(text.bytes().fold(self.0 ^ 0x5bd1_e995, fnv))
    }

    /// A generator that begins with these draws.
    pub const fn rng(self) -> Rng {
        Rng::new(self.0)
    }
}

/// Draws that read well.
pub trait Draw {
    /// A number in `low..=high`; `low` when the range is empty.
    fn range(&mut self, low: i64, high: i64) -> i64;
    /// True in `per_mille` of a thousand cases.
    fn chance(&mut self, per_mille: u32) -> bool;
}

impl Draw for Rng {
    fn range(&mut self, low: i64, high: i64) -> i64 {
        let width = high.saturating_sub(low).saturating_add(1).clamp(0, i64::from(u32::MAX));
        low.saturating_add(i64::from(self.below(u32::try_from(width).unwrap_or(u32::MAX))))
    }

    fn chance(&mut self, per_mille: u32) -> bool {
        self.below(1000) < per_mille
    }
}

/// The `i`th of some values, in circles; `None` of none.
pub fn nth<T>(values: &[T], i: usize) -> Option<&T> {
    values.get(i.checked_rem(values.len())?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn draws_depend_on_what_they_are_about_alone() {
        let dice = Dice::new(7);
        let a = dice.about("pod").of(3).rng().next();
        assert_eq!(a, dice.about("pod").of(3).rng().next());
        assert_ne!(a, dice.about("pod").of(4).rng().next());
        assert_ne!(a, dice.about("job").of(3).rng().next());
        let mut rng = dice.rng();
        assert!((0..1000).all(|_| (2..=5).contains(&rng.range(2, 5))));
        assert_eq!(rng.range(3, 1), 3);
        assert!(!rng.chance(0) && rng.chance(1000));
    }
}

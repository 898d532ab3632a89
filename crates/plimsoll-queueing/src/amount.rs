//! Amounts of a resource: 64-bit integers that saturate, where the largest value means *unlimited*.
//!
//! Quotas may add up beyond 64 bits ("no limit" is often written as a huge number), so sums must never
//! wrap round (Kueue `pkg/resources/amount.go`, `Unlimited`).

/// An amount of a resource: cpu in millicores, everything else in whole units.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Amount(pub i64);

impl Amount {
    /// Nothing.
    pub const ZERO: Self = Self(0);
    /// No limit at all; stays so whatever is added or taken away.
    pub const UNLIMITED: Self = Self(i64::MAX);

    /// The sum, saturating; unlimited stays unlimited.
    #[must_use]
    pub const fn add(self, other: Self) -> Self {
        if self.0 == i64::MAX || other.0 == i64::MAX {
            return Self::UNLIMITED;
        }
        Self(self.0.saturating_add(other.0))
    }

    /// The difference, saturating; unlimited minus unlimited is nothing.
    #[must_use]
    pub const fn sub(self, other: Self) -> Self {
        match (self.0 == i64::MAX, other.0 == i64::MAX) {
            (true, true) => Self::ZERO,
            (true, false) => Self::UNLIMITED,
            (false, true) => Self(i64::MIN),
            (false, false) => Self(self.0.saturating_sub(other.0)),
        }
    }

    /// The larger of this and zero.
    #[must_use]
    pub const fn at_least_zero(self) -> Self {
        if self.0 < 0 { Self::ZERO } else { self }
    }
}

/// A sum of amounts that loses nothing: what was added can be taken away again in any order, also where the sum is
/// beyond [`Amount`]. An unlimited amount is larger than any sum of limited ones.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Exact(i128);

impl Exact {
    /// Room for 2^36 limited amounts below, and for 2^26 unlimited ones above.
    const UNLIMITED: i128 = 1 << 100;

    /// The amount as a sum of its own.
    pub(crate) const fn of(amount: Amount) -> Self {
        Self(if amount.0 == i64::MAX { Self::UNLIMITED } else { amount.0 as i128 })
    }

    #[must_use]
    pub(crate) const fn add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }

    #[must_use]
    pub(crate) const fn sub(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }

    /// What exceeds `limit`; nothing exceeds an unlimited one.
    #[must_use]
    pub(crate) const fn above(self, limit: Amount) -> Self {
        if limit.0 == i64::MAX || self.0 <= limit.0 as i128 {
            return Self(0);
        }
        Self(self.0 - limit.0 as i128)
    }

    /// The sum as an amount: the largest or smallest one where it is beyond them.
    #[allow(clippy::cast_possible_truncation, reason = "the bounds are checked above")]
    pub(crate) const fn amount(self) -> Amount {
        if self.0 >= i64::MAX as i128 {
            Amount::UNLIMITED
        } else if self.0 <= i64::MIN as i128 {
            Amount(i64::MIN)
        } else {
            Amount(self.0 as i64)
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn unlimited_stays_and_sums_saturate() {
        let (u, one) = (Amount::UNLIMITED, Amount(1));
        let table = [
            (u.add(one), u),
            (one.add(u), u),
            (u.sub(one), u),
            (u.sub(u), Amount::ZERO),
            (one.sub(u), Amount(i64::MIN)),
            (Amount(i64::MAX - 1).add(Amount(5)), u),
            (Amount(i64::MIN + 1).sub(Amount(5)), Amount(i64::MIN)),
            (Amount(-3).at_least_zero(), Amount::ZERO),
        ];
        for (i, (got, want)) in table.iter().enumerate() {
            assert_eq!(got, want, "row {i}");
        }
    }

    proptest! {
        /// Amounts near the limits are added and taken away in any order: what is left is the sum of those left.
        #[test]
        fn exact_sums_forget_nothing(amounts in proptest::collection::vec(near_limits(), 1..20), order in any::<u64>()) {
            let mut sum = amounts.iter().fold(Exact::default(), |s, a| s.add(Exact::of(*a)));
            let mut left = amounts;
            let mut order = order;
            while !left.is_empty() {
                let at = usize::try_from(order).unwrap() % left.len();
                sum = sum.sub(Exact::of(left.swap_remove(at)));
                order = order.rotate_left(7);
                let want = left.iter().fold(Amount::ZERO, |s, a| s.add(*a));
                prop_assert_eq!(sum.amount(), want);
            }
        }
    }

    fn near_limits() -> impl Strategy<Value = Amount> {
        let small = prop_oneof![0..10i64, Just(1_000_000)];
        prop_oneof![
            small.clone(),
            small.clone().prop_map(|d| i64::MAX - d),
            small.prop_map(|d| i64::MAX / 2 + d)
        ]
        .prop_map(Amount)
    }
}

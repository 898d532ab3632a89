//! Amounts of a resource: 64-bit integers that saturate, where the largest value means *unlimited*.
//!
//! Quotas may add up beyond 64 bits ("no limit" is often written as a huge number), so sums must never
//! wrap round. Spec section 2.4.

/// An amount of a resource: cpu in millicores, everything else in whole units.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Amount(pub i64);

impl Amount {
    /// Nothing.
    pub const ZERO: Self = Self(0);
    /// No limit at all; absorbs whatever is added or taken away.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unlimited_absorbs_and_sums_saturate() {
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
}

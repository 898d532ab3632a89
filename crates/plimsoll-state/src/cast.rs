//! Conversions between numbers, each with the reason why it loses nothing that counts.

/// An index or a length as 32 bits. Tables of the engine have fewer than 2³² rows: a cluster has fewer nodes, pods and
/// strings than that by orders of magnitude.
#[must_use]
#[inline]
#[allow(clippy::cast_possible_truncation, reason = "tables have fewer than 2^32 rows")]
pub const fn index32(index: usize) -> u32 {
    debug_assert!(index <= u32::MAX as usize);
    index as u32
}

/// A length as a signed number, for arithmetic with amounts. No collection is longer than `isize::MAX`.
#[must_use]
#[allow(clippy::cast_possible_wrap, reason = "no collection is longer than isize::MAX")]
pub const fn signed(length: usize) -> i64 {
    length as i64
}

/// The integral part of a score or a share, as Go's `int64(x)`; beyond `i64` the nearest bound, and 0 for NaN.
#[must_use]
#[allow(clippy::cast_possible_truncation, reason = "the fraction is meant to go, and `as` saturates")]
pub const fn whole(x: f64) -> i64 {
    x as i64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_stay_what_they_are() {
        assert_eq!(index32(7), 7);
        assert_eq!(signed(7), 7);
        assert_eq!((whole(2.9), whole(-2.9), whole(f64::NAN), whole(f64::INFINITY)), (2, -2, 0, i64::MAX));
    }
}

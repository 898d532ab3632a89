//! Time as the engine sees it: integer nanoseconds, always an argument.

/// A point in time: nanoseconds since the Unix epoch. Negative before 1970.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time(pub i64);

/// A span of time in nanoseconds. May be negative.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Duration(pub i64);

/// Nanoseconds in a second.
pub const SECOND: i64 = 1_000_000_000;

impl Time {
    /// The point `seconds` after the epoch; saturates at the representable range (about 292 years).
    pub const fn from_seconds(seconds: i64) -> Self {
        Self(seconds.saturating_mul(SECOND))
    }

    /// Whole seconds since the epoch, rounded down. API timestamps have this resolution.
    pub const fn seconds(self) -> i64 {
        self.0.div_euclid(SECOND)
    }

    /// The same point with the part below a second cut off.
    pub const fn truncate_to_second(self) -> Self {
        Self::from_seconds(self.seconds())
    }

    /// `self + d`, saturating.
    pub const fn plus(self, d: Duration) -> Self {
        Self(self.0.saturating_add(d.0))
    }

    /// The span from `earlier` to `self`, saturating.
    pub const fn since(self, earlier: Self) -> Duration {
        Duration(self.0.saturating_sub(earlier.0))
    }
}

impl Duration {
    /// No time at all.
    pub const ZERO: Self = Self(0);

    /// A span of whole seconds, saturating.
    pub const fn from_seconds(seconds: i64) -> Self {
        Self(seconds.saturating_mul(SECOND))
    }

    /// A span of whole milliseconds, saturating.
    pub const fn from_millis(millis: i64) -> Self {
        Self(millis.saturating_mul(1_000_000))
    }

    /// Whole seconds, rounded towards negative infinity.
    pub const fn seconds(self) -> i64 {
        self.0.div_euclid(SECOND)
    }
}

//! `resource.Quantity`: exact amounts with Kubernetes' suffixes.
//!
//! An amount is kept in billionths (nano) as an `i128`, which is exact for everything up to about 1.7e29 units;
//! larger amounts saturate. Digits below a billionth are rounded up (away from zero), as upstream does
//! (apimachinery `pkg/api/resource`).

mod parse;

use std::cmp::Ordering;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use self::parse::Parts;

/// Nano units in one unit.
const NANO: i128 = 1_000_000_000;

/// How a quantity is written; taken from how it was read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Format {
    /// `12e6`.
    DecimalExponent,
    /// `12Mi`: powers of 1024.
    BinarySi,
    /// `12M`: powers of 1000.
    #[default]
    DecimalSi,
}

/// Why a text is no quantity. The texts are upstream's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum QuantityError {
    /// It does not look like one.
    #[error("quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'")]
    Format,
    /// There are no digits.
    #[error("unable to parse numeric part of quantity")]
    Numeric,
    /// The suffix is unknown.
    #[error("unable to parse quantity's suffix")]
    Suffix,
}

/// An exact amount. Equality and order compare amounts, not how they are written: `1` equals `1000m`.
#[derive(Clone, Copy, Debug, Default)]
pub struct Quantity {
    nanos: i128,
    format: Format,
}

impl Quantity {
    /// Zero.
    pub const ZERO: Self = Self { nanos: 0, format: Format::DecimalSi };

    /// Whole units.
    pub fn new(units: i64, format: Format) -> Self {
        Self { nanos: i128::from(units) * NANO, format }
    }

    /// Thousandths.
    pub fn milli(milli: i64, format: Format) -> Self {
        Self { nanos: i128::from(milli) * 1_000_000, format }
    }

    /// Billionths.
    pub const fn from_nanos(nanos: i128, format: Format) -> Self {
        Self { nanos, format }
    }

    /// The exact amount in billionths.
    pub const fn nanos(self) -> i128 {
        self.nanos
    }

    /// How it is written.
    pub const fn format(self) -> Format {
        self.format
    }

    /// Whole units, rounded up (away from zero), saturating (upstream `Value`).
    pub fn value(self) -> i64 {
        clamp(div_away(self.nanos, NANO))
    }

    /// Thousandths, rounded up (away from zero), saturating (upstream `MilliValue`).
    pub fn milli_value(self) -> i64 {
        clamp(div_away(self.nanos, 1_000_000))
    }

    /// As a float, for ratios; may lose precision.
    #[allow(clippy::cast_precision_loss)]
    pub fn to_f64(self) -> f64 {
        self.nanos as f64 / NANO as f64
    }

    /// Whether it is zero.
    pub const fn is_zero(self) -> bool {
        self.nanos == 0
    }

    /// -1, 0 or 1.
    pub const fn signum(self) -> i8 {
        self.nanos.signum() as i8
    }

    /// Sum, saturating. Zero takes over the other's format (upstream `Add`).
    #[must_use]
    pub fn saturating_add(self, other: Self) -> Self {
        let format = if self.is_zero() { other.format } else { self.format };
        Self { nanos: self.nanos.saturating_add(other.nanos), format }
    }

    /// Difference, saturating. Zero takes over the other's format (upstream `Sub`).
    #[must_use]
    pub fn saturating_sub(self, other: Self) -> Self {
        let format = if self.is_zero() { other.format } else { self.format };
        Self { nanos: self.nanos.saturating_sub(other.nanos), format }
    }

    /// Product, saturating.
    #[must_use]
    pub const fn saturating_mul(self, factor: i64) -> Self {
        Self { nanos: self.nanos.saturating_mul(factor as i128), format: self.format }
    }

    /// The text upstream writes for a quantity read from `text`: canonical, except that upstream keeps texts it
    /// takes for canonical already (`1.500` stays, `1000m` becomes `1`).
    pub fn canonical(text: &str) -> Result<String, QuantityError> {
        let text = text.trim();
        let parts = Parts::split(text)?;
        let quantity = parts.quantity()?;
        Ok(if parts.kept(text) { text.to_owned() } else { quantity.to_string() })
    }
}

fn div_away(value: i128, by: i128) -> i128 {
    let quotient = value / by;
    if value % by == 0 { quotient } else { quotient + value.signum() }
}

fn clamp(value: i128) -> i64 {
    i64::try_from(value).unwrap_or(if value < 0 { i64::MIN } else { i64::MAX })
}

impl FromStr for Quantity {
    type Err = QuantityError;

    fn from_str(text: &str) -> Result<Self, QuantityError> {
        Parts::split(text)?.quantity()
    }
}

impl fmt::Display for Quantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.nanos == 0 {
            return f.write_str("0");
        }
        let binary = self.format == Format::BinarySi
            && self.nanos.unsigned_abs() >= 1024 * NANO.unsigned_abs()
            && self.nanos % NANO == 0;
        if binary { self.write_binary(f) } else { self.write_decimal(f) }
    }
}

impl Quantity {
    fn write_binary(self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (mut value, mut power) = (self.nanos / NANO, 0usize);
        while value % 1024 == 0 && power < 6 {
            value /= 1024;
            power += 1;
        }
        write!(f, "{value}{}", ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"][power])
    }

    fn write_decimal(self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (mut value, mut exponent) = (self.nanos, -9i32);
        while value % 1000 == 0 {
            value /= 1000;
            exponent += 3;
        }
        let suffix = match exponent {
            _ if self.format == Format::DecimalExponent => None,
            -9 => Some("n"),
            -6 => Some("u"),
            -3 => Some("m"),
            0 => Some(""),
            3 => Some("k"),
            6 => Some("M"),
            9 => Some("G"),
            12 => Some("T"),
            15 => Some("P"),
            18 => Some("E"),
            _ => None,
        };
        match suffix {
            Some(suffix) => write!(f, "{value}{suffix}"),
            None if exponent == 0 => write!(f, "{value}"),
            None => write!(f, "{value}e{exponent}"),
        }
    }
}

impl PartialEq for Quantity {
    fn eq(&self, other: &Self) -> bool {
        self.nanos == other.nanos
    }
}

impl Eq for Quantity {}

impl PartialOrd for Quantity {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Quantity {
    fn cmp(&self, other: &Self) -> Ordering {
        self.nanos.cmp(&other.nanos)
    }
}

impl Serialize for Quantity {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Quantity {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl serde::de::Visitor<'_> for Visitor {
            type Value = Quantity;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a quantity (a string or a number)")
            }

            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Quantity, E> {
                text.trim().parse().map_err(E::custom)
            }

            fn visit_i64<E: serde::de::Error>(self, units: i64) -> Result<Quantity, E> {
                Ok(Quantity::new(units, Format::DecimalSi))
            }

            fn visit_u64<E: serde::de::Error>(self, units: u64) -> Result<Quantity, E> {
                self.visit_str(&units.to_string())
            }

            fn visit_f64<E: serde::de::Error>(self, units: f64) -> Result<Quantity, E> {
                self.visit_str(&units.to_string())
            }
        }
        deserializer.deserialize_any(Visitor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn canonical_texts() {
        for (text, want) in [
            ("0", "0"),
            ("0.5", "500m"),
            ("1000m", "1"),
            ("0.5Gi", "512Mi"),
            ("1.5Gi", "1536Mi"),
            ("1024Mi", "1Gi"),
            ("1024Ki", "1Mi"),
            ("1000Ki", "1000Ki"),
            ("1023", "1023"),
            ("1024", "1024"),
            ("0.1Ki", "102400m"),
            ("0.0001Ki", "102400u"),
            ("1.0001Ki", "1024102400u"),
            ("0Ki", "0"),
            ("1E", "1E"),
            ("1Ei", "1Ei"),
            ("16Ei", "9223372036854775807"),
            ("1000E", "1e21"),
            ("1e3", "1e3"),
            ("1e4", "10e3"),
            ("1.5e3", "1500"),
            ("100e-3", "100e-3"),
            ("0.0000000001", "1n"),
            ("1.0000000001", "1000000001n"),
            ("-0.0000000001", "-1n"),
            ("-1.5", "-1500m"),
            ("-1500m", "-1500m"),
            ("+5", "+5"),
            ("1.500", "1.500"),
            ("1.50", "1500m"),
            ("007", "007"),
            ("100000", "100k"),
            (".5Gi", "512Mi"),
            (".5", "500m"),
            ("5.", "5."),
            ("k", "0"),
            ("1e1000000", "170141183460469231731687303715884105727e-9"),
        ] {
            assert_eq!(Quantity::canonical(text).as_deref(), Ok(want), "{text}");
        }
    }

    #[test]
    fn texts_that_are_none() {
        use QuantityError::{Format, Numeric, Suffix};
        for (text, want) in [
            ("", Format),
            ("abc", Format),
            ("1.5.5", Format),
            ("1 Gi", Format),
            ("--1", Suffix),
            ("1K", Suffix),
            ("1mm", Suffix),
            ("1ki", Suffix),
            ("1e", Suffix),
            ("1Gi5", Suffix),
            ("1i", Suffix),
            // Too large for upstream's fast path, which takes `.Gi` for zero.
            (".Pi", Numeric),
        ] {
            assert_eq!(text.parse::<Quantity>(), Err(want), "{text}");
        }
    }

    #[test]
    fn values_round_up() {
        let q: Quantity = "1500u".parse().unwrap();
        assert_eq!((q.value(), q.milli_value()), (1, 2));
        let q: Quantity = "-1500u".parse().unwrap();
        assert_eq!((q.value(), q.milli_value()), (-1, -2));
        assert_eq!("1000E".parse::<Quantity>().unwrap().value(), i64::MAX);
    }

    #[test]
    fn zero_takes_the_format_of_what_is_added() {
        let sum = Quantity::ZERO.saturating_add("1Gi".parse().unwrap());
        assert_eq!(sum.to_string(), "1Gi");
    }

    proptest! {
        #[test]
        fn never_panics(text in "[+-]?[0-9]{0,40}(\\.[0-9]{0,40})?[eEinumkKMGTPx]{0,3}[+-]?[0-9]{0,12}") {
            let _ = Quantity::canonical(&text);
        }

        #[test]
        fn printing_loses_nothing(nanos in any::<i64>(), format in 0..3u8) {
            let format = [Format::DecimalExponent, Format::BinarySi, Format::DecimalSi][format as usize];
            let q = Quantity::from_nanos(i128::from(nanos), format);
            let again: Quantity = q.to_string().parse().unwrap();
            prop_assert_eq!(again, q);
            prop_assert_eq!(again.to_string(), q.to_string());
        }

        #[test]
        fn binary_fractions_are_exact(whole in 0u32..5000, fraction in 0u32..1_000_000, power in 1u32..4) {
            let text = format!("{whole}.{fraction:06}{}", ["Ki", "Mi", "Gi"][power as usize - 1]);
            let q: Quantity = text.parse().unwrap();
            let micro = i128::from(whole) * 1_000_000 + i128::from(fraction);
            prop_assert_eq!(q.nanos(), micro * (1i128 << (10 * power)) * 1000);
        }

        #[test]
        fn order_is_numeric(a in any::<i32>(), b in any::<i32>()) {
            let (qa, qb): (Quantity, Quantity) =
                (format!("{a}m").parse().unwrap(), format!("{b}m").parse().unwrap());
            prop_assert_eq!(qa.cmp(&qb), a.cmp(&b));
        }
    }
}

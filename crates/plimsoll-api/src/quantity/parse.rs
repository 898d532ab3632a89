//! How quantities are read (apimachinery `ParseQuantity` in `pkg/api/resource/quantity.go`).

use super::{Format, NANO, Quantity, QuantityError};

/// Upstream caps amounts with a binary suffix here.
const MAX_BINARY: i128 = i64::MAX as i128 * NANO;

/// A quantity's text taken apart.
pub(super) struct Parts<'a> {
    negative: bool,
    /// Digits before the point, without leading zeros.
    whole: &'a str,
    /// Digits after the point.
    fraction: &'a str,
    /// Whether there was any digit.
    digits: bool,
    base: u8,
    exponent: i32,
    format: Format,
}

impl<'a> Parts<'a> {
    pub(super) fn split(text: &'a str) -> Result<Self, QuantityError> {
        if text.is_empty() {
            return Err(QuantityError::Format);
        }
        let (negative, unsigned) = match text.as_bytes() {
            [b'-', ..] => (true, &text[1..]),
            [b'+', ..] => (false, &text[1..]),
            _ => (false, text),
        };
        let (all, rest) = digits(unsigned);
        let (fraction, suffix) = match rest.strip_prefix('.') {
            Some(after) => digits(after),
            None => ("", rest),
        };
        let letters = suffix.trim_start_matches(|c| "eEinumkKMGTP".contains(c));
        let tail = letters.strip_prefix(['+', '-']).unwrap_or(letters);
        if !tail.bytes().all(|b| b.is_ascii_digit()) {
            return Err(QuantityError::Format);
        }
        let (base, exponent, format) = suffix_of(suffix).ok_or(QuantityError::Suffix)?;
        let digits = !(all.is_empty() && fraction.is_empty());
        let whole = all.trim_start_matches('0');
        Ok(Self { negative, whole, fraction, digits, base, exponent, format })
    }

    /// Upstream's fast path, where the numeric part is not looked at as text (so `k` alone is zero).
    fn fast(&self) -> bool {
        let whole = self.whole.len().max(1);
        match self.format {
            Format::BinarySi => {
                #[allow(clippy::cast_possible_truncation)]
                let bits = (self.exponent as f32 * 3.0 / 10.0) as i64;
                self.fraction.is_empty() && 14 - whole as i64 - bits >= 0
            }
            _ => {
                whole + self.fraction.len() <= 18
                    && i64::from(self.exponent) - self.fraction.len() as i64 >= -9
            }
        }
    }

    /// Whether upstream keeps the text because it takes it for canonical.
    pub(super) fn kept(&self, text: &str) -> bool {
        if text == "0" {
            return true;
        }
        if !self.fast() {
            return false;
        }
        match self.format {
            Format::BinarySi => self.whole.parse::<i64>().unwrap_or(0) & 7 != 0,
            _ => {
                let scale = self.exponent - i32::try_from(self.fraction.len()).unwrap_or(i32::MAX);
                let shifted = format!("{}{}", self.whole, self.fraction);
                scale % 3 == 0 && !shifted.ends_with("000") && !self.whole.is_empty()
            }
        }
    }

    pub(super) fn quantity(&self) -> Result<Quantity, QuantityError> {
        if !self.digits && !self.fast() {
            return Err(QuantityError::Numeric);
        }
        let mut format = self.format;
        let mut nanos = if self.base == 2 { self.binary() } else { self.decimal() };
        if format == Format::BinarySi {
            nanos = nanos.min(MAX_BINARY);
            if nanos > 0 && nanos < NANO {
                format = Format::DecimalSi;
            }
        }
        Ok(Quantity { nanos: if self.negative { -nanos } else { nanos }, format })
    }

    /// digits x 10^(exponent - fraction + 9), rounded up.
    fn decimal(&self) -> i128 {
        let shift = i64::from(self.exponent) - self.fraction.len() as i64 + 9;
        let bytes = self.whole.bytes().chain(self.fraction.bytes());
        let total = (self.whole.len() + self.fraction.len()) as i64;
        // With a negative shift the last digits only matter for rounding up.
        let kept = (total + shift.min(0)).max(0);
        let (mut value, mut rest) = (0i128, false);
        for (at, byte) in bytes.enumerate() {
            let digit = i128::from(byte - b'0');
            if (at as i64) < kept {
                value = value.saturating_mul(10).saturating_add(digit);
            } else {
                rest |= digit != 0;
            }
        }
        if value != 0 {
            for _ in 0..shift.clamp(0, 64) {
                value = value.saturating_mul(10);
            }
        }
        value.saturating_add(i128::from(rest))
    }

    /// digits x 2^exponent x 10^(9 - fraction), rounded up.
    fn binary(&self) -> i128 {
        let factor = 1i128 << self.exponent.clamp(0, 60);
        let whole =
            self.whole.bytes().fold(0i128, |v, b| v.saturating_mul(10).saturating_add(i128::from(b - b'0')));
        let unit = factor * NANO;
        // fraction x unit / 10^digits from the last digit on: floors of nested divisions are the floor of all.
        let (mut part, mut rest) = (0i128, false);
        for byte in self.fraction.bytes().rev() {
            let sum = part + i128::from(byte - b'0') * unit;
            rest |= sum % 10 != 0;
            part = sum / 10;
        }
        whole.saturating_mul(unit).saturating_add(part).saturating_add(i128::from(rest))
    }
}

fn digits(text: &str) -> (&str, &str) {
    let end = text.bytes().position(|b| !b.is_ascii_digit()).unwrap_or(text.len());
    text.split_at(end)
}

/// Base, exponent and format of a suffix.
fn suffix_of(suffix: &str) -> Option<(u8, i32, Format)> {
    let decimal = |exponent| Some((10, exponent, Format::DecimalSi));
    let binary = |exponent| Some((2, exponent, Format::BinarySi));
    match suffix {
        "" => decimal(0),
        "n" => decimal(-9),
        "u" => decimal(-6),
        "m" => decimal(-3),
        "k" => decimal(3),
        "M" => decimal(6),
        "G" => decimal(9),
        "T" => decimal(12),
        "P" => decimal(15),
        "E" => decimal(18),
        "Ki" => binary(10),
        "Mi" => binary(20),
        "Gi" => binary(30),
        "Ti" => binary(40),
        "Pi" => binary(50),
        "Ei" => binary(60),
        _ => {
            let exponent = suffix.strip_prefix(['e', 'E'])?.parse::<i64>().ok()?;
            let exponent = i32::try_from(exponent).unwrap_or(if exponent < 0 { i32::MIN } else { i32::MAX });
            Some((10, exponent, Format::DecimalExponent))
        }
    }
}

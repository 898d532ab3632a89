//! Quantities of Kubernetes with all their digits (`k8s.io/apimachinery/pkg/api/resource`): rules compare them, and a number that is
//! too large for a machine word is large all the same.

use std::cmp::Ordering;

use kube_cel::cel::objects::Opaque;

/// Longest number of digits of a sum: numbers of one sum may be that far from each other.
const MAX_DIGITS: i64 = 4096;
/// The smallest part of a quantity is 10 to the power of this.
const SMALLEST: i64 = -9;
/// The largest number of a quantity with a binary suffix.
const LARGEST_BINARY: &[u8] = b"9223372036854775807";

const FORMAT: &str =
    "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'";
const NUMERIC: &str = "unable to parse numeric part of quantity";
const SUFFIX: &str = "unable to parse quantity's suffix";

/// `digits` times 10 to the power of `exponent`. The digits (0 to 9) begin and end with another one than 0; zero has none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Quantity {
    negative: bool,
    digits: Vec<u8>,
    exponent: i64,
}

impl Opaque for Quantity {
    fn runtime_type_name(&self) -> &'static str {
        "kubernetes.Quantity"
    }
}

/// What a suffix stands for: a power of ten, or one of 1024.
enum Scale {
    Ten(i64),
    Binary(u32),
}

fn scale(suffix: &str) -> Result<Scale, &'static str> {
    let binary = |c: char| Some(Scale::Binary(1 + u32::try_from("KMGTPE".find(c)?).ok()?));
    Ok(match suffix {
        "" => Scale::Ten(0),
        "n" => Scale::Ten(-9),
        "u" => Scale::Ten(-6),
        "m" => Scale::Ten(-3),
        "k" => Scale::Ten(3),
        "M" => Scale::Ten(6),
        "G" => Scale::Ten(9),
        "T" => Scale::Ten(12),
        "P" => Scale::Ten(15),
        "E" => Scale::Ten(18),
        _ => match (suffix.strip_suffix('i'), suffix.strip_prefix(['e', 'E'])) {
            (Some(of), _) if of.len() == 1 => of.chars().next().and_then(binary).ok_or(SUFFIX)?,
            (_, Some(power)) => Scale::Ten(i64::from(power.parse::<i32>().map_err(|_| SUFFIX)?)),
            _ => return Err(SUFFIX),
        },
    })
}

impl Quantity {
    /// Reads a quantity (`ParseQuantity`): parts of a billionth are rounded up, and numbers with a binary suffix are capped.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn parse(text: &str) -> Result<Self, &'static str> {
        if text.is_empty() {
            return Err(FORMAT);
        }
        let (negative, rest) = match text.as_bytes().first() {
            Some(b'-') => (true, &text[1..]),
            Some(b'+') => (false, &text[1..]),
            _ => (false, text),
        };
        let digits = |s: &str| s.find(|c: char| !c.is_ascii_digit()).unwrap_or(s.len());
        let (whole, rest) = rest.split_at(digits(rest));
        let (part, suffix) = match rest.strip_prefix('.') {
            Some(rest) => rest.split_at(digits(rest)),
            None => ("", rest),
        };
        let letters = suffix.trim_start_matches(|c| "eEinumkKMGTP".contains(c));
        let power = letters.strip_prefix(['-', '+']).unwrap_or(letters);
        if power.contains(|c: char| !c.is_ascii_digit()) {
            return Err(FORMAT);
        }
        let scale = scale(suffix)?;
        if whole.is_empty() && part.is_empty() {
            return Err(NUMERIC);
        }
        let mut number: Vec<u8> = whole.bytes().chain(part.bytes()).map(|b| b - b'0').collect();
        let mut exponent = -i64::try_from(part.len()).map_err(|_| NUMERIC)?;
        match scale {
            Scale::Ten(power) => exponent = exponent.saturating_add(power),
            Scale::Binary(power) => (0..power).for_each(|_| multiply(&mut number, 1024)),
        }
        let mut quantity = Self::of(negative, number, exponent);
        quantity.round_up();
        if matches!(scale, Scale::Binary(_)) {
            quantity.cap();
        }
        Ok(quantity)
    }

    /// A whole number.
    pub fn from_int(i: i64) -> Self {
        Self::of(i < 0, i.unsigned_abs().to_string().bytes().map(|b| b - b'0').collect(), 0)
    }

    fn of(negative: bool, mut digits: Vec<u8>, mut exponent: i64) -> Self {
        let zeros = digits.iter().take_while(|d| **d == 0).count();
        digits.drain(..zeros);
        while digits.last() == Some(&0) {
            digits.pop();
            exponent = exponent.saturating_add(1);
        }
        if digits.is_empty() {
            return Self::default();
        }
        Self { negative, digits, exponent }
    }

    fn round_up(&mut self) {
        let cut = SMALLEST.saturating_sub(self.exponent);
        let (Ok(cut), false) = (usize::try_from(cut), self.digits.is_empty()) else { return };
        if cut == 0 {
            return;
        }
        // All of what is cut ends with another digit than 0.
        let mut digits = self.digits[..self.digits.len().saturating_sub(cut)].to_vec();
        increment(&mut digits);
        *self = Self::of(self.negative, digits, SMALLEST);
    }

    fn cap(&mut self) {
        let most = Self::of(self.negative, LARGEST_BINARY.iter().map(|b| b - b'0').collect(), 0);
        if self.magnitude(&most).is_gt() {
            *self = most;
        }
    }

    /// -1, 0 or 1.
    pub fn sign(&self) -> i64 {
        match (self.digits.is_empty(), self.negative) {
            (true, _) => 0,
            (_, true) => -1,
            _ => 1,
        }
    }

    /// The number, if it is whole and an `int`.
    pub fn as_int(&self) -> Option<i64> {
        let zeros = usize::try_from(self.exponent).ok()?;
        if self.digits.is_empty() {
            return Some(0);
        }
        if self.digits.len().checked_add(zeros)? > 19 {
            return None;
        }
        let digits = self.digits.iter().copied().chain(std::iter::repeat_n(0, zeros));
        let number = digits.fold(0_i128, |n, d| n * 10 + i128::from(d));
        i64::try_from(if self.negative { -number } else { number }).ok()
    }

    /// The nearest `double`.
    pub fn as_float(&self) -> f64 {
        let sign = if self.negative { "-" } else { "" };
        let digits: String = self.digits.iter().map(|d| char::from(b'0' + d)).collect();
        format!("{sign}0{digits}e{}", self.exponent).parse().unwrap_or(f64::NAN)
    }

    fn magnitude(&self, other: &Self) -> Ordering {
        // Where the first digit stands. Without digits it stands nowhere.
        let first = |q: &Self| {
            let length = i64::try_from(q.digits.len()).unwrap_or(i64::MAX);
            if q.digits.is_empty() { i64::MIN } else { q.exponent.saturating_add(length) }
        };
        first(self).cmp(&first(other)).then_with(|| self.digits.cmp(&other.digits))
    }

    /// The sum.
    ///
    /// # Errors
    /// When the numbers are too far from each other.
    pub fn add(&self, other: &Self) -> Result<Self, &'static str> {
        let exponent = self.exponent.min(other.exponent);
        let aligned = |q: &Self| {
            let zeros = q.exponent.saturating_sub(exponent);
            if zeros > MAX_DIGITS {
                return Err("quantities are too far from each other to be added");
            }
            let zeros = usize::try_from(zeros).unwrap_or(0);
            Ok(q.digits.iter().copied().chain(std::iter::repeat_n(0, zeros)).collect::<Vec<u8>>())
        };
        if self.digits.is_empty() || other.digits.is_empty() {
            return Ok(if self.digits.is_empty() { other.clone() } else { self.clone() });
        }
        let (a, b) = (aligned(self)?, aligned(other)?);
        if self.negative == other.negative {
            return Ok(Self::of(self.negative, sum(&a, &b), exponent));
        }
        Ok(match self.magnitude(other) {
            Ordering::Less => Self::of(other.negative, difference(&b, &a), exponent),
            _ => Self::of(self.negative, difference(&a, &b), exponent),
        })
    }

    /// The other sign.
    pub fn negated(&self) -> Self {
        Self { negative: !self.negative && !self.digits.is_empty(), ..self.clone() }
    }
}

impl PartialOrd for Quantity {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Quantity {
    fn cmp(&self, other: &Self) -> Ordering {
        self.sign().cmp(&other.sign()).then_with(|| {
            let magnitude = self.magnitude(other);
            if self.negative { magnitude.reverse() } else { magnitude }
        })
    }
}

fn multiply(digits: &mut Vec<u8>, by: u32) {
    let mut carry = 0_u32;
    for digit in digits.iter_mut().rev() {
        let product = u32::from(*digit) * by + carry;
        *digit = (product % 10) as u8;
        carry = product / 10;
    }
    let mut front = Vec::new();
    while carry > 0 {
        front.push((carry % 10) as u8);
        carry /= 10;
    }
    digits.splice(..0, front.into_iter().rev());
}

fn increment(digits: &mut Vec<u8>) {
    for digit in digits.iter_mut().rev() {
        if *digit < 9 {
            *digit += 1;
            return;
        }
        *digit = 0;
    }
    digits.insert(0, 1);
}

fn sum(a: &[u8], b: &[u8]) -> Vec<u8> {
    let (mut out, mut carry) = (Vec::with_capacity(a.len().max(b.len()) + 1), 0);
    let (mut a, mut b) = (a.iter().rev(), b.iter().rev());
    loop {
        let digit = match (a.next(), b.next()) {
            (None, None) if carry == 0 => break,
            (x, y) => x.copied().unwrap_or(0) + y.copied().unwrap_or(0) + carry,
        };
        out.push(digit % 10);
        carry = digit / 10;
    }
    out.reverse();
    out
}

/// Of the larger one and the smaller one.
fn difference(a: &[u8], b: &[u8]) -> Vec<u8> {
    let (mut out, mut borrow) = (Vec::with_capacity(a.len()), 0);
    let mut b = b.iter().rev();
    for digit in a.iter().rev() {
        let take = b.next().copied().unwrap_or(0) + borrow;
        borrow = u8::from(*digit < take);
        out.push(digit + 10 * borrow - take);
    }
    out.reverse();
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn q(text: &str) -> Quantity {
        Quantity::parse(text).expect(text)
    }

    #[test]
    fn quantities_have_all_their_digits() {
        for (small, large) in [
            ("10Gi", "1e40"),
            ("10Gi", "1e128"),
            ("10Gi", "1e200"),
            ("-1e40", "-1"),
            ("999m", "1"),
            ("1023Mi", "1Gi"),
            ("1.5Gi", "1611M"),
            ("0", "0.0000000001"),
            ("-1", "0"),
            ("99999999999999999999999999999999999999998", "99999999999999999999999999999999999999999"),
        ] {
            assert!(q(small) < q(large), "{small} {large}");
            assert!(q(large) > q(small), "{small} {large}");
        }
        for (one, other) in [
            ("1Gi", "1073741824"),
            ("1e3", "1k"),
            ("1E3", "1000.000"),
            ("-0", "0"),
            (".5", "500m"),
            ("5.", "5"),
            ("9Ei", "9223372036854775807"),
            ("-9Ei", "-9223372036854775807"),
            ("0.0000000001", "1n"),
            ("1.0000000001", "1000000001n"),
            ("0.5Ki", "512"),
        ] {
            assert_eq!(q(one), q(other), "{one} {other}");
        }
        for wrong in ["", " 1", "1 ", "1.1.1", ".", "+", "--1", "1ki", "1e", "1x", "é", "1e1x", "1Kii"] {
            assert!(Quantity::parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn sums_and_numbers() {
        for (a, b, want) in [
            ("1", "2", "3"),
            ("1Gi", "1k", "1073742824"),
            ("999", "1", "1000"),
            ("1", "-1", "0"),
            ("1", "-2.5", "-1.5"),
            ("-2.5", "1", "-1.5"),
            ("1e40", "1", "10000000000000000000000000000000000000001"),
            ("100", "-1n", "99.999999999"),
        ] {
            assert_eq!(q(a).add(&q(b)), Ok(q(want)), "{a} {b}");
            assert_eq!(q(b).add(&q(a)), Ok(q(want)), "{b} {a}");
            assert_eq!(q(want).add(&q(b).negated()), Ok(q(a)), "{want} {b}");
        }
        assert!(q("1e100000").add(&q("1")).is_err());
        for (text, want) in [
            ("9223372036854775807", Some(i64::MAX)),
            ("-9223372036854775808", Some(i64::MIN)),
            ("9223372036854775808", None),
            ("1e1000000000", None),
            ("1m", None),
            ("0", Some(0)),
            ("5k", Some(5000)),
        ] {
            assert_eq!(q(text).as_int(), want, "{text}");
        }
        assert_eq!((q("-1.5").as_float(), q("0").as_float(), q("-1.5").sign()), (-1.5, 0.0, -1));
        assert_eq!(Quantity::from_int(-1200), q("-1200"));
    }
}

//! A small deterministic mutator that knows a little about JSON and YAML.

use plimsoll_state::rng::Rng;

/// Values that break things, put in place of numbers and strings.
const TOKENS: &[&str] = &[
    "-1",
    "0",
    "1",
    "9223372036854775807",
    "9223372036854775808",
    "-9223372036854775808",
    "18446744073709551616",
    "2147483648",
    "-2147483649",
    "1e999",
    "1e-999",
    "0.0000000001",
    "\"1E\"",
    "\"9223372036854775807Ei\"",
    "\"-5\"",
    "\"1n\"",
    "\"100m\"",
    "\"99999999999999999999999999999999999999999\"",
    "\"\"",
    "\"*\"",
    "\"NotIn\"",
    "\"Gt\"",
    "\"Near\"",
    "\"\\u0000\"",
    "\"\\ud83d\\ude00\"",
    "\"kubernetes.io/hostname\"",
    "\"a/b/c\"",
    "\"2031-13-45T99:99:99Z\"",
    "\"0001-01-01T00:00:00Z\"",
    "\"9999-12-31T23:59:59Z\"",
    "null",
    "true",
    "{}",
    "[]",
    "[[]]",
    "{\"a\":{\"a\":{\"a\":{}}}}",
    ",",
    ":",
    "- ",
    "&a [*a]",
    "!=",
    " notin (",
];

/// Makes inputs from seeds; the same generator seed gives the same inputs.
#[derive(Clone, Debug)]
pub struct Mutator {
    rng: Rng,
}

impl Mutator {
    /// A mutator started at `seed`.
    pub const fn new(seed: u64) -> Self {
        Self { rng: Rng::new(seed) }
    }

    fn below(&mut self, bound: usize) -> usize {
        self.rng.below(u32::try_from(bound).unwrap_or(u32::MAX)) as usize
    }

    /// One of the seeds, changed in up to eight places.
    pub fn next(&mut self, seeds: &[Vec<u8>]) -> Vec<u8> {
        let at = self.below(seeds.len());
        let mut bytes = seeds.get(at).cloned().unwrap_or_default();
        for _ in 0..=self.below(8) {
            self.change(&mut bytes, seeds);
        }
        bytes.truncate(crate::MAX_INPUT);
        bytes
    }

    fn change(&mut self, bytes: &mut Vec<u8>, seeds: &[Vec<u8>]) {
        let n = bytes.len();
        let at = self.below(n + 1).min(n);
        match self.below(10) {
            0 if at < n => bytes[at] ^= 1 << self.below(8),
            1 => bytes.insert(at, self.below(256) as u8),
            2 => {
                let end = (at + 1 + self.below(16)).min(n);
                bytes.drain(at..end);
            }
            3 => {
                let end = (at + 1 + self.below(64)).min(n);
                let part = bytes[at..end].to_vec();
                let times = if self.below(16) == 0 { 200 } else { 1 + self.below(3) };
                bytes.splice(at..at, part.repeat(times));
            }
            4 => {
                let other = self.below(seeds.len());
                let other = seeds.get(other).map_or(&[][..], Vec::as_slice);
                let from = self.below(other.len() + 1).min(other.len());
                let to = (from + self.below(256)).min(other.len());
                bytes.splice(at..at, other[from..to].iter().copied());
            }
            5 => self.token(bytes, at..at),
            6 | 7 => {
                let range = run(bytes, at, u8::is_ascii_digit);
                self.token(bytes, range);
            }
            _ => {
                let range = quoted(bytes, at);
                self.token(bytes, range);
            }
        }
    }

    fn token(&mut self, bytes: &mut Vec<u8>, range: std::ops::Range<usize>) {
        let token = TOKENS[self.below(TOKENS.len())];
        bytes.splice(range, token.bytes());
    }
}

/// The first run of bytes of one class at or after `from`.
fn run(bytes: &[u8], from: usize, is: fn(&u8) -> bool) -> std::ops::Range<usize> {
    let start = bytes.iter().skip(from).position(is).map_or(bytes.len(), |i| from + i);
    let end = bytes.iter().skip(start).position(|b| !is(b)).map_or(bytes.len(), |i| start + i);
    start..end
}

/// The first quoted string at or after `from`, with its quotes.
fn quoted(bytes: &[u8], from: usize) -> std::ops::Range<usize> {
    let quote = |b: &u8| *b == b'"';
    let Some(start) = bytes.iter().skip(from).position(quote).map(|i| from + i) else { return from..from };
    let end = bytes.iter().skip(start + 1).position(quote).map_or(bytes.len(), |i| start + i + 2);
    start..end
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_gives_the_same_inputs() {
        let seeds = vec![br#"{"a":"b","n":12}"#.to_vec(), b"cpu: 1".to_vec(), Vec::new()];
        let (mut a, mut b) = (Mutator::new(3), Mutator::new(3));
        let mut distinct = std::collections::BTreeSet::new();
        for _ in 0..500 {
            let input = a.next(&seeds);
            assert_eq!(input, b.next(&seeds));
            distinct.insert(input);
        }
        assert!(distinct.len() > 300, "{}", distinct.len());
    }

    #[test]
    fn strings_and_numbers_are_found() {
        assert_eq!(quoted(br#"{"a":"b"}"#, 4), 5..8);
        assert_eq!(quoted(b"{}", 1), 1..1);
        assert_eq!(run(b"a: 120,", 0, u8::is_ascii_digit), 3..6);
    }
}

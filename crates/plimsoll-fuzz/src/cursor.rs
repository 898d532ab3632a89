//! Bytes read as decisions.

/// Takes numbers and choices from bytes; when they are used up, every answer is zero.
#[derive(Clone, Debug)]
pub struct Cursor<'a> {
    bytes: &'a [u8],
}

impl<'a> Cursor<'a> {
    /// Reads from the start of `bytes`.
    pub const fn new(bytes: &'a [u8]) -> Self {
        Self { bytes }
    }

    /// Whether all bytes are used.
    pub const fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// The next byte.
    pub const fn byte(&mut self) -> u8 {
        match self.bytes.split_first() {
            Some((first, rest)) => {
                self.bytes = rest;
                *first
            }
            None => 0,
        }
    }

    /// The next eight bytes as a number.
    pub fn number(&mut self) -> i64 {
        (0..8).fold(0, |n, _| (n << 8) | i64::from(self.byte()))
    }

    /// A number below `bound` (at most 256); 0 when `bound` is 0.
    pub fn below(&mut self, bound: usize) -> usize {
        usize::from(self.byte()).checked_rem(bound).unwrap_or(0)
    }

    /// One of the choices.
    ///
    /// # Panics
    /// When there is none.
    pub fn pick<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len())]
    }

    /// True once in `n` times (`n` at most 256).
    pub fn once_in(&mut self, n: usize) -> bool {
        self.below(n) == 1
    }

    /// Up to `most` of something.
    pub fn list<T>(&mut self, most: usize, mut make: impl FnMut(&mut Self) -> T) -> Vec<T> {
        let n = self.below(most + 1);
        (0..n).map(|_| make(self)).collect()
    }
}

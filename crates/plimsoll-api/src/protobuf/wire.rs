//! The encoding itself: https://protobuf.dev/programming-guides/encoding/.

use serde::de::Error as _;

use super::{Error, Result};

/// A value as it stands there.
#[derive(Clone, Copy, Debug)]
pub(super) enum Wire<'a> {
    Number(u64),
    Bytes(&'a [u8]),
}

/// Number and value of a field.
pub(super) type Field<'a> = (u32, Wire<'a>);

/// What is left of a message.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reader<'a>(pub(super) &'a [u8]);

impl<'a> Reader<'a> {
    /// Number and value of the next field.
    #[allow(clippy::should_implement_trait)]
    pub(super) fn next(&mut self) -> Result<Option<Field<'a>>> {
        if self.0.is_empty() {
            return Ok(None);
        }
        let tag = self.varint()?;
        let number = u32::try_from(tag >> 3).map_err(Error::custom)?;
        let value = match tag & 7 {
            0 => Wire::Number(self.varint()?),
            1 => Wire::Number(self.fixed::<8>().map(u64::from_le_bytes)?),
            2 => {
                let length = usize::try_from(self.varint()?).map_err(Error::custom)?;
                let (value, rest) = self.0.split_at_checked(length).ok_or_else(cut)?;
                self.0 = rest;
                Wire::Bytes(value)
            }
            5 => Wire::Number(self.fixed::<4>().map(u32::from_le_bytes)?.into()),
            other => return Err(Error::custom(format!("wire type {other} of field {number}"))),
        };
        Ok(Some((number, value)))
    }

    /// As [`Self::next`], with the bytes of the whole field before it.
    pub(super) fn next_with_bytes(&mut self) -> Result<Option<(&'a [u8], Field<'a>)>> {
        let before = self.0;
        let field = self.next()?;
        Ok(field.map(|field| (&before[..before.len() - self.0.len()], field)))
    }

    fn varint(&mut self) -> Result<u64> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let (byte, rest) = self.0.split_first().ok_or_else(cut)?;
            self.0 = rest;
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(Error::custom("a number of more than 64 bits"))
    }

    fn fixed<const N: usize>(&mut self) -> Result<[u8; N]> {
        let (value, rest) = self.0.split_first_chunk::<N>().ok_or_else(cut)?;
        self.0 = rest;
        Ok(*value)
    }
}

/// Writes a length.
pub(super) fn put_varint(out: &mut Vec<u8>, mut value: usize) {
    while value >= 0x80 {
        out.push((value & 0x7f) as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

fn cut() -> Error {
    Error::custom("the message is cut off")
}

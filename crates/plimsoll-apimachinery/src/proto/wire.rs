//! Tags, numbers and lengths as protobuf writes them.

/// Wire type of integers and booleans.
pub const VARINT: u8 = 0;
/// Wire type of doubles.
pub const FIXED64: u8 = 1;
/// Wire type of text and messages.
pub const BYTES: u8 = 2;

/// A number, seven bits at a time.
pub fn varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(u8::try_from(value & 0x7f).unwrap_or_default() | 0x80);
        value >>= 7;
    }
    out.push(u8::try_from(value).unwrap_or_default());
}

/// Number and wire type of a field.
pub fn tag(out: &mut Vec<u8>, number: u32, wire: u8) {
    varint(out, u64::from(number) << 3 | u64::from(wire));
}

/// A field of text or a message.
pub fn bytes(out: &mut Vec<u8>, number: u32, value: &[u8]) {
    tag(out, number, BYTES);
    varint(out, value.len() as u64);
    out.extend_from_slice(value);
}

//! Messages in protobuf, field by field.

use plimsoll_state::Time;
use plimsoll_state::model::{Resources, StringMap};

/// A message that is being written.
#[derive(Debug, Default)]
pub struct Message(pub Vec<u8>);

impl Message {
    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
    }

    fn key(&mut self, field: u32, wire: u32) {
        self.varint(u64::from(field << 3 | wire));
    }

    pub fn int(&mut self, field: u32, value: i64) {
        self.key(field, 0);
        self.varint(value.cast_unsigned());
    }

    pub fn bool(&mut self, field: u32, value: bool) {
        if value {
            self.int(field, 1);
        }
    }

    pub fn bytes(&mut self, field: u32, bytes: &[u8]) {
        self.key(field, 2);
        self.varint(bytes.len() as u64);
        self.0.extend_from_slice(bytes);
    }

    /// A text; an empty one is left out.
    pub fn text(&mut self, field: u32, text: &str) {
        if !text.is_empty() {
            self.bytes(field, text.as_bytes());
        }
    }

    pub fn message(&mut self, field: u32, write: impl FnOnce(&mut Self)) {
        let mut inner = Self::default();
        write(&mut inner);
        self.bytes(field, &inner.0);
    }

    pub fn map(&mut self, field: u32, map: &StringMap) {
        for (key, value) in map {
            self.message(field, |m| {
                m.bytes(1, key.as_bytes());
                m.bytes(2, value.as_bytes());
            });
        }
    }

    pub fn resources(&mut self, field: u32, resources: &Resources) {
        for (name, amount) in resources {
            let quantity = match amount {
                // Whole CPUs as Kubernetes writes them.
                milli if name == "cpu" && milli % 1000 == 0 => (milli / 1000).to_string(),
                milli if name == "cpu" => format!("{milli}m"),
                amount => amount.to_string(),
            };
            self.message(field, |m| {
                m.bytes(1, name.as_bytes());
                m.message(2, |m| m.text(1, &quantity));
            });
        }
    }

    pub fn time(&mut self, field: u32, time: Time) {
        let (seconds, nanos) = (time.0.div_euclid(1_000_000_000), time.0.rem_euclid(1_000_000_000));
        self.message(field, |m| {
            m.int(1, seconds);
            m.int(2, nanos);
        });
    }
}

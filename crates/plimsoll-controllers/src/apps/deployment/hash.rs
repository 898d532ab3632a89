//! Names of ReplicaSets: a hash of the pod template.

use serde_json::Value;

/// Characters that make no words (`util/rand`).
const ALPHABET: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";

/// The hash of a template in the form upstream writes it: 32 bits of FNV-1a, as decimal digits in another alphabet. Upstream
/// hashes Go's dump of the template, so the value is another one.
pub fn template_hash(template: &Value, collisions: Option<i32>) -> String {
    let mut hash: u32 = 0x811c_9dc5;
    let mut feed = |bytes: &[u8]| {
        for byte in bytes {
            hash = (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193);
        }
    };
    feed(template.to_string().as_bytes());
    if let Some(n) = collisions {
        feed(&n.to_le_bytes());
    }
    let digits = hash.to_string();
    digits
        .bytes()
        .filter_map(|d| ALPHABET.get(usize::from(d) % ALPHABET.len()))
        .map(|c| char::from(*c))
        .collect()
}

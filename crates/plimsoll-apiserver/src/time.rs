//! Times as objects have them.

use jiff::Timestamp;

/// `metav1.Time`: whole seconds.
pub fn seconds(t: Timestamp) -> String {
    Timestamp::from_second(t.as_second()).unwrap_or(t).to_string()
}

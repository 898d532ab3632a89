//! Configuration files, read as strictly as the original programs read them. Errors have the path of the field, the
//! words of upstream's validation where it has them, and the values that are valid; all errors of a file are reported at once.

mod decode;
mod error;
pub mod kueue;
pub mod scheduler;
mod selector;

use serde_json::Value;

pub use decode::{decode, parse};
pub use error::{ConfigError, check_kind, flag_of, nearest, unsupported};

/// apimachinery's `IsNegativeErrorMsg`.
const NEGATIVE: &str = "must be greater than or equal to 0";

/// `clientConnection`: how many requests a client may make.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ClientConnection {
    /// `qps`, requests a second; below 0: no limit, 0: 5, as in client-go.
    pub qps: f64,
    /// `burst`, requests at once after a silence; 0: 10.
    pub burst: u32,
}

/// Those of some top-level fields that a file has, in the order in which they are asked for. None where it can't be read.
pub fn present<'a>(text: &str, fields: &[&'a str]) -> Vec<&'a str> {
    let value: Value = parse(text).unwrap_or_default();
    fields.iter().copied().filter(|f| value.get(f).is_some_and(|v| !v.is_null())).collect()
}

//! Continue tokens of lists that come in pages (`apiserver/pkg/storage/continue.go`).

use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use serde_json::{Value, json};

use crate::decode::{explain, go_quote};

/// Where the next page begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Token {
    /// Version of the list; -1: of what is there now, for tokens made after an expiry.
    pub revision: i64,
    /// Key of the first object, relative to the resource; not empty, without `.` and `..` as parts.
    pub start: String,
}

impl Token {
    /// As a client gets it.
    pub fn encode(&self) -> String {
        let start = json!(self.start);
        let text = format!("{{\"v\":\"meta.k8s.io/v1\",\"rv\":{},\"start\":{start}}}", self.revision);
        BASE64_URL_SAFE_NO_PAD.encode(text)
    }

    /// Reads what a client sent.
    ///
    /// # Errors
    /// What is wrong with it, in upstream's words.
    pub fn parse(token: &str) -> Result<Self, String> {
        let bad = |why: String| Err(format!("continue key is not valid: {why}"));
        let bytes = match BASE64_URL_SAFE_NO_PAD.decode(token.trim_end_matches('=')) {
            Ok(bytes) => bytes,
            Err(base64::DecodeError::InvalidByte(at, _)) => {
                return bad(format!("illegal base64 data at input byte {at}"));
            }
            Err(_) => return bad(format!("illegal base64 data at input byte {}", token.len())),
        };
        let Ok(value) = serde_json::from_slice::<Value>(&bytes) else {
            return bad(explain(&bytes).unwrap_or_else(|| "unexpected end of JSON input".to_owned()));
        };
        let version = value["v"].as_str().unwrap_or("");
        if version != "meta.k8s.io/v1" {
            return bad(format!("server does not recognize this encoded version {}", go_quote(version)));
        }
        let start = value["start"].as_str().unwrap_or("").to_owned();
        if start.is_empty() {
            return bad("encoded start key empty (incorrect token)".to_owned());
        }
        if start.split('/').any(|s| matches!(s, ".." | ".")) {
            return bad(format!("invalid start key: {}", go_quote(&start)));
        }
        Ok(Self { revision: value["rv"].as_i64().unwrap_or(0), start })
    }
}

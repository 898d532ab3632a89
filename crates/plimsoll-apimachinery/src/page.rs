//! Continue tokens of lists that come in pages (`apiserver/pkg/storage/continue.go`).

use base64::Engine;
use base64::alphabet::URL_SAFE;
use base64::engine::general_purpose::{GeneralPurpose, NO_PAD};
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use serde_json::{Value, json};

use crate::decode::{explain, json_kind as word};

/// As Go decodes: bits that are left over at the end don't matter.
const GO: GeneralPurpose = GeneralPurpose::new(&URL_SAFE, NO_PAD.with_decode_allow_trailing_bits(true));

/// The start of the next page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Token {
    /// Version of the list; -1 for the current objects, in tokens made after an expiry.
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

    /// Reads a client's token.
    ///
    /// # Errors
    /// The token is malformed; the text is upstream's.
    pub fn parse(token: &str) -> Result<Self, String> {
        let bad = |why: String| Err(format!("continue key is not valid: {why}"));
        let bytes = match GO.decode(token.trim_end_matches('=')) {
            Ok(bytes) => bytes,
            Err(base64::DecodeError::InvalidByte(at, _)) => {
                return bad(format!("illegal base64 data at input byte {at}"));
            }
            Err(_) => {
                // One letter too many is where Go stops.
                let at = token.trim_end_matches('=').len().saturating_sub(1);
                return bad(format!("illegal base64 data at input byte {at}"));
            }
        };
        let Ok(value) = serde_json::from_slice::<Value>(&bytes) else {
            return bad(explain(&bytes).unwrap_or_else(|| "unexpected end of JSON input".to_owned()));
        };
        let Fields { version, revision, start } =
            Fields::of(&value).map_err(|why| format!("continue key is not valid: {why}"))?;
        if version != "meta.k8s.io/v1" {
            let why = "server does not recognize this encoded version";
            return Err(format!("continue key is not valid: {why} {version}"));
        }
        if revision == 0 {
            return bad("incorrect encoded start resourceVersion (version meta.k8s.io/v1)".to_owned());
        }
        if start.is_empty() {
            return bad("encoded start key empty (version meta.k8s.io/v1)".to_owned());
        }
        // A path that resolves to another one, such as one outside of the resource.
        if start.strip_prefix('/').unwrap_or(start).split('/').any(|s| matches!(s, "" | ".." | ".")) {
            return bad(start.to_owned());
        }
        Ok(Self { revision, start: start.to_owned() })
    }
}

/// A token's content; missing fields are zero, as in Go.
#[derive(Default)]
struct Fields<'a> {
    version: &'a str,
    revision: i64,
    start: &'a str,
}

impl<'a> Fields<'a> {
    fn of(value: &'a Value) -> Result<Self, String> {
        let fields = match value {
            Value::Null => return Ok(Self::default()),
            Value::Object(fields) => fields,
            other => {
                let found = word(other);
                return Err(format!(
                    "json: cannot unmarshal {found} into Go value of type storage.continueToken"
                ));
            }
        };
        let wrong = |field: &str, value: &Value, kind: &str| {
            // Numbers that are not whole are shown.
            let found = if value.is_number() && kind == "int64" {
                format!("number {value}")
            } else {
                word(value).to_owned()
            };
            format!(
                "json: cannot unmarshal {found} into Go struct field continueToken.{field} of type {kind}"
            )
        };
        let text = |field: &str| match fields.get(field) {
            None | Some(Value::Null) => Ok(""),
            Some(Value::String(text)) => Ok(text.as_str()),
            Some(other) => Err(wrong(field, other, "string")),
        };
        let revision = match fields.get("rv") {
            None | Some(Value::Null) => 0,
            Some(other) => other.as_i64().ok_or_else(|| wrong("rv", other, "int64"))?,
        };
        Ok(Self { version: text("v")?, revision, start: text("start")? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_encoded_is_read() {
        for token in [
            Token { revision: 7, start: "default/a\0".to_owned() },
            Token { revision: -1, start: "a\0".to_owned() },
        ] {
            assert_eq!(Token::parse(&token.encode()), Ok(token));
        }
    }

    #[test]
    fn what_is_no_token() {
        let encoded = |text: &str| BASE64_URL_SAFE_NO_PAD.encode(text);
        let rows = [
            (
                r#"{"v":"meta.k8s.io/v1","start":"a"}"#,
                ": incorrect encoded start resourceVersion (version meta.k8s.io/v1)",
            ),
            (
                r#"{"v":"meta.k8s.io/v1","rv":0,"start":"a"}"#,
                ": incorrect encoded start resourceVersion (version meta.k8s.io/v1)",
            ),
            (
                r#"{"v":"meta.k8s.io/v1","rv":0}"#,
                ": incorrect encoded start resourceVersion (version meta.k8s.io/v1)",
            ),
            (r#"{"v":"meta.k8s.io/v1","rv":5}"#, ": encoded start key empty (version meta.k8s.io/v1)"),
            (
                r#"{"v":"meta.k8s.io/v1","rv":5,"start":""}"#,
                ": encoded start key empty (version meta.k8s.io/v1)",
            ),
            (r#"{"v":"meta.k8s.io/v1","rv":5,"start":"a/../b"}"#, ": a/../b"),
            (r#"{"v":"meta.k8s.io/v1","rv":5,"start":"a//b"}"#, ": a//b"),
            (r#"{"v":"meta.k8s.io/v1","rv":5,"start":"a/"}"#, ": a/"),
            (
                r#"{"v":"meta.k8s.io/v2","rv":5,"start":"a"}"#,
                ": server does not recognize this encoded version meta.k8s.io/v2",
            ),
            ("null", ": server does not recognize this encoded version "),
            (
                r#"{"v":"meta.k8s.io/v1","rv":"5"}"#,
                ": json: cannot unmarshal string into Go struct field continueToken.rv of type int64",
            ),
            (
                r#"{"v":"meta.k8s.io/v1","rv":1.5}"#,
                ": json: cannot unmarshal number 1.5 into Go struct field continueToken.rv of type int64",
            ),
            (
                r#"{"v":1}"#,
                ": json: cannot unmarshal number into Go struct field continueToken.v of type string",
            ),
            ("[]", ": json: cannot unmarshal array into Go value of type storage.continueToken"),
        ];
        for (text, why) in rows {
            let wanted = Err(format!("continue key is not valid{why}"));
            assert_eq!(Token::parse(&encoded(text)), wanted, "{text}");
        }
        assert_eq!(
            Token::parse("a b"),
            Err("continue key is not valid: illegal base64 data at input byte 1".to_owned())
        );
    }
}

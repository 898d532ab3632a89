//! Answers: what is sent, in which form, with which headers.

use std::collections::HashSet;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode, header};
use plimsoll_apimachinery::ApiError;
use plimsoll_apimachinery::decode::depth;
use serde_json::{Value, json};

use super::body::Body;
use super::negotiate::{Accepted, Format, negotiate_error};

/// What an answer carries.
pub enum Payload {
    /// Nothing.
    Empty,
    /// An object, to be encoded as negotiated.
    Object(Value),
    /// JSON, ready-made (without the newline at the end).
    Json(Bytes),
    /// Other bytes with their content type.
    Raw(Bytes, &'static str),
    /// A stream with its content type.
    Stream(Body, &'static str),
}

/// An answer.
pub struct Reply {
    /// HTTP status.
    pub status: u16,
    /// Body.
    pub payload: Payload,
    /// More headers.
    pub headers: Vec<(HeaderName, String)>,
}

impl Reply {
    /// An object.
    pub fn object(status: u16, value: Value) -> Self {
        Self { status, payload: Payload::Object(value), headers: Vec::new() }
    }

    /// A success without a body.
    pub fn nothing(status: u16) -> Self {
        Self { status, payload: Payload::Empty, headers: Vec::new() }
    }

    /// JSON, ready-made.
    pub fn json(status: u16, bytes: impl Into<Bytes>) -> Self {
        Self { status, payload: Payload::Json(bytes.into()), headers: Vec::new() }
    }

    /// Plain text.
    pub fn text(status: u16, text: impl Into<String>) -> Self {
        let payload = Payload::Raw(Bytes::from(text.into()), "text/plain; charset=utf-8");
        Self { status, payload, headers: Vec::new() }
    }

    /// `404 page not found`, as Go's mux says it.
    pub fn page_not_found() -> Self {
        let mut reply = Self::text(404, "404 page not found\n");
        reply.headers.push((header::X_CONTENT_TYPE_OPTIONS, "nosniff".to_owned()));
        reply
    }

    /// A `Status` of success.
    pub fn success(status: u16) -> Self {
        let mut v = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"});
        v["code"] = json!(status);
        Self::object(status, v)
    }

    /// Sets a header.
    #[must_use]
    pub fn with_header(mut self, name: HeaderName, value: impl Into<String>) -> Self {
        self.headers.push((name, value.into()));
        self
    }

    /// Encodes it.
    pub fn into_response(self, accepted: Accepted, pretty: bool) -> Response<Body> {
        let (body, content_type) = match self.payload {
            Payload::Empty => (Body::empty(), None),
            Payload::Raw(bytes, t) => (Body::full(bytes), Some(t)),
            Payload::Stream(body, t) => (body, Some(t)),
            Payload::Json(bytes) if accepted.format == Format::Json && !pretty => {
                (Body::line(bytes), Some(Format::Json.media_type()))
            }
            Payload::Json(bytes) => {
                let value: Value = depth::from_stored(&bytes).unwrap_or_default();
                let (body, t) = encode(&value, accepted.format, pretty);
                (Body::full(body), Some(t))
            }
            Payload::Object(value) => {
                let (body, t) = encode(&value, accepted.format, pretty);
                (Body::full(body), Some(t))
            }
        };
        let mut response = Response::new(body);
        *response.status_mut() =
            StatusCode::from_u16(self.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        if let Some(t) = content_type {
            response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(t));
        }
        response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache, private"));
        for (name, value) in self.headers {
            if let Ok(value) = HeaderValue::from_str(&value) {
                response.headers_mut().insert(name, value);
            }
        }
        response
    }
}

/// Encodes an object. What has no protobuf form is sent as JSON.
pub fn encode(value: &Value, format: Format, pretty: bool) -> (Vec<u8>, &'static str) {
    match format {
        Format::Yaml => (super::yaml::to_yaml(value).into_bytes(), Format::Yaml.media_type()),
        Format::Protobuf => match crate::machine::to_protobuf(value) {
            Some(bytes) => (bytes, Format::Protobuf.media_type()),
            None => (json_bytes(value, pretty), Format::Json.media_type()),
        },
        Format::Json => (json_bytes(value, pretty), Format::Json.media_type()),
    }
}

fn json_bytes(value: &Value, pretty: bool) -> Vec<u8> {
    let mut bytes =
        if pretty { serde_json::to_vec_pretty(value) } else { serde_json::to_vec(value) }.unwrap_or_default();
    bytes.push(b'\n');
    bytes
}

/// JSON as Go prints it inside messages: compact, with `<`, `>` and `&` escaped.
pub fn go_json(value: &Value) -> String {
    value.to_string().replace('<', "\\u003c").replace('>', "\\u003e").replace('&', "\\u0026")
}

/// The answer for an error.
pub fn error_response(error: &ApiError, headers: &HeaderMap, pretty: bool) -> Response<Body> {
    let accept = headers.get(header::ACCEPT).and_then(|v| v.to_str().ok());
    let accepted = negotiate_error(accept);
    let mut reply = Reply::object(error.code, error.to_status());
    let retry = error.details.as_ref().map_or(0, |d| d.retry_after_seconds);
    if retry > 0 {
        reply.headers.push((header::RETRY_AFTER, retry.to_string()));
    }
    reply.into_response(accepted, pretty || accepted.pretty)
}

/// Most characters of all warnings of an answer: beyond, each is cut, and those that still don't fit are left out.
const ALL_WARNINGS: usize = 4 * 1024;
/// Most characters of a warning that is cut.
const CUT_WARNING: usize = 256;

/// Adds `Warning` headers (`299 - "text"`), each text once, as apiserver's warning filter does.
pub fn add_warnings(response: &mut Response<Body>, warnings: &[String]) {
    let mut seen = HashSet::new();
    let once: Vec<&str> = warnings.iter().map(String::as_str).filter(|text| seen.insert(*text)).collect();
    let length = |text: &str| text.chars().count();
    let cut = once.iter().map(|text| length(text)).sum::<usize>() > ALL_WARNINGS;
    let mut written = 0;
    for text in once {
        if cut && written >= ALL_WARNINGS {
            break;
        }
        let short: String = text.chars().take(if cut { CUT_WARNING } else { usize::MAX }).collect();
        written += length(&short);
        let quoted = short.replace('\\', "\\\\").replace('"', "\\\"");
        let clean: String = quoted.chars().filter(|c| !c.is_control()).collect();
        if let Ok(value) = HeaderValue::from_str(&format!("299 - \"{clean}\"")) {
            response.headers_mut().append(header::WARNING, value);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn warnings_are_told_once_and_stay_short() {
        let told = |warnings: &[String]| -> Vec<String> {
            let mut response = Response::new(Body::empty());
            add_warnings(&mut response, warnings);
            let all = response.headers().get_all(header::WARNING);
            all.iter().map(|v| v.to_str().unwrap().to_owned()).collect()
        };
        let texts = |all: &[&str]| all.iter().map(|t| (*t).to_owned()).collect::<Vec<_>>();
        assert_eq!(told(&texts(&["a", "say \"b\"", "a"])), ["299 - \"a\"", "299 - \"say \\\"b\\\"\""]);
        // Two that fit together stay whole, three are cut.
        let long: Vec<String> = ["x", "y", "z"].iter().map(|c| c.repeat(2000)).collect();
        assert_eq!(told(&long[..2]).iter().map(String::len).max(), Some(2008));
        assert_eq!(told(&long).iter().map(String::len).collect::<Vec<_>>(), [264; 3]);
        let many: Vec<String> = (0..100_000).map(|n| format!("{n:0>300}")).collect();
        assert_eq!(told(&many).len(), ALL_WARNINGS / CUT_WARNING);
    }
}

//! Quantities, selectors and continue tokens.

use std::collections::BTreeMap;

use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use plimsoll_api::Quantity;
use plimsoll_apimachinery::builtin;
use plimsoll_apimachinery::page::Token;
use plimsoll_apimachinery::select::{FieldSelector, LabelSelector};
use serde_json::json;

/// Parses a quantity; its canonical form must be the same amount and canonical itself.
pub fn quantity(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let Ok(q) = text.parse::<Quantity>() else { return };
    let _ = (q.value(), q.milli_value(), q.to_f64(), q.saturating_add(q), q.saturating_sub(q));
    let shown = q.to_string();
    let Ok(again) = shown.parse::<Quantity>() else { panic_at("not canonical", text, &shown) };
    if again.to_string() != shown {
        panic_at("not stable", text, &shown);
    }
    if let Ok(canonical) = Quantity::canonical(text)
        && Quantity::canonical(&canonical).as_ref() != Ok(&canonical)
    {
        panic_at("canonical form is not canonical", text, &canonical);
    }
}

#[expect(clippy::panic, reason = "a fuzz target reports by a panic")]
fn panic_at(what: &str, input: &str, output: &str) -> ! {
    panic!("{what}: {input:?} became {output:?}")
}

/// Parses a label selector of a query and evaluates it.
pub fn labels(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let Ok(selector) = LabelSelector::parse(text) else { return };
    for set in [&[][..], &[("a", "b")], &[("a", "5"), ("b", ""), ("x.y/z", "1")]] {
        let labels: BTreeMap<String, String> =
            set.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        let _ = selector.matches(&labels);
    }
}

/// Parses a field selector for some kinds and evaluates it.
pub fn fields(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let object = json!({"metadata": {"name": "a", "namespace": "b"}, "spec": {"nodeName": "c"}, "type": "x"});
    let table = builtin::table();
    for (group, plural) in [("", "pods"), ("", "secrets"), ("", "events"), ("batch", "jobs")] {
        let Some(kind) = table.resource(group, "v1", plural) else { continue };
        let Ok(selector) = FieldSelector::parse(kind, text) else { continue };
        let _ = (selector.matches(&object), selector.matches_name("a", "b"), selector.exact("metadata.name"));
    }
}

/// Reads a node selector and a label selector from JSON and evaluates them.
pub fn nodes(bytes: &[u8]) {
    let Ok(value) = serde_json::from_slice(bytes) else { return };
    let labels = [("a", "b"), ("c", "9223372036854775808"), ("b", "-8")];
    let labels = labels.map(|(k, v)| (k.to_owned(), v.to_owned())).into();
    if let Ok(selector) = plimsoll_api::convert::node_selector_from_value(&value) {
        let _ = selector.matches("n", &labels);
    }
    if let Ok(selector) = plimsoll_api::convert::label_selector_from_value(&value) {
        let _ = selector.matches(&labels);
    }
}

/// Reads a continue token, as sent and as what was sent before it was encoded; one that is valid must be the same when
/// written and read again.
pub fn token(bytes: &[u8]) {
    let encoded = BASE64_URL_SAFE_NO_PAD.encode(bytes);
    for text in std::str::from_utf8(bytes).into_iter().chain([encoded.as_str()]) {
        let Ok(token) = Token::parse(text) else { continue };
        let written = token.encode();
        if Token::parse(&written).as_ref() != Ok(&token) {
            panic_at("another token", text, &written);
        }
    }
}

//! Admission gates: the annotation that keeps a job from being admitted until others have removed their names from it (Kueue
//! `pkg/util/webhook/validation_admissiongatedby.go`).

use plimsoll_api::{content, json};
use serde_json::Value;

use super::validation::{ErrorList, annotation_path};
use crate::names::GATED_BY;

/// Longest name of a gate, as of `spec.managedBy` of Jobs.
const MOST: usize = 63;
/// Detail of a path with other characters (`validation.IsHTTPPath`).
const PATH: &str = r"Invalid path (regex used for validation is '[A-Za-z0-9/\-._~%!$&'()*+,;=:]+')";

fn value(object: &Value) -> &str {
    json::annotation(object, GATED_BY).unwrap_or_default()
}

/// The names in a value, without spaces around them.
fn gates(value: &str) -> impl Iterator<Item = &str> {
    value.split(',').map(str::trim).filter(move |_| !value.trim().is_empty())
}

/// Gates have valid names. They are set when the object is created; later they can only be removed.
pub(crate) fn validate(object: &Value, old: Option<&Value>, errors: &mut ErrorList) {
    let path = annotation_path(GATED_BY);
    let now = value(object);
    if let Some(old) = old.map(value).filter(|_| !now.is_empty()) {
        if old.is_empty() {
            errors.forbidden(&path, "cannot add admission gate after creation");
        } else if gates(now).any(|gate| !gates(old).any(|g| g == gate)) {
            errors.forbidden(&path, "can only remove gates, not add new ones");
        }
    }
    let mut seen = Vec::new();
    for gate in gates(now) {
        if gate.is_empty() {
            errors.invalid(&path, now, "cannot contain empty gate names");
        } else if seen.contains(&gate) {
            errors.invalid(&path, now, &format!("duplicate gate name: {gate}"));
        } else {
            seen.push(gate);
            name(gate, &path, errors);
        }
    }
}

/// The name of a gate: a path with a domain before it (`validation.IsDomainPrefixedPath`).
fn name(gate: &str, path: &str, errors: &mut ErrorList) {
    match gate.split_once('/').filter(|(domain, rest)| !domain.is_empty() && !rest.is_empty()) {
        None => errors.invalid(path, gate, "must be a domain-prefixed path (such as \"acme.io/foo\")"),
        Some((domain, rest)) => {
            for detail in content::subdomain(domain) {
                errors.invalid(path, domain, detail);
            }
            let valid = |b: u8| b.is_ascii_alphanumeric() || b"/-._~%!$&'()*+,;=:".contains(&b);
            if !rest.bytes().all(valid) {
                errors.invalid(path, rest, PATH);
            }
        }
    }
    if gate.len() > MOST {
        errors.too_long(path, MOST);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn check(old: Option<&str>, new: &str) -> Option<String> {
        let object = |gates: &str| json!({"metadata": {"annotations": {GATED_BY: gates}}});
        let mut errors = ErrorList::default();
        validate(&object(new), old.map(object).as_ref(), &mut errors);
        errors.into_message()
    }

    #[test]
    fn gates_have_valid_names_and_are_only_removed() {
        for good in ["", " ", "a.io/x", "a.io/x, b.io/y/z"] {
            assert_eq!(check(None, good), None, "{good}");
        }
        for (bad, want) in [
            ("a.io/x,", "cannot contain empty gate names"),
            ("a.io/x,a.io/x", "duplicate gate name: a.io/x"),
            ("x", "must be a domain-prefixed path (such as \"acme.io/foo\")"),
            ("A/x", "a lowercase RFC 1123 subdomain must consist of"),
            ("a.io/x y", "Invalid path"),
            (&format!("a.io/{}", "x".repeat(59)), "Too long: may not be more than 63 bytes"),
        ] {
            let got = check(None, bad).unwrap_or_default();
            assert!(got.contains(want) && got.contains(&annotation_path(GATED_BY)), "{bad}: {got}");
            assert!(check(Some(bad), bad).is_some(), "{bad}");
        }
        assert_eq!(check(Some("a.io/x,b.io/y"), "b.io/y"), None);
        assert_eq!(check(Some("a.io/x"), ""), None);
        let forbidden = |detail: &str| Some(format!("{}: Forbidden: {detail}", annotation_path(GATED_BY)));
        assert_eq!(check(Some(""), "a.io/x"), forbidden("cannot add admission gate after creation"));
        assert_eq!(check(Some("a.io/x"), "b.io/y"), forbidden("can only remove gates, not add new ones"));
    }
}

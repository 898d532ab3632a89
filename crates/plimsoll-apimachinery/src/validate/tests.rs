//! The recorded refusals: what validation says of a body is what upstream answered.

use serde_json::Value;

use crate::decode::{FieldValidation, Format, decode};
use crate::default::tests::{prepared, target};
use crate::error::ApiError;
use crate::test_vectors::family;

/// Texts that print Go's internals: only what comes before them is compared.
fn head(text: &str) -> String {
    let text = (1..9).fold(text.to_owned(), |t, n| t.replace(&format!("<uid:{n}>"), &format!("uid-{n}")));
    let cut = ["compilation failed: "];
    let end = cut.iter().filter_map(|c| text.find(c)).min().unwrap_or(text.len());
    text[..end].to_owned()
}

fn causes(status: &Value) -> Vec<String> {
    let list = status["details"]["causes"].as_array().cloned().unwrap_or_default();
    let one = |c: &Value| {
        format!(
            "{} {} {}",
            c["reason"].as_str().unwrap_or_default(),
            c["field"].as_str().unwrap_or_default(),
            head(c["message"].as_str().unwrap_or_default())
        )
    };
    list.iter().map(one).collect()
}

#[test]
fn recorded_refusals() {
    let (mut seen, mut failed) = (0, Vec::new());
    for family_name in ["validation", "errors"] {
        for row in family(family_name) {
            for step in row["steps"].as_array().unwrap() {
                if let Some(outcome) = check(step) {
                    seen += 1;
                    if let Err(why) = outcome {
                        failed.push(format!("{} {} {why}", row["id"], step["request"]["body"]));
                    }
                }
            }
        }
    }
    assert!(seen > 200, "only {seen}");
    assert!(failed.is_empty(), "{} of {seen}:\n{}", failed.len(), failed.join("\n\n"));
}

/// Compares one recorded create, if it is one this crate decides about.
fn check(step: &Value) -> Option<Result<(), String>> {
    let (request, answer) = (&step["request"], &step["response"]);
    let status = answer["status"].as_u64()?;
    if request["method"] != "POST" || request["body"].is_null() || !matches!(status, 201 | 400 | 422) {
        return None;
    }
    let message = answer["body"]["message"].as_str().unwrap_or_default();
    let elsewhere =
        ["namespace of the provided object", "Options.meta.k8s.io", "failed to allocate", "valid ports is"];
    if elsewhere.iter().any(|text| message.contains(text)) {
        return None;
    }
    let (kind, namespace) = target(request["path"].as_str()?)?;
    if kind.gvk.group == "apiextensions.k8s.io" || kind.verbs == ["create"] {
        return None;
    }
    let text = request["body"].to_string();
    let got = match decode(&kind, text.as_bytes(), Format::Json, FieldValidation::Warn) {
        Err(e) => Some(e),
        Ok(_) => {
            let uid = message.find("<uid:").map_or("uid-2", |at| &message[at..at + 7]);
            let uid = uid.replace("<uid:", "uid-").replace('>', "");
            let mut object =
                prepared(&kind, &namespace, &request["body"], &serde_json::json!({"metadata": {"uid": uid}}));
            if object["metadata"].get("name").is_none() && object["metadata"].get("generateName").is_some() {
                object["metadata"]["name"] = "generated".into();
            }
            let errors = super::validate_create(&kind, &object);
            let name = object["metadata"]["name"].as_str().unwrap_or_default();
            let (group, kind) = super::named(&kind);
            (!errors.is_empty()).then(|| ApiError::invalid(group, kind, name, &errors))
        }
    };
    Some(compare(got.as_ref(), status, &answer["body"]))
}

fn compare(got: Option<&ApiError>, status: u64, want: &Value) -> Result<(), String> {
    match (got, status) {
        (None, 201) => Ok(()),
        (None, _) => Err(format!("accepted instead of {}", want["message"])),
        (Some(e), 201) => Err(format!("refused: {}", e.message)),
        (Some(e), _) => {
            let status = e.to_status();
            let text = want["message"]
                .as_str()
                .unwrap_or_default()
                .replace("<time>07:00", "2006-01-02T15:04:05Z07:00");
            let text = text.replace("<microtime>07:00", "2006-01-02T15:04:05.000000Z07:00");
            if causes(&status) != causes(want) || head(&e.message) != head(&text) {
                return Err(format!("\n   got {}\n  want {text}", e.message));
            }
            Ok(())
        }
    }
}

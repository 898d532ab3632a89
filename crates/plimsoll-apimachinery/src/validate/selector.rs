//! Label selectors (`metav1/validation`).

use serde_json::Value;

use super::checks;
use super::path::{Errors, Path};
use crate::obj::{Obj, as_obj, list, object, text};

/// `ValidateLabelSelector`.
pub(super) fn label_selector(selector: &Obj, path: &Path<'_>, errors: &mut Errors) {
    super::meta::labels(object(selector, "matchLabels"), &path.field("matchLabels"), errors);
    let expressions = path.field("matchExpressions");
    for (i, e) in list(selector, "matchExpressions").iter().enumerate() {
        requirement(as_obj(e), &expressions.index(i), errors);
    }
}

fn requirement(e: &Obj, path: &Path<'_>, errors: &mut Errors) {
    let values = list(e, "values");
    match text(e, "operator") {
        "In" | "NotIn" => {
            if values.is_empty() {
                errors
                    .required(&path.field("values"), "must be specified when `operator` is 'In' or 'NotIn'");
            }
        }
        "Exists" | "DoesNotExist" => {
            if !values.is_empty() {
                let detail = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'";
                errors.forbidden(&path.field("values"), detail);
            }
        }
        other => errors.invalid(&path.field("operator"), other, "not a valid selector operator"),
    }
    let key = text(e, "key");
    errors.invalid_all(&path.field("key"), key, &checks::qualified_name(key));
    let at = path.field("values");
    for (i, value) in values.iter().enumerate() {
        let value = value.as_str().unwrap_or_default();
        errors.invalid_all(&at.index(i), value, &checks::label_value(value));
    }
}

/// Whether a selector in its API form can be used at all (`LabelSelectorAsSelector`).
pub(super) fn is_usable(selector: &Obj) -> bool {
    let mut errors = Errors::default();
    label_selector(selector, &Path::new(""), &mut errors);
    errors.0.is_empty()
}

/// Whether labels match a selector in its API form; an unusable selector matches nothing.
pub(super) fn matches(selector: &Obj, labels: &Obj) -> bool {
    is_usable(selector)
        && object(selector, "matchLabels").iter().all(|(key, value)| labels.get(key) == Some(value))
        && list(selector, "matchExpressions").iter().map(as_obj).all(|e| {
            let value = labels.get(text(e, "key"));
            let listed = value.is_some_and(|v: &Value| list(e, "values").contains(v));
            match text(e, "operator") {
                "In" => listed,
                "NotIn" => !listed,
                "Exists" => value.is_some(),
                _ => value.is_none(),
            }
        })
}

/// Whether a selector is empty.
pub(super) fn is_empty(selector: &Obj) -> bool {
    object(selector, "matchLabels").is_empty() && list(selector, "matchExpressions").is_empty()
}

/// A selector as it shows in messages.
pub(super) fn shown(selector: &Obj) -> String {
    super::golang::structure("LabelSelector", selector)
}

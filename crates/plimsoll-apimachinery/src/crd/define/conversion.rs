//! The `conversion` of a definition.

use std::collections::HashSet;

use serde_json::{Value, json};

use super::{at, list, text};
use crate::error::FieldError;
use crate::validate::conversion_client;

/// `validateCustomResourceConversion`; `pruned`: unknown fields are dropped; `recognized`: one of the review versions
/// must be known.
pub fn validate(conversion: &Value, pruned: bool, recognized: bool, errors: &mut Vec<FieldError>) {
    if conversion.is_null() {
        return;
    }
    let webhook = at(conversion, "webhook");
    let strategy = text(conversion, "strategy");
    if strategy != "None" && !pruned {
        let what = "must be None if spec.preserveUnknownFields is true";
        errors.push(FieldError::invalid("spec.conversion.strategy", &json!(strategy), what));
    }
    match strategy {
        "" => errors.push(FieldError::required("spec.conversion.strategy", "")),
        "None" | "Webhook" => {}
        other => errors.push(FieldError::not_supported(
            "spec.conversion.strategy",
            &json!(other),
            &["None", "Webhook"],
        )),
    }
    let (config, versions) = (at(webhook, "clientConfig"), list(webhook, "conversionReviewVersions"));
    let (config_field, versions_field) =
        ("spec.conversion.webhookClientConfig", "spec.conversion.conversionReviewVersions");
    if strategy != "Webhook" {
        let what = "should not be set when strategy is not set to Webhook";
        if !config.is_null() {
            errors.push(FieldError::forbidden(config_field, what));
        }
        if !versions.is_empty() {
            errors.push(FieldError::forbidden(versions_field, what));
        }
        return;
    }
    match config.as_object() {
        None => {
            errors.push(FieldError::required(config_field, "required when strategy is set to Webhook"));
        }
        Some(config) => errors.extend(conversion_client(config, config_field)),
    }
    review_versions(versions, recognized, versions_field, errors);
}

fn review_versions(versions: &[Value], recognized: bool, field: &str, errors: &mut Vec<FieldError>) {
    if versions.is_empty() {
        errors.push(FieldError::required(field, ""));
        return;
    }
    let mut seen = HashSet::new();
    for (i, version) in versions.iter().enumerate() {
        let place = format!("{field}[{i}]");
        if !seen.insert(version) {
            errors.push(FieldError::invalid(place, version, "duplicate version"));
            continue;
        }
        for fault in crate::validate::dns_1035_label(version.as_str().unwrap_or_default()) {
            errors.push(FieldError::invalid(place.clone(), version, fault));
        }
    }
    if recognized && !versions.iter().any(|v| v == "v1" || v == "v1beta1") {
        let what = "must include at least one of v1, v1beta1";
        errors.push(FieldError::invalid(field, &json!(versions), what));
    }
}

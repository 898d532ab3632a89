//! `metrics.customLabels` (Kueue's `validateCustomLabels`, `pkg/config/validation.go`).

use std::collections::{BTreeMap, BTreeSet};

use plimsoll_queueing::{CustomLabel, LabelSource};

use super::{Errors, sections};

const FIELD: &str = "metrics.customLabels";
const SOURCE_KINDS: [&str; 4] = ["Cohort", "LocalQueue", "ClusterQueue", "Workload"];
const MOST: usize = 20;
const MOST_TRACKED: usize = 16;
const MOST_TRACKED_OF_WORKLOADS: usize = 12;

/// The labels, in the file's order. Errors name the entry.
pub(super) fn read(raw: &[sections::CustomLabel], errors: &mut Errors) -> Vec<CustomLabel> {
    if raw.len() > MOST {
        errors.add(FIELD, format!("Too many: {}: must have at most {MOST} items", raw.len()));
    }
    let (mut names, mut counts) = (BTreeSet::new(), BTreeMap::new());
    let mut labels = Vec::new();
    for (i, entry) in raw.iter().enumerate() {
        let at = format!("{FIELD}[{i}]");
        let name = entry.name.as_deref().unwrap_or_default();
        if !is_name(name) {
            let text = format!("Invalid value: {name:?}: must match ^[a-zA-Z][a-zA-Z0-9_]*$");
            errors.add(&format!("{at}.name"), text);
        }
        if !names.insert(name) {
            errors.add(&format!("{at}.name"), format!("Duplicate value: {name:?}"));
        }
        let source = source(entry.source_kind.as_deref(), &at, errors);
        *counts.entry(source).or_insert(0) += 1;
        let (annotation, key) = key(entry, name, &at, errors);
        let tracked = entry.tracked_values.clone().unwrap_or_default();
        check_tracked(&tracked, source, &at, errors);
        labels.push(CustomLabel { name: name.to_owned(), source, annotation, key, tracked });
    }
    for (source, n) in counts {
        let most = if source == LabelSource::Workload { 2 } else { 6 };
        if n > most {
            let text =
                format!("too many custom labels for source kind {source:?}: found {n}, expected <= {most}");
            errors.add(FIELD, format!("Invalid value: {text}"));
        }
    }
    labels
}

fn is_name(name: &str) -> bool {
    name.starts_with(|c: char| c.is_ascii_alphabetic())
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

fn source(raw: Option<&str>, at: &str, errors: &mut Errors) -> LabelSource {
    match raw {
        None | Some("ClusterQueue") => LabelSource::ClusterQueue,
        Some("Cohort") => LabelSource::Cohort,
        Some("LocalQueue") => LabelSource::LocalQueue,
        Some("Workload") => LabelSource::Workload,
        Some(kind) => {
            errors.unsupported(&format!("{at}.sourceKind"), kind, &SOURCE_KINDS);
            LabelSource::ClusterQueue
        }
    }
}

/// Whether the value is an annotation, and under which key it is.
fn key(entry: &sections::CustomLabel, name: &str, at: &str, errors: &mut Errors) -> (bool, String) {
    let label = entry.source_label_key.as_deref().unwrap_or_default();
    let annotation = entry.source_annotation_key.as_deref().unwrap_or_default();
    if !label.is_empty() && !annotation.is_empty() {
        errors.add(at, "Invalid value: sourceLabelKey and sourceAnnotationKey are mutually exclusive");
    }
    let (field, key) = match (label, annotation) {
        ("", "") => ("name", name),
        ("", _) => ("sourceAnnotationKey", annotation),
        _ => ("sourceLabelKey", label),
    };
    for problem in plimsoll_api::content::label_key(key) {
        errors.add(&format!("{at}.{field}"), format!("Invalid value: {key:?}: {problem}"));
    }
    (field == "sourceAnnotationKey", key.to_owned())
}

fn check_tracked(tracked: &[String], source: LabelSource, at: &str, errors: &mut Errors) {
    let field = format!("{at}.trackedValues");
    let n = tracked.len();
    if source == LabelSource::Workload {
        if tracked.is_empty() {
            errors.add(&field, "Invalid value: must not be empty when sourceKind is 'Workload'");
        }
        if n > MOST_TRACKED_OF_WORKLOADS {
            let most = MOST_TRACKED_OF_WORKLOADS;
            let text = format!("must not be greater than {most} when sourceKind is 'Workload'");
            errors.add(&field, format!("Invalid value: {text}"));
        }
    } else if n > MOST_TRACKED {
        errors.add(&field, format!("Too many: {n}: must have at most {MOST_TRACKED} items"));
    }
    if tracked.iter().collect::<BTreeSet<_>>().len() < n {
        errors.add(&field, "Invalid value: must not contain duplicates");
    }
}

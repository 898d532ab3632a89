//! Which LocalQueue a pod goes to (upstream's `cmd/importer/mapping`).

use std::collections::BTreeMap;

use anyhow::Context;
use plimsoll_api::json;
use serde::Deserialize;
use serde_json::Value;

#[derive(Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct Match {
    priority_class_name: String,
    labels: BTreeMap<String, String>,
}

/// A rule: which pods, and their LocalQueue.
#[derive(Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Rule {
    r#match: Match,
    to_local_queue: String,
    skip: bool,
}

/// What the rules decide about a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target<'a> {
    /// It goes to this LocalQueue of its namespace.
    LocalQueue(&'a str),
    /// It is left as it is.
    Skip,
    /// No rule matches.
    None,
}

/// Reads a mapping file.
///
/// # Errors
/// It is no list of rules.
pub fn from_file(text: &str) -> anyhow::Result<Vec<Rule>> {
    serde_saphyr::from_str(text).context("decoding the rules")
}

/// One rule for each value of a label; `pairs` are LocalQueues by value.
pub fn for_label(label: &str, pairs: &BTreeMap<String, String>) -> Vec<Rule> {
    let rule = |(value, queue): (&String, &String)| Rule {
        r#match: Match { labels: [(label.to_owned(), value.clone())].into(), ..Match::default() },
        to_local_queue: queue.clone(),
        skip: false,
    };
    pairs.iter().map(rule).collect()
}

/// The decision of the first rule that matches a pod. A label that is absent counts as an empty one.
pub fn target<'a>(rules: &'a [Rule], pod: &Value) -> Target<'a> {
    let class = json::text(pod, &["spec", "priorityClassName"]);
    let matches = |rule: &&Rule| {
        let m = &rule.r#match;
        (m.priority_class_name.is_empty() || m.priority_class_name == class)
            && m.labels.iter().all(|(k, v)| json::label(pod, k) == v)
    };
    match rules.iter().find(matches) {
        Some(rule) if rule.skip => Target::Skip,
        Some(rule) => Target::LocalQueue(&rule.to_local_queue),
        None => Target::None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_first_rule_that_matches_decides() {
        // Upstream's `TestRulesQueueFor`.
        let rules = from_file(
            "
- match:
    priorityClassName: preemptible
    labels:
      resource_type: cpu-only
  toLocalQueue: preemptible-cpu
- match:
    labels:
      project_id: alpha
      resource_type: gpu
  toLocalQueue: alpha-gpu
- match:
    labels:
      project_id: alpha
      resource_type: cpu
  skip: true
",
        )
        .expect("rules");
        let table = [
            ("", json!({"project_id": "alpha"}), Target::None),
            (
                "preemptible",
                json!({"project_id": "alpha", "resource_type": "gpu"}),
                Target::LocalQueue("alpha-gpu"),
            ),
            ("preemptible", json!({"project_id": "alpha", "resource_type": "cpu"}), Target::Skip),
            ("preemptible-1", json!({"resource_type": "cpu-only"}), Target::None),
            ("preemptible", json!({"resource_type": "cpu-only"}), Target::LocalQueue("preemptible-cpu")),
        ];
        for (class, labels, want) in table {
            let pod = json!({"metadata": {"labels": labels}, "spec": {"priorityClassName": class}});
            assert_eq!(target(&rules, &pod), want, "{class} {labels}");
        }
        let simple = for_label("l", &[("v".to_owned(), "q".to_owned())].into());
        assert_eq!(target(&simple, &json!({"metadata": {"labels": {"l": "v"}}})), Target::LocalQueue("q"));
        assert_eq!(target(&simple, &json!({"metadata": {}})), Target::None);
        assert!(from_file("- toQueue: a").is_err());
    }
}

//! PreemptionConfigs.

use plimsoll_queueing::{
    NumericComparison, NumericLabel, PreemptionCandidates, PreemptionConfig, PreemptionRule, PreemptionScope,
    PreemptionTrigger, PriorityClassNames, PriorityComparison,
};
use plimsoll_state::model::LabelSelector;
use serde_json::Value;

use super::decode::{int32, list, name, text};
use crate::convert::{ConvertError, label_selector_from_value};

/// A PreemptionConfig. What can't be understood in a rule is kept as an error of that rule ([`PreemptionConfig::problems`]).
///
/// # Errors
/// When it has no name.
pub fn preemption_config(object: &Value) -> Result<PreemptionConfig, ConvertError> {
    let rules = list(&object["spec"], "rules").iter().enumerate();
    Ok(PreemptionConfig { name: name(object)?, rules: rules.map(|(i, r)| rule(i, r)).collect() })
}

fn rule(i: usize, raw: &Value) -> PreemptionRule {
    let at = format!("spec.rules[{i}]");
    let policy = &raw["activationPolicy"];
    let trigger =
        word(&PreemptionTrigger::WORDS, &format!("{at}.activationPolicy.trigger"), &policy["trigger"]);
    let preemptors = selector(&format!("{at}.preemptorSelector"), &raw["preemptorSelector"]);
    let candidates = list(raw, "candidateSelectors").iter().enumerate();
    PreemptionRule {
        name: text(raw, "name"),
        // As in Kueue a rule with an unknown trigger is never there; the schema admits none.
        preemptors: trigger.as_ref().map_err(Clone::clone).and(preemptors),
        trigger: trigger.unwrap_or_default(),
        preemptor_classes: classes(&raw["preemptorPriorityClassSelector"]),
        candidates: candidates
            .map(|(j, c)| candidate_selector(&format!("{at}.candidateSelectors[{j}]"), c))
            .collect(),
    }
}

fn candidate_selector(at: &str, raw: &Value) -> Result<PreemptionCandidates, String> {
    let numeric = list(raw, "numericLabels").iter().enumerate();
    let priority = &raw["priority"];
    Ok(PreemptionCandidates {
        scope: word(&PreemptionScope::WORDS, &format!("{at}.scope"), &raw["scope"])?,
        cluster_queues: selector(&format!("{at}.clusterQueueSelector"), &raw["clusterQueueSelector"])?,
        workloads: selector(&format!("{at}.labelSelector"), &raw["labelSelector"])?,
        numeric_labels: numeric
            .map(|(k, n)| numeric_label(&format!("{at}.numericLabels[{k}]"), n))
            .collect::<Result<_, _>>()?,
        priority: priority_comparison(&format!("{at}.priority"), priority)?,
        classes: classes(priority),
    })
}

fn numeric_label(at: &str, raw: &Value) -> Result<NumericLabel, String> {
    Ok(NumericLabel {
        key: text(raw, "key"),
        fallback: int32(raw, "fallbackValue"),
        comparison: comparison(at, raw)?,
        min: int32(raw, "minValue"),
        max: int32(raw, "maxValue"),
    })
}

fn comparison(at: &str, raw: &Value) -> Result<Option<NumericComparison>, String> {
    let field = || format!("{at}.comparison");
    let raw = Some(&raw["comparison"]).filter(|c| !c.is_null());
    raw.map(|c| word(&NumericComparison::WORDS, &field(), c)).transpose()
}

fn priority_comparison(at: &str, raw: &Value) -> Result<Option<PriorityComparison>, String> {
    let mode = Some(&raw["mode"]).filter(|m| !m.is_null());
    let modes = [(false, "Base"), (true, "Boosted")];
    let boosted = mode.map(|m| word(&modes, &format!("{at}.mode"), m)).transpose()?;
    match (boosted, comparison(at, raw)?) {
        (None, None) => Ok(None),
        (Some(boosted), Some(comparison)) => Ok(Some(PriorityComparison { boosted, comparison })),
        (None, Some(_)) | (Some(_), None) => {
            Err(format!("{at}: Invalid value: mode and comparison must be specified together"))
        }
    }
}

fn classes(raw: &Value) -> PriorityClassNames {
    let names =
        |key: &str| list(raw, key).iter().filter_map(|n| n.as_str().map(str::to_owned)).collect::<Vec<_>>();
    PriorityClassNames { only: names("matchNames"), except: names("notMatchNames") }
}

/// One that is not set matches everything; one without requirements does so, too.
fn selector(at: &str, raw: &Value) -> Result<Option<LabelSelector>, String> {
    if raw.is_null() {
        return Ok(None);
    }
    label_selector_from_value(raw).map(Some).map_err(|e| format!("{at}: Invalid value: {e}"))
}

fn word<T: Copy>(words: &[(T, &'static str)], at: &str, raw: &Value) -> Result<T, String> {
    let found = words.iter().find(|(_, word)| raw == word);
    found.map(|(value, _)| *value).ok_or_else(|| {
        let known: Vec<String> = words.iter().map(|(_, word)| format!("{word:?}")).collect();
        format!("{at}: Unsupported value: {raw}: supported values: {}", known.join(", "))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn config(rules: &Value) -> PreemptionConfig {
        preemption_config(&json!({"metadata": {"name": "c"}, "spec": {"rules": rules}})).expect("a name")
    }

    #[test]
    fn all_fields_are_read() {
        let config = config(&json!([{
            "name": "r", "activationPolicy": {"trigger": "QuotaFeasibleAndInsufficientTopology"},
            "preemptorSelector": {"matchLabels": {"team": "research"}},
            "preemptorPriorityClassSelector": {"matchNames": ["high"], "notMatchNames": ["low"]},
            "candidateSelectors": [{
                "scope": "WithinCohortTree",
                "clusterQueueSelector": {"matchExpressions": [{"key": "tier", "operator": "Exists"}]},
                "labelSelector": {},
                "numericLabels": [{"key": "gpus", "fallbackValue": -1, "comparison": "LessThan", "minValue": 2, "maxValue": 8}],
                "priority": {"mode": "Boosted", "comparison": "LessThanOrEqual", "notMatchNames": ["high"]},
            }],
        }]));
        assert_eq!(config.problems().count(), 0);
        let [rule] = &*config.rules else { panic!("one rule") };
        assert_eq!(rule.trigger, PreemptionTrigger::QuotaFeasibleAndInsufficientTopology);
        assert_eq!(rule.preemptors.clone().expect("valid").expect("set").requirements.len(), 1);
        assert_eq!(rule.preemptor_classes.only, ["high"]);
        let Ok(c) = &rule.candidates[0] else { panic!("valid") };
        assert_eq!(c.scope, PreemptionScope::WithinCohortTree);
        assert_eq!(c.cluster_queues.as_ref().map(|s| s.requirements.len()), Some(1));
        assert_eq!(c.workloads.as_ref().map(|s| s.requirements.len()), Some(0));
        let n = &c.numeric_labels[0];
        assert_eq!((n.fallback, n.min, n.max), (Some(-1), Some(2), Some(8)));
        assert_eq!(n.comparison, Some(NumericComparison::LessThan));
        assert!(c.priority.is_some_and(|p| p.boosted && p.comparison == NumericComparison::LessThanOrEqual));
        assert_eq!(c.classes.except, ["high"]);
    }

    #[test]
    fn what_is_wrong_is_named() {
        let bad = json!({"matchExpressions": [{"key": "test", "operator": "invalid"}]});
        let config = config(&json!([
            {"name": "a", "activationPolicy": {"trigger": "Always"}, "preemptorSelector": bad,
             "candidateSelectors": [{"scope": "WithinClusterQueue", "labelSelector": bad},
                                    {"scope": "Nearby"},
                                    {"scope": "AnyClusterQueue", "priority": {"mode": "Base"}},
                                    {"scope": "AnyClusterQueue", "numericLabels": [{"key": "k", "comparison": "Equal"}]}]},
            {"name": "b", "activationPolicy": {"trigger": "Sometimes"}},
        ]));
        let problems: Vec<&str> = config.problems().collect();
        let fields = [
            "spec.rules[0].preemptorSelector: ",
            "spec.rules[0].candidateSelectors[0].labelSelector: ",
            "spec.rules[0].candidateSelectors[1].scope: Unsupported value: \"Nearby\": supported values: \"WithinLocalQueue\"",
            "spec.rules[0].candidateSelectors[2].priority: Invalid value: mode and comparison must",
            "spec.rules[0].candidateSelectors[3].numericLabels[0].comparison: Unsupported value: \"Equal\"",
            "spec.rules[1].activationPolicy.trigger: Unsupported value: \"Sometimes\"",
        ];
        assert_eq!(problems.len(), fields.len(), "{problems:?}");
        for (problem, field) in problems.iter().zip(fields) {
            assert!(problem.starts_with(field), "{problem}");
        }
    }
}

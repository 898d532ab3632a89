//! `podFailurePolicy` and `successPolicy`.

use super::indexes::Indexes;
use super::model::{FailureRule, Job, OnExitCodes, SuccessPolicy};
use crate::pod::{ContainerStatus, Pod};

/// What the failure policy says of a failed pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The Job fails, with this message.
    FailJob(String),
    /// The index fails.
    FailIndex,
    /// The failure doesn't count.
    Ignore,
    /// It counts: the policy says so, or no rule matches, or there is no policy.
    Count,
}

/// What the Job's failure policy says of a failed pod.
pub fn judge(job: &Job, pod: &Pod) -> Verdict {
    let rules = job.spec.pod_failure_policy.iter().flat_map(|p| &p.rules).enumerate();
    rules.filter_map(|(n, rule)| verdict(n, rule, pod)).next().unwrap_or(Verdict::Count)
}

fn verdict(n: usize, rule: &FailureRule, pod: &Pod) -> Option<Verdict> {
    let (namespace, name, action) = (&pod.metadata.namespace, &pod.metadata.name, &rule.action);
    let message = match &rule.on_exit_codes {
        Some(codes) => {
            let (container, code) = exit_code(codes, pod)?;
            format!(
                "Container {container} for pod {namespace}/{name} failed with exit code {code} matching {action} rule at index {n}"
            )
        }
        None => {
            let condition =
                pod.status.conditions.iter().find(|c| {
                    rule.on_pod_conditions.iter().any(|p| p.kind == c.kind && p.status == c.status)
                })?;
            let kind = &condition.kind;
            format!("Pod {namespace}/{name} has condition {kind} matching {action} rule at index {n}")
        }
    };
    match action.as_str() {
        "FailJob" => Some(Verdict::FailJob(message)),
        "FailIndex" => Some(Verdict::FailIndex),
        "Ignore" => Some(Verdict::Ignore),
        "Count" => Some(Verdict::Count),
        _ => None,
    }
}

/// The first container with an exit code that matches.
fn exit_code<'a>(rule: &OnExitCodes, pod: &'a Pod) -> Option<(&'a str, i32)> {
    let matching = |status: &'a ContainerStatus| {
        let code = status.state.terminated.as_ref()?.exit_code;
        let named = rule.container_name.as_ref().is_none_or(|n| *n == status.name);
        let listed = rule.values.contains(&code);
        let hit = match rule.operator.as_str() {
            "In" => listed,
            "NotIn" => !listed,
            _ => false,
        };
        (code != 0 && named && hit).then_some((status.name.as_str(), code))
    };
    let containers = pod.status.container_statuses.iter();
    containers.chain(&pod.status.init_container_statuses).find_map(matching)
}

/// The message if a rule of the success policy is met.
pub fn success(policy: &SuccessPolicy, completions: i32, succeeded: &Indexes) -> Option<String> {
    if succeeded.is_empty() {
        return None;
    }
    let met = policy.rules.iter().position(|rule| match &rule.succeeded_indexes {
        Some(text) => {
            let required = Indexes::parse(text, completions);
            let reached = required.overlap(succeeded);
            !required.is_empty()
                && (reached == required.total() || rule.succeeded_count.is_some_and(|n| reached >= n))
        }
        None => rule.succeeded_count.is_some_and(|n| succeeded.total() >= n),
    });
    met.map(|n| format!("Matched rules at index {n}"))
}

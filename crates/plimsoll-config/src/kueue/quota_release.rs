//! `integrations.quotaReleaseStrategy`: when evicted jobs release their quota (Kueue KEP-10076).

use std::collections::BTreeMap;

use plimsoll_api::kueue::{QuotaRelease, QuotaReleaseStrategy};

use super::{Errors, FRAMEWORKS, FeatureGates};

const ON_QUOTA_RELEASED: &str = "OnQuotaReleased";
const ON_TERMINAL: &str = "OnTerminal";
/// Frameworks that know when their pods have ended.
const SUPPORT_ON_TERMINAL: [&str; 2] = [JOB, POD];
const JOB: &str = "batch/job";
const POD: &str = "pod";

/// The strategies by framework, as far as they are valid.
pub(super) fn read(
    raw: &BTreeMap<String, String>,
    errors: &mut Errors,
) -> BTreeMap<&'static str, QuotaReleaseStrategy> {
    let mut strategies = BTreeMap::new();
    for (name, strategy) in raw {
        let field = format!("integrations.quotaReleaseStrategy[{name}]");
        let Some(framework) = FRAMEWORKS.iter().find(|known| *known == name) else {
            errors.unsupported(&field, name, &FRAMEWORKS);
            continue;
        };
        let supported = SUPPORT_ON_TERMINAL.contains(framework);
        let values: &[&str] =
            if supported { &[ON_QUOTA_RELEASED, ON_TERMINAL] } else { &[ON_QUOTA_RELEASED] };
        match strategy.as_str() {
            ON_QUOTA_RELEASED => drop(strategies.insert(*framework, QuotaReleaseStrategy::OnQuotaReleased)),
            ON_TERMINAL if supported => drop(strategies.insert(*framework, QuotaReleaseStrategy::OnTerminal)),
            other => errors.unsupported(&field, other, values),
        }
    }
    strategies
}

/// What holds with these gates. The strategy of pods supersedes the gate `FastQuotaReleaseInPodIntegration`.
pub(super) fn effective(
    strategies: &BTreeMap<&'static str, QuotaReleaseStrategy>,
    gates: &FeatureGates,
) -> QuotaRelease {
    let defaults = QuotaRelease::default();
    if gates.is_on("QuotaReleaseStrategy") {
        let of =
            |framework| strategies.get(framework).copied().unwrap_or(QuotaReleaseStrategy::OnQuotaReleased);
        return QuotaRelease { jobs: of(JOB), pods: of(POD) };
    }
    match gates.is_on("FastQuotaReleaseInPodIntegration") {
        true => QuotaRelease { pods: QuotaReleaseStrategy::OnQuotaReleased, ..defaults },
        false => defaults,
    }
}

#[cfg(test)]
mod tests {
    use plimsoll_api::resource::{JOBS, PODS};

    use super::*;
    use crate::kueue::read as configuration;

    const EMPTY: &str = "apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\n";

    #[test]
    fn strategies_hold_behind_their_gate() {
        use QuotaReleaseStrategy::{OnQuotaReleased, OnTerminal};
        // Whether the gates are on: QuotaReleaseStrategy, FastQuotaReleaseInPodIntegration; strategies of jobs and pods.
        for (gates, set, jobs, pods) in [
            ((false, false), "", OnQuotaReleased, OnTerminal),
            ((false, true), "", OnQuotaReleased, OnQuotaReleased),
            ((false, false), "batch/job: OnTerminal, pod: OnQuotaReleased", OnQuotaReleased, OnTerminal),
            ((false, true), "pod: OnTerminal", OnQuotaReleased, OnQuotaReleased),
            ((true, false), "", OnQuotaReleased, OnQuotaReleased),
            ((true, false), "batch/job: OnTerminal", OnTerminal, OnQuotaReleased),
            ((true, false), "pod: OnTerminal, ray.io/rayjob: OnQuotaReleased", OnQuotaReleased, OnTerminal),
            ((true, true), "batch/job: OnTerminal, pod: OnTerminal", OnTerminal, OnTerminal),
        ] {
            let (strategy, fast) = gates;
            let text = format!(
                "{EMPTY}featureGates: {{QuotaReleaseStrategy: {strategy}, FastQuotaReleaseInPodIntegration: {fast}}}\n\
                 integrations:\n  quotaReleaseStrategy: {{{set}}}\n"
            );
            let read = configuration(&text, "kueue-system").unwrap().quota_release;
            assert_eq!(read, QuotaRelease { jobs, pods }, "{text}");
            for other in [plimsoll_api::resource::STATEFUL_SETS, plimsoll_api::resource::PYTORCH_JOBS] {
                assert_eq!(read.of(other), OnQuotaReleased);
            }
            assert_eq!((read.of(JOBS), read.of(PODS)), (jobs, pods));
        }
    }
}

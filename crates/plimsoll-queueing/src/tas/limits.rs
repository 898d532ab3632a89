//! Limits of a search for places, beyond free capacity: what a dry run with all filters found out (joint admission).

use std::collections::BTreeMap;

use crate::ids::FlavorId;

/// How many pods of a podset go into a domain of the lowest level at most.
#[derive(Clone, Debug, Default)]
pub(crate) struct PlaceLimits {
    /// By podset index and name of the domain.
    domains: BTreeMap<usize, BTreeMap<String, i64>>,
    /// For all domains, by podset index.
    everywhere: BTreeMap<usize, i64>,
    /// For all domains, by podset index. A guess: what the domains that were tried had in common.
    guesses: BTreeMap<usize, i64>,
    /// Whether guesses were wrong.
    guessed_wrong: bool,
    /// The domain in which a podset has to be: its index, the flavor, and the values of the domain.
    within: Option<(usize, FlavorId, Vec<String>)>,
}

impl PlaceLimits {
    /// All places of a podset in one domain of its flavor's topology.
    pub(super) fn within(pod_set: usize, flavor: FlavorId, domain: Vec<String>) -> Self {
        Self { within: Some((pod_set, flavor, domain)), ..Self::default() }
    }

    /// No more than this number of pods go into a domain.
    pub(crate) fn limit(&mut self, pod_set: usize, domain: &str, pods: i64) {
        let limits = self.domains.entry(pod_set).or_default();
        let limit = limits.entry(domain.to_owned()).or_insert(pods);
        *limit = pods.min(*limit);
    }

    /// No more than this number of pods go into any domain.
    pub(crate) fn limit_everywhere(&mut self, pod_set: usize, pods: i64) {
        let limit = self.everywhere.entry(pod_set).or_insert(pods);
        *limit = pods.min(*limit);
    }

    /// Each of the domains that took fewer pods than they were given took this number: others may be alike.
    pub(crate) fn guess(&mut self, pod_set: usize, pods: i64) {
        if !self.guessed_wrong {
            self.guesses.insert(pod_set, pods);
        }
    }

    /// There are no places with what was guessed; whether the search is to be repeated without.
    pub(crate) fn drop_guesses(&mut self) -> bool {
        self.guessed_wrong = true;
        !std::mem::take(&mut self.guesses).is_empty()
    }

    /// The limit that is known to hold in all domains, whichever are tried.
    pub(super) fn everywhere(&self, pod_set: usize) -> i64 {
        self.everywhere.get(&pod_set).copied().unwrap_or(i64::MAX)
    }

    /// The limit that holds in all domains.
    pub(super) fn of_all(&self, pod_set: usize) -> i64 {
        let all = [&self.everywhere, &self.guesses].map(|l| l.get(&pod_set).copied().unwrap_or(i64::MAX));
        all[0].min(all[1])
    }

    /// Domains with limits of their own.
    pub(super) fn of_domains(&self, pod_set: usize) -> impl Iterator<Item = (&str, i64)> {
        self.domains.get(&pod_set).into_iter().flatten().map(|(domain, limit)| (domain.as_str(), *limit))
    }

    /// The limit in a domain.
    #[cfg(debug_assertions)]
    pub(super) fn of(&self, pod_set: usize, domain: &str) -> i64 {
        let own = self.domains.get(&pod_set).and_then(|d| d.get(domain)).copied();
        own.unwrap_or(i64::MAX).min(self.of_all(pod_set))
    }

    /// The domain in which a podset has to be.
    pub(super) fn region(&self, pod_set: usize) -> Option<&[String]> {
        self.within.as_ref().filter(|(index, ..)| *index == pod_set).map(|(.., values)| values.as_slice())
    }

    /// Whether there are none.
    pub(super) fn is_empty(&self) -> bool {
        self.domains.is_empty()
            && self.everywhere.is_empty()
            && self.guesses.is_empty()
            && self.within.is_none()
    }
}

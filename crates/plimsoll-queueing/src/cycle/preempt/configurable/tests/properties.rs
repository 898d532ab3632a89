//! On random clusters those workloads go that a plain reading of the rules gives: no ids, no tree, no selectors of the engine.

use super::*;
use proptest::prelude::*;

/// A ClusterQueue: cohort (none, or one of two below a root), quota, label `tier`.
#[derive(Clone, Debug)]
struct Queue {
    cohort: Option<usize>,
    nominal: i64,
    tier: u8,
}

#[derive(Clone, Debug)]
struct Job {
    queue: usize,
    cpus: i64,
    priority: i32,
    boost: i32,
    /// Label `size`, an integer or not.
    size: Option<u8>,
    team: u8,
    since: i64,
}

/// Comparison, fallback, minimum, maximum.
type Size = (Option<usize>, Option<i32>, Option<i32>, Option<i32>);

#[derive(Clone, Debug)]
struct Selector {
    scope: usize,
    tier: Option<u8>,
    team: Option<u8>,
    size: Option<Size>,
    /// Boosted, comparison.
    priority: Option<(bool, usize)>,
}

#[derive(Clone, Debug)]
struct Rule {
    /// `InsufficientQuota` instead of `Always`.
    only_quota: bool,
    team: Option<u8>,
    selectors: Vec<Selector>,
}

fn any_queue() -> impl Strategy<Value = Queue> {
    (proptest::option::weighted(0.8, 0..2usize), 0..5i64, 0..2u8).prop_map(|(cohort, nominal, tier)| Queue {
        cohort,
        nominal,
        tier,
    })
}

fn any_job() -> impl Strategy<Value = Job> {
    let size = proptest::option::of(0..4u8);
    (any::<usize>(), 1..4i64, 0..3i32, -1..2i32, size, 0..2u8, 0..3i64).prop_map(
        |(queue, cpus, priority, boost, size, team, since)| Job {
            queue,
            cpus,
            priority,
            boost,
            size,
            team,
            since,
        },
    )
}

fn any_selector() -> impl Strategy<Value = Selector> {
    use proptest::option::{of, weighted};
    let size = (of(0..4usize), of(-1..3i32), of(0..2i32), of(1..4i32));
    let seldom = 0.25;
    let (tier, team) = (weighted(seldom, 0..2u8), weighted(seldom, 0..2u8));
    (0..5usize, tier, team, weighted(seldom, size), weighted(seldom, (any::<bool>(), 0..4usize)))
        .prop_map(|(scope, tier, team, size, priority)| Selector { scope, tier, team, size, priority })
}

fn any_rule() -> impl Strategy<Value = Rule> {
    let selectors = proptest::collection::vec(any_selector(), 0..3);
    (any::<bool>(), proptest::option::weighted(0.25, 0..2u8), selectors)
        .prop_map(|(only_quota, team, selectors)| Rule { only_quota, team, selectors })
}

#[derive(Debug)]
struct Cluster {
    nested: bool,
    queues: Vec<Queue>,
    held: Vec<Job>,
    rules: Vec<Rule>,
    wanted: Job,
}

impl Cluster {
    fn queue_of(&self, j: &Job) -> usize {
        j.queue % self.queues.len()
    }

    /// Whether two ClusterQueues share their quota.
    fn shares(&self, a: usize, b: usize) -> bool {
        let (x, y) = (self.queues[a].cohort, self.queues[b].cohort);
        a == b || (x.is_some() && y.is_some() && (self.nested || x == y))
    }

    fn is_in_scope(&self, scope: usize, other: usize) -> bool {
        let own = self.queue_of(&self.wanted);
        let cohort = |q: usize| self.queues[q].cohort;
        own == other
            || match scope {
                2 => cohort(own).is_some() && cohort(own) == cohort(other),
                3 => self.shares(own, other),
                4 => true,
                _ => false,
            }
    }

    fn is_selected(&self, s: &Selector, j: &Job) -> bool {
        let compare = |how: usize, a: i64, b: i64| [a < b, a > b, a <= b, a >= b][how];
        // A size of 3 is written as a word.
        let size = |j: &Job, fallback: Option<i32>| j.size.filter(|s| *s < 3).map(i32::from).or(fallback);
        let of_size = |(how, fallback, min, max): Size| {
            let (Some(v), own) = (size(j, fallback), size(&self.wanted, fallback)) else { return false };
            let against = |how| own.is_some_and(|own| compare(how, i64::from(v), i64::from(own)));
            min.is_none_or(|m| v >= m) && max.is_none_or(|m| v <= m) && how.is_none_or(against)
        };
        let of_priority = |(boosted, how): (bool, usize)| {
            let of = |j: &Job| i64::from(j.priority) + if boosted { i64::from(j.boost) } else { 0 };
            compare(how, of(j), of(&self.wanted))
        };
        let q = self.queue_of(j);
        self.is_in_scope(s.scope, q)
            && s.tier.is_none_or(|t| t == self.queues[q].tier)
            && s.team.is_none_or(|t| t == j.team)
            && s.size.is_none_or(of_size)
            && s.priority.is_none_or(of_priority)
    }

    /// Whether the workload that comes has quota once these are gone.
    fn fits(&self, gone: &[usize]) -> bool {
        let own = self.queue_of(&self.wanted);
        let quota: i64 =
            (0..self.queues.len()).filter(|&q| self.shares(own, q)).map(|q| self.queues[q].nominal).sum();
        let there = self.held.iter().enumerate().filter(|(i, _)| !gone.contains(i));
        let used: i64 = there.filter(|(_, j)| self.shares(own, self.queue_of(j))).map(|(_, j)| j.cpus).sum();
        used + self.wanted.cpus <= quota
    }

    fn expected(&self) -> Vec<String> {
        let mut gone: Vec<usize> = Vec::new();
        if self.fits(&gone) || !self.fits(&(0..self.held.len()).collect::<Vec<_>>()) {
            return Vec::new();
        }
        'search: for only_quota in [false, true] {
            let rules = self.rules.iter().filter(|r| r.only_quota == only_quota);
            let mine = rules.filter(|r| r.team.is_none_or(|t| t == self.wanted.team));
            let selectors: Vec<&Selector> = mine.flat_map(|r| &r.selectors).collect();
            let selected = |i: &usize| selectors.iter().any(|s| self.is_selected(s, &self.held[*i]));
            let mut candidates: Vec<usize> =
                (0..self.held.len()).filter(|i| !gone.contains(i)).filter(selected).collect();
            candidates.sort_by_key(|&i| {
                let j = &self.held[i];
                let own = self.queue_of(j) == self.queue_of(&self.wanted);
                (own, j.priority + j.boost, -j.since, format!("h{i}"))
            });
            for i in candidates {
                gone.push(i);
                if self.fits(&gone) {
                    break 'search;
                }
            }
        }
        if !self.fits(&gone) {
            return Vec::new();
        }
        for i in (0..gone.len() - 1).rev() {
            let mut fewer = gone.clone();
            fewer.swap_remove(i);
            if self.fits(&fewer) {
                gone = fewer;
            }
        }
        let mut names: Vec<String> = gone.into_iter().map(|i| format!("h{i}")).collect();
        names.sort();
        names
    }

    fn line(&self, j: &Job) -> String {
        let size = j.size.map(|s| if s == 3 { "label=size:three".into() } else { format!("label=size:{s}") });
        format!(
            "queue=q{} cpu={} priority={} boost={} label=team:{} {}",
            self.queue_of(j),
            j.cpus,
            j.priority,
            j.boost,
            j.team,
            size.unwrap_or_default()
        )
    }

    /// The same for the engine.
    fn case(&self) -> Case {
        let mut case = Case::new();
        if self.nested {
            case.line("cohort c0 parent=root");
            case.line("cohort c1 parent=root");
        }
        for (i, q) in self.queues.iter().enumerate() {
            let cohort = q.cohort.map(|c| format!(" cohort=c{c}")).unwrap_or_default();
            case.line(&format!("queue q{i} cpu={} label=tier:{} config=rules{cohort}", q.nominal, q.tier));
        }
        for (i, j) in self.held.iter().enumerate() {
            case.line(&format!("held h{i} {}", self.line(j)));
            let at = Time::from_seconds(NOW - 1000 + j.since);
            case.held[i].status.conditions.iter_mut().for_each(|c| c.transition = at);
        }
        case.line(&format!("want {}", self.line(&self.wanted)));
        let one = |key: &str, value: Option<u8>| {
            let value = value?;
            Some(format!(",{key}:{value}"))
        };
        for rule in &self.rules {
            let mut text = String::from(if rule.only_quota { "InsufficientQuota" } else { "Always" });
            text.extend(rule.team.map(|t| format!(" preemptors=team:{t}")));
            for s in &rule.selectors {
                text.push_str(&format!(" / scope={}", PreemptionScope::WORDS[s.scope].1));
                text.extend(one("cq=tier", s.tier));
                text.extend(one("label=team", s.team));
                if let Some((how, fallback, min, max)) = s.size {
                    let how = how.map_or("", |h| NumericComparison::WORDS[h].1);
                    let number = |n: Option<i32>| n.map(|n| n.to_string()).unwrap_or_default();
                    let (fallback, min, max) = (number(fallback), number(min), number(max));
                    text.push_str(&format!(",num=size:{how}:{fallback}:{min}:{max}"));
                }
                if let Some((boosted, how)) = s.priority {
                    let mode = if boosted { "Boosted" } else { "Base" };
                    text.push_str(&format!(",priority={mode}:{}", NumericComparison::WORDS[how].1));
                }
            }
            case.line(&format!("rule {text}"));
        }
        case
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, ..ProptestConfig::default() })]

    #[test]
    fn victims_are_those_of_a_plain_reading(
        nested in any::<bool>(),
        queues in proptest::collection::vec(any_queue(), 1..5),
        held in proptest::collection::vec(any_job(), 0..9),
        rules in proptest::collection::vec(any_rule(), 0..4),
        wanted in any_job(),
    ) {
        let cluster = Cluster { nested, queues, held, rules, wanted };
        let case = cluster.case();
        let found = case.preempted();
        prop_assert!(found.values().all(|r| r == "ConfigurablePreemption"), "{:?}", found);
        let found: Vec<String> = found.into_keys().collect();
        prop_assert_eq!(found, cluster.expected());
    }
}

/// The property is not one of clusters in which nothing is ever preempted.
#[test]
fn random_clusters_have_victims() {
    use proptest::strategy::ValueTree as _;
    use proptest::test_runner::TestRunner;
    let mut runner = TestRunner::deterministic();
    let clusters = (
        any::<bool>(),
        proptest::collection::vec(any_queue(), 1..5),
        proptest::collection::vec(any_job(), 0..9),
        proptest::collection::vec(any_rule(), 0..4),
        any_job(),
    );
    let several = (0..512).filter(|_| {
        let tree = clusters.new_tree(&mut runner).expect("a cluster");
        let (nested, queues, held, rules, wanted) = tree.current();
        !Cluster { nested, queues, held, rules, wanted }.expected().is_empty()
    });
    assert!(several.count() > 50);
}

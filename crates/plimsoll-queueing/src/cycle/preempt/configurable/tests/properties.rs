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
    /// Where it is, where there are nodes.
    node: usize,
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
    /// Index in `PreemptionTrigger::WORDS`.
    trigger: usize,
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
    (any::<usize>(), 1..4i64, 0..3i32, -1..2i32, size, 0..2u8, 0..3i64, any::<usize>()).prop_map(
        |(queue, cpus, priority, boost, size, team, since, node)| Job {
            queue,
            cpus,
            priority,
            boost,
            size,
            team,
            since,
            node,
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
    (0..3usize, proptest::option::weighted(0.25, 0..2u8), selectors)
        .prop_map(|(trigger, team, selectors)| Rule { trigger, team, selectors })
}

fn any_cluster() -> impl Strategy<Value = Cluster> {
    use proptest::collection::vec;
    let nodes = proptest::option::of(vec(2..6i64, 1..4));
    let (queues, held, rules) = (vec(any_queue(), 1..5), vec(any_job(), 0..9), vec(any_rule(), 0..4));
    (any::<bool>(), any::<bool>(), queues, nodes, held, rules, any_job()).prop_map(
        |(nested, fair, queues, nodes, held, rules, wanted)| {
            let nodes = nodes.unwrap_or_default();
            let mut free = nodes.clone();
            let on_a_node = |j: &Job| {
                let Some(n) = j.node.checked_rem(free.len()) else { return true };
                free[n] -= j.cpus;
                if free[n] < 0 {
                    free[n] += j.cpus;
                    return false;
                }
                true
            };
            let held = { held }.into_iter().filter(on_a_node).collect();
            Cluster { nested, fair, policies: (0, 0), queues, nodes, held, rules, wanted }
        },
    )
}

#[derive(Clone, Debug)]
struct Cluster {
    nested: bool,
    fair: bool,
    /// `withinClusterQueue` and `reclaimWithinCohort`: never, of a lower priority, any.
    policies: (usize, usize),
    queues: Vec<Queue>,
    /// CPUs of nodes of a topology; none: the flavor has no topology. The workload that comes needs all its CPUs on one node.
    nodes: Vec<i64>,
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

    /// Whether the workload that comes has quota and places once these are gone.
    fn fits(&self, gone: &[usize]) -> bool {
        self.has_quota(gone) && self.has_places(gone)
    }

    fn has_places(&self, gone: &[usize]) -> bool {
        let used = |n: usize| -> i64 {
            let there = self.held.iter().enumerate().filter(|(i, _)| !gone.contains(i));
            there.filter(|(_, j)| j.node % self.nodes.len() == n).map(|(_, j)| j.cpus).sum()
        };
        let has_room = |(n, cpus): (usize, &i64)| used(n) + self.wanted.cpus <= *cpus;
        self.nodes.is_empty() || self.nodes.iter().enumerate().any(has_room)
    }

    fn has_quota(&self, gone: &[usize]) -> bool {
        let own = self.queue_of(&self.wanted);
        let quota: i64 =
            (0..self.queues.len()).filter(|&q| self.shares(own, q)).map(|q| self.queues[q].nominal).sum();
        let there = self.held.iter().enumerate().filter(|(i, _)| !gone.contains(i));
        let used: i64 = there.filter(|(_, j)| self.shares(own, self.queue_of(j))).map(|(_, j)| j.cpus).sum();
        used + self.wanted.cpus <= quota
    }

    /// The workloads that rules of a trigger select.
    fn selected_by(&self, trigger: usize) -> Vec<usize> {
        let rules = self.rules.iter().filter(|r| r.trigger == trigger);
        let mine = rules.filter(|r| r.team.is_none_or(|t| t == self.wanted.team));
        let selectors: Vec<&Selector> = mine.flat_map(|r| &r.selectors).collect();
        let selected = |i: &usize| selectors.iter().any(|s| self.is_selected(s, &self.held[*i]));
        (0..self.held.len()).filter(selected).collect()
    }

    /// The victims where rules alone select.
    fn expected(&self) -> Vec<String> {
        let mut gone: Vec<usize> = Vec::new();
        if self.fits(&gone) || !self.fits(&(0..self.held.len()).collect::<Vec<_>>()) {
            return Vec::new();
        }
        'search: for trigger in 0..3 {
            if trigger > 0 && (trigger == 1) == self.has_quota(&gone) {
                continue;
            }
            let mut candidates: Vec<usize> =
                self.selected_by(trigger).into_iter().filter(|i| !gone.contains(i)).collect();
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
        // What needs one node has a pod for each CPU.
        let cpus =
            if self.nodes.is_empty() { format!("cpu={}", j.cpus) } else { format!("cpu=1 pods={}", j.cpus) };
        format!(
            "queue=q{} {cpus} priority={} boost={} label=team:{} {}",
            self.queue_of(j),
            j.priority,
            j.boost,
            j.team,
            size.unwrap_or_default()
        )
    }

    /// The same for the engine.
    fn case(&self) -> Case {
        let mut case = Case::new();
        if self.fair {
            case.line("fair");
        }
        if !self.nodes.is_empty() {
            let nodes: Vec<String> =
                self.nodes.iter().enumerate().map(|(n, c)| format!("x{n}={c}")).collect();
            case.line(&format!("topology {}", nodes.join(" ")));
        }
        if self.nested {
            case.line("cohort c0 parent=root");
            case.line("cohort c1 parent=root");
        }
        for (i, q) in self.queues.iter().enumerate() {
            let cohort = q.cohort.map(|c| format!(" cohort=c{c}")).unwrap_or_default();
            let policy = |key: &str, n: usize| {
                let words = ["", "LowerPriority", "Any"];
                if n == 0 { String::new() } else { format!(" {key}={}", words[n]) }
            };
            let (within, reclaim) = self.policies;
            let policies = policy("within", within) + &policy("reclaim", reclaim);
            let quota = format!("cpu={} label=tier:{}", q.nominal, q.tier);
            case.line(&format!("queue q{i} {quota} config=rules{cohort}{policies}"));
        }
        for (i, j) in self.held.iter().enumerate() {
            let node =
                j.node.checked_rem(self.nodes.len()).map(|n| format!(" node=x{n}")).unwrap_or_default();
            case.line(&format!("held h{i} {}{node}", self.line(j)));
            let at = Time::from_seconds(NOW - 1000 + j.since);
            case.held[i].status.conditions.iter_mut().for_each(|c| c.transition = at);
        }
        let required = if self.nodes.is_empty() { "" } else { " required" };
        case.line(&format!("want {}{required}", self.line(&self.wanted)));
        let one = |key: &str, value: Option<u8>| {
            let value = value?;
            Some(format!(",{key}:{value}"))
        };
        for rule in &self.rules {
            let mut text = String::from(PreemptionTrigger::WORDS[rule.trigger].1);
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
    #![proptest_config(ProptestConfig { cases: 768, ..ProptestConfig::default() })]

    /// With and without fair sharing, with and without topologies.
    #[test]
    fn victims_are_those_of_a_plain_reading(cluster in any_cluster()) {
        let found = cluster.case().preempted();
        prop_assert!(found.values().all(|r| r == "ConfigurablePreemption"), "{:?}", found);
        let found: Vec<String> = found.into_keys().collect();
        prop_assert_eq!(found, cluster.expected());
    }

    /// Candidates of `spec.preemption` and of fair sharing come first, and rules add what those lack.
    #[test]
    fn rules_add_what_other_candidates_lack(cluster in any_cluster(), within in 0..3usize, reclaim in 0..3usize) {
        let cluster = Cluster { policies: (within, reclaim), ..cluster };
        let found = cluster.case().preempted();
        let mut without = cluster.case();
        without.gates.configurable_preemptions = false;
        let without = without.preempted();
        let number = |name: &String| name[1..].parse::<usize>().expect("a number");
        let gone: Vec<usize> = found.keys().map(number).collect();
        let by_rule = |name: &String| found[name] == "ConfigurablePreemption";
        let selected: Vec<usize> = (0..3).flat_map(|t| cluster.selected_by(t)).collect();
        prop_assert!(found.keys().filter(|n| by_rule(n)).all(|n| selected.contains(&number(n))), "{:?}", found);
        if cluster.fits(&[]) {
            prop_assert!(found.is_empty(), "{:?}", found);
            return Ok(());
        }
        prop_assert!(found.is_empty() || cluster.fits(&gone), "{:?} in vain", found);
        // Which trigger is reached beside `Always` is certain where there are no places, or quota from the start.
        let reached = if cluster.nodes.is_empty() { 1 } else { 2 };
        let select: Vec<usize> = [0, reached].iter().flat_map(|t| cluster.selected_by(*t)).collect();
        let certain = reached == 1 || cluster.has_quota(&[]);
        prop_assert!(!found.is_empty() || !certain || !cluster.fits(&select), "rules select enough");
        // Without fair sharing a first attempt without borrowing may take what rules select, before one with borrowing.
        if cluster.fair {
            if !without.is_empty() {
                prop_assert_eq!(&found, &without);
            }
            for i in 0..gone.len() {
                let mut fewer = gone.clone();
                fewer.remove(i);
                prop_assert!(!cluster.fits(&fewer), "{:?}: h{} is not needed", found, gone[i]);
            }
        }
    }
}

/// The properties are not ones of clusters in which nothing is ever preempted.
#[test]
fn random_clusters_have_victims() {
    use proptest::strategy::ValueTree as _;
    use proptest::test_runner::TestRunner;
    let mut runner = TestRunner::deterministic();
    let clusters = any_cluster();
    let all: Vec<Cluster> =
        (0..768).map(|_| clusters.new_tree(&mut runner).expect("a cluster").current()).collect();
    let count =
        |f: &dyn Fn(&Cluster) -> bool| all.iter().filter(|c| !c.expected().is_empty() && f(c)).count();
    let for_places = |c: &Cluster| c.has_quota(&[]);
    let counts = [count(&|_| true), count(&|c| c.fair), count(&for_places), count(&|c| !c.nodes.is_empty())];
    assert!(counts.iter().zip([100, 40, 10, 40]).all(|(n, least)| *n >= least), "{counts:?}");
}

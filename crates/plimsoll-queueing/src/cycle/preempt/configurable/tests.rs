//! Configurable preemptions: which workloads go by rules of a PreemptionConfig, and what is said of it.

mod properties;

use std::collections::BTreeMap;

use crate::testing::outside::{Outside, cluster_queue, workload};
use crate::testing::{self as engine, Engine};
use crate::*;
use plimsoll_state::ObjectEvent;
use plimsoll_state::model::{LabelSelector, Node, Operator, Requirement};
use plimsoll_state::time::Time;

const HOST: &str = "kubernetes.io/hostname";
const NOW: i64 = 100_000;

/// A cluster with rules, and the workload that comes.
#[derive(Debug, Default)]
struct Case {
    gates: Gates,
    fair: bool,
    events: Vec<Event>,
    nodes: Vec<(String, i64)>,
    config: PreemptionConfig,
    held: Vec<Workload>,
    wanted: Option<Workload>,
    /// Workloads that go, and why.
    preempts: BTreeMap<String, String>,
}

/// `key=value` of the words of a line, in order.
fn options<'l>(words: &[&'l str]) -> Vec<(&'l str, &'l str)> {
    words.iter().map(|w| w.split_once('=').unwrap_or((w, ""))).collect()
}

fn label(pair: &str) -> (String, String) {
    let (k, v) = pair.split_once(':').unwrap_or((pair, ""));
    (k.to_owned(), v.to_owned())
}

fn selector(pair: &str) -> Result<Option<LabelSelector>, String> {
    if pair == "invalid" {
        return Err("invalid".to_owned());
    }
    let (key, value) = label(pair);
    let requirements = vec![Requirement { key, operator: Operator::In, values: vec![value] }];
    Ok(Some(LabelSelector { requirements }))
}

fn word<T: Copy>(words: &[(T, &'static str)], text: &str) -> T {
    words.iter().find(|(_, w)| *w == text).unwrap_or_else(|| panic!("unknown word {text}")).0
}

fn numeric_label(text: &str) -> NumericLabel {
    let parts: Vec<&str> = text.split(':').collect();
    let part = |i: usize| parts.get(i).copied().filter(|p| !p.is_empty());
    let number = |i| part(i).map(|n| n.parse().expect("a number"));
    NumericLabel {
        key: parts[0].to_owned(),
        comparison: part(1).map(|c| word(&NumericComparison::WORDS, c)),
        fallback: number(2),
        min: number(3),
        max: number(4),
    }
}

fn candidates(text: &str) -> Result<PreemptionCandidates, String> {
    let mut out = PreemptionCandidates::default();
    for (key, value) in options(&text.trim().split(',').collect::<Vec<_>>()) {
        match key {
            "scope" => out.scope = word(&PreemptionScope::WORDS, value),
            "label" => out.workloads = selector(value)?,
            "cq" => out.cluster_queues = selector(value)?,
            "num" => out.numeric_labels.push(numeric_label(value)),
            "priority" => {
                let (mode, comparison) = value.split_once(':').expect("mode and comparison");
                let comparison = word(&NumericComparison::WORDS, comparison);
                out.priority = Some(PriorityComparison { boosted: mode == "Boosted", comparison });
            }
            "only" => out.classes.only.push(value.to_owned()),
            "except" => out.classes.except.push(value.to_owned()),
            _ => panic!("unknown {key} of a selector"),
        }
    }
    Ok(out)
}

fn rule(n: usize, text: &str) -> PreemptionRule {
    let mut parts = text.split('/');
    let words: Vec<&str> = parts.next().expect("a trigger").split_whitespace().collect();
    let mut rule = PreemptionRule {
        name: format!("r{n}"),
        trigger: word(&PreemptionTrigger::WORDS, words[0]),
        preemptors: Ok(None),
        preemptor_classes: PriorityClassNames::default(),
        candidates: parts.map(candidates).collect(),
    };
    for (key, value) in options(&words[1..]) {
        match key {
            "preemptors" => rule.preemptors = selector(value),
            "only" => rule.preemptor_classes.only.push(value.to_owned()),
            _ => panic!("unknown {key} of a rule"),
        }
    }
    rule
}

fn policy(text: &str) -> PreemptionPolicy {
    match text {
        "LowerPriority" => PreemptionPolicy::LowerPriority,
        "Any" => PreemptionPolicy::Any,
        _ => panic!("unknown policy {text}"),
    }
}

impl Case {
    fn new() -> Self {
        let gates = Gates { configurable_preemptions: true, priority_boost: true, ..Gates::default() };
        let config = PreemptionConfig { name: "rules".into(), rules: Vec::new() };
        Self { gates, config, ..Self::default() }
    }

    fn queue(&mut self, name: &str, rest: &[&str]) {
        let mut cq = cluster_queue(name, "", 0, None, false);
        cq.preemption = PreemptionRules::default();
        for (key, value) in options(rest) {
            match key {
                "cohort" => cq.cohort = value.into(),
                "cpu" => {
                    cq.resource_groups[0].flavors[0].resources[0].nominal =
                        1000 * value.parse::<i64>().expect("cpus");
                }
                "config" => cq.preemption_config = value.into(),
                "label" => drop(cq.labels.insert(label(value).0, label(value).1)),
                "within" => cq.preemption.within_cluster_queue = policy(value),
                "reclaim" => cq.preemption.reclaim_within_cohort = policy(value),
                _ => panic!("unknown {key} of a queue"),
            }
        }
        self.events.push(Event::ClusterQueueUpsert(Box::new(cq)));
        self.local_queue(name, name);
    }

    fn local_queue(&mut self, name: &str, cq: &str) {
        self.events.push(Event::LocalQueueUpsert(Box::new(LocalQueue {
            namespace: "n".into(),
            name: name.into(),
            cluster_queue: cq.into(),
            fair_weight_nano: 1_000_000_000,
            ..LocalQueue::default()
        })));
    }

    fn workload(&mut self, name: &str, rest: &[&str]) -> Workload {
        let cpus = options(rest).iter().find(|(k, _)| *k == "cpu").map_or("1", |(_, v)| v);
        let mut w = workload(self.held.len(), 0, 0, 1000 * cpus.parse::<i64>().expect("cpus"));
        (w.key.name, w.uid) = (name.into(), name.into());
        let (mut evicted, mut node) = (false, None);
        for (key, value) in options(rest) {
            match key {
                "cpu" => {}
                "queue" => w.queue = value.into(),
                "lq" => {
                    let cq = std::mem::replace(&mut w.queue, value.into());
                    self.local_queue(value, &cq);
                }
                "priority" => w.priority = value.parse().expect("a priority"),
                "boost" => w.priority_boost = value.parse().expect("a boost"),
                "label" => drop(w.labels.insert(label(value).0, label(value).1)),
                "class" => w.priority_class = value.into(),
                "pods" => w.pod_sets[0].count = value.parse().expect("pods"),
                "required" => {
                    let topology = TopologyRequest { required: Some(HOST.into()), ..Default::default() };
                    w.pod_sets[0].topology = Some(topology);
                }
                "node" => {
                    let topology = TopologyRequest { preferred: Some(HOST.into()), ..Default::default() };
                    w.pod_sets[0].topology = Some(topology);
                    node = Some(value.to_owned());
                }
                "evicted" => evicted = true,
                _ => panic!("unknown {key} of a workload"),
            }
        }
        let queue = options(rest).iter().find(|(k, _)| *k == "queue").map_or("", |(_, v)| v).to_owned();
        if name != "incoming" {
            w.status = held_status(&w, &queue, node, evicted, Time::from_seconds(NOW - 1000));
        }
        w
    }

    fn line(&mut self, line: &str) {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words[0] {
            "off" => self.gates.configurable_preemptions = false,
            "fair" => self.fair = true,
            "topology" => {
                let nodes = options(&words[1..]).into_iter();
                self.nodes = nodes.map(|(n, c)| (n.to_owned(), c.parse().expect("cpus"))).collect();
            }
            "cohort" => {
                let parent = options(&words[2..])[0].1.to_owned();
                let name = words[1].to_owned();
                let cohort = Cohort { name, parent, fair_weight_nano: 1_000_000_000, ..Cohort::default() };
                self.events.push(Event::CohortUpsert(Box::new(cohort)));
            }
            "queue" => self.queue(words[1], &words[2..]),
            "rule" => {
                let text = line.strip_prefix("rule ").expect("a rule");
                self.config.rules.push(rule(self.config.rules.len(), text));
            }
            "held" => {
                let w = self.workload(words[1], &words[2..]);
                self.held.push(w);
            }
            "want" => self.wanted = Some(self.workload("incoming", &words[1..])),
            "preempts" => {
                let reason = |r: &str| if r == "r" { "ConfigurablePreemption".into() } else { r.to_owned() };
                let gone = options(&words[1..]).into_iter();
                self.preempts = gone.map(|(name, r)| (name.to_owned(), reason(r))).collect();
            }
            other => panic!("unknown line {other}"),
        }
    }

    /// An engine with everything but the workload that comes, and the outside.
    fn play(&self) -> (Engine, Outside) {
        let fair_sharing = self.fair.then(FairSharing::default);
        let config = Config { gates: self.gates, fair_sharing, watch_nodes: true, ..Config::default() };
        let mut engine = Engine::new(config);
        let topology = if self.nodes.is_empty() { String::new() } else { "t".to_owned() };
        let flavor = ResourceFlavor { name: "f".into(), topology, ..ResourceFlavor::default() };
        let mut events = vec![
            Event::NamespaceUpsert("n".into(), StringMap::new()),
            Event::ResourceFlavorUpsert(Box::new(flavor)),
        ];
        if !self.nodes.is_empty() {
            let topology = Topology { name: "t".into(), levels: vec![HOST.into()] };
            events.push(Event::TopologyUpsert(Box::new(topology)));
        }
        events.extend(self.events.iter().cloned());
        events.push(Event::PreemptionConfigUpsert(Box::new(self.config.clone())));
        events.extend(self.held.iter().map(|w| Event::WorkloadUpsert(Box::new(w.clone()))));
        let mut batch: Vec<engine::Event> = events.into_iter().map(engine::Event::Queueing).collect();
        batch.extend(self.nodes.iter().map(|(name, cpus)| {
            engine::Event::Object(ObjectEvent::NodeUpsert(Box::new(Node {
                name: name.clone(),
                ready: true,
                ready_since: Some(Time::from_seconds(0)),
                allocatable: [("cpu".to_owned(), cpus * 1000), ("pods".to_owned(), 20)].into(),
                labels: [(HOST.to_owned(), name.clone())].into(),
                ..Node::default()
            })))
        }));
        let mut outside = Outside::new(self.held.clone());
        step(&mut engine, &mut outside, NOW, batch);
        (engine, outside)
    }

    /// Who is preempted for the workload that comes, and why.
    fn preempted(&self) -> BTreeMap<String, String> {
        let (mut engine, mut outside) = self.play();
        let wanted = self.wanted.clone().expect("a workload that comes");
        outside.workloads.push(wanted.clone());
        let batch = vec![engine::Event::Queueing(Event::WorkloadUpsert(Box::new(wanted)))];
        step(&mut engine, &mut outside, NOW + 1, batch);
        gone(&outside)
    }
}

/// Steps until nothing is to be written any more.
fn step(engine: &mut Engine, outside: &mut Outside, now: i64, mut batch: Vec<engine::Event>) {
    for _ in 0..20 {
        let mut actions = Vec::new();
        engine.step(Time::from_seconds(now), &mut batch, &mut actions);
        let answers = outside.carry_out(actions, &mut std::iter::empty());
        batch = answers.into_iter().map(engine::Event::Queueing).collect();
        if batch.is_empty() && engine.next_wake().is_none_or(|t| t > Time::from_seconds(now)) {
            return;
        }
    }
    panic!("it goes on for ever");
}

/// Workloads that are preempted, and the reason.
fn gone(outside: &Outside) -> BTreeMap<String, String> {
    let preempted = outside.workloads.iter().filter_map(|w| {
        let c = w.status.condition(cond::PREEMPTED).filter(|c| c.status)?;
        Some((w.key.name.clone(), c.reason.clone()))
    });
    preempted.collect()
}

/// The status of an admitted workload.
fn held_status(w: &Workload, queue: &str, node: Option<String>, evicted: bool, at: Time) -> WorkloadStatus {
    let mut conditions = vec![cond::QUOTA_RESERVED, cond::ADMITTED];
    if evicted {
        conditions.push(cond::EVICTED);
    }
    let condition = |kind: &str| Condition {
        kind: kind.to_owned(),
        status: true,
        reason: if kind == cond::EVICTED { "Preempted".into() } else { kind.to_owned() },
        transition: at,
        ..Condition::default()
    };
    let ps = &w.pod_sets[0];
    let total = ps.spec.containers[0].requests["cpu"] * i64::from(ps.count);
    let domains = |n| vec![(vec![n], ps.count)];
    let assignment = PodSetAssignment {
        name: ps.name.clone(),
        flavors: vec![("cpu".into(), "f".into())],
        resource_usage: [("cpu".to_owned(), total)].into(),
        count: ps.count,
        topology: node.map(|n| TopologyAssignment { levels: vec![HOST.into()], domains: domains(n) }),
        delayed: None,
        reclaim_target: None,
    };
    WorkloadStatus {
        conditions: conditions.into_iter().map(condition).collect(),
        admission: Some(Box::new(Admission { cluster_queue: queue.into(), assignments: vec![assignment] })),
        ..WorkloadStatus::default()
    }
}

fn cases() -> Vec<(String, Case)> {
    let text = include_str!("tests/cases.txt");
    let mut out: Vec<(String, Case)> = Vec::new();
    for line in text.lines().filter(|l| !l.is_empty() && !l.starts_with('#')) {
        match (line.strip_prefix("case "), out.last_mut()) {
            (Some(name), _) => out.push((name.to_owned(), Case::new())),
            (None, Some((_, case))) => case.line(line),
            (None, None) => panic!("no case before {line}"),
        }
    }
    out
}

fn case(name: &str) -> Case {
    cases().into_iter().find(|(n, _)| n == name).expect("a case").1
}

#[test]
fn rules_select_victims_as_the_cases_say() {
    let cases = cases();
    assert!(cases.len() > 50, "{} cases", cases.len());
    let wrong: Vec<String> = cases
        .iter()
        .filter_map(|(name, case)| {
            let found = case.preempted();
            (found != case.preempts).then(|| format!("{name}: {found:?} instead of {:?}", case.preempts))
        })
        .collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn conditions_and_statistics_name_the_rules() {
    let name = "workloads of several selectors and rules are one set, in the order of candidates";
    let mut case = case(name);
    case.wanted = Some(case.workload("incoming", &["queue=a", "cpu=3"]));
    let (mut engine, mut outside) = case.play();
    let wanted = case.wanted.clone().expect("set");
    outside.workloads.push(wanted.clone());
    let batch = vec![engine::Event::Queueing(Event::WorkloadUpsert(Box::new(wanted)))];
    step(&mut engine, &mut outside, NOW + 1, batch);
    let victim = &outside.workloads[0];
    let evicted = victim.status.condition(cond::EVICTED).expect("evicted");
    assert_eq!(evicted.reason, "Preempted");
    assert!(
        evicted.message.contains("due to the configured preemption rules; preemptor path: /all/a;")
            && evicted.message.ends_with("; preemption config rules rule r0/0,1"),
        "{}",
        evicted.message
    );
    let counted = EvictionCount {
        reason: "ConfigurablePreemption".into(),
        cause: "Preempted by n/incoming because of preemption config rules rule r0/0,1".into(),
        count: 1,
    };
    assert_eq!(victim.status.evictions, [counted]);
    let metrics = engine.queueing().expect("queueing").metrics();
    let sample = |family: &str| {
        let family = metrics.iter().find(|f| f.name == family).expect("a family");
        let labels: Vec<String> =
            family.samples.iter().flat_map(|s| s.labels.iter().map(|(_, v)| v.clone())).collect();
        labels.join(" ")
    };
    assert!(sample("kueue_preempted_workloads_total").contains("ConfigurablePreemption"));
    let evicted = sample("kueue_evicted_workloads_total");
    assert!(evicted.contains("Preempted") && !evicted.contains("because of"), "{evicted}");
}

/// A workload that waits is looked at again when the config comes, when its rules change, and when the annotation does.
#[test]
fn inadmissible_workloads_are_looked_at_again() {
    let mut case = case("one workload goes");
    let rules = std::mem::take(&mut case.config.rules);
    let config = |rules: &[PreemptionRule]| PreemptionConfig { name: "rules".into(), rules: rules.to_vec() };
    type Change = (&'static str, Box<dyn Fn(&Case) -> Event>);
    let annotated = |case: &Case, name: &str| {
        let mut cq = case.events.iter().find_map(|e| match e {
            Event::ClusterQueueUpsert(cq) => Some(cq.clone()),
            _ => None,
        });
        let mut cq = cq.take().expect("a queue");
        cq.preemption_config = name.into();
        Event::ClusterQueueUpsert(cq)
    };
    let changes: [Change; 2] = [
        ("rules", {
            let rules = rules.clone();
            Box::new(move |_| Event::PreemptionConfigUpsert(Box::new(config(&rules))))
        }),
        ("annotation", Box::new(move |case| annotated(case, "others"))),
    ];
    for (what, change) in changes {
        let (mut engine, mut outside) = case.play();
        let others = PreemptionConfig { name: "others".into(), rules: rules.clone() };
        let wanted = case.wanted.clone().expect("a workload");
        outside.workloads.push(wanted.clone());
        let batch =
            [Event::PreemptionConfigUpsert(Box::new(others)), Event::WorkloadUpsert(Box::new(wanted))];
        step(&mut engine, &mut outside, NOW + 1, batch.map(engine::Event::Queueing).into());
        assert!(gone(&outside).is_empty(), "{what}");
        step(&mut engine, &mut outside, NOW + 10, vec![engine::Event::Queueing(change(&case))]);
        assert_eq!(gone(&outside), case.preempts, "{what}");
    }
}

/// What a rule reads of preemptors is a part of their scheduling hash: one that may not preempt keeps no other one from it.
#[test]
fn workloads_with_other_labels_are_not_skipped() {
    let mut case = case("the preemptor matches a rule");
    let others: Vec<Workload> = (0..3)
        .map(|i| {
            let mut w = case.workload("incoming", &["queue=a", "cpu=1", "label=team:batch"]);
            (w.key.name, w.uid) = (format!("other{i}"), format!("other{i}"));
            w.creation = Time::from_seconds(0);
            w
        })
        .collect();
    let (mut engine, mut outside) = case.play();
    let mut batch = Vec::new();
    for w in others.into_iter().chain(case.wanted.clone()) {
        outside.workloads.push(w.clone());
        batch.push(engine::Event::Queueing(Event::WorkloadUpsert(Box::new(w))));
    }
    step(&mut engine, &mut outside, NOW + 1, batch);
    assert_eq!(gone(&outside), case.preempts);
}

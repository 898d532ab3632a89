use plimsoll_api::request::Request;
use plimsoll_queueing::{LoanChange, LoanPhase, LoanUpdate, QuotaLoan};
use plimsoll_state::model::Node;
use serde_json::json;

use super::*;

fn division(node: &str) -> Division {
    let mut division = Division::new("a", 0);
    division.pods.node(node);
    division
}

#[test]
fn a_node_is_given_away_when_no_binding_is_under_way() {
    let mut division = Division::new("a", 0);
    assert!(!division.may_bind("x"), "not of this shard");
    division = self::division("x");
    assert!(division.may_bind("x") && division.may_bind("x"));
    let leaving = Leaving { to: "b".into(), version: "7".into() };
    let annotations = [(shards::MOVE_TO.to_owned(), "b".to_owned())].into();
    let labels = [(shards::LABEL.to_owned(), "a".to_owned())].into();
    let node = Node { name: "x".into(), annotations, labels, ..Node::default() };
    let mut out = Vec::new();
    assert!(!division.node(node, "7", &mut out) && division.gives_away());
    assert!(matches!(&out[..], [Told::Object(ObjectEvent::NodeDelete(name))] if name == "x"), "{out:?}");
    assert!(!division.may_bind("x"), "no more begins");
    division.bound("x");
    assert_eq!(division.given_away(), []);
    division.bound("x");
    assert_eq!(division.given_away(), [("x".to_owned(), leaving)]);
    division.node_gone("x", &mut out);
    assert!(!division.gives_away());
}

#[test]
fn workloads_of_other_shards_are_not_written() {
    let (mut division, mut objects) = (Division::new("a", 0), ObjectStore::default());
    let lq = |name: &str| json!({"metadata": {"namespace": "n", "name": name, "uid": name}, "spec": {"clusterQueue": name}});
    let wl = |name: &str, queue: &str| json!({"metadata": {"namespace": "n", "name": name, "uid": name}, "spec": {"queueName": queue}});
    for queue in ["qa", "qb"] {
        objects.put(Kind::LocalQueue, lq(queue));
    }
    objects.put(Kind::Workload, wl("of-a", "qa"));
    objects.put(Kind::Workload, wl("of-b", "qb"));
    for (name, label) in [("qa", "a"), ("qb", "b")] {
        let marks = Marks { label: label.to_owned(), ..Marks::default() };
        division.trees.put(TreeObject::cluster_queue(name), "", marks, "1");
    }
    division.trees.resolve();
    assert!(division.may_write("n", "of-a", &objects) && division.may_write("n", "unknown", &objects));
    assert!(!division.may_write("n", "of-b", &objects));
    let config = crate::Config::default();
    let env = Env { objects: &objects, config: &config, now: plimsoll_state::Time(0) };
    let topology = |name: &str| Key::Topology("n".into(), name.into());
    assert!(division.plans(&topology("of-a"), env) && !division.plans(&topology("of-b"), env));
    assert!(!division.plans(&Key::ResourceFlavor("f".into()), env), "about the whole cluster");
    assert!(Division::new(DEFAULT, 0).plans(&Key::ResourceFlavor("f".into()), env));
}

/// A label moves a whole tree: its workloads leave before their queue, and come after it.
#[test]
fn trees_come_and_go_with_their_workloads() {
    let (mut division, mut objects) = (Division::new("a", 1), ObjectStore::default());
    let cq = |label: &str| {
        json!({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ClusterQueue",
            "metadata": {"name": "q", "uid": "q", "labels": {shards::LABEL: label}}, "spec": {}})
    };
    let of_kind = |kind: &str, name: &str, spec: Value| {
        json!({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": kind,
            "metadata": {"namespace": "n", "name": name, "uid": name}, "spec": spec})
    };
    let event_of = |object: &Value| plimsoll_api::kueue::upsert_event(object).ok().flatten();
    let mut see = |kind: Kind, object: Value, out: &mut Vec<Told>| {
        objects.put(kind, object.clone());
        let seen = Seen { objects: &objects, event_of: &event_of };
        division.upsert(event_of(&object).unwrap(), &object, seen, out);
        if !division.is_open() && kind == Kind::Workload {
            division.listed(seen, out);
        }
    };
    let words = |out: &mut Vec<Told>| -> Vec<&'static str> {
        let word = |told| match told {
            Told::Queueing(Event::ClusterQueueUpsert(_)) => Some("+q"),
            Told::Queueing(Event::ClusterQueueDelete(_)) => Some("-q"),
            Told::Queueing(Event::LocalQueueUpsert(_)) => Some("+lq"),
            Told::Queueing(Event::LocalQueueDelete(..)) => Some("-lq"),
            Told::Queueing(Event::WorkloadUpsert(_)) => Some("+wl"),
            Told::Queueing(Event::WorkloadDelete(_)) => Some("-wl"),
            _ => None,
        };
        out.drain(..).filter_map(word).collect()
    };
    let mut out = Vec::new();
    see(Kind::ClusterQueue, cq("a"), &mut out);
    see(Kind::LocalQueue, of_kind("LocalQueue", "lq", json!({"clusterQueue": "q"})), &mut out);
    assert!(out.is_empty(), "before the last list");
    see(Kind::Workload, of_kind("Workload", "wl", json!({"queueName": "lq"})), &mut out);
    assert_eq!(words(&mut out), ["+q", "+lq", "+wl"]);
    see(Kind::ClusterQueue, cq("b"), &mut out);
    assert_eq!(words(&mut out), ["-wl", "-lq", "-q"]);
    see(Kind::ClusterQueue, cq("a"), &mut out);
    assert_eq!(words(&mut out), ["+q", "+lq", "+wl"]);
}

#[test]
fn a_node_that_asks_to_stay_loses_its_annotation() {
    let mut division = division("x");
    assert!(division.may_bind("x"), "which is under way");
    let annotations = [(shards::MOVE_TO.to_owned(), "a".to_owned())].into();
    let labels = [(shards::LABEL.to_owned(), "a".to_owned())].into();
    let node = Node { name: "x".into(), annotations, labels, ..Node::default() };
    assert!(division.node(node.clone(), "7", &mut Vec::new()) && division.may_bind("x"));
    let Request::Patch { body, .. } = division.given_away()[0].1.request("x") else { panic!() };
    let meta = json!({"resourceVersion": "7", "labels": {"plimsoll.dev/shard": "a"},
        "annotations": {"plimsoll.dev/move-to": null}});
    assert_eq!(body["metadata"], meta);
    division.node(Node { annotations: Default::default(), ..node }, "8", &mut Vec::new());
    assert!(!division.gives_away());
}

/// A shard with the ClusterQueue `q`, which is a tree of its own, and with cohort `k`.
struct Shard {
    division: Division,
    objects: ObjectStore,
    version: u64,
    out: Vec<Told>,
}

impl Shard {
    fn new() -> Self {
        let (division, objects) = (Division::new("a", 0), ObjectStore::default());
        let mut shard = Self { division, objects, version: 0, out: Vec::new() };
        shard.queue("a", &json!({"plimsoll.dev/led-by": "a"}));
        shard.change(|division, seen, out| {
            let number = division.unknown().unwrap();
            division.found(number, (0, BTreeSet::new()), seen, out);
        });
        assert!(shard.division.decides("q"));
        shard
    }

    fn change<T>(&mut self, change: impl FnOnce(&mut Division, Seen<'_>, &mut Vec<Told>) -> T) -> T {
        let event_of = |object: &Value| plimsoll_api::kueue::upsert_event(object).ok().flatten();
        let seen = Seen { objects: &self.objects, event_of: &event_of };
        change(&mut self.division, seen, &mut self.out)
    }

    /// The ClusterQueue was seen.
    fn queue(&mut self, label: &str, annotations: &Value) {
        self.version += 1;
        let object = json!({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ClusterQueue", "spec": {"cohortName": "k"},
            "metadata": {"name": "q", "uid": "q", "resourceVersion": self.version.to_string(),
                "labels": {shards::LABEL: label}, "annotations": annotations}});
        self.objects.put(Kind::ClusterQueue, object.clone());
        let event = plimsoll_api::kueue::upsert_event(&object).unwrap().unwrap();
        self.change(|division, seen, out| division.upsert(event, &object, seen, out));
    }

    /// A loan of this version was seen.
    fn loan(&mut self, version: u64, phase: LoanPhase) -> bool {
        let (from, to) = ("k".to_owned(), "elsewhere".to_owned());
        let loan =
            QuotaLoan { name: "l".into(), uid: "u".into(), version, phase, from, to, ..QuotaLoan::default() };
        let event = Event::QuotaLoanUpsert(Box::new(loan));
        self.out.clear();
        self.change(|division, seen, out| division.upsert(event, &Value::Null, seen, out));
        self.out.iter().any(|told| matches!(told, Told::Queueing(Event::QuotaLoanUpsert(_))))
    }

    /// What can be written to `q`.
    fn steps(&self) -> usize {
        self.division.tree_steps().len()
    }
}

#[test]
fn a_tree_is_given_away_when_nothing_is_under_way_in_it() {
    let mut shard = Shard::new();
    assert!(shard.division.may_admit("q") && shard.division.may_admit("q"));
    shard.queue("b", &json!({"plimsoll.dev/led-by": "a"}));
    assert!(!shard.division.may_admit("q"), "no more begins");
    assert!(shard.division.moves_trees() && shard.steps() == 0);
    shard.division.admitted("q");
    assert_eq!(shard.steps(), 0);
    shard.division.admitted("q");
    let steps = shard.division.tree_steps();
    assert_eq!(*steps[0].cluster_queues, ["q".to_owned()].into());
    // It was called off and asked for again since the engine was asked.
    shard.queue("a", &json!({"plimsoll.dev/led-by": "a"}));
    shard.queue("b", &json!({"plimsoll.dev/led-by": "a"}));
    assert!(shard.change(|division, seen, out| division.begin_steps(steps, seen, out)).is_empty());
    let steps = shard.division.tree_steps();
    let begun = shard.change(|division, seen, out| division.begin_steps(steps, seen, out));
    let Request::Patch { body, .. } = &begun[0].1 else { panic!() };
    let meta = json!({"resourceVersion": "4", "annotations": {"plimsoll.dev/led-by": "b"}});
    assert_eq!(body["metadata"], meta);
    // It may be carried out whatever the labels say by now, and is repeated.
    assert!(shard.steps() == 1 && shard.division.is_unsettled());
    shard.queue("a", &json!({"plimsoll.dev/led-by": "b"}));
    assert!(!shard.division.decides("q") && shard.steps() == 0);
    assert_eq!(shard.division.awaited().len(), 1);
    shard.queue("a", &json!({"plimsoll.dev/led-by": "a"}));
    assert!(!shard.division.decides("q"), "the other leader may have written what was not seen");
    assert!(shard.division.unknown().is_some());
}

#[test]
fn a_tree_stays_while_a_loan_is_granted_or_may_be() {
    let mut shard = Shard::new();
    let change = LoanChange::Grant;
    let grant = LoanUpdate { name: "l".into(), uid: "u".into(), version: 7, change };
    assert!(!shard.division.may_write_loan(&grant), "there is no such loan");
    shard.loan(7, LoanPhase::Requested);
    assert!(shard.division.may_write_loan(&grant));
    shard.queue("b", &json!({"plimsoll.dev/led-by": "a"}));
    assert_eq!(shard.steps(), 0, "the grant may be carried out");
    assert!(shard.division.is_unsettled());
    assert!(shard.division.may_write_loan(&grant), "and is repeated until that is known");
    shard.loan(8, LoanPhase::Requested);
    let next = LoanUpdate { version: 8, ..grant };
    assert!(!shard.division.may_write_loan(&next) && shard.steps() == 1 && !shard.division.is_unsettled());
    shard.loan(9, LoanPhase::Granted);
    assert_eq!(shard.steps(), 0);
    shard.loan(10, LoanPhase::Returned);
    assert_eq!(shard.steps(), 1);
}

/// A watch that is late shows a loan that was deleted before the tree came here.
#[test]
fn a_loan_that_was_not_listed_any_more_is_not_told() {
    let mut shard = Shard::new();
    assert!(shard.loan(7, LoanPhase::Granted));
    shard.queue("a", &json!({"plimsoll.dev/led-by": "b"}));
    shard.queue("a", &json!({"plimsoll.dev/led-by": "a"}));
    shard.change(|division, seen, out| {
        let number = division.unknown().unwrap();
        division.found(number, (9, BTreeSet::new()), seen, out);
    });
    assert!(shard.out.iter().any(|told| matches!(told, Told::Queueing(Event::QuotaLoanDelete(_)))));
    assert!(shard.division.decides("q"));
    assert!(!shard.loan(8, LoanPhase::Granted), "it is gone");
    assert!(shard.loan(10, LoanPhase::Requested), "this one was made since");
}

/// A borrower that is made while the loan is asked back may use it until its leader has seen that.
#[test]
fn loans_of_cohorts_that_exist_nowhere_are_ended_by_the_default_shard() {
    let (division, objects) = (Division::new(DEFAULT, 0), ObjectStore::default());
    let mut shard = Shard { division, objects, version: 0, out: Vec::new() };
    let absent = |shard: &mut Shard| {
        let of_loan = |told| match told {
            Told::Queueing(Event::QuotaLoanUpsert(loan)) => Some(loan.absent),
            _ => None,
        };
        shard.out.drain(..).filter_map(of_loan).next_back()
    };
    let show = |shard: &mut Shard, version, phase, asked_back| {
        let (from, to) = ("none".to_owned(), "k".to_owned());
        let (name, uid) = ("l".to_owned(), "u".to_owned());
        let loan = QuotaLoan { name, uid, version, phase, asked_back, from, to, ..QuotaLoan::default() };
        let event = Event::QuotaLoanUpsert(Box::new(loan));
        shard.change(|division, seen, out| division.upsert(event, &Value::Null, seen, out));
        absent(shard)
    };
    assert_eq!(show(&mut shard, 1, LoanPhase::Requested, false), Some([true, false]));
    assert_eq!(show(&mut shard, 2, LoanPhase::Granted, false), Some([true, false]));
    assert_eq!(shard.division.unknown(), None);
    assert_eq!(show(&mut shard, 3, LoanPhase::Granted, true), Some([true, false]));
    let number = shard.division.unknown().unwrap();
    shard.change(|division, seen, out| division.found(number, (3, ["u".to_owned()].into()), seen, out));
    assert_eq!((absent(&mut shard), shard.division.unknown()), (Some([true; 2]), None));
    let give_back = LoanUpdate { name: "l".into(), uid: "u".into(), version: 3, change: LoanChange::Return };
    assert!(shard.division.may_write_loan(&give_back));
    // Its cohort comes to be.
    shard.queue("a", &json!({}));
    assert_eq!(absent(&mut shard), Some([true, false]));
    let mut other = Shard::new();
    assert!(other.loan(7, LoanPhase::Granted), "to a cohort that exists nowhere");
    assert_eq!(absent(&mut other), Some([false; 2]));
    assert!(!other.division.may_write_loan(&LoanUpdate { version: 7, ..give_back }));
}

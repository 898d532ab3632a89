//! Rules about workloads of guests: what they say reaches queueing, and what they return is checked.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;

use plimsoll_queueing::{PodSet, ResourceFlavor, Ruling, Workload, WorkloadKey, WorkloadPolicy};
use plimsoll_state::rng::Rng;

use super::tests::budgets::Budgets;
use super::tests::{examples, wat};
use super::{GuestPolicy, Native, RULE_FUEL, Wasm};
use crate::Failures;

const GPU: &str = "nvidia.com/gpu";
const CONFIG: &str = "research 8\nweb 2\n";

fn workload(namespace: &str, priority_class: &str) -> Workload {
    Workload {
        key: WorkloadKey { namespace: namespace.to_owned(), name: "w".to_owned() },
        queue: "main".to_owned(),
        priority: 3,
        priority_class: priority_class.to_owned(),
        pod_sets: vec![PodSet { name: "main".to_owned(), count: 2, ..PodSet::default() }].into(),
        ..Workload::default()
    }
}

fn flavor(name: &str, price: Option<&str>) -> ResourceFlavor {
    let label = |price: &str| ("example.com/price".into(), price.into());
    let node_labels = price.map(label).into_iter().collect();
    ResourceFlavor { name: name.to_owned(), node_labels, ..ResourceFlavor::default() }
}

/// All that a policy says.
fn answers(policy: &GuestPolicy, seed: u64) -> Vec<(Ruling, Vec<i32>, i32)> {
    let mut rng = Rng::new(seed);
    let one = |_| {
        let namespace = ["research", "web", "é"][rng.below(3) as usize];
        let workload = workload(namespace, ["", "interactive"][rng.below(2) as usize]);
        let requests = BTreeMap::from([("cpu", 1), (GPU, i64::from(rng.below(12)))]);
        let flavors: Vec<ResourceFlavor> = (0..rng.below(4))
            .map(|i| flavor(&format!("f{i}"), [None, Some("4"), Some("9")][rng.below(3) as usize]))
            .collect();
        let flavors: Vec<&ResourceFlavor> = flavors.iter().collect();
        let scores = policy.score_flavors(&workload, &requests, &flavors);
        (policy.rule(&workload, &requests), scores, policy.victim_order(&workload, &requests))
    };
    (0..200).map(one).collect()
}

fn native() -> GuestPolicy {
    GuestPolicy::new(Box::new(Native::<Budgets>::new(CONFIG).unwrap()), "budgets")
}

#[test]
fn a_plugin_rules_about_workloads() {
    let policy = native();
    assert!(policy.scores_flavors() && policy.orders_victims());
    let requests = BTreeMap::from([(GPU, 4)]);
    let veto = Some("a workload of namespace web may use 2 GPUs".to_owned());
    assert_eq!(policy.rule(&workload("web", "interactive"), &requests), Ruling { veto, order: -1, score: 0 });
    let flavors = [flavor("a", Some("9")), flavor("b", None), flavor("c", Some("4"))];
    let flavors: Vec<&ResourceFlavor> = flavors.iter().collect();
    assert_eq!(policy.score_flavors(&workload("web", ""), &requests, &flavors), [-9, 0, -4]);
    assert_eq!(policy.victim_order(&workload("web", ""), &requests), 4);
}

#[test]
fn a_guest_of_the_sdk_rules_as_the_plugin_that_is_compiled_in() {
    let Some(built) = examples() else { return };
    for seed in 0..3 {
        let guest = Wasm::new(built["budgets"].clone(), CONFIG).unwrap();
        let guest = GuestPolicy::new(Box::new(guest), "budgets");
        assert_eq!(answers(&guest, seed), answers(&native(), seed));
    }
}

const MANIFEST: &str = r#"{"points":["workload","flavor","victim"]}"#;

/// A guest with these bodies of `workload`, `flavor` and `victim`; where its failures are counted.
fn guest(workload: &str, flavor: &str, victim: &str) -> (GuestPolicy, Failures) {
    let body = format!(
        r#"(data (i32.const 4096) "\01\00\00\00\02\00\00\00\ff\ff\ff\ff")
        (func (export "workload") (param i32 i32) (result i64) {workload})
        (func (export "flavor") (param i32 i32) (result i64) {flavor})
        (func (export "victim") (param i32 i32) (result i32) {victim})"#
    );
    let failures = Failures::default();
    let wasm = Wasm::new(wat(MANIFEST, &body).unwrap(), "").unwrap().counted_in("g", failures.clone());
    (GuestPolicy::new(Box::new(wasm), "g"), failures)
}

/// A place and a length as a guest returns them.
fn place(at: u64, len: u64) -> String {
    format!("(i64.const {})", at << 32 | len)
}

const FOREVER: &str = "(loop $l (br $l)) (unreachable)";

#[test]
fn what_guests_return_is_checked() {
    let (none, w) = (BTreeMap::new(), workload("ns", ""));
    let flavors = [flavor("a", None), flavor("b", None)];
    let flavors: Vec<&ResourceFlavor> = flavors.iter().collect();
    let (good, _) = guest(&place(4096, 12), &place(4096, 8), "(i32.const -7)");
    assert_eq!(good.rule(&w, &none), Ruling { veto: None, order: 1, score: 2 });
    assert_eq!(good.score_flavors(&w, &none, &flavors), [1, 2]);
    assert_eq!(good.victim_order(&w, &none), -7);
    let limit = format!("it executed more than {RULE_FUEL} instructions");
    for (body, want) in [
        (place(4096, 11), "workload returned no ruling"),
        (place(1 << 31, 12), "a place outside of its memory"),
        (place(4096, 70_000), "more than 65536 bytes"),
        (FOREVER.to_owned(), limit.as_str()),
        ("(unreachable)".to_owned(), "unreachable"),
    ] {
        let (bad, failures) = guest(&body, &body, FOREVER);
        for _ in 0..2 {
            let ruling = bad.rule(&w, &none);
            let veto = ruling.veto.unwrap();
            assert!(veto.starts_with("plugin g: wasm: ") && veto.contains(want), "{body}: {veto}");
            assert_eq!((ruling.order, ruling.score), (0, 0));
            assert!(bad.score_flavors(&w, &none, &flavors).is_empty());
            assert_eq!(bad.victim_order(&w, &none), 0);
        }
        assert_eq!(failures.counts().iter().map(|(.., n)| n).sum::<u64>(), 6, "{body}");
    }
}

#[test]
fn reasons_are_one_line_and_not_too_long() {
    let text = "é\\n".repeat(200);
    let ruling = format!(r#"(data (i32.const 5000) "\00\00\00\00\00\00\00\00\58\02\00\00{text}")"#);
    let body = format!(
        r#"{ruling}
        (func (export "workload") (param i32 i32) (result i64) {})"#,
        place(5000, 612)
    );
    let wasm = Wasm::new(wat(r#"{"points":["workload"]}"#, &body).unwrap(), "").unwrap();
    let policy = GuestPolicy::new(Box::new(wasm), "g");
    let veto = policy.rule(&workload("ns", ""), &BTreeMap::new()).veto.unwrap();
    assert!(veto.len() <= 256 && veto.starts_with("é é ") && !veto.contains('\n'), "{veto:?}");
    assert!(!policy.scores_flavors() && !policy.orders_victims());
}

//! Plugins of the columnar interface in a scheduler: compiled in, as guests in text form, and as guests of the SDK.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, OnceLock};

use plimsoll_plugin::{Permit, Pod as Seen, Rejection, Table};
use plimsoll_scheduler::{
    Action, Config, Event, FeatureGates, PluginRef, PluginSet, Profile, Registration, Registry, Scheduler,
    UserPlugins,
};
use plimsoll_state::model::{Container, Node, Pod};
use plimsoll_state::rng::Rng;
use plimsoll_state::{ObjectEvent, Time};

use super::{Backend, FastGuest, FastPlugin, Native, Wasm, points};

#[allow(dead_code)]
#[path = "../../../plimsoll-plugin/examples/budgets.rs"]
pub(super) mod budgets;
#[allow(dead_code)]
#[path = "../../../plimsoll-plugin/examples/fgd.rs"]
mod fgd;
#[allow(dead_code)]
#[path = "../../../plimsoll-plugin/examples/licences.rs"]
mod licences;
#[allow(dead_code)]
#[path = "../../../plimsoll-plugin/examples/locality.rs"]
mod locality;
#[allow(dead_code)]
#[path = "../../../plimsoll-plugin/examples/power.rs"]
mod power;

thread_local! {
    /// How many calls of guests there were on this thread.
    pub static CALLS: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

const GPU: &str = "nvidia.com/gpu";
const FGD: &str = "pod 60 2000 1\npod 25 4000 2\npod 15 2000 0\n";
const WATTS: &str = "power.example.com/watts";
const MAINTENANCE: &str = "power.example.com/maintenance";
const LOCALITY: &str = "set-0 zone-0 n3\nset-1 zone-1 n5 n6\n";

/// A guest in text form: everything but what `body` has.
pub(super) fn wat(manifest: &str, body: &str) -> Result<FastGuest, String> {
    let manifest = manifest.replace('"', "\\22");
    let len = manifest.replace("\\22", "\"").len();
    let text = format!(
        r#"(module
        (import "plimsoll" "reason" (func $reason (param i32 i32)))
        (import "plimsoll" "text" (func $text (param i32 i32 i32) (result i32)))
        (memory (export "memory") 2)
        (data (i32.const 1024) "{manifest}")
        (global $top (mut i32) (i32.const 8192))
        (global $columns (mut i32) (i32.const 0))
        (func (export "plimsoll_plugin_v1"))
        (func (export "alloc") (param $n i32) (result i32) (local $at i32)
            (local.set $at (global.get $top))
            (global.set $top (i32.and (i32.add (i32.add (local.get $at) (local.get $n)) (i32.const 7)) (i32.const -8)))
            (drop (memory.grow (i32.add (i32.div_u (local.get $n) (i32.const 65536)) (i32.const 1))))
            (local.get $at))
        (func (export "configure") (param i32 i32) (result i32) (i32.const 0))
        (func (export "manifest") (result i64) (i64.or (i64.shl (i64.const 1024) (i64.const 32)) (i64.const {len})))
        (func (export "columns") (param i32 i32) (global.set $columns (local.get 0)))
        {body})"#
    );
    let bytes = ::wat::parse_str(text).map_err(|e| e.to_string())?;
    FastGuest::new(&bytes)
}

const PRE_FILTER: &str = r#"(func (export "pre_filter") (param i32 i32) (result i32) (i32.const 0))"#;

/// Scores nodes by the number in the label `rank`, and filters those of which it is negative.
const RANKS: &str = r#"
    (func $rank (param $row i32) (result i64)
        (i64.load (i32.add (i32.load (global.get $columns)) (i32.mul (local.get $row) (i32.const 8)))))
    (func (export "filter") (param $rows i32) (param $n i32) (param $out i32) (result i32) (local $i i32)
        (loop $next
            (if (i32.lt_u (local.get $i) (local.get $n)) (then
                (i32.store8 (i32.add (local.get $out) (local.get $i))
                    (i64.lt_s (call $rank (i32.load (i32.add (local.get $rows) (i32.mul (local.get $i) (i32.const 4))))) (i64.const 0)))
                (local.set $i (i32.add (local.get $i) (i32.const 1)))
                (br $next))))
        (i32.const 0))
    (func (export "score") (param $rows i32) (param $n i32) (param $out i32) (result i32) (local $i i32)
        (loop $next
            (if (i32.lt_u (local.get $i) (local.get $n)) (then
                (i64.store (i32.add (local.get $out) (i32.mul (local.get $i) (i32.const 8)))
                    (call $rank (i32.load (i32.add (local.get $rows) (i32.mul (local.get $i) (i32.const 4))))))
                (local.set $i (i32.add (local.get $i) (i32.const 1)))
                (br $next))))
        (i32.const 0))"#;
const RANKS_MANIFEST: &str = r#"{"points":["filter","score"],"node":{"numbers":["rank"]},"reasons":[{"text":"node(s) of a low rank"}]}"#;

fn ranks() -> FastGuest {
    wat(RANKS_MANIFEST, &format!("{PRE_FILTER}{RANKS}")).unwrap()
}

type Make = Arc<dyn Fn() -> Box<dyn Backend> + Send + Sync>;

/// A scheduler with one plugin, whose score decides.
fn scheduler(make: &Make) -> Scheduler {
    let at = points(make().manifest());
    let make = Arc::clone(make);
    let mut registry = Registry::in_tree();
    let plugin = Registration::new("fast", &at, move |_, handle| {
        Box::new(FastPlugin::new(make(), handle.plugin(), handle.name()))
    });
    registry.register(plugin).unwrap();
    let mut user = UserPlugins::default();
    user.multi_point.enabled.push(PluginRef { name: "fast".to_owned(), weight: 1000 });
    let plugins = PluginSet::new(&registry, &user, &FeatureGates::default()).unwrap();
    Scheduler::new(Config { profiles: vec![Profile { plugins, ..Profile::default() }], ..Config::default() })
}

fn native<P: plimsoll_plugin::Plugin + std::fmt::Debug + Send + 'static>(config: &'static str) -> Make {
    Arc::new(move || Box::new(Native::<P>::new(config).unwrap()))
}

fn guest(guest: &FastGuest, config: &'static str) -> Make {
    let guest = guest.clone();
    Arc::new(move || Box::new(Wasm::new(guest.clone(), config).unwrap()))
}

fn node(name: &str, amounts: &[(&str, i64)], labels: &[(&str, &str)]) -> ObjectEvent {
    let base = [("cpu", 16_000), ("memory", 1 << 36), ("pods", 100)];
    let text = |(k, v): &(&str, &str)| ((*k).to_owned(), (*v).to_owned());
    ObjectEvent::NodeUpsert(Box::new(Node {
        uid: format!("uid-{name}"),
        name: name.to_owned(),
        labels: labels.iter().map(text).collect(),
        allocatable: base.iter().chain(amounts).map(|(k, v)| ((*k).to_owned(), *v)).collect(),
        ..Node::default()
    }))
}

fn annotated(
    name: &str,
    amounts: &[(&str, i64)],
    labels: &[(&str, &str)],
    annotations: &[(&str, String)],
) -> ObjectEvent {
    let mut event = node(name, amounts, labels);
    if let ObjectEvent::NodeUpsert(node) = &mut event {
        node.annotations = annotations.iter().map(|(k, v)| ((*k).to_owned(), v.clone())).collect();
    }
    event
}

fn pod(name: &str, requests: &[(&str, i64)], labels: &[(&str, &str)]) -> Pod {
    let text = |(k, v): &(&str, &str)| ((*k).to_owned(), (*v).to_owned());
    let mut pod = Pod {
        uid: format!("uid-{name}"),
        namespace: "ns".to_owned(),
        name: name.to_owned(),
        labels: labels.iter().map(text).collect(),
        ..Pod::default()
    };
    "default-scheduler".clone_into(&mut pod.spec.scheduler_name);
    let requests: BTreeMap<String, i64> = requests.iter().map(|(k, v)| ((*k).to_owned(), *v)).collect();
    pod.spec.containers = vec![Container { name: "c".to_owned(), requests, ..Container::default() }];
    pod
}

fn add(pod: Pod) -> ObjectEvent {
    ObjectEvent::PodUpsert(Box::new(pod))
}

fn step(scheduler: &mut Scheduler, at: i64, events: impl IntoIterator<Item = ObjectEvent>) -> Vec<Action> {
    let now = Time::from_seconds(at);
    events.into_iter().for_each(|event| scheduler.handle_object(now, &event));
    let mut actions = Vec::new();
    scheduler.decide(now, &mut |action| actions.push(action));
    scheduler.check();
    actions
}

fn bound(actions: &[Action]) -> Vec<(String, String)> {
    let bind = |action: &Action| match action {
        Action::Bind { pod, node } => Some((pod.name.clone(), node.clone())),
        _ => None,
    };
    actions.iter().filter_map(bind).collect()
}

fn message(actions: &[Action]) -> String {
    let text = |action: &Action| match action {
        Action::Unschedulable { reason, message, .. } => Some(format!("{reason}: {message}")),
        _ => None,
    };
    actions.iter().find_map(text).unwrap_or_default()
}

fn pair(pod: &str, node: &str) -> Vec<(String, String)> {
    vec![(pod.to_owned(), node.to_owned())]
}

#[test]
fn a_guest_filters_and_scores_from_columns() {
    let mut s = scheduler(&guest(&ranks(), ""));
    let nodes = [("a", "10"), ("b", "70"), ("c", "-1"), ("d", "none")];
    step(&mut s, 0, nodes.map(|(name, rank)| node(name, &[], &[("rank", rank)])));
    assert_eq!(bound(&step(&mut s, 1, [add(pod("p", &[], &[]))])), pair("p", "b"));
    // What changes is written to the guest.
    let changed = node("a", &[], &[("rank", "90")]);
    assert_eq!(bound(&step(&mut s, 2, [changed, add(pod("q", &[], &[]))])), pair("q", "a"));
    let low = ["a", "b"].map(|name| node(name, &[], &[("rank", "-5")]));
    let actions = step(&mut s, 3, low.into_iter().chain([add(pod("r", &[], &[]))]));
    assert!(message(&actions).contains("0/4 nodes are available: 4 node(s) of a low rank"), "{actions:?}");
    // An event that can change the verdict brings the pod back.
    let up = node("c", &[], &[("rank", "1")]);
    assert_eq!(bound(&step(&mut s, 20, [up])), pair("r", "c"));
}

#[test]
fn annotations_are_columns_and_their_changes_bring_pods_back() {
    let mut s = scheduler(&native::<power::Power>(""));
    let watts = |name: &str, watts: &str| annotated(name, &[], &[], &[(WATTS, watts.to_owned())]);
    let broken = |name: &str| annotated(name, &[], &[], &[(MAINTENANCE, "fan".to_owned())]);
    step(&mut s, 0, [watts("a", "900"), watts("b", "300"), watts("c", "none")]);
    step(&mut s, 1, [broken("c")]);
    assert_eq!(bound(&step(&mut s, 2, [add(pod("p", &[], &[]))])), pair("p", "b"));
    let changed = watts("a", "200");
    assert_eq!(bound(&step(&mut s, 3, [changed, add(pod("q", &[], &[]))])), pair("q", "a"));
    let actions = step(&mut s, 4, [broken("a"), broken("b"), add(pod("r", &[], &[]))]);
    assert!(
        message(&actions).contains("0/3 nodes are available: 3 node(s) under maintenance"),
        "{actions:?}"
    );
    // An annotation that the plugin does not read brings nothing back.
    let other = annotated("a", &[], &[], &[(MAINTENANCE, "fan".to_owned()), ("note", "x".to_owned())]);
    assert!(step(&mut s, 20, [other]).is_empty());
    assert_eq!(bound(&step(&mut s, 40, [watts("b", "1")])), pair("r", "b"));
}

#[test]
fn few_calls_answer_for_many_nodes_and_results_are_kept() {
    let mut s = scheduler(&guest(&ranks(), ""));
    let rank = |i: usize| (i % 50).to_string();
    step(&mut s, 0, (0..5000).map(|i| node(&format!("n{i}"), &[], &[("rank", &rank(i))])));
    step(&mut s, 1, (0..2).map(|i| add(pod(&format!("p{i}"), &[], &[]))));
    CALLS.with(|n| n.set(0));
    step(&mut s, 2, (2..12).map(|i| add(pod(&format!("p{i}"), &[], &[]))));
    let calls = CALLS.with(|n| n.replace(0));
    assert!(calls <= 10, "{calls} calls for ten pods of a known kind: the rank reads no resource");
    // A node with another label: everything is asked anew, in batches.
    step(&mut s, 3, [node("n7", &[], &[("rank", "99")]), add(pod("q", &[], &[])), add(pod("r", &[], &[]))]);
    let calls = CALLS.with(|n| n.replace(0));
    assert!(calls <= 60, "{calls} calls for 5,000 nodes");
}

/// Nodes and pods that come, go and change, with bindings that succeed or fail.
fn history(make: &Make, seed: u64, ranks: bool) -> Vec<Action> {
    let mut s = scheduler(make);
    if !ranks {
        s = s.without_ranks();
    }
    let mut rng = Rng::new(seed);
    let mut all = Vec::new();
    let mut placed: Vec<(String, Pod)> = Vec::new();
    let mut at_last: Vec<Option<(i64, String)>> = vec![None; 12];
    let mut notes: Vec<Vec<(&str, String)>> = vec![Vec::new(); 12];
    for at in 0..250 {
        let now = Time::from_seconds(at / 2);
        for _ in 0..=rng.below(2) {
            let n = rng.below(12);
            let (name, zone) = (format!("n{n}"), format!("zone-{}", n % 3));
            match rng.below(8) {
                0 | 1 => {
                    let gpus = i64::from(rng.below(9));
                    let rank = i64::from(rng.below(100)).to_string();
                    let labels = [
                        ("kubernetes.io/hostname", name.as_str()),
                        ("topology.kubernetes.io/zone", zone.as_str()),
                        ("rank", rank.as_str()),
                    ];
                    s.handle_object(now, &annotated(&name, &[(GPU, gpus)], &labels, &notes[n as usize]));
                    at_last[n as usize] = Some((gpus, rank));
                }
                // Nothing but annotations.
                7 if at_last[n as usize].is_some() => {
                    let (gpus, rank) = at_last[n as usize].clone().unwrap();
                    let labels = [
                        ("kubernetes.io/hostname", name.as_str()),
                        ("topology.kubernetes.io/zone", zone.as_str()),
                        ("rank", rank.as_str()),
                    ];
                    let watts = rng.below(1200).to_string();
                    let work = if rng.below(3) == 0 { "fan" } else { "none" };
                    notes[n as usize] = vec![(WATTS, watts), (MAINTENANCE, work.to_owned())];
                    s.handle_object(now, &annotated(&name, &[(GPU, gpus)], &labels, &notes[n as usize]));
                }
                2 if rng.below(4) == 0 => {
                    s.handle_object(now, &ObjectEvent::NodeDelete(name));
                    at_last[n as usize] = None;
                }
                3 if !placed.is_empty() => {
                    let (_, gone) = placed.swap_remove(rng.below(placed.len() as u32) as usize);
                    s.handle_object(now, &ObjectEvent::PodDelete(gone.uid));
                }
                _ => {
                    let set = format!("set-{}", rng.below(3));
                    let licences = i64::from(rng.below(3)).to_string();
                    let labels = [("data.example.com/set", set.as_str()), ("matlab", licences.as_str())];
                    let gpus = i64::from(rng.below(3));
                    let mut one = pod(&format!("p{at}"), &[("cpu", 500), (GPU, gpus)], &labels);
                    one.spec.priority = i32::try_from(rng.below(3)).unwrap();
                    s.handle_object(now, &add(one));
                }
            }
        }
        let mut actions = Vec::new();
        s.decide(now, &mut |action| actions.push(action));
        s.check();
        for action in &actions {
            match action {
                Action::Bind { pod: named, node } => {
                    if rng.below(10) == 0 {
                        let (uid, message) = (named.uid.clone(), "no".to_owned());
                        s.handle(now, Event::BindFailed { uid, message });
                    } else {
                        s.handle(now, Event::Bound(named.uid.clone()));
                        placed.push((node.clone(), Pod { uid: named.uid.clone(), ..Pod::default() }));
                    }
                }
                Action::Preempt { victim, .. } => {
                    s.handle_object(now, &ObjectEvent::PodDelete(victim.uid.clone()));
                    placed.retain(|(_, pod)| pod.uid != victim.uid);
                }
                _ => {}
            }
        }
        all.extend(actions);
    }
    assert!(bound(&all).len() > 20, "seed {seed}: {}", bound(&all).len());
    all
}

#[test]
fn what_is_kept_changes_no_decision() {
    let makes = [
        native::<fgd::Fgd>(FGD),
        native::<licences::Licences>("matlab 6 0\n"),
        native::<licences::Licences>("matlab 4 20\n"),
        native::<locality::Locality>(LOCALITY),
        native::<power::Power>(""),
        guest(&ranks(), ""),
    ];
    for make in makes {
        for seed in 0..2 {
            assert!(history(&make, seed, true) == history(&make, seed, false), "{:?}, seed {seed}", make());
        }
    }
}

/// The examples of the SDK, built for wasm32; `None`, said on standard error: this toolchain can't.
pub(super) fn examples() -> Option<&'static BTreeMap<&'static str, FastGuest>> {
    static BUILT: OnceLock<Option<BTreeMap<&'static str, FastGuest>>> = OnceLock::new();
    BUILT.get_or_init(build_examples).as_ref()
}

const TARGET: &str = "wasm32-unknown-unknown";

#[allow(clippy::print_stderr)]
fn build_examples() -> Option<BTreeMap<&'static str, FastGuest>> {
    let rustc = std::env::var("RUSTC").unwrap_or_else(|_| "rustc".to_owned());
    let libs = Command::new(&rustc).args(["--print", "target-libdir", "--target", TARGET]).output().ok()?;
    if !Path::new(String::from_utf8(libs.stdout).ok()?.trim()).is_dir() {
        eprintln!("skipped: there is no target {TARGET}: rustup target add {TARGET}");
        return None;
    }
    let sdk = Path::new(env!("CARGO_MANIFEST_DIR")).join("../plimsoll-plugin");
    let out = std::env::temp_dir().join(format!("plimsoll-guests-{}", std::process::id()));
    std::fs::create_dir_all(&out).unwrap();
    let build = |source: PathBuf, args: &[&str]| {
        let mut command = Command::new(&rustc);
        command.args([
            "--edition",
            "2024",
            "-O",
            "-C",
            "panic=abort",
            "-C",
            "strip=symbols",
            "--target",
            TARGET,
        ]);
        let done = command.args(args).arg(source).output().unwrap();
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    };
    let rlib = out.join("libplimsoll_plugin.rlib").display().to_string();
    build(sdk.join("src/lib.rs"), &["--crate-name", "plimsoll_plugin", "--crate-type", "rlib", "-o", &rlib]);
    let guest = |name: &'static str| {
        let wasm = out.join(format!("{name}.wasm")).display().to_string();
        let library = format!("plimsoll_plugin={rlib}");
        let source = sdk.join(format!("examples/{name}.rs"));
        build(source, &["--crate-type", "cdylib", "--extern", &library, "-o", &wasm]);
        (name, FastGuest::new(&std::fs::read(wasm).unwrap()).unwrap())
    };
    let guests = ["fgd", "licences", "locality", "power", "budgets"].map(guest).into_iter().collect();
    let _ = std::fs::remove_dir_all(out);
    Some(guests)
}

#[test]
fn guests_of_the_sdk_decide_as_the_plugins_that_are_compiled_in() {
    let Some(built) = examples() else { return };
    let cases: [(&str, &'static str, Make); 5] = [
        ("fgd", FGD, native::<fgd::Fgd>(FGD)),
        ("licences", "matlab 6 0\n", native::<licences::Licences>("matlab 6 0\n")),
        ("licences", "matlab 4 20\n", native::<licences::Licences>("matlab 4 20\n")),
        ("locality", LOCALITY, native::<locality::Locality>(LOCALITY)),
        ("power", "900", native::<power::Power>("900")),
    ];
    for (name, config, native) in cases {
        for seed in 0..2 {
            let wasm = guest(&built[name], config);
            assert!(history(&wasm, seed, true) == history(&native, seed, true), "{name}, seed {seed}");
        }
    }
    let refused = Wasm::new(built["fgd"].clone(), "pod 1 1 1").map(drop).unwrap_err();
    assert_eq!(
        refused,
        "wasm: the guest refuses its configuration: the shares of the usual pods add up to 1 percent, not to 100"
    );
}

#[test]
fn licences_are_never_over_committed_and_preemption_frees_them() {
    let mut s = scheduler(&native::<licences::Licences>("matlab 2 0\n"));
    step(&mut s, 0, [node("a", &[], &[])]);
    let two = |name: &str, priority| {
        let mut pod = pod(name, &[], &[("matlab", "2")]);
        pod.spec.priority = priority;
        add(pod)
    };
    assert_eq!(bound(&step(&mut s, 1, [two("p", 0)])), pair("p", "a"));
    let at = Time::from_seconds(1);
    s.handle(at, Event::Bound("uid-p".to_owned()));
    let actions = step(&mut s, 2, [two("q", 0)]);
    assert!(message(&actions).contains("1 2 of 2 licences matlab are used"), "{actions:?}");
    let actions = step(&mut s, 3, [two("urgent", 10)]);
    assert!(
        actions.iter().any(|a| matches!(a, Action::Preempt { victim, .. } if victim.name == "p")),
        "{actions:?}"
    );
    let actions = step(&mut s, 4, [ObjectEvent::PodDelete("uid-p".to_owned())]);
    assert_eq!(bound(&actions), pair("urgent", "a"));
}

#[test]
fn pods_wait_on_permit_until_a_licence_is_free() {
    let mut s = scheduler(&native::<licences::Licences>("matlab 1 30\n"));
    step(&mut s, 0, [node("a", &[], &[])]);
    let one = |name: &str| add(pod(name, &[], &[("matlab", "1")]));
    assert_eq!(bound(&step(&mut s, 1, [one("p")])), pair("p", "a"));
    s.handle(Time::from_seconds(1), Event::Bound("uid-p".to_owned()));
    assert!(bound(&step(&mut s, 2, [one("q")])).is_empty());
    assert_eq!(s.queue_counts().in_flight, 1, "it waits on its node");
    assert_eq!(bound(&step(&mut s, 3, [ObjectEvent::PodDelete("uid-p".to_owned())])), pair("q", "a"));
    assert!(bound(&step(&mut s, 4, [one("r")])).is_empty());
    let actions = step(&mut s, 40, []);
    assert!(message(&actions).contains("timeout after waiting 30s at plugin fast"), "{actions:?}");
}

/// What a guest does in its first call, by name; the error of the call.
fn failure(manifest: &str, body: &str, call: &str) -> String {
    let mut wasm = match wat(manifest, body).and_then(|guest| Wasm::new(guest, "")) {
        Ok(wasm) => wasm,
        Err(why) => return why,
    };
    let (mut table, pod) = (Table::new(wasm.manifest()), Seen::default());
    table.grow(3);
    match call {
        "filter" => wasm.filter(&pod, &mut table, &[0, 1, 2]).map(drop),
        "score" => wasm.score(&pod, &mut table, &[0, 1, 2]).map(drop),
        "charges" => wasm.charges(&pod).map(drop),
        "permit" => wasm.permit(&pod).map(drop),
        _ => wasm.pre_filter(&pod).map(drop),
    }
    .unwrap_err()
}

#[test]
fn what_a_hostile_guest_returns_is_checked() {
    let scores = r#"{"points":["score"],"node":{"numbers":["rank"]}}"#;
    let filters = r#"{"points":["filter"],"reasons":[{"text":"no"}]}"#;
    let charges = r#"{"points":["permit"],"charges":true}"#;
    let score = |body: &str| {
        format!(r#"{PRE_FILTER} (func (export "score") (param i32 i32 i32) (result i32) {body})"#)
    };
    let filter = |body: &str| {
        format!(r#"{PRE_FILTER} (func (export "filter") (param i32 i32 i32) (result i32) {body})"#)
    };
    let permit = r#"(func (export "permit") (param i32 i32) (result i64) (i64.const 0x0700000000))"#;
    let charge = |value: &str| {
        format!(r#"{PRE_FILTER} {permit} (func (export "charges") (param i32 i32) (result i64) {value})"#)
    };
    let loops = "it executed more than 500000000 instructions";
    let cases: Vec<(&str, String, &str, String)> = vec![
        (scores, score("(loop (br 0)) (unreachable)"), "score", format!("wasm: score error: {loops}")),
        (scores, score("(unreachable)"), "score", "wasm: score error: wasm error: unreachable".to_owned()),
        (
            scores,
            format!(
                r#"{PRE_FILTER} (func $deep (call $deep)) (func (export "score") (param i32 i32 i32) (result i32) (call $deep) (i32.const 0))"#
            ),
            "score",
            "wasm: score error: wasm error: stack overflow".to_owned(),
        ),
        (
            scores,
            score("(i64.store (i32.const -8) (i64.const 1)) (i32.const 0)"),
            "score",
            "wasm: score error: wasm error: out of bounds memory access".to_owned(),
        ),
        (
            scores,
            score("(call $reason (i32.const -1) (i32.const 100)) (i32.const 0)"),
            "score",
            "wasm: score error: out of bounds memory access".to_owned(),
        ),
        (
            scores,
            score(
                "(loop (drop (call $text (i32.const 1) (i32.const 0) (i32.const 0))) (br 0)) (unreachable)",
            ),
            "score",
            format!("wasm: score error: {loops}"),
        ),
        (scores, score("(i32.const 3)"), "score", "wasm: score error: ".to_owned()),
        (
            filters,
            filter("(i32.store8 (local.get 2) (i32.const 9)) (i32.const 0)"),
            "filter",
            "wasm: filter returned reason 9 of 1".to_owned(),
        ),
        (
            charges,
            charge("(i64.const 0x7fffffff00000010)"),
            "charges",
            "wasm: the guest returned a place outside of its memory".to_owned(),
        ),
        (
            charges,
            charge("(i64.const 0x0000000000011000)"),
            "charges",
            "wasm: the guest returned more than 65536 bytes".to_owned(),
        ),
        (
            charges,
            charge("(i32.store (i32.const 0) (i32.const -1)) (i64.const 0x0000000000000004)"),
            "charges",
            "wasm: charges returned no list of charges, or a long one".to_owned(),
        ),
        (
            charges,
            charge("(i64.const 0)"),
            "permit",
            "wasm: the guest returned the unknown status code 7: ".to_owned(),
        ),
    ];
    for (manifest, body, call, want) in cases {
        assert_eq!(failure(manifest, &body, call), want, "{body}");
    }
}

#[test]
fn memory_is_bounded() {
    let scores = r#"{"points":["score"],"node":{"numbers":["rank"]}}"#;
    // 60,000 pages are 3.7 GiB: the guest is told no, and goes on.
    let grows = r#"(func (export "score") (param i32 i32 i32) (result i32)
        (if (i32.ne (memory.grow (i32.const 60000)) (i32.const -1)) (then (unreachable)))
        (i32.const 0))"#;
    let mut wasm = Wasm::new(wat(scores, &format!("{PRE_FILTER}{grows}")).unwrap(), "").unwrap();
    let mut table = Table::new(wasm.manifest());
    table.grow(3);
    assert_eq!(wasm.score(&Seen::default(), &mut table, &[0, 2]), Ok(vec![0, 0]));
    // Columns that don't fit into the memory of a guest are its error, not the host's.
    table.grow(17 << 20);
    wasm.changed(None);
    let error = wasm.score(&Seen::default(), &mut table, &[0]).unwrap_err();
    assert!(error.starts_with("wasm: alloc returned"), "{error}");
}

#[test]
fn a_module_that_is_no_guest_is_refused() {
    let load = |text: &str| {
        FastGuest::new(&::wat::parse_str(text).unwrap())
            .and_then(|guest| Wasm::new(guest, "").map(drop))
            .unwrap_err()
    };
    assert_eq!(
        load(r#"(module (func (export "plimsoll_plugin_v1")))"#),
        "wasm: guest doesn't export memory[memory]"
    );
    assert_eq!(
        load(r#"(module (memory (export "memory") 1) (func (export "plimsoll_plugin_v1")))"#),
        "wasm: guest doesn't export func[alloc]"
    );
    assert_eq!(
        load(
            r#"(module (memory (export "memory") 1) (func (export "plimsoll_plugin_v1")) (func (export "alloc")))"#
        ),
        "wasm: guest exports the wrong signature for func[alloc]"
    );
    let start = |manifest: &str, body: &str| {
        wat(manifest, body).and_then(|guest| Wasm::new(guest, "").map(drop)).unwrap_err()
    };
    let scores = r#"{"points":["score"]}"#;
    assert!(
        start(scores, PRE_FILTER).contains("the manifest names score, and guest doesn't export func[score]")
    );
    assert!(start("{}", PRE_FILTER).contains("points: name at least one"));
    let endless = format!("{PRE_FILTER}{RANKS} (func $start (loop (br 0))) (start $start)");
    assert!(start(scores, &endless).contains("it executed more than 500000000 instructions"));
    let grows = format!("{PRE_FILTER}{RANKS} (memory 1 65536)");
    assert!(!start(scores, &grows).is_empty());
    let file = format!(r#"{PRE_FILTER}{RANKS}"#);
    let opens = wat(scores, &file).map(drop);
    assert_eq!(opens, Ok(()));
    let text = r#"(module (import "wasi_snapshot_preview1" "fd_write" (func (param i32 i32 i32 i32) (result i32)))
        (memory (export "memory") 1) (func (export "plimsoll_plugin_v1")) (func (export "alloc") (param i32) (result i32) (i32.const 0))
        (func (export "configure") (param i32 i32) (result i32) (i32.const 0)) (func (export "manifest") (result i64) (i64.const 0))
        (func (export "columns") (param i32 i32)) (func (export "pre_filter") (param i32 i32) (result i32) (i32.const 0)))"#;
    assert!(
        load(text).contains("unknown import: `wasi_snapshot_preview1::fd_write`"),
        "no file, network, clock"
    );
}

#[test]
fn a_guest_that_fails_ends_an_attempt_and_nothing_else() {
    let scores = r#"{"points":["score"],"node":{"numbers":["rank"]}}"#;
    let traps = r#"(func (export "score") (param i32 i32 i32) (result i32) (unreachable))"#;
    let mut s = scheduler(&guest(&wat(scores, &format!("{PRE_FILTER}{traps}")).unwrap(), ""));
    step(&mut s, 0, ["a", "b"].map(|name| node(name, &[], &[])));
    for (at, name) in [(1, "p"), (2, "q"), (3, "r")] {
        let actions = step(&mut s, at, [add(pod(name, &[], &[]))]);
        let want =
            "SchedulerError: running Score plugin \"fast\": wasm: score error: wasm error: unreachable";
        assert!(message(&actions).contains(want), "{actions:?}");
    }
    // A loop costs its budget once, and then nothing for ten seconds.
    let loops = r#"(func (export "score") (param i32 i32 i32) (result i32) (loop (br 0)) (unreachable))"#;
    let mut s = scheduler(&guest(&wat(scores, &format!("{PRE_FILTER}{loops}")).unwrap(), ""));
    step(&mut s, 0, ["a", "b"].map(|name| node(name, &[], &[])));
    CALLS.with(|n| n.set(0));
    step(&mut s, 1, (0..20).map(|i| add(pod(&format!("p{i}"), &[], &[]))));
    let calls = CALLS.with(|n| n.replace(0));
    assert!(calls <= 10, "{calls} calls");
}

#[test]
fn an_outcome_of_permit_is_read() {
    let manifest = r#"{"points":["permit"]}"#;
    for (value, want) in [
        ("0", Ok(Permit::Allow)),
        ("0x00000004000003e8", Ok(Permit::Wait(1000))),
        ("0x0000000200000000", Ok(Permit::Reject(Rejection::Unschedulable(String::new())))),
    ] {
        let permit = format!(
            r#"{PRE_FILTER} (func (export "permit") (param i32 i32) (result i64) (i64.const {value}))"#
        );
        let mut wasm = Wasm::new(wat(manifest, &permit).unwrap(), "").unwrap();
        assert_eq!(wasm.permit(&Seen::default()), want);
    }
}

thread_local! {
    /// The rows of the nodes of pods that were bound.
    static TOLD: std::cell::RefCell<Vec<Option<u32>>> = const { std::cell::RefCell::new(Vec::new()) };
}

/// Keeps what PostBind tells.
#[derive(Debug)]
struct Listener;

impl plimsoll_plugin::Plugin for Listener {
    fn configure(_: &str) -> Result<Self, String> {
        Ok(Self)
    }

    fn manifest(&self) -> plimsoll_plugin::Manifest {
        plimsoll_plugin::Manifest::new().post_binds()
    }

    fn post_bind(&self, pod: &Seen) {
        TOLD.with_borrow_mut(|told| told.push(pod.node));
    }
}

#[test]
fn plugins_are_told_of_bindings_and_can_not_undo_them() {
    let failures = crate::Failures::default();
    let trap = r#"(func (export "post_bind") (param i32 i32) (unreachable))"#;
    let bad = wat(r#"{"points":["postBind"]}"#, trap).unwrap();
    let counted = failures.clone();
    let failing: Make =
        Arc::new(move || Box::new(Wasm::new(bad.clone(), "").unwrap().counted_in("bad", counted.clone())));
    for make in [native::<Listener>(""), failing] {
        let mut s = scheduler(&make);
        step(&mut s, 0, [node("a", &[], &[])]);
        assert_eq!(bound(&step(&mut s, 1, [add(pod("p", &[], &[]))])), pair("p", "a"));
        s.handle(Time::from_seconds(1), Event::Bound("uid-p".to_owned()));
        step(&mut s, 2, []);
        assert_eq!(bound(&step(&mut s, 3, [add(pod("q", &[], &[]))])), pair("q", "a"));
    }
    assert_eq!(TOLD.take(), [Some(0)]);
    assert_eq!(failures.counts(), [("bad".to_owned(), "trap", 1)]);
}

//! Guests as plugins of a scheduler: what they say decides, what they do wrong ends an attempt and nothing else.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::fmt::Write as _;

use plimsoll_scheduler::args::Args;
use plimsoll_scheduler::{
    Action, Config, Event, FeatureGates, PluginRef, PluginSet, Profile, Registry, Scheduler, UserPlugins,
};
use plimsoll_state::model::{EncodedObject, Node, Pod};
use plimsoll_state::{ObjectEvent, Time};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::tests::CALLS;
use crate::{Modules, register};

/// Imports that the guests below use, and places for texts: the node's name at 1000.
const HEAD: &str = r#"
    (import "k8s.io/api" "node" (func $node (param i32 i32 i32 i32) (result i32)))
    (import "k8s.io/scheduler" "currentPod" (func $pod (param i32 i32) (result i32)))
    (import "k8s.io/scheduler" "currentNodeName" (func $name (param i32 i32) (result i32)))
    (import "k8s.io/scheduler" "result.status_reason" (func $reason (param i32 i32)))
    (import "k8s.io/scheduler" "result.node_names" (func $names (param i32 i32)))
    (import "k8s.io/scheduler" "result.nominated_node_name" (func $nominate (param i32 i32)))
    (import "k8s.io/scheduler" "result.normalized_score_list" (func $scores (param i32 i32)))
    (import "k8s.io/scheduler" "result.cluster_events" (func $events (param i32 i32)))
    (memory (export "memory") 1)
    (data (i32.const 0) "not this one")
    (data (i32.const 100) "b\00")
    (data (i32.const 200) "{\22a\22: 1, \22b\22: 9, \22c\22: 3}")
    (data (i32.const 300) "\01\00\00\00\01\00\00\00")
    (global $calls (export "calls") (mut i32) (i32.const 0))
    (func $is_b (result i32)
        (drop (call $name (i32.const 1000) (i32.const 100)))
        (i32.eq (i32.load8_u (i32.const 1000)) (i32.const 98)))"#;

/// A scheduler with a plugin for each guest, which run after kube-scheduler's.
fn scheduler(guests: &[&str]) -> Result<Scheduler, String> {
    let mut configs = Vec::new();
    let mut files = BTreeMap::new();
    for (i, body) in guests.iter().enumerate() {
        files.insert(format!("/{i}.wasm"), wat::parse_str(format!("(module {HEAD} {body})")).unwrap());
        configs.push(json!({"name": format!("guest{i}"), "args": {"guestURL": format!("file:///{i}.wasm")}}));
    }
    with_config(&json!({"profiles": [{"pluginConfig": configs}]}), files)
}

fn with_config(config: &Value, files: BTreeMap<String, Vec<u8>>) -> Result<Scheduler, String> {
    let mut registry = Registry::in_tree();
    register(&mut registry, config, &Modules::default(), move |path| {
        files.get(path).cloned().ok_or("no such file".to_owned())
    });
    let (mut user, mut args) = (UserPlugins::default(), Args::default());
    for plugin in config["profiles"][0]["pluginConfig"].as_array().unwrap() {
        let (name, text) = (plugin["name"].as_str().unwrap(), plugin["args"].to_string());
        let checked = registry.get(name).unwrap().check_args(&text).unwrap();
        checked.map_err(|errors| {
            errors.iter().fold(String::new(), |mut all, e| {
                let _ = write!(all, "{e}");
                all
            })
        })?;
        user.multi_point.enabled.push(PluginRef { name: name.to_owned(), weight: 1000 });
        args.set_json(name, text);
    }
    // Guests bind first.
    user.multi_point.disabled.push("DefaultBinder".to_owned());
    user.multi_point.enabled.push(PluginRef { name: "DefaultBinder".to_owned(), weight: 1 });
    let mut plugins = PluginSet::new(&registry, &user, &FeatureGates::default()).unwrap();
    plugins.restrict(&args);
    let profile = Profile { plugins, args, ..Profile::default() };
    let mut scheduler = Scheduler::new(Config { profiles: vec![profile], ..Config::default() });
    for name in ["a", "b", "c"] {
        scheduler.handle_object(Time::default(), &node(name));
    }
    Ok(scheduler)
}

fn node(name: &str) -> ObjectEvent {
    let allocatable = [("cpu", 4000), ("memory", 1 << 32), ("pods", 10)];
    ObjectEvent::NodeUpsert(Box::new(Node {
        uid: format!("uid-{name}"),
        name: name.to_owned(),
        allocatable: allocatable.iter().map(|(k, v)| ((*k).to_owned(), *v)).collect(),
        ..Node::default()
    }))
}

fn pod(name: &str) -> ObjectEvent {
    let mut pod = Pod {
        uid: format!("uid-{name}"),
        namespace: "ns".to_owned(),
        name: name.to_owned(),
        ..Pod::default()
    };
    "default-scheduler".clone_into(&mut pod.spec.scheduler_name);
    ObjectEvent::PodUpsert(Box::new(pod))
}

/// What a step did: bindings as `pod on node`, messages of unschedulable pods, nominations.
fn step(s: &mut Scheduler, at: i64, events: &[ObjectEvent]) -> Vec<String> {
    let now = Time::from_seconds(at);
    events.iter().for_each(|e| s.handle_object(now, e));
    let mut actions = Vec::new();
    s.decide(now, &mut |a| actions.push(a));
    s.check();
    let mut out = Vec::new();
    for action in actions {
        match action {
            Action::Bind { pod, node } => {
                out.push(format!("{} on {node}", pod.name));
                s.handle(now, Event::Bound(pod.uid));
            }
            Action::Unschedulable { reason, message, nominated_node, .. } => {
                let nominated = nominated_node.filter(|n| !n.is_empty()).map_or("", |_| " nominated");
                out.push(format!("{reason}: {message}{nominated}"));
            }
            _ => {}
        }
    }
    out
}

/// What happens to the first pod with this guest.
fn first(body: &str) -> String {
    let mut s = scheduler(&[body]).unwrap();
    let out = step(&mut s, 1, &[pod("p")]);
    out.first().cloned().unwrap_or_default()
}

const ONLY_B: &str = r#"(func (export "filter") (result i32)
    (if (result i32) (call $is_b) (then (i32.const 0))
        (else (call $reason (i32.const 0) (i32.const 12)) (i32.const 2))))"#;

#[test]
fn a_guest_filters_and_scores() {
    assert_eq!(first(ONLY_B), "p on b");
    let score = r#"(func (export "score") (result i64)
        (if (result i64) (call $is_b) (then (i64.const 0x6400000000)) (else (i64.const 0))))"#;
    assert_eq!(first(score), "p on b");
    let names = r#"(func (export "prefilter") (result i32) (call $names (i32.const 100) (i32.const 2)) (i32.const 0))"#;
    assert_eq!(first(names), "p on b");
    let normalized = r#"(func (export "score") (result i64) (i64.const 0))
        (func (export "normalizescore") (result i32) (call $scores (i32.const 200) (i32.const 24)) (i32.const 0))"#;
    assert_eq!(first(normalized), "p on b");
    let never =
        r#"(func (export "filter") (result i32) (call $reason (i32.const 0) (i32.const 12)) (i32.const 3))"#;
    let text = first(never);
    assert!(text.starts_with("Unschedulable: 0/3 nodes are available: 3 not this one."), "{text}");
}

#[test]
fn guests_get_the_objects_that_come_with_events() {
    let encoded = |text: &str| Some(EncodedObject(text.as_bytes().into()));
    let whole = || match pod("p") {
        ObjectEvent::PodUpsert(mut pod) => {
            pod.encoded = encoded("<a whole pod>");
            ObjectEvent::PodUpsert(pod)
        }
        other => other,
    };
    let says = |function: &str, what: &str| {
        format!(
            r#"(func (export "{function}") (result i32) (call $reason (i32.const 2000) {what}) (i32.const 2))"#
        )
    };
    let the_pod = "(call $pod (i32.const 2000) (i32.const 500))";
    let mut s = scheduler(&[&says("filter", the_pod)]).unwrap();
    let told = step(&mut s, 1, &[whole()]);
    assert!(told[0].contains("3 <a whole pod>."), "{told:?}");
    // From Reserve on with the node: field 10 of the spec, which is field 2.
    let mut s = scheduler(&[ONLY_B, &says("reserve", the_pod)]).unwrap();
    let told = step(&mut s, 1, &[whole()]);
    assert!(told[0].contains("<a whole pod>\u{12}\u{3}R\u{1}b"), "{told:?}");
    let the_node = "(call $node (i32.const 100) (i32.const 1) (i32.const 2000) (i32.const 500))";
    let mut s = scheduler(&[&says("filter", the_node)]).unwrap();
    let ObjectEvent::NodeUpsert(mut b) = node("b") else { panic!("no node") };
    for text in ["<a whole node>", "<the node as it is now>"] {
        b.encoded = encoded(text);
        let events = [ObjectEvent::NodeUpsert(b.clone()), pod(text)];
        let told = step(&mut s, 1, &events);
        assert!(told[0].contains(&format!("3 {text}.")), "{told:?}");
    }
}

#[test]
fn a_guest_nominates_a_node() {
    let body = r#"(func (export "filter") (result i32) (call $reason (i32.const 0) (i32.const 12)) (i32.const 2))
        (func (export "postfilter") (result i64) (call $nominate (i32.const 100) (i32.const 1)) (i64.const 0x100000000))"#;
    let text = first(body);
    assert!(text.ends_with(" nominated"), "{text}");
}

#[test]
fn a_guest_holds_and_refuses_pods_on_their_way() {
    let code = |function: &str, code: i32| {
        format!(r#"(func (export "{function}") (result i32) (i32.const {code}))"#)
    };
    for function in ["reserve", "prebind", "bind"] {
        let own = if function == "prebind" { code("reserve", 0) } else { String::new() };
        let text = first(&format!("{}{own}", code(function, 0)));
        assert!(text.starts_with("p on "), "{function}: {text}");
    }
    for function in ["reserve", "prebind", "bind"] {
        let own = if function == "prebind" { code("reserve", 0) } else { String::new() };
        let text = first(&format!("{}{own}", code(function, 1)));
        assert!(text.starts_with("SchedulerError: "), "{function}: {text}");
    }
    let permit = |code: u64, millis: u64| {
        format!(r#"(func (export "permit") (result i64) (i64.const {}))"#, code << 32 | millis)
    };
    assert!(first(&permit(0, 0)).starts_with("p on "));
    let mut s = scheduler(&[&permit(4, 10_000)]).unwrap();
    assert_eq!(step(&mut s, 1, &[pod("p")]), Vec::<String>::new(), "it waits");
    let text = step(&mut s, 12, &[]).concat();
    assert!(text.contains("guest0"), "the time is up: {text}");
    let text = first(&permit(2, 0));
    assert!(text.starts_with("Unschedulable: "), "{text}");
}

#[test]
fn a_guest_that_fails_ends_the_attempt_and_nothing_else() {
    for (body, want) in [
        (
            r#"(func (export "filter") (result i32) (unreachable))"#,
            "wasm: filter error: wasm error: unreachable",
        ),
        (
            r#"(func (export "filter") (result i32) (loop (br 0)) (unreachable))"#,
            "more than 2000000000 instructions",
        ),
        (r#"(func (export "filter") (result i32) (i32.const 77))"#, "unknown status code 77"),
        (
            r#"(func (export "prefilter") (result i32) (unreachable))"#,
            "wasm: prefilter error: wasm error: unreachable",
        ),
        (
            r#"(func (export "score") (result i64) (unreachable))"#,
            "wasm: score error: wasm error: unreachable",
        ),
        (r#"(func (export "score") (result i64) (i64.const 1))"#, "running Score plugin"),
        (r#"(func (export "score") (result i64) (i64.const 0x6500000000))"#, "returns an invalid score 101"),
        (
            r#"(func (export "score") (result i64) (i64.const 0))
               (func (export "normalizescore") (result i32) (call $scores (i32.const 100) (i32.const 2)) (i32.const 0))"#,
            "the normalized scores are no map",
        ),
        (
            r#"(func (export "score") (result i64) (i64.const 0))
               (func (export "prescore") (result i32) (i32.const 1))"#,
            "running Score plugin",
        ),
        (
            r#"(func (export "reserve") (result i32) (unreachable))"#,
            "wasm: reserve error: wasm error: unreachable",
        ),
        (
            r#"(func (export "permit") (result i64) (unreachable))"#,
            "wasm: permit error: wasm error: unreachable",
        ),
        (r#"(func (export "bind") (result i32) (unreachable))"#, "wasm: bind error: wasm error: unreachable"),
    ] {
        let mut s = scheduler(&[body]).unwrap();
        let text = step(&mut s, 1, &[pod("p")]).concat();
        assert!(text.starts_with("SchedulerError: ") && text.contains(want), "{body}: {text}");
        let text = step(&mut s, 30, &[pod("q")]).concat();
        assert!(text.contains(want), "the scheduler goes on: {body}: {text}");
    }
    // A pod is bound although the guest fails after that.
    let body =
        r#"(func (export "bind") (result i32) (i32.const 0)) (func (export "postbind") (unreachable))"#;
    let mut s = scheduler(&[body]).unwrap();
    assert!(step(&mut s, 1, &[pod("p")]).concat().starts_with("p on "));
    assert!(step(&mut s, 2, &[pod("q")]).concat().starts_with("q on "));
}

#[test]
fn a_guest_fails_once_in_an_attempt() {
    for function in ["filter", "score"] {
        let result = if function == "filter" { "i32" } else { "i64" };
        let body = format!(r#"(func (export "{function}") (result {result}) (loop (br 0)) (unreachable))"#);
        let mut s = scheduler(&[&body]).unwrap();
        CALLS.with(|n| n.set(0));
        assert_eq!(step(&mut s, 1, &[pod("p")]).len(), 1);
        assert_eq!(CALLS.with(std::cell::Cell::get), 1, "{function}: three nodes, one call");
        let pods: Vec<ObjectEvent> = (0..20).map(|i| pod(&format!("q{i}"))).collect();
        assert_eq!(step(&mut s, 5, &pods).len(), 20);
        assert_eq!(CALLS.with(std::cell::Cell::get), 1, "{function}: the guest is not called for a while");
        assert!(!step(&mut s, 12, &[pod("r")]).is_empty());
        assert_eq!(CALLS.with(std::cell::Cell::get), 2, "{function}: once more");
    }
}

#[test]
fn registered_events_wake_a_pod() {
    let body = format!(r#"{ONLY_B} (func (export "enqueue") (call $events (i32.const 300) (i32.const 8)))"#);
    let mut s = scheduler(&[&body]).unwrap();
    s.handle_object(Time::default(), &ObjectEvent::NodeDelete("b".to_owned()));
    assert_eq!(step(&mut s, 1, &[pod("p")]).len(), 1);
    assert_eq!(s.queue_counts().unschedulable, 1);
    step(&mut s, 20, &[ObjectEvent::NodeDelete("c".to_owned())]);
    assert_eq!(s.queue_counts().unschedulable, 1, "a deletion is not registered");
    assert_eq!(step(&mut s, 40, &[node("b")]), ["p on b"]);
}

#[test]
fn the_state_of_a_cycle_stays_with_its_pod() {
    // PreFilter sets the counter to 1; Reserve, Permit and Bind of the same pod find what is left of it.
    let body = r#"
        (func (export "prefilter") (result i32) (global.set $calls (i32.const 1)) (i32.const 0))
        (func (export "filter") (result i32) (i32.const 0))
        (func (export "reserve") (result i32) (global.set $calls (i32.add (global.get $calls) (i32.const 1))) (i32.const 0))
        (func (export "permit") (result i64) (global.set $calls (i32.add (global.get $calls) (i32.const 1))) (i64.const 0))
        (func (export "bind") (result i32) (i32.ne (global.get $calls) (i32.const 3)))
        (func (export "postbind"))"#;
    let mut s = scheduler(&[body, ONLY_B]).unwrap();
    let pods = ["p", "q", "r"].map(pod);
    assert_eq!(step(&mut s, 1, &pods), ["p on b", "q on b", "r on b"]);
}

#[test]
fn arguments_are_checked() {
    let wat = format!(r#"(module {HEAD} {ONLY_B})"#);
    let files = || {
        BTreeMap::from([("/f.wasm".to_owned(), wat::parse_str(&wat).unwrap()), ("/bad".to_owned(), vec![1])])
    };
    for (args, want) in [
        (json!({"guestURL": ""}), "guestURL: Required value: wasm: guestURL is required"),
        (json!({"guestURL": "c:\\foo.wasm"}), "unsupported URL scheme: c"),
        (json!({"guestURL": "f.wasm"}), "invalid URL: f.wasm"),
        (
            json!({"guestURL": "https://x/f.wasm"}),
            "wasm: error reading guestURL https://x/f.wasm: no such file",
        ),
        (json!({"guestURL": "http://x/f.wasm"}), "http:// needs a checksum"),
        (
            json!({"guestURL": "file:///f.wasm", "checksum": "sha256:12"}),
            "checksum: Invalid value: \"sha256:12\"",
        ),
        (
            json!({"guestURL": "file:///f.wasm", "checksum": format!("sha256:{}", "0".repeat(64))}),
            "its checksum is sha256:",
        ),
        (
            json!({"guestURL": "file:///f.wasm", "configFile": "c"}),
            "configFile: Invalid value: \"c\": must be an absolute",
        ),
        (
            json!({"guestURL": "file:///f.wasm", "configFile": "/none"}),
            "configFile: Invalid value: /none: no such file",
        ),
        (
            json!({"guestURL": "file:///f.wasm", "configFile": "/c", "guestConfig": "x"}),
            "configFile: Invalid value: must not be set beside guestConfig",
        ),
        (json!({"guestURL": "file:///none"}), "wasm: error reading guestURL file:///none: no such file"),
        (json!({"guestURL": "file:///bad"}), "guestURL: Invalid value: wasm: error compiling guest"),
        (json!({"guestURL": "file:///f.wasm", "logSeverity": 9}), "logSeverity: Invalid value: 9"),
        (json!({"guestURL": "file:///f.wasm", "guestConfg": ""}), "unknown field `guestConfg`"),
    ] {
        let config = json!({"profiles": [{"pluginConfig": [{"name": "mine", "args": args}]}]});
        let error = with_config(&config, files()).map(drop).unwrap_err();
        assert!(error.contains(want), "{want}: {error}");
    }
    // What comes from the network is what the checksum says, and a file has the configuration.
    let mut files_and_url = files();
    let bytes = files_and_url["/f.wasm"].clone();
    let digest: String = Sha256::digest(&bytes).iter().map(|byte| format!("{byte:02x}")).collect();
    files_and_url.extend([("http://x/f.wasm".to_owned(), bytes), ("/c".to_owned(), b"config".to_vec())]);
    let args =
        json!({"guestURL": "http://x/f.wasm", "checksum": format!("sha256:{digest}"), "configFile": "/c"});
    let config = json!({"profiles": [{"pluginConfig": [{"name": "mine", "args": args}]}]});
    assert!(with_config(&config, files_and_url).is_ok());
    assert_eq!(crate::files(&config), ["/c"]);
    let args = json!({"guestURL": "file:///f.wasm", "guestConfig": "{}", "logSeverity": 2, "args": ["x"]});
    let config = json!({"profiles": [{"pluginConfig": [{"name": "mine", "args": args}]}]});
    assert!(with_config(&config, files()).is_ok());
}

#[test]
fn what_was_checked_is_what_runs_and_failures_are_counted() {
    let traps = r#"(func (export "filter") (result i32) (unreachable))"#;
    let module = wat::parse_str(format!("(module {HEAD} {traps})")).unwrap();
    let (reads, modules) = (std::sync::atomic::AtomicUsize::new(0), Modules::default());
    let read = move |_: &str| match reads.fetch_add(1, std::sync::atomic::Ordering::Relaxed) {
        0 => Ok(module.clone()),
        _ => Err("it has changed meanwhile".to_owned()),
    };
    let args = json!({"guestURL": "file:///f.wasm"});
    let config = json!({"profiles": [{"pluginConfig": [{"name": "mine", "args": args}]}]});
    let mut registry = Registry::in_tree();
    register(&mut registry, &config, &modules, read);
    assert_eq!(registry.get("mine").unwrap().check_args(&args.to_string()), Some(Ok(())));
    let (mut user, mut profile_args) = (UserPlugins::default(), Args::default());
    user.multi_point.enabled.push(PluginRef { name: "mine".to_owned(), weight: 1 });
    profile_args.set_json("mine", args.to_string());
    let mut plugins = PluginSet::new(&registry, &user, &FeatureGates::default()).unwrap();
    plugins.restrict(&profile_args);
    let profile = Profile { plugins, args: profile_args, ..Profile::default() };
    let mut s = Scheduler::new(Config { profiles: vec![profile], ..Config::default() });
    assert_eq!(modules.failures().counts(), []);
    let told = step(&mut s, 1, &[node("a"), pod("p")]);
    assert!(told[0].contains("wasm: filter error"), "{told:?}");
    assert_eq!(modules.failures().counts(), [("mine".to_owned(), "trap", 1)]);
}

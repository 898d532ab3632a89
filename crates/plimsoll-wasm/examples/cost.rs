//! What a plugin costs, by the way in which it is written: `cargo run --release -p plimsoll-wasm --example cost -- FGD.wasm`.
//!
//! The first table is of scoring alone: fragmentation gradient descent, compiled in and as a guest, for all nodes at once. The
//! second is of whole decisions: a plugin that prefers nodes by a digit, written in four ways, for pods of a kind that comes for
//! the first time (every node is scored) and for pods of a kind that is known. What a decision costs without the plugin is
//! subtracted.

#![allow(clippy::unwrap_used, clippy::print_stdout)]

use std::sync::Arc;
use std::time::Instant;

use plimsoll_plugin::{Manifest, Nodes, Plugin, Pod as Seen, Table};
use plimsoll_scheduler::args::Args;
use plimsoll_scheduler::{
    Action, Config, Event, FeatureGates, PluginRef, PluginSet, Profile, Registration, Registry, Scheduler,
    UserPlugins,
};
use plimsoll_state::model::{Container, Node, Pod};
use plimsoll_state::{ObjectEvent, Time};
use plimsoll_wasm::fast::{Backend, FastGuest, FastPlugin, Native, Wasm, points};
use plimsoll_wasm::{Modules, register};
use serde_json::json;

#[allow(dead_code)]
#[path = "../../plimsoll-plugin/examples/fgd.rs"]
mod fgd;

const SIZES: [usize; 3] = [100, 1000, 5000];
const FGD: &str = "pod 60 2000 1\npod 25 4000 2\npod 15 2000 0\n";

/// Prefers nodes with a high number in the label `digit`.
#[derive(Debug)]
struct Digit;

impl Plugin for Digit {
    fn configure(_: &str) -> Result<Self, String> {
        Ok(Self)
    }

    fn manifest(&self) -> Manifest {
        Manifest::new().scores().node_number("digit")
    }

    fn score(&self, _: &Seen, nodes: &Nodes<'_>, node: usize) -> i64 {
        nodes.number(0, node).unwrap_or(0)
    }
}

/// The same as a guest of the columnar interface.
const FAST: &str = r#"(module
    (memory (export "memory") 2)
    (data (i32.const 1024) "{\22points\22:[\22score\22],\22node\22:{\22numbers\22:[\22digit\22]}}")
    (global $top (mut i32) (i32.const 8192))
    (global $columns (mut i32) (i32.const 0))
    (func (export "plimsoll_plugin_v1"))
    (func (export "alloc") (param $n i32) (result i32) (local $at i32)
        (local.set $at (global.get $top))
        (global.set $top (i32.and (i32.add (i32.add (local.get $at) (local.get $n)) (i32.const 7)) (i32.const -8)))
        (drop (memory.grow (i32.add (i32.div_u (local.get $n) (i32.const 65536)) (i32.const 1))))
        (local.get $at))
    (func (export "configure") (param i32 i32) (result i32) (i32.const 0))
    (func (export "manifest") (result i64) (i64.const 0x0000040000000031))
    (func (export "columns") (param i32 i32) (global.set $columns (local.get 0)))
    (func (export "pre_filter") (param i32 i32) (result i32) (i32.const 0))
    (func (export "score") (param $rows i32) (param $n i32) (param $out i32) (result i32) (local $i i32)
        (loop $next
            (if (i32.lt_u (local.get $i) (local.get $n)) (then
                (i64.store (i32.add (local.get $out) (i32.mul (local.get $i) (i32.const 8)))
                    (i64.load (i32.add (i32.load (global.get $columns))
                        (i32.mul (i32.load (i32.add (local.get $rows) (i32.mul (local.get $i) (i32.const 4)))) (i32.const 8)))))
                (local.set $i (i32.add (local.get $i) (i32.const 1)))
                (br $next))))
        (i32.const 0)))"#;

/// The same as a guest of the compatible interface: the digit is the last one of the node's name, which is the cheapest that
/// such a guest can read.
const COMPATIBLE: &str = r#"(module
    (import "k8s.io/scheduler" "currentNodeName" (func $name (param i32 i32) (result i32)))
    (memory (export "memory") 1)
    (func (export "prefilter") (result i32) (i32.const 0))
    (func (export "score") (result i64)
        (i64.shl (i64.extend_i32_u (i32.sub
            (i32.load8_u (i32.add (i32.const 999) (call $name (i32.const 1000) (i32.const 300)))) (i32.const 48)))
            (i64.const 32))))"#;

fn columns(backend: impl Fn() -> Box<dyn Backend> + Send + Sync + 'static) -> Registry {
    let mut registry = Registry::in_tree();
    let at = points(backend().manifest());
    let make = move |_: &Args, handle: &mut plimsoll_scheduler::framework::Handle<'_>| {
        Box::new(FastPlugin::new(backend(), handle.plugin(), handle.name()))
            as Box<dyn plimsoll_scheduler::framework::Plugin>
    };
    registry.register(Registration::new("digit", &at, make)).unwrap();
    registry
}

/// The ways of writing the plugin: name in the table, name in the profile, registry, arguments.
fn ways() -> Vec<(&'static str, &'static str, Registry, Option<String>)> {
    let fast = FastGuest::new(&wat::parse_str(FAST).unwrap()).unwrap();
    let compatible = wat::parse_str(COMPATIBLE).unwrap();
    let args = json!({"guestURL": "file:///digit.wasm"});
    let mut with_guest = Registry::in_tree();
    let config = json!({"profiles": [{"pluginConfig": [{"name": "digit", "args": args}]}]});
    register(&mut with_guest, &config, &Modules::default(), move |_| Ok(compatible.clone()));
    let expression = json!({"score": "int(node.labels['digit'])"}).to_string();
    vec![
        ("none", "", Registry::in_tree(), None),
        ("compiled in", "digit", columns(|| Box::new(Native::<Digit>::new("").unwrap())), None),
        ("expression", "Expression/digit", plimsoll_plugins::registry(), Some(expression)),
        ("guest, columns", "digit", columns(move || Box::new(Wasm::new(fast.clone(), "").unwrap())), None),
        ("guest, compatible", "digit", with_guest, Some(args.to_string())),
    ]
}

fn scheduler(way: &(&str, &str, Registry, Option<String>), nodes: usize) -> Scheduler {
    let (_, name, registry, text) = way;
    let (mut user, mut args) = (UserPlugins::default(), Args::default());
    if !name.is_empty() {
        user.multi_point.enabled.push(PluginRef { name: (*name).to_owned(), weight: 1 });
        if let Some(text) = text {
            args.set_json(name, text.clone());
        }
    }
    let mut plugins = PluginSet::new(registry, &user, &FeatureGates::default()).unwrap();
    plugins.restrict(&args);
    let profiles = vec![Profile { plugins, args, ..Profile::default() }];
    let mut scheduler = Scheduler::new(Config { profiles, decisions_per_step: 1, ..Config::default() });
    for i in 0..nodes {
        let amounts = [("cpu", 64_000), ("memory", 1 << 38), ("pods", 110)];
        let node = Node {
            uid: format!("uid-{i}"),
            name: format!("n{i}"),
            labels: [("digit".to_owned(), (i % 10).to_string())].into(),
            allocatable: amounts.map(|(k, v)| (k.to_owned(), v)).into(),
            ..Node::default()
        };
        scheduler.handle_object(Time::default(), &ObjectEvent::NodeUpsert(Box::new(node)));
    }
    scheduler
}

/// Microseconds of a decision, the median of many. `new`: each pod is of a kind of its own.
fn decision(scheduler: &mut Scheduler, pods: usize, new: bool, at: usize) -> f64 {
    let mut took = Vec::new();
    for i in 0..pods {
        let name = format!("p{at}-{new}-{i}");
        let mut pod = Pod { uid: name.clone(), namespace: "ns".into(), name, ..Pod::default() };
        "default-scheduler".clone_into(&mut pod.spec.scheduler_name);
        let cpu = if new { 100 + i64::try_from(i).unwrap() } else { 50 };
        let requests = [("cpu".to_owned(), cpu)].into();
        pod.spec.containers = vec![Container { name: "c".into(), requests, ..Container::default() }];
        let now = Time::from_seconds(1);
        scheduler.handle_object(now, &ObjectEvent::PodUpsert(Box::new(pod)));
        let mut actions = Vec::new();
        let began = Instant::now();
        scheduler.decide(now, &mut |action| actions.push(action));
        took.push(began.elapsed().as_secs_f64() * 1e6);
        let bound = actions.iter().find_map(|a| match a {
            Action::Bind { pod, .. } => Some(pod.uid.clone()),
            _ => None,
        });
        scheduler.handle(now, Event::Bound(bound.unwrap()));
    }
    // The first ones make what is kept.
    median(took.split_off(2))
}

fn median(mut all: Vec<f64>) -> f64 {
    all.sort_by(f64::total_cmp);
    all[all.len() / 2]
}

fn scoring(guest: Option<&FastGuest>) {
    println!("scoring of all nodes (FGD), microseconds");
    println!("{:>8} {:>12} {:>12} {:>8}", "nodes", "compiled in", "guest", "ratio");
    for nodes in SIZES {
        let mut backends: Vec<Box<dyn Backend>> = vec![Box::new(Native::<fgd::Fgd>::new(FGD).unwrap())];
        backends.extend(guest.map(|g| Box::new(Wasm::new(g.clone(), FGD).unwrap()) as Box<dyn Backend>));
        let took: Vec<f64> = backends
            .iter_mut()
            .map(|backend| {
                let mut table = Table::new(backend.manifest());
                table.grow(nodes);
                for row in 0..nodes {
                    let n = i64::try_from(row).unwrap();
                    (table.allocatable[0][row], table.allocatable[1][row]) = (64_000, 8);
                    (table.requested[0][row], table.requested[1][row]) = (n * 997 % 64_000, n % 9);
                }
                let rows: Vec<u32> = (0..u32::try_from(nodes).unwrap()).collect();
                let pod = Seen { requests: vec![2000, 1], ..Seen::default() };
                let mut once = || {
                    let began = Instant::now();
                    let scores = backend.score(&pod, &mut table, &rows).unwrap();
                    assert_eq!(scores.len(), nodes);
                    began.elapsed().as_secs_f64() * 1e6
                };
                median((0..200).map(|_| once()).collect())
            })
            .collect();
        let native = took[0];
        match took.get(1) {
            Some(wasm) => println!("{nodes:>8} {native:>12.1} {wasm:>12.1} {:>8.2}", wasm / native),
            None => println!("{nodes:>8} {native:>12.1} {:>12} {:>8}", "-", "-"),
        }
    }
}

fn main() {
    let file = std::env::args().nth(1);
    let guest = file.map(|path| FastGuest::new(&std::fs::read(path).unwrap()).unwrap());
    scoring(guest.as_ref());
    let ways: Arc<[_]> = ways().into();
    for (title, new, pods) in [("pods of new kinds", true, 40), ("pods of a known kind", false, 200)] {
        println!(
            "\nwhat the plugin adds to a decision, {title}, microseconds (without it, the whole decision)"
        );
        println!("{:>20} {:>10} {:>10} {:>10}", "plugin", SIZES[0], SIZES[1], SIZES[2]);
        let mut without = [0.0; SIZES.len()];
        for way in &*ways {
            let mut cells = String::new();
            for (i, nodes) in SIZES.into_iter().enumerate() {
                let took = decision(&mut scheduler(way, nodes), pods, new, i);
                if way.1.is_empty() {
                    without[i] = took;
                    cells.push_str(&format!(" {took:>10.1}"));
                } else {
                    cells.push_str(&format!(" {:>10.1}", took - without[i]));
                }
            }
            println!("{:>20}{cells}", way.0);
        }
    }
}

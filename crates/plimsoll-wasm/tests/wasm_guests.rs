//! Runs guests that others built: every `.wasm` file under the directory that `PLIMSOLL_WASM_GUESTS` names, such as a checkout
//! of kube-scheduler-wasm-extension, against `guests.json`: which call gives what. The expectations are those of upstream's
//! `scheduler/plugin/plugin_test.go` and of the guests' sources.

#![allow(clippy::unwrap_used, clippy::print_stdout)]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use plimsoll_state::model::{Container, ImageState, Node, Pod};
use plimsoll_wasm::{Answer, Guest, Instance, Nodes, Params, Settings, assume_pod, encode_pod};
use serde::Deserialize;
use serde_json::Value;
use wasmtime::Val;

/// What one guest must do.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Case {
    /// The end of its path.
    guest: String,
    #[serde(default)]
    args: Vec<String>,
    #[serde(default)]
    config: String,
    /// Beginning of the error with which it can't be loaded.
    load: Option<String>,
    #[serde(default)]
    calls: Vec<Call>,
}

/// A call and its outcome.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Call {
    call: String,
    #[serde(default)]
    pod: PodCase,
    target: Option<PodCase>,
    #[serde(default)]
    node: String,
    nodes: Option<Vec<NodeCase>>,
    #[serde(default)]
    filtered: Vec<String>,
    #[serde(default)]
    statuses: BTreeMap<String, i32>,
    #[serde(default)]
    scores: BTreeMap<String, i64>,
    #[serde(default)]
    waiting: Vec<String>,
    #[serde(default)]
    globals: BTreeMap<String, i32>,
    status: Option<i32>,
    reason: Option<String>,
    score: Option<i32>,
    mode: Option<i32>,
    nominated: Option<String>,
    timeout: Option<u32>,
    names: Option<Vec<String>>,
    normalized: Option<BTreeMap<String, i64>>,
    events: Option<Vec<(u32, u32)>>,
    rejected: Option<Vec<String>>,
    recorded: Option<Vec<String>>,
    error: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct PodCase {
    name: String,
    uid: String,
    node: String,
    images: Vec<String>,
}

impl PodCase {
    fn encoded(&self) -> Arc<[u8]> {
        let mut pod = Pod { name: self.name.clone(), uid: self.uid.clone(), ..Pod::default() };
        let container = |image: &String| Container { image: image.clone(), ..Container::default() };
        pod.spec.containers = self.images.iter().map(container).collect();
        // As from Reserve on: guests have to merge what comes again.
        match self.node.as_str() {
            "" => encode_pod(&pod),
            node => assume_pod(&encode_pod(&pod), node),
        }
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct NodeCase {
    name: String,
    #[serde(default)]
    images: BTreeMap<String, i64>,
}

impl Call {
    fn params(&self) -> Params {
        let named = |name: &String| NodeCase { name: name.clone(), images: BTreeMap::new() };
        let of = |node: &NodeCase| {
            let image =
                |(name, size): (&String, &i64)| ImageState { names: vec![name.clone()], size_bytes: *size };
            Arc::new(Node {
                name: node.name.clone(),
                images: node.images.iter().map(image).collect(),
                ..Node::default()
            })
        };
        let nodes = match &self.nodes {
            Some(nodes) => Nodes::new(nodes.iter().map(of)),
            None => Nodes::new(self.filtered.iter().chain([&self.node]).map(|name| of(&named(name)))),
        };
        Params {
            current_pod: self.pod.encoded(),
            target_pod: self.target.as_ref().map_or_else(|| Arc::new([]) as Arc<[u8]>, PodCase::encoded),
            node_name: self.node.clone(),
            filtered_nodes: self.filtered.clone(),
            statuses: self.statuses.clone(),
            scores: self.scores.clone(),
            nodes: Arc::new(nodes),
            waiting: self.waiting.iter().map(|uid| (uid.clone(), self.pod.encoded())).collect(),
            now: 1_700_000_000_000_000_000,
        }
    }

    /// What is wrong with the outcome.
    fn compare(&self, outcome: &Result<Answer, String>) -> Result<(), String> {
        let answer = match (outcome, &self.error) {
            (Err(got), Some(want)) if got.starts_with(want.as_str()) => return Ok(()),
            (Ok(answer), None) => answer,
            (got, want) => return Err(format!("{}: {got:?}, expected error {want:?}", self.call)),
        };
        let packed = |low, high| match self.call.as_str() {
            "permit" => (high, low),
            _ => (low, high),
        };
        let (status, other) = packed(answer.low(), answer.high());
        let results = &answer.results;
        let mut wrong = Vec::new();
        let mut check = |what: &str, is_right: bool| {
            if !is_right {
                wrong.push(what.to_owned());
            }
        };
        check("status", status == self.status.unwrap_or(0));
        check("reason", self.reason.as_ref().is_none_or(|want| *want == results.reason));
        check("score", self.score.is_none_or(|want| want == other));
        check("mode", self.mode.is_none_or(|want| want == other));
        check("timeout", self.timeout.is_none_or(|want| want == other.cast_unsigned()));
        check("nominated", self.nominated.as_ref().is_none_or(|want| *want == results.nominated_node));
        check("names", self.names == results.node_names);
        check(
            "normalized",
            self.normalized.as_ref().is_none_or(|want| Some(want) == results.scores.as_ref()),
        );
        check("events", self.events.as_ref().is_none_or(|want| *want == results.events));
        check("rejected", self.rejected.as_ref().is_none_or(|want| *want == results.rejected));
        let reasons: Vec<_> = results.recorded.iter().map(|e| e["Reason"].as_str().unwrap_or("")).collect();
        check("recorded", self.recorded.as_ref().is_none_or(|want| *want == reasons));
        if wrong.is_empty() { Ok(()) } else { Err(format!("{}: {wrong:?}: {answer:?}", self.call)) }
    }
}

fn load(guest: &Result<Guest, String>, case: &Case) -> Result<Instance, String> {
    let settings = Settings {
        name: "guest".into(),
        config: case.config.as_str().into(),
        severity: 0,
        args: case.args.clone().into(),
    };
    guest.as_ref().map_err(Clone::clone)?.with(settings).instantiate(0)
}

fn run(guest: &Result<Guest, String>, case: &Case) -> Result<(), String> {
    let mut instance = match (load(guest, case), &case.load) {
        (Err(got), Some(want)) if got.starts_with(want.as_str()) => return Ok(()),
        (Ok(instance), None) => instance,
        (got, want) => return Err(format!("{got:?}, expected error {want:?}")),
    };
    for call in &case.calls {
        for (name, value) in &call.globals {
            if !instance.set_global(name, Val::I32(*value)) {
                return Err(format!("no global {name}"));
            }
        }
        call.compare(&instance.call(&call.call, call.params()))?;
    }
    Ok(())
}

fn guests(dir: &Path, found: &mut Vec<PathBuf>) {
    let mut entries: Vec<PathBuf> = std::fs::read_dir(dir).unwrap().map(|e| e.unwrap().path()).collect();
    entries.sort();
    for path in entries {
        if path.is_dir() {
            guests(&path, found);
        } else if path.extension().is_some_and(|e| e == "wasm") {
            found.push(path);
        }
    }
}

/// Whether a file is the guest of this name: the directories may be part of the file's name.
fn is_it(path: &Path, name: &str) -> bool {
    let words = |text: &str| -> Vec<String> {
        text.split(|c: char| !c.is_ascii_alphanumeric())
            .filter(|w| !w.is_empty())
            .map(str::to_owned)
            .collect()
    };
    words(&path.to_string_lossy()).ends_with(&words(name))
}

fn main() -> ExitCode {
    let Some(dir) = std::env::var_os("PLIMSOLL_WASM_GUESTS").map(PathBuf::from) else {
        println!("skipped: PLIMSOLL_WASM_GUESTS names no directory with guests");
        println!("wasm: 0 passed, 0 failed");
        return ExitCode::SUCCESS;
    };
    let table: Value = serde_json::from_str(include_str!("guests.json")).unwrap();
    let cases: Vec<Case> = serde_json::from_value(table).unwrap();
    let (mut passed, mut failed) = (0, 0);
    let mut paths = Vec::new();
    guests(&dir, &mut paths);
    for path in &paths {
        let guest = Guest::new(&std::fs::read(path).unwrap(), Settings::default());
        let mine: Vec<&Case> = cases.iter().filter(|case| is_it(path, &case.guest)).collect();
        let mut problems: Vec<String> = Vec::new();
        if mine.is_empty() {
            problems.push("guests.json says nothing about it".to_owned());
        }
        for case in mine {
            if let Err(problem) = run(&guest, case) {
                problems.push(format!("args {:?}, config {:?}: {problem}", case.args, case.config));
            }
        }
        let name = path.strip_prefix(&dir).unwrap_or(path).display();
        if problems.is_empty() {
            passed += 1;
            println!("ok      {name}");
        } else {
            failed += 1;
            println!("FAILED  {name}\n        {}", problems.join("\n        "));
        }
    }
    println!("wasm: {passed} passed, {failed} failed");
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

//! Scenarios through the front door: every file under `scenarios/` is a list of steps against a control plane of its
//! own. A step applies manifests, patches or deletes, and then waits until everything it expects holds.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::Instant;

use crate::common::{Up, resource};
use plimsoll_api::json;
use plimsoll_runtime::api::PatchKind;
use serde::Deserialize;
use serde_json::{Value, json};

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct Scenario {
    /// Flags of `plimsoll up`.
    #[serde(default)]
    flags: Vec<String>,
    /// Kueue's configuration.
    config: Option<Value>,
    /// kube-scheduler's configuration.
    scheduler_config: Option<Value>,
    /// Nodes instead of the usual four.
    nodes: Option<Vec<Value>>,
    steps: Vec<Step>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Step {
    /// What it shows.
    says: String,
    /// Files under `examples/` whose objects are created first.
    #[serde(default)]
    manifests: Vec<String>,
    #[serde(default)]
    apply: Vec<Value>,
    /// Objects that are applied server-side.
    #[serde(default, rename = "server-side")]
    server_side: Vec<Applied>,
    #[serde(default)]
    patch: Vec<Patch>,
    #[serde(default)]
    delete: Vec<Target>,
    #[serde(default)]
    expect: Vec<Expectation>,
}

/// One object: by name, or the only one whose name starts with `prefix`; of events, the one with this reason.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Target {
    kind: String,
    #[serde(default)]
    namespace: String,
    #[serde(default)]
    name: String,
    #[serde(default)]
    prefix: String,
    #[serde(default)]
    reason: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Applied {
    object: Value,
    /// Part of the message with which it is refused.
    refused: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Patch {
    of: Target,
    #[serde(default)]
    sub: String,
    /// A merge patch.
    body: Value,
    /// Part of the message with which it is refused.
    refused: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Expectation {
    of: Target,
    /// JSON pointer, or `condition:TYPE` for a condition.
    #[serde(default)]
    at: String,
    /// There is no such object (any more).
    #[serde(default)]
    absent: bool,
    /// The value there, or for objects the fields it has among others.
    is: Option<Value>,
    /// Part of the text there.
    contains: Option<String>,
}

impl Target {
    async fn find(&self, up: &Up) -> Option<Value> {
        let resource = resource(&json!({"kind": self.kind}));
        if !self.name.is_empty() {
            return up.api.get(resource, &self.namespace, &self.name).await.ok();
        }
        let mut all = up.list(resource).await;
        all.retain(|o| json::name(o).starts_with(&self.prefix) && json::namespace(o) == self.namespace);
        all.retain(|o| self.reason.is_empty() || o["reason"] == self.reason.as_str());
        (all.len() == 1).then(|| all.remove(0))
    }
}

/// Whether `found` has everything that `wanted` has.
fn covers(found: &Value, wanted: &Value) -> bool {
    match (found, wanted) {
        (Value::Object(a), Value::Object(b)) => {
            b.iter().all(|(k, v)| a.get(k).map_or(v.is_null(), |x| covers(x, v)))
        }
        (Value::Array(a), Value::Array(b)) => {
            a.len() == b.len() && a.iter().zip(b).all(|(x, y)| covers(x, y))
        }
        _ => found == wanted,
    }
}

impl Expectation {
    fn holds(&self, object: &Value) -> bool {
        if self.absent {
            return object.is_null();
        }
        let found = match self.at.strip_prefix("condition:") {
            Some(kind) => json::condition(object, kind).cloned(),
            None => object.pointer(&self.at).cloned(),
        };
        let found = found.unwrap_or(Value::Null);
        let part = |text: &String| found.as_str().is_some_and(|f| f.contains(text));
        self.is.as_ref().is_none_or(|wanted| covers(&found, wanted))
            && self.contains.as_ref().is_none_or(part)
    }
}

/// A write was done; or refused for this reason.
fn done_or_refused(
    done: Result<Value, plimsoll_runtime::api::Error>,
    refused: Option<&String>,
    context: &str,
) {
    match refused {
        None => drop(done.unwrap_or_else(|e| panic!("{context}: {e}"))),
        Some(text) => {
            let refused = done.err().map(|e| e.to_string()).unwrap_or_default();
            assert!(refused.contains(text), "{context}: {refused}");
        }
    }
}

async fn run(path: &Path) {
    let name = path.file_stem().unwrap().to_string_lossy().into_owned();
    let scenario: Scenario = serde_saphyr::from_str(&std::fs::read_to_string(path).unwrap())
        .unwrap_or_else(|e| panic!("{name}: {e}"));
    let dir = crate::common::directory();
    let mut flags = scenario.flags.clone();
    for (flag, file) in [("--config", &scenario.config), ("--scheduler-config", &scenario.scheduler_config)] {
        if let Some(file) = file {
            let at = dir.join(flag.trim_start_matches('-'));
            std::fs::write(&at, file.to_string()).unwrap();
            flags.extend([flag.to_owned(), at.to_string_lossy().into_owned()]);
        }
    }
    if let Some(nodes) = &scenario.nodes {
        let at = dir.join("nodes");
        let list: Vec<String> = nodes.iter().map(Value::to_string).collect();
        std::fs::write(&at, list.join("\n---\n")).unwrap();
        flags.extend(["--nodes-file".to_owned(), at.to_string_lossy().into_owned()]);
    }
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    let up = Up::start_in(dir, &flags).await;
    for step in &scenario.steps {
        let context = format!("{name}: {}", step.says);
        for file in &step.manifests {
            let at = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples")).join(file);
            up.apply(&std::fs::read_to_string(at).unwrap()).await;
        }
        for object in &step.apply {
            up.create(object).await.unwrap_or_else(|e| panic!("{context}: {e}: {object}"));
        }
        for Applied { object, refused } in &step.server_side {
            let done = up.api.apply(resource(object), object).await;
            done_or_refused(done, refused.as_ref(), &context);
        }
        for patch in &step.patch {
            let target = up.until(&context, async |up| patch.of.find(up).await).await;
            let (namespace, object) = (json::namespace(&target), json::name(&target));
            let resource = resource(&json!({"kind": patch.of.kind}));
            let done =
                up.api.patch(resource, namespace, object, &patch.sub, PatchKind::Merge, &patch.body).await;
            done_or_refused(done, patch.refused.as_ref(), &context);
        }
        for target in &step.delete {
            let found = up.until(&context, async |up| target.find(up).await).await;
            let resource = resource(&json!({"kind": target.kind}));
            let (namespace, object) = (json::namespace(&found), json::name(&found));
            let done = up.api.delete(resource, namespace, object, json::uid(&found), None).await;
            done.unwrap_or_else(|e| panic!("{context}: {e}"));
        }
        for wanted in &step.expect {
            let text = format!("{:?} {:?}", wanted.is, wanted.contains);
            let context = format!(
                "{context}: {} {}{}{} {} {text}",
                wanted.of.kind, wanted.of.name, wanted.of.prefix, wanted.of.reason, wanted.at
            );
            let mut last = Value::Null;
            up.until_shown(&context, async |up| {
                last = wanted.of.find(up).await.unwrap_or_default();
                wanted.holds(&last).then_some(()).ok_or_else(|| last.to_string())
            })
            .await;
        }
    }
}

/// Scenarios that take most of the time of all.
const LONG: [&str; 3] = ["elastic.yaml", "node-failure.yaml", "run-windows.yaml"];
/// Control planes at a time: most of the time they wait for their own pods and timeouts.
const AT_A_TIME: usize = 5;

#[test]
fn scenarios() {
    let dir = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/scenarios");
    let only = std::env::var("PLIMSOLL_ONLY").unwrap_or_default();
    let mut files: Vec<PathBuf> = std::fs::read_dir(dir).unwrap().map(|e| e.unwrap().path()).collect();
    files.retain(|f| f.to_string_lossy().contains(&only));
    assert!(!files.is_empty());
    // The longest first: they wait for timeouts.
    files.sort_by_key(|f| LONG.iter().any(|name| f.ends_with(name)));
    let files = Mutex::new(files);
    std::thread::scope(|threads| {
        for _ in 0..AT_A_TIME {
            threads.spawn(|| {
                let runtime = tokio::runtime::Runtime::new().unwrap();
                while let Some(file) = { files.lock().unwrap().pop() } {
                    let began = Instant::now();
                    runtime.block_on(run(&file));
                    println!("{:5.1} s {}", began.elapsed().as_secs_f64(), file.display());
                }
            });
        }
    });
}

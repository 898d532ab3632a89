//! Inputs to start from: the repository's vectors and examples, and a few texts of our own.

use std::io::Read;
use std::path::{Path, PathBuf};

use serde_json::Value;

/// Most seeds from one file.
const PER_FILE: usize = 12;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Some lines of every compressed vector file below a directory, in order of their paths.
fn rows(area: &str) -> Vec<Value> {
    let mut dirs = vec![root().join("vectors").join(area)];
    let mut files = Vec::new();
    while let Some(dir) = dirs.pop() {
        for entry in std::fs::read_dir(&dir).into_iter().flatten().flatten() {
            let path = entry.path();
            if path.is_dir() {
                dirs.push(path);
            } else if path.extension().is_some_and(|e| e == "zst") {
                files.push(path);
            }
        }
    }
    files.sort();
    files.iter().flat_map(|f| lines(f)).collect()
}

fn lines(file: &Path) -> Vec<Value> {
    let Ok(bytes) = std::fs::read(file) else { return Vec::new() };
    let Ok(mut decoder) = ruzstd::decoding::StreamingDecoder::new(bytes.as_slice()) else {
        return Vec::new();
    };
    let mut text = String::new();
    if decoder.read_to_string(&mut text).is_err() {
        return Vec::new();
    }
    let all: Vec<&str> = text.lines().collect();
    let step = all.len().div_ceil(PER_FILE).max(1);
    all.iter().step_by(step).filter_map(|l| serde_json::from_str(l).ok()).collect()
}

fn bytes(values: impl Iterator<Item = Value>) -> Vec<Vec<u8>> {
    let mut out: Vec<Vec<u8>> = values.map(|v| v.to_string().into_bytes()).collect();
    out.retain(|b| b.len() <= crate::MAX_INPUT);
    out
}

fn texts(list: &[&str]) -> Vec<Vec<u8>> {
    list.iter().map(|t| t.as_bytes().to_vec()).collect()
}

const SCHEDULER: &str = r#"apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
parallelism: 16
percentageOfNodesToScore: 50
podInitialBackoffSeconds: 1
podMaxBackoffSeconds: 10
leaderElection: {leaderElect: true, leaseDuration: 15s, renewDeadline: 10s, retryPeriod: 2s}
profiles:
- schedulerName: default-scheduler
  percentageOfNodesToScore: 0
  plugins:
    multiPoint: {enabled: [{name: NodePorts, weight: 2}], disabled: [{name: ImageLocality}]}
    score: {disabled: [{name: '*'}], enabled: [{name: NodeResourcesFit, weight: 3}]}
  pluginConfig:
  - name: NodeResourcesFit
    args:
      ignoredResources: [example.com/x]
      scoringStrategy: {type: RequestedToCapacityRatio, resources: [{name: cpu, weight: 1}],
        requestedToCapacityRatio: {shape: [{utilization: 0, score: 0}, {utilization: 100, score: 10}]}}
  - name: InterPodAffinity
    args: {hardPodAffinityWeight: 5}
  - name: PodTopologySpread
    args: {defaultingType: List, defaultConstraints: [{maxSkew: 1, topologyKey: zone, whenUnsatisfiable: ScheduleAnyway}]}
  - name: NodeAffinity
    args: {addedAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchExpressions: [{key: a, operator: In, values: [b]}]}]}}}
- schedulerName: other
extenders:
- urlPrefix: http://127.0.0.1:8888
  filterVerb: filter
  prioritizeVerb: prioritize
  weight: 5
  httpTimeout: 1s
  managedResources: [{name: example.com/x, ignoredByScheduler: true}]
"#;

/// Plugins that the file writes itself.
const EXPRESSIONS: &str = r#"apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- plugins: {multiPoint: {enabled: [{name: Expression/a}, {name: Expression/b, weight: 7}, {name: Expression/c}]}}
  pluginConfig:
  - name: Expression/a
    args: {filter: 'pod.labels[?"team"].orValue("x") == node.labels[?"team"].orValue("x")', reason: node(s) of another team}
  - name: Expression/b
    args: {score: '100 - node.requested["cpu"] * 100 / node.allocatable["cpu"]'}
  - name: Expression/c
    args: {preEnqueue: '!("hold" in pod.labels) && pod.priority >= 0 || pod.requests["cpu"] < 100'}
"#;

/// `KubeSchedulerConfiguration` files.
pub fn scheduler() -> Vec<Vec<u8>> {
    let head = serde_json::json!({"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration"});
    let profiles = rows("placement").into_iter().filter_map(|r| r.get("profile").cloned()).take(40);
    let mut out = bytes(profiles.map(|p| {
        let mut file = head.clone();
        file["profiles"] = Value::Array(vec![p]);
        file
    }));
    out.extend(texts(&[SCHEDULER, EXPRESSIONS]));
    out
}

const KUEUE: &str = r#"apiVersion: config.kueue.x-k8s.io/v1beta2
kind: Configuration
namespace: kueue-system
manageJobsWithoutQueueName: true
waitForPodsReady: {timeout: 5m, recoveryTimeout: 3m, blockAdmission: true,
  requeuingStrategy: {timestamp: Eviction, backoffLimitCount: 3, backoffBaseSeconds: 60, backoffMaxSeconds: 3600}}
integrations: {frameworks: [batch/job, pod], labelKeysToCopy: [team]}
fairSharing: {preemptionStrategies: [LessThanOrEqualToFinalShare, LessThanInitialShare]}
admissionFairSharing: {usageHalfLifeTime: 168h, usageSamplingInterval: 5m, resourceWeights: {cpu: 2.0}}
resources: {excludeResourcePrefixes: [x], transformations: [{input: a/b, strategy: Replace, outputs: {c/d: 5}}]}
featureGates: {TopologyAwareScheduling: true}
"#;

/// Kueue configuration files.
pub fn kueue() -> Vec<Vec<u8>> {
    let head = serde_json::json!({"apiVersion": "config.kueue.x-k8s.io/v1beta2", "kind": "Configuration"});
    let fragments = rows("admission").into_iter().filter_map(|r| r.get("configuration").cloned());
    let mut out = bytes(fragments.take(40).map(|f| {
        let mut file = head.clone();
        for (k, v) in f.as_object().into_iter().flatten() {
            file[k] = v.clone();
        }
        file
    }));
    out.extend(texts(&[KUEUE]));
    out
}

/// Quantities.
pub fn quantities() -> Vec<Vec<u8>> {
    texts(&[
        "0",
        "1",
        "-1",
        "100m",
        "1.5",
        "1Ki",
        "1.25Gi",
        "12e6",
        "1E",
        "5Ei",
        "0.000000001",
        "1n",
        "7u",
        "+3k",
        "9223372036854775807",
        "1e-9",
        ".5",
        "5.",
        "1e+3",
        "1E3",
        "340282366920938463463374607431768211455",
    ])
}

/// Label selectors as query parameters.
pub fn label_selectors() -> Vec<Vec<u8>> {
    texts(&[
        "a=b",
        "a==b,c!=d",
        "a in (b,c),d notin (e)",
        "a,!b",
        "x.y/z=1",
        "a>5,b<7",
        "a in ()",
        "",
        "a= ,b",
    ])
}

/// Field selectors, after a kind.
pub fn field_selectors() -> Vec<Vec<u8>> {
    texts(&[
        "metadata.name=a",
        "metadata.namespace!=b,spec.nodeName=c",
        "status.phase=Failed",
        "type=a\\,b\\=c\\\\",
    ])
}

/// Node selectors and label selectors as JSON.
pub fn node_selectors() -> Vec<Vec<u8>> {
    texts(&[
        r#"{"nodeSelectorTerms":[{"matchExpressions":[{"key":"a","operator":"In","values":["b","c"]}],
            "matchFields":[{"key":"metadata.name","operator":"NotIn","values":["n"]}]},{}]}"#,
        r#"{"nodeSelectorTerms":[{"matchExpressions":[{"key":"a","operator":"Gt","values":["5"]},
            {"key":"b","operator":"Lt","values":["-7"]},{"key":"c","operator":"Exists"}]}]}"#,
        r#"{"matchLabels":{"a":"b"},"matchExpressions":[{"key":"c","operator":"DoesNotExist"}]}"#,
    ])
}

fn objects(area: &str) -> impl Iterator<Item = Value> {
    let list = |mut r: Value| match r["objects"].take() {
        Value::Array(list) => list,
        _ => Vec::new(),
    };
    rows(area).into_iter().flat_map(list).step_by(7)
}

/// Objects that placement looks at.
pub fn placement_objects() -> Vec<Vec<u8>> {
    bytes(objects("placement"))
}

/// Objects that queueing looks at.
pub fn queueing_objects() -> Vec<Vec<u8>> {
    bytes(objects("admission"))
}

/// Clusters with pods to place.
pub fn snapshots() -> Vec<Vec<u8>> {
    bytes(rows("placement").into_iter().filter(|r| r["objects"].is_array()).map(|mut r| {
        r["expect"] = Value::Null;
        r
    }))
}

/// Clusters with workloads to admit.
pub fn admissions() -> Vec<Vec<u8>> {
    bytes(rows("admission").into_iter().filter(|r| r["objects"].is_array()).map(|mut r| {
        (r["cycles"], r["final"], r["expect"]) = (Value::Null, Value::Null, Value::Null);
        r
    }))
}

/// Bytes without meaning, for targets that read them as decisions.
pub fn noise() -> Vec<Vec<u8>> {
    let mut rng = plimsoll_state::rng::Rng::new(11);
    (1..24usize).map(|n| (0..n * 60).map(|_| rng.below(256) as u8).collect()).collect()
}

/// Requests of recorded transcripts, with what is sent in them.
fn requests(area: &str, wanted: impl Fn(&str, &str) -> bool) -> Vec<Vec<u8>> {
    let mut out = Vec::new();
    for row in rows(area) {
        for step in row["steps"].as_array().into_iter().flatten() {
            let request = &step["request"];
            let method = request["method"].as_str().unwrap_or_default();
            let media = request["headers"]["Content-Type"].as_str().unwrap_or_default();
            if (request["body"].is_object() || request["body"].is_array()) && wanted(method, media) {
                out.push(request["body"].clone());
            }
        }
    }
    out.dedup();
    bytes(out.into_iter())
}

/// Bodies of creations.
pub fn bodies() -> Vec<Vec<u8>> {
    let mut out = requests("api", |method, _| method == "POST" || method == "PUT");
    out.push(
        b"apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec: {containers: [{name: c, image: i}]}\n"
            .to_vec(),
    );
    out
}

/// Bodies of patches.
pub fn patches() -> Vec<Vec<u8>> {
    let mut out = requests("api", |method, media| method == "PATCH" && !media.contains("apply"));
    out.extend(texts(&[
        r#"[{"op": "add", "path": "/metadata/labels/a~1b", "value": "c"}, {"op": "test", "path": "/spec/containers/0/name", "value": "c"}]"#,
        r#"[{"op": "move", "from": "/spec/containers/1", "path": "/spec/containers/0"}, {"op": "copy", "from": "/spec", "path": "/status"}]"#,
        r#"{"spec": {"containers": [{"$patch": "delete", "name": "d"}, {"name": "c", "env": [{"name": "E", "value": "2"}]}]}}"#,
        r#"{"spec": {"$setElementOrder/containers": [{"name": "d"}, {"name": "c"}], "containers": [{"name": "d", "image": "k"}]}}"#,
        r#"{"metadata": {"$deleteFromPrimitiveList/finalizers": ["k.io/f"], "labels": {"$retainKeys": ["x"]}}}"#,
        r#"{"spec": {"tolerations": null, "$patch": "replace"}}"#,
    ]));
    out
}

/// Configurations for server-side apply.
pub fn configurations() -> Vec<Vec<u8>> {
    requests("api", |method, media| method == "PATCH" && media.contains("apply"))
}

/// Bodies in protobuf.
pub fn messages() -> Vec<Vec<u8>> {
    let objects = requests("api", |method, _| method == "POST");
    let encoded = objects.iter().filter_map(|body| {
        let object: Value = serde_json::from_slice(body).ok()?;
        let text = |key: &str| object[key].as_str().unwrap_or_default().to_owned();
        let (group, version) = match text("apiVersion").split_once('/') {
            Some((group, version)) => (group.to_owned(), version.to_owned()),
            None => (String::new(), text("apiVersion")),
        };
        let gvk = plimsoll_apimachinery::Gvk { group, version, kind: text("kind") };
        plimsoll_apimachinery::proto::encode(&gvk, &object)
    });
    encoded.filter(|b| b.len() <= crate::MAX_INPUT).collect()
}

/// Expressions of CEL.
pub fn expressions() -> Vec<Vec<u8>> {
    texts(&[
        "self.spec.containers.all(c, c.image.startsWith('i') && size(c.name) < 64)",
        "has(self.metadata.labels) ? self.metadata.labels.x == 'y' : false",
        "self.spec.containers.map(c, c.name).exists_one(n, n.matches('^[a-d]+$'))",
        "oldSelf[0] + 1 > 1 && oldSelf[1] < 3.0 || !(oldSelf[2] in ['a', 'b'])",
        "quantity('1Gi').isGreaterThan(quantity('500Mi'))",
        "duration('1h30m') > duration('1s') && timestamp('2026-01-01T00:00:00Z').getFullYear() == 2026",
        "'a,b,c'.split(',').filter(x, x != 'b').size() == 2",
        "{'a': [1, 2, {'b': null}]}.a[2].b == null",
        "9223372036854775807 + 1 == 0 || 1 / 0 == 1 || -9223372036854775808 / -1 == 0",
        "[1,2,3].map(x, [1,2,3].map(y, [1,2,3].map(z, x * y * z)))",
    ])
}

/// Continue tokens, encoded and before that.
pub fn tokens() -> Vec<Vec<u8>> {
    texts(&[
        "eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6NSwic3RhcnQiOiJkZWZhdWx0L2FcdTAwMDAifQ",
        "eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6LTEsInN0YXJ0IjoieCJ9",
        "{\"v\":\"meta.k8s.io/v1\",\"rv\":5,\"start\":\"default/a\\u0000\"}",
        "{\"v\":\"meta.k8s.io/v2\",\"rv\":-9223372036854775809,\"start\":\"../x\"}",
        "{\"v\":\"meta.k8s.io/v1\",\"start\":[\"default\"],\"rv\":1e300}",
    ])
}

/// Modules in WebAssembly: guests of both interfaces, and some that are none.
pub fn modules() -> Vec<Vec<u8>> {
    let bodies = [
        "",
        "(memory (export \"memory\") 1) (func (export \"filter\") (result i32) (i32.const 0))",
        "(memory (export \"memory\") 1) (func (export \"score\") (result i64) (i64.const 7)) (func (export \"_start\"))",
        "(memory (export \"memory\") 1 2) (table 3 funcref) (func $f (export \"filter\") (result i32) (call $f))
         (elem (i32.const 0) $f) (global (export \"g\") (mut i32) (i32.const 1))",
        "(memory (export \"memory\") 1) (func (export \"filter\") (result i32) (memory.grow (i32.const 100)))
         (func $s (drop (memory.grow (i32.const 60000)))) (start $s)",
        "(memory (export \"memory\") 1) (func (export \"plimsoll_plugin_v1\"))
         (func (export \"alloc\") (param i32) (result i32) (i32.const 8))
         (func (export \"configure\") (param i32 i32) (result i32) (i32.const 0))
         (func (export \"manifest\") (result i64) (i64.const 0x0000040000000014))
         (data (i32.const 1024) \"{\\22points\\22:[\\22score\\22]}\")
         (func (export \"columns\") (param i32 i32))
         (func (export \"pre_filter\") (param i32 i32) (result i32) (i32.const 0))
         (func (export \"score\") (param i32 i32 i32) (result i32) (i32.const 0))",
    ];
    let module = |body: &&str| wat::parse_str(format!("(module {body})")).expect("the text is a module");
    bodies.iter().map(module).collect()
}

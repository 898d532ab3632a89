//! What the same plugin costs in five forms: compiled in, as an expression, as a guest with columns, as the guest of
//! kube-scheduler-wasm-extension, and as an HTTP extender. It prefers nodes whose name ends with the digit with which the
//! pod's name ends, so that nothing can be kept from pod to pod: each decision scores all nodes.
//!
//! ```sh
//! PLIMSOLL_WASM_GUESTS=DIR cargo run --release -p plimsoll-wasm --example costs
//! ```
//!
//! `DIR` is a checkout of kube-scheduler-wasm-extension. Forms of which a part is missing are left out and named. The table has
//! the median time of a decision in microseconds, and below it that of nothing but the cycle, with a plugin that gives
//! every node the same score. `--json` prints JSON.

#![allow(clippy::unwrap_used, clippy::print_stdout, clippy::print_stderr)]

use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use plimsoll_scheduler::framework::{
    Cluster, CycleState, ExtensionPoint, Incoming, NodeId, Normalization, Plugin, ScoreState,
};
use plimsoll_scheduler::{
    Action, Config, Event, Extender, ExtenderAnswer, ExtenderCall, FeatureGates, PluginRef, PluginSet,
    Profile, Registration, Registry, Scheduler, UserPlugins, args::Args,
};
use plimsoll_state::model::{Node, Pod};
use plimsoll_state::{ObjectEvent, Time};
use serde_json::{Value, json};

const NODES: [usize; 3] = [100, 1000, 5000];
/// Decisions of which the median counts, and those before them.
const DECISIONS: usize = 41;
const WARM_UP: usize = 3;

/// The last digit of a name.
fn digit(name: &str) -> Option<u8> {
    name.bytes().last().filter(u8::is_ascii_digit)
}

/// The plugin, compiled in; with `like_all` it only costs what the cycle does.
#[derive(Debug)]
struct Native {
    like_all: bool,
}

#[derive(Debug)]
struct Score {
    digit: Option<u8>,
}

impl Plugin for Native {
    fn pre_score(
        &self,
        cluster: &Cluster,
        pod: &Incoming,
        _: &[NodeId],
        _: &CycleState,
    ) -> Option<Box<dyn ScoreState>> {
        let name = cluster.pod(pod.id).map_or("", |pod| pod.name());
        Some(Box::new(Score { digit: digit(name).filter(|_| !self.like_all) }))
    }
}

impl ScoreState for Score {
    fn score(&self, cluster: &Cluster, node: NodeId) -> i64 {
        let Some(wanted) = self.digit else { return 10 };
        let is = cluster.node(node).is_some_and(|node| digit(node.name()) == Some(wanted));
        if is { 10 } else { 0 }
    }

    fn normalization(&self) -> Normalization {
        Normalization::None
    }
}

/// A form of the plugin.
struct Form {
    name: &'static str,
    config: Config,
}

/// A profile with this plugin and what no profile can do without.
fn profile(registry: &Registry, plugin: Option<&str>, args: Option<Value>) -> Config {
    let mut user = UserPlugins::default();
    user.multi_point.disabled.push("*".to_owned());
    for name in ["PrioritySort", "DefaultBinder"].into_iter().chain(plugin) {
        user.multi_point.enabled.push(PluginRef { name: name.to_owned(), weight: 1 });
    }
    let mut all = Args::default();
    if let (Some(plugin), Some(args)) = (plugin, args) {
        all.set_json(plugin, args.to_string());
    }
    let gates = FeatureGates::default();
    let mut plugins = PluginSet::new(registry, &user, &gates).unwrap();
    plugins.restrict(&all);
    let profile = Profile { plugins, args: all, ..Profile::default() };
    Config { profiles: vec![profile], decisions_per_step: 1, ..Config::default() }
}

fn compiled_in(like_all: bool) -> Config {
    let mut registry = Registry::in_tree();
    let points = [ExtensionPoint::PreScore, ExtensionPoint::Score];
    registry
        .register(Registration::new("native", &points, move |_, _| Box::new(Native { like_all })))
        .unwrap();
    profile(&registry, Some("native"), None)
}

fn expression() -> Config {
    let last = |of: &str| format!("{of}.name.charAt(size({of}.name) - 1)");
    let score = format!("{} == {} ? 10 : 0", last("node"), last("pod"));
    profile(&plimsoll_plugins::registry(), Some("Expression/number"), Some(json!({"score": score})))
}

fn guest(module: &Path) -> Config {
    let args = json!({"guestURL": format!("file://{}", module.display())});
    let config = json!({"profiles": [{"pluginConfig": [{"name": "guest", "args": args}]}]});
    let mut registry = Registry::in_tree();
    let read = |path: &str| std::fs::read(path).map_err(|e| e.to_string());
    plimsoll_wasm::register(&mut registry, &config, &plimsoll_wasm::Modules::default(), read);
    profile(&registry, Some("guest"), Some(args))
}

/// The SDK's example, built for wasm32.
fn build(dir: &Path) -> Option<PathBuf> {
    let sdk = Path::new(env!("CARGO_MANIFEST_DIR")).join("../plimsoll-plugin");
    let rustc = |args: &[&str]| {
        let base = ["--edition", "2024", "-O", "-C", "panic=abort", "-C", "strip=symbols"];
        let done =
            Command::new("rustc").args(base).args(["--target", "wasm32-unknown-unknown"]).args(args).output();
        done.is_ok_and(|done| done.status.success())
    };
    let (rlib, wasm) = (dir.join("libplimsoll_plugin.rlib"), dir.join("nodenumber.wasm"));
    let (rlib, out) = (rlib.display().to_string(), wasm.display().to_string());
    let library = sdk.join("src/lib.rs").display().to_string();
    let source = sdk.join("examples/nodenumber.rs").display().to_string();
    let built = rustc(&["--crate-name", "plimsoll_plugin", "--crate-type", "rlib", "-o", &rlib, &library])
        && rustc(&[
            "--crate-type",
            "cdylib",
            "--extern",
            &format!("plimsoll_plugin={rlib}"),
            "-o",
            &out,
            &source,
        ]);
    built.then_some(wasm)
}

/// Reads the body of an HTTP message.
fn body(reader: &mut impl BufRead) -> Option<Vec<u8>> {
    let mut length = 0;
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line).ok()? == 0 {
            return None;
        }
        let line = line.trim().to_ascii_lowercase();
        if line.is_empty() {
            break;
        }
        if let Some(n) = line.strip_prefix("content-length:") {
            length = n.trim().parse().ok()?;
        }
    }
    let mut bytes = vec![0; length];
    reader.read_exact(&mut bytes).ok()?;
    Some(bytes)
}

/// An extender on loopback that knows the nodes (`nodeCacheCapable`): it gets names and the pod.
fn serve() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let _ = stream.set_nodelay(true);
            let (mut reader, mut writer) = (BufReader::new(stream.try_clone().unwrap()), stream);
            while let Some(bytes) = body(&mut reader) {
                let args: Value = serde_json::from_slice(&bytes).unwrap();
                let wanted = digit(args["Pod"]["metadata"]["name"].as_str().unwrap());
                let score = |name: &Value| {
                    let name = name.as_str().unwrap();
                    json!({"Host": name, "Score": if digit(name) == wanted { 10 } else { 0 }})
                };
                let answer: Vec<Value> = args["NodeNames"].as_array().unwrap().iter().map(score).collect();
                let text = Value::Array(answer).to_string();
                let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", text.len());
                writer.write_all(format!("{head}{text}").as_bytes()).unwrap();
            }
        }
    });
    address
}

/// A connection to an extender, kept open.
struct Connection {
    reader: BufReader<TcpStream>,
    writer: TcpStream,
}

impl Connection {
    fn new(address: &str) -> Self {
        let writer = TcpStream::connect(address).unwrap();
        writer.set_nodelay(true).unwrap();
        Self { reader: BufReader::new(writer.try_clone().unwrap()), writer }
    }

    fn prioritize(&mut self, pod: &str, nodes: &[String]) -> Vec<(String, i64)> {
        let pod = json!({"metadata": {"name": pod, "namespace": "default"}, "spec": {"containers": [{"name": "main"}]}});
        let text = json!({"Pod": pod, "Nodes": null, "NodeNames": nodes}).to_string();
        let head =
            format!("POST /prioritize HTTP/1.1\r\nhost: extender\r\ncontent-length: {}\r\n\r\n", text.len());
        self.writer.write_all(format!("{head}{text}").as_bytes()).unwrap();
        let answer: Value = serde_json::from_slice(&body(&mut self.reader).unwrap()).unwrap();
        let row = |row: &Value| (row["Host"].as_str().unwrap().to_owned(), row["Score"].as_i64().unwrap());
        answer.as_array().unwrap().iter().map(row).collect()
    }
}

fn node(i: usize) -> Node {
    let amounts = [("cpu", 64_000), ("memory", 1 << 38), ("pods", 110)];
    Node {
        uid: format!("uid-{i}"),
        name: format!("node-{i}"),
        labels: [("number".to_owned(), (i % 10).to_string())].into(),
        allocatable: amounts.map(|(key, amount)| (key.to_owned(), amount)).into(),
        ..Node::default()
    }
}

/// The median of decisions about pods among so many nodes, in microseconds.
fn decide(config: &Config, nodes: usize) -> f64 {
    let mut scheduler = Scheduler::new(config.clone());
    let mut extender = config.extenders.first().map(|e| Connection::new(&e.url_prefix));
    for i in 0..nodes {
        scheduler.handle_object(Time::default(), &ObjectEvent::NodeUpsert(Box::new(node(i))));
    }
    let (mut took, mut why) = (Vec::new(), String::new());
    for i in 0..DECISIONS + WARM_UP {
        let now = Time::from_seconds(1);
        let name = format!("pod-{i}");
        let mut pod =
            Pod { uid: name.clone(), namespace: "default".into(), name: name.clone(), ..Pod::default() };
        "default-scheduler".clone_into(&mut pod.spec.scheduler_name);
        scheduler.handle_object(now, &ObjectEvent::PodUpsert(Box::new(pod)));
        let mut bound = None;
        let began = Instant::now();
        loop {
            let mut asked = None;
            scheduler.decide(now, &mut |action| match action {
                Action::Bind { node, .. } => bound = Some(node),
                Action::Extend { pod, extender, call, what: ExtenderCall::Prioritize(nodes) } => {
                    asked = Some((pod.uid, extender, call, nodes));
                }
                Action::Unschedulable { message, .. } => why = message,
                _ => {}
            });
            let (Some((uid, number, call, nodes)), Some(connection)) = (asked, extender.as_mut()) else {
                break;
            };
            let answer = Ok(ExtenderAnswer::Prioritize(connection.prioritize(&name, &nodes)));
            scheduler.handle(now, Event::Extended { uid, extender: number, call, answer });
        }
        took.push(began.elapsed().as_secs_f64() * 1e6);
        assert!(bound.is_some(), "pod {i} among {nodes} nodes: {why}");
        scheduler.handle(now, Event::Bound(name));
    }
    let mut took = took.split_off(WARM_UP);
    took.sort_by(f64::total_cmp);
    took[took.len() / 2]
}

fn forms(dir: &Path) -> (Vec<Form>, Vec<String>) {
    let mut all = vec![
        Form { name: "compiled in", config: compiled_in(false) },
        Form { name: "expression", config: expression() },
    ];
    let mut missing = Vec::new();
    match build(dir) {
        Some(module) => all.push(Form { name: "guest with columns", config: guest(&module) }),
        None => missing.push("guest with columns: rustup target add wasm32-unknown-unknown".to_owned()),
    }
    let checkout = std::env::var_os("PLIMSOLL_WASM_GUESTS").map(PathBuf::from);
    let module = checkout.map(|dir| dir.join("examples/nodenumber/main.wasm")).filter(|path| path.is_file());
    match module.and_then(|path| std::fs::canonicalize(path).ok()) {
        Some(module) => all.push(Form { name: "compatible guest", config: guest(&module) }),
        None => missing.push("compatible guest: PLIMSOLL_WASM_GUESTS names no checkout with it".to_owned()),
    }
    let extender = Extender {
        url_prefix: serve(),
        prioritize_verb: "prioritize".to_owned(),
        weight: 1,
        node_cache_capable: true,
        timeout: plimsoll_state::time::Duration::from_seconds(5),
        ..Extender::default()
    };
    let config = profile(&Registry::in_tree(), None, None);
    all.push(Form { name: "HTTP extender", config: Config { extenders: vec![extender], ..config } });
    (all, missing)
}

fn main() {
    let dir = std::env::temp_dir().join(format!("plimsoll-costs-{}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    let (mut forms, missing) = forms(&dir);
    forms.push(Form { name: "the cycle alone", config: compiled_in(true) });
    let rows: Vec<(&str, [f64; 3])> =
        forms.iter().map(|form| (form.name, NODES.map(|nodes| decide(&form.config, nodes)))).collect();
    if std::env::args().any(|arg| arg == "--json") {
        let row =
            |(name, took): &(&str, [f64; 3])| json!({"form": name, "nodes": NODES, "microseconds": took});
        println!("{}", Value::Array(rows.iter().map(row).collect()));
    } else {
        println!("{:<20} {:>10} {:>10} {:>10}", "FORM", "100 NODES", "1,000", "5,000");
        for (name, [a, b, c]) in rows {
            println!("{name:<20} {a:>10.1} {b:>10.1} {c:>10.1}");
        }
    }
    missing.iter().for_each(|what| eprintln!("left out: {what}"));
    let _ = std::fs::remove_dir_all(dir);
}

//! Guests in WebAssembly, which anybody may have written: a module is compiled, checked and started whatever it is, and host
//! functions are called with whatever places and lengths a guest comes up with.

use std::fmt::Write as _;
use std::sync::Arc;

use plimsoll_wasm::fast::{Backend, FastGuest, Wasm};
use plimsoll_wasm::{Guest, Params, Settings};

use crate::Cursor;

/// Host functions of the compatible interface: module, name, parameters, whether there is a result.
const HOST: [(&str, &str, usize, bool); 24] = [
    ("k8s.io/api", "node", 4, true),
    ("k8s.io/api", "nodeList", 2, true),
    ("k8s.io/scheduler", "get_config", 2, true),
    ("k8s.io/scheduler", "currentPod", 2, true),
    ("k8s.io/scheduler", "targetPod", 2, true),
    ("k8s.io/scheduler", "currentNodeName", 2, true),
    ("k8s.io/scheduler", "filteredNodeList", 2, true),
    ("k8s.io/scheduler", "nodeToStatusMap", 2, true),
    ("k8s.io/scheduler", "nodeScoreList", 2, true),
    ("k8s.io/scheduler", "nodeImageStates", 4, true),
    ("k8s.io/scheduler", "result.node_names", 2, false),
    ("k8s.io/scheduler", "result.nominated_node_name", 2, false),
    ("k8s.io/scheduler", "result.normalized_score_list", 2, false),
    ("k8s.io/scheduler", "result.cluster_events", 2, false),
    ("k8s.io/scheduler", "result.status_reason", 2, false),
    ("k8s.io/scheduler", "handle.eventrecorder.eventf", 2, false),
    ("k8s.io/scheduler", "handle.reject_waiting_pod", 4, false),
    ("k8s.io/scheduler", "handle.get_waiting_pod", 4, false),
    ("k8s.io/klog", "log", 3, false),
    ("k8s.io/klog", "logs", 5, false),
    ("wasi_snapshot_preview1", "fd_write", 4, true),
    ("wasi_snapshot_preview1", "random_get", 2, true),
    ("wasi_snapshot_preview1", "args_get", 2, true),
    ("wasi_snapshot_preview1", "args_sizes_get", 2, true),
];

/// Most calls of one guest.
const CALLS: usize = 12;

/// Compiles, checks and starts a module.
pub fn module(bytes: &[u8]) {
    let _ = plimsoll_wasm::check(bytes, "config");
}

/// Calls host functions and returns values that the input chooses, in guests of both interfaces.
pub fn calls(bytes: &[u8]) {
    let mut cursor = Cursor::new(bytes);
    compatible(&mut cursor);
    columns(&mut cursor);
}

/// A place or a length: often one that could be right, or just beside.
fn word(cursor: &mut Cursor<'_>) -> i32 {
    let near = [0, 1, 8, 100, 65_528, 65_535, 65_536, 65_537, i32::MAX, i32::MIN, -1, -8];
    match cursor.once_in(3) {
        true => cursor.number() as i32,
        false => cursor.pick(&near),
    }
}

/// Bytes for the memory, as text of a module.
fn data(cursor: &mut Cursor<'_>) -> String {
    let mut out = String::new();
    for _ in 0..cursor.below(200) {
        let _ = write!(out, "\\{:02x}", cursor.byte());
    }
    out
}

fn compatible(cursor: &mut Cursor<'_>) {
    let (mut imports, mut body) = (String::new(), String::new());
    for (i, (module, name, params, result)) in HOST.iter().enumerate() {
        let (params, result) = ("i32 ".repeat(*params), if *result { "(result i32)" } else { "" });
        let _ = write!(imports, "(import \"{module}\" \"{name}\" (func $f{i} (param {params}) {result}))");
    }
    for _ in 0..cursor.below(CALLS) {
        let i = cursor.below(HOST.len());
        let (_, _, params, result) = HOST[i];
        let args: String = (0..params).map(|_| format!("(i32.const {}) ", word(cursor))).collect();
        let call = format!("(call $f{i} {args})");
        body.push_str(&if result { format!("(drop {call})") } else { call });
    }
    let text = format!(
        r#"(module {imports} (memory (export "memory") 1) (data (i32.const 0) "{}")
        (func (export "filter") (result i32) {body} (i32.const {})))"#,
        data(cursor),
        word(cursor)
    );
    let module = wat::parse_str(text).expect("the text is a module");
    let guest = Guest::new(&module, Settings::default()).expect("the module is a guest");
    let mut instance = guest.instantiate(0).expect("the guest has no main function");
    let params = || Params {
        current_pod: Arc::from(&b"pod"[..]),
        node_name: "node".to_owned(),
        filtered_nodes: vec!["node".to_owned()],
        ..Params::default()
    };
    if let Ok(answer) = instance.call("filter", params()) {
        assert!(answer.results.reason.len() <= 3 * 4096, "a reason is cut");
        // It goes on where nothing failed.
        let _ = instance.call("filter", params());
    }
}

fn columns(cursor: &mut Cursor<'_>) {
    let manifest = r#"{\22points\22:[\22preFilter\22,\22filter\22,\22score\22,\22reserve\22,\22permit\22,\22postBind\22,\22workload\22,\22flavor\22,\22victim\22],\22charges\22:true,\22node\22:{\22resources\22:[\22cpu\22],\22labels\22:[\22a\22]},\22reasons\22:[{\22text\22:\22no\22}]}"#;
    let len = manifest.replace("\\22", "\"").len();
    let place = match cursor.once_in(4) {
        true => cursor.number(),
        false => (1024 << 32) | i64::try_from(len).unwrap_or(0),
    };
    let mut calls = String::new();
    for _ in 0..cursor.below(CALLS) {
        let args = [word(cursor), word(cursor), word(cursor)].map(|n| format!("(i32.const {n})"));
        let _ = match cursor.once_in(2) {
            true => write!(calls, "(call $reason {} {})", args[0], args[1]),
            false => write!(calls, "(drop (call $text {} {} {}))", args[0], args[1], args[2]),
        };
    }
    let alloc = match cursor.once_in(3) {
        true => word(cursor),
        false => 4096,
    };
    let status = word(cursor);
    let long = match cursor.once_in(3) {
        // A place with room for a ruling.
        true => (2048 << 32) | i64::from(cursor.byte()),
        false => cursor.number(),
    };
    let text = format!(
        r#"(module
        (import "plimsoll" "reason" (func $reason (param i32 i32)))
        (import "plimsoll" "text" (func $text (param i32 i32 i32) (result i32)))
        (memory (export "memory") 2)
        (data (i32.const 1024) "{manifest}")
        (data (i32.const 2048) "{}")
        (func (export "plimsoll_plugin_v1"))
        (func (export "alloc") (param i32) (result i32) (i32.const {alloc}))
        (func (export "configure") (param i32 i32) (result i32) (i32.const 0))
        (func (export "manifest") (result i64) (i64.const {place}))
        (func (export "columns") (param i32 i32) {calls})
        (func (export "charges") (param i32 i32) (result i64) (i64.const {long}))
        (func (export "pre_filter") (param i32 i32) (result i32) {calls} (i32.const {status}))
        (func (export "filter") (param i32 i32 i32) (result i32) {calls} (i32.const 0))
        (func (export "score") (param i32 i32 i32) (result i32) (i64.store (local.get 2) (i64.const {long})) (i32.const 0))
        (func (export "reserve") (param i32 i32) (result i32) {calls} (i32.const {status}))
        (func (export "permit") (param i32 i32) (result i64) (i64.const {long}))
        (func (export "post_bind") (param i32 i32) {calls})
        (func (export "workload") (param i32 i32) (result i64) {calls} (i64.const {long}))
        (func (export "flavor") (param i32 i32) (result i64) {calls} (i64.const {long}))
        (func (export "victim") (param i32 i32) (result i32) {calls} (i32.const {status})))"#,
        data(cursor)
    );
    let guest = FastGuest::new(&wat::parse_str(text).expect("the text is a module")).expect("a guest");
    let Ok(mut wasm) = Wasm::new(guest, "") else { return };
    let mut table = plimsoll_plugin::Table::new(wasm.manifest());
    table.grow(usize::from(cursor.byte()));
    let rows: Vec<u32> = (0..u32::try_from(table.rows).unwrap_or(0)).collect();
    let pod = plimsoll_plugin::Pod::default();
    let _ = wasm.charges(&pod);
    let _ = wasm.pre_filter(&pod);
    if let Ok(answers) = wasm.filter(&pod, &mut table, &rows) {
        assert!(answers.len() == rows.len() && answers.iter().all(|answer| *answer <= 1));
    }
    if let Ok(scores) = wasm.score(&pod, &mut table, &rows) {
        assert_eq!(scores.len(), rows.len());
    }
    let _ = wasm.reserve(&pod);
    let _ = wasm.permit(&pod);
    let _ = wasm.post_bind(&pod);
    let workload = plimsoll_plugin::Workload::default();
    let flavors = vec![plimsoll_plugin::Flavor::default(); usize::from(cursor.byte())];
    let _ = wasm.rule(&workload);
    if let Ok(scores) = wasm.score_flavors(&workload, &flavors) {
        assert_eq!(scores.len(), flavors.len());
    }
    let _ = wasm.victim_order(&workload);
}

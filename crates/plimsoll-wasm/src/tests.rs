//! Guests in text form: each point of the interface, and guests that mean harm.

#![allow(clippy::unwrap_used)]

use std::sync::Arc;

use plimsoll_state::model::{Node, Pod};

use crate::{Answer, Guest, Instance, Nodes, Params, Settings, encode_pod};

thread_local! {
    /// How many calls of guests there were on this thread.
    pub static CALLS: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

const MEMORY: &str = r#"(memory (export "memory") 1)"#;

fn guest(body: &str) -> Result<Guest, String> {
    let bytes = wat::parse_str(format!("(module {body})")).unwrap();
    let settings = Settings { name: "guest".into(), config: "hello".into(), ..Settings::default() };
    Guest::new(&bytes, settings)
}

fn instance(body: &str) -> Instance {
    guest(body).unwrap().instantiate(7).unwrap()
}

fn call(body: &str, function: &str) -> Result<Answer, String> {
    instance(body).call(function, Params::default())
}

/// The error of a guest whose filter has this body.
fn error(body: &str) -> String {
    let module = format!(r#"{MEMORY} (func (export "filter") (result i32) {body})"#);
    call(&module, "filter").unwrap_err()
}

#[test]
fn guests_that_are_no_plugins_are_refused() {
    for (body, want) in [
        ("", "wasm: guest doesn't export memory[memory]"),
        (r#"(func (export "memory"))"#, "wasm: guest doesn't export memory[memory]"),
        (MEMORY, "wasm: guest does not export any plugin functions"),
        (
            r#"(memory (export "memory") 1) (func (export "filter") (result i64) (i64.const 0))"#,
            "wasm: guest exports the wrong signature for func[filter]. should be () -> (i32)",
        ),
        (
            r#"(memory (export "memory") 1) (func (export "score") (param i32) (result i64) (i64.const 0))"#,
            "wasm: guest exports the wrong signature for func[score]. should be () -> (i64)",
        ),
        (
            r#"(memory (export "memory") 1) (func (export "enqueue"))"#,
            "wasm: filter, score, reserve, permit or bind must be exported",
        ),
    ] {
        assert_eq!(guest(body).unwrap_err(), want);
    }
    for bytes in [&b""[..], b"\0asm", b"no module at all"] {
        let error = Guest::new(bytes, Settings::default()).unwrap_err();
        assert!(error.starts_with("wasm: error compiling guest: "), "{error}");
    }
}

#[test]
fn unknown_imports_are_named() {
    let body = format!(
        r#"(import "env" "exec" (func)) {MEMORY} (func (export "filter") (result i32) (i32.const 0))"#
    );
    let error = guest(&body).unwrap().instantiate(0).unwrap_err();
    assert!(error.contains("unknown import: `env::exec`"), "{error}");
}

#[test]
fn a_guest_that_loops_is_stopped() {
    let limit = "it executed more than 2000000000 instructions";
    assert_eq!(error("(loop (br 0)) (unreachable)"), format!("wasm: filter error: {limit}"));
    let start = format!(
        r#"{MEMORY} (func (export "_start") (loop (br 0))) (func (export "filter") (result i32) (i32.const 0))"#
    );
    let error = guest(&start).unwrap().instantiate(0).unwrap_err();
    assert_eq!(error, format!("failed to create a guest pool: wasm: instantiate error: {limit}"));
}

#[test]
fn a_guest_that_only_calls_the_host_is_stopped() {
    let body = r#"
        (import "k8s.io/api" "nodeList" (func $list (param i32 i32) (result i32)))
        (memory (export "memory") 600)
        (func (export "filter") (result i32)
            (loop (drop (call $list (i32.const 0) (i32.const 30000000))) (br 0)) (unreachable))"#;
    let labels = std::iter::once(("x".to_owned(), "y".repeat(1000))).collect();
    let node = |i| Arc::new(Node { name: format!("n{i}"), labels, ..Node::default() });
    let nodes = Nodes::new(std::iter::once(node(0)));
    let params = Params { nodes: Arc::new(nodes), ..Params::default() };
    let error = instance(body).call("filter", params).unwrap_err();
    assert!(error.contains("more than 2000000000 instructions"), "{error}");
}

#[test]
fn memory_tables_and_the_stack_are_bounded() {
    let grow = "(loop (br_if 0 (i32.ne (memory.grow (i32.const 16)) (i32.const -1)))) (memory.size)";
    let module = format!(r#"{MEMORY} (func (export "filter") (result i32) {grow})"#);
    let pages = call(&module, "filter").unwrap().low();
    assert!(pages <= 2048, "128 MiB at most: {pages} pages");
    let module = format!(
        r#"{MEMORY} (table $t 1 funcref) (func (export "filter") (result i32)
            (table.grow $t (ref.null func) (i32.const 1000000)))"#
    );
    assert_eq!(call(&module, "filter").unwrap().low(), -1);
    let huge = r#"(memory (export "memory") 4000) (func (export "filter") (result i32) (i32.const 0))"#;
    assert!(guest(huge).unwrap().instantiate(0).is_err());
    let module = format!(r#"{MEMORY} (func $f (export "filter") (result i32) (call $f))"#);
    assert_eq!(call(&module, "filter").unwrap_err(), "wasm: filter error: wasm error: stack overflow");
}

#[test]
fn traps_are_errors_of_one_call() {
    for (body, want) in [
        ("(unreachable)", "unreachable"),
        ("(i32.load (i32.const -8))", "out of bounds memory access"),
        ("(i32.div_s (i32.const 1) (i32.const 0))", "integer divide by zero"),
        ("(i32.div_s (i32.const -2147483648) (i32.const -1))", "integer overflow"),
        ("(i32.trunc_f32_s (f32.const nan))", "invalid conversion to integer"),
    ] {
        assert_eq!(error(body), format!("wasm: filter error: wasm error: {want}"));
    }
}

#[test]
fn places_outside_of_the_memory_are_errors() {
    for (import, call) in [
        (
            r#""k8s.io/scheduler" "get_config" (func $f (param i32 i32) (result i32))"#,
            "(call $f (i32.const -1) (i32.const 99))",
        ),
        (
            r#""k8s.io/api" "node" (func $f (param i32 i32 i32 i32) (result i32))"#,
            "(call $f (i32.const -9) (i32.const 99) (i32.const 0) (i32.const 9))",
        ),
        (
            r#""k8s.io/scheduler" "result.node_names" (func $f (param i32 i32))"#,
            "(call $f (i32.const 0) (i32.const -1)) (i32.const 0)",
        ),
        (
            r#""k8s.io/scheduler" "result.cluster_events" (func $f (param i32 i32))"#,
            "(call $f (i32.const 65530) (i32.const 8)) (i32.const 0)",
        ),
        (
            r#""k8s.io/scheduler" "result.normalized_score_list" (func $f (param i32 i32))"#,
            "(call $f (i32.const 0) (i32.const 8)) (i32.const 0)",
        ),
        (
            r#""k8s.io/scheduler" "handle.eventrecorder.eventf" (func $f (param i32 i32))"#,
            "(call $f (i32.const 0) (i32.const 8)) (i32.const 0)",
        ),
        (
            r#""k8s.io/scheduler" "handle.reject_waiting_pod" (func $f (param i32 i32 i32 i32))"#,
            "(call $f (i32.const 0) (i32.const 1) (i32.const -1) (i32.const 8)) (i32.const 0)",
        ),
        (
            r#""wasi_snapshot_preview1" "fd_write" (func $f (param i32 i32 i32 i32) (result i32))"#,
            "(call $f (i32.const 1) (i32.const 0) (i32.const -1) (i32.const 0))",
        ),
        (
            r#""wasi_snapshot_preview1" "random_get" (func $f (param i32 i32) (result i32))"#,
            "(call $f (i32.const 0) (i32.const -1))",
        ),
    ] {
        let body = format!(r#"(import {import}) {MEMORY} (func (export "filter") (result i32) {call})"#);
        let mut guest = instance(&body);
        let error = guest.call("filter", Params::default()).unwrap_err();
        assert!(error.starts_with("wasm: filter error: "), "{import}: {error}");
    }
}

#[test]
fn results_come_back_at_each_point() {
    let body = r#"
        (import "k8s.io/scheduler" "get_config" (func $config (param i32 i32) (result i32)))
        (import "k8s.io/scheduler" "result.status_reason" (func $reason (param i32 i32)))
        (import "k8s.io/scheduler" "result.node_names" (func $names (param i32 i32)))
        (import "k8s.io/scheduler" "result.normalized_score_list" (func $scores (param i32 i32)))
        (import "k8s.io/scheduler" "result.cluster_events" (func $events (param i32 i32)))
        (memory (export "memory") 1)
        (data (i32.const 100) "a\00b\00")
        (data (i32.const 200) "{\22a\22: 7}")
        (data (i32.const 300) "\01\00\00\00\02\00\00\00")
        (func (export "enqueue") (call $events (i32.const 300) (i32.const 8)))
        (func (export "prefilter") (result i32) (call $names (i32.const 100) (i32.const 4)) (i32.const 0))
        (func (export "filter") (result i32)
            (call $reason (i32.const 0) (call $config (i32.const 0) (i32.const 50))) (i32.const 2))
        (func (export "score") (result i64) (i64.const 0x0000000700000000))
        (func (export "normalizescore") (result i32) (call $scores (i32.const 200) (i32.const 8)) (i32.const 0))
        (func (export "permit") (result i64) (i64.const 0x0000000400002710))"#;
    let mut guest = instance(body);
    let mut call = |function: &str| guest.call(function, Params::default()).unwrap();
    assert_eq!(call("enqueue").results.events, [(1, 2)]);
    assert_eq!(call("prefilter").results.node_names, Some(vec!["a".to_owned(), "b".to_owned()]));
    let filter = call("filter");
    assert_eq!((filter.low(), filter.results.reason.as_str()), (2, "hello"));
    let score = call("score");
    assert_eq!((score.low(), score.high(), score.results.reason.as_str()), (0, 7, ""));
    assert_eq!(call("normalizescore").results.scores, Some(std::iter::once(("a".to_owned(), 7)).collect()));
    let permit = call("permit");
    assert_eq!((permit.high(), permit.low()), (4, 10_000), "the other way round");
}

#[test]
fn a_value_that_does_not_fit_is_not_written() {
    let body = r#"
        (import "k8s.io/scheduler" "currentPod" (func $pod (param i32 i32) (result i32)))
        (memory (export "memory") 1)
        (func (export "filter") (result i32) (drop (call $pod (i32.const 0) (i32.const 5))) (i32.load (i32.const 0)))
        (func (export "reserve") (result i32) (call $pod (i32.const 0) (i32.const 500)))"#;
    let pod = encode_pod(&Pod { name: "some-pod".to_owned(), ..Pod::default() });
    let params = Params { current_pod: Arc::clone(&pod), ..Params::default() };
    let mut guest = instance(body);
    assert_eq!(guest.call("filter", params.clone()).unwrap().low(), 0, "not written");
    assert_eq!(guest.call("reserve", params).unwrap().low() as usize, pod.len());
}

#[test]
fn runs_repeat() {
    let body = r#"
        (import "wasi_snapshot_preview1" "random_get" (func $random (param i32 i32) (result i32)))
        (import "wasi_snapshot_preview1" "clock_time_get" (func $clock (param i32 i64 i32) (result i32)))
        (memory (export "memory") 1)
        (func (export "score") (result i64) (drop (call $random (i32.const 0) (i32.const 8))) (i64.load (i32.const 0)))
        (func (export "permit") (result i64)
            (drop (call $clock (i32.const 0) (i64.const 1) (i32.const 8))) (i64.load (i32.const 8)))"#;
    let guest = guest(body).unwrap();
    let run = || {
        let mut guest = guest.instantiate(0).unwrap();
        let params = Params { now: 42, ..Params::default() };
        let numbers: Vec<u64> = (0..3).map(|_| guest.call("score", params.clone()).unwrap().value).collect();
        assert_eq!(guest.call("permit", params).unwrap().value, 42, "the clock of the engine");
        numbers
    };
    let first = run();
    assert_eq!(first, run());
    assert!(first[0] != first[1]);
}

//! Scheduler plugins in WebAssembly, through the front door.

#![allow(clippy::unwrap_used, clippy::panic)]

use crate::common::binary;
use serde_json::{Value, json};

fn profile(scheduler: &str, plugin: &str, guest: &str) -> Value {
    json!({
        "schedulerName": scheduler,
        "plugins": {"multiPoint": {"enabled": [{"name": plugin, "weight": 1000}]}},
        "pluginConfig": [{"name": plugin, "args": {"guestURL": guest}}],
    })
}

fn configuration(profiles: &[Value]) -> String {
    json!({
        "apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration", "profiles": profiles,
    })
    .to_string()
}

#[test]
fn a_guest_that_can_not_run_is_refused_before_anything_starts() {
    let dir = crate::common::directory();
    let config = dir.join("scheduler");
    let guest = profile("default-scheduler", "two", "http://example.org/guest.wasm");
    std::fs::write(&config, configuration(&[guest])).unwrap();
    let out = binary().args(["up", "--port", "0", "--scheduler-config"]).arg(&config).output().unwrap();
    let text = String::from_utf8_lossy(&out.stderr);
    assert!(!out.status.success());
    let why =
        if cfg!(feature = "wasm") { "http:// needs a checksum" } else { "build it with --features wasm" };
    assert!(text.contains("profiles[0].pluginConfig[0].args.guestURL: ") && text.contains(why), "{text}");
    std::fs::remove_dir_all(&dir).unwrap();
}

#[cfg(feature = "wasm")]
mod running {
    use std::path::Path;

    use super::{configuration, profile};
    use crate::common::run::get;
    use crate::common::{Up, binary, condition};
    use crate::reload::event;
    use plimsoll_api::json;
    use plimsoll_runtime::api::{EVENTS, NODES, PODS, PatchKind};
    use serde_json::{Value, json};

    /// A guest of the columnar interface: `score` is the body of a function from a node's `rank` (`i64`, local 0) to its
    /// score; nodes without a positive rank are rejected. `numbers`: where the rank is, in the words of the manifest.
    fn columnar(numbers: &str, score: &str) -> Vec<u8> {
        let reasons = r#"[{"text":"node(s) without a rank"}]"#;
        let manifest =
            format!(r#"{{"points":["filter","score"],"node":{{"{numbers}":["rank"]}},"reasons":{reasons}}}"#);
        let (data, length) = (manifest.replace('"', "\\22"), manifest.len());
        let rows = |each: &str| {
            format!(
                r#"(param $rows i32) (param $n i32) (param $out i32) (result i32) (local $i i32)
                (loop $next
                    (if (i32.lt_u (local.get $i) (local.get $n)) (then
                        {each}
                        (local.set $i (i32.add (local.get $i) (i32.const 1)))
                        (br $next))))
                (i32.const 0)"#
            )
        };
        let filter = rows(
            r#"(i32.store8 (i32.add (local.get $out) (local.get $i))
                (i64.le_s (call $rank (local.get $rows) (local.get $i)) (i64.const 0)))"#,
        );
        let scores = rows(
            r#"(i64.store (i32.add (local.get $out) (i32.mul (local.get $i) (i32.const 8)))
                (call $score (call $rank (local.get $rows) (local.get $i))))"#,
        );
        let text = format!(
            r#"(module
            (memory (export "memory") 2)
            (data (i32.const 1024) "{data}")
            (global $top (mut i32) (i32.const 8192))
            (global $columns (mut i32) (i32.const 0))
            (func (export "plimsoll_plugin_v1"))
            (func (export "alloc") (param $n i32) (result i32)
                (global.get $top)
                (global.set $top (i32.and (i32.add (i32.add (global.get $top) (local.get $n)) (i32.const 7)) (i32.const -8)))
                (drop (memory.grow (i32.add (i32.div_u (local.get $n) (i32.const 65536)) (i32.const 1)))))
            (func (export "configure") (param i32 i32) (result i32) (i32.const 0))
            (func (export "manifest") (result i64)
                (i64.or (i64.shl (i64.const 1024) (i64.const 32)) (i64.const {length})))
            (func (export "columns") (param i32 i32) (global.set $columns (local.get 0)))
            (func (export "pre_filter") (param i32 i32) (result i32) (i32.const 0))
            (func $rank (param $rows i32) (param $i i32) (result i64)
                (i64.load (i32.add
                    (i32.load (global.get $columns))
                    (i32.mul (i32.load (i32.add (local.get $rows) (i32.mul (local.get $i) (i32.const 4)))) (i32.const 8)))))
            (func $score (param i64) (result i64) {score})
            (func (export "filter") {filter})
            (func (export "score") {scores}))"#
        );
        wat::parse_str(text).unwrap()
    }

    /// A guest of kube-scheduler-wasm-extension that passes the node whose name ends with a digit, and nodes with `OPEN`
    /// somewhere. It traps about a pod with `TRAP` somewhere.
    fn compatible(digit: u8) -> Vec<u8> {
        let code = b'0' + digit;
        let text = format!(
            r#"(module
            (import "k8s.io/api" "node" (func $node (param i32 i32 i32 i32) (result i32)))
            (import "k8s.io/scheduler" "currentPod" (func $pod (param i32 i32) (result i32)))
            (import "k8s.io/scheduler" "currentNodeName" (func $name (param i32 i32) (result i32)))
            (import "k8s.io/scheduler" "result.status_reason" (func $reason (param i32 i32)))
            (memory (export "memory") 3)
            (data (i32.const 0) "not number {digit}")
            (func $has (param $length i32) (param $word i32) (result i32) (local $at i32)
                (loop $next
                    (if (i32.eq (i32.load offset=65536 (local.get $at)) (local.get $word)) (then (return (i32.const 1))))
                    (local.set $at (i32.add (local.get $at) (i32.const 1)))
                    (br_if $next (i32.lt_u (local.get $at) (local.get $length))))
                (i32.const 0))
            (func (export "filter") (result i32) (local $length i32)
                (if (call $has (call $pod (i32.const 65536) (i32.const 65536)) (i32.const 0x50415254)) (then (unreachable)))
                (local.set $length (call $name (i32.const 100) (i32.const 300)))
                (if (call $has
                        (call $node (i32.const 100) (local.get $length) (i32.const 65536) (i32.const 65536))
                        (i32.const 0x4e45504f))
                    (then (return (i32.const 0))))
                (if (i32.eq (i32.load8_u (i32.add (i32.const 99) (local.get $length))) (i32.const {code}))
                    (then (return (i32.const 0))))
                (call $reason (i32.const 0) (i32.const 12))
                (i32.const 2)))"#
        );
        wat::parse_str(text).unwrap()
    }

    /// A new file takes the place of the old one.
    fn write(path: &Path, bytes: &[u8]) {
        let next = path.with_extension("next");
        std::fs::write(&next, bytes).unwrap();
        std::fs::rename(next, path).unwrap();
    }

    fn pod(name: &str, scheduler: &str, selector: &Value) -> Value {
        json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "default"},
            "spec": {
                "schedulerName": scheduler, "nodeSelector": selector,
                "containers": [{"name": "c", "image": "i", "command": ["sleep", "600"]}],
            },
        })
    }

    fn on(node: &str) -> Value {
        json!({"kubernetes.io/hostname": node})
    }

    async fn placed(up: &Up, name: &str, node: &str) {
        up.until_shown(&format!("pod {name} on {node}"), async |up| {
            let pod = up.get(PODS, "default", name).await;
            match json::text(&pod, &["spec", "nodeName"]) {
                found if found == node => Ok(()),
                found => Err(format!("{found:?}, {:?}", condition(&pod, "PodScheduled"))),
            }
        })
        .await;
    }

    async fn waits(up: &Up, name: &str, reason: &str, why: &str) {
        up.until_shown(&format!("pod {name}: {why}"), async |up| {
            let pod = up.get(PODS, "default", name).await;
            let (_, found, message) = condition(&pod, "PodScheduled");
            if found == reason && message.contains(why) { Ok(()) } else { Err(format!("{found}: {message}")) }
        })
        .await;
    }

    fn status(url: &str) -> String {
        let out = binary().args(["plugins", "status", "--server", url]).output().unwrap();
        assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
        String::from_utf8(out.stdout).unwrap()
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn guests_of_both_interfaces_decide_and_are_replaced() {
        let dir = crate::common::directory();
        let (ranks, numbers) = (dir.join("ranks.wasm"), dir.join("numbers.wasm"));
        write(&ranks, &columnar("numbers", "(local.get 0)"));
        write(&numbers, &compatible(2));
        let url = |path: &Path| format!("file://{}", path.display());
        let config = dir.join("scheduler");
        let profiles =
            [profile("columns", "ranks", &url(&ranks)), profile("calls", "numbers", &url(&numbers))];
        std::fs::write(&config, configuration(&profiles)).unwrap();
        let named = config.display().to_string();
        let args = ["--nodes", "3", "--scheduler-config", &named, "--metrics-bind-address", "127.0.0.1:0"];
        let up = Up::start_in(dir, &args).await;
        let server = up.ready["metrics"].as_str().unwrap().to_owned();
        for (node, rank) in [("node-1", "70"), ("node-0", "10"), ("node-2", "0")] {
            let label = json!({"metadata": {"labels": {"rank": rank}}});
            up.api.patch(NODES, "", node, "", PatchKind::Merge, &label).await.unwrap();
        }
        for (name, scheduler, selector) in [
            ("high", "columns", json!({})),
            ("unranked", "columns", on("node-2")),
            ("two", "calls", json!({})),
            ("not-two", "calls", on("node-0")),
        ] {
            up.create(&pod(name, scheduler, &selector)).await.unwrap();
        }
        placed(&up, "high", "node-1").await;
        placed(&up, "two", "node-2").await;
        waits(&up, "unranked", "Unschedulable", "1 node(s) without a rank").await;
        waits(&up, "not-two", "Unschedulable", "1 not number 2").await;

        // A label that the guest reads lets the pod in.
        let label = json!({"metadata": {"labels": {"rank": "5"}}});
        up.api.patch(NODES, "", "node-2", "", PatchKind::Merge, &label).await.unwrap();
        placed(&up, "unranked", "node-2").await;

        // So does an annotation, of which the other guest sees the node's whole object.
        up.create(&pod("closed", "calls", &on("node-1"))).await.unwrap();
        waits(&up, "closed", "Unschedulable", "1 not number 2").await;
        let note = |note: &str| json!({"metadata": {"annotations": {"note": note}}});
        up.api.patch(NODES, "", "node-1", "", PatchKind::Merge, &note("OPEN")).await.unwrap();
        placed(&up, "closed", "node-1").await;
        up.api.patch(NODES, "", "node-1", "", PatchKind::Merge, &note("shut")).await.unwrap();

        // A guest that traps ends the attempt of one pod. It sees environments, which mean nothing to the scheduler.
        let mut trap = pod("trap", "calls", &json!({}));
        trap["spec"]["containers"][0]["env"] = json!([{"name": "DOES", "value": "TRAP"}]);
        up.create(&trap).await.unwrap();
        let error = "wasm: filter error: wasm error: unreachable";
        waits(&up, "trap", "SchedulerError", error).await;
        up.until("an event of the pod", async |up| {
            let events = up.list(EVENTS).await;
            let of_pod = |e: &Value| {
                let of = (e["reason"].as_str(), e["regarding"]["name"].as_str());
                of == (Some("FailedScheduling"), Some("trap")) && json::text(e, &["note"]).contains(error)
            };
            events.iter().any(of_pod).then_some(())
        })
        .await;
        let failures = get(&server, "/metrics").1;
        let line = failures.lines().find(|line| line.starts_with("plimsoll_guest_failures_total{"));
        let (labels, n) = line.and_then(|line| line.rsplit_once(' ')).unwrap();
        assert_eq!(labels, r#"plimsoll_guest_failures_total{plugin="numbers",cause="trap"}"#);
        assert!(n.parse::<u32>().unwrap() >= 1);
        up.create(&pod("after", "calls", &json!({}))).await.unwrap();
        placed(&up, "after", "node-2").await;
        let uid = json::uid(&up.get(PODS, "default", "trap").await).to_owned();
        up.api.delete(PODS, "default", "trap", &uid, Some(0)).await.unwrap();

        // New versions decide, about pods that waited, too.
        for (node, rank) in [("node-0", "20"), ("node-1", "30"), ("node-2", "40")] {
            let rank = json!({"metadata": {"annotations": {"rank": rank}}});
            up.api.patch(NODES, "", node, "", PatchKind::Merge, &rank).await.unwrap();
        }
        write(&ranks, &columnar("annotationNumbers", "(i64.sub (i64.const 100) (local.get 0))"));
        write(&numbers, &compatible(0));
        placed(&up, "not-two", "node-0").await;
        up.until_shown("new versions", async |_| {
            let told = status(&server);
            if told.ends_with("\nplugins: as in the files\n") { Ok(()) } else { Err(told) }
        })
        .await;
        up.create(&pod("low", "columns", &json!({}))).await.unwrap();
        placed(&up, "low", "node-0").await;

        // A broken version leaves the one before, of the other guest, too.
        write(&ranks, b"\0asm no more");
        write(&numbers, &compatible(1));
        let note = up.until("a warning", async |up| event(up, "FailedPluginReload").await).await;
        assert!(note.contains("profiles[0].pluginConfig[0].args.guestURL"), "{note}");
        let told = status(&server);
        assert!(
            told.contains("\nplugins: not as in the files, those before go on: ")
                && told.contains("args.guestURL"),
            "{told}"
        );
        for (name, scheduler, node) in [("lower", "columns", "node-0"), ("zero", "calls", "node-0")] {
            up.create(&pod(name, scheduler, &json!({}))).await.unwrap();
            placed(&up, name, node).await;
        }
    }
}

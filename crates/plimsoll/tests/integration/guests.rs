//! Scheduler plugins in WebAssembly, configured as for kube-scheduler-wasm-extension, through the front door.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::path::Path;

use crate::common::binary;
#[cfg(feature = "wasm")]
use crate::common::{Up, condition};
#[cfg(feature = "wasm")]
use plimsoll_api::json;
#[cfg(feature = "wasm")]
use plimsoll_runtime::api::PODS;
use serde_json::{Value, json};

/// Passes nodes whose name ends with a 2.
const GUEST: &str = r#"(module
    (import "k8s.io/scheduler" "currentNodeName" (func $name (param i32 i32) (result i32)))
    (import "k8s.io/scheduler" "result.status_reason" (func $reason (param i32 i32)))
    (memory (export "memory") 1)
    (data (i32.const 0) "not number two")
    (func (export "filter") (result i32) (local $length i32)
        (local.set $length (call $name (i32.const 100) (i32.const 300)))
        (if (i32.eq (i32.load8_u (i32.add (i32.const 99) (local.get $length))) (i32.const 50))
            (then (return (i32.const 0))))
        (call $reason (i32.const 0) (i32.const 14))
        (i32.const 2)))"#;

fn configuration(guest: &str) -> Value {
    json!({
        "apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration",
        "profiles": [{
            "plugins": {"multiPoint": {"enabled": [{"name": "two"}]}},
            "pluginConfig": [{"name": "two", "args": {"guestURL": guest, "logSeverity": 2}}],
        }],
    })
}

fn write(dir: &Path, guest: &str) -> String {
    std::fs::write(dir.join("guest.wasm"), wat::parse_str(GUEST).unwrap()).unwrap();
    let config = dir.join("scheduler");
    std::fs::write(&config, configuration(guest).to_string()).unwrap();
    config.to_string_lossy().into_owned()
}

#[cfg(feature = "wasm")]
#[tokio::test(flavor = "multi_thread")]
async fn a_guest_filters_nodes() {
    let dir = crate::common::directory();
    let config = write(&dir, &format!("file://{}", dir.join("guest.wasm").display()));
    let up = Up::start_in(dir, &["--speed", "10", "--scheduler-config", &config]).await;
    for (name, node) in [("one", ""), ("never", "node-1")] {
        let pod = json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "default"},
            "spec": {
                "containers": [{"name": "c", "image": "i", "command": ["sleep", "600"]}],
                "nodeSelector": match node {
                    "" => json!({}),
                    name => json!({"kubernetes.io/hostname": name}),
                },
            },
        });
        up.create(&pod).await.unwrap();
    }
    up.until("the node that the guest passes", async |up| {
        let pod = up.get(PODS, "default", "one").await;
        (json::text(&pod, &["spec", "nodeName"]) == "node-2").then_some(())
    })
    .await;
    up.until("its reason", async |up| {
        let pod = up.get(PODS, "default", "never").await;
        let (_, reason, message) = condition(&pod, "PodScheduled");
        (reason == "Unschedulable" && message.contains("1 not number two")).then_some(())
    })
    .await;
}

#[test]
fn a_guest_that_can_not_run_is_refused_before_anything_starts() {
    let dir = crate::common::directory();
    let config = write(&dir, "http://example.org/guest.wasm");
    let out = binary().args(["up", "--port", "0", "--scheduler-config", &config]).output().unwrap();
    let text = String::from_utf8_lossy(&out.stderr);
    assert!(!out.status.success());
    let why =
        if cfg!(feature = "wasm") { "http:// needs a checksum" } else { "build it with --features wasm" };
    assert!(text.contains("profiles[0].pluginConfig[0].args.guestURL: ") && text.contains(why), "{text}");
    std::fs::remove_dir_all(&dir).unwrap();
}

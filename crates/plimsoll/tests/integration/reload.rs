//! Plugins that change while the scheduler runs, through the front door.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::path::Path;

use crate::common::run::get;
use crate::common::{Up, binary, condition};
use plimsoll_api::json;
use plimsoll_runtime::api::{EVENTS, PODS};
use serde_json::{Value, json};

/// A configuration with a filter, written as editors and the kubelet do: a new file takes the place of the old one.
fn write(path: &Path, filter: &str) {
    let text = json!({
        "apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration",
        "profiles": [{
            "plugins": {"multiPoint": {"enabled": [{"name": "Expression/teams"}]}},
            "pluginConfig": [{"name": "Expression/teams", "args": {"filter": filter, "reason": "node(s) not wanted"}}],
        }],
    });
    let next = path.with_extension("next");
    std::fs::write(&next, text.to_string()).unwrap();
    std::fs::rename(next, path).unwrap();
}

fn pod(name: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "default"},
        "spec": {"containers": [{"name": "c", "image": "i", "command": ["sleep", "600"]}]},
    })
}

/// The message of the event with this reason about plugins.
pub async fn event(up: &Up, reason: &str) -> Option<String> {
    let events = up.list(EVENTS).await;
    let found = events.iter().find(|event| event["reason"] == reason)?;
    assert_eq!(found["regarding"]["name"], "plimsoll");
    Some(found["note"].as_str().unwrap_or_default().to_owned())
}

fn status(url: &str) -> String {
    let out = binary().args(["plugins", "status", "--server", url]).output().unwrap();
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    String::from_utf8(out.stdout).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_changed_configuration_decides_and_a_broken_one_does_not() {
    let dir = crate::common::directory();
    let config = dir.join("scheduler");
    write(&config, "node.name == 'nowhere'");
    let named = config.display().to_string();
    let args = ["--speed", "10", "--scheduler-config", &named, "--metrics-bind-address", "127.0.0.1:0"];
    let up = Up::start_in(dir, &args).await;
    let url = up.ready["metrics"].as_str().unwrap().to_owned();
    up.create(&pod("one")).await.unwrap();
    let on = async |up: &Up, name: &str| {
        json::text(&up.get(PODS, "default", name).await, &["spec", "nodeName"]).to_owned()
    };
    up.until("the reason of the first version", async |up| {
        let pod = up.get(PODS, "default", "one").await;
        condition(&pod, "PodScheduled").2.contains("node(s) not wanted").then_some(())
    })
    .await;
    assert_eq!(status(&url), "reloads: 0 succeeded, 0 failed\nplugins: as in the files\n");

    // The pod that waited is tried again with the new version.
    write(&config, "node.name == 'node-1'");
    up.until("the node of the second version", async |up| (on(up, "one").await == "node-1").then_some(()))
        .await;
    up.until("an event", async |up| event(up, "PluginsReloaded").await).await;

    // A broken version changes nothing and is reported.
    write(&config, "node.nam == 'node-2'");
    let note = up.until("a warning", async |up| event(up, "FailedPluginReload").await).await;
    assert!(note.contains("profiles[0].pluginConfig[0].args.filter") && note.contains("nam"), "{note}");
    let told = status(&url);
    assert!(told.starts_with("reloads: 1 succeeded, 1 failed\nplugins: not as in the files"), "{told}");
    let (_, metrics) = get(&url, "/metrics");
    for want in [
        "plimsoll_plugin_reloads_total{result=\"success\"} 1",
        "plimsoll_plugin_reloads_total{result=\"error\"} 1",
        "plimsoll_plugin_last_reload_successful 0",
    ] {
        assert!(metrics.contains(want), "{want}: {metrics}");
    }
    up.create(&pod("two")).await.unwrap();
    up.until("the version before", async |up| (on(up, "two").await == "node-1").then_some(())).await;

    write(&config, "node.name == 'node-2'");
    up.until("a mended version", async |_| status(&url).ends_with("as in the files\n").then_some(())).await;
    up.create(&pod("three")).await.unwrap();
    up.until("its node", async |up| (on(up, "three").await == "node-2").then_some(())).await;
}

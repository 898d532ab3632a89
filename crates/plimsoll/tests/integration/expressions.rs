//! Plugins that a scheduler configuration writes in CEL: the files of `docs/plugins.md` through the front door.

#![allow(clippy::unwrap_used, clippy::panic)]

use crate::common::{Up, binary, condition, job, queue};
use crate::reload::event;
use plimsoll_api::json;
use plimsoll_runtime::api::{NODES, PODS, PatchKind, WORKLOADS};
use serde_json::json;

fn example(name: &str) -> String {
    format!("{}/../../examples/{name}", env!("CARGO_MANIFEST_DIR"))
}

#[tokio::test(flavor = "multi_thread")]
async fn expressions_decide_where_pods_run() {
    let (nodes, config) = (example("expressions-nodes.yaml"), example("expressions-scheduler.yaml"));
    let up = Up::start(&["--speed", "10", "--nodes-file", &nodes, "--scheduler-config", &config]).await;
    up.until("all nodes", async |up| (up.list(NODES).await.len() == 3).then_some(())).await;
    for (name, labels) in [
        ("one", json!({"team": "red"})),
        ("two", json!({"team": "green"})),
        ("three", json!({"team": "blue", "on-hold": "true"})),
    ] {
        let pod = json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "default", "labels": labels},
            "spec": {"containers": [{"name": "c", "image": "i", "command": ["sleep", "600"]}]},
        });
        up.create(&pod).await.unwrap();
    }
    let on = async |up: &Up, pod: &str| {
        json::text(&up.get(PODS, "default", pod).await, &["spec", "nodeName"]).to_owned()
    };
    up.until("the team's node with fewer watts", async |up| (on(up, "one").await == "red-2").then_some(()))
        .await;
    up.until("the reason of the filter", async |up| {
        let pod = up.get(PODS, "default", "two").await;
        let (_, reason, message) = condition(&pod, "PodScheduled");
        let want = "0/3 nodes are available: 3 node(s) of another team.";
        (reason == "Unschedulable" && message.starts_with(want)).then_some(())
    })
    .await;
    assert_eq!(on(&up, "three").await, "", "it is on hold");

    let label = |value: &str| json!({"metadata": {"labels": {"team": value}}});
    up.api.patch(NODES, "", "blue-1", "", PatchKind::Merge, &label("green")).await.unwrap();
    up.until("the node of its team", async |up| (on(up, "two").await == "blue-1").then_some(())).await;
    up.api.patch(NODES, "", "blue-1", "", PatchKind::Merge, &label("blue")).await.unwrap();
    let released = json!({"metadata": {"labels": {"on-hold": null}}});
    up.api.patch(PODS, "default", "three", "", PatchKind::Merge, &released).await.unwrap();
    up.until("the pod that is no longer on hold", async |up| {
        (on(up, "three").await == "blue-1").then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn rules_about_workloads_decide_which_may_start() {
    let dir = crate::common::directory();
    let config = dir.join("kueue.yaml");
    let text = "apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\nplimsoll:\n  workloads:\n    \
                veto: workload.pods > 2 && workload.queue == 'main'\n    reason: more than two pods\n";
    std::fs::write(&config, text).unwrap();
    let named = config.display().to_string();
    let up = Up::start_in(dir, &["--speed", "10", "--config", &named]).await;
    up.apply(&queue(8)).await;
    for (name, pods) in [("large", 3), ("small", 2)] {
        up.create(&job(name, &json!({"kueue.x-k8s.io/queue-name": "main"}), pods, 600)).await.unwrap();
    }
    let says = async |up: &Up, job: &str| {
        let all = up.list(WORKLOADS).await;
        let name =
            |w: &serde_json::Value| json::text(w, &["metadata", "name"]).starts_with(&format!("job-{job}-"));
        let found = all.iter().find(|w| name(w));
        found
            .map(|w| condition(w, "QuotaReserved"))
            .map(|(status, reason, message)| format!("{status} {reason} {message}"))
    };
    up.until("the small one", async |up| {
        says(up, "small").await.filter(|text| text.starts_with("True ")).map(drop)
    })
    .await;
    up.until("why the large one waits", async |up| {
        says(up, "large").await.filter(|text| text == "False Vetoed more than two pods").map(drop)
    })
    .await;

    // Other rules are asked about workloads that wait; those that can't be used leave the ones before.
    std::fs::write(&config, text.replace("workload.pods > 2", "workload.podz > 2")).unwrap();
    up.until("a warning", async |up| event(up, "FailedPluginReload").await).await;
    std::fs::write(&config, text.replace("workload.pods > 2", "workload.pods > 3")).unwrap();
    up.until("the large one", async |up| {
        says(up, "large").await.filter(|text| text.starts_with("True ")).map(drop)
    })
    .await;
    let note = up.until("an event", async |up| event(up, "PluginsReloaded").await).await;
    assert_eq!(note, "The rules about workloads were reloaded");
}

#[tokio::test(flavor = "multi_thread")]
async fn rules_choose_the_flavor_of_a_workload() {
    let dir = crate::common::directory();
    let config = dir.join("kueue.yaml");
    let text = "apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\nplimsoll:\n  workloads:\n    \
                flavorScore: 'workload.pods > 1 ? -int(flavor.nodeLabels[?\"price\"].orValue(\"0\")) : 0'\n";
    std::fs::write(&config, text).unwrap();
    let named = config.display().to_string();
    let up = Up::start_in(dir, &["--speed", "10", "--no-joint-admission", "--config", &named]).await;
    let flavor = |name: &str, price: u32| {
        format!(
            "apiVersion: kueue.x-k8s.io/v1beta2\nkind: ResourceFlavor\nmetadata: {{name: {name}}}\n\
             spec: {{nodeLabels: {{price: '{price}'}}}}\n---\n"
        )
    };
    let costly = "    - name: any\n      resources: [{name: cpu, nominalQuota: 8}]\n";
    let both = format!("{}{}", costly.replace("any", "costly"), costly.replace("any", "cheap"));
    up.apply(&format!("{}{}{}", flavor("costly", 9), flavor("cheap", 1), queue(8).replace(costly, &both)))
        .await;
    for (name, pods) in [("two", 2), ("one", 1)] {
        up.create(&job(name, &json!({"kueue.x-k8s.io/queue-name": "main"}), pods, 600)).await.unwrap();
    }
    for (name, flavor) in [("two", "cheap"), ("one", "costly")] {
        up.until(name, async |up| {
            let all = up.list(WORKLOADS).await;
            let of = |w: &&serde_json::Value| {
                json::text(w, &["metadata", "name"]).starts_with(&format!("job-{name}-"))
            };
            let assigned = &all.iter().find(of)?["status"]["admission"]["podSetAssignments"][0];
            (assigned["flavors"]["cpu"] == flavor).then_some(())
        })
        .await;
    }
}

#[test]
fn a_bad_expression_is_refused_before_anything_starts() {
    let dir = crate::common::directory();
    let config = dir.join("scheduler");
    let file = json!({
        "apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration",
        "profiles": [{
            "plugins": {"multiPoint": {"enabled": [{"name": "Expression/teams"}]}},
            "pluginConfig": [{"name": "Expression/teams", "args": {"filter": "node.labls['team'] == 'red'"}}],
        }],
    });
    std::fs::write(&config, file.to_string()).unwrap();
    let out = binary().args(["up", "--port", "0", "--scheduler-config"]).arg(&config).output().unwrap();
    let text = String::from_utf8_lossy(&out.stderr);
    assert!(!out.status.success());
    for want in [
        "profiles[0].pluginConfig[0].args.filter: Invalid value: ERROR: <input>:1:5: undefined field 'labls'",
        " | node.labls['team'] == 'red'\n | ....^",
        "node.labels",
    ] {
        assert!(text.contains(want), "{want}: {text}");
    }
    std::fs::remove_dir_all(&dir).unwrap();
}

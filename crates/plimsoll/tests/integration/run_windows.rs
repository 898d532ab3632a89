//! Run windows through the front door: the example, what is refused, and a process that dies in the middle.

#![allow(clippy::unwrap_used, clippy::panic)]

use crate::common::{Up, assert_within_quota, condition, directory, job, queue};
use plimsoll_api::json;
use plimsoll_runtime::api::{CLUSTER_QUEUES, JOBS, PODS, PatchKind, RUN_WINDOWS, WORKLOADS};
use serde_json::{Value, json};

/// Always open, or closed but for a second on 29 February.
fn windows(open: bool) -> Value {
    if open {
        json!([{"start": "* * * * *", "duration": "1m"}])
    } else {
        json!([{"start": "0 0 29 2 *", "duration": "1s"}])
    }
}

fn night(open: bool) -> Value {
    json!({"apiVersion": "plimsoll.dev/v1alpha1", "kind": "RunWindow", "metadata": {"name": "night"},
        "spec": {"windows": windows(open), "appliesTo": {"localQueues": {"names": ["main"]}}}})
}

async fn set(up: &Up, open: bool) {
    let body = json!({"spec": {"windows": windows(open)}});
    up.api.patch(RUN_WINDOWS, "", "night", "", PatchKind::Merge, &body).await.unwrap();
}

/// Kills the process as a power failure would, and starts it again on what it left.
async fn again(mut up: Up, flags: &[&str]) -> Up {
    up.kill();
    // The directory goes with its last user only.
    let dir = std::mem::replace(&mut up.dir, std::env::temp_dir().join("plimsoll-test-none"));
    drop(up);
    Up::start_in(dir, flags).await
}

#[tokio::test(flavor = "multi_thread")]
async fn the_example_works_and_mistakes_are_refused() {
    let up = Up::start(&["--speed", "10"]).await;
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/run-windows.yaml");
    up.apply(&std::fs::read_to_string(path).unwrap()).await;
    up.until_shown("both edges are shown", async |up| {
        let w = up.get(RUN_WINDOWS, "", "night").await;
        let edges = ["nextOpening", "nextClosing"].map(|k| w["status"][k].is_string());
        let known = ["Open", "Closed"].contains(&json::text(&w, &["status", "state"]));
        let defaults = w["spec"]["outside"] == "Suspend";
        (edges == [true; 2] && known && defaults).then_some(()).ok_or(w.to_string())
    })
    .await;
    let w = up.get(RUN_WINDOWS, "", "night").await;
    let open = w["status"]["state"] == "Open";
    up.until_shown("the job runs inside and waits outside", async |up| {
        let list = up.list(WORKLOADS).await;
        let train =
            list.iter().find(|w| json::name(w).starts_with("job-train-")).cloned().unwrap_or_default();
        let (status, reason, message) = condition(&train, "QuotaReserved");
        let waits =
            status == "False" && reason == "OutsideRunWindow" && message.contains("it opens next at 20");
        (if open { status == "True" } else { waits }).then_some(()).ok_or(train.to_string())
    })
    .await;
    for (key, value, says) in [
        (
            "timeZone",
            json!("Mars/Base"),
            "spec.timeZone: Invalid value: \"Mars/Base\": unknown time zone; use a name",
        ),
        (
            "windows",
            json!([{"start": "0 22 * *", "duration": "8h"}]),
            "spec.windows[0].start: Invalid value: \"0 22 * *\"",
        ),
        ("windows", json!([{"start": "0 22 * * *", "duration": "-8h"}]), "must be longer than zero"),
        ("windows", json!([]), "spec.windows"),
        ("outside", json!("Kill"), "spec.outside"),
        (
            "gracePeriod",
            json!("ten minutes"),
            "spec.gracePeriod: Invalid value: \"ten minutes\": not a duration",
        ),
        ("appliesTo", json!({"flavors": {}}), "spec.appliesTo.flavors: Invalid value: {}: chooses nothing"),
    ] {
        let mut bad = night(true);
        bad["metadata"]["name"] = json!("bad");
        bad["spec"][key] = value;
        let error = up.create(&bad).await.unwrap_err().to_string();
        assert!(error.contains(says), "{error}");
    }
    let mut named = job("named", &json!({}), 1, 1);
    json::set(&mut named, &["metadata", "annotations", "plimsoll.dev/run-window"], json!("Not a name"));
    json::set(&mut named, &["metadata", "namespace"], json!("night-shift"));
    let error = up.create(&named).await.unwrap_err().to_string();
    assert!(error.contains("metadata.annotations[plimsoll.dev/run-window]"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_death_in_the_middle_loses_nothing() {
    let dir = directory();
    let data = dir.join("data").to_string_lossy().into_owned();
    let flags = ["--speed", "10", "--data", &data];
    let mut up = Up::start_in(dir, &flags).await;
    up.apply(&queue(4)).await;
    up.create(&night(true)).await.unwrap();
    let mut train = job("train", &json!({"kueue.x-k8s.io/queue-name": "main"}), 3, 40);
    train["spec"]["completionMode"] = json!("Indexed");
    train["spec"]["parallelism"] = json!(1);
    up.create(&train).await.unwrap();
    let pod = async |up: &Up, prefix: &str| -> Vec<Value> {
        let pods = up.list(PODS).await;
        pods.into_iter().filter(|p| json::name(p).starts_with(prefix)).collect()
    };
    up.until("the first pod is done", async |up| {
        pod(up, "train-0-").await.iter().any(|p| p["status"]["phase"] == "Succeeded").then_some(())
    })
    .await;
    let first = json::uid(&pod(&up, "train-0-").await[0]).to_owned();
    // The window closes and the process dies at once: whether it had begun to stop the job is chance.
    set(&up, false).await;
    up = again(up, &flags).await;
    up.until_shown("nothing runs outside", async |up| {
        let train = up.get(JOBS, "team", "train").await;
        let quiet = train["spec"]["suspend"] == true && train["status"]["active"].as_i64().unwrap_or(0) == 0;
        quiet.then_some(()).ok_or(train.to_string())
    })
    .await;
    assert_within_quota(&up.list(CLUSTER_QUEUES).await, &up.list(WORKLOADS).await);
    up = again(up, &flags).await;
    assert_eq!(up.get(JOBS, "team", "train").await["spec"]["suspend"], true);
    set(&up, true).await;
    up.until_shown("it goes on and ends", async |up| {
        let train = up.get(JOBS, "team", "train").await;
        json::is_true(&train, "Complete").then_some(()).ok_or(train.to_string())
    })
    .await;
    let firsts = pod(&up, "train-0-").await;
    assert_eq!(firsts.len(), 1, "what was done is not done again");
    assert_eq!(json::uid(&firsts[0]), first);
    let done = up.get(JOBS, "team", "train").await;
    assert_eq!((&done["status"]["succeeded"], &done["status"]["failed"]), (&json!(3), &Value::Null));
}

//! Simulated pods through the front door: what docs/simulated-pods.md promises.

#![allow(clippy::unwrap_used, clippy::panic)]

use crate::common::Up;
use plimsoll_runtime::api::{PODS, PatchKind};
use serde_json::{Value, json};

fn pod(name: &str, annotations: &Value, container: &Value) -> Value {
    let mut work = json!({"name": "work", "image": "busybox"});
    for (key, value) in container.as_object().unwrap() {
        work[key] = value.clone();
    }
    json!({"apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", "annotations": annotations},
        "spec": {"restartPolicy": "Never", "containers": [work]}})
}

async fn status(up: &Up, name: &str, holds: impl Fn(&Value) -> bool) -> Value {
    up.until(name, async |up| {
        let status = up.get(PODS, "default", name).await["status"].clone();
        holds(&status).then_some(status)
    })
    .await
}

fn ended(status: &Value) -> &Value {
    &status["containerStatuses"][0]["state"]["terminated"]
}

#[tokio::test]
async fn pods_end_as_their_annotations_say() {
    let up = Up::start(&["--speed", "20", "--nodes", "1"]).await;
    let fails = json!({"plimsoll.dev/duration": "2s", "plimsoll.dev/exit-code": "137"});
    up.create(&pod("fails", &fails, &json!({"args": ["pause"]}))).await.unwrap();
    up.create(&pod("paused", &json!({}), &json!({"args": ["pause"]}))).await.unwrap();
    up.create(&pod("image", &json!({}), &json!({"image": "registry.k8s.io/pause:3.10"}))).await.unwrap();
    let late = json!({"plimsoll.dev/start-delay": "1d"});
    up.create(&pod("late", &late, &json!({"command": ["true"]}))).await.unwrap();
    up.create(&pod("plain", &json!({}), &json!({}))).await.unwrap();
    let failed = status(&up, "fails", |s| s["phase"] == "Failed").await;
    assert_eq!(ended(&failed)["exitCode"], 137);
    status(&up, "plain", |s| s["phase"] == "Succeeded").await;
    // The five simulated seconds of a container that says nothing are over: these say that they wait.
    for name in ["paused", "image"] {
        status(&up, name, |s| s["phase"] == "Running").await;
    }
    let waits = status(&up, "late", |s| !s["containerStatuses"].is_null()).await;
    assert_eq!(waits["containerStatuses"][0]["state"]["waiting"]["reason"], "ContainerCreating");
}

#[tokio::test]
async fn what_needs_a_container_is_refused() {
    let up = Up::start(&["--speed", "20", "--nodes", "1"]).await;
    up.create(&pod("p", &json!({}), &json!({"args": ["pause"]}))).await.unwrap();
    status(&up, "p", |s| s["phase"] == "Running").await;
    let at = |what: &str| format!("/api/v1/namespaces/default/pods/p/{what}");
    for (path, why) in [
        (at("exec?command=ls"), "exec: simulated pods have no containers to connect to"),
        (at("attach"), "attach: simulated pods have no containers to connect to"),
        (at("portforward"), "portforward: simulated pods have no containers to connect to"),
        (at("proxy/"), "proxy: simulated pods have no containers to connect to"),
        ("/api/v1/nodes/node-0/proxy/stats".into(), "proxy: simulated nodes have no kubelet to connect to"),
        (
            "/api/v1/namespaces/default/services/kubernetes/proxy/".into(),
            "proxy: no simulated pod listens behind a Service",
        ),
    ] {
        let error = up.api.get_text(&path).await.unwrap_err();
        let plimsoll_runtime::api::Error::Status { code, reason, message, .. } = &error else {
            panic!("{error}")
        };
        assert_eq!((*code, reason.as_str()), (501, "NotImplemented"), "{path}");
        assert_eq!(*message, format!("the server does not implement {why}"), "{path}");
    }
    // kubectl debug: it waits until the container runs or has ended, then asks for its log.
    let debugger = json!({"spec": {"ephemeralContainers": [{"name": "debugger", "image": "busybox", "stdin": true,
        "tty": true, "terminationMessagePolicy": "File"}]}});
    up.api.patch(PODS, "default", "p", "ephemeralcontainers", PatchKind::Strategic, &debugger).await.unwrap();
    let after = status(&up, "p", |s| !s["ephemeralContainerStatuses"].is_null()).await;
    let state = &after["ephemeralContainerStatuses"][0]["state"]["terminated"];
    assert_eq!(state["reason"], "StartError");
    assert_eq!(state["message"], "simulated pods have no containers: there is nothing to debug");
    assert_eq!(after["phase"], "Running");
    let log = up.api.get_text(&at("log?container=debugger")).await.unwrap_err().to_string();
    assert!(log.contains("did not start: simulated pods have no containers"), "{log}");
}

//! `pods/status` as a kubelet reports it.

use serde_json::{Map, Value, json};

use super::Write;
use super::container::{Done, Slot, State};
use super::run::Run;
use super::view::{Container, PodView};
use crate::time::{Nanos, seconds_text};

/// Why no ephemeral container starts.
pub(crate) const NO_CONTAINERS: &str = "simulated pods have no containers: there is nothing to debug";

/// Reports the status of a pod if it has changed, and the end of one that was deleted.
pub(super) fn report(run: &mut Run, now: Nanos, writes: &mut Vec<Write>) {
    let patch = patch(run, now);
    let print = fingerprint(&patch);
    // A pod that had already ended when it was first seen needs no status from us.
    let settled = run.is_finished()
        && run.written.is_none()
        && !run.pod.status.phase.is_empty()
        && run.pod.status.phase == phase(run);
    if run.written != Some(print) && !settled {
        writes.push(Write::PodStatus {
            namespace: run.pod.metadata.namespace.clone(),
            name: run.pod.metadata.name.clone(),
            uid: run.pod.metadata.uid.clone(),
            patch,
        });
    }
    run.written = Some(print);
    if run.is_finished() && run.deleting && !run.delete_sent {
        run.delete_sent = true;
        writes.push(Write::PodDelete {
            namespace: run.pod.metadata.namespace.clone(),
            name: run.pod.metadata.name.clone(),
            uid: run.pod.metadata.uid.clone(),
        });
    }
}

/// Phase of the pod (kubelet's `getPhase`).
fn phase(run: &Run) -> &'static str {
    if run.is_finished() {
        let ended_well = |s: &Slot| matches!(&s.state, State::Done(d) if d.code == 0);
        let good = run.stop.as_ref().is_none_or(|s| s.why.is_none())
            && run.apps.iter().all(ended_well)
            && run.init.iter().all(|s| s.sidecar || ended_well(s));
        return if good { "Succeeded" } else { "Failed" };
    }
    let not_started = |s: &Slot| matches!(s.state, State::Waiting);
    if !initialized(run) || run.apps.iter().any(not_started) { "Pending" } else { "Running" }
}

fn initialized(run: &Run) -> bool {
    run.init.iter().all(|s| match &s.state {
        State::Done(d) => d.code == 0 || s.sidecar,
        State::Running(_) => s.sidecar,
        State::Waiting | State::Backoff(_) => false,
    })
}

/// The strategic merge patch of `pods/status`.
fn patch(run: &mut Run, now: Nanos) -> Value {
    let phase = phase(run);
    let conditions = conditions(run, phase, now);
    let initialized = initialized(run);
    let mut status = Map::new();
    status.insert("phase".into(), json!(phase));
    status.insert("conditions".into(), conditions);
    status.insert("hostIP".into(), json!(run.host_ip));
    status.insert("hostIPs".into(), json!([{"ip": run.host_ip}]));
    if run.sandbox {
        status.insert("podIP".into(), json!(run.pod_ip));
        status.insert("podIPs".into(), json!([{"ip": run.pod_ip}]));
    }
    status.insert("startTime".into(), json!(seconds_text(run.accepted)));
    if let Some((reason, message)) = run.stop.as_ref().filter(|_| run.is_finished()).and_then(|s| s.why) {
        status.insert("reason".into(), json!(reason));
        status.insert("message".into(), json!(message));
    }
    let qos = if run.pod.status.qos_class.is_empty() { qos(&run.pod) } else { &run.pod.status.qos_class };
    status.insert("qosClass".into(), json!(qos));
    let waiting = if initialized { "ContainerCreating" } else { "PodInitializing" };
    let apps: Vec<Value> = run.apps.iter().map(|s| container(run, s, waiting, false)).collect();
    status.insert("containerStatuses".into(), Value::Array(apps));
    if !run.init.is_empty() {
        let init = run.init.iter().map(|s| container(run, s, "PodInitializing", !s.sidecar)).collect();
        status.insert("initContainerStatuses".into(), Value::Array(init));
    }
    if !run.refused.is_empty() {
        let refused = run.refused.iter().map(|(c, at)| refused(c, *at)).collect();
        status.insert("ephemeralContainerStatuses".into(), Value::Array(refused));
    }
    json!({"metadata": {"uid": run.pod.metadata.uid}, "status": status})
}

fn conditions(run: &mut Run, phase: &str, now: Nanos) -> Value {
    let completed = phase == "Succeeded";
    let failed = phase == "Failed";
    let running = |s: &&Slot| matches!(s.state, State::Running(_));
    let unready: Vec<&str> = run
        .init
        .iter()
        .filter(|s| s.sidecar)
        .chain(&run.apps)
        .filter(|s| !running(s))
        .map(|s| s.name.as_str())
        .collect();
    let (ready, why, text) = if completed {
        (false, "PodCompleted", String::new())
    } else if failed {
        (false, "PodFailed", String::new())
    } else if unready.is_empty() && initialized(run) {
        (true, "", String::new())
    } else {
        (false, "ContainersNotReady", format!("containers with unready status: [{}]", unready.join(" ")))
    };
    let incomplete =
        |s: &&Slot| !(matches!(&s.state, State::Done(d) if d.code == 0) || s.sidecar && running(s));
    let missing: Vec<&str> = run.init.iter().filter(incomplete).map(|s| s.name.as_str()).collect();
    let init = match (completed, missing.is_empty()) {
        (true, _) => (true, "PodCompleted", String::new()),
        (_, true) => (true, "", String::new()),
        _ => {
            let text = format!("containers with incomplete status: [{}]", missing.join(" "));
            (false, "ContainersNotInitialized", text)
        }
    };
    let rows = [
        ("PodReadyToStartContainers", (run.sandbox && !run.is_finished(), "", String::new())),
        ("Initialized", init),
        ("Ready", (ready, why, text.clone())),
        ("ContainersReady", (ready, why, text)),
        ("PodScheduled", (true, "", String::new())),
    ];
    let mut out = Vec::with_capacity(rows.len());
    for (kind, (status, reason, message)) in rows {
        let since = since(&mut run.transitions, kind, status, now);
        let mut row = json!({
            "type": kind, "status": if status { "True" } else { "False" },
            "lastProbeTime": null, "lastTransitionTime": seconds_text(since),
        });
        if !reason.is_empty() {
            row["reason"] = json!(reason);
        }
        if !message.is_empty() {
            row["message"] = json!(message);
        }
        // Null would delete the field in a patch, which is what an absent one means here.
        for key in ["reason", "message"] {
            if row.get(key).is_none() {
                row[key] = Value::Null;
            }
        }
        out.push(row);
    }
    Value::Array(out)
}

fn since(
    known: &mut Vec<(&'static str, bool, Nanos)>,
    kind: &'static str,
    status: bool,
    now: Nanos,
) -> Nanos {
    if let Some(row) = known.iter_mut().find(|r| r.0 == kind) {
        if row.1 != status {
            *row = (kind, status, now);
        }
        return row.2;
    }
    known.push((kind, status, now));
    now
}

fn terminated(run: &Run, slot: &Slot, done: &Done) -> Value {
    json!({"terminated": {
        "exitCode": done.code, "reason": done.reason, "startedAt": seconds_text(done.started),
        "finishedAt": seconds_text(done.finished), "containerID": container_id(run, slot, slot.restarts),
    }})
}

fn container(run: &Run, slot: &Slot, waiting: &str, one_shot: bool) -> Value {
    let running = matches!(slot.state, State::Running(_));
    let done_well = matches!(&slot.state, State::Done(d) if d.code == 0);
    let state = match &slot.state {
        State::Waiting => json!({"waiting": {"reason": waiting}}),
        State::Running(at) => json!({"running": {"startedAt": seconds_text(*at)}}),
        State::Done(done) => terminated(run, slot, done),
        State::Backoff(_) => {
            let doublings = u32::try_from(slot.restarts.saturating_sub(1)).unwrap_or(0).min(5);
            let wait = (10u64 << doublings).min(300);
            let wait = if wait >= 60 { format!("{}m{}s", wait / 60, wait % 60) } else { format!("{wait}s") };
            let meta = &run.pod.metadata;
            let message = format!(
                "back-off {wait} restarting failed container={} pod={}_{}({})",
                slot.name, meta.name, meta.namespace, meta.uid
            );
            json!({"waiting": {"reason": "CrashLoopBackOff", "message": message}})
        }
    };
    let mut row = json!({
        "name": slot.name, "image": slot.image, "imageID": "", "restartCount": slot.restarts,
        "ready": if one_shot { done_well } else { running }, "started": running, "state": state, "lastState": {},
    });
    if let Some(last) = &slot.last {
        row["lastState"] = terminated(run, slot, last);
    }
    if slot.state != State::Waiting {
        row["imageID"] = json!(format!("simulated@sha256:{}", digest(&slot.image)));
        row["containerID"] = json!(container_id(run, slot, slot.restarts));
    }
    row
}

/// An ephemeral container, as the kubelet reports one that containerd could not start.
fn refused(container: &Container, at: Nanos) -> Value {
    let at = seconds_text(at);
    json!({
        "name": container.name, "image": container.image, "imageID": "", "restartCount": 0, "ready": false,
        "lastState": {}, "state": {"terminated": {"exitCode": 128, "reason": "StartError", "message": NO_CONTAINERS,
            "startedAt": at, "finishedAt": at}},
    })
}

fn container_id(run: &Run, slot: &Slot, restarts: i64) -> String {
    format!("containerd://{}", digest(&format!("{}/{}/{restarts}", run.pod.metadata.uid, slot.name)))
}

/// 64 hex digits that depend on the text only; an identifier, not a checksum.
fn digest(text: &str) -> String {
    let mut state = 0xcbf2_9ce4_8422_2325u64;
    for byte in text.bytes() {
        state = (state ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    }
    let mut out = String::with_capacity(64);
    for _ in 0..4 {
        // splitmix64
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        out.push_str(&format!("{:016x}", z ^ (z >> 31)));
    }
    out
}

/// Quality of service class (kubelet's `GetPodQOS`), used when the API server did not set it.
fn qos(pod: &PodView) -> &'static str {
    let containers = || pod.spec.containers.iter().chain(&pod.spec.init_containers);
    if containers().all(|c| c.resources.requests.is_empty() && c.resources.limits.is_empty()) {
        return "BestEffort";
    }
    let guaranteed = containers().all(|c| {
        ["cpu", "memory"].iter().all(|r| {
            let limit = c.resources.limits.get(*r);
            limit.is_some() && c.resources.requests.get(*r).is_none_or(|q| Some(q) == limit)
        })
    });
    if guaranteed { "Guaranteed" } else { "Burstable" }
}

fn fingerprint(value: &Value) -> u64 {
    // FNV-1a: no seed, so the same run gives the same writes.
    let text = value.to_string();
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |h, b| (h ^ u64::from(b)).wrapping_mul(0x0100_0000_01b3))
}

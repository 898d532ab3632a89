//! The row of a pod. Rules: pkg/printers `printPod` of 1.36.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::age;
use super::cell::{Ctx, at, created, int, list, name, or, text};

/// Cells of a pod, in the order of its columns.
pub fn cells(pod: &Value, ctx: Ctx) -> Vec<Value> {
    let state = State::of(pod);
    let restarts = match state.last_restart {
        Some(last) if state.restarts != 0 => {
            let ago = age::human_duration(age::seconds_between(last, ctx.now));
            format!("{} ({ago} ago)", state.restarts)
        }
        _ => state.restarts.to_string(),
    };
    let ip = list(pod, &["status", "podIPs"]).first().map_or("", |ip| text(ip, &["ip"]));
    let ip = if ip.is_empty() { text(pod, &["status", "podIP"]) } else { ip };
    vec![
        name(pod),
        json!(format!("{}/{}", state.ready, state.total)),
        json!(state.reason),
        json!(restarts),
        created(pod, ctx),
        or(ip, "<none>"),
        or(text(pod, &["spec", "nodeName"]), "<none>"),
        or(text(pod, &["status", "nominatedNodeName"]), "<none>"),
        readiness_gates(pod),
    ]
}

/// Row conditions of pods that have ended.
pub fn conditions(pod: &Value) -> Option<Value> {
    let (reason, message) = match text(pod, &["status", "phase"]) {
        "Succeeded" => ("Succeeded", "The pod has completed successfully."),
        "Failed" => ("Failed", "The pod failed."),
        _ => return None,
    };
    Some(json!([{ "type": "Completed", "status": "True", "reason": reason, "message": message }]))
}

/// The STATUS word of a pod alone.
pub fn status_word(pod: &Value) -> String {
    State::of(pod).reason
}

fn readiness_gates(pod: &Value) -> Value {
    let gates = list(pod, &["spec", "readinessGates"]);
    if gates.is_empty() {
        return json!("<none>");
    }
    let met = gates.iter().filter(|gate| {
        let wanted = text(gate, &["conditionType"]);
        let first = list(pod, &["status", "conditions"]).iter().find(|c| text(c, &["type"]) == wanted);
        first.is_some_and(|c| text(c, &["status"]) == "True")
    });
    json!(format!("{}/{}", met.count(), gates.len()))
}

#[derive(Default)]
struct State {
    reason: String,
    ready: usize,
    total: usize,
    restarts: i64,
    last_restart: Option<Timestamp>,
}

impl State {
    fn of(pod: &Value) -> Self {
        let mut state = Self {
            reason: initial_reason(pod),
            total: list(pod, &["spec", "containers"]).len(),
            ..Self::default()
        };
        let inits = list(pod, &["spec", "initContainers"]);
        state.total += inits.iter().filter(|c| text(c, &["restartPolicy"]) == "Always").count();
        let (initializing, sidecars) = state.init_containers(pod, inits);
        if !initializing || condition_true(pod, "Initialized") {
            state.restarts = sidecars.restarts;
            state.last_restart = sidecars.last_restart;
            state.containers(pod);
        }
        let phase = text(pod, &["status", "phase"]);
        if !at(pod, &["metadata", "deletionTimestamp"]).is_null() {
            if text(pod, &["status", "reason"]) == "NodeLost" {
                state.reason = "Unknown".to_owned();
            } else if phase != "Succeeded" && phase != "Failed" {
                state.reason = "Terminating".to_owned();
            }
        }
        state
    }

    /// Returns whether initialisation is still going on, and the counters of restartable init containers.
    fn init_containers(&mut self, pod: &Value, specs: &[Value]) -> (bool, Self) {
        let mut sidecars = Self::default();
        for (i, c) in list(pod, &["status", "initContainerStatuses"]).iter().enumerate() {
            let restartable = specs
                .iter()
                .any(|s| s.get("name") == c.get("name") && text(s, &["restartPolicy"]) == "Always");
            self.count_restarts(c);
            if restartable {
                sidecars.count_restarts(c);
            }
            let terminated = at(c, &["state", "terminated"]);
            if !terminated.is_null() && int(terminated, &["exitCode"]) == 0 {
                continue;
            }
            if restartable && at(c, &["started"]) == true {
                if at(c, &["ready"]) == true {
                    self.ready += 1;
                }
                continue;
            }
            let waiting = text(c, &["state", "waiting", "reason"]);
            self.reason = if !terminated.is_null() {
                format!("Init:{}", ended(terminated))
            } else if !waiting.is_empty() && waiting != "PodInitializing" {
                format!("Init:{waiting}")
            } else {
                format!("Init:{i}/{}", specs.len())
            };
            return (true, sidecars);
        }
        (false, sidecars)
    }

    fn containers(&mut self, pod: &Value) {
        let (mut running, mut failure) = (false, String::new());
        for c in list(pod, &["status", "containerStatuses"]).iter().rev() {
            self.count_restarts(c);
            let waiting = text(c, &["state", "waiting", "reason"]);
            let terminated = at(c, &["state", "terminated"]);
            if !waiting.is_empty() {
                self.reason = waiting.to_owned();
            } else if !terminated.is_null() {
                self.reason = ended(terminated);
                if int(terminated, &["exitCode"]) != 0 {
                    failure.clone_from(&self.reason);
                }
            } else if at(c, &["ready"]) == true && !at(c, &["state", "running"]).is_null() {
                running = true;
                self.ready += 1;
            }
        }
        if self.reason == "Completed" {
            if running && condition_true(pod, "Ready") {
                self.reason = "Running".to_owned();
            } else if !failure.is_empty() {
                self.reason = failure;
            } else if running {
                self.reason = "NotReady".to_owned();
            }
        }
    }

    fn count_restarts(&mut self, status: &Value) {
        self.restarts += int(status, &["restartCount"]);
        let finished = age::time(at(status, &["lastState", "terminated", "finishedAt"]));
        self.last_restart = self.last_restart.max(finished);
    }
}

fn initial_reason(pod: &Value) -> String {
    let gated = list(pod, &["status", "conditions"])
        .iter()
        .any(|c| text(c, &["type"]) == "PodScheduled" && text(c, &["reason"]) == "SchedulingGated");
    if gated {
        return "SchedulingGated".to_owned();
    }
    let reason = text(pod, &["status", "reason"]);
    if reason.is_empty() { text(pod, &["status", "phase"]).to_owned() } else { reason.to_owned() }
}

fn ended(terminated: &Value) -> String {
    let reason = text(terminated, &["reason"]);
    let signal = int(terminated, &["signal"]);
    if !reason.is_empty() {
        reason.to_owned()
    } else if signal != 0 {
        format!("Signal:{signal}")
    } else {
        format!("ExitCode:{}", int(terminated, &["exitCode"]))
    }
}

fn condition_true(pod: &Value, kind: &str) -> bool {
    list(pod, &["status", "conditions"])
        .iter()
        .any(|c| text(c, &["type"]) == kind && text(c, &["status"]) == "True")
}

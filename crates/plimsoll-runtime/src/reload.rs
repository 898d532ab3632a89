//! Reload of the scheduler's plugins and of the rules about workloads: when a file changes that they come from, the
//! configuration is read again and handed to the engine. A configuration that can't be used leaves what runs, and is reported by
//! a log line, an Event and metrics.

use std::collections::BTreeMap;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use plimsoll_api::event::{EventRecord, ObjectReference};
use plimsoll_client::supervise;
use plimsoll_queueing::{MetricFamily, MetricKind, MetricSample, MetricValue};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::driver::Inbox;
pub use crate::driver::Reload;
use crate::event_recorder::Recorder;

/// How often files are looked at. A ConfigMap's files change at most once a minute, an editor's when the user looks.
const PERIOD: Duration = Duration::from_secs(1);

/// What a configuration's files say.
#[derive(Debug)]
pub struct Reading {
    /// Files and directories to watch.
    pub files: Vec<PathBuf>,
    /// What is to run, or why it can't be used.
    pub reload: Result<Reload, String>,
}

/// Whose plugins a source has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Of {
    /// kube-scheduler's configuration.
    Placement,
    /// Kueue's configuration.
    Queueing,
}

impl Of {
    const fn name(self) -> &'static str {
        match self {
            Self::Placement => "The scheduler's plugins",
            Self::Queueing => "The rules about workloads",
        }
    }
}

type Read = dyn Fn() -> Reading + Send + Sync;
type Families = dyn Fn() -> Vec<MetricFamily> + Send + Sync;
type Events = dyn Fn() -> Vec<EventRecord> + Send + Sync;

/// Reads a configuration and all that its plugins come from.
#[derive(Clone)]
pub struct Source {
    of: Of,
    seen: Stamp,
    read: Arc<Read>,
    families: Option<Arc<Families>>,
    events: Option<Arc<Events>>,
}

impl Source {
    /// A source of files that have been read just now. `read` reads them again; it may block.
    pub fn new(of: Of, files: &[PathBuf], read: impl Fn() -> Reading + Send + Sync + 'static) -> Self {
        Self { of, seen: stamp(files), read: Arc::new(read), families: None, events: None }
    }

    /// Whose plugins it has.
    pub fn of(&self) -> Of {
        self.of
    }

    /// The same source, whose plugins have metrics.
    #[must_use]
    pub fn with_metrics(self, families: impl Fn() -> Vec<MetricFamily> + Send + Sync + 'static) -> Self {
        Self { families: Some(Arc::new(families)), ..self }
    }

    /// The same source, whose plugins record events. `events` takes what they recorded since it was called last.
    #[must_use]
    pub fn with_events(self, events: impl Fn() -> Vec<EventRecord> + Send + Sync + 'static) -> Self {
        Self { events: Some(Arc::new(events)), ..self }
    }
}

impl fmt::Debug for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Source").finish_non_exhaustive()
    }
}

/// What became of the last reloads; cheap to clone.
#[derive(Clone, Default)]
pub struct Reloads {
    counted: Arc<Mutex<Counted>>,
    families: Vec<Arc<Families>>,
}

impl fmt::Debug for Reloads {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reloads").field("counted", &self.counted).finish_non_exhaustive()
    }
}

#[derive(Clone, Debug, Default)]
struct Counted {
    succeeded: u64,
    failed: u64,
    /// When the plugins that run were read, in seconds since 1970; 0: at the start.
    since: f64,
    /// Why the present files are not what runs.
    problems: BTreeMap<Of, String>,
}

impl Counted {
    fn problem(&self) -> Option<String> {
        let all: Vec<&str> = self.problems.values().map(String::as_str).collect();
        (!all.is_empty()).then(|| all.join("; "))
    }
}

impl Reloads {
    /// Nothing was reloaded yet.
    pub(crate) fn of(sources: &[Source]) -> Self {
        let families = sources.iter().filter_map(|source| source.families.clone()).collect();
        Self { counted: Arc::default(), families }
    }

    fn with<T>(&self, f: impl FnOnce(&mut Counted) -> T) -> T {
        f(&mut self.counted.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn ended(&self, of: Of, problem: Option<&str>) {
        self.with(|counted| match problem {
            None => {
                counted.problems.remove(&of);
                counted.succeeded += 1;
                let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
                counted.since = now.unwrap_or_default().as_secs_f64();
            }
            Some(why) => {
                counted.problems.insert(of, why.to_owned());
                counted.failed += 1;
            }
        });
    }

    /// For `plimsoll plugins status`.
    pub fn to_json(&self) -> Value {
        let counted = self.with(|counted| counted.clone());
        let (problem, Counted { succeeded, failed, since, .. }) = (counted.problem(), counted);
        json!({"reloads": {"success": succeeded, "error": failed}, "since": since, "problem": problem})
    }

    /// Metrics, in the manner of Prometheus' own for its configuration.
    pub fn families(&self) -> Vec<MetricFamily> {
        let Counted { succeeded, failed, since, problems } = self.with(|counted| counted.clone());
        let number = |labels, value| MetricSample::new(labels, MetricValue::Number(value));
        let gauge = |name, help, value| MetricFamily {
            name,
            help,
            kind: MetricKind::Gauge,
            samples: vec![number(Vec::new(), value)],
        };
        let plugins = merged(self.families.iter().flat_map(|families| families()));
        let result = |result: &str, n: u64| number(vec![("result", result.to_owned())], n as f64);
        let mut all = vec![
            MetricFamily {
                name: "plimsoll_plugin_reloads_total",
                help: "Reloads of plugins, by result",
                kind: MetricKind::Counter,
                samples: vec![result("success", succeeded), result("error", failed)],
            },
            gauge(
                "plimsoll_plugin_last_reload_successful",
                "Whether the present files are what runs",
                f64::from(u8::from(problems.is_empty())),
            ),
            gauge(
                "plimsoll_plugin_last_reload_success_timestamp_seconds",
                "When plugins were last reloaded; 0: not since the start",
                since,
            ),
        ];
        all.extend(plugins);
        all
    }
}

/// Families of one name together.
fn merged(families: impl Iterator<Item = MetricFamily>) -> Vec<MetricFamily> {
    let mut out: Vec<MetricFamily> = Vec::new();
    for family in families {
        match out.iter_mut().find(|known| known.name == family.name) {
            Some(known) => known.samples.extend(family.samples),
            None => out.push(family),
        }
    }
    out
}

/// What tells one state of a file from another without reading it: length, time of change, number of the file.
type State = Option<(u64, SystemTime, u64)>;

/// Of a directory also what is in it.
type Stamp = BTreeMap<PathBuf, (State, Vec<(PathBuf, State)>)>;

/// Links are followed: a ConfigMap is changed by changing one.
fn stamp(files: &[PathBuf]) -> Stamp {
    let of = |path: &Path| {
        let meta = std::fs::metadata(path).ok()?;
        Some((meta.len(), meta.modified().unwrap_or(SystemTime::UNIX_EPOCH), inode(&meta)))
    };
    let one = |path: &PathBuf| {
        let entries = std::fs::read_dir(path).into_iter().flatten().flatten();
        let mut inside: Vec<_> = entries.map(|e| e.path()).map(|p| (p.clone(), of(&p))).collect();
        inside.sort();
        (path.clone(), (of(path), inside))
    };
    files.iter().map(one).collect()
}

#[cfg(unix)]
fn inode(meta: &std::fs::Metadata) -> u64 {
    std::os::unix::fs::MetadataExt::ino(meta)
}

#[cfg(not(unix))]
fn inode(_: &std::fs::Metadata) -> u64 {
    0
}

/// Follows the files until stopped.
pub(crate) async fn run(
    source: Source,
    gangs: bool,
    (inbox, recorder): (Inbox, Recorder),
    reloads: Reloads,
    stop: CancellationToken,
) {
    let Source { of, mut seen, read, events, .. } = source;
    let mut ticks = tokio::time::interval(PERIOD);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            _ = ticks.tick() => {}
        }
        events.iter().flat_map(|take| take()).for_each(|event| recorder.record(event));
        let (read, before) = (Arc::clone(&read), seen.clone());
        let Ok(found) = tokio::task::spawn_blocking(move || look(&*read, &before)).await else { return };
        let Some((reading, now)) = found else { continue };
        seen = now;
        let problem = match reading.reload {
            Err(why) => Some(why),
            Ok(reload) if !gangs && schedules_pod_groups(&reload) => Some(
                "PodGroups are watched only from a start with a plugin on that schedules them".to_owned(),
            ),
            Ok(reload) => match inbox.reload(reload).await {
                Ok(answer) => answer.err(),
                // The engine has ended.
                Err(_) => return,
            },
        };
        reloads.ended(of, problem.as_deref());
        report(of, problem, &recorder);
    }
}

fn schedules_pod_groups(reload: &Reload) -> bool {
    match reload {
        Reload::Profiles(profiles) => profiles.iter().any(|p| p.plugins.schedules_pod_groups()),
        Reload::Policy(_) => false,
    }
}

/// Reads again if a file has changed, with the new stamp. Where that panics, the files are refused until one of them changes.
fn look(read: &Read, before: &Stamp) -> Option<(Reading, Stamp)> {
    let files: Vec<PathBuf> = before.keys().cloned().collect();
    let mut now = stamp(&files);
    if now == *before {
        return None;
    }
    let reading = catch_unwind(AssertUnwindSafe(read)).unwrap_or_else(|panic| {
        let why = format!("reading the files panicked: {}", supervise::message(&*panic));
        Reading { files, reload: Err(why) }
    });
    // What changes while it is read is found at the next look: the stamp from before counts.
    let mut after = stamp(&reading.files);
    after.iter_mut().for_each(|(path, state)| {
        if let Some(earlier) = now.remove(path) {
            *state = earlier;
        }
    });
    Some((reading, after))
}

fn report(of: Of, problem: Option<String>, recorder: &Recorder) {
    let what = of.name();
    let (warning, reason, message) = match problem {
        None => {
            tracing::info!("{what} were reloaded");
            (false, "PluginsReloaded", format!("{what} were reloaded"))
        }
        Some(why) => {
            tracing::error!("{what} were not reloaded; those before go on: {why}");
            (true, "FailedPluginReload", format!("The plugins before go on: {why}"))
        }
    };
    recorder.record(EventRecord {
        regarding: ObjectReference {
            api_version: "coordination.k8s.io/v1".into(),
            kind: "Lease".into(),
            namespace: "kube-system".into(),
            name: "plimsoll".into(),
            ..ObjectReference::default()
        },
        warning,
        reason: reason.into(),
        action: "Reload".into(),
        message,
        reporting_controller: "plimsoll".into(),
        reporting_instance: String::new(),
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_whose_reading_panics_are_refused() {
        let file = std::env::temp_dir().join(format!("plimsoll-refused-{}", std::process::id()));
        let before = stamp(std::slice::from_ref(&file));
        std::fs::write(&file, "1").expect("written");
        let read = || -> Reading { panic!("a bug") };
        let (reading, after) = look(&read, &before).expect("it has changed");
        assert_eq!(reading.reload.err().as_deref(), Some("reading the files panicked: a bug"));
        assert!(look(&read, &after).is_none(), "until it changes again");
        let _ = std::fs::remove_file(file);
    }

    #[test]
    fn a_stamp_changes_with_files_and_files_of_directories() {
        let dir = std::env::temp_dir().join(format!("plimsoll-stamp-{}", std::process::id()));
        std::fs::create_dir_all(&dir).expect("a directory");
        let files = [dir.clone(), dir.join("missing")];
        let empty = stamp(&files);
        assert_eq!(empty.len(), 2);
        std::fs::write(dir.join("a"), "1").expect("written");
        let one = stamp(&files);
        assert!(one != empty && one == stamp(&files));
        std::fs::write(dir.join("a"), "12").expect("written");
        assert_ne!(stamp(&files), one);
        // A ConfigMap's files are links into a directory that is replaced.
        #[cfg(unix)]
        {
            for name in ["x", "y"] {
                std::fs::write(dir.join(name), "same").expect("written");
            }
            let link = dir.join("link");
            std::os::unix::fs::symlink(dir.join("x"), &link).expect("a link");
            let before = stamp(std::slice::from_ref(&link));
            std::fs::remove_file(&link).expect("removed");
            std::os::unix::fs::symlink(dir.join("y"), &link).expect("a link");
            assert_ne!(stamp(std::slice::from_ref(&link)), before);
        }
        let _ = std::fs::remove_dir_all(dir);
    }
}

//! What the engine knows of a RunWindow (`plimsoll.dev/v1alpha1`).

use std::sync::Arc;

use plimsoll_state::model::{LabelSelector, StringMap};
use plimsoll_state::time::{Duration, Time};

/// Reason of `QuotaReserved=False` and of the eviction while a window is closed.
pub const OUTSIDE: &str = "OutsideRunWindow";

/// Name of a RunWindow.
pub(crate) type Name = Arc<str>;

/// When a window is open, as a pure function of time. Written outside the core, because time zones are: the core only
/// counts nanoseconds.
pub trait Calendar: std::fmt::Debug + Send + Sync {
    /// What holds at `now`. A window is open from its start on and no longer open at its end.
    fn at(&self, now: Time) -> Hours;

    /// A time as the window's users read it, in its time zone.
    fn text(&self, at: Time) -> String;
}

/// What holds at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Hours {
    /// Whether the window is open.
    pub open: bool,
    /// When it closed, for a closed one; `None`: longer ago than the calendar looks back.
    pub since: Option<Time>,
    /// When it opens or closes next; `None`: not as far as the calendar looks ahead.
    pub change: Option<Time>,
    /// When to ask again at the latest, where `change` is not known; `None`: nothing changes any more.
    pub again: Option<Time>,
}

/// Objects by name or label.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Chosen {
    /// Only in these namespaces; empty: in all, or for kinds without one.
    pub namespaces: Vec<String>,
    /// Names.
    pub names: Vec<String>,
    /// Labels; `None` chooses nothing, an empty selector everything.
    pub selector: Option<LabelSelector>,
}

impl Chosen {
    /// Whether an object is meant. Without names and selector nothing is.
    pub fn has(&self, namespace: &str, name: &str, labels: &StringMap) -> bool {
        (self.namespaces.is_empty() || self.namespaces.iter().any(|n| n == namespace))
            && (self.names.iter().any(|n| n == name)
                || self.selector.as_ref().is_some_and(|s| s.matches(labels)))
    }
}

/// A RunWindow.
#[derive(Clone, Debug, Default)]
pub struct RunWindow {
    /// Name.
    pub name: String,
    /// `metadata.generation`, for `observedGeneration`.
    pub generation: i64,
    /// Creation time; the grace of a window that is closed when it is made begins here.
    pub creation: Time,
    /// `spec` as text: two windows with the same text are the same.
    pub source: String,
    /// When it is open; `None` when `invalid` says why that can't be known.
    pub calendar: Option<Arc<dyn Calendar>>,
    /// What is wrong with it, possibly empty. An invalid window is closed and suspends nothing.
    pub invalid: String,
    /// `outside: Finish`: running work is left to finish.
    pub finish: bool,
    /// How long running work may go on after the window closed.
    pub grace: Duration,
    /// How long a run lasts at least before it is suspended.
    pub min_run: Duration,
    /// LocalQueues whose workloads run only inside.
    pub local_queues: Chosen,
    /// ClusterQueues whose workloads run only inside.
    pub cluster_queues: Chosen,
    /// Flavors whose quota counts only inside.
    pub flavors: Chosen,
}

/// Status of a RunWindow.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RunWindowStatus {
    /// Generation it speaks of.
    pub generation: i64,
    /// Whether it is open.
    pub open: bool,
    /// What is wrong with it, possibly empty.
    pub invalid: String,
    /// When it opens next, as text in its time zone; `None`: never, as far as can be seen.
    pub next_opening: Option<String>,
    /// When it closes next, the same way.
    pub next_closing: Option<String>,
    /// LocalQueues, ClusterQueues and flavors it applies to.
    pub applies_to: [u32; 3],
}

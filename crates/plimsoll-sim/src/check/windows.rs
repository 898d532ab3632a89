//! Run windows as the API shows them: nothing gets quota outside of its windows, and what the end of a window stops is told
//! to stop in time (`docs/run-windows.md`).

use std::collections::BTreeMap;

use plimsoll_state::{Duration, Time};

use super::calendar::Window;
use super::{Held, Rule, Seen, Violation};

/// How long after the moment an eviction may come, when nothing fails any more: another replica may have to take over.
const LATE: Duration = Duration::from_seconds(45);

fn applies(window: &Window, name: &str, held: &Held) -> bool {
    name == held.run_window
        || window.local_queues.contains(&held.local_queue)
        || window.cluster_queues.iter().any(|q| q == held.queue())
        || held.flavors().any(|f| window.flavors.iter().any(|own| own == f))
}

/// The windows that a workload is outside of.
fn outside(windows: &BTreeMap<String, Window>, held: &Held, at: Time) -> Vec<String> {
    let mut out: Vec<String> = windows
        .iter()
        .filter(|(name, window)| applies(window, name, held) && !window.is_open(at))
        .map(|(name, _)| name.clone())
        .collect();
    if !held.run_window.is_empty() && !windows.contains_key(&held.run_window) {
        out.push(held.run_window.clone());
    }
    out
}

/// Whether a workload that has got quota may have it: it was inside of its windows as the process knew them when it decided,
/// or later.
///
/// # Errors
/// When it was not.
pub fn check_start(name: &str, held: &Held, decided: &[Seen]) -> Result<(), Violation> {
    let inside = |seen: &Seen| outside(&seen.quotas.windows, held, seen.at).is_empty();
    if decided.is_empty() || decided.iter().any(inside) {
        return Ok(());
    }
    let first = decided.first().map(|s| (s.at, outside(&s.quotas.windows, held, s.at)));
    Err(Violation::new(Rule::OutsideWindow, format!("{name} got quota outside: {first:?}")))
}

/// Whether everything that windows stop was told to, some time after faults have ended.
///
/// # Errors
/// When a workload runs for longer than it may.
pub fn check_ends<'a>(
    held: impl Iterator<Item = (&'a str, &'a Held)>,
    windows: &BTreeMap<String, Window>,
    calm: Time,
    now: Time,
) -> Result<(), Violation> {
    if windows.is_empty() {
        return Ok(());
    }
    for (name, held) in held.filter(|(_, h)| h.runs() && !h.of_pods) {
        for (window, spec) in windows.iter().filter(|(n, w)| applies(w, n, held) && !w.finish) {
            let due = Time::from_seconds(spec.stops(held.since, now)).max(calm).plus(LATE);
            if !spec.is_open(now) && now > due {
                let message = format!("{name} runs outside of {window}, which should have ended by {due:?}");
                return Err(Violation::new(Rule::OutsideWindow, message));
            }
        }
    }
    Ok(())
}

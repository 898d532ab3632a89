//! Leader election by a Lease (`coordination.k8s.io/v1`): acquire, renew, release.
//!
//! Only the holder writes: [`Claim::held`] is false from the moment the last renewal is too old, before another replica
//! can have taken over. All times are measured with the monotonic clock from when this process saw the record (client-go's
//! `observedTime`, `tools/leaderelection/leaderelection.go`), so that a step of the wall clock neither keeps a lost Lease
//! nor steals one. The monotonic clock stands still while the machine is suspended: when the wall clock is ahead of it,
//! the holder reads the Lease again before it writes anything else.

mod claim;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use futures::AsyncBufReadExt;
use plimsoll_api::request::Error;
use plimsoll_api::resource::LEASES;
use plimsoll_api::watch::Event;
use plimsoll_api::{json, timestamp};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::rest::{Api, Encoding, encode};
pub use claim::Claim;
use claim::Wall;

/// Times of an election (Kueue's and kube-scheduler's defaults).
#[derive(Clone, Copy, Debug)]
pub struct Timing {
    /// How long a claim is valid.
    pub lease: Duration,
    /// How long the holder tries to renew before it gives up.
    pub renew_deadline: Duration,
    /// Pause between tries.
    pub retry: Duration,
}

impl Default for Timing {
    fn default() -> Self {
        Self {
            lease: Duration::from_secs(15),
            renew_deadline: Duration::from_secs(10),
            retry: Duration::from_secs(2),
        }
    }
}

impl Timing {
    /// What makes these times unusable, in client-go's words.
    pub fn problem(&self) -> Option<&'static str> {
        if self.lease <= self.renew_deadline {
            return Some("leaseDuration must be greater than renewDeadline");
        }
        // Tries are up to a fifth later than asked for in client-go.
        if self.renew_deadline <= self.retry.mul_f64(1.2) {
            return Some("renewDeadline must be greater than retryPeriod*JitterFactor");
        }
        None
    }
}

/// What to do with a Lease, decided from what was read: pure, so that it can be tested without a clock.
#[derive(Debug, PartialEq)]
enum Step {
    /// The Lease does not exist yet.
    Create(Value),
    /// Take it over or renew it; the read resourceVersion is the precondition.
    Replace(Box<Value>),
    /// Another replica leads.
    Wait,
}

/// What a candidate remembers between two looks: the other's claim is judged by our own monotonic clock, from when we
/// saw it change, so that clocks need not agree.
#[derive(Debug, Default)]
struct Observed {
    version: String,
    since: i64,
    /// Until when the other's claim is valid, unless it changes.
    until: i64,
}

fn decide(
    name: (&str, &str),
    me: &str,
    read: Option<&Value>,
    seen: &mut Observed,
    (now, wall): (i64, i64),
    timing: Timing,
) -> Step {
    let at = timestamp::micro_text(plimsoll_state::Time(wall));
    // Whole seconds in the Lease; never less than what the holder relies on.
    let seconds = i64::try_from(timing.lease.as_millis().div_ceil(1000)).unwrap_or(15);
    let Some(lease) = read else {
        return Step::Create(json!({
            "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
            "metadata": {"namespace": name.0, "name": name.1},
            "spec": {"holderIdentity": me, "leaseDurationSeconds": seconds, "acquireTime": at, "renewTime": at,
                     "leaseTransitions": 0},
        }));
    };
    if seen.version != json::version(lease) {
        json::version(lease).clone_into(&mut seen.version);
        seen.since = now;
    }
    let holder = json::text(lease, &["spec", "holderIdentity"]);
    let theirs = json::int(lease, &["spec", "leaseDurationSeconds"]).unwrap_or(seconds);
    seen.until = seen.since.saturating_add(theirs.saturating_mul(1_000_000_000));
    if !holder.is_empty() && holder != me && now < seen.until {
        return Step::Wait;
    }
    let mut next = lease.clone();
    json::set(&mut next, &["spec", "renewTime"], json!(at));
    json::set(&mut next, &["spec", "leaseDurationSeconds"], json!(seconds));
    if holder != me {
        let count = json::int(lease, &["spec", "leaseTransitions"]).unwrap_or(0);
        json::set(&mut next, &["spec", "holderIdentity"], json!(me));
        json::set(&mut next, &["spec", "acquireTime"], json!(at));
        json::set(&mut next, &["spec", "leaseTransitions"], json!(count.saturating_add(1)));
    }
    Step::Replace(Box::new(next))
}

/// Takes part in the election until stopped, then releases the Lease; ends when the Lease is lost. Returns the claim at
/// once.
pub fn run(
    api: Api,
    namespace: String,
    name: String,
    me: String,
    timing: Timing,
    stop: CancellationToken,
) -> (Claim, impl Future<Output = ()> + Send) {
    campaign(api, (namespace, name), me, timing, stop, Arc::new(wall_clock))
}

/// Nanoseconds of the wall clock since the epoch.
fn wall_clock() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_nanos()).unwrap_or(i64::MAX)
}

fn campaign(
    api: Api,
    (namespace, name): (String, String),
    me: String,
    timing: Timing,
    stop: CancellationToken,
    wall: Wall,
) -> (Claim, impl Future<Output = ()> + Send) {
    let claim = Claim::new(timing, i64::MIN, wall);
    let mine = claim.clone();
    let work = async move {
        let mut seen = Observed::default();
        let mut leads = false;
        let lock = format!("{namespace}/{name}");
        tracing::info!(lease = lock, identity = me, "Attempting to acquire leader lease");
        loop {
            let began = mine.now();
            let round = round(&api, (&namespace, &name), &me, &mut seen, timing, &mine, leads);
            // An answer that comes after the claim has ended is of no use.
            let round = tokio::time::timeout(timing.renew_deadline, round).await;
            let round = round.unwrap_or_else(|_| Err(unanswered()));
            let hangs = matches!(&round, Err(Error::Transport(why)) if **why == *NO_ANSWER);
            // After a failed read the watch would start at an old version and return at once, in a loop.
            let was_read = round.as_ref().map_or_else(Error::is_conflict, |_| true);
            match round {
                Ok(true) => {
                    mine.renewed(began, timing);
                    if !std::mem::replace(&mut leads, true) {
                        tracing::info!(lease = lock, identity = me, "Successfully acquired lease");
                    }
                }
                Ok(false) => mine.give_up(),
                Err(e) if e.is_conflict() => {
                    tracing::debug!(lease = lock, "Failed to update lock: another candidate has written it");
                }
                Err(e) => tracing::warn!(err = %e, lease = lock, "Failed to renew lease"),
            }
            // What has been decided with a claim that was lost meanwhile is not the truth any more.
            if leads && !mine.unexpired() {
                tracing::error!(lease = lock, identity = me, "Leaderelection lost");
                mine.state.lost.store(true, Ordering::Release);
                return;
            }
            // A Lease that was given back, or has expired, is taken at once.
            let left = seen.until.saturating_sub(mine.now());
            let expiry = Duration::from_nanos(u64::try_from(left).unwrap_or(0));
            let pause = match leads || expiry.is_zero() {
                // Another connection may still renew it in time.
                true if leads && hangs => Duration::ZERO,
                true => timing.retry,
                false => timing.retry.min(expiry),
            };
            tokio::select! {
                () = stop.cancelled() => break,
                () = mine.state.doubt.notified(), if leads => {}
                () = changed(&api, (&namespace, &name), &seen.version), if !leads && was_read => {}
                () = tokio::time::sleep(pause) => {}
            }
        }
        let held = mine.unexpired();
        mine.give_up();
        if held && mine.state.expires.load(Ordering::Acquire) {
            tracing::info!(lease = lock, identity = me, "Leaving the lease to expire: writes were cut off");
        } else if held {
            release_in_time(&api, &namespace, &name, &me).await;
        }
    };
    (claim, work)
}

/// Waits until the Lease is written again; for ever when it can't be watched, so that it is looked at from time to time.
async fn changed(api: &Api, (namespace, name): (&str, &str), version: &str) {
    let path = format!(
        "{}?watch=true&timeoutSeconds={WATCH_SECONDS}&fieldSelector=metadata.name%3D{}&resourceVersion={version}",
        LEASES.collection(namespace),
        encode(name)
    );
    // A version that no client has seen yet would be the beginning of everything.
    if !version.is_empty()
        && let Ok(mut lines) = api.watch(&path, Encoding::Json).await
    {
        let mut line = Vec::new();
        // Whatever else it says, such as that the version is too old, is no reason to look.
        if lines.read_until(b'\n', &mut line).await.is_ok()
            && matches!(Event::from_line(&line), Ok(Event::Upsert { .. } | Event::Delete(_)))
        {
            return;
        }
    }
    std::future::pending::<()>().await;
}

/// Seconds after which the server ends the watch of the Lease; looks are more frequent.
const WATCH_SECONDS: u32 = 60;

/// Time to give the Lease back at the end. It expires anyway.
const RELEASE: Duration = Duration::from_secs(2);

async fn release_in_time(api: &Api, namespace: &str, name: &str, me: &str) {
    let released = tokio::time::timeout(RELEASE, release(api, namespace, name, me)).await;
    let lock = format!("{namespace}/{name}");
    match released.unwrap_or_else(|_| Err(Error::Transport("no answer in time".into()))) {
        Ok(()) => tracing::info!(lease = lock, identity = me, "Released leader lease"),
        Err(e) => tracing::warn!(err = %e, lease = lock, "Failed to release lease"),
    }
}

const NO_ANSWER: &str = "no answer in time";

fn unanswered() -> Error {
    Error::Transport(NO_ANSWER.into())
}

/// Waits for an answer as long as another connection can renew the Lease afterwards: one that hangs must not cost it (client-go,
/// `tools/leaderelection/resourcelock`).
async fn answered<T>(timing: Timing, request: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
    let patience = (timing.renew_deadline / 2).max(Duration::from_secs(1));
    tokio::time::timeout(patience, request).await.unwrap_or_else(|_| Err(unanswered()))
}

async fn round(
    api: &Api,
    name: (&str, &str),
    me: &str,
    seen: &mut Observed,
    timing: Timing,
    claim: &Claim,
    leads: bool,
) -> Result<bool, Error> {
    let read = match answered(timing, api.get(LEASES, name.0, name.1)).await {
        Ok(lease) => Some(lease),
        Err(e) if e.is_not_found() => None,
        Err(e) => return Err(e),
    };
    // Another replica has led since, whether or not it still does.
    if leads && read.as_ref().is_some_and(|l| json::text(l, &["spec", "holderIdentity"]) != me) {
        return Ok(false);
    }
    let now = (claim.now(), (claim.state.wall)());
    let written = match decide(name, me, read.as_ref(), seen, now, timing) {
        Step::Wait => return Ok(false),
        Step::Create(lease) => answered(timing, api.create(LEASES, &lease)).await,
        Step::Replace(lease) => answered(timing, api.replace(LEASES, &lease)).await,
    };
    match written {
        Ok(_) => Ok(true),
        // A conflict does not tell which replica leads: the next read does.
        Err(e) => Err(e),
    }
}

async fn release(api: &Api, namespace: &str, name: &str, me: &str) -> Result<(), Error> {
    let mut lease = api.get(LEASES, namespace, name).await?;
    if json::text(&lease, &["spec", "holderIdentity"]) == me {
        json::set(&mut lease, &["spec", "holderIdentity"], json!(""));
        json::set(&mut lease, &["spec", "leaseDurationSeconds"], json!(1));
        api.replace(LEASES, &lease).await?;
    }
    Ok(())
}

#[cfg(test)]
mod tests;

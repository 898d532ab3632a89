//! Leader election by a Lease (`coordination.k8s.io/v1`): acquire, renew, release.
//!
//! Only the holder writes: [`Claim::held`] is false from the moment the last renewal is too old, before anybody else
//! can have taken over.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::api::{Api, Error, LEASES};
use crate::{clock, json};

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

/// Whether this process leads.
#[derive(Clone, Debug)]
pub struct Claim {
    /// Nanoseconds since the epoch until which the claim holds.
    until: Arc<AtomicI64>,
}

impl Claim {
    /// A claim that always holds: one process, no election.
    pub fn always() -> Self {
        Self { until: Arc::new(AtomicI64::new(i64::MAX)) }
    }

    fn none() -> Self {
        Self { until: Arc::new(AtomicI64::new(i64::MIN)) }
    }

    /// Whether this process leads now.
    pub fn held(&self) -> bool {
        clock::now().0 < self.until.load(Ordering::Acquire)
    }

    /// Waits until this process leads.
    pub async fn wait(&self) {
        while !self.held() {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// Waits until this process does not lead any more.
    pub async fn lost(&self) {
        while self.held() {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
}

/// What to do with a Lease, decided from what was read: pure, so that it can be tested without a clock.
#[derive(Debug, PartialEq)]
enum Step {
    /// Nobody has made the Lease yet.
    Create(Value),
    /// Take it over or renew it; the read resourceVersion is the precondition.
    Replace(Box<Value>),
    /// Somebody else leads.
    Wait,
}

/// What a candidate remembers between two looks: the other's claim is judged by our own clock, from when we saw it
/// change, so that clocks need not agree.
#[derive(Debug, Default)]
struct Observed {
    version: String,
    since: i64,
}

fn decide(
    name: (&str, &str),
    me: &str,
    read: Option<&Value>,
    seen: &mut Observed,
    now: i64,
    timing: Timing,
) -> Step {
    let at = clock::micro_text(plimsoll_core::Time(now));
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
    let valid = now < seen.since.saturating_add(theirs.saturating_mul(1_000_000_000));
    if !holder.is_empty() && holder != me && valid {
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

/// Takes part in the election until stopped, then releases the Lease. Returns the claim at once.
pub fn run(
    api: Api,
    namespace: String,
    name: String,
    me: String,
    timing: Timing,
    stop: CancellationToken,
) -> (Claim, impl Future<Output = ()> + Send) {
    let claim = Claim::none();
    let mine = claim.clone();
    let work = async move {
        let mut seen = Observed::default();
        loop {
            let began = clock::now().0;
            let round = round(&api, (&namespace, &name), &me, &mut seen, timing);
            // An answer that comes after the claim has ended is of no use.
            let round = tokio::time::timeout(timing.renew_deadline, round).await;
            match round.unwrap_or_else(|_| Err(Error::Transport("no answer in time".into()))) {
                Ok(true) => {
                    let hold = i64::try_from(timing.renew_deadline.as_nanos()).unwrap_or(i64::MAX);
                    mine.until.store(began.saturating_add(hold), Ordering::Release);
                }
                Ok(false) => mine.until.store(i64::MIN, Ordering::Release),
                Err(e) if e.is_conflict() => tracing::debug!(lease = name, "somebody was faster"),
                Err(e) => tracing::warn!(error = %e, lease = name, "the lease was not renewed"),
            }
            tokio::select! {
                () = stop.cancelled() => break,
                () = tokio::time::sleep(timing.retry) => {}
            }
        }
        let held = mine.held();
        mine.until.store(i64::MIN, Ordering::Release);
        if held && let Err(e) = release(&api, &namespace, &name, &me).await {
            tracing::warn!(error = %e, lease = name, "the lease was not released");
        }
    };
    (claim, work)
}

async fn round(
    api: &Api,
    name: (&str, &str),
    me: &str,
    seen: &mut Observed,
    timing: Timing,
) -> Result<bool, Error> {
    let read = match api.get(LEASES, name.0, name.1).await {
        Ok(lease) => Some(lease),
        Err(e) if e.is_not_found() => None,
        Err(e) => return Err(e),
    };
    let written = match decide(name, me, read.as_ref(), seen, clock::now().0, timing) {
        Step::Wait => return Ok(false),
        Step::Create(lease) => api.create(LEASES, &lease).await,
        Step::Replace(lease) => api.replace(LEASES, &lease).await,
    };
    match written {
        Ok(_) => Ok(true),
        // A conflict tells nothing about who leads: the next look does.
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
mod tests {
    use super::*;

    const S: i64 = 1_000_000_000;

    fn lease(holder: &str, version: &str) -> Value {
        json!({"metadata": {"resourceVersion": version}, "spec": {"holderIdentity": holder,
               "leaseDurationSeconds": 15, "leaseTransitions": 3}})
    }

    #[test]
    fn times_must_leave_room() {
        let seconds = |lease, renew, retry| Timing {
            lease: Duration::from_secs(lease),
            renew_deadline: Duration::from_secs(renew),
            retry: Duration::from_secs(retry),
        };
        assert_eq!(Timing::default().problem(), None);
        let lease = "leaseDuration must be greater than renewDeadline";
        let retry = "renewDeadline must be greater than retryPeriod*JitterFactor";
        for (timing, want) in
            [(seconds(10, 10, 2), Some(lease)), (seconds(15, 6, 5), Some(retry)), (seconds(15, 7, 5), None)]
        {
            assert_eq!(timing.problem(), want, "{timing:?}");
        }
    }

    #[test]
    fn who_may_take_the_lease() {
        let mut seen = Observed::default();
        let mut go = |read: Option<&Value>, now: i64| {
            decide(("ns", "n"), "me", read, &mut seen, now, Timing::default())
        };
        assert!(matches!(go(None, 0), Step::Create(l) if l["spec"]["holderIdentity"] == "me"));
        assert_eq!(go(Some(&lease("you", "1")), 100 * S), Step::Wait);
        assert_eq!(go(Some(&lease("you", "1")), 114 * S), Step::Wait);
        assert_eq!(go(Some(&lease("you", "2")), 116 * S), Step::Wait, "renewed: counted anew");
        let Step::Replace(taken) = go(Some(&lease("you", "2")), 131 * S) else { panic!("expired") };
        assert_eq!(
            (&taken["spec"]["holderIdentity"], &taken["spec"]["leaseTransitions"]),
            (&json!("me"), &json!(4))
        );
        assert!(matches!(go(Some(&lease("", "3")), 132 * S), Step::Replace(_)), "released");
        let Step::Replace(mine) = go(Some(&lease("me", "4")), 133 * S) else { panic!("mine") };
        assert_eq!(mine["spec"]["leaseTransitions"], 3);
    }
}

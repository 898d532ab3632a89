//! Leases of other processes, as they are seen from outside.

use std::time::Duration;

use plimsoll_api::json;
use serde_json::Value;
use tokio::time::Instant;

/// For how long a Lease is held that does not say it (the default of leader elections).
pub const LEASE: Duration = Duration::from_secs(15);

/// What was seen of a Lease. Its times are by another machine's clock: what counts is how long ago, by ours, it has last changed, as in
/// elections.
#[derive(Debug)]
pub struct SeenLease {
    version: String,
    since: Instant,
    /// Whether it has changed while it was looked at.
    renewed: bool,
}

impl Default for SeenLease {
    fn default() -> Self {
        Self { version: String::new(), since: Instant::now(), renewed: false }
    }
}

impl SeenLease {
    /// The Lease was read.
    pub fn see(&mut self, lease: &Value) {
        let version = json::version(lease);
        if self.version != version {
            let renewed = !self.version.is_empty();
            *self = Self { version: version.to_owned(), since: Instant::now(), renewed };
        }
    }

    /// Its version, empty before it was read.
    pub fn version(&self) -> &str {
        &self.version
    }

    /// Whether the Lease, as it was read last, names a holder that may still be there; `otherwise`: for how long it is held if it does not
    /// say that.
    pub fn is_held(&self, lease: &Value, otherwise: Duration) -> bool {
        let seconds = json::int(lease, &["spec", "leaseDurationSeconds"]).and_then(|s| u64::try_from(s).ok());
        !holder(lease).is_empty() && self.since.elapsed() < seconds.map_or(otherwise, Duration::from_secs)
    }

    /// Whether it has changed while it was looked at: a Lease whose holder was killed is held, too, at first sight.
    pub const fn is_renewed(&self) -> bool {
        self.renewed
    }
}

/// The process that a Lease names, possibly empty.
pub fn holder(lease: &Value) -> &str {
    json::text(lease, &["spec", "holderIdentity"])
}

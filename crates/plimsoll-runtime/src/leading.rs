//! Whether the controllers of this process decide.

use std::time::Duration;

use plimsoll_client::health::Health;
use plimsoll_client::leader_election::Claim;
use plimsoll_client::workers::Gate;
use tokio_util::sync::CancellationToken;

/// Pause between two looks of a follower.
const FOLLOWER: Duration = Duration::from_millis(200);

/// Nothing is decided by a follower, nor while something is not served; cheap to clone.
#[derive(Clone, Debug)]
pub struct Leading {
    /// Whether this process may write.
    pub claim: Claim,
    /// Cancelled when the cache contains what the leader before this process wrote: a job that it started must not be taken
    /// for one without quota.
    pub took_over: CancellationToken,
    /// Whether everything is served.
    pub health: Health,
}

impl Gate for Leading {
    fn is_open(&self) -> bool {
        self.claim.held() && self.took_over.is_cancelled() && !self.health.paused()
    }

    async fn opened(&self) {
        if self.health.paused() {
            self.health.resumed().await;
        } else {
            // A follower looks again, in case it has become the leader.
            tokio::time::sleep(FOLLOWER).await;
        }
    }
}

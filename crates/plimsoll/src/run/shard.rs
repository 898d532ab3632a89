//! A shard beside processes that decide about the whole cluster: while one of them leads, the shard's leader does not, as both
//! would give away the same quota and nodes.

use std::time::Duration;

use plimsoll_api::json;
use plimsoll_runtime::api::{Api, Error, LEASES};
use plimsoll_runtime::lease::{SeenLease, holder};
use serde_json::Value;

/// The Lease of processes without `--shard`.
#[derive(Clone, Debug)]
pub struct WholeCluster {
    pub api: Api,
    pub namespace: String,
    pub name: String,
    /// Pause between two looks.
    pub retry: Duration,
    /// For how long a Lease is held that does not say it.
    pub lease: Duration,
}

impl WholeCluster {
    /// Waits until no process without `--shard` leads. Gives the version of the Lease then, empty where there is none.
    pub async fn ended(&self) -> String {
        let mut seen = SeenLease::default();
        let mut said = false;
        loop {
            match self.look().await {
                Ok(None) => return String::new(),
                Ok(Some(lease)) => {
                    seen.see(&lease);
                    if !seen.is_held(&lease, self.lease) {
                        return seen.version().to_owned();
                    }
                    if !std::mem::replace(&mut said, true) {
                        let (lock, holder) = (self.lock(), holder(&lease));
                        tracing::warn!(lease = lock, holder, "waiting for a process without --shard to end");
                    }
                }
                Err(error) => {
                    tracing::warn!(%error, lease = self.lock(), "can't see who leads without --shard");
                }
            }
            tokio::time::sleep(self.retry).await;
        }
    }

    /// Waits until such a process leads, since this version of its Lease; says so.
    pub async fn begun(&self, since: &str) -> String {
        loop {
            tokio::time::sleep(self.retry).await;
            // A server that does not answer says nothing of another process; the election notices that it is gone.
            if let Ok(Some(lease)) = self.look().await
                && json::version(&lease) != since
                && !holder(&lease).is_empty()
            {
                let (lock, holder) = (self.lock(), holder(&lease));
                return format!(
                    "{holder} leads without --shard (Lease {lock}): it decides about this shard, too"
                );
            }
        }
    }

    fn lock(&self) -> String {
        format!("{}/{}", self.namespace, self.name)
    }

    async fn look(&self) -> Result<Option<Value>, Error> {
        match self.api.get(LEASES, &self.namespace, &self.name).await {
            Ok(lease) => Ok(Some(lease)),
            Err(e) if e.is_not_found() => Ok(None),
            Err(e) => Err(e),
        }
    }
}

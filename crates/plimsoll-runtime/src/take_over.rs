//! How a replica that follows becomes the one that decides.

use std::collections::BTreeSet;
use std::time::Duration;

use plimsoll_api::watch::{Meta, Page};
use plimsoll_client::leader_election::Claim;
use plimsoll_client::reflector::Memory;
use plimsoll_client::{discovery, pager};
use tokio_util::sync::CancellationToken;

use crate::api::{
    Api, CLUSTER_QUEUES, COHORTS, DEVICE_CLAIMS, Encoding, Error, QUOTA_LOANS, Resource, WORKLOADS,
};
use crate::ingest::Sinks;

/// First and longest pause after a failure.
const RETRY: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(5));

/// Resources of which a leader gives something away in writes: quota, devices.
pub const GIVES: [Resource; 3] = [WORKLOADS, DEVICE_CLAIMS, QUOTA_LOANS];

/// Resources whose objects carry out decisions about trees, or say which there are.
pub const OF_TREES: [Resource; 4] = [COHORTS, CLUSTER_QUEUES, WORKLOADS, QUOTA_LOANS];

/// What the followers of resources know that a process has to have seen: before it takes over, and before it decides with a tree.
pub type Memories = (Vec<(Resource, Memory)>, Vec<(Resource, Memory)>);

/// Waits until this process leads and has seen what the leader before it wrote to workloads and claims for devices, then has
/// the engine and the job controllers decide (`took_over` is cancelled). `given`: what has been seen of those that are watched.
///
/// That one wrote nothing after it lost the Lease; but the watch may be late, and quota or devices that it gave would be
/// given again, and a job that runs by right would be suspended because its workload seems to have no quota. Pods need no
/// such look: a node refuses those that it has no room for. `of_trees`: the same of what says which trees a shard has.
pub async fn run(
    api: Api,
    claim: Claim,
    (given, of_trees): Memories,
    sinks: Sinks,
    took_over: CancellationToken,
) {
    if !claim.wait().await {
        return;
    }
    // Without an election no replica has led before, for all this process knows, and its lists are new.
    if !claim.is_uncontested() {
        for (resource, seen) in given {
            caught_up(&api, resource, &seen).await;
        }
    }
    // The trees of a shard are looked for before their queues are said to be inactive.
    if sinks.shard.is_some() {
        sinks.synced.wait().await;
        find(&api, &sinks, &of_trees).await;
    }
    sinks.inbox.lead();
    took_over.cancel();
}

/// Waits until everything was seen that leaders before wrote about trees that name this shard as their leader by now, if there are any.
pub async fn find(api: &Api, sinks: &Sinks, seen: &[(Resource, Memory)]) {
    let Some(number) = sinks.shard.as_ref().and_then(|shard| shard.lock().unknown()) else { return };
    let mut loans = (0, BTreeSet::new());
    for (resource, seen) in seen {
        let listed = caught_up(api, *resource, seen).await;
        if *resource == QUOTA_LOANS {
            loans = listed;
        }
    }
    sinks.change_division(|division, seen, out| division.found(number, loans, seen, out));
}

/// Waits until everything that was written to objects of a resource until now has been handed on. Returns the version of the list
/// that says so, and the UIDs in it.
pub async fn caught_up(api: &Api, resource: Resource, seen: &Memory) -> (u64, BTreeSet<String>) {
    let mut pause = RETRY.0;
    let Newest { newest, version, uids } = loop {
        match newest(api, resource).await {
            Ok(newest) => break newest,
            Err(e) => {
                let what = resource.plural;
                tracing::warn!(error = %e, what, "objects could not be listed before taking over");
            }
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(RETRY.1);
    };
    seen.reached(newest).await;
    (version, uids)
}

/// A list of a resource.
#[derive(Default)]
struct Newest {
    /// The newest version of an object; 0 when there is none.
    newest: u64,
    /// The version of the list.
    version: u64,
    /// UIDs, of loans alone.
    uids: BTreeSet<String>,
}

async fn newest(api: &Api, resource: Resource) -> Result<Newest, Error> {
    let mut found = Newest::default();
    let collection = resource.collection("");
    let compare = &mut |page: &Page<'_>| {
        for meta in page.items.iter().filter_map(|item| Meta::of(item)) {
            found.newest = found.newest.max(meta.resource_version.parse().unwrap_or(0));
            if resource == QUOTA_LOANS {
                found.uids.insert(meta.uid.to_string());
            }
        }
    };
    match pager::each_page(api, &collection, "", Encoding::Metadata, compare).await {
        Ok(version) => Ok(Newest { version: version.parse().unwrap_or(0), ..found }),
        // A proxy may answer 404 for anything, and what is there would be given again.
        Err(e) if e.is_not_found() => match discovery::lacks(api, resource).await {
            Ok(true) => Ok(Newest::default()),
            Ok(false) => Err(e),
            Err(unknown) => Err(unknown),
        },
        Err(e) => Err(e),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use bytes::Bytes;
    use futures::future::BoxFuture;
    use futures::stream::{self, BoxStream, StreamExt};
    use http::{Request, StatusCode};

    use super::*;

    /// A server that answers every request with this.
    struct Always(StatusCode, &'static str);

    impl crate::api::Direct for Always {
        fn call(&self, _: Request<Vec<u8>>) -> BoxFuture<'static, (StatusCode, BoxStream<'static, Bytes>)> {
            let (code, body) = (self.0, Bytes::from(self.1));
            Box::pin(async move { (code, stream::once(async move { body }).boxed()) })
        }
    }

    /// A server that has no claims for devices, and says so in its discovery documents.
    struct Without;

    impl crate::api::Direct for Without {
        fn call(
            &self,
            request: Request<Vec<u8>>,
        ) -> BoxFuture<'static, (StatusCode, BoxStream<'static, Bytes>)> {
            let (code, body) = match request.uri().path() {
                "/apis" => (StatusCode::OK, r#"{"kind": "APIGroupList", "groups": []}"#),
                _ => (StatusCode::NOT_FOUND, "{}"),
            };
            Box::pin(async move { (code, stream::once(async move { Bytes::from(body) }).boxed()) })
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_404_is_no_reason_to_take_over_before_discovery_says_so() {
        let minute = Duration::from_secs(60);
        let proxied = Api::direct(Arc::new(Always(StatusCode::NOT_FOUND, "{}")), "test");
        let seen = Memory::default();
        let early = tokio::time::timeout(minute, caught_up(&proxied, DEVICE_CLAIMS, &seen)).await;
        assert!(early.is_err(), "claims may be there that have not been seen");
        let without = Api::direct(Arc::new(Without), "test");
        let there_are_none = tokio::time::timeout(minute, caught_up(&without, DEVICE_CLAIMS, &seen)).await;
        assert!(there_are_none.is_ok(), "discovery says that there are none");
    }

    /// A server with workloads of versions 5, 9 and 7 in two pages, at first out of order.
    #[derive(Default)]
    struct Server(std::sync::atomic::AtomicBool);

    impl crate::api::Direct for Server {
        fn call(
            &self,
            request: Request<Vec<u8>>,
        ) -> BoxFuture<'static, (StatusCode, BoxStream<'static, Bytes>)> {
            let works = self.0.swap(true, std::sync::atomic::Ordering::SeqCst);
            let page = match request.uri().query() {
                Some(q) if q.ends_with("continue=more") => {
                    r#"{"items": [{"metadata": {"resourceVersion": "7"}}]}"#
                }
                _ => {
                    r#"{"metadata": {"resourceVersion": "50", "continue": "more"},
                        "items": [{"metadata": {"resourceVersion": "5"}}, {"metadata": {"resourceVersion": "9"}}]}"#
                }
            };
            let code = if works { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
            let body = stream::once(async move { Bytes::from(page) }).boxed();
            Box::pin(async move { (code, body) })
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_late_watch_is_waited_for() {
        let api = Api::direct(Arc::new(Server::default()), "test");
        let seen = Memory::default();
        seen.saw("8");
        let late = tokio::time::timeout(Duration::from_secs(60), caught_up(&api, WORKLOADS, &seen)).await;
        assert!(late.is_err(), "a write of the leader before has not been seen");
        seen.saw("9");
        caught_up(&api, WORKLOADS, &seen).await;
    }
}

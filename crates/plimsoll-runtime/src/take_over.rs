//! How a replica that follows becomes the one that decides.

use std::time::Duration;

use plimsoll_api::watch::{Meta, Page};
use plimsoll_client::leader_election::Claim;
use plimsoll_client::reflector::Memory;
use plimsoll_client::{discovery, pager};
use tokio_util::sync::CancellationToken;

use crate::api::{Api, DEVICE_CLAIMS, Encoding, Error, QUOTA_LOANS, Resource, WORKLOADS};
use crate::driver::Inbox;

/// First and longest pause after a failure.
const RETRY: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(5));

/// Resources of which a leader gives something away in writes: quota, devices.
pub const GIVES: [Resource; 3] = [WORKLOADS, DEVICE_CLAIMS, QUOTA_LOANS];

/// Waits until this process leads and has seen what the leader before it wrote to workloads and claims for devices, then has
/// the engine and the job controllers decide (`took_over` is cancelled). `given`: what has been seen of those that are watched.
///
/// That one wrote nothing after it lost the Lease; but the watch may be late, and quota or devices that it gave would be
/// given again, and a job that runs by right would be suspended because its workload seems to have no quota. Pods need no
/// such look: a node refuses those that it has no room for.
pub async fn run(
    api: Api,
    claim: Claim,
    given: Vec<(Resource, Memory)>,
    inbox: Inbox,
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
    inbox.lead();
    took_over.cancel();
}

/// Waits until everything that was written to objects of a resource until now has been handed on.
async fn caught_up(api: &Api, resource: Resource, seen: &Memory) {
    let mut pause = RETRY.0;
    let newest = loop {
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
}

/// The newest version of an object of a resource; 0 when there is none.
async fn newest(api: &Api, resource: Resource) -> Result<u64, Error> {
    let mut newest = 0;
    let collection = resource.collection("");
    let compare = &mut |page: &Page<'_>| {
        let metas = page.items.iter().filter_map(|item| Meta::of(item));
        newest = metas.filter_map(|meta| meta.resource_version.parse().ok()).fold(newest, u64::max);
    };
    match pager::each_page(api, &collection, "", Encoding::Metadata, compare).await {
        Ok(_) => Ok(newest),
        // A proxy may answer 404 for anything, and what is there would be given again.
        Err(e) if e.is_not_found() => match discovery::lacks(api, resource).await {
            Ok(true) => Ok(0),
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

//! How a replica that follows becomes the one that decides.

use std::time::Duration;

use plimsoll_api::watch::{Meta, Page};
use plimsoll_client::leader_election::Claim;
use plimsoll_client::pager;
use plimsoll_client::reflector::Memory;
use tokio_util::sync::CancellationToken;

use crate::api::{Api, DEVICE_CLAIMS, Encoding, Error, Resource, WORKLOADS};
use crate::driver::Inbox;

/// First and longest pause after a failure.
const RETRY: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(5));

/// Resources of which a leader gives something away in writes: quota, devices.
pub const GIVES: [Resource; 2] = [WORKLOADS, DEVICE_CLAIMS];

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
        // The resource is not served: there are none.
        Err(e) if e.is_not_found() => Ok(newest),
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

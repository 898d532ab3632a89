//! Follows a resource that a CustomResourceDefinition adds: in the version that is served, as soon as and as long as there is
//! one. No restart is needed when the definition appears or goes.

#[cfg(test)]
mod tests;

use std::time::Duration;

use futures::future::BoxFuture;
use plimsoll_api::resource::Resource;
use tokio_util::sync::CancellationToken;

use crate::discovery::{Groups, Served};
use crate::reflector::{Delta, Reflector};

/// Pause between looks whether the resource is served.
const LOOK: Duration = Duration::from_secs(3);

/// What is heard of such a resource.
pub trait Sink: Send {
    /// In which version it is served; repeated at each look.
    fn served(&mut self, served: Option<Resource>);

    /// A change of an object, or the end of a list. A resource that is not served has an empty list.
    fn delta(&mut self, resource: Resource, delta: Delta<'_>);
}

/// Follows the resource of `reflector`, in one of these versions, until stopped.
pub fn run<'a>(
    reflector: Reflector,
    versions: &'static [Resource],
    groups: Groups,
    stop: CancellationToken,
    sink: impl Sink + 'a,
) -> BoxFuture<'a, ()> {
    run_boxed(reflector, versions, groups, stop, Box::new(sink))
}

/// Compiled once, for all sinks.
fn run_boxed<'a>(
    reflector: Reflector,
    versions: &'static [Resource],
    groups: Groups,
    stop: CancellationToken,
    mut sink: Box<dyn Sink + 'a>,
) -> BoxFuture<'a, ()> {
    Box::pin(async move { each(reflector, versions, groups, stop, &mut *sink).await })
}

async fn each(
    reflector: Reflector,
    versions: &'static [Resource],
    groups: Groups,
    stop: CancellationToken,
    sink: &mut (dyn Sink + '_),
) {
    let mut was_forbidden = false;
    while !stop.is_cancelled() {
        let served = tokio::select! {
            () = stop.cancelled() => return,
            served = groups.served(versions) => served,
        };
        let forbidden = matches!(served, Ok(Served::Forbidden));
        if forbidden && !was_forbidden {
            tracing::warn!(
                resource = reflector.resource.plural,
                "may not be listed, and counts as not served"
            );
        }
        was_forbidden = forbidden;
        match served {
            Ok(Served::In(resource)) => {
                sink.served(Some(resource));
                follow(Reflector { resource, versions, ..reflector.clone() }, &stop, sink).await;
                continue;
            }
            Ok(Served::Forbidden | Served::No) => {
                sink.served(None);
                reflector.tracker.opened();
                sink.delta(reflector.resource, Delta::Synced { version: "" });
            }
            Err(e) => reflector.tracker.failed(&e),
        }
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(LOOK) => {}
        }
    }
}

/// Follows one version until it is not served any more. Objects stay where another one is.
async fn follow(reflector: Reflector, stop: &CancellationToken, sink: &mut (dyn Sink + '_)) {
    let resource = reflector.resource;
    tracing::info!(resource = resource.plural, version = resource.api_version, "the cluster serves it");
    let ended = stop.child_token();
    let hand_on = |delta: Delta<'_>| match delta {
        Delta::Absent => {
            tracing::info!(resource = resource.plural, "the cluster does not serve it any more");
            ended.cancel();
        }
        delta => sink.delta(resource, delta),
    };
    reflector.run(ended.clone(), hand_on).await;
}

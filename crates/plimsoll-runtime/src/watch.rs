//! List and watch of one resource, for ever: paged list, watch from its version, relist when the version is too old.
//!
//! Objects are handed on as bytes. A relist hands on everything again and then deletes what it did not contain, so
//! the receiver needs no copy of the old state.
//!
//! A 404 is not an empty list. A proxy answers it for what it does not know, and so does a server whose definition of the
//! resource is briefly not established. Objects that were listed are deleted only by their own events, by a list
//! without them, or when discovery has said for [`DENIED`] that an optional resource is not served any more.

mod page;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use plimsoll_api::watch::{Change, Event, Gone, Known, Meta, Page, join, split};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use crate::api::{Api, Encoding, Error, Resource};
use crate::discovery;
use crate::health::Tracker;
use page::Next;

/// Objects per page of a list.
const PAGE: usize = 500;
/// Seconds after which the server ends a watch. Bookmarks come only every minute, too seldom to notice within a minute
/// that the network has failed.
const WATCH_SECONDS: u32 = 40;
/// A watch that outlives the time it was asked for by this much is taken for dead.
const OVERDUE: Duration = Duration::from_secs(6);
/// A watch that ends earlier than this ended for a reason: the next one waits.
const SHORT: Duration = Duration::from_secs(1);
/// For so long discovery has to say that an optional resource is not served any more, before its objects are deleted.
const DENIED: Duration = Duration::from_secs(60);
/// First and longest wait after a failure.
const BACKOFF: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(10));
/// Longest wait while a resource is not served.
const UNSERVED: Duration = Duration::from_secs(1);

/// What a watch tells.
#[derive(Clone, Copy, Debug)]
pub enum Delta<'a> {
    /// An object is there or has changed.
    Upsert {
        /// Its metadata.
        meta: &'a Meta<'a>,
        /// The object: JSON, or protobuf where [`Source::encoding`] allows it.
        bytes: &'a [u8],
    },
    /// An object is gone.
    Delete {
        /// Namespace, empty for cluster scope.
        namespace: &'a str,
        /// Name.
        name: &'a str,
        /// UID.
        uid: &'a str,
    },
    /// Everything that existed when the list was made has been handed on.
    Synced {
        /// The version of the list.
        version: &'a str,
    },
    /// Discovery says that the cluster does not serve the resource, so there is none of it. [`Delta::Synced`] follows.
    Absent,
}

/// What has been handed on of one resource; outlives the task that follows it.
#[derive(Clone, Debug, Default)]
pub struct Memory {
    seen_objects: Arc<tokio::sync::Mutex<Seen>>,
    /// Up to which version everything has been handed on.
    seen: Arc<tokio::sync::watch::Sender<u64>>,
}

impl Memory {
    /// Waits until everything up to this version has been handed on.
    pub async fn reached(&self, version: u64) {
        // The sender is in `self`.
        let _ = self.seen.subscribe().wait_for(|seen| *seen >= version).await;
    }

    /// Versions of one resource may be compared as numbers (KEP-5504; true of all servers that keep them in etcd).
    pub(crate) fn saw(&self, version: &str) {
        if let Ok(version) = version.parse() {
            self.seen.send_if_modified(|seen| std::mem::replace(seen, version) != version);
        }
    }
}

#[derive(Debug, Default)]
struct Seen {
    objects: Known<()>,
    /// Whether the resource has ever been listed.
    listed: bool,
}

/// What is followed.
#[derive(Clone, Debug)]
pub struct Source {
    /// Requests.
    pub api: Api,
    /// The resource.
    pub resource: Resource,
    /// More of the query, such as `&labelSelector=…`.
    pub selector: &'static str,
    /// Protobuf for receivers that read it.
    pub encoding: Encoding,
    /// Hears about the health of the watch.
    pub tracker: Tracker,
    /// What has been handed on before.
    pub memory: Memory,
}

impl Source {
    /// All objects of a resource, by a watch whose health is not reported.
    pub fn new(api: Api, resource: Resource) -> Self {
        let (tracker, memory) = (Tracker::unseen(resource), Memory::default());
        Self { api, resource, selector: "", encoding: Encoding::Json, tracker, memory }
    }
}

/// Follows one resource and calls `sink` for everything that happens, until cancelled.
///
/// The API server leaves out kind and version of items of a list; the sink knows which resource it gets.
pub async fn run(source: Source, stop: CancellationToken, mut sink: impl FnMut(Delta<'_>) + Send) {
    let Source { api, resource, selector, encoding, tracker, memory } = source;
    let known = Arc::clone(&memory.seen_objects).lock_owned().await;
    let collection = resource.collection("");
    let mut watch = Watch { known, collection, selector, encoding, tracker, memory, path: String::new() };
    let mut wait = BACKOFF.0;
    let mut version: Option<String> = None;
    let mut denied: Option<Instant> = None;
    loop {
        let began = Instant::now();
        let turn = async {
            if version.is_none() {
                let listed = watch.list(&api, &mut sink).await.map_err(Broken::List)?;
                watch.memory.saw(&listed);
                version = Some(listed);
            }
            let from = version.clone().unwrap_or_default();
            watch.follow(&api, from, &mut version, &mut sink).await.map_err(Broken::Watch)
        };
        let ended = tokio::select! {
            () = stop.cancelled() => return,
            ended = turn => ended,
        };
        match ended {
            Ok(()) if began.elapsed() >= SHORT => {
                wait = BACKOFF.0;
                continue;
            }
            Ok(()) => {}
            Err(broken) => {
                let listing = matches!(broken, Broken::List(_));
                let (Broken::List(e) | Broken::Watch(e)) = broken;
                if matches!(e.code(), 410 | 404) {
                    version = None;
                }
                watch.tracker.failed(&e);
                if matches!(e.code(), 401 | 403) {
                    // Nothing is decided before every list was seen: the right has to be granted.
                    tracing::warn!(resource = resource.plural, error = %e, "may not be watched");
                } else {
                    tracing::debug!(resource = resource.plural, error = %e, "watch broke off");
                }
                if !(listing && e.is_not_found()) {
                    denied = None;
                } else if watch.gone(&api, resource, &e, &mut denied).await {
                    watch.empty(&mut sink);
                    wait = BACKOFF.1;
                } else {
                    wait = wait.min(UNSERVED);
                }
            }
        }
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(wait) => {}
        }
        wait = (wait * 2).min(BACKOFF.1);
    }
}

/// Where it broke.
enum Broken {
    List(Error),
    Watch(Error),
}

/// Resources without which nothing can be decided: once seen, they are never taken for absent.
fn required(resource: Resource) -> bool {
    use crate::api::{CLUSTER_QUEUES, FLAVORS, JOBS, LOCAL_QUEUES, NAMESPACES, NODES, PODS, WORKLOADS};
    [PODS, NODES, NAMESPACES, JOBS, WORKLOADS, CLUSTER_QUEUES, LOCAL_QUEUES, FLAVORS].contains(&resource)
}

struct Watch {
    known: tokio::sync::OwnedMutexGuard<Seen>,
    collection: String,
    selector: &'static str,
    encoding: Encoding,
    tracker: Tracker,
    memory: Memory,
    /// Of the object at hand.
    path: String,
}

impl Watch {
    async fn list(&mut self, api: &Api, sink: &mut (impl FnMut(Delta<'_>) + Send)) -> Result<String, Error> {
        self.known.objects.begin_list();
        let first = format!("{}?limit={PAGE}{}", self.collection, self.selector);
        let encoding = self.encoding;
        let mut bytes = api.get_list(&first, encoding).await?;
        let version = loop {
            self.tracker.heard();
            let page = Page::read(&bytes)?;
            // The server makes the next page while this one is handed on.
            let next = (!page.next.is_empty()).then(|| {
                let (api, path) =
                    (api.clone(), format!("{first}&continue={}", crate::api::encode(&page.next)));
                AbortOnDropHandle::new(tokio::spawn(async move { api.get_list(&path, encoding).await }))
            });
            for item in page.items {
                match Meta::of(item) {
                    Some(meta) => self.upsert(&meta, item, sink),
                    None => self.unreadable(),
                }
            }
            let Some(next) = next else { break page.resource_version.into_owned() };
            bytes = next.await.map_err(|e| Error::Transport(e.to_string()))??;
        };
        self.sweep(sink);
        self.known.listed = true;
        sink(Delta::Synced { version: &version });
        // Last, so that whoever waits for it finds everything handed on.
        self.tracker.well();
        Ok(version)
    }

    /// Whether a 404 of the list means that there is none of the resource; else it counts as unserved.
    async fn gone(
        &mut self,
        api: &Api,
        resource: Resource,
        error: &Error,
        denied: &mut Option<Instant>,
    ) -> bool {
        if !self.known.listed {
            // It may have been there before this process; only discovery knows.
            return matches!(discovery::lacks(api, resource).await, Ok(true));
        }
        self.tracker.unserved(error);
        if required(resource) || !matches!(discovery::lacks(api, resource).await, Ok(true)) {
            *denied = None;
            return false;
        }
        let since = denied.get_or_insert_with(Instant::now);
        // Without objects there is nothing to lose.
        self.known.objects.is_empty() || since.elapsed() >= DENIED
    }

    /// There is none of the resource.
    fn empty(&mut self, sink: &mut (impl FnMut(Delta<'_>) + Send)) {
        self.known.objects.begin_list();
        self.sweep(sink);
        self.known.listed = false;
        sink(Delta::Absent);
        sink(Delta::Synced { version: "" });
        self.tracker.opened();
        self.tracker.well();
    }

    /// Deletes what the last list did not contain.
    fn sweep(&mut self, sink: &mut impl FnMut(Delta<'_>)) {
        self.known.objects.end_list().iter().for_each(|gone| end(gone, sink));
    }

    async fn follow(
        &mut self,
        api: &Api,
        from: String,
        version: &mut Option<String>,
        sink: &mut (impl FnMut(Delta<'_>) + Send),
    ) -> Result<(), Error> {
        let path = format!(
            "{}?watch=true&allowWatchBookmarks=true&timeoutSeconds={WATCH_SECONDS}&resourceVersion={from}{}",
            self.collection, self.selector
        );
        let end = Instant::now() + Duration::from_secs(u64::from(WATCH_SECONDS)) + OVERDUE;
        let mut stream = api.stream(&path, self.encoding).await?;
        self.tracker.opened();
        let mut event: Vec<u8> = Vec::new();
        loop {
            let read = tokio::time::timeout_at(end, page::next(&mut stream, &mut event)).await;
            let Ok(read) = read else { return Err(Error::Transport("the watch did not end in time".into())) };
            self.tracker.heard();
            let seen = match read? {
                Next::End => return Ok(()),
                Next::Line => self.event(Event::from_line(&event)?, sink),
                Next::Frame => self.event(Event::from_frame(&event)?, sink),
            };
            if let Some(seen) = seen {
                self.memory.saw(&seen);
                *version = Some(seen);
            }
        }
    }

    /// Handles an event; returns the version up to which everything has been seen.
    fn event(&mut self, event: Event<'_>, sink: &mut impl FnMut(Delta<'_>)) -> Option<String> {
        let version = match event {
            Event::Upsert { meta, object } => {
                self.upsert(&meta, object, sink);
                meta.resource_version
            }
            Event::Delete(meta) => {
                join(&mut self.path, &meta.namespace, &meta.name);
                self.known.objects.delete(&self.path).iter().for_each(|gone| end(gone, sink));
                meta.resource_version
            }
            Event::Bookmark(version) => version,
            Event::Unreadable => {
                self.unreadable();
                return None;
            }
        };
        (!version.is_empty()).then(|| version.into_owned())
    }

    fn unreadable(&self) {
        tracing::warn!(path = self.collection, "an object without readable metadata was skipped");
    }

    fn upsert(&mut self, meta: &Meta<'_>, bytes: &[u8], sink: &mut impl FnMut(Delta<'_>)) {
        join(&mut self.path, &meta.namespace, &meta.name);
        if let Change::Replaced(gone) = self.known.objects.upsert(&self.path, &meta.uid, ()) {
            end(&gone, sink);
        }
        sink(Delta::Upsert { meta, bytes });
    }
}

fn end(gone: &Gone<()>, sink: &mut impl FnMut(Delta<'_>)) {
    let (namespace, name) = split(&gone.path);
    sink(Delta::Delete { namespace, name, uid: &gone.uid });
}

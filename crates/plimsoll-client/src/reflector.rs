//! List and watch of one resource, for ever (client-go's Reflector): a list, which is streamed where the server can
//! ([`stream`]) and comes in pages elsewhere, a watch from its version, and a relist when the version is too old.
//!
//! Objects are handed on as bytes: what a sink makes of them, and whether it keeps anything, is its own. A relist hands on
//! everything again and then deletes what it did not contain, so that no sink needs a copy of the old state. What is remembered
//! of each object is its UID ([`Known`]).
//!
//! A 404 is not an empty list. A proxy answers it for what it does not know, and so does a server whose definition of the
//! resource is briefly not established. Objects that were listed are deleted only by their own events, by a list
//! without them, or when discovery has said for [`DENIED`] that an optional resource is not served any more.

mod frames;
mod stream;
#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use plimsoll_api::request::Error;
use plimsoll_api::resource::Resource;
use plimsoll_api::watch::{Change, Event, Gone, Known, Meta, Page, join, split};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::health::Tracker;
use crate::rest::{Api, Encoding};
use crate::{discovery, pager};
use frames::Next;
use stream::Streamed;

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

/// What a reflector hands on.
#[derive(Clone, Copy, Debug)]
pub enum Delta<'a> {
    /// An object is there or has changed.
    Upsert {
        /// Its metadata.
        meta: &'a Meta<'a>,
        /// The object: JSON, or protobuf where [`Reflector::encoding`] allows it. Items of lists come without kind and version.
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
    objects: Arc<tokio::sync::Mutex<Seen>>,
    /// Up to which version everything has been handed on.
    version: Arc<tokio::sync::watch::Sender<u64>>,
}

impl Memory {
    /// Waits until everything up to this version has been handed on.
    pub async fn reached(&self, version: u64) {
        // The sender is in `self`.
        let _ = self.version.subscribe().wait_for(|seen| *seen >= version).await;
    }

    /// Everything up to this version has been handed on. Versions of one resource may be compared as numbers (KEP-5504; true
    /// of all servers that keep them in etcd).
    pub fn saw(&self, version: &str) {
        if let Ok(version) = version.parse() {
            self.see(version);
        }
    }

    /// There is none of the resource: what was written before will never be handed on.
    fn saw_the_end(&self) {
        self.see(u64::MAX);
    }

    fn see(&self, version: u64) {
        self.version.send_if_modified(|seen| std::mem::replace(seen, version) != version);
    }
}

#[derive(Debug, Default)]
struct Seen {
    objects: Known<()>,
    /// Whether the resource has ever been listed.
    listed: bool,
}

/// Follows one resource. Clones share what has been handed on.
#[derive(Clone, Debug)]
pub struct Reflector {
    /// Requests.
    pub api: Api,
    /// The resource.
    pub resource: Resource,
    /// The namespace; empty: all of them.
    pub namespace: String,
    /// More of the query, such as `&labelSelector=…`.
    pub selector: Cow<'static, str>,
    /// Protobuf for sinks that read it.
    pub encoding: Encoding,
    /// Whether nothing can be decided without the resource: once listed, it is never taken for absent.
    pub required: bool,
    /// The versions in which the resource may be served, where it may be in several: it is not absent while it is served in another one.
    pub versions: &'static [Resource],
    /// Hears about the health of the watch.
    pub tracker: Tracker,
    /// What has been handed on before.
    pub memory: Memory,
}

impl Reflector {
    /// Follows all objects of a resource in JSON, without a report of its health.
    pub fn new(api: Api, resource: Resource) -> Self {
        let (tracker, memory) = (Tracker::unseen(resource), Memory::default());
        let (namespace, selector) = (String::new(), Cow::Borrowed(""));
        Self {
            api,
            resource,
            namespace,
            selector,
            encoding: Encoding::Json,
            required: false,
            versions: &[],
            tracker,
            memory,
        }
    }

    /// Calls `sink` for everything that happens, until cancelled, or until the resource is served in another one of its versions only.
    /// What has been handed on stays then: a reflector with the same memory goes on from there.
    pub fn run<'a>(
        self,
        stop: CancellationToken,
        sink: impl FnMut(Delta<'_>) + Send + 'a,
    ) -> BoxFuture<'a, ()> {
        self.run_boxed(stop, Box::new(sink))
    }

    /// Whether discovery has the resource in another one of its versions, and not in this one.
    async fn has_moved(&self) -> bool {
        for other in self.versions.iter().filter(|other| **other != self.resource) {
            if matches!(discovery::lacks(&self.api, *other).await, Ok(false)) {
                return matches!(discovery::lacks(&self.api, self.resource).await, Ok(true));
            }
        }
        false
    }

    /// Compiled once, for all sinks.
    fn run_boxed<'a>(self, stop: CancellationToken, mut sink: Box<Sink<'a>>) -> BoxFuture<'a, ()> {
        Box::pin(async move { self.each(stop, &mut *sink).await })
    }

    async fn each(self, stop: CancellationToken, sink: &mut Sink<'_>) {
        let (resource, seen) = (self.resource, Arc::clone(&self.memory.objects).lock_owned().await);
        let (collection, path) = (resource.collection(&self.namespace), String::new());
        // In the same process a page costs nothing to send.
        let pages = !self.api.is_remote();
        let mut session =
            Session { source: self, seen, collection, path, version: None, denied: None, pages };
        let mut wait = BACKOFF.0;
        loop {
            let began = Instant::now();
            let ended = tokio::select! {
                () = stop.cancelled() => return,
                ended = session.list_and_watch(sink) => ended,
            };
            let lasted = began.elapsed() >= SHORT;
            // A load balancer closes a quiet watch at its idle timeout, again and again: that is no reason to back off.
            if lasted && matches!(ended, Ok(()) | Err(Broken::Watch(Error::Transport(_)))) {
                wait = BACKOFF.0;
            }
            match ended {
                Ok(()) if lasted => continue,
                Ok(()) => {}
                Err(broken) => match session.broke(&broken).await {
                    After::Retry => {}
                    After::Unserved => wait = wait.min(UNSERVED),
                    After::Moved => return,
                    After::Absent => {
                        session.empty(sink);
                        wait = BACKOFF.1;
                    }
                },
            }
            tokio::select! {
                () = stop.cancelled() => return,
                () = tokio::time::sleep(jittered(wait)) => {}
            }
            wait = (wait * 2).min(BACKOFF.1);
        }
    }
}

/// Between half of a wait and all of it, so that clients that lost the same server don't come back at the same moment
/// (client-go's `wait.Jitter`).
fn jittered(wait: Duration) -> Duration {
    // Each has keys of its own.
    let draw = RandomState::new().build_hasher().finish() % 1024;
    wait / 2 + wait / 2 * u32::try_from(draw).unwrap_or(0) / 1024
}

/// Where it broke.
enum Broken {
    List(Error),
    Watch(Error),
}

/// What a failure means.
enum After {
    /// Something is wrong for now.
    Retry,
    /// The list is answered with 404.
    Unserved,
    /// It is served in another version only.
    Moved,
    /// There is none of the resource.
    Absent,
}

/// What is called for everything that happens.
type Sink<'a> = dyn FnMut(Delta<'_>) + Send + 'a;

/// A run of a reflector.
struct Session {
    source: Reflector,
    seen: tokio::sync::OwnedMutexGuard<Seen>,
    /// The path of lists and watches.
    collection: String,
    /// The path of the object at hand.
    path: String,
    /// From which version to watch; `None`: a list is next.
    version: Option<String>,
    /// Since when discovery has denied a resource that was listed.
    denied: Option<Instant>,
    /// Whether lists come in pages, because the server does not stream them.
    pages: bool,
}

impl Session {
    async fn list_and_watch(&mut self, sink: &mut Sink<'_>) -> Result<(), Broken> {
        let from = match self.version.clone() {
            Some(version) => version,
            None => {
                let listed = self.list(sink).await.map_err(Broken::List)?;
                self.source.memory.saw(&listed);
                self.version = Some(listed.clone());
                listed
            }
        };
        self.follow(from, sink).await.map_err(Broken::Watch)
    }

    /// Handles a failure.
    async fn broke(&mut self, broken: &Broken) -> After {
        let (Broken::List(e) | Broken::Watch(e)) = broken;
        let (resource, code) = (self.source.resource.plural, e.code());
        let forbidden = matches!(code, 401 | 403);
        // A watch would be refused again if its version is too old (410), or not one of this server. An event that can't be
        // read would come again, and a list has no events.
        let refused = (400..500).contains(&code) && !forbidden && !matches!(code, 408 | 429);
        if refused || matches!(e, Error::Malformed(_)) {
            self.version = None;
        }
        self.source.tracker.failed(e);
        if forbidden {
            // Nothing is decided before every list was seen: the right has to be granted.
            tracing::warn!(resource, error = %e, "may not be watched");
        } else {
            tracing::debug!(resource, error = %e, "watch broke off");
        }
        match broken {
            Broken::List(e) if e.is_not_found() => {
                if self.source.has_moved().await {
                    After::Moved
                } else if self.gone(e).await {
                    After::Absent
                } else {
                    After::Unserved
                }
            }
            _ => {
                self.denied = None;
                After::Retry
            }
        }
    }

    async fn list(&mut self, sink: &mut Sink<'_>) -> Result<String, Error> {
        let version = match self.pages {
            true => self.paged(sink).await?,
            false => match self.streamed(sink).await? {
                Streamed::All(version) => version,
                Streamed::Unsupported => {
                    self.pages = true;
                    self.paged(sink).await?
                }
            },
        };
        self.sweep(sink);
        self.seen.listed = true;
        sink(Delta::Synced { version: &version });
        // Last: a caller that waits for it finds everything delivered.
        self.source.tracker.well();
        Ok(version)
    }

    async fn paged(&mut self, sink: &mut Sink<'_>) -> Result<String, Error> {
        self.seen.objects.begin_list();
        let Reflector { api, selector, encoding, .. } = self.source.clone();
        let collection = self.collection.clone();
        let hand_on = &mut |page: &Page<'_>| {
            self.source.tracker.heard();
            for item in &page.items {
                match Meta::of(item) {
                    Some(meta) => self.upsert(&meta, item, sink),
                    None => self.unreadable(),
                }
            }
        };
        pager::each_page(&api, &collection, &selector, encoding, hand_on).await
    }

    /// Whether a 404 of the list means that there is none of the resource; else it counts as unserved.
    async fn gone(&mut self, error: &Error) -> bool {
        let Reflector { api, resource, required, tracker, .. } = &self.source;
        if !self.seen.listed {
            // It may have been there before this process; only discovery knows.
            return matches!(discovery::lacks(api, *resource).await, Ok(true));
        }
        tracker.unserved(error);
        if *required || !matches!(discovery::lacks(api, *resource).await, Ok(true)) {
            self.denied = None;
            return false;
        }
        let since = self.denied.get_or_insert_with(Instant::now);
        // Without objects there is nothing to lose.
        self.seen.objects.is_empty() || since.elapsed() >= DENIED
    }

    /// There is none of the resource.
    fn empty(&mut self, sink: &mut Sink<'_>) {
        self.seen.objects.begin_list();
        self.sweep(sink);
        self.seen.listed = false;
        sink(Delta::Absent);
        sink(Delta::Synced { version: "" });
        self.source.memory.saw_the_end();
        self.source.tracker.opened();
        self.source.tracker.well();
    }

    /// Deletes what the last list did not contain.
    fn sweep(&mut self, sink: &mut Sink<'_>) {
        self.seen.objects.end_list().iter().for_each(|gone| end(gone, sink));
    }

    async fn follow(&mut self, from: String, sink: &mut Sink<'_>) -> Result<(), Error> {
        let path = format!(
            "{}?watch=true&allowWatchBookmarks=true&timeoutSeconds={WATCH_SECONDS}&resourceVersion={from}{}",
            self.collection, self.source.selector
        );
        let end = Instant::now() + Duration::from_secs(u64::from(WATCH_SECONDS)) + OVERDUE;
        let mut stream = self.source.api.watch(&path, self.source.encoding).await?;
        self.source.tracker.opened();
        let mut event: Vec<u8> = Vec::new();
        loop {
            let read = tokio::time::timeout_at(end, frames::next(&mut stream, &mut event)).await;
            let Ok(read) = read else { return Err(Error::Transport("the watch did not end in time".into())) };
            self.source.tracker.heard();
            let seen = match read? {
                Next::End => return Ok(()),
                Next::Line => self.event(Event::from_line(&event)?, sink),
                Next::Frame => self.event(Event::from_frame(&event)?, sink),
            };
            if let Some(seen) = seen {
                self.source.memory.saw(&seen);
                self.version = Some(seen);
            }
        }
    }

    /// Handles an event; returns the version up to which everything has been seen.
    fn event(&mut self, event: Event<'_>, sink: &mut Sink<'_>) -> Option<String> {
        let version = match event {
            Event::Upsert { meta, object } => {
                self.upsert(&meta, object, sink);
                meta.resource_version
            }
            Event::Delete(meta) => {
                join(&mut self.path, &meta.namespace, &meta.name);
                self.seen.objects.delete(&self.path).iter().for_each(|gone| end(gone, sink));
                meta.resource_version
            }
            Event::Bookmark(version) | Event::Listed(version) => version,
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

    fn upsert(&mut self, meta: &Meta<'_>, bytes: &[u8], sink: &mut Sink<'_>) {
        join(&mut self.path, &meta.namespace, &meta.name);
        if let Change::Replaced(gone) = self.seen.objects.upsert(&self.path, &meta.uid, ()) {
            end(&gone, sink);
        }
        sink(Delta::Upsert { meta, bytes });
    }
}

fn end(gone: &Gone<()>, sink: &mut Sink<'_>) {
    let (namespace, name) = split(&gone.path);
    sink(Delta::Delete { namespace, name, uid: &gone.uid });
}

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

use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use plimsoll_api::protobuf;
use serde::Deserialize;
use serde::de::{Deserializer as _, IgnoredAny, MapAccess, Visitor};
use serde_json::value::RawValue;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use crate::api::{Api, Encoding, Error, Resource};
use crate::discovery;
use crate::health::Tracker;
use page::{Next, Page};

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

/// Namespace and name.
pub type Key = (Box<str>, Box<str>);

/// What a watch tells.
#[derive(Clone, Copy, Debug)]
pub enum Delta<'a> {
    /// An object is there or has changed.
    Upsert {
        /// Its metadata.
        meta: &'a Meta,
        /// The object: JSON, or protobuf where [`Source::encoding`] allows it.
        bytes: &'a [u8],
    },
    /// An object is gone.
    Delete {
        /// Namespace and name.
        key: &'a Key,
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

/// The metadata that ordering needs.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Meta {
    /// Namespace, empty for cluster scope.
    pub namespace: String,
    /// Name.
    pub name: String,
    /// UID.
    pub uid: String,
    /// Version.
    pub resource_version: String,
}

#[derive(Deserialize)]
struct Probe {
    #[serde(default)]
    metadata: Meta,
}

impl Probe {
    /// Of an object in either encoding.
    fn of(object: &[u8]) -> Option<Self> {
        match protobuf::is_protobuf(object) {
            true => protobuf::metadata(object).ok(),
            false => serde_json::from_slice(object).ok(),
        }
    }
}

/// The metadata of an object as API servers write it, without reading what comes after them.
fn metadata_of(object: &[u8]) -> Option<Meta> {
    struct First<'a>(&'a mut Option<Meta>);
    impl<'de> Visitor<'de> for First<'_> {
        type Value = ();

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("an object")
        }

        fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
            while let Some(key) = map.next_key::<Cow<'de, str>>()? {
                if key == "metadata" {
                    *self.0 = Some(map.next_value()?);
                    return Ok(());
                }
                map.next_value::<IgnoredAny>()?;
            }
            Ok(())
        }
    }
    let mut found = None;
    // That there is more than it wants to read is an error to the reader.
    let _ = serde_json::Deserializer::from_slice(object).deserialize_map(First(&mut found));
    found
}

/// Type and object of an event as API servers write them, without reading the object; `None` for any other form.
fn split(line: &[u8]) -> Option<(&[u8], &[u8])> {
    let rest = line.strip_prefix(b"{\"type\":\"")?;
    let (kind, rest) = rest.split_at_checked(memchr::memchr(b'"', rest)?)?;
    let object = rest.strip_prefix(b"\",\"object\":")?.trim_ascii().strip_suffix(b"}")?;
    Some((kind, object))
}

#[derive(Deserialize)]
struct Line<'a> {
    #[serde(rename = "type")]
    kind: &'a str,
    #[serde(borrow)]
    object: &'a RawValue,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct StatusObject {
    code: u16,
    message: String,
}

/// What has been handed on of one resource; outlives the task that follows it.
#[derive(Clone, Debug, Default)]
pub struct Memory {
    known: Arc<tokio::sync::Mutex<Known>>,
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
struct Known {
    /// UID and generation of the list that contained the object last.
    objects: HashMap<Key, (Box<str>, u64)>,
    generation: u64,
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
    let known = Arc::clone(&memory.known).lock_owned().await;
    let mut watch = Watch { known, path: resource.collection(""), selector, encoding, tracker, memory };
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
    known: tokio::sync::OwnedMutexGuard<Known>,
    path: String,
    selector: &'static str,
    encoding: Encoding,
    tracker: Tracker,
    memory: Memory,
}

impl Watch {
    async fn list(&mut self, api: &Api, sink: &mut (impl FnMut(Delta<'_>) + Send)) -> Result<String, Error> {
        self.known.generation += 1;
        let first = format!("{}?limit={PAGE}{}", self.path, self.selector);
        let encoding = self.encoding;
        let mut bytes = api.get_list(&first, encoding).await?;
        let version = loop {
            self.tracker.heard();
            let page = Page::read(&bytes)?;
            // The server makes the next page while this one is handed on.
            let next = page.next.filter(|n| !n.is_empty()).map(|token| {
                let (api, path) = (api.clone(), format!("{first}&continue={}", crate::api::encode(&token)));
                AbortOnDropHandle::new(tokio::spawn(async move { api.get_list(&path, encoding).await }))
            });
            for item in page.items {
                self.upsert(item, sink);
            }
            let Some(next) = next else { break page.resource_version };
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
        self.known.generation += 1;
        self.sweep(sink);
        self.known.listed = false;
        sink(Delta::Absent);
        sink(Delta::Synced { version: "" });
        self.tracker.opened();
        self.tracker.well();
    }

    /// Deletes what the last list did not contain.
    fn sweep(&mut self, sink: &mut impl FnMut(Delta<'_>)) {
        let gone: Vec<Key> = self
            .known
            .objects
            .iter()
            .filter(|(_, v)| v.1 != self.known.generation)
            .map(|(k, _)| k.clone())
            .collect();
        for key in gone {
            self.delete(&key, sink);
        }
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
            self.path, self.selector
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
                Next::Line => self.event(&event, sink)?,
                Next::Frame => self.frame(&event, sink)?,
            };
            if let Some(seen) = seen {
                self.memory.saw(&seen);
                *version = Some(seen);
            }
        }
    }

    /// Handles one line; returns the version up to which everything has been seen.
    fn event(&mut self, line: &[u8], sink: &mut impl FnMut(Delta<'_>)) -> Result<Option<String>, Error> {
        if !line.ends_with(b"\n") {
            return Err(Error::Malformed("a watch event is cut off".into()));
        }
        // Nearly all are of these two types: their objects are read once less.
        if let Some((b"ADDED" | b"MODIFIED", object)) = split(line)
            && let Some(metadata) = metadata_of(object)
        {
            return Ok(self.keep(metadata, object, sink));
        }
        let event: Line<'_> = serde_json::from_slice(line).map_err(|e| Error::Malformed(e.to_string()))?;
        match event.kind {
            "ADDED" | "MODIFIED" => Ok(self.upsert(event.object.get().as_bytes(), sink)),
            "DELETED" => {
                let Ok(Probe { metadata }) = serde_json::from_str(event.object.get()) else {
                    return Ok(None);
                };
                let key = (metadata.namespace.into(), metadata.name.into());
                self.delete(&key, sink);
                Ok(Some(metadata.resource_version))
            }
            "BOOKMARK" => {
                let Ok(Probe { metadata }) = serde_json::from_str(event.object.get()) else {
                    return Ok(None);
                };
                Ok(Some(metadata.resource_version).filter(|v| !v.is_empty()))
            }
            _ => {
                let status: StatusObject = serde_json::from_str(event.object.get()).unwrap_or_default();
                Err(Error::Status {
                    code: status.code,
                    reason: String::new(),
                    message: status.message,
                    retry_after: 0,
                })
            }
        }
    }

    fn upsert(&mut self, object: &[u8], sink: &mut impl FnMut(Delta<'_>)) -> Option<String> {
        let Some(Probe { metadata }) = Probe::of(object) else {
            tracing::warn!(path = self.path, "an object without readable metadata was skipped");
            return None;
        };
        self.keep(metadata, object, sink)
    }

    fn keep(&mut self, metadata: Meta, bytes: &[u8], sink: &mut impl FnMut(Delta<'_>)) -> Option<String> {
        let key: Key = (metadata.namespace.as_str().into(), metadata.name.as_str().into());
        let other = self.known.objects.get(&key).is_some_and(|(uid, _)| **uid != *metadata.uid);
        if other {
            self.delete(&key, sink);
        }
        let generation = self.known.generation;
        self.known.objects.insert(key, (metadata.uid.as_str().into(), generation));
        sink(Delta::Upsert { meta: &metadata, bytes });
        Some(metadata.resource_version)
    }

    fn delete(&mut self, key: &Key, sink: &mut impl FnMut(Delta<'_>)) {
        if let Some((uid, _)) = self.known.objects.remove(key) {
            sink(Delta::Delete { key, uid: &uid });
        }
    }
}

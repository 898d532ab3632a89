//! List and watch of one resource, for ever: paged list, watch from its version, relist when the version is too old.
//!
//! Objects are handed on as bytes. A relist hands on everything again and then deletes what it did not contain, so
//! the receiver needs no copy of the old state.

use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt;
use std::time::Duration;

use futures::AsyncBufReadExt;
use serde::Deserialize;
use serde::de::{Deserializer as _, IgnoredAny, MapAccess, Visitor};
use serde_json::value::RawValue;
use tokio_util::sync::CancellationToken;

use crate::api::{Api, Error, Resource};

/// Objects per page of a list.
const PAGE: usize = 500;
/// Seconds after which the server ends a watch.
const WATCH_SECONDS: u32 = 290;
/// A watch that says nothing for this long is taken for dead (bookmarks come every minute).
const SILENCE: Duration = Duration::from_secs(330);
/// First and longest wait after a failure.
const BACKOFF: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(10));
/// Longest line of a watch: an object may have 3 MiB, and JSON escapes can't make it grow past this.
const MAX_LINE: usize = 32 << 20;

/// Namespace and name.
pub type Key = (Box<str>, Box<str>);

/// What a watch tells.
#[derive(Clone, Copy, Debug)]
pub enum Delta<'a> {
    /// An object is there or has changed.
    Upsert {
        /// Its metadata.
        meta: &'a Meta,
        /// The object as JSON.
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
    Synced,
    /// The cluster does not serve the resource, so there is none of it. [`Delta::Synced`] follows.
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

#[derive(Deserialize)]
struct Page<'a> {
    #[serde(default)]
    metadata: PageMeta,
    #[serde(borrow, default)]
    items: Option<Vec<&'a RawValue>>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct PageMeta {
    resource_version: String,
    #[serde(rename = "continue")]
    next: Option<String>,
}

/// Type and object of an event as API servers write them, without reading the object; `None` for any other form.
fn split(line: &[u8]) -> Option<(&[u8], &[u8])> {
    let rest = line.strip_prefix(b"{\"type\":\"")?;
    let (kind, rest) = rest.split_at_checked(memchr::memchr(b'"', rest)?)?;
    let object = rest.strip_prefix(b"\",\"object\":")?.trim_ascii_end().strip_suffix(b"}")?;
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

/// Follows one resource and calls `sink` for everything that happens, until cancelled.
///
/// The API server leaves out kind and version of items of a list; the sink knows which resource it gets.
pub async fn run(
    api: Api,
    resource: Resource,
    selector: &str,
    stop: CancellationToken,
    mut sink: impl FnMut(Delta<'_>) + Send,
) {
    let mut watch = Watch {
        known: HashMap::new(),
        generation: 0,
        path: resource.collection(""),
        selector: selector.into(),
    };
    let mut wait = BACKOFF.0;
    let mut version: Option<String> = None;
    loop {
        let turn = async {
            if version.is_none() {
                version = Some(watch.list(&api, &mut sink).await?);
            }
            let from = version.clone().unwrap_or_default();
            watch.follow(&api, from, &mut version, &mut sink).await
        };
        let ended = tokio::select! {
            () = stop.cancelled() => return,
            ended = turn => ended,
        };
        match ended {
            Ok(()) => wait = BACKOFF.0,
            Err(e) => {
                if e.code() == 410 || (e.is_not_found() && version.is_some()) {
                    version = None;
                    if e.is_not_found() {
                        // No longer served: the next list says so, or finds what is served anew.
                        continue;
                    }
                }
                if matches!(e.code(), 401 | 403) {
                    // Nothing is decided before every list was seen: somebody has to give the right.
                    tracing::warn!(resource = resource.plural, error = %e, "may not be watched");
                } else {
                    tracing::debug!(resource = resource.plural, error = %e, "watch broke off");
                }
                if version.is_none() && e.is_not_found() {
                    // The cluster does not serve it (yet): there is none of it.
                    watch.generation += 1;
                    watch.sweep(&mut sink);
                    sink(Delta::Absent);
                    sink(Delta::Synced);
                    wait = BACKOFF.1;
                }
                tokio::select! {
                    () = stop.cancelled() => return,
                    () = tokio::time::sleep(wait) => {}
                }
                wait = (wait * 2).min(BACKOFF.1);
            }
        }
    }
}

struct Watch {
    /// UID and generation of the list that contained the object last.
    known: HashMap<Key, (Box<str>, u64)>,
    generation: u64,
    path: String,
    selector: String,
}

impl Watch {
    async fn list(&mut self, api: &Api, sink: &mut (impl FnMut(Delta<'_>) + Send)) -> Result<String, Error> {
        self.generation += 1;
        let mut next: Option<String> = None;
        let version = loop {
            let mut path = format!("{}?limit={PAGE}{}", self.path, self.selector);
            if let Some(token) = &next {
                path.push_str("&continue=");
                path.push_str(&crate::api::encode(token));
            }
            let text = api.get_text(&path).await?;
            let page: Page<'_> = serde_json::from_str(&text).map_err(|e| Error::Malformed(e.to_string()))?;
            for item in page.items.unwrap_or_default() {
                self.upsert(item.get(), sink);
            }
            match page.metadata.next.filter(|n| !n.is_empty()) {
                Some(token) => next = Some(token),
                None => break page.metadata.resource_version,
            }
        };
        self.sweep(sink);
        sink(Delta::Synced);
        Ok(version)
    }

    /// Deletes what the last list did not contain.
    fn sweep(&mut self, sink: &mut impl FnMut(Delta<'_>)) {
        let gone: Vec<Key> =
            self.known.iter().filter(|(_, v)| v.1 != self.generation).map(|(k, _)| k.clone()).collect();
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
        let mut lines = api.stream(&path).await?;
        let mut line: Vec<u8> = Vec::new();
        loop {
            line.clear();
            let read = tokio::time::timeout(SILENCE, lines.read_until(b'\n', &mut line)).await;
            let Ok(read) = read else { return Err(Error::Transport("the watch went silent".into())) };
            if read.map_err(|e| Error::Transport(e.to_string()))? == 0 {
                return Ok(());
            }
            if line.len() > MAX_LINE {
                return Err(Error::Malformed("a watch event is too long".into()));
            }
            if let Some(seen) = self.event(&line, sink)? {
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
            "ADDED" | "MODIFIED" => Ok(self.upsert(event.object.get(), sink)),
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

    fn upsert(&mut self, object: &str, sink: &mut impl FnMut(Delta<'_>)) -> Option<String> {
        let Ok(Probe { metadata }) = serde_json::from_str(object) else {
            tracing::warn!(path = self.path, "an object without readable metadata was skipped");
            return None;
        };
        self.keep(metadata, object.as_bytes(), sink)
    }

    fn keep(&mut self, metadata: Meta, bytes: &[u8], sink: &mut impl FnMut(Delta<'_>)) -> Option<String> {
        let key: Key = (metadata.namespace.as_str().into(), metadata.name.as_str().into());
        let other = self.known.get(&key).is_some_and(|(uid, _)| **uid != *metadata.uid);
        if other {
            self.delete(&key, sink);
        }
        self.known.insert(key, (metadata.uid.as_str().into(), self.generation));
        sink(Delta::Upsert { meta: &metadata, bytes });
        Some(metadata.resource_version)
    }

    fn delete(&mut self, key: &Key, sink: &mut impl FnMut(Delta<'_>)) {
        if let Some((uid, _)) = self.known.remove(key) {
            sink(Delta::Delete { key, uid: &uid });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn watch() -> Watch {
        Watch { known: HashMap::new(), generation: 1, path: String::new(), selector: String::new() }
    }

    fn object(name: &str, uid: &str, version: u32) -> String {
        format!(
            r#"{{"metadata":{{"namespace":"ns","name":"{name}","uid":"{uid}","resourceVersion":"{version}"}}}}"#
        )
    }

    fn feed(watch: &mut Watch, line: &str, log: &mut Vec<String>) -> Result<Option<String>, Error> {
        watch.event(format!("{line}\n").as_bytes(), &mut |d| {
            log.push(match d {
                Delta::Upsert { meta, .. } => format!("+{}/{}", meta.name, meta.uid),
                Delta::Delete { key, uid } => format!("-{}/{uid}", key.1),
                Delta::Synced => "synced".into(),
                Delta::Absent => "absent".into(),
            });
        })
    }

    #[test]
    fn events_become_deltas() {
        let (mut w, mut log) = (watch(), Vec::new());
        let line = |kind: &str, o: &str| format!(r#"{{"type":"{kind}","object":{o}}}"#);
        let mut go = |line: &str| feed(&mut w, line, &mut log);
        assert_eq!(go(&line("ADDED", &object("a", "1", 5))), Ok(Some("5".into())));
        assert_eq!(go(&line("MODIFIED", &object("a", "1", 6))), Ok(Some("6".into())));
        // Deleted and made again while the connection was down.
        assert_eq!(go(&line("MODIFIED", &object("a", "2", 8))), Ok(Some("8".into())));
        assert_eq!(go(&line("BOOKMARK", r#"{"metadata":{"resourceVersion":"20"}}"#)), Ok(Some("20".into())));
        assert_eq!(go(&line("DELETED", &object("a", "2", 21))), Ok(Some("21".into())));
        assert_eq!(go(&line("DELETED", &object("a", "2", 21))), Ok(Some("21".into())));
        let expired = go(&line("ERROR", r#"{"code":410,"reason":"Expired","message":"too old"}"#));
        assert_eq!(expired.map_err(|e| e.code()), Err(410));
        assert!(go("not json").is_err());
        assert!(go(r#"{"type":"DELETED","object":{"metadata":{"name":"a"}}"#).is_err());
        // Any order and any spaces.
        let spaced = format!("{{ \"object\": {}, \"type\": \"ADDED\" }}", object("b", "3", 22));
        assert_eq!(go(&spaced), Ok(Some("22".into())));
        assert_eq!(log, ["+a/1", "+a/1", "-a/1", "+a/2", "-a/2", "+b/3"]);
        assert!(w.event(line("ADDED", &object("a", "1", 5)).as_bytes(), &mut |_| ()).is_err());
    }
}

//! Pages of lists and events of watches, in JSON or Kubernetes' protobuf.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer as _, IgnoredAny, MapAccess, Visitor};
use serde_json::value::RawValue;

use crate::protobuf;
use crate::request::Error;

/// The metadata that a client needs to keep track of an object.
#[derive(Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Meta<'a> {
    /// Namespace, empty for cluster scope.
    #[serde(borrow)]
    pub namespace: Cow<'a, str>,
    /// Name.
    #[serde(borrow)]
    pub name: Cow<'a, str>,
    /// UID.
    #[serde(borrow)]
    pub uid: Cow<'a, str>,
    /// Version.
    #[serde(borrow)]
    pub resource_version: Cow<'a, str>,
}

/// Annotation of the bookmark that ends what a watch begins with (`metav1.InitialEventsAnnotationKey`).
const INITIAL_EVENTS_END: &str = "k8s.io/initial-events-end";

#[derive(Deserialize)]
struct Annotated<'a> {
    #[serde(borrow, default)]
    metadata: Annotations<'a>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Annotations<'a> {
    #[serde(borrow)]
    annotations: BTreeMap<Cow<'a, str>, Cow<'a, str>>,
}

#[derive(Deserialize)]
struct Object<'a> {
    #[serde(borrow, default)]
    metadata: Meta<'a>,
}

impl<'a> Meta<'a> {
    /// Of an object in either encoding; `None`: it can't be read.
    pub fn of(object: &'a [u8]) -> Option<Self> {
        let Object { metadata } = match protobuf::is_protobuf(object) {
            true => protobuf::metadata(object).ok()?,
            false => serde_json::from_slice(object).ok()?,
        };
        Some(metadata)
    }

    /// Of an object in JSON as API servers write it, without reading what comes after its metadata.
    fn first(object: &'a [u8]) -> Option<Self> {
        struct First<'f, 'a>(&'f mut Option<Meta<'a>>);
        impl<'de> Visitor<'de> for First<'_, 'de> {
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
}

/// A page of a list.
#[derive(Debug)]
pub struct Page<'a> {
    /// Version of the list.
    pub resource_version: Cow<'a, str>,
    /// Token of the next page; empty when this is the last one.
    pub next: Cow<'a, str>,
    /// The objects, without kind and version.
    pub items: Vec<&'a [u8]>,
}

#[derive(Deserialize)]
struct JsonPage<'a> {
    #[serde(borrow, default)]
    metadata: PageMeta<'a>,
    #[serde(borrow, default)]
    items: Option<Vec<&'a RawValue>>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct PageMeta<'a> {
    #[serde(borrow)]
    resource_version: Cow<'a, str>,
    #[serde(borrow, rename = "continue")]
    next: Option<Cow<'a, str>>,
}

impl<'a> Page<'a> {
    /// Reads a page in either encoding.
    ///
    /// # Errors
    /// [`Error::Malformed`] when it is no list.
    pub fn read(bytes: &'a [u8]) -> Result<Self, Error> {
        if protobuf::is_envelope(bytes) {
            let list = protobuf::list(bytes).map_err(|e| malformed(&e))?;
            let (resource_version, next) = (list.resource_version.into(), list.next.into());
            return Ok(Self { resource_version, next, items: list.items });
        }
        let JsonPage { metadata, items } = serde_json::from_slice(bytes).map_err(|e| malformed(&e))?;
        let items = items.unwrap_or_default().into_iter().map(|item| item.get().as_bytes()).collect();
        let PageMeta { resource_version, next } = metadata;
        Ok(Self { resource_version, next: next.unwrap_or_default(), items })
    }
}

/// An event of a watch (`meta.v1.WatchEvent`).
#[derive(Debug)]
pub enum Event<'a> {
    /// An object is there or has changed (`ADDED`, `MODIFIED`).
    Upsert {
        /// Its metadata.
        meta: Meta<'a>,
        /// The object, in the encoding of the event.
        object: &'a [u8],
    },
    /// An object is gone (`DELETED`): the metadata of its last state.
    Delete(Meta<'a>),
    /// Everything up to this version has been sent (`BOOKMARK`).
    Bookmark(Cow<'a, str>),
    /// The same, and with it everything that a watch with `sendInitialEvents` begins with (`BOOKMARK` with the annotation
    /// `k8s.io/initial-events-end`, KEP-3157).
    Listed(Cow<'a, str>),
    /// An object without readable metadata.
    Unreadable,
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

impl<'a> Event<'a> {
    /// Reads an event in JSON: a line with its end.
    ///
    /// # Errors
    /// The error that the server has sent (`ERROR`); [`Error::Malformed`] when it is no event.
    pub fn from_line(line: &'a [u8]) -> Result<Self, Error> {
        if !line.ends_with(b"\n") {
            return Err(Error::Malformed("a watch event is cut off".into()));
        }
        // Nearly all are of these two types: their objects are read once less.
        if let Some((b"ADDED" | b"MODIFIED", object)) = raw(line)
            && let Some(meta) = Meta::first(object)
        {
            return Ok(Self::Upsert { meta, object });
        }
        let Line { kind, object } = serde_json::from_slice(line).map_err(|e| malformed(&e))?;
        let object = object.get().as_bytes();
        Self::of(kind, object).unwrap_or_else(|| {
            let status: StatusObject = serde_json::from_slice(object).unwrap_or_default();
            Err(error(status.code, status.message))
        })
    }

    /// Reads an event in protobuf: a frame without its length.
    ///
    /// # Errors
    /// The error that the server has sent (`ERROR`); [`Error::Malformed`] when it is no event.
    pub fn from_frame(frame: &'a [u8]) -> Result<Self, Error> {
        let (kind, object) = protobuf::event(frame).map_err(|e| malformed(&e))?;
        Self::of(kind, object).unwrap_or_else(|| {
            let (code, message) = protobuf::status(object).unwrap_or_default();
            Err(error(code, message.to_owned()))
        })
    }

    /// An event of this type; `None`: it is an error.
    fn of(kind: &str, object: &'a [u8]) -> Option<Result<Self, Error>> {
        let Some(meta) = Meta::of(object) else {
            let known = matches!(kind, "ADDED" | "MODIFIED" | "DELETED" | "BOOKMARK");
            return known.then_some(Ok(Self::Unreadable));
        };
        Some(Ok(match kind {
            "ADDED" | "MODIFIED" => Self::Upsert { meta, object },
            "DELETED" => Self::Delete(meta),
            "BOOKMARK" if ends_list(object) => Self::Listed(meta.resource_version),
            "BOOKMARK" => Self::Bookmark(meta.resource_version),
            _ => return None,
        }))
    }
}

/// Whether a bookmark ends what a watch begins with.
fn ends_list(bookmark: &[u8]) -> bool {
    let read: Option<Annotated<'_>> = match protobuf::is_protobuf(bookmark) {
        true => protobuf::metadata(bookmark).ok(),
        false => serde_json::from_slice(bookmark).ok(),
    };
    read.and_then(|o| o.metadata.annotations.get(INITIAL_EVENTS_END).map(|value| value == "true"))
        .unwrap_or(false)
}

/// Type and object of an event as API servers write them, without reading the object; `None` for any other form.
fn raw(line: &[u8]) -> Option<(&[u8], &[u8])> {
    let rest = line.strip_prefix(b"{\"type\":\"")?;
    let (kind, rest) = rest.split_at_checked(rest.iter().position(|byte| *byte == b'"')?)?;
    let object = rest.strip_prefix(b"\",\"object\":")?.trim_ascii().strip_suffix(b"}")?;
    Some((kind, object))
}

fn malformed(e: &serde_json::Error) -> Error {
    Error::Malformed(e.to_string())
}

fn error(code: u16, message: String) -> Error {
    Error::Status { code, reason: String::new(), message, retry_after: 0 }
}

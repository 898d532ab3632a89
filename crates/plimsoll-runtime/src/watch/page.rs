//! Pages of lists and events of watches, in JSON or protobuf.

use futures::{AsyncBufRead, AsyncBufReadExt, AsyncReadExt};
use plimsoll_api::protobuf;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::{Delta, Probe, Watch};
use crate::api::Error;

/// Longest event of a watch: an object may have 3 MiB, and JSON escapes can't make it grow past this.
const MAX_EVENT: usize = 32 << 20;

/// A page of a list.
pub(super) struct Page<'a> {
    pub(super) resource_version: String,
    pub(super) next: Option<String>,
    pub(super) items: Vec<&'a [u8]>,
}

#[derive(Deserialize)]
struct JsonPage<'a> {
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

impl<'a> Page<'a> {
    /// Reads a page in either encoding.
    pub(super) fn read(bytes: &'a [u8]) -> Result<Self, Error> {
        if protobuf::is_envelope(bytes) {
            let list = protobuf::list(bytes).map_err(|e| malformed(&e))?;
            let next = Some(list.next.to_owned());
            return Ok(Self { resource_version: list.resource_version.to_owned(), next, items: list.items });
        }
        let JsonPage { metadata, items } = serde_json::from_slice(bytes).map_err(|e| malformed(&e))?;
        let items = items.unwrap_or_default().into_iter().map(|item| item.get().as_bytes()).collect();
        Ok(Self { resource_version: metadata.resource_version, next: metadata.next, items })
    }
}

fn malformed(e: &serde_json::Error) -> Error {
    Error::Malformed(e.to_string())
}

fn broken(e: &std::io::Error) -> Error {
    Error::Transport(e.to_string())
}

fn too_long() -> Error {
    Error::Malformed("a watch event is too long".into())
}

/// What came of a watch.
pub(super) enum Next {
    /// It has ended.
    End,
    /// A line of JSON.
    Line,
    /// A frame of protobuf.
    Frame,
}

/// Reads the next event. A frame begins with its length in four bytes, the first of which is smaller than any with which
/// JSON may begin.
pub(super) async fn next(
    stream: &mut (impl AsyncBufRead + Unpin),
    event: &mut Vec<u8>,
) -> Result<Next, Error> {
    event.clear();
    let first = stream.fill_buf().await.map_err(|e| broken(&e))?.first().copied();
    match first {
        None => Ok(Next::End),
        Some(first) if usize::from(first) <= MAX_EVENT >> 24 => {
            let mut length = [0; 4];
            stream.read_exact(&mut length).await.map_err(|e| broken(&e))?;
            let length = u32::from_be_bytes(length);
            if length as usize > MAX_EVENT {
                return Err(too_long());
            }
            // The buffer grows with what comes, not with what was said.
            let read = stream.take(u64::from(length)).read_to_end(event).await.map_err(|e| broken(&e))?;
            match read == length as usize {
                true => Ok(Next::Frame),
                false => Err(Error::Transport("a watch event is cut off".into())),
            }
        }
        Some(_) => {
            stream.read_until(b'\n', event).await.map_err(|e| broken(&e))?;
            if event.len() > MAX_EVENT { Err(too_long()) } else { Ok(Next::Line) }
        }
    }
}

impl Watch {
    /// Handles a frame; returns the version up to which everything has been seen.
    pub(super) fn frame(
        &mut self,
        frame: &[u8],
        sink: &mut impl FnMut(Delta<'_>),
    ) -> Result<Option<String>, Error> {
        let (kind, object) = protobuf::event(frame).map_err(|e| malformed(&e))?;
        match kind {
            "ADDED" | "MODIFIED" => Ok(self.upsert(object, sink)),
            "DELETED" => {
                let Some(Probe { metadata }) = Probe::of(object) else { return Ok(None) };
                let key = (metadata.namespace.into(), metadata.name.into());
                self.delete(&key, sink);
                Ok(Some(metadata.resource_version))
            }
            "BOOKMARK" => {
                let version = Probe::of(object).map(|probe| probe.metadata.resource_version);
                Ok(version.filter(|v| !v.is_empty()))
            }
            _ => {
                let (code, message) = protobuf::status(object).unwrap_or_default();
                let message = message.to_owned();
                Err(Error::Status { code, reason: String::new(), message, retry_after: 0 })
            }
        }
    }
}

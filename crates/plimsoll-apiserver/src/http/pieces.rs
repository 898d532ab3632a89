//! Large lists, encoded in pieces on the threads for [`heavy`] work and sent as they are made.
//!
//! A list is a snapshot, so its pieces fit together however long it takes. At most a few pieces wait for the client;
//! when it goes, so does the work. Protobuf needs the length of the whole first: such lists are held in memory until
//! they are sent, and share a budget.

use std::sync::{Arc, LazyLock};
use std::time::Duration;

use bytes::Bytes;
use jiff::Timestamp;
use plimsoll_apimachinery::proto::ListWriter;
use plimsoll_apimachinery::{ApiError, Gvk, Kind};
use serde_json::{Map, Value, json};
use tokio::sync::{Semaphore, mpsc};

use super::body::{Body, Broken};
use super::negotiate::{Accepted, Format, Transform};
use super::present::partial;
use super::reply::{Payload, Reply};
use crate::store::Record;
use crate::{heavy, machine, representation};

/// Records that are encoded at once, where the request is.
const FEW: usize = 40;
/// Bytes of records that are encoded at once.
const FEW_BYTES: usize = 128 << 10;
/// As [`FEW_BYTES`], where records are sent as they are stored.
const PLAIN_BYTES: usize = 1 << 20;
/// Pieces that wait for the client.
const WAITING: usize = 2;
/// Time that a client may take for a piece (apiserver's `--request-timeout`).
const STALLED: Duration = Duration::from_secs(60);
/// Lists in protobuf that are held in memory at one time, in KiB of the records they are made of.
const HELD_KIB: u32 = 512 << 10;

static HELD: LazyLock<Arc<Semaphore>> = LazyLock::new(|| Arc::new(Semaphore::new(HELD_KIB as usize)));

/// A list to be encoded.
pub struct List {
    /// Kind of the items.
    pub kind: Arc<Kind>,
    /// The items.
    pub records: Vec<Arc<Record>>,
    /// `metadata` of the list.
    pub meta: Value,
    /// The form asked for.
    pub accepted: Accepted,
    /// Whether it is indented.
    pub pretty: bool,
    /// Options of tables.
    pub table: machine::TableOptions,
    /// What ages are measured against.
    pub now: Timestamp,
}

impl List {
    fn is_raw(&self) -> bool {
        self.accepted.transform == Transform::None && self.accepted.format == Format::Json
    }

    /// Whether it is encoded at once: it is small, or it can't be taken apart.
    pub fn is_small(&self) -> bool {
        let bytes = self.records.iter().map(|r| r.json.len()).sum::<usize>();
        match self.accepted.transform {
            Transform::Table(_) if machine::is_sorted_table(&self.kind) => true,
            _ if self.is_raw() && !self.pretty => bytes <= PLAIN_BYTES,
            _ => self.records.len() <= FEW && bytes <= FEW_BYTES,
        }
    }

    /// The answer of a small list.
    ///
    /// # Errors
    /// A record isn't JSON.
    pub fn reply_at_once(&self) -> Result<Reply, ApiError> {
        if self.is_raw() && !self.pretty {
            let writer = Text::of(self);
            let mut out = writer.head.clone();
            out.extend_from_slice(&writer.piece(self, &self.records, true).map_err(ApiError::internal)?);
            out.extend_from_slice(writer.tail.strip_suffix(b"\n").unwrap_or(&writer.tail));
            return Ok(Reply::json(200, out));
        }
        let items = self.values(&self.records).map_err(ApiError::internal)?;
        Ok(Reply::object(200, self.object(items)))
    }

    /// Objects as they are served, before they get the form asked for.
    fn values(&self, records: &[Arc<Record>]) -> Result<Vec<Value>, String> {
        let bare = self.kind.custom.is_none() && self.accepted.transform == Transform::None;
        records.iter().map(|record| served_item(&self.kind, record, bare)).collect()
    }

    /// Items of the list in the form asked for.
    fn items(&self, records: &[Arc<Record>]) -> Result<Vec<Value>, String> {
        let values = self.values(records)?;
        if self.accepted.transform == Transform::None {
            return Ok(values);
        }
        match self.object(values)[self.member()].take() {
            Value::Array(items) => Ok(items),
            _ => Ok(Vec::new()),
        }
    }

    /// A list of these items in the form asked for.
    pub fn object(&self, items: Vec<Value>) -> Value {
        let mut meta = self.meta.clone();
        let mut list = match self.accepted.transform {
            Transform::Table(version) => {
                let options = machine::TableOptions { list_meta: meta, ..self.table.clone() };
                return machine::table(&self.kind, &items, &options, version, self.now);
            }
            Transform::PartialList(version) => {
                let items: Vec<Value> = items.iter().map(|o| partial(o, version)).collect();
                let mut list = json!({
                    "kind": "PartialObjectMetadataList", "apiVersion": version.api_version(), "metadata": meta,
                });
                // An empty list of metadata is null upstream.
                list["items"] = if items.is_empty() { Value::Null } else { Value::Array(items) };
                return list;
            }
            Transform::None | Transform::Partial(_) => {
                if self.kind.custom.is_some() && meta.get("continue").is_none() {
                    // Upstream's lists of custom resources are untyped and show it.
                    meta["continue"] = json!("");
                }
                json!({"kind": self.kind.list_kind, "apiVersion": self.kind.gvk.api_version(), "metadata": meta})
            }
        };
        list["items"] = Value::Array(items);
        list
    }

    /// The member of the list that the items are in.
    const fn member(&self) -> &'static str {
        match self.accepted.transform {
            Transform::Table(_) => "rows",
            _ => "items",
        }
    }

    /// Kind of the list in protobuf, if it has that form.
    fn protobuf(&self) -> Option<ListWriter> {
        if self.accepted.format != Format::Protobuf {
            return None;
        }
        let kind = &self.kind.gvk;
        ListWriter::new(match self.accepted.transform {
            Transform::PartialList(version) => {
                let version = version.api_version().trim_start_matches("meta.k8s.io/").to_owned();
                let list = "PartialObjectMetadataList".to_owned();
                Gvk { group: "meta.k8s.io".to_owned(), version, kind: list }
            }
            _ => Gvk { kind: self.kind.list_kind.clone(), ..kind.clone() },
        })
    }

    /// Starts the work; the answer is sent as it is made.
    pub fn into_reply(self) -> Reply {
        let writer = self.protobuf();
        let media_type = match self.accepted.format {
            Format::Protobuf if writer.is_none() => Format::Json.media_type(),
            format => format.media_type(),
        };
        let (out, pieces) = mpsc::channel(WAITING);
        heavy::spawn(async move {
            let out = Out(out);
            let done = match writer {
                Some(writer) => protobuf(&self, &writer, &out).await,
                None => text(&self, &out).await,
            };
            match done {
                Ok(()) => drop(out.0.send(Piece::End).await),
                Err(Stopped::Gone) => {}
                Err(Stopped::Failed(why)) => {
                    tracing::warn!(%why, kind = self.kind.gvk.kind, "a list could not be completed");
                    drop(out.0.send(Piece::Broken(why)).await);
                }
            }
        });
        let body = Body::pieces(futures::stream::unfold(Some(pieces), |pieces| async move {
            let mut pieces = pieces?;
            match pieces.recv().await {
                Some(Piece::Data(bytes)) => Some((Ok(bytes), Some(pieces))),
                Some(Piece::End) => None,
                Some(Piece::Broken(why)) => Some((Err(Broken(why)), None)),
                None => Some((Err(Broken("its encoding was given up".to_owned())), None)),
            }
        }));
        Reply { status: 200, payload: Payload::Stream(body, media_type), headers: Vec::new() }
    }
}

enum Piece {
    Data(Bytes),
    End,
    Broken(String),
}

/// Why a list ends early.
enum Stopped {
    /// The client doesn't want it any more.
    Gone,
    /// It can't be encoded.
    Failed(String),
}

/// Where pieces go.
struct Out(mpsc::Sender<Piece>);

impl Out {
    async fn send(&self, bytes: impl Into<Bytes>) -> Result<(), Stopped> {
        let bytes = bytes.into();
        if bytes.is_empty() {
            return Ok(());
        }
        match tokio::time::timeout(STALLED, self.0.send(Piece::Data(bytes))).await {
            Ok(Ok(())) => Ok(()),
            _ => Err(Stopped::Gone),
        }
    }

    fn is_gone(&self) -> bool {
        self.0.is_closed()
    }
}

/// Pieces of JSON or YAML.
async fn text(list: &List, out: &Out) -> Result<(), Stopped> {
    let writer = Text::of(list);
    out.send(writer.head.clone()).await?;
    let mut rest = list.records.as_slice();
    while !rest.is_empty() {
        let (now, later) = rest.split_at(heavy::next_piece(rest));
        let first = rest.len() == list.records.len();
        out.send(writer.piece(list, now, first).map_err(Stopped::Failed)?).await?;
        rest = later;
        heavy::give_way().await;
    }
    out.send(writer.tail).await
}

/// Pieces of protobuf, sent when all of them are there.
async fn protobuf(list: &List, writer: &ListWriter, out: &Out) -> Result<(), Stopped> {
    let kib = list.records.iter().map(|r| r.json.len()).sum::<usize>() / 1024 + 1;
    let kib = u32::try_from(kib).unwrap_or(HELD_KIB).min(HELD_KIB);
    let _held = HELD.acquire_many(kib).await.map_err(|e| Stopped::Failed(e.to_string()))?;
    let mut empty = list.object(Vec::new());
    empty[list.member()] = Value::Null;
    let mut pieces = vec![writer.piece(&empty)];
    let mut rest = list.records.as_slice();
    while !rest.is_empty() {
        let (now, later) = rest.split_at(heavy::next_piece(rest));
        let items = list.items(now).map_err(Stopped::Failed)?;
        let some = Value::Object(Map::from_iter([(list.member().to_owned(), Value::Array(items))]));
        pieces.push(writer.piece(&some));
        rest = later;
        heavy::give_way().await;
        if out.is_gone() {
            return Err(Stopped::Gone);
        }
    }
    let (head, tail) = writer.envelope(pieces.iter().map(Vec::len).sum());
    out.send(head).await?;
    for piece in pieces {
        out.send(piece).await?;
    }
    out.send(tail).await
}

/// A document with one large array, written in parts.
struct Text {
    head: Vec<u8>,
    tail: Vec<u8>,
    form: Form,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    /// Records as they are stored.
    Raw,
    Compact,
    Pretty,
    Yaml,
}

impl Text {
    fn of(list: &List) -> Self {
        let form = match (list.accepted.format, list.pretty) {
            (Format::Yaml, _) => Form::Yaml,
            (_, true) => Form::Pretty,
            (_, false) if list.is_raw() => Form::Raw,
            (_, false) => Form::Compact,
        };
        let member = list.member();
        let mut empty = list.object(Vec::new());
        empty[member] = json!([]);
        // The array is the only member of its name: in texts, quotes are escaped.
        let (text, array, begin, end) = match form {
            Form::Raw => (raw_text(&empty), format!("\"{member}\":[]"), format!("\"{member}\":["), "]"),
            Form::Compact => (empty.to_string(), format!("\"{member}\":[]"), format!("\"{member}\":["), "]"),
            Form::Pretty => {
                let text = serde_json::to_string_pretty(&empty).unwrap_or_default();
                (text, format!("\"{member}\": []"), format!("\"{member}\": [\n"), "\n  ]")
            }
            Form::Yaml => {
                (super::yaml::to_yaml(&empty), format!("{member}: []\n"), format!("{member}:\n"), "")
            }
        };
        let (before, after) = text.split_once(&array).unwrap_or((text.as_str(), ""));
        let newline = if form == Form::Yaml { "" } else { "\n" };
        Self {
            head: [before, begin.as_str()].concat().into_bytes(),
            tail: [end, after, newline].concat().into_bytes(),
            form,
        }
    }

    /// Some items, and what parts them from those before.
    fn piece(&self, list: &List, records: &[Arc<Record>], first: bool) -> Result<Vec<u8>, String> {
        let mut out = Vec::with_capacity(records.iter().map(|r| r.json.len() + 1).sum());
        match self.form {
            Form::Raw => {
                raw_items(&list.kind, records, first, &mut out)?;
            }
            Form::Compact => {
                for (n, item) in list.items(records)?.iter().enumerate() {
                    if n > 0 || !first {
                        out.push(b',');
                    }
                    serde_json::to_writer(&mut out, item).map_err(|e| e.to_string())?;
                }
            }
            Form::Pretty => {
                let items = Value::Array(list.items(records)?);
                let text = serde_json::to_string_pretty(&items).map_err(|e| e.to_string())?;
                let lines = text.trim_start_matches("[\n").trim_end_matches("\n]");
                out.extend_from_slice(if first { b"  " } else { b",\n  " });
                out.extend_from_slice(lines.replace('\n', "\n  ").as_bytes());
            }
            Form::Yaml => {
                let items = Value::Array(list.items(records)?);
                out.extend_from_slice(super::yaml::to_yaml(&items).as_bytes());
            }
        }
        Ok(out)
    }
}

/// A list without items, kind first as in objects.
fn raw_text(list: &Value) -> String {
    let [kind, version, meta] = ["kind", "apiVersion", "metadata"].map(|m| &list[m]);
    format!("{{\"kind\":{kind},\"apiVersion\":{version},\"metadata\":{meta},\"items\":[]}}")
}

/// Items as they are stored, without parsing them; those of built-in kinds don't carry kind and version.
fn raw_items(kind: &Kind, records: &[Arc<Record>], first: bool, out: &mut Vec<u8>) -> Result<(), String> {
    let prefix = format!("{{\"apiVersion\":\"{}\",\"kind\":\"{}\",", kind.gvk.api_version(), kind.gvk.kind);
    for (n, record) in records.iter().enumerate() {
        if n > 0 || !first {
            out.push(b',');
        }
        if kind.custom.is_some() {
            if let Some(json) = representation::raw(kind, record) {
                out.extend_from_slice(json);
                continue;
            }
        } else if let Some(rest) = record.json.strip_prefix(prefix.as_bytes()) {
            out.push(b'{');
            out.extend_from_slice(rest);
            continue;
        }
        let value = served_item(kind, record, kind.custom.is_none())?;
        serde_json::to_writer(&mut *out, &value).map_err(|e| e.to_string())?;
    }
    Ok(())
}

/// An item as it is served; `bare`: without kind and version.
fn served_item(kind: &Kind, record: &Record, bare: bool) -> Result<Value, String> {
    let mut value = representation::value(kind, record).map_err(|e| e.to_string())?;
    if bare && let Some(map) = value.as_object_mut() {
        map.remove("kind");
        map.remove("apiVersion");
    }
    Ok(value)
}

//! Watches: what to begin with, which changes a client sees and in which form, bookmarks, and the end.

use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use plimsoll_apimachinery::select::Selector;
use plimsoll_apimachinery::{ApiError, Kind, KindTable};
use rand::RngExt;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::Req;
use super::body::Body;
use super::list::{WAIT, matches, parse_version, selector};
use super::negotiate::{Accepted, Endpoint, Format, Transform, negotiate};
use super::options::ListOptions;
use super::present::partial;
use super::reply::{Payload, Reply};
use crate::flow::Beginning;
use crate::server::Server;
use crate::store::{Change, ChangeKind, Record, Snapshot, StoreError, Watch};
use crate::{convert, heavy, machine, representation};
use plimsoll_client::Clock;

/// Watches without `timeoutSeconds` live this long to twice this long, in seconds (`--min-request-timeout`).
const MIN_TIMEOUT: u64 = 1800;
/// Between bookmarks.
const BOOKMARK_EVERY: Duration = Duration::from_secs(60);
/// The last bookmark comes this long before the end.
const BOOKMARK_BEFORE_END: Duration = Duration::from_secs(2);
/// Objects a watch that begins has converted by a webhook at a time.
const CONVERTED_AT_ONCE: usize = 100;
/// Initial objects that are looked at in one go.
const LOOKED_AT: usize = 500;
/// Bytes put into one frame when several events are ready.
const FRAME: usize = 64 * 1024;
/// Least time between two frames of changes. What happens meanwhile shares a frame, because with a hundred watchers the
/// sending costs more than what is sent; a change after a silence is sent at once.
const GATHER: Duration = Duration::from_millis(1);

/// Answers a watch.
pub async fn watch(req: &mut Req, kind: &Arc<Kind>) -> Result<Reply, ApiError> {
    let options = ListOptions::parse(&req.query, true)?;
    let selector = selector(req, kind)?;
    if !options.resource_version.is_empty() {
        parse_version(&options.resource_version).map_err(|e| ApiError::new(500, "", e))?;
    }
    let streamed = super::endpoint::endpoint(req, kind);
    let accept = req.header(http::header::ACCEPT).map(str::to_owned);
    req.accepted = negotiate(accept.as_deref(), Endpoint { watching: true, direct: true, ..streamed })?;
    let table = matches!(req.accepted.transform, Transform::Table(_));
    let table_options =
        if table { Some(machine::table_options(&req.query, Value::Null, false)?) } else { None };
    let encoder = Encoder {
        kind: Arc::clone(kind),
        accepted: req.accepted,
        table: table_options,
        clock: req.server.config().clock.clone(),
    };
    let filter = Filter { kind: Arc::clone(kind), selector, name: req.info.name.clone() };
    let start = match begin(req, kind, &options).await? {
        Ok(start) => start,
        Err(e) => {
            let mut frame = BytesMut::new();
            encoder.error(&mut frame, &e);
            return Ok(stream_reply(&encoder, futures::stream::iter([frame.freeze()])));
        }
    };
    // Only what a watch begins with counts as work; then it waits.
    let seat = req.seat.take().filter(|_| start.initial.is_some()).map(Beginning::new);
    let timeout = options.timeout.unwrap_or_else(|| MIN_TIMEOUT + rand::rng().random_range(0..MIN_TIMEOUT));
    let now = Instant::now();
    let deadline = now + Duration::from_secs(timeout.min(7 * 24 * 3600));
    let state = State {
        snapshot: start.initial,
        cursor: String::new(),
        end_mark: start.end_mark,
        watch: start.watch,
        next_bookmark: options.bookmarks.then(|| next_bookmark(now, deadline)),
        deadline,
        filter,
        ready: BytesMut::new(),
        next_frame: now,
        encoder: encoder.clone(),
        converts: convert::webhook::is_hooked(kind).then(|| Arc::clone(&req.server)),
        kinds: kind.custom.is_some().then(|| req.server.follow_kinds()),
        begun: false,
        over: false,
        seat,
    };
    let stream = futures::stream::unfold(state, |mut state| async {
        let frame = state.next().await?;
        Some((frame, state))
    });
    Ok(stream_reply(&encoder, stream))
}

fn stream_reply(encoder: &Encoder, stream: impl futures::Stream<Item = Bytes> + Send + 'static) -> Reply {
    let content_type = match encoder.accepted.format {
        Format::Protobuf => "application/vnd.kubernetes.protobuf;stream=watch",
        _ => "application/json",
    };
    Reply { status: 200, payload: Payload::Stream(Body::stream(stream), content_type), headers: Vec::new() }
}

fn next_bookmark(now: Instant, deadline: Instant) -> Instant {
    let regular = now + BOOKMARK_EVERY;
    match deadline.checked_sub(BOOKMARK_BEFORE_END) {
        Some(last) if last < regular && last > now => last,
        _ => regular,
    }
}

struct Start {
    initial: Option<Snapshot>,
    end_mark: bool,
    watch: Watch,
}

/// Where the watch begins; the inner error is one that is told inside the stream.
async fn begin(req: &Req, kind: &Kind, options: &ListOptions) -> Result<Result<Start, ApiError>, ApiError> {
    let store = req.server.store();
    let resource: Arc<str> = kind.storage.as_str().into();
    let namespace = Some(req.info.namespace.as_str()).filter(|n| kind.namespaced && !n.is_empty());
    let version = options.resource_version.as_str();
    let parsed = match version {
        "" => 0,
        text => parse_version(text).map_err(|e| ApiError::new(500, "", e))?,
    };
    let replay = match options.send_initial_events {
        Some(initial) => initial,
        None => parsed == 0,
    };
    if replay {
        if parsed > 0
            && let Err(e) = store.wait_until(parsed, WAIT).await
        {
            return Ok(Err(e.to_api("", "", "")));
        }
        let (initial, watch) = store.list_and_watch(&resource, namespace);
        return Ok(Ok(Start { initial: Some(initial), end_mark: options.bookmarks, watch }));
    }
    let from = if parsed == 0 { store.current_revision() } else { parsed };
    Ok(match store.watch(&resource, namespace, from) {
        Ok(watch) => Ok(Start { initial: None, end_mark: false, watch }),
        Err(StoreError::Expired { requested, oldest }) => {
            Err(ApiError::new(410, "Expired", format!("too old resource version: {requested} ({oldest})")))
        }
        Err(e) => Err(e.to_api(&kind.gvk.group, &kind.plural, "")),
    })
}

#[derive(Clone)]
struct Filter {
    kind: Arc<Kind>,
    selector: Selector,
    /// From old watch paths; empty: any.
    name: String,
}

impl Filter {
    fn is_open(&self) -> bool {
        self.name.is_empty() && self.selector.is_empty()
    }

    fn matches(&self, record: &Record) -> bool {
        (self.name.is_empty() || record.key.name == self.name) && matches(&self.kind, &self.selector, record)
    }

    fn view(&self, change: &Change) -> Option<ChangeKind> {
        if self.is_open() {
            return Some(change.kind);
        }
        change.view(|r| self.matches(r))
    }
}

/// Waits until the kind of a watch is served no more, as its storage ends upstream's watches with it.
async fn undefined(kinds: &mut Option<tokio::sync::watch::Receiver<Arc<KindTable>>>, kind: &Kind) {
    let Some(kinds) = kinds else { return std::future::pending().await };
    let gvk = &kind.gvk;
    let gone = kinds.wait_for(|t| t.resource(&gvk.group, &gvk.version, &kind.plural).is_none());
    if gone.await.is_err() {
        std::future::pending::<()>().await;
    }
}

struct State {
    snapshot: Option<Snapshot>,
    cursor: String,
    end_mark: bool,
    watch: Watch,
    next_bookmark: Option<Instant>,
    deadline: Instant,
    filter: Filter,
    /// Events that have not been sent yet.
    ready: BytesMut,
    /// When the next frame of changes may go.
    next_frame: Instant,
    encoder: Encoder,
    /// The server, for kinds that a webhook converts.
    converts: Option<Arc<Server>>,
    /// Whether a first frame was filled: however late its turn comes, a watch tells what was there when it opened.
    begun: bool,
    /// Told when the definition of a custom kind may have gone.
    kinds: Option<tokio::sync::watch::Receiver<Arc<KindTable>>>,
    over: bool,
    /// Seat of the request, until all initial events are taken.
    seat: Option<Beginning>,
}

impl State {
    /// The next frame; `None`: the watch is over.
    async fn next(&mut self) -> Option<Bytes> {
        loop {
            if !self.ready.is_empty() {
                self.gather().await;
                return Some(self.ready.split().freeze());
            }
            // Looked at before anything else: where there is always an event, waiting for one never ends.
            let now = Instant::now();
            if self.over || (self.begun && now >= self.deadline) {
                return None;
            }
            if self.snapshot.is_some() {
                self.begun = true;
                match self.converts.clone() {
                    Some(server) => {
                        let deadline = self.deadline;
                        tokio::time::timeout_at(deadline, self.initial_converted(&server)).await.ok()?;
                    }
                    None => self.initial().await,
                }
                continue;
            }
            if self.next_bookmark.is_some_and(|b| now >= b) {
                self.next_bookmark = Some(next_bookmark(now, self.deadline));
                let position = self.watch.position();
                self.encoder.bookmark(&mut self.ready, position, false);
                continue;
            }
            self.begun = true;
            if self.converts.is_none() && self.drain()? {
                continue;
            }
            let wake = self.next_bookmark.map_or(self.deadline, |b| b.min(self.deadline));
            // In this order: what happened to the last objects of a kind is told before the end.
            let change: Arc<Change> = tokio::select! {
                biased;
                change = self.watch.next() => change.ok()?,
                () = tokio::time::sleep_until(wake) => continue,
                () = undefined(&mut self.kinds, &self.filter.kind) => {
                    self.over = true;
                    continue;
                }
            };
            match self.converts.clone() {
                Some(server) => {
                    let deadline = self.deadline;
                    tokio::time::timeout_at(deadline, self.push_converted(&server, change)).await.ok()?;
                }
                None => self.push(&change),
            }
        }
    }

    /// Waits for changes that follow the last frame closely, and takes them along.
    async fn gather(&mut self) {
        let full = self.snapshot.is_some() || self.over || self.ready.len() >= FRAME;
        if !full && self.converts.is_none() && Instant::now() < self.next_frame {
            tokio::time::sleep_until(self.next_frame).await;
            self.over = self.drain().is_none();
        }
        self.next_frame = Instant::now() + GATHER;
    }

    /// A frame of initial events; after the last one the end mark.
    async fn initial(&mut self) {
        let Some(snapshot) = self.snapshot.take() else { return };
        let reads = self.filter.selector.fields.needs_object();
        let next = if self.encoder.is_plain_form() && !reads {
            initial_events(&snapshot, &self.cursor, &self.filter, &mut self.encoder, &mut self.ready)
        } else {
            let (at, rest) = (std::mem::take(&mut self.cursor), snapshot.clone());
            let (filter, mut encoder) = (self.filter.clone(), self.encoder.clone());
            let mut ready = std::mem::take(&mut self.ready);
            let work = async move {
                let next = initial_events(&rest, &at, &filter, &mut encoder, &mut ready);
                (next, encoder, ready)
            };
            let next;
            (next, self.encoder, self.ready) = heavy::run(work).await;
            next
        };
        let more = next.is_some();
        self.cursor = next.unwrap_or_default();
        self.began(snapshot, more);
        if more && self.ready.is_empty() {
            // Nothing matched so far: others may want their turn.
            heavy::give_way().await;
        }
    }

    /// Goes on with the snapshot, or marks the end of the initial events.
    fn began(&mut self, snapshot: Snapshot, more: bool) {
        if more {
            self.snapshot = Some(snapshot);
            return;
        }
        self.seat = None;
        if self.end_mark {
            self.encoder.bookmark(&mut self.ready, snapshot.revision, true);
        }
    }

    /// As [`State::initial`], for a kind that a webhook converts.
    async fn initial_converted(&mut self, server: &Server) {
        let Some(snapshot) = self.snapshot.take() else { return };
        let records: Vec<Arc<Record>> =
            snapshot.iter_from(&self.cursor).take(CONVERTED_AT_ONCE).cloned().collect();
        if let Some(last) = records.last() {
            self.cursor = format!("{}\0", snapshot.relative_path(last));
        }
        let full = records.len() == CONVERTED_AT_ONCE;
        match convert::webhook::records(server, &self.filter.kind, records).await {
            Ok(records) => {
                for record in records.iter().filter(|r| self.filter.matches(r)) {
                    self.encoder.event(&mut self.ready, ChangeKind::Added, record);
                }
            }
            Err(e) => return self.fail(&e),
        }
        self.began(snapshot, full);
    }

    /// As [`State::push`], for a kind that a webhook converts: with what else is there already, in one call.
    async fn push_converted(&mut self, server: &Server, first: Arc<Change>) {
        let mut bytes = first.record.json.len();
        let mut changes = vec![first];
        while changes.len() < CONVERTED_AT_ONCE && bytes < FRAME {
            match self.watch.try_next() {
                Ok(Some(change)) => {
                    bytes += change.record.json.len();
                    changes.push(change);
                }
                Ok(None) => break,
                Err(_) => {
                    self.over = true;
                    break;
                }
            }
        }
        let compared = !self.filter.is_open();
        let kind = Arc::clone(&self.filter.kind);
        match convert::webhook::changes(server, &kind, &changes, compared).await {
            Ok(changes) => changes.iter().for_each(|c| self.push(c)),
            Err(e) if changes.len() == 1 => self.fail(&e),
            // What comes before the one that fails is told.
            Err(_) => {
                for change in changes.chunks(1) {
                    match convert::webhook::changes(server, &kind, change, compared).await {
                        Ok(changes) => changes.iter().for_each(|c| self.push(c)),
                        Err(e) => return self.fail(&e),
                    }
                }
            }
        }
    }

    /// Sends an error, the last event of the watch.
    fn fail(&mut self, error: &ApiError) {
        self.encoder.error(&mut self.ready, error);
        self.over = true;
    }

    /// Takes what is there already; whether there was anything. `None`: the watch is over.
    fn drain(&mut self) -> Option<bool> {
        let mut any = false;
        while self.ready.len() < FRAME {
            let Some(change) = self.watch.try_next().ok()? else { break };
            any = true;
            self.push(&change);
        }
        Some(any)
    }

    fn push(&mut self, change: &Change) {
        if let Some(view) = self.filter.view(change) {
            self.encoder.event(&mut self.ready, view, &change.object(view));
        }
    }
}

/// Initial events from a position on, as far as they fit into a frame; the position to go on from.
fn initial_events(
    snapshot: &Snapshot,
    from: &str,
    filter: &Filter,
    encoder: &mut Encoder,
    out: &mut BytesMut,
) -> Option<String> {
    let mut last: Option<&Arc<Record>> = None;
    for (n, record) in snapshot.iter_from(from).enumerate() {
        if out.len() >= FRAME || n >= LOOKED_AT {
            return last.map(|last| format!("{}\0", snapshot.relative_path(last)));
        }
        last = Some(record);
        if filter.is_open() || filter.matches(record) {
            encoder.event(out, ChangeKind::Added, record);
        }
    }
    None
}

/// Writes events in the form asked for.
#[derive(Clone)]
struct Encoder {
    kind: Arc<Kind>,
    accepted: Accepted,
    /// Headers are sent with the first event only.
    table: Option<machine::TableOptions>,
    clock: Clock,
}

impl Encoder {
    /// Whether objects are sent as they are, if they are stored as they are served.
    fn is_plain_form(&self) -> bool {
        self.accepted.format == Format::Json && self.accepted.transform == Transform::None
    }

    fn is_plain(&self, record: &Record) -> bool {
        self.is_plain_form() && representation::raw(&self.kind, record).is_some()
    }

    fn event(&mut self, out: &mut BytesMut, view: ChangeKind, record: &Record) {
        if self.is_plain(record) {
            out.reserve(record.json.len() + 40);
            for part in
                [&b"{\"type\":\""[..], view.event_type().as_bytes(), b"\",\"object\":", &record.json, b"}\n"]
            {
                out.extend_from_slice(part);
            }
            return;
        }
        let object = representation::value(&self.kind, record).unwrap_or_default();
        self.encode(out, view.event_type(), object);
    }

    fn encode(&mut self, out: &mut BytesMut, event_type: &str, object: Value) {
        let object = match (self.accepted.transform, &mut self.table) {
            (Transform::Table(version), Some(options)) => {
                let table = machine::table(&self.kind, &[object], options, version, self.clock.now());
                options.no_headers = true;
                table
            }
            (Transform::Partial(version) | Transform::PartialList(version), _) => partial(&object, version),
            _ => object,
        };
        self.frame(out, event_type, &object);
    }

    fn frame(&self, out: &mut BytesMut, event_type: &str, object: &Value) {
        if self.accepted.format == Format::Protobuf
            && let Some(frame) = machine::protobuf_event(event_type, object)
        {
            return out.extend_from_slice(&frame);
        }
        let line = serde_json::to_vec(&json!({"type": event_type, "object": object})).unwrap_or_default();
        out.extend_from_slice(&line);
        out.extend_from_slice(b"\n");
    }

    fn error(&self, out: &mut BytesMut, error: &ApiError) {
        self.frame(out, "ERROR", &error.to_status());
    }

    fn bookmark(&mut self, out: &mut BytesMut, revision: u64, end: bool) {
        let mut object = machine::empty(&self.kind);
        object["metadata"] = json!({"resourceVersion": revision.to_string()});
        if end {
            object["metadata"]["annotations"] = json!({"k8s.io/initial-events-end": "true"});
        }
        self.encode(out, "BOOKMARK", object);
    }
}

//! A reflector of a server on which everything goes wrong for a while.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Mutex, MutexGuard};

use bytes::Bytes;
use futures::stream;
use http::{Request, StatusCode};
use proptest::prelude::*;

use super::*;
use crate::rest::{Answer, Parts, Transport};

/// Objects per page, whatever the client asks for.
const PAGE: usize = 2;
/// Pause between two looks of a watch for events.
const LOOK: Duration = Duration::from_millis(100);

/// UIDs and versions by name.
type Objects = BTreeMap<u8, (u64, u64)>;

#[derive(Clone, Copy)]
struct Change {
    version: u64,
    name: u8,
    uid: u64,
    deleted: bool,
    /// Watches can't show it, lists can.
    garbled: bool,
}

struct State {
    objects: Objects,
    log: Vec<Change>,
    version: u64,
    /// Watches from before this version are refused.
    compacted: u64,
    /// What lists at earlier versions show.
    snapshots: BTreeMap<u64, Objects>,
    faulty: bool,
    dice: u64,
    lists: Lists,
    /// How many pages were asked for.
    pages: usize,
}

/// What a server makes of a watch that asks for a list first.
#[derive(Clone, Copy, Debug)]
enum Lists {
    /// It sends the objects, and says when those were all.
    Stream,
    /// It refuses it.
    Refuse,
    /// It does not know what it was asked for, and begins a usual watch.
    Ignore,
}

impl State {
    /// A number below `sides` (xorshift64).
    fn roll(&mut self, sides: u64) -> u64 {
        self.dice ^= self.dice << 13;
        self.dice ^= self.dice >> 7;
        self.dice ^= self.dice << 17;
        self.dice % sides
    }

    /// Once in so many times, while there are faults.
    fn fails(&mut self, once_in: u64) -> bool {
        self.faulty && self.roll(once_in) == 0
    }

    fn change(&mut self, name: u8, deleted: bool, garbled: bool) {
        let uid = match (self.objects.get(&name), deleted) {
            (None, true) => return,
            (None, false) => self.version + 1,
            (Some((uid, _)), _) => *uid,
        };
        self.version += 1;
        let version = self.version;
        if deleted {
            self.objects.remove(&name);
        } else {
            self.objects.insert(name, (uid, version));
        }
        self.log.push(Change { version, name, uid, deleted, garbled });
    }

    fn list(&mut self, query: &str) -> (u16, String) {
        self.pages += 1;
        let (version, from) = match query.split_once("&continue=") {
            Some((_, token)) => {
                let (version, from) = token.split_once('-').unwrap();
                (version.parse().unwrap(), from.parse().unwrap())
            }
            None => (self.version, 0),
        };
        if version < self.compacted || from > 0 && self.fails(4) {
            return (410, String::new());
        }
        let objects = self.objects.clone();
        let objects = self.snapshots.entry(version).or_insert(objects);
        let items =
            objects.iter().skip(from).take(PAGE).map(|(name, (uid, version))| object(*name, *uid, *version));
        let items = items.collect::<Vec<_>>().join(",");
        let next =
            if from + PAGE < objects.len() { format!("{version}-{}", from + PAGE) } else { String::new() };
        (
            200,
            format!(
                r#"{{"metadata":{{"resourceVersion":"{version}","continue":"{next}"}},"items":[{items}]}}"#
            ),
        )
    }

    /// What a streamed list shows next of the objects that are left, or of changes since `from`; `None`: it ends here.
    fn next_listed(&mut self, left: &mut Vec<String>, from: &mut u64) -> Option<io::Result<String>> {
        if self.fails(30) {
            return None;
        }
        if self.fails(30) {
            return Some(Err(io::Error::other("reset")));
        }
        if let Some(object) = left.pop() {
            let line = format!(r#"{{"type":"ADDED","object":{object}}}{}"#, "\n");
            return Some(Ok(if self.fails(30) { line[..line.len() / 2].to_owned() } else { line }));
        }
        let behind = *from < self.version && *from >= self.compacted;
        let ends = !behind || self.roll(2) == 0;
        match self.lists {
            Lists::Stream if ends => {
                let end = r#""annotations":{"k8s.io/initial-events-end":"true"}"#;
                let metadata = format!(r#"{{"resourceVersion":"{from}",{end}}}"#);
                Some(Ok(format!(r#"{{"type":"BOOKMARK","object":{{"metadata":{metadata}}}}}{}"#, "\n")))
            }
            _ => self.next_event(from),
        }
    }

    /// What a watch that has shown everything up to `from` shows next; `None`: it ends here.
    fn next_event(&mut self, from: &mut u64) -> Option<io::Result<String>> {
        if self.fails(10) {
            return None;
        }
        if *from < self.compacted {
            return Some(Ok(format!(
                r#"{{"type":"ERROR","object":{{"code":410,"message":"too old"}}}}{}"#,
                "\n"
            )));
        }
        let Some(change) = self.log.iter().find(|c| c.version > *from).copied() else {
            if self.fails(3) {
                return Some(Ok(bookmark(self.version)));
            }
            return Some(Ok(String::new()));
        };
        let kind = match change.deleted {
            true => "DELETED",
            false => "MODIFIED",
        };
        let Change { version, name, uid, .. } = change;
        let line = format!(r#"{{"type":"{kind}","object":{}}}{}"#, object(name, uid, version), "\n");
        if change.garbled {
            return Some(Ok("{\"type\":\"MODIFIED\",\"object\":{\"metadata\":\n".into()));
        }
        if self.fails(10) {
            return Some(Ok(line[..line.len() / 2].to_owned()));
        }
        if self.fails(10) {
            return Some(Err(io::Error::other("reset")));
        }
        *from = version;
        let again = if self.fails(5) { line.clone() } else { String::new() };
        Some(Ok(line + &again))
    }
}

fn object(name: u8, uid: u64, version: u64) -> String {
    format!(
        r#"{{"metadata":{{"namespace":"ns","name":"{name}","uid":"{uid}","resourceVersion":"{version}"}}}}"#
    )
}

fn bookmark(version: u64) -> String {
    format!(r#"{{"type":"BOOKMARK","object":{{"metadata":{{"resourceVersion":"{version}"}}}}}}{}"#, "\n")
}

#[derive(Clone)]
struct Faulty(Arc<Mutex<State>>);

impl Faulty {
    fn new(seed: u64, lists: Lists) -> Self {
        let (objects, snapshots) = (Objects::new(), BTreeMap::new());
        let log = Vec::new();
        let (version, compacted, dice, pages) = (1, 0, seed | 1, 0);
        let state = State { objects, log, version, compacted, snapshots, faulty: true, dice, lists, pages };
        Self(Arc::new(Mutex::new(state)))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap()
    }

    fn events(&self, from: u64) -> Parts {
        let (server, began) = (self.clone(), Instant::now());
        // A watch whose network has failed shows nothing, and doesn't end.
        let dead = server.state().fails(10);
        Box::pin(stream::unfold((server, from), move |(server, mut from)| async move {
            loop {
                let event = if dead { Some(Ok(String::new())) } else { server.state().next_event(&mut from) };
                match event? {
                    Ok(line) if line.is_empty() => {}
                    event => return Some((event.map(Bytes::from), (server, from))),
                }
                if !dead && began.elapsed() >= Duration::from_secs(u64::from(WATCH_SECONDS)) {
                    return None;
                }
                tokio::time::sleep(LOOK).await;
            }
        }))
    }

    /// A watch that begins with what is there.
    fn listed(&self) -> Parts {
        let (left, from) = {
            let state = self.state();
            let all = state.objects.iter().map(|(name, (uid, version))| object(*name, *uid, *version));
            (all.collect::<Vec<_>>(), state.version)
        };
        Box::pin(stream::unfold((self.clone(), left, from), |(server, mut left, mut from)| async move {
            loop {
                let event = server.state().next_listed(&mut left, &mut from);
                match event? {
                    Ok(line) if line.is_empty() => tokio::time::sleep(LOOK).await,
                    event => return Some((event.map(Bytes::from), (server, left, from))),
                }
            }
        }))
    }

    fn answer(&self, request: &Request<Vec<u8>>) -> Result<(u16, Parts), Error> {
        let (path, query) = (request.uri().path(), request.uri().query().unwrap_or_default());
        let mut state = self.state();
        let whole = |body: String| -> Parts { stream::iter([Ok(Bytes::from(body))]).boxed() };
        if state.fails(8) {
            return Err(Error::Transport("refused".into()));
        }
        if state.fails(8) {
            let code = [404, 429, 500, 503][usize::try_from(state.roll(4)).unwrap()];
            return Ok((code, whole("wrong".into())));
        }
        if path.ends_with("/v1") {
            return Ok((200, whole(r#"{"kind":"APIResourceList","resources":[{"name":"pods"}]}"#.into())));
        }
        if query.contains("sendInitialEvents=true") {
            if matches!(state.lists, Lists::Refuse) {
                let code = if state.roll(2) == 0 { 422 } else { 400 };
                return Ok((code, whole(String::new())));
            }
            drop(state);
            return Ok((200, self.listed()));
        }
        if query.contains("watch=true") {
            let from = query.split("resourceVersion=").nth(1).unwrap().parse().unwrap();
            if from < state.compacted {
                // As servers answer whose versions are of another kind.
                let code = if state.roll(2) == 0 { 410 } else { 400 };
                return Ok((code, whole(String::new())));
            }
            drop(state);
            return Ok((200, self.events(from)));
        }
        let (code, body) = state.list(query);
        if state.fails(8) {
            let half = Bytes::from(body[..body.len() / 2].to_owned());
            return Ok((code, stream::iter([Ok(half), Err(io::Error::other("reset"))]).boxed()));
        }
        Ok((code, whole(body)))
    }
}

impl Transport for Faulty {
    fn send(&self, request: Request<Vec<u8>>) -> BoxFuture<'static, Result<Answer, Error>> {
        let answer = self.answer(&request).map(|(code, body)| Answer {
            status: StatusCode::from_u16(code).unwrap(),
            retry_after: 0,
            body,
        });
        Box::pin(std::future::ready(answer))
    }

    fn is_remote(&self) -> bool {
        true
    }
}

/// What a sink makes of deltas; fails on those that no history of the server explains.
#[derive(Default)]
struct Sink {
    objects: BTreeMap<String, (String, String)>,
    ended: Vec<String>,
    synced: bool,
}

impl Sink {
    fn handle(&mut self, delta: Delta<'_>) {
        match delta {
            Delta::Upsert { meta, bytes } => {
                assert_eq!(Meta::of(bytes).as_ref(), Some(meta));
                let state = (meta.uid.to_string(), meta.resource_version.to_string());
                if let Some((uid, _)) = self.objects.insert(meta.name.to_string(), state) {
                    assert_eq!(uid, *meta.uid, "the object before has no end");
                }
            }
            Delta::Delete { namespace, name, uid } => {
                assert_eq!(namespace, "ns");
                assert_eq!(self.objects.remove(name).map(|(uid, _)| uid).as_deref(), Some(uid));
                assert!(!self.ended.iter().any(|ended| ended == uid), "a second end");
                self.ended.push(uid.to_owned());
            }
            Delta::Synced { .. } => self.synced = true,
            Delta::Absent => panic!("the server has the resource"),
        }
    }
}

#[derive(Clone, Copy, Debug)]
enum Op {
    Put(u8),
    Garbled(u8),
    Delete(u8),
    /// Forgets all changes until now.
    Compact,
    /// Passes so many milliseconds.
    Wait(u16),
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        6 => (0..6u8).prop_map(Op::Put),
        1 => (0..6u8).prop_map(Op::Garbled),
        4 => (0..6u8).prop_map(Op::Delete),
        1 => Just(Op::Compact),
        5 => (0..3000u16).prop_map(Op::Wait),
    ]
}

async fn play(seed: u64, lists: Lists, ops: Vec<Op>) {
    let server = Faulty::new(seed, lists);
    let (sink, stop) = (Arc::new(Mutex::new(Sink::default())), CancellationToken::new());
    let reflector = Reflector::new(Api::new(Arc::new(server.clone()), "test"), PODS);
    let (memory, seen) = (reflector.memory.clone(), Arc::clone(&sink));
    let running = tokio::spawn(reflector.run(stop.clone(), move |delta| seen.lock().unwrap().handle(delta)));
    for op in ops {
        match op {
            Op::Put(name) => server.state().change(name, false, false),
            Op::Garbled(name) => server.state().change(name, false, true),
            Op::Delete(name) => server.state().change(name, true, false),
            Op::Compact => {
                let mut state = server.state();
                state.compacted = state.version;
            }
            Op::Wait(ms) => tokio::time::sleep(Duration::from_millis(ms.into())).await,
        }
    }
    server.state().faulty = false;
    // A watch that is dead is noticed, and the longest backoff passes.
    tokio::time::sleep(Duration::from_secs(120)).await;
    assert!(!running.is_finished(), "the sink has failed");
    let newest = server.state().objects.values().map(|(_, version)| *version).max().unwrap_or(0);
    memory.reached(newest).await;
    let shown: BTreeMap<_, _> = server
        .state()
        .objects
        .iter()
        .map(|(name, (uid, version))| (name.to_string(), (uid.to_string(), version.to_string())))
        .collect();
    let sink = sink.lock().unwrap();
    assert_eq!((sink.synced, &sink.objects), (true, &shown));
    stop.cancel();
}

#[tokio::test(start_paused = true)]
async fn a_list_is_streamed_where_the_server_can() {
    let listed = |lists| async move {
        let (server, stop) = (Faulty::new(1, lists), CancellationToken::new());
        server.state().faulty = false;
        (0..5).for_each(|name| server.state().change(name, false, false));
        let (sink, seen) = (Arc::new(Mutex::new(Sink::default())), Arc::default());
        let reflector = Reflector::new(Api::new(Arc::new(server.clone()), "test"), PODS);
        let (memory, at) =
            (reflector.memory.clone(), (Arc::clone(&sink), Arc::<Mutex<Vec<_>>>::clone(&seen)));
        let began = Instant::now();
        tokio::spawn(reflector.run(stop.clone(), move |delta| {
            if matches!(delta, Delta::Synced { .. }) {
                at.1.lock().unwrap().push(began.elapsed().as_secs());
            }
            at.0.lock().unwrap().handle(delta);
        }));
        memory.reached(6).await;
        let objects = sink.lock().unwrap().objects.len();
        stop.cancel();
        let seconds = seen.lock().unwrap().clone();
        (objects, server.state().pages, seconds)
    };
    assert_eq!(listed(Lists::Stream).await, (5, 0, vec![0]));
    assert_eq!(listed(Lists::Refuse).await, (5, 3, vec![0]));
    assert_eq!(listed(Lists::Ignore).await, (5, 3, vec![10]), "after a silence");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// Whatever the server and the network do wrong: once they don't any more, the sink has what the server has, and has seen
    /// the end of each object once.
    #[test]
    fn a_sink_ends_with_what_the_server_has(
        seed: u64,
        lists in prop_oneof![2 => Just(Lists::Stream), 1 => Just(Lists::Refuse), 1 => Just(Lists::Ignore)],
        ops in prop::collection::vec(op(), 1..60),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
        runtime.unwrap().block_on(play(seed, lists, ops));
    }
}

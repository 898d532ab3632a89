mod faults;

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use futures::StreamExt;
use futures::future::BoxFuture;
use futures::stream::BoxStream;

use plimsoll_api::resource::{PODS, RUN_WINDOWS, WORKLOADS};

use super::*;
use crate::health::Health;
use crate::rest::{Answer, Direct, Transport};

fn session() -> Session {
    struct Nowhere;
    impl Direct for Nowhere {
        fn call(
            &self,
            _request: http::Request<Vec<u8>>,
        ) -> BoxFuture<'static, (http::StatusCode, BoxStream<'static, bytes::Bytes>)> {
            Box::pin(std::future::pending())
        }
    }
    let source = Reflector::new(Api::direct(Arc::new(Nowhere), "test"), PODS);
    let seen = Arc::clone(&source.memory.objects).try_lock_owned().unwrap();
    let (collection, path) = (String::new(), String::new());
    Session { source, seen, collection, path, version: None, denied: None, pages: true }
}

fn object(name: &str, uid: &str, version: u32) -> String {
    format!(
        r#"{{"metadata":{{"namespace":"ns","name":"{name}","uid":"{uid}","resourceVersion":"{version}"}}}}"#
    )
}

fn feed(session: &mut Session, line: &str, log: &mut Vec<String>) -> Option<String> {
    let line = format!("{line}\n");
    session.event(Event::from_line(line.as_bytes()).unwrap(), &mut |d| {
        log.push(match d {
            Delta::Upsert { meta, .. } => format!("+{}/{}", meta.name, meta.uid),
            Delta::Delete { namespace, name, uid } => format!("-{namespace}/{name}/{uid}"),
            Delta::Synced { .. } => "synced".into(),
            Delta::Absent => "absent".into(),
        });
    })
}

#[test]
fn events_become_deltas() {
    let (mut session, mut log) = (session(), Vec::new());
    let line = |kind: &str, o: &str| format!(r#"{{"type":"{kind}","object":{o}}}"#);
    let mut go = |line: &str| feed(&mut session, line, &mut log);
    assert_eq!(go(&line("ADDED", &object("a", "1", 5))), Some("5".into()));
    assert_eq!(go(&line("MODIFIED", &object("a", "1", 6))), Some("6".into()));
    // Deleted and made again while the connection was down.
    assert_eq!(go(&line("MODIFIED", &object("a", "2", 8))), Some("8".into()));
    assert_eq!(go(&line("BOOKMARK", r#"{"metadata":{"resourceVersion":"20"}}"#)), Some("20".into()));
    assert_eq!(go(&line("BOOKMARK", r#"{"metadata":{}}"#)), None);
    assert_eq!(go(&line("ADDED", r#"{"metadata":{"name":7}}"#)), None);
    assert_eq!(go(&line("DELETED", &object("a", "2", 21))), Some("21".into()));
    assert_eq!(go(&line("DELETED", &object("a", "2", 21))), Some("21".into()));
    assert_eq!(log, ["+a/1", "+a/1", "-ns/a/1", "+a/2", "-ns/a/2"]);
}

/// A server of one object, which can be told to answer with 404.
#[derive(Default)]
struct Server {
    unserved: AtomicBool,
    /// Whether discovery knows the resource.
    denied: AtomicBool,
    watches: AtomicUsize,
}

impl Direct for Arc<Server> {
    fn call(
        &self,
        request: http::Request<Vec<u8>>,
    ) -> BoxFuture<'static, (http::StatusCode, BoxStream<'static, bytes::Bytes>)> {
        let (path, query) = (request.uri().path(), request.uri().query().unwrap_or_default());
        let (group, denied) = (path.split('/').count() == 4, self.denied.load(Ordering::SeqCst));
        let list = format!(r#"{{"metadata":{{"resourceVersion":"5"}},"items":[{}]}}"#, object("a", "1", 5));
        let names = ["runwindows", "workloads"].map(|name| serde_json::json!({"name": name}));
        let (code, body) = match () {
            () if path == "/apis" => (200, r#"{"kind":"APIGroupList","groups":[]}"#.to_owned()),
            () if group && denied => (404, String::new()),
            () if group => {
                (200, serde_json::json!({"kind": "APIResourceList", "resources": names}).to_string())
            }
            () if self.unserved.load(Ordering::SeqCst) => (404, "404 page not found".to_owned()),
            () if query.contains("watch=true") => {
                self.watches.fetch_add(1, Ordering::SeqCst);
                let silent = futures::stream::pending().boxed();
                return Box::pin(async { (http::StatusCode::OK, silent) });
            }
            () => (200, list),
        };
        let body = futures::stream::once(async { bytes::Bytes::from(body) }).boxed();
        Box::pin(async move { (http::StatusCode::from_u16(code).unwrap(), body) })
    }
}

struct Followed {
    server: Arc<Server>,
    health: Health,
    log: Arc<std::sync::Mutex<Vec<String>>>,
    memory: Memory,
    _stop: tokio_util::sync::DropGuard,
}

impl Followed {
    fn log(&self) -> Vec<String> {
        std::mem::take(&mut self.log.lock().unwrap())
    }
}

async fn follow(resource: Resource) -> Followed {
    let (server, health, log) = (Arc::new(Server::default()), Health::default(), Arc::default());
    let (tracker, stop) = (health.track(resource), CancellationToken::new());
    let api = Api::direct(Arc::new(Arc::clone(&server)), "test");
    let required = resource == WORKLOADS;
    let reflector = Reflector { tracker, required, ..Reflector::new(api, resource) };
    let seen: Arc<std::sync::Mutex<Vec<String>>> = Arc::clone(&log);
    let memory = reflector.memory.clone();
    tokio::spawn(reflector.run(stop.clone(), move |delta| {
        let what = match delta {
            Delta::Upsert { meta, .. } => format!("+{}", meta.name),
            Delta::Delete { name, .. } => format!("-{name}"),
            Delta::Synced { .. } => "synced".into(),
            Delta::Absent => "absent".into(),
        };
        seen.lock().unwrap().push(what);
    }));
    let followed = Followed { server, health, log, memory, _stop: stop.drop_guard() };
    seconds(1).await;
    assert_eq!(followed.log(), ["+a", "synced"]);
    followed
}

async fn seconds(n: u64) {
    tokio::time::sleep(Duration::from_secs(n)).await;
}

#[tokio::test(start_paused = true)]
async fn a_404_deletes_nothing_before_discovery_says_so_for_a_while() {
    let f = follow(RUN_WINDOWS).await;
    f.server.unserved.store(true, Ordering::SeqCst);
    seconds(300).await;
    assert_eq!(f.log(), [""; 0], "discovery knows the resource");
    assert!(f.health.paused());
    f.server.denied.store(true, Ordering::SeqCst);
    seconds(50).await;
    assert_eq!((f.log(), f.health.paused()), (Vec::new(), true));
    seconds(20).await;
    assert_eq!(f.log()[..3], ["-a", "absent", "synced"]);
    assert!(!f.health.paused() && f.health.problems().is_empty());
    f.server.unserved.store(false, Ordering::SeqCst);
    seconds(15).await;
    assert!(f.log().contains(&"+a".to_owned()), "and it may come back");
}

#[tokio::test(start_paused = true)]
async fn nobody_waits_for_versions_of_a_resource_that_is_gone() {
    let f = follow(RUN_WINDOWS).await;
    let seconds_for = |version| {
        let memory = f.memory.clone();
        async move { tokio::time::timeout(Duration::from_secs(1), memory.reached(version)).await }
    };
    assert!(seconds_for(5).await.is_ok() && seconds_for(6).await.is_err());
    f.server.unserved.store(true, Ordering::SeqCst);
    f.server.denied.store(true, Ordering::SeqCst);
    seconds(200).await;
    assert!(seconds_for(6).await.is_ok(), "it will never be handed on");
    f.server.unserved.store(false, Ordering::SeqCst);
    seconds(15).await;
    assert!(seconds_for(5).await.is_ok() && seconds_for(6).await.is_err(), "it is back");
}

#[tokio::test(start_paused = true)]
async fn what_nothing_can_be_decided_without_is_never_absent() {
    let f = follow(WORKLOADS).await;
    f.server.unserved.store(true, Ordering::SeqCst);
    f.server.denied.store(true, Ordering::SeqCst);
    seconds(3600).await;
    assert_eq!((f.log(), f.health.paused()), (Vec::new(), true));
    f.server.unserved.store(false, Ordering::SeqCst);
    seconds(2).await;
    assert_eq!((f.log(), f.health.paused()), (vec!["+a".to_owned(), "synced".into()], false), "a relist");
}

#[tokio::test(start_paused = true)]
async fn a_silent_watch_is_given_up_and_opened_again() {
    let f = follow(WORKLOADS).await;
    seconds(50).await;
    assert_eq!(f.server.watches.load(Ordering::SeqCst), 2);
    assert!(f.log().is_empty() && f.health.problems().is_empty(), "no relist is needed");
}

/// A server behind a load balancer that closes each watch after two seconds; counts watches.
struct Cutting(Arc<AtomicUsize>);

impl Transport for Cutting {
    fn send(&self, request: http::Request<Vec<u8>>) -> BoxFuture<'static, Result<Answer, Error>> {
        let body = match request.uri().query().unwrap_or_default().contains("watch=true") {
            true => {
                self.0.fetch_add(1, Ordering::SeqCst);
                let cut = async {
                    seconds(2).await;
                    Err(std::io::Error::other("reset"))
                };
                futures::stream::once(cut).boxed()
            }
            false => {
                let list = bytes::Bytes::from_static(br#"{"metadata":{"resourceVersion":"5"},"items":[]}"#);
                futures::stream::once(async { Ok(list) }).boxed()
            }
        };
        let answer = Answer { status: http::StatusCode::OK, retry_after: 0, body };
        Box::pin(async { Ok(answer) })
    }

    fn is_remote(&self) -> bool {
        false
    }
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_lasted_resets_the_backoff() {
    let (watches, stop) = (Arc::new(AtomicUsize::new(0)), CancellationToken::new());
    let api = Api::new(Arc::new(Cutting(Arc::clone(&watches))), "test");
    let tracker = Health::default().track(WORKLOADS);
    let reflector = Reflector { tracker, ..Reflector::new(api, WORKLOADS) };
    let work = tokio::spawn(reflector.run(stop.clone(), |_| {}));
    seconds(600).await;
    stop.cancel();
    work.await.unwrap();
    let watches = watches.load(Ordering::SeqCst);
    assert!(watches > 250, "{watches} in 600 s, each of 2 s");
}

/// The same watch of kube-apiserver as JSON and as protobuf.
#[tokio::test]
async fn lines_and_frames_are_told_apart_and_cut_ones_are_errors() {
    const LINES: &[u8] = include_bytes!("../../../../plimsoll-api/src/protobuf/testdata/watch.json");
    const FRAMES: &[u8] = include_bytes!("../../../../plimsoll-api/src/protobuf/testdata/watch.pb");
    let mut events = [0, 0];
    for (mut stream, count) in [LINES, FRAMES].into_iter().zip(&mut events) {
        let mut event = Vec::new();
        loop {
            match frames::next(&mut stream, &mut event).await.unwrap() {
                Next::End => break,
                Next::Line => drop(Event::from_line(&event).unwrap()),
                Next::Frame => drop(Event::from_frame(&event).unwrap()),
            }
            *count += 1;
        }
    }
    assert!(events[0] >= 3 && events[0] == events[1], "{events:?}");
    let mut cut = &FRAMES[..FRAMES.len() - 1];
    let mut event = Vec::new();
    let ended = loop {
        match frames::next(&mut cut, &mut event).await {
            Ok(Next::Frame) => {}
            other => break other.map(drop),
        }
    };
    assert!(matches!(ended, Err(Error::Transport(_))), "{ended:?}");
    let ended = frames::next(&mut &[2, 255, 255, 255][..], &mut event).await.map(drop);
    assert!(matches!(ended, Err(Error::Malformed(_) | Error::Transport(_))), "{ended:?}");
}

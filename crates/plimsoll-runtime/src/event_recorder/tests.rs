use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use futures::StreamExt;
use futures::future::BoxFuture;
use futures::stream::BoxStream;
use http::{Request, StatusCode};

use super::*;
use crate::api::Direct;

/// A server that takes its time, and notes how many requests it has at once.
#[derive(Default)]
struct Slow {
    now: AtomicUsize,
    most: AtomicUsize,
    done: AtomicUsize,
    times: Mutex<Vec<String>>,
    /// What it answers first, instead of taking what it is sent.
    refusals: Mutex<VecDeque<StatusCode>>,
    /// The series that it was sent last.
    series: Mutex<serde_json::Value>,
}

struct Shared(Arc<Slow>);

impl Direct for Shared {
    fn call(&self, request: Request<Vec<u8>>) -> BoxFuture<'static, (StatusCode, BoxStream<'static, Bytes>)> {
        let server = Arc::clone(&self.0);
        let event: serde_json::Value = serde_json::from_slice(request.body()).unwrap();
        server.times.lock().unwrap().extend(event["eventTime"].as_str().map(str::to_owned));
        Box::pin(async move {
            let now = server.now.fetch_add(1, Ordering::SeqCst) + 1;
            server.most.fetch_max(now, Ordering::SeqCst);
            tokio::time::sleep(Duration::from_millis(5)).await;
            server.now.fetch_sub(1, Ordering::SeqCst);
            if let Some(refusal) = server.refusals.lock().unwrap().pop_front() {
                return (refusal, futures::stream::empty().boxed());
            }
            *server.series.lock().unwrap() = event["series"].clone();
            server.done.fetch_add(1, Ordering::SeqCst);
            (StatusCode::CREATED, futures::stream::empty().boxed())
        })
    }
}

/// So many decisions that the server has no room for events.
fn many(throttle: &Throttle) -> Vec<crate::throttle::Decision> {
    (0..16).map(|_| throttle.begin_decision()).collect()
}

fn note(n: usize) -> EventRecord {
    EventRecord {
        regarding: ObjectReference {
            kind: "Pod".into(),
            name: format!("p{n}"),
            ..ObjectReference::default()
        },
        warning: false,
        reason: "Scheduled".into(),
        action: String::new(),
        message: String::new(),
        reporting_controller: "x".into(),
        reporting_instance: String::new(),
    }
}

#[tokio::test(start_paused = true)]
async fn a_series_is_written_at_its_first_repeat_and_its_end() {
    let server = Arc::new(Slow::default());
    let (recorder, writing) =
        Recorder::new(Api::direct(Arc::new(Shared(Arc::clone(&server))), "test"), Throttle::default());
    let writing = tokio::spawn(writing.run());
    let mut writes = Vec::new();
    for times in [1, 1, 98, 0] {
        (0..times).for_each(|_| recorder.record(note(0)));
        tokio::time::sleep(if times == 0 { SERIES_WINDOW + LOOK } else { LOOK }).await;
        writes.push(server.done.swap(0, Ordering::SeqCst));
    }
    assert_eq!(writes, [1, 1, 0, 1]);
    recorder.record(note(0));
    tokio::time::sleep(LOOK).await;
    assert_eq!(server.done.load(Ordering::SeqCst), 1, "an event of its own");
    drop(recorder);
    writing.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn an_event_outlives_a_server_that_is_away_and_a_series_its_first_event() {
    let server = Arc::new(Slow::default());
    let (recorder, writing) =
        Recorder::new(Api::direct(Arc::new(Shared(Arc::clone(&server))), "test"), Throttle::default());
    let writing = tokio::spawn(writing.run());
    let refuse = |codes: &[u16]| {
        server.refusals.lock().unwrap().extend(codes.iter().map(|c| StatusCode::from_u16(*c).unwrap()));
    };
    refuse(&[503, 503]);
    recorder.record(note(0));
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert_eq!(server.done.swap(0, Ordering::SeqCst), 1, "written at last");
    refuse(&[403]);
    recorder.record(note(1));
    tokio::time::sleep(Duration::from_secs(30)).await;
    assert_eq!(server.done.swap(0, Ordering::SeqCst), 0, "what is forbidden stays so");
    refuse(&[404]);
    recorder.record(note(1));
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert_eq!(server.done.swap(0, Ordering::SeqCst), 1, "written with the second");
    assert_eq!(server.series.lock().unwrap()["count"], 2);
    drop(recorder);
    writing.await.unwrap();
}

/// Events while decisions are being written, and the events that are left when those end.
#[tokio::test(start_paused = true)]
async fn events_wait_for_decisions() {
    let server = Arc::new(Slow::default());
    let throttle = Throttle::default();
    let (recorder, writer) =
        Recorder::new(Api::direct(Arc::new(Shared(Arc::clone(&server))), "test"), throttle.clone());
    let ended = |about: &ObjectReference| about.name.ends_with('7');
    let writing = tokio::spawn(writer.until(Arc::new(ended)).run());
    let done = || server.done.swap(0, Ordering::SeqCst);
    (0..40).for_each(|n| recorder.record(note(n)));
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(done(), 40, "none is lost, also about what has ended");
    assert!(server.most.swap(0, Ordering::SeqCst) > 1, "many at a time");

    let deciding = many(&throttle);
    (0..3000).for_each(|n| recorder.record(note(1000 + n)));
    tokio::time::sleep(Duration::from_secs(10)).await;
    let few = done();
    assert!((45..=55).contains(&few), "five a second: {few}");
    assert_eq!(server.most.swap(0, Ordering::SeqCst), 1, "one at a time");
    // Newer ones about half of the objects.
    let again = |n| EventRecord { message: "again".into(), ..note(n) };
    (0..1500).for_each(|n| recorder.record(again(2500 + n)));
    drop(deciding);
    tokio::time::sleep(Duration::from_secs(20)).await;
    let rest = done();
    // One about each object, none about those that have ended; all of the last thousand.
    let wanted = (1500 - few) * 9 / 10 + 500 * 9 / 10 + FEW;
    assert!(rest.abs_diff(wanted) <= 60, "{rest} of {wanted}");

    let deciding = many(&throttle);
    (0..100).for_each(|n| recorder.record(note(5000 + n)));
    (0..100).for_each(|n| recorder.record(again(5000 + n)));
    tokio::time::sleep(Duration::from_secs(2)).await;
    drop(deciding);
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert_eq!(done(), 200, "none of a few is given up");

    let deciding = many(&throttle);
    (0..1000).for_each(|n| recorder.record(note(6000 + n)));
    tokio::time::sleep(PATIENCE + Duration::from_millis(150)).await;
    drop(deciding);
    done();
    drop(recorder);
    writing.await.unwrap();
    assert_eq!(done(), 0, "what waited too long is dropped");
}

/// The server is busy with something else: few decisions don't mean that it has room.
#[tokio::test(start_paused = true)]
async fn events_spare_a_server_that_answers_late() {
    let throttle = Throttle::default();
    for millis in [3; 50].into_iter().chain([300; 40]) {
        tokio::time::advance(Duration::from_millis(400)).await;
        throttle.begin_decision().done(Duration::from_millis(millis), false);
    }
    let _one = throttle.begin_decision();
    let began = Instant::now();
    for _ in 0..5 {
        let permit = throttle.acquire_for_event().await;
        tokio::time::sleep(Duration::from_millis(50)).await;
        permit.done(false);
    }
    assert!(began.elapsed() > Duration::from_millis(1000), "{:?}", began.elapsed());
}

/// As many pods as wait in a large cluster, whose events come again and again.
#[tokio::test(start_paused = true)]
async fn series_that_go_on_are_remembered_when_there_are_too_many() {
    let mut backlog = Backlog::default();
    let remember = |backlog: &mut Backlog, n: usize| {
        let last = Instant::now();
        let series = Series { name: n.to_string(), count: 1, last, written: (1, last) };
        backlog.series.insert(note(n), series);
    };
    for part in 0..4 {
        (0..SERIES_MAX / 4).for_each(|n| remember(&mut backlog, part * (SERIES_MAX / 4) + n));
        tokio::time::advance(Duration::from_secs(1)).await;
    }
    backlog.forget();
    assert_eq!(backlog.series.len(), SERIES_MAX / 4, "the newest");
    assert!(backlog.series.contains_key(&note(SERIES_MAX - 1)) && !backlog.series.contains_key(&note(0)));
    backlog.forget();
    assert_eq!(backlog.series.len(), SERIES_MAX / 4, "there is room");
    tokio::time::advance(SERIES_WINDOW).await;
    backlog.forget();
    assert!(backlog.series.is_empty());
}

#[tokio::test(start_paused = true)]
async fn an_event_says_when_it_happened() {
    let server = Arc::new(Slow::default());
    let throttle = Throttle::default();
    let (recorder, writer) =
        Recorder::new(Api::direct(Arc::new(Shared(Arc::clone(&server))), "test"), throttle.clone());
    let writing = tokio::spawn(writer.run());
    let deciding = many(&throttle);
    (0..3).for_each(|n| recorder.record(note(n)));
    let recorded = clock::micro_text(clock::now());
    // Tokio's clock stands still, the wall clock does not.
    std::thread::sleep(Duration::from_millis(20));
    tokio::time::sleep(Duration::from_secs(1)).await;
    drop((deciding, recorder));
    writing.await.unwrap();
    let times = server.times.lock().unwrap().clone();
    assert_eq!(times.len(), 3);
    assert!(times.iter().all(|t| *t <= recorded), "{times:?} after {recorded}");
}

#[test]
fn events_about_long_names_have_valid_names() {
    assert_eq!(event_name("w", 255), "w.00000000000000ff");
    let long = format!("{}.{}", "a".repeat(235), "b".repeat(17));
    assert_eq!(event_name(&long, 1), format!("{}.0000000000000001", "a".repeat(235)));
    assert_eq!(event_name(&"a".repeat(253), 1).len(), 253);
}

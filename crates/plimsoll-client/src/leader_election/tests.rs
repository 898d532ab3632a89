use std::sync::atomic::AtomicI64;

use tokio::time::Instant;

use super::claim::nanoseconds;
use super::*;

const S: i64 = 1_000_000_000;

fn lease(holder: &str, version: &str) -> Value {
    json!({"metadata": {"resourceVersion": version}, "spec": {"holderIdentity": holder,
           "leaseDurationSeconds": 15, "leaseTransitions": 3}})
}

#[test]
fn times_must_leave_room() {
    let seconds = |lease, renew, retry| Timing {
        lease: Duration::from_secs(lease),
        renew_deadline: Duration::from_secs(renew),
        retry: Duration::from_secs(retry),
    };
    assert_eq!(Timing::default().problem(), None);
    let lease = "leaseDuration must be greater than renewDeadline";
    let retry = "renewDeadline must be greater than retryPeriod*JitterFactor";
    for (timing, want) in
        [(seconds(10, 10, 2), Some(lease)), (seconds(15, 6, 5), Some(retry)), (seconds(15, 7, 5), None)]
    {
        assert_eq!(timing.problem(), want, "{timing:?}");
    }
}

#[test]
fn who_may_take_the_lease() {
    let mut seen = Observed::default();
    let mut go = |read: Option<&Value>, now: i64| {
        // The wall clock is of no account.
        decide(("ns", "n"), "me", read, &mut seen, (now, -now), Timing::default())
    };
    assert!(matches!(go(None, 0), Step::Create(l) if l["spec"]["holderIdentity"] == "me"));
    assert_eq!(go(Some(&lease("you", "1")), 100 * S), Step::Wait);
    assert_eq!(go(Some(&lease("you", "1")), 114 * S), Step::Wait);
    assert_eq!(go(Some(&lease("you", "2")), 116 * S), Step::Wait, "renewed: counted anew");
    let Step::Replace(taken) = go(Some(&lease("you", "2")), 131 * S) else { panic!("expired") };
    assert_eq!(
        (&taken["spec"]["holderIdentity"], &taken["spec"]["leaseTransitions"]),
        (&json!("me"), &json!(4))
    );
    assert!(matches!(go(Some(&lease("", "3")), 132 * S), Step::Replace(_)), "released");
    let Step::Replace(mine) = go(Some(&lease("me", "4")), 133 * S) else { panic!("mine") };
    assert_eq!(mine["spec"]["leaseTransitions"], 3);
}

/// A server that has each response at once.
trait Answers: Send + Sync + 'static {
    /// Status code and body of the response; 0: it never comes.
    fn answer(&self, request: &http::Request<Vec<u8>>) -> (u16, String);
}

impl<T: Answers> crate::rest::Direct for T {
    fn call(
        &self,
        request: http::Request<Vec<u8>>,
    ) -> futures::future::BoxFuture<
        'static,
        (http::StatusCode, futures::stream::BoxStream<'static, bytes::Bytes>),
    > {
        use futures::StreamExt;
        let (code, body) = self.answer(&request);
        let body = futures::stream::once(async { bytes::Bytes::from(body) }).boxed();
        if code == 0 {
            return Box::pin(futures::future::pending());
        }
        Box::pin(async move { (http::StatusCode::from_u16(code).unwrap(), body) })
    }
}

/// A server of one Lease.
#[derive(Default)]
struct Server(std::sync::Mutex<Option<Value>>);

impl Answers for Server {
    fn answer(&self, request: &http::Request<Vec<u8>>) -> (u16, String) {
        let mut lease = self.0.lock().unwrap();
        let version = |l: &Value| json::version(l).parse::<u32>().unwrap_or(0);
        let code = match (request.method().as_str(), lease.as_ref()) {
            ("GET", None) => 404,
            ("GET", Some(_)) => 200,
            (_, old) => {
                let mut new: Value = serde_json::from_slice(request.body()).unwrap();
                let known = old.map_or(0, version);
                if version(&new) == known {
                    json::set(&mut new, &["metadata", "resourceVersion"], json!((known + 1).to_string()));
                    *lease = Some(new);
                    200
                } else {
                    409
                }
            }
        };
        (code, lease.clone().unwrap_or_default().to_string())
    }
}

struct Candidate {
    claim: Claim,
    stop: CancellationToken,
    work: tokio::task::JoinHandle<()>,
}

/// Takes part with a wall clock that is `ahead` of the monotonic one.
fn candidate(server: &Arc<Server>, me: &str, ahead: &Arc<AtomicI64>) -> Candidate {
    let api = Api::direct(Arc::<Server>::clone(server), "test");
    let (zero, ahead, stop) = (Instant::now(), Arc::clone(ahead), CancellationToken::new());
    let wall: Wall = Arc::new(move || nanoseconds(zero.elapsed()) + ahead.load(Ordering::SeqCst));
    let name = ("ns".to_owned(), "n".to_owned());
    let (claim, work) = campaign(api, name, me.into(), Timing::default(), stop.clone(), wall);
    Candidate { claim, stop, work: tokio::spawn(work) }
}

#[tokio::test(start_paused = true)]
async fn steps_of_the_wall_clock_neither_steal_nor_lose_the_lease() {
    let (server, ahead) = (Arc::new(Server::default()), Arc::new(AtomicI64::new(3600 * S)));
    let first = candidate(&server, "first", &ahead);
    assert!(first.claim.wait().await);
    let second = candidate(&server, "second", &ahead);
    for step in [3600 * S, -7200 * S, 0] {
        ahead.fetch_add(step, Ordering::SeqCst);
        tokio::time::sleep(Duration::from_secs(30)).await;
        assert!(first.claim.held() && !second.claim.held(), "after a step of {} s", step / S);
    }
    first.stop.cancel();
    first.work.await.unwrap();
    assert!(!first.claim.held());
    assert!(second.claim.wait().await);
}

#[tokio::test(start_paused = true)]
async fn a_lease_expires_when_writes_were_cut_off() {
    let (server, ahead) = (Arc::new(Server::default()), Arc::new(AtomicI64::new(0)));
    let first = candidate(&server, "first", &ahead);
    assert!(first.claim.wait().await);
    let second = candidate(&server, "second", &ahead);
    tokio::time::sleep(Duration::from_secs(5)).await;
    first.claim.let_expire();
    first.stop.cancel();
    first.work.await.unwrap();
    assert!(!first.claim.held());
    // The last renewal was at most a retry period ago.
    tokio::time::sleep(Duration::from_secs(12)).await;
    assert!(!second.claim.held(), "the server may still carry out writes of the first");
    tokio::time::sleep(Duration::from_secs(6)).await;
    assert!(second.claim.held());
}

#[tokio::test(start_paused = true)]
async fn a_holder_that_was_suspended_reads_the_lease_before_it_writes() {
    let (server, ahead) = (Arc::new(Server::default()), Arc::new(AtomicI64::new(0)));
    let leader = candidate(&server, "me", &ahead);
    assert!(leader.claim.wait().await);
    // The machine sleeps: only the wall clock goes on.
    ahead.fetch_add(60 * S, Ordering::SeqCst);
    assert!(!leader.claim.held() && leader.claim.unexpired(), "doubted, not lost");
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert!(leader.claim.held(), "nobody else has taken it");
    // Another one has led while it slept, and is gone again.
    json::set(server.0.lock().unwrap().as_mut().unwrap(), &["spec", "holderIdentity"], json!(""));
    ahead.fetch_add(60 * S, Ordering::SeqCst);
    assert!(!leader.claim.held());
    leader.claim.lost().await;
    leader.work.await.unwrap();
    assert!(!leader.claim.wait().await);
    assert!(!leader.claim.held(), "not taken again by the same process");
}

#[tokio::test(start_paused = true)]
async fn a_claim_ends_at_the_renew_deadline_of_the_monotonic_clock() {
    let claim = Claim::new(Timing::default(), i64::MIN, Arc::new(|| 0));
    assert!(!claim.held());
    claim.renewed(claim.now(), Timing::default());
    tokio::time::advance(Duration::from_secs(9)).await;
    assert!(claim.held(), "the wall clock stands still, as if it were set back all the time");
    tokio::time::advance(Duration::from_secs(1)).await;
    assert!(!claim.held() && !claim.unexpired());
}

/// A server that throttles all reads of a Lease but the first, and sends each watch a newer version of it.
#[derive(Default)]
struct Overloaded {
    reads: std::sync::atomic::AtomicUsize,
}

impl Answers for Overloaded {
    fn answer(&self, request: &http::Request<Vec<u8>>) -> (u16, String) {
        if request.uri().query().is_some_and(|query| query.contains("watch=true")) {
            let event = json!({"type": "MODIFIED", "object": lease("other", "2")});
            return (200, format!("{event}\n"));
        }
        match self.reads.fetch_add(1, Ordering::SeqCst) {
            0 => (200, lease("other", "1").to_string()),
            _ => (429, String::new()),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_candidate_retries_a_failed_read_of_the_lease_after_the_retry_period() {
    let (server, stop) = (Arc::new(Overloaded::default()), CancellationToken::new());
    let api = Api::direct(Arc::<Overloaded>::clone(&server), "test");
    let name = ("ns".to_owned(), "n".to_owned());
    let wall: Wall = Arc::new(|| 0);
    let (_claim, work) = campaign(api, name, "me".into(), Timing::default(), stop.clone(), wall);
    let work = tokio::spawn(work);
    tokio::time::sleep(Duration::from_secs(20)).await;
    let reads = server.reads.load(Ordering::SeqCst);
    stop.cancel();
    work.await.unwrap();
    assert!((8..=15).contains(&reads), "{reads} in 20 s, with a retry period of 2 s");
}

/// A server that never answers the tenth request, as over a connection whose other end has vanished.
#[derive(Default)]
struct Hanging {
    server: Server,
    requests: std::sync::atomic::AtomicUsize,
}

impl Answers for Hanging {
    fn answer(&self, request: &http::Request<Vec<u8>>) -> (u16, String) {
        match self.requests.fetch_add(1, Ordering::SeqCst) {
            9 => (0, String::new()),
            _ => self.server.answer(request),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn one_request_without_an_answer_costs_no_lease() {
    let (server, stop) = (Arc::new(Hanging::default()), CancellationToken::new());
    let api = Api::direct(Arc::<Hanging>::clone(&server), "test");
    let name = ("ns".to_owned(), "n".to_owned());
    let (claim, work) = campaign(api, name, "me".into(), Timing::default(), stop.clone(), Arc::new(|| 0));
    let work = tokio::spawn(work);
    assert!(claim.wait().await);
    for _ in 0..60 {
        tokio::time::sleep(Duration::from_millis(500)).await;
        assert!(claim.unexpired(), "after {} requests", server.requests.load(Ordering::SeqCst));
    }
    assert!(server.requests.load(Ordering::SeqCst) > 15);
    stop.cancel();
    work.await.unwrap();
}

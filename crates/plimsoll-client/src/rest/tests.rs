use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, Mutex};

use futures::StreamExt as _;
use http::HeaderMap;
use plimsoll_api::request::Request;
use plimsoll_api::resource::{JOBS, PODS};

use super::*;

#[test]
fn query_values_are_percent_encoded() {
    assert_eq!(encode("a=b, c"), "a%3Db%2C%20c");
}

#[test]
fn refusals_are_read_in_each_form() {
    let refused = |body: &[u8]| {
        let Error::Status { code, reason, message, retry_after } = refused(StatusCode::FORBIDDEN, 3, body)
        else {
            panic!("no status")
        };
        (code, reason, message, retry_after)
    };
    let json = br#"{"code":403,"reason":"Forbidden","message":"no","details":{"retryAfterSeconds":7}}"#;
    assert_eq!(refused(json), (403, "Forbidden".into(), "no".into(), 7));
    assert_eq!(refused(b"blocked"), (403, String::new(), "blocked".into(), 3));
    // Message and code in fields 3 and 6 of a Status.
    assert_eq!(refused(b"k8s\0\x12\x07\x1a\x02no\x30\x93\x03"), (403, String::new(), "no".into(), 3));
    let head = |value: &str| {
        let mut head = HeaderMap::new();
        head.insert(header::RETRY_AFTER, value.parse().unwrap());
        retry_after(&head)
    };
    assert_eq!((head("1"), head("soon"), retry_after(&HeaderMap::new())), (1, 0, 0));
}

/// Keeps the bodies that it gets.
#[derive(Default)]
struct Bodies(Mutex<Vec<serde_json::Value>>);

impl Direct for Bodies {
    fn call(
        &self,
        request: http::Request<Vec<u8>>,
    ) -> futures::future::BoxFuture<'static, (StatusCode, futures::stream::BoxStream<'static, Bytes>)> {
        self.0.lock().unwrap().push(serde_json::from_slice(request.body()).unwrap());
        let body = futures::stream::once(async { Bytes::from_static(b"{}") }).boxed();
        Box::pin(async move { (StatusCode::OK, body) })
    }
}

/// The API server orphans the pods of a Job by default.
#[tokio::test]
async fn what_is_deleted_takes_its_dependents_along() {
    let server = Arc::new(Bodies::default());
    let api = Api::direct(Arc::<Bodies>::clone(&server), "test");
    for (resource, grace_seconds) in [(JOBS, None), (PODS, Some(0))] {
        let (namespace, name, uid) = ("ns".into(), "n".into(), "u".into());
        api.send(&Request::Delete { resource, namespace, name, uid, grace_seconds }).await.unwrap();
    }
    let bodies = server.0.lock().unwrap();
    assert_eq!(bodies[0]["propagationPolicy"], "Background");
    assert_eq!(bodies[0]["preconditions"]["uid"], "u");
    assert_eq!(bodies[1]["gracePeriodSeconds"], 0);
}

/// Answers nothing.
struct Silent;

impl Direct for Silent {
    fn call(
        &self,
        _request: http::Request<Vec<u8>>,
    ) -> futures::future::BoxFuture<'static, (StatusCode, futures::stream::BoxStream<'static, Bytes>)> {
        Box::pin(std::future::pending())
    }
}

#[tokio::test(start_paused = true)]
async fn a_write_that_is_dropped_before_its_answer_is_reported() {
    let cuts = Arc::new(AtomicUsize::new(0));
    let counted = |server: Arc<dyn Direct>| {
        let cuts = Arc::clone(&cuts);
        Api::direct(server, "test").reporting_cuts(move || {
            cuts.fetch_add(1, Ordering::SeqCst);
        })
    };
    let (silent, answering) = (counted(Arc::new(Silent)), counted(Arc::new(Bodies::default())));
    let moment = std::time::Duration::from_secs(1);
    answering.delete(PODS, "ns", "n", "u", None).await.unwrap();
    assert!(tokio::time::timeout(moment, silent.get_path("/")).await.is_err());
    assert_eq!(cuts.load(Ordering::SeqCst), 0);
    assert!(tokio::time::timeout(moment, silent.delete(PODS, "ns", "n", "u", None)).await.is_err());
    assert_eq!(cuts.load(Ordering::SeqCst), 1);
}

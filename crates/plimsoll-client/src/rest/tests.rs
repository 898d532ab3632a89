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

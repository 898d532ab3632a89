use std::sync::{Arc, Mutex};

use bytes::Bytes;
use futures::StreamExt;
use futures::stream::{self, BoxStream};
use http::{Request, StatusCode};
use serde_json::json;

use super::*;
use crate::health::Health;
use crate::rest::{Api, Direct};

const fn things(api_version: &'static str) -> Resource {
    Resource { api_version, plural: "things", kind: "Thing" }
}

const VERSIONS: &[Resource] = &[things("example.com/v1"), things("example.com/v2")];

/// A server of one object, in the versions that it serves.
#[derive(Default)]
struct Server {
    served: Mutex<Vec<&'static str>>,
}

impl Direct for Server {
    fn call(&self, request: Request<Vec<u8>>) -> BoxFuture<'static, (StatusCode, BoxStream<'static, Bytes>)> {
        let (path, query) = (request.uri().path(), request.uri().query().unwrap_or_default());
        let served = self.served.lock().unwrap().clone();
        let is_served = served.iter().any(|v| path.starts_with(&format!("/apis/example.com/{v}")));
        let body = match path.split('/').count() {
            2 => {
                let versions = served.iter().map(|v| json!({"groupVersion": format!("example.com/{v}")}));
                let versions: Vec<_> = versions.collect();
                json!({"kind": "APIGroupList", "groups": [{"versions": versions}]})
            }
            _ if !is_served => {
                return Box::pin(async { (StatusCode::NOT_FOUND, stream::empty().boxed()) });
            }
            4 => json!({"kind": "APIResourceList", "resources": [{"name": "things"}]}),
            _ if query.contains("watch=true") => {
                return Box::pin(async { (StatusCode::OK, stream::pending().boxed()) });
            }
            _ => json!({
                "metadata": {"resourceVersion": "5"},
                "items": [{"metadata": {"namespace": "ns", "name": "a", "uid": "1", "resourceVersion": "5"}}],
            }),
        };
        let body = Bytes::from(body.to_string());
        let body = stream::once(async { body }).boxed();
        Box::pin(async { (StatusCode::OK, body) })
    }
}

#[derive(Clone, Default)]
struct Log {
    lines: Arc<Mutex<Vec<String>>>,
    served: Option<Resource>,
}

impl Log {
    fn add(&self, line: String) {
        self.lines.lock().unwrap().push(line);
    }

    fn take(&self) -> Vec<String> {
        std::mem::take(&mut self.lines.lock().unwrap())
    }
}

impl Sink for Log {
    fn served(&mut self, served: Option<Resource>) {
        if std::mem::replace(&mut self.served, served) != served {
            self.add(served.map_or("nowhere".to_owned(), |resource| resource.api_version.to_owned()));
        }
    }

    fn delta(&mut self, _: Resource, delta: Delta<'_>) {
        match delta {
            Delta::Upsert { meta, .. } => self.add(format!("+{}", meta.name)),
            Delta::Delete { name, .. } => self.add(format!("-{name}")),
            Delta::Synced { .. } | Delta::Absent => {}
        }
    }
}

/// After at least so many seconds a watch is opened again, and what is gone has been for long enough.
async fn pass() {
    tokio::time::sleep(Duration::from_secs(180)).await;
}

#[tokio::test(start_paused = true)]
async fn a_resource_that_is_served_in_another_version_is_not_gone() {
    let (server, health, stop) = (Arc::new(Server::default()), Health::default(), CancellationToken::new());
    let serve = |versions: &[&'static str]| *server.served.lock().unwrap() = versions.to_vec();
    let api = Api::direct(Arc::<Server>::clone(&server), "test");
    let groups = Groups::new(api.clone());
    let tracker = health.track(VERSIONS[0]);
    let (reflector, log) = (Reflector { tracker, ..Reflector::new(api, VERSIONS[0]) }, Log::default());
    serve(&["v1", "v2"]);
    tokio::spawn(run(reflector, VERSIONS, groups, stop.clone(), log.clone()));
    pass().await;
    assert_eq!(log.take(), ["example.com/v1", "+a"]);
    serve(&["v2"]);
    pass().await;
    assert_eq!(log.take(), ["example.com/v2", "+a"]);
    assert!(!health.paused() && health.problems().is_empty(), "{:?}", health.problems());
    serve(&[]);
    pass().await;
    assert_eq!(log.take(), ["-a", "nowhere"]);
    stop.cancel();
}

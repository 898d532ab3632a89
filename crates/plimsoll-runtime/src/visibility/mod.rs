//! Kueue's visibility API (`visibility.kueue.x-k8s.io`, upstream's `pkg/visibility`): which workloads wait in a queue, and
//! where they are in it. The answers come from the engine's own queues, so each replica answers, also one that does not
//! lead.

pub mod delegated;
mod documents;
mod forecast;
mod openapi;
pub mod register;
pub mod serve;

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Uri};
use plimsoll_apimachinery::ApiError;
use plimsoll_queueing::{Forecast, Page, PendingWorkload, QueueName};
use serde_json::Value;
use tokio::sync::oneshot;

use crate::cache::{Cache, Kind};
use crate::driver::{Inbox, OfQueue};
pub use documents::{FORECASTS, GROUP, VERSIONS};

/// Workloads in an answer without `limit`, and at most (upstream's `pkg/constants/constants.go`).
const LIMITS: (i64, i64) = (1000, 100_000);
/// Longest wait for the engine, which answers between two steps.
const PATIENCE: Duration = Duration::from_secs(10);

const JSON: &str = "application/json";
const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

/// The answer to a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// HTTP status.
    pub status: u16,
    /// Media type of the body.
    pub content_type: &'static str,
    /// Body.
    pub body: Bytes,
}

impl Answer {
    fn json(status: u16, body: &Value) -> Self {
        Self { status, content_type: JSON, body: format!("{body}\n").into() }
    }

    /// An error as its `Status`.
    pub fn error(error: &ApiError) -> Self {
        Self::json(error.code, &error.to_status())
    }

    /// As Go's router says it.
    pub fn page_not_found() -> Self {
        Self { status: 404, content_type: "text/plain; charset=utf-8", body: "404 page not found\n".into() }
    }
}

/// The API over an engine in this process; cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Visibility {
    engine: Arc<OnceLock<(Inbox, Cache)>>,
}

/// What a path asks for.
#[derive(Debug, PartialEq, Eq)]
enum Asked<'a> {
    Groups,
    Group,
    Version(&'a str),
    Pending(&'a str, QueueName),
    /// When a workload could start: version, namespace and LocalQueue.
    Forecast(&'a str, &'a str, &'a str),
    NotServed,
}

impl Visibility {
    /// The API over an engine that runs.
    pub fn of(inbox: Inbox, cache: Cache) -> Self {
        let visibility = Self::default();
        visibility.set_engine(inbox, cache);
        visibility
    }

    /// The engine runs: from now on its queues are known. The first one counts.
    pub fn set_engine(&self, inbox: Inbox, cache: Cache) {
        // A second engine in one process is none of its replicas.
        let _ = self.engine.set((inbox, cache));
    }

    /// The APIResourceList of a version.
    pub fn resources(version: &str) -> Value {
        documents::resources(version)
    }

    /// Answers a request of a client that may make it. `accept`: the header.
    pub async fn answer(&self, method: &Method, uri: &Uri, accept: &str, body: &[u8]) -> Answer {
        let segments: Vec<String> = uri.path().trim_matches('/').split('/').map(decoded).collect();
        let segments: Vec<&str> = segments.iter().map(String::as_str).collect();
        if let ["openapi", document @ ..] = &segments[..] {
            return match openapi::answer(document, accept) {
                Some(_) if !matches!(*method, Method::GET | Method::HEAD) => {
                    Answer::error(&method_not_allowed())
                }
                answer => answer.unwrap_or_else(Answer::page_not_found),
            };
        }
        let Some(asked) = asked(&segments) else { return Answer::page_not_found() };
        if asked == Asked::NotServed {
            return Answer::error(&not_served());
        }
        let allowed = match asked {
            Asked::Forecast(..) => *method == Method::POST,
            _ => matches!(*method, Method::GET | Method::HEAD),
        };
        if !allowed {
            return Answer::error(&method_not_allowed());
        }
        match asked {
            Asked::Groups if accept.contains("as=APIGroupDiscoveryList") && accept.contains("v=v2") => {
                Answer { content_type: AGGREGATED, ..Answer::json(200, &documents::aggregated()) }
            }
            Asked::Groups => Answer::json(200, &documents::groups()),
            Asked::Group => Answer::json(200, &documents::group()),
            Asked::Version(version) => Answer::json(200, &documents::resources(version)),
            Asked::Pending(version, queue) => match self.pending(queue, uri.query().unwrap_or("")).await {
                Ok(items) => Answer::json(200, &documents::summary(version, &items)),
                Err(e) => Answer::error(&e),
            },
            Asked::Forecast(version, namespace, queue) => match self.forecast(namespace, queue, body).await {
                Ok(forecast) => Answer::json(201, &forecast::document(version, &forecast)),
                Err(e) => Answer::error(&e),
            },
            Asked::NotServed => Answer::error(&not_served()),
        }
    }

    async fn pending(&self, queue: QueueName, query: &str) -> Result<Vec<Value>, ApiError> {
        let page = page(query)?;
        let (inbox, cache) = self.engine.get().ok_or_else(unknown)?;
        let workloads = answered(inbox.pending(queue.clone(), page), &queue).await?;
        Ok(workloads.iter().map(|w| documents::item(w, &owners(cache, w))).collect())
    }

    async fn forecast(&self, namespace: &str, queue: &str, body: &[u8]) -> Result<Forecast, ApiError> {
        let workload = forecast::workload(namespace, queue, body)?;
        let (inbox, _) = self.engine.get().ok_or_else(unknown)?;
        let queue = QueueName::Local(namespace.to_owned(), queue.to_owned());
        answered(inbox.forecast(workload), &queue).await
    }
}

fn unavailable(message: &str) -> ApiError {
    ApiError::new(503, "ServiceUnavailable", message)
}

fn unknown() -> ApiError {
    unavailable("the queues are not known yet: not everything has been listed")
}

/// What the engine answers about a queue.
async fn answered<T>(answer: oneshot::Receiver<OfQueue<T>>, queue: &QueueName) -> Result<T, ApiError> {
    match tokio::time::timeout(PATIENCE, answer).await {
        Ok(Ok(OfQueue::Known(known))) => Ok(known),
        Ok(Ok(OfQueue::NotFound)) => {
            let (resource, name) = match queue {
                QueueName::Cluster(name) => ("clusterqueue", name),
                QueueName::Local(_, name) => ("localqueue", name),
            };
            Err(ApiError::not_found(GROUP, resource, name))
        }
        Ok(Ok(OfQueue::Unknown)) => Err(unknown()),
        Ok(Err(_)) => Err(unavailable("the engine has ended")),
        Err(_) => Err(unavailable("the engine did not answer in time")),
    }
}

/// Owners of a workload as last seen.
fn owners(cache: &Cache, workload: &PendingWorkload) -> Value {
    let object = cache.get(Kind::Workload, &workload.key.namespace, &workload.key.name);
    let object = object.filter(|o| o["metadata"]["uid"] == workload.uid.as_str());
    object.map_or(Value::Null, |o| o["metadata"]["ownerReferences"].clone())
}

/// What a path asks for; `None`: it is no path of this API.
fn asked<'a>(segments: &[&'a str]) -> Option<Asked<'a>> {
    let (apis, rest) = segments.split_first()?;
    if *apis != "apis" {
        return None;
    }
    let Some((&group, rest)) = rest.split_first() else { return Some(Asked::Groups) };
    if group != GROUP {
        return None;
    }
    let Some((&version, rest)) = rest.split_first() else { return Some(Asked::Group) };
    if !VERSIONS.contains(&version) {
        return None;
    }
    Some(match rest {
        [] => Asked::Version(version),
        ["clusterqueues", name, "pendingworkloads"] => {
            Asked::Pending(version, QueueName::Cluster((*name).to_owned()))
        }
        ["namespaces", namespace, "localqueues", name, documents::FORECASTS] => {
            Asked::Forecast(version, namespace, name)
        }
        ["namespaces", namespace, "localqueues", name, "pendingworkloads"] => {
            Asked::Pending(version, QueueName::Local((*namespace).to_owned(), (*name).to_owned()))
        }
        _ => Asked::NotServed,
    })
}

/// Offset and limit of a query (upstream's `SetDefaults_PendingWorkloadOptions` and `boundedLimitOffset`).
fn page(query: &str) -> Result<Page, ApiError> {
    let number = |name: &str| -> Result<i64, ApiError> {
        let pairs = query.split('&').filter_map(|pair| pair.split_once('=').or(Some((pair, ""))));
        let Some(text) = pairs.filter(|(n, _)| *n == name).map(|(_, v)| decoded(v)).next() else {
            return Ok(0);
        };
        text.parse::<i64>().map_err(|e| {
            use std::num::IntErrorKind::{NegOverflow, PosOverflow};
            let why = match e.kind() {
                PosOverflow | NegOverflow => "value out of range",
                _ => "invalid syntax",
            };
            ApiError::bad_request(format!("strconv.ParseInt: parsing {text:?}: {why}"))
        })
    };
    let (offset, limit) = (number("offset")?, number("limit")?);
    let limit = if limit == 0 { LIMITS.0 } else { limit.clamp(0, LIMITS.1) };
    let size = |n: i64| usize::try_from(n.max(0)).unwrap_or(usize::MAX);
    Ok(Page { offset: size(offset), limit: size(limit) })
}

/// Undoes percent escapes; what is none stays as it is.
fn decoded(text: &str) -> String {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&first, after)) = rest.split_first() {
        let digits = after.get(..2).and_then(|two| std::str::from_utf8(two).ok());
        match digits.and_then(|two| u8::from_str_radix(two, 16).ok()).filter(|_| first == b'%') {
            Some(byte) => {
                out.push(byte);
                rest = after.get(2..).unwrap_or_default();
            }
            None => {
                out.push(first);
                rest = after;
            }
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

fn not_served() -> ApiError {
    let mut e = ApiError::new(404, "NotFound", "the server could not find the requested resource");
    e.details = Some(Box::default());
    e
}

fn method_not_allowed() -> ApiError {
    let message = "the server does not allow this method on the requested resource";
    let mut e = ApiError::new(405, "MethodNotAllowed", message);
    e.details = Some(Box::default());
    e
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths() {
        let ask = |path: &'static str| asked(&path.split('/').collect::<Vec<_>>());
        assert_eq!(ask("apis"), Some(Asked::Groups));
        assert_eq!(ask("apis/visibility.kueue.x-k8s.io"), Some(Asked::Group));
        assert_eq!(ask("apis/visibility.kueue.x-k8s.io/v1beta1"), Some(Asked::Version("v1beta1")));
        assert_eq!(
            ask("apis/visibility.kueue.x-k8s.io/v1beta2/namespaces/n/localqueues/l/pendingworkloads"),
            Some(Asked::Pending("v1beta2", QueueName::Local("n".into(), "l".into())))
        );
        assert_eq!(ask("apis/visibility.kueue.x-k8s.io/v1beta2/clusterqueues"), Some(Asked::NotServed));
        for other in ["api/v1", "apis/visibility.kueue.x-k8s.io/v1", "apis/kueue.x-k8s.io/v1beta2"] {
            assert_eq!(ask(other), None, "{other}");
        }
    }

    #[test]
    fn pages_are_bounded() {
        let read = |query: &str| page(query).map(|p| (p.offset, p.limit)).map_err(|e| e.message);
        assert_eq!(read(""), Ok((0, 1000)));
        assert_eq!(read("limit=0&offset=5"), Ok((5, 1000)));
        assert_eq!(read("offset=-3&limit=-1"), Ok((0, 0)));
        assert_eq!(read("limit=100001"), Ok((0, 100_000)));
        assert_eq!(read("limit=x"), Err("strconv.ParseInt: parsing \"x\": invalid syntax".into()));
        let large = "9223372036854775808";
        assert_eq!(
            read(&format!("offset={large}")),
            Err(format!("strconv.ParseInt: parsing {large:?}: value out of range"))
        );
    }

    #[tokio::test]
    async fn without_an_engine_nothing_is_known() {
        let path = "/apis/visibility.kueue.x-k8s.io/v1beta2/clusterqueues/cq/pendingworkloads";
        let ask = async |method: Method, path: &'static str| {
            Visibility::default().answer(&method, &Uri::from_static(path), "", b"{}").await.status
        };
        assert_eq!(ask(Method::GET, path).await, 503);
        assert_eq!(ask(Method::POST, path).await, 405);
        assert_eq!(ask(Method::GET, "/apis/visibility.kueue.x-k8s.io/v1beta2/other").await, 404);
        assert_eq!(ask(Method::GET, "/apis/visibility.kueue.x-k8s.io/v1beta2").await, 200);
        let forecasts =
            "/apis/visibility.kueue.x-k8s.io/v1beta2/namespaces/n/localqueues/l/admissionforecasts";
        assert_eq!(ask(Method::GET, forecasts).await, 405);
        assert_eq!(ask(Method::POST, forecasts).await, 503);
    }

    #[test]
    fn escapes() {
        assert_eq!(decoded("a%2Fb%zz%"), "a/b%zz%");
    }
}

//! Log events of requests: slow requests, and requests that authentication or authorization refuses. Each request has an
//! id, its audit-id, which every event on the request's way carries as well. Below level `info` nothing is computed.

use std::time::{Duration, Instant};

use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, Uri, header};
use plimsoll_apimachinery::ApiError;
use tracing::{Level, Span, enabled, info, info_span, warn};

use super::PeerAddress;
use super::body::Body;
use super::info::RequestInfo;

/// Threshold of slow requests (apiserver's handlers: `trace.LogIfLong(500 * time.Millisecond)`).
const SLOW: Duration = Duration::from_millis(500);
const AUDIT_ID: HeaderName = HeaderName::from_static("audit-id");

/// A request under observation.
pub(super) struct Watched {
    began: Instant,
    method: Method,
    uri: Uri,
    agent: Option<HeaderValue>,
    peer: Option<std::net::IpAddr>,
    id: HeaderValue,
    /// Span of the request.
    pub(super) span: Span,
}

impl Watched {
    /// Begins to observe a request and sets its audit-id, if the level `info` is on.
    pub(super) fn begin<B>(request: &mut Request<B>) -> Option<Self> {
        if !enabled!(Level::INFO) {
            return None;
        }
        let given = request.headers().get(&AUDIT_ID).filter(|id| !id.is_empty() && id.len() <= 64).cloned();
        let id = match given {
            Some(id) => id,
            None => {
                let id = HeaderValue::from_str(&uuid::Uuid::new_v4().to_string()).ok()?;
                request.headers_mut().insert(AUDIT_ID, id.clone());
                id
            }
        };
        let (method, uri) = (request.method().clone(), request.uri().clone());
        let span =
            info_span!("request", "audit-ID" = text(Some(&id)), verb = method.as_str(), URI = uri.path(),);
        Some(Self {
            began: Instant::now(),
            method,
            uri,
            agent: request.headers().get(header::USER_AGENT).cloned(),
            peer: request.extensions().get::<PeerAddress>().map(|a| a.0),
            id,
            span,
        })
    }

    /// Logs the request if it was slow, and sets the audit-id on the response.
    pub(super) fn end(self, response: &mut Response<Body>) {
        response.headers_mut().insert(AUDIT_ID, self.id.clone());
        let took = self.began.elapsed();
        if took > SLOW {
            let peer = self.peer.map(|p| p.to_string()).unwrap_or_default();
            info!(
                verb = self.method.as_str(), URI = %self.uri, latency = ?took, userAgent = text(self.agent.as_ref()),
                "audit-ID" = text(Some(&self.id)), srcIP = peer, resp = response.status().as_u16(), "Slow request"
            );
        }
    }
}

fn text(value: Option<&HeaderValue>) -> &str {
    value.and_then(|v| v.to_str().ok()).unwrap_or_default()
}

/// Logs a request without valid credentials.
pub(super) fn unauthenticated(error: &ApiError, uri: &Uri, headers: &HeaderMap) {
    warn!(
        URI = uri.path(),
        userAgent = text(headers.get(header::USER_AGENT)),
        err = error.message,
        "Unable to authenticate the request"
    );
}

/// Logs a request that the authorizer forbids; the reason names the user.
pub(super) fn forbidden(error: &ApiError, info: &RequestInfo) {
    info!(verb = info.verb, URI = info.path, reason = error.message, "Forbidden");
}

//! HTTP: from a request to an answer.

mod aggregated;
pub mod body;
mod components;
pub mod credentials;
pub mod discovery;
mod endpoint;
mod generic;
pub mod info;
mod list;
pub mod listener;
mod meta;
pub mod negotiate;
pub mod options;
mod patch;
mod pieces;
mod present;
pub mod query;
mod replace;
pub mod reply;
mod request;
pub(crate) mod subresource;
pub mod tls;
mod trace;
mod watch;
pub mod yaml;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Method, Request, Response, header};
use http_body::Body as _;
use http_body_util::{BodyExt, LengthLimitError, Limited};
use plimsoll_apimachinery::ApiError;
use plimsoll_apimachinery::decode::depth;
use tokio::sync::OwnedSemaphorePermit;
use tracing::Instrument;

use crate::audit::Record;
use crate::auth::tokens::ISSUER;
use crate::auth::{self, Attributes, PeerCertificate, User};
use crate::flow::{self, Seat};
use crate::heavy;
use crate::server::Server;
pub use request::Req;

use body::Body;
use info::{RequestInfo, Shape};
use negotiate::{Accepted, Format};
use query::Query;
use reply::{Payload, Reply, add_warnings, error_response};

/// Largest request body, in bytes (apiserver's `MaxRequestBodyBytes`).
pub const MAX_BODY: usize = 3 * 1024 * 1024;
/// Time for a request's body (apiserver's `--request-timeout`).
const BODY_TIMEOUT: Duration = Duration::from_secs(60);

/// What a connection says of a body that it can't read.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;
/// A request's body, of whatever connection it comes from. One type, so that everything that answers requests is compiled
/// once, here, and not in each crate that calls the server.
pub type RequestBody = http_body_util::combinators::UnsyncBoxBody<Bytes, BodyError>;

/// A request's body that broke off.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
pub struct BodyError(pub BoxError);

/// Answers a request. `identity`: the user, for clients in this process; `None`: to be authenticated.
pub async fn handle(
    server: &Arc<Server>,
    request: Request<RequestBody>,
    identity: Option<&User>,
) -> Response<Body> {
    let mut request = request;
    let watched = trace::Watched::begin(&mut request);
    let span = watched.as_ref().map_or_else(tracing::Span::none, |w| w.span.clone());
    let mut response = serve(server, request, identity).instrument(span).await;
    if let Some(watched) = watched {
        watched.end(&mut response);
    }
    response
}

/// Everything up to the handler: authentication, authorization, flow control and the body.
async fn serve(
    server: &Arc<Server>,
    request: Request<RequestBody>,
    identity: Option<&User>,
) -> Response<Body> {
    let (parts, body) = request.into_parts();
    let query = Query::parse(parts.uri.query().unwrap_or(""));
    let info = RequestInfo::parse(&parts.method, parts.uri.path(), &query);
    let peer = parts.extensions.get::<PeerCertificate>();
    let config = server.config();
    let mut record = config.audit.as_ref().map(|audit| {
        let address = parts.extensions.get::<PeerAddress>().map(|a| a.0);
        let clock = config.clock.clone();
        Record::new(Arc::clone(audit), clock, &parts.headers, &parts.uri, &info, address)
    });
    let who = identify(server, &parts.headers, peer, identity);
    note_client(&parts, who.as_ref().ok());
    let who = match who {
        Ok(who) => who,
        Err(e) => {
            trace::unauthenticated(&e, &parts.uri, &parts.headers);
            if let Some(record) = record {
                record.unauthenticated(&info, &parts.headers).await;
            }
            return error_response(&e, &parts.headers, false);
        }
    };
    if let Some(record) = &mut record {
        record.begin(&who, &info).await;
    }
    let user = match permit(server, &parts.headers, who, &info, record.as_mut()) {
        Ok(user) => user,
        Err(e) => {
            trace::forbidden(&e, &info);
            return settle(error_response(&e, &parts.headers, false), record, Some(&e)).await;
        }
    };
    let seat = match take_seat(server, identity, &user, &info, &query).await {
        Ok(seat) => seat,
        Err(refused) => return settle(too_many_requests(&refused), record, None).await,
    };
    // Held until the answer is made.
    let (body, _room) = match read_body(server, &parts.method, body).await {
        Ok(body) => body,
        Err(e) => return settle(error_response(&e, &parts.headers, false), record, Some(&e)).await,
    };
    let body = readable_json(&parts.headers, body);
    let req = Req {
        server: Arc::clone(server),
        table: server.kinds(),
        info,
        method: parts.method,
        uri: parts.uri,
        query,
        headers: parts.headers,
        user,
        body,
        warnings: Vec::new(),
        annotations: crate::audit::Annotations::default(),
        accepted: Accepted::default(),
        recorded: record.as_ref().is_some_and(Record::wants_response),
        marks: seat.as_ref().map(|s| s.marks().clone()),
        seat,
    };
    if heavy::is_request(&req) { heavy::run(answer(req, record)).await } else { answer(req, record).await }
}

/// Answers a request that may be made and is there as a whole.
async fn answer(mut req: Req, mut record: Option<Record>) -> Response<Body> {
    if let Some(record) = record.as_mut().filter(|r| r.wants_request())
        && let Some(object) = readable(&req)
    {
        record.request(object);
    }
    let result = route(&mut req).await;
    if let Some(record) = record.as_mut() {
        record.annotate(&req.annotations);
    }
    if let (Some(record), Ok(reply)) = (record.as_mut().filter(|r| r.wants_response()), &result) {
        match &reply.payload {
            Payload::Object(object) => record.response(object.clone()),
            Payload::Json(bytes) => record.response(depth::from_stored(bytes).unwrap_or_default()),
            _ => {}
        }
    }
    let (mut response, error) = match result {
        Ok(reply) => (reply.into_response(req.accepted, req.pretty()), None),
        Err(e) => (error_response(&e, &req.headers, req.pretty()), Some(e)),
    };
    add_warnings(&mut response, &req.warnings);
    if let Some(marks) = &req.marks {
        marks.put(response.headers_mut());
    }
    if let Some(seat) = req.seat.take().filter(|_| response.body().is_stream()) {
        response = response.map(|body| body.keeping(seat));
    }
    settle(response, record, error.as_ref()).await
}

/// Waits for a request's turn, as priority and fairness has it. Clients in this process aren't limited.
async fn take_seat(
    server: &Server,
    identity: Option<&User>,
    user: &User,
    info: &RequestInfo,
    query: &Query,
) -> Result<Option<Seat>, flow::Refused> {
    if identity.is_some() || !flow::is_limited(info) {
        return Ok(None);
    }
    server.flow().admit(user, info, || list_bytes(server, info, query)).await
}

/// Bytes that a list, or a watch that begins with one, is about (`seatsBasedOnObjectSize`); else 0.
fn list_bytes(server: &Server, info: &RequestInfo, query: &Query) -> u64 {
    let begins_with_list = || match query.get("sendInitialEvents") {
        Some(_) => query.flag("sendInitialEvents"),
        None => matches!(query.get("resourceVersion"), None | Some("" | "0")),
    };
    let lists = info.verb == "list" || (info.verb == "watch" && begins_with_list());
    if !lists || !info.authorized_name().is_empty() {
        return 0;
    }
    let Some(kind) = server.kinds().resource(&info.group, &info.version, &info.resource).cloned() else {
        return 0;
    };
    let (objects, bytes) = server.store().size_of(&kind.storage);
    let limit = query.get("limit").and_then(|l| l.parse().ok()).filter(|l| *l > 0).unwrap_or(objects);
    if limit >= objects { bytes } else { bytes / objects.max(1) * limit }
}

/// 429 in the words of upstream's filter.
fn too_many_requests(refused: &flow::Refused) -> Response<Body> {
    let mut reply = Reply::text(429, "Too many requests, please try again later.\n");
    reply.headers.push((header::X_CONTENT_TYPE_OPTIONS, "nosniff".to_owned()));
    reply.headers.push((header::RETRY_AFTER, refused.retry_after.to_string()));
    let mut response = reply.into_response(Accepted::default(), false);
    refused.marks.put(response.headers_mut());
    response
}

/// The address a request came from, put into its extensions by the listener.
#[derive(Clone, Copy, Debug)]
pub struct PeerAddress(pub std::net::IpAddr);

/// Records what became of a request.
async fn settle(
    response: Response<Body>,
    record: Option<Record>,
    error: Option<&ApiError>,
) -> Response<Body> {
    let Some(mut record) = record else { return response };
    let mut response = response;
    if let Ok(id) = header::HeaderValue::from_str(record.id()) {
        response.headers_mut().insert("audit-id", id);
    }
    if let Some(error) = error {
        record.failed(error);
    }
    record.answered(response.status().as_u16());
    if response.body().is_stream() {
        record.started().await;
        return response.map(|body| body.keeping(record));
    }
    record.complete().await;
    response
}

/// JSON as Go reads it: bytes that are no UTF-8 stand for U+FFFD.
fn readable_json(headers: &HeaderMap, body: Bytes) -> Bytes {
    let media = headers.get(header::CONTENT_TYPE).and_then(|v| v.to_str().ok()).unwrap_or("");
    let json = media.is_empty() || media.contains("json");
    if !json || std::str::from_utf8(&body).is_ok() {
        return body;
    }
    String::from_utf8_lossy(&body).into_owned().into()
}

/// The body of a request as JSON, if it is something that can be shown.
fn readable(req: &Req) -> Option<serde_json::Value> {
    if req.body.is_empty() {
        return None;
    }
    depth::from_slice(&req.body)
        .ok()
        .or_else(|| plimsoll_apimachinery::proto::decode_body(&req.body).ok())
        .or_else(|| plimsoll_apimachinery::decode::yaml(&req.body).ok())
}

/// The authenticated user.
fn identify(
    server: &Server,
    headers: &HeaderMap,
    peer: Option<&PeerCertificate>,
    identity: Option<&User>,
) -> Result<User, ApiError> {
    match identity {
        Some(user) => Ok(user.clone()),
        None => server.auth().authenticate(headers, (peer, jiff::Timestamp::now()), |t| {
            server.user_of_token(t, &[ISSUER.to_owned()]).ok().map(|(user, _)| user)
        }),
    }
}

/// Marks the connection as that of an authenticated client, or not.
fn note_client(parts: &http::request::Parts, who: Option<&User>) {
    let Some(connection) = parts.extensions.get::<Arc<plimsoll_client::https::Connection>>() else { return };
    if who.is_some_and(|user| user.is_in(auth::AUTHENTICATED)) {
        connection.authenticated();
    } else if parts.version == http::Version::HTTP_2 {
        connection.finish();
    }
}

/// The user that the request impersonates, if that is allowed.
fn permit(
    server: &Server,
    headers: &HeaderMap,
    who: User,
    info: &RequestInfo,
    mut record: Option<&mut Record>,
) -> Result<User, ApiError> {
    let what = Attributes::of(info);
    let mut user = who;
    if let Some(wanted) = auth::impersonation::wanted(headers)? {
        let acting = server.impersonation().authorize(server.rbac(), &user, &wanted, &what)?;
        if let Some(record) = &mut record {
            record.impersonated(&acting.user, acting.constraint);
        }
        user = acting.user;
    }
    let decision = server.rbac().authorize(&user, &what);
    if let Some(record) = record {
        record.authorized(decision.allowed, &decision.reason);
    }
    if decision.allowed { Ok(user) } else { Err(auth::forbidden(&user, &what, &decision.reason)) }
}

/// Reads a body, and takes room for it as long as the answer isn't made.
async fn read_body(
    server: &Server,
    method: &Method,
    body: RequestBody,
) -> Result<(Bytes, Option<OwnedSemaphorePermit>), ApiError> {
    if matches!(*method, Method::GET | Method::HEAD | Method::OPTIONS) {
        return Ok((Bytes::new(), None));
    }
    // Without a length in advance it may become as long as it may.
    let most = body.size_hint().upper().unwrap_or(u64::MAX).min(MAX_BODY as u64);
    let room = server.room_for_bodies(most).ok_or_else(too_many)?;
    let reading = Limited::new(body, MAX_BODY).collect();
    let Ok(read) = tokio::time::timeout(BODY_TIMEOUT, reading).await else {
        return Err(ApiError::new(
            504,
            "Timeout",
            "Timeout: request did not complete within the allotted timeout",
        ));
    };
    match read {
        Ok(collected) => Ok((collected.to_bytes(), Some(room))),
        Err(e) if e.is::<LengthLimitError>() => Err(ApiError::new(
            413,
            "RequestEntityTooLarge",
            format!("Request entity too large: limit is {MAX_BODY}"),
        )),
        Err(e) => Err(ApiError::bad_request(format!("the request body can't be read: {e}"))),
    }
}

/// 429, as upstream's limit of requests in flight says it.
fn too_many() -> ApiError {
    let mut e = ApiError::new(429, "TooManyRequests", "too many requests, please try again later");
    e.details =
        Some(Box::new(plimsoll_apimachinery::Details { retry_after_seconds: 1, ..Default::default() }));
    e
}

async fn route(req: &mut Req) -> Result<Reply, ApiError> {
    let path = req.info.path.clone();
    // No tunnels: a proxy takes a 200 for one.
    let tunnel = req.method == Method::CONNECT && !req.info.is_resource;
    if tunnel || path.starts_with("//") || path == "/apis//" {
        return Ok(Reply::page_not_found());
    }
    let custom = || req.table.iter().any(|k| k.gvk.group == req.info.group && k.custom.is_some());
    if req.info.gap && req.info.shape != Shape::Other && !custom() {
        return Err(not_served());
    }
    if let Some(served) = req.server.aggregation().serving(&req.info) {
        return aggregated::answer(req, &served).await;
    }
    if req.info.is_resource {
        return generic::resource(req).await;
    }
    match req.info.shape {
        Shape::Root | Shape::Group | Shape::Version => discovery::api(req),
        Shape::Resource => Err(not_served()),
        Shape::Other => {
            let head = path.trim_start_matches('/').split('/').next().unwrap_or("");
            match head {
                "version" => discovery::version(req),
                "healthz" | "livez" | "readyz" => meta::health(req, head),
                "openapi" => aggregated::openapi(req).await,
                "metrics" if path == "/metrics" => meta::metrics(req),
                ".well-known" | "openid" => meta::openid(req),
                "" => discovery::root(req),
                _ => Ok(Reply::page_not_found()),
            }
        }
    }
}

/// 404 for a path below a served group that leads nowhere.
pub(crate) fn not_served() -> ApiError {
    let mut e = ApiError::new(404, "NotFound", "the server could not find the requested resource");
    e.details = Some(Box::default());
    e
}

/// 405.
pub(crate) fn method_not_allowed() -> ApiError {
    let mut e = ApiError::new(
        405,
        "MethodNotAllowed",
        "the server does not allow this method on the requested resource",
    );
    e.details = Some(Box::default());
    e
}

/// The format a body is in.
pub(crate) fn body_format(req: &Req, protobuf: bool) -> Result<Format, ApiError> {
    negotiate::input_format(req.header(header::CONTENT_TYPE), protobuf)
}

//! Requests for groups that are served beside the server's own.

use bytes::Bytes;
use futures::StreamExt;
use http::{HeaderMap, Request, Response, header};
use http_body_util::{BodyDataStream, Full};
use hyper::body::Incoming;
use plimsoll_apimachinery::ApiError;

use super::body::{Body, Broken};
use super::reply::{Payload, Reply};
use super::{Req, discovery};
use crate::aggregation::remote::{Remote, name_user};
use crate::aggregation::served::{Backend, LocalRequest, Served};
use crate::machine;

/// Headers that are about one connection, or that this server sets itself.
const DROPPED: [&str; 8] = [
    "connection",
    "content-length",
    "host",
    "proxy-authenticate",
    "proxy-authorization",
    "te",
    "transfer-encoding",
    "upgrade",
];

/// Has a request answered.
pub async fn answer(req: &Req, served: &Served) -> Result<Reply, ApiError> {
    match &served.backend {
        Backend::Local(api) => {
            let accept = req.header(header::ACCEPT).unwrap_or("").to_owned();
            let (method, uri, body) = (req.method.clone(), req.uri.clone(), req.body.clone());
            let answer = api.answer(LocalRequest { method, uri, accept, body }).await;
            let payload = Payload::Raw(answer.body, answer.content_type);
            Ok(Reply { status: answer.status, payload, headers: Vec::new() })
        }
        // As upstream's proxy, which knows from its looks that it would be in vain.
        Backend::Remote(_) if served.resources.is_none() => Ok(Reply::text(503, "service unavailable\n")),
        Backend::Remote(remote) => proxy(req, remote).await,
    }
}

/// `/openapi/…`: documents of other servers' versions are asked of them, in the name of the user. A document that this server has
/// itself is its own.
pub async fn openapi(req: &mut Req) -> Result<Reply, ApiError> {
    let name = req.info.path.strip_prefix("/openapi/v3/").unwrap_or("").trim_matches('/').to_owned();
    if name.is_empty() || machine::has_openapi_document(&req.table, &name) {
        return discovery::openapi(req);
    }
    let Some(served) = req.server.aggregation().documenting(&name) else { return discovery::openapi(req) };
    let mut reply = answer(req, &served).await?;
    // Others send their own.
    let etag = match &reply.payload {
        Payload::Raw(bytes, _) if reply.status == 200 => format!("\"{}\"", machine::hash(bytes)),
        _ => return Ok(reply),
    };
    if req.header(header::IF_NONE_MATCH) == Some(etag.as_str()) {
        reply = Reply::nothing(304);
    }
    Ok(reply.with_header(header::ETAG, etag).with_header(header::VARY, "Accept"))
}

fn end_to_end(headers: &HeaderMap) -> HeaderMap {
    headers
        .iter()
        .filter(|(name, _)| !DROPPED.contains(&name.as_str()))
        .map(|(n, v)| (n.clone(), v.clone()))
        .collect()
}

/// Sends a request on to another server, and its answer back as it comes.
async fn proxy(req: &Req, remote: &Remote) -> Result<Reply, ApiError> {
    if req.headers.contains_key(header::UPGRADE) {
        let message = "the server does not implement upgraded connections (SPDY, WebSocket) to the servers of \
                       APIServices: connect to that server itself";
        return Err(ApiError::new(501, "NotImplemented", message));
    }
    // Authorization has looked at a name with a slash, and the server behind would find two names.
    if has_hidden_slash(req.uri.path()) {
        return Err(ApiError::new(404, "NotFound", "the server could not find the requested resource"));
    }
    let path = req.uri.path_and_query().map_or("/", |p| p.as_str());
    let mut request = Request::builder()
        .method(req.method.clone())
        .uri(path)
        .body(Full::new(req.body.clone()))
        .map_err(ApiError::internal)?;
    *request.headers_mut() = end_to_end(&req.headers);
    name_user(request.headers_mut(), &req.user);
    match remote.send(req.server.store(), request).await {
        Ok(response) => Ok(reply(response, req.info.verb == "watch")),
        Err(e) => {
            let message = format!("error trying to reach service: {e}");
            Err(ApiError::new(503, "ServiceUnavailable", message))
        }
    }
}

fn has_hidden_slash(path: &str) -> bool {
    path.as_bytes().windows(3).any(|w| w.eq_ignore_ascii_case(b"%2f"))
}

fn reply(response: Response<Incoming>, endless: bool) -> Reply {
    let (head, body) = response.into_parts();
    let parts = BodyDataStream::new(body);
    let body = if endless {
        Body::stream(parts.filter_map(|part: Result<Bytes, _>| async { part.ok() }))
    } else {
        Body::pieces(parts.map(|part| part.map_err(|e| Broken(e.to_string()))))
    };
    let headers = end_to_end(&head.headers);
    let headers =
        headers.iter().filter_map(|(n, v)| Some((n.clone(), v.to_str().ok()?.to_owned()))).collect();
    Reply { status: head.status.as_u16(), payload: Payload::Stream(body, "application/json"), headers }
}

//! Documents about the API: discovery, version, root paths, OpenAPI.

use http::header;
use plimsoll_apimachinery::{ApiError, discovery};
use serde_json::json;

use super::info::Shape;
use super::negotiate::{Accepted, Endpoint, Format, negotiate};
use super::reply::{Payload, Reply};
use super::{Req, method_not_allowed, not_served};
use crate::machine;
use crate::version::{GIT_VERSION, MINOR};

const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
const OTHER_PATHS: [&str; 28] = [
    "/.well-known/openid-configuration",
    "/flagz",
    "/healthz",
    "/healthz/autoregister-completion",
    "/healthz/etcd",
    "/healthz/log",
    "/healthz/loopback-serving-certificate",
    "/healthz/ping",
    "/livez",
    "/livez/autoregister-completion",
    "/livez/etcd",
    "/livez/log",
    "/livez/loopback-serving-certificate",
    "/livez/ping",
    "/metrics",
    "/metrics/slis",
    "/openapi/v2",
    "/openapi/v3",
    "/openapi/v3/",
    "/openid/v1/jwks",
    "/readyz",
    "/readyz/autoregister-completion",
    "/readyz/informer-sync",
    "/readyz/log",
    "/readyz/ping",
    "/readyz/shutdown",
    "/statusz",
    "/version",
];

fn only_get(req: &Req) -> Result<(), ApiError> {
    if req.method == http::Method::GET { Ok(()) } else { Err(method_not_allowed()) }
}

/// `direct`: answered by the aggregator's or the definitions' own handlers, not by go-restful.
fn negotiate_plain(req: &mut Req, direct: bool) -> Result<(), ApiError> {
    let accept = req.header(header::ACCEPT).map(str::to_owned);
    let endpoint = Endpoint { protobuf: true, direct, ..Endpoint::default() };
    req.accepted = negotiate(accept.as_deref(), endpoint)?;
    if req.accepted.format == Format::Protobuf {
        req.accepted.format = Format::Json;
    }
    Ok(())
}

/// `/version`.
pub fn version(req: &mut Req) -> Result<Reply, ApiError> {
    only_get(req)?;
    req.accepted = Accepted::default();
    let json = |t: &str| matches!(t, "application/json" | "*/*" | "");
    if !accepted(req).any(json) {
        let text = "406: Not Acceptable\n\nAvailable representations: application/json";
        let mut e = ApiError::new(406, "NotAcceptable", text);
        e.details = Some(Box::default());
        return Err(e);
    }
    let minor = MINOR.to_string();
    Ok(Reply::object(
        200,
        json!({
            "major": "1", "minor": minor, "emulationMajor": "1", "emulationMinor": minor,
            "minCompatibilityMajor": "1", "minCompatibilityMinor": (MINOR - 1).to_string(),
            "gitVersion": GIT_VERSION, "gitCommit": "", "gitTreeState": "clean",
            "buildDate": "1970-01-01T00:00:00Z", "goVersion": "none", "compiler": "gc",
            "platform": "linux/amd64",
        }),
    ))
}

/// `/`.
pub fn root(req: &mut Req) -> Result<Reply, ApiError> {
    let mut paths = discovery::root_paths(&req.table, &OTHER_PATHS);
    req.server.aggregation().add_to_paths(&mut paths);
    Ok(Reply::object(200, paths))
}

/// `/api`, `/apis` and what is below them down to a version.
pub fn api(req: &mut Req) -> Result<Reply, ApiError> {
    let core = req.info.path.trim_matches('/').split('/').next() == Some("api");
    let (group, version) = (req.info.group.clone(), req.info.version.clone());
    let known = core
        || req.table.groups().iter().any(|(g, _)| *g == group)
        || req.server.aggregation().has_group(&group);
    if req.info.shape != Shape::Root && !known {
        return Ok(Reply::page_not_found());
    }
    let custom = !core && req.table.iter().any(|k| k.gvk.group == group && k.custom.is_some());
    // The handlers of these ignore the method.
    let direct = !core && (custom || matches!(req.info.shape, Shape::Root | Shape::Group));
    let served = if core { "" } else { group.as_str() };
    if req.info.shape == Shape::Version
        && !custom
        && !req.table.iter().any(|k| k.gvk.group == served && k.gvk.version == version)
    {
        return Err(not_served());
    }
    if !direct {
        only_get(req)?;
    }
    match req.info.shape {
        Shape::Root => {
            if let Some(reply) = aggregated(req, core)? {
                return Ok(reply);
            }
            if core {
                return Ok(Reply::object(200, discovery::core_versions(&req.server.config().address)));
            }
            let mut groups = discovery::group_list(&req.table);
            req.server.aggregation().add_to_groups(&mut groups);
            Ok(Reply::object(200, groups))
        }
        Shape::Group => {
            negotiate_plain(req, direct)?;
            let own = discovery::group(&req.table, &group);
            let document = req.server.aggregation().group(&group, own);
            Ok(document.map_or_else(Reply::page_not_found, |d| Reply::object(200, d)))
        }
        _ => {
            negotiate_plain(req, direct)?;
            match discovery::resources(&req.table, served, &version) {
                Some(document) => Ok(Reply::object(200, document)),
                None if custom => Ok(Reply::page_not_found()),
                None => Err(not_served()),
            }
        }
    }
}

/// The aggregated form, when the client prefers it; sets the negotiated form otherwise.
fn aggregated(req: &mut Req, core: bool) -> Result<Option<Reply>, ApiError> {
    let accept = req.header(header::ACCEPT).unwrap_or("").to_owned();
    let wanted = accept.split(',').find_map(|clause| {
        let mut parts = clause.split(';').map(str::trim);
        if parts.next() != Some("application/json") {
            // Anything plain before it is preferred.
            return Some(false);
        }
        let params: Vec<&str> = parts.filter(|p| !p.starts_with("q=")).collect();
        let is = |p: &str| params.contains(&p);
        if is("as=APIGroupDiscoveryList") && is("g=apidiscovery.k8s.io") {
            return is("v=v2").then_some(true);
        }
        Some(false)
    });
    if wanted != Some(true) {
        negotiate_plain(req, !core)?;
        return Ok(None);
    }
    let mut document = discovery::aggregated(&req.table, core);
    if !core {
        req.server.aggregation().add_to_aggregated(&mut document);
    }
    let bytes = serde_json::to_vec(&document).map_err(ApiError::internal)?;
    let etag = format!("\"{}\"", machine::hash(&bytes));
    if req.header(header::IF_NONE_MATCH) == Some(etag.as_str()) {
        let reply = Reply { status: 304, payload: Payload::Empty, headers: Vec::new() };
        return Ok(Some(reply.with_header(header::ETAG, etag)));
    }
    let reply = Reply { status: 200, payload: Payload::Raw(bytes.into(), AGGREGATED), headers: Vec::new() };
    Ok(Some(reply.with_header(header::ETAG, etag).with_header(header::VARY, "Accept")))
}

/// `/openapi/v3…` and `/openapi/v2`.
pub fn openapi(req: &mut Req) -> Result<Reply, ApiError> {
    match req.info.path.as_str() {
        "/openapi/v2/" => return Ok(Reply::page_not_found()),
        "/openapi/v3/" => return Ok(Reply::nothing(404)),
        _ => {}
    }
    let path = req.info.path.trim_matches('/').to_owned();
    let rest = path.trim_start_matches("openapi").trim_start_matches('/');
    if rest == "v2" {
        return openapi_v2(req);
    }
    let Some(document) = rest.strip_prefix("v3") else { return Ok(Reply::page_not_found()) };
    let name = document.trim_matches('/');
    if name.is_empty() {
        let mut index = machine::openapi_index(&req.table);
        req.server.aggregation().add_to_openapi(&mut index);
        let bytes = serde_json::to_vec(&index).map_err(ApiError::internal)?;
        let etag = format!("\"{}\"", machine::hash(&bytes));
        if req.header(header::IF_NONE_MATCH) == Some(etag.as_str()) {
            let reply = Reply { status: 304, payload: Payload::Empty, headers: Vec::new() };
            return Ok(reply.with_header(header::ETAG, etag));
        }
        let payload = Payload::Raw(bytes.into(), "text/plain; charset=utf-8");
        let reply = Reply { status: 200, payload, headers: Vec::new() };
        return Ok(reply.with_header(header::ETAG, etag));
    }
    openapi_document(req, name)
}

/// Media types that a client takes, without parameters.
fn accepted(req: &Req) -> impl Iterator<Item = &str> {
    let accept = req.header(header::ACCEPT).unwrap_or("*/*");
    accept.split(',').map(|c| c.split(';').next().unwrap_or("").trim())
}

fn is_json(media_type: &str) -> bool {
    matches!(media_type, "application/json" | "*/*" | "application/*" | "")
}

/// Asked for with an `@`, answered with a dot, as Go's media types want it.
const BINARY_V2: [&str; 2] = [
    "application/com.github.proto-openapi.spec.v2.v1.0+protobuf",
    "application/com.github.proto-openapi.spec.v2@v1.0+protobuf",
];

/// As [`BINARY_V2`], for documents of a group version.
const BINARY_V3: [&str; 2] = [
    "application/com.github.proto-openapi.spec.v3.v1.0+protobuf",
    "application/com.github.proto-openapi.spec.v3@v1.0+protobuf",
];

fn openapi_v2(req: &Req) -> Result<Reply, ApiError> {
    let Some(form) = accepted(req).find(|t| is_json(t) || BINARY_V2.contains(t)) else {
        return Ok(Reply { status: 406, payload: Payload::Empty, headers: Vec::new() });
    };
    let mut document = plimsoll_apimachinery::openapi::v2(&req.table, GIT_VERSION);
    req.server.aggregation().add_to_swagger(&mut document);
    let (bytes, media_type) = if is_json(form) {
        (serde_json::to_vec(&document).map_err(ApiError::internal)?, "application/json")
    } else {
        (plimsoll_apimachinery::openapi::v2_binary(&document), BINARY_V2[0])
    };
    let etag = format!("\"{}\"", machine::hash(&bytes));
    let (status, payload) = if req.header(header::IF_NONE_MATCH) == Some(etag.as_str()) {
        (304, Payload::Empty)
    } else {
        (200, Payload::Raw(bytes.into(), media_type))
    };
    let reply = Reply { status, payload, headers: Vec::new() };
    Ok(reply.with_header(header::ETAG, etag).with_header(header::VARY, "Accept"))
}

fn openapi_document(req: &Req, name: &str) -> Result<Reply, ApiError> {
    let form = accepted(req).find(|t| is_json(t) || BINARY_V3.contains(t)).map(str::to_owned);
    let Some(document) = machine::openapi_document(&req.table, name) else {
        return Ok(Reply::page_not_found());
    };
    let Some(form) = form else {
        return Ok(Reply { status: 406, payload: Payload::Empty, headers: Vec::new() });
    };
    let etag = format!("\"{}\"", document.hash);
    match req.query.non_empty("hash") {
        Some(hash) if hash != document.hash => {
            let location = format!("/openapi/v3/{name}?hash={}", document.hash);
            let payload = Payload::Raw(bytes::Bytes::new(), "application/json");
            let reply = Reply { status: 301, payload, headers: Vec::new() };
            return Ok(reply.with_header(header::LOCATION, location));
        }
        _ => {}
    }
    if req.header(header::IF_NONE_MATCH) == Some(etag.as_str()) {
        let reply = Reply { status: 304, payload: Payload::Empty, headers: Vec::new() };
        return Ok(reply.with_header(header::ETAG, etag));
    }
    let payload = if is_json(&form) {
        Payload::Raw(document.bytes.clone(), "application/json")
    } else {
        let value = serde_json::from_slice(&document.bytes).map_err(ApiError::internal)?;
        Payload::Raw(plimsoll_apimachinery::openapi::document_binary(&value).into(), BINARY_V3[0])
    };
    let mut reply = Reply { status: 200, payload, headers: Vec::new() };
    if req.query.non_empty("hash").is_some() {
        reply = reply.with_header(header::CACHE_CONTROL, "public, immutable");
    }
    Ok(reply.with_header(header::ETAG, etag).with_header(header::VARY, "Accept"))
}

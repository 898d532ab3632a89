//! Probes and metrics.

use plimsoll_apimachinery::ApiError;

use super::{Req, method_not_allowed, reply::Payload, reply::Reply};
use crate::auth::tokens;

const LIVE: [&str; 5] = ["ping", "log", "loopback-serving-certificate", "etcd", "autoregister-completion"];
const READY: [&str; 7] = [
    "ping",
    "log",
    "etcd",
    "informer-sync",
    "loopback-serving-certificate",
    "autoregister-completion",
    "shutdown",
];

/// `/healthz`, `/livez`, `/readyz`, each with checks below it, `verbose` and `exclude`.
pub fn health(req: &Req, probe: &str) -> Result<Reply, ApiError> {
    if req.info.path.ends_with('/') {
        return Ok(Reply::page_not_found());
    }
    let checks: &[&str] = if probe == "readyz" { &READY } else { &LIVE };
    let name = req.info.path.trim_start_matches('/').trim_start_matches(probe).trim_matches('/');
    let excluded: Vec<&str> = req.query.all("exclude").collect();
    let failing = |check: &str| (check == "etcd").then(|| req.server.store().journal_error()).flatten();
    if !name.is_empty() {
        if !checks.contains(&name) {
            return Ok(Reply::page_not_found());
        }
        return Ok(match failing(name) {
            None => Reply::text(200, "ok"),
            Some(why) => Reply::text(500, format!("internal server error: {why}\n")),
        });
    }
    let mut lines = String::new();
    let mut failed = Vec::new();
    for check in checks {
        let line = if excluded.contains(check) {
            format!("[+]{check} excluded: ok\n")
        } else if failing(check).is_some() {
            failed.push(*check);
            format!("[-]{check} failed: reason withheld\n")
        } else {
            format!("[+]{check} ok\n")
        };
        lines.push_str(&line);
    }
    if !failed.is_empty() {
        return Ok(Reply::text(500, format!("{lines}{probe} check failed\n")));
    }
    Ok(match req.query.get("verbose") {
        None => Reply::text(200, "ok"),
        Some(_) => Reply::text(200, format!("{lines}{probe} check passed\n")),
    })
}

/// What others need to verify tokens of service accounts: discovery as of OpenID Connect, and the key.
pub fn openid(req: &Req) -> Result<Reply, ApiError> {
    let (document, content_type) = match req.info.path.as_str() {
        "/.well-known/openid-configuration" => {
            (tokens::discovery(&req.server.config().address), "application/json")
        }
        "/openid/v1/jwks" => (req.server.signer().key_set(), "application/jwk-set+json"),
        _ => return Ok(Reply::page_not_found()),
    };
    if !matches!(req.method.as_str(), "GET" | "HEAD") {
        return Err(method_not_allowed());
    }
    let mut reply = Reply::nothing(200).with_header(http::header::CACHE_CONTROL, "public, max-age=3600");
    reply.payload = Payload::Raw(document.to_string().into(), content_type);
    Ok(reply)
}

/// `/metrics` in the text format of Prometheus.
pub fn metrics(req: &Req) -> Result<Reply, ApiError> {
    if req.method != http::Method::GET {
        return Err(method_not_allowed());
    }
    Ok(Reply::text(200, req.server.metrics_text()))
}

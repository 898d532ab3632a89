//! OpenAPI documents of groups that are served beside the server's own (`kube-aggregator`, `controllers/openapi` and
//! `controllers/openapiv3`): each server has those of its versions, which are named in this server's index and asked of that
//! server, and are merged into the one Swagger document.

use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderValue, Method, StatusCode, Uri, header};
use http_body_util::{BodyExt, Limited};
use plimsoll_apimachinery::openapi;
use serde_json::{Value, json};

use super::remote::{Unreachable, own_request};
use super::served::{Backend, Documents, LocalRequest, Served};
use crate::store::Store;

/// Largest document that is read, in bytes; kube-apiserver's own has about five millions.
const MAX_DOCUMENT: usize = 32 << 20;
/// Where documents of version 3 are.
const V3: &str = "/openapi/v3";

struct Answer {
    status: StatusCode,
    etag: Option<HeaderValue>,
    body: Bytes,
}

/// The documents of a version as its server has them now.
///
/// # Errors
/// The server does not answer. One without documents is none.
pub(crate) async fn read(store: &Store, served: &Served) -> Result<Documents, Unreachable> {
    let known = served.documents.as_deref();
    let own = format!("apis/{}/{}", served.group, served.version);
    let mut documents = Documents::default();
    let index = ask(store, served, V3, None).await?;
    if index.status == StatusCode::OK {
        let index: Value = serde_json::from_slice(&index.body).unwrap_or_default();
        let of_group = |name: &str| name == own || name == format!("apis/{}", served.group);
        for (name, entry) in index["paths"].as_object().into_iter().flatten().filter(|(n, _)| of_group(n)) {
            let url =
                entry["serverRelativeURL"].as_str().filter(|url| url.starts_with(&format!("{V3}/{name}")));
            if let Some(url) = url {
                documents.index.insert(name.clone(), json!({"serverRelativeURL": url}));
            }
        }
    }
    let etag = known.and_then(|known| known.etag.clone());
    let swagger = ask(store, served, "/openapi/v2", etag).await?;
    match (swagger.status, known) {
        (StatusCode::OK, _) => {
            let part = tokio::task::spawn_blocking(move || {
                let whole: Value = serde_json::from_slice(&swagger.body).unwrap_or_default();
                openapi::v2_below(&whole, &format!("/{own}"))
            });
            documents.swagger = part.await.map_err(|e| Unreachable::Server(e.to_string()))?;
            documents.etag = swagger.etag;
        }
        (StatusCode::NOT_MODIFIED, Some(known)) => {
            documents.swagger = known.swagger.clone();
            documents.etag.clone_from(&known.etag);
        }
        _ => {}
    }
    Ok(documents)
}

async fn ask(
    store: &Store,
    served: &Served,
    path: &'static str,
    etag: Option<HeaderValue>,
) -> Result<Answer, Unreachable> {
    match &served.backend {
        Backend::Local(api) => {
            let accept = "application/json".to_owned();
            let request =
                LocalRequest { method: Method::GET, uri: Uri::from_static(path), accept, body: Bytes::new() };
            let answer = api.answer(request).await;
            let status = StatusCode::from_u16(answer.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
            Ok(Answer { status, etag: None, body: answer.body })
        }
        Backend::Remote(remote) => {
            let bad = |e: &dyn std::fmt::Display| Unreachable::Server(e.to_string());
            let mut request = own_request(path)?;
            if let Some(etag) = etag {
                request.headers_mut().insert(header::IF_NONE_MATCH, etag);
            }
            let (head, body) = remote.send(store, request).await?.into_parts();
            let body = Limited::new(body, MAX_DOCUMENT).collect().await.map_err(|e| bad(&e))?;
            Ok(Answer {
                status: head.status,
                etag: head.headers.get(header::ETAG).cloned(),
                body: body.to_bytes(),
            })
        }
    }
}

/// Adds to the index of documents what it does not have.
pub(super) fn add_to_index(index: &mut Value, served: &[Arc<Served>]) {
    let Some(paths) = index["paths"].as_object_mut() else { return };
    for (name, entry) in served.iter().filter_map(|s| s.documents.as_deref()).flat_map(|d| &d.index) {
        if !paths.contains_key(name) {
            paths.insert(name.clone(), entry.clone());
        }
    }
}

/// Adds to the Swagger document.
pub(super) fn add_to_swagger(document: &mut Value, served: &[Arc<Served>]) {
    for part in served.iter().filter_map(|s| s.documents.as_deref()).map(|d| &d.swagger) {
        openapi::add_v2(document, part);
    }
}

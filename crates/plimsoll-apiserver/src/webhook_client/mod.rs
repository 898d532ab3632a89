//! HTTPS calls to webhooks: at their URLs, or behind Services.

mod idle;
pub(crate) mod service;

use std::sync::Arc;
use std::time::Duration;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use bytes::Bytes;
use http::{Request, Response, header};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use rustls::RootCertStore;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use serde_json::Value;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use crate::store::Store;
pub use idle::Idle;
use idle::{Endpoint, Sender};

/// Largest answer that is read, in bytes, unless the question was large.
const MAX_ANSWER: usize = 3 * 1024 * 1024;
/// An answer may be so many times as large as its question: conversions answer with all objects they were given.
const MAX_GROWTH: usize = 4;

/// Why there was no usable answer.
pub enum Failure {
    /// No answer at all: what Go's client says after the URL.
    Unreachable(String),
    /// An answer with another status than 200.
    Status(u16),
}

/// Posts a review and reads the answer. `client` is the webhook's `clientConfig`.
///
/// # Errors
/// See [`Failure`].
pub async fn post(
    store: &Store,
    url: &str,
    client: &Value,
    review: &Value,
    limit: Duration,
) -> Result<Bytes, Failure> {
    // The server behind a Service may be elsewhere than its name says; its certificate is for the name.
    let behind = match client.get("service").filter(|s| s.is_object()) {
        Some(reference) => {
            Some(service::resolve(store, reference).map_err(|e| Failure::Unreachable(e.to_string()))?)
        }
        None => None,
    };
    match tokio::time::timeout(limit, exchange(store.webhook_connections(), url, behind, client, review))
        .await
    {
        Ok(result) => result,
        Err(_) => Err(Failure::Unreachable("context deadline exceeded".to_owned())),
    }
}

async fn exchange(
    idle: &Idle,
    url: &str,
    behind: Option<(String, u16)>,
    client: &Value,
    review: &Value,
) -> Result<Bytes, Failure> {
    let uri: http::Uri = url.parse().map_err(|e| unreachable(&e))?;
    let host = uri.host().unwrap_or("").trim_matches(['[', ']']).to_owned();
    let (address, port) = behind.unwrap_or_else(|| (host.clone(), uri.port_u16().unwrap_or(443)));
    let bundle = client["caBundle"].as_str().unwrap_or("").to_owned();
    let endpoint = Endpoint { host, address, port, bundle };
    let tls = idle.tls(&endpoint, || tls(&endpoint.bundle)).map_err(|e| unreachable(&e))?;
    let question = Bytes::from(review.to_string());
    let most = MAX_ANSWER.max(question.len().saturating_mul(MAX_GROWTH));
    let request = request(&uri, question).map_err(|e| unreachable(&e))?;
    let (mut sender, response) = match idle.take(&endpoint) {
        // The server may have closed it a moment ago; then nobody has answered, and it is asked once more.
        Some(mut kept) => match send(&mut kept, request.clone()).await {
            Err(e) if e.is_canceled() || e.is_incomplete_message() || e.is_closed() => {
                let mut new = connect(&endpoint, &tls).await?;
                let response = send(&mut new, request).await;
                (new, response)
            }
            response => (kept, response),
        },
        None => {
            let mut new = connect(&endpoint, &tls).await?;
            let response = send(&mut new, request).await;
            (new, response)
        }
    };
    let response = response.map_err(|e| unreachable(&e))?;
    let status = response.status().as_u16();
    let body = Limited::new(response.into_body(), most).collect().await;
    let body = body.map_err(|e| unreachable(&e))?.to_bytes();
    if sender.ready().await.is_ok() {
        idle.put(endpoint, tls, sender);
    }
    if status == 200 { Ok(body) } else { Err(Failure::Status(status)) }
}

fn unreachable(e: &dyn std::fmt::Display) -> Failure {
    Failure::Unreachable(e.to_string())
}

async fn send(sender: &mut Sender, request: Request<Full<Bytes>>) -> hyper::Result<Response<Incoming>> {
    sender.ready().await?;
    sender.send_request(request).await
}

fn request(uri: &http::Uri, question: Bytes) -> Result<Request<Full<Bytes>>, http::Error> {
    Request::post(uri.path_and_query().map_or("/", http::uri::PathAndQuery::as_str))
        .header(header::HOST, uri.authority().map_or("", http::uri::Authority::as_str))
        .header(header::ACCEPT, "application/json, */*")
        .header(header::CONTENT_TYPE, "application/json")
        .header(header::USER_AGENT, "kube-apiserver-admission")
        .body(Full::new(question))
}

async fn connect(endpoint: &Endpoint, tls: &Arc<rustls::ClientConfig>) -> Result<Sender, Failure> {
    let Endpoint { host, address, port, .. } = endpoint;
    let stream =
        TcpStream::connect((address.as_str(), *port)).await.map_err(|e| dial_error(address, *port, &e))?;
    let _ = stream.set_nodelay(true);
    let name = ServerName::try_from(host.clone()).map_err(|e| unreachable(&e))?;
    let stream = TlsConnector::from(Arc::clone(tls))
        .connect(name, stream)
        .await
        .map_err(|e| Failure::Unreachable(format!("tls: failed to verify certificate: {e}")))?;
    let (sender, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.map_err(|e| unreachable(&e))?;
    // It ends when its sender is dropped, or when the server closes it.
    tokio::spawn(connection);
    Ok(sender)
}

fn dial_error(host: &str, port: u16, e: &std::io::Error) -> Failure {
    let why = match e.kind() {
        std::io::ErrorKind::ConnectionRefused => "connection refused".to_owned(),
        _ => e.to_string(),
    };
    Failure::Unreachable(format!("dial tcp {host}:{port}: connect: {why}"))
}

/// Trusts the bundle of the webhook and no other authority.
fn tls(bundle: &str) -> Result<Arc<rustls::ClientConfig>, String> {
    let pem = BASE64_STANDARD.decode(bundle).map_err(|e| e.to_string())?;
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(&pem) {
        roots.add(certificate.map_err(|e| e.to_string())?).map_err(|e| e.to_string())?;
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|e| e.to_string())?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(Arc::new(config))
}

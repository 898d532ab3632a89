//! Services that answer whole requests: webhooks, metrics, health.

use std::convert::Infallible;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use futures::future::BoxFuture;
use http::{Request, Response, StatusCode, header};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use rustls::pki_types::CertificateDer;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use super::{Connect, Connection, Listener, Peer, Tls};

/// Time for a TLS handshake, and for the head of a connection's first request.
const HEAD: Duration = Duration::from_secs(10);
/// Time for the body of a request.
const BODY: Duration = Duration::from_secs(30);
/// What connections may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Connections at one time. When there are as many, an idle one is closed for the next; while all are busy, it waits.
    pub connections: usize,
    /// Bytes of a body.
    pub body: usize,
}

/// Answers requests.
pub type Handler = Arc<dyn Fn(Request<Bytes>) -> BoxFuture<'static, Response<Full<Bytes>>> + Send + Sync>;

/// The certificate that a client has shown, which TLS has verified. In the extensions of its requests.
#[derive(Clone, Debug)]
pub struct ClientCertificate(pub CertificateDer<'static>);

/// An answer of plain text.
pub fn text(status: StatusCode, text: &str) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from(text.to_owned())));
    *response.status_mut() = status;
    let plain = header::HeaderValue::from_static("text/plain; charset=utf-8");
    response.headers_mut().insert(header::CONTENT_TYPE, plain);
    response.headers_mut().insert("x-content-type-options", header::HeaderValue::from_static("nosniff"));
    response
}

/// Serves until `stop`. An `async fn` would have each crate that waits for it compile all of HTTP once more.
pub fn serve(
    (name, socket): (&'static str, TcpListener),
    tls: Option<Tls>,
    limits: Limits,
    handler: Handler,
    stop: CancellationToken,
) -> BoxFuture<'static, ()> {
    let Limits { connections, body } = limits;
    let limits = super::Limits { connections, handshake: HEAD, head: HEAD, ..super::Limits::default() };
    Box::pin(super::serve(Listener { name, socket, tls, limits }, Handlers { handler, body }, stop))
}

struct Handlers {
    handler: Handler,
    body: usize,
}

impl Connect for Handlers {
    type Service = Requests;
    type Body = Full<Bytes>;

    fn connect(&self, peer: &Peer<'_>) -> Result<Requests, String> {
        // All clients are alike: busy connections make no place for others.
        peer.connection.authenticated();
        let connection = Arc::clone(peer.connection);
        let certificate = peer.certificate.map(|c| ClientCertificate(c.clone().into_owned()));
        Ok(Requests { handler: Arc::clone(&self.handler), body: self.body, connection, certificate })
    }
}

/// Reads requests as a whole and hands them to a handler.
#[derive(Clone)]
struct Requests {
    handler: Handler,
    body: usize,
    connection: Arc<Connection>,
    certificate: Option<ClientCertificate>,
}

impl tower::Service<Request<Incoming>> for Requests {
    type Response = Response<Full<Bytes>>;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Incoming>) -> Self::Future {
        let Self { handler, body: limit, connection, certificate } = self.clone();
        Box::pin(async move {
            let _in_flight = connection.request();
            let (mut head, body) = request.into_parts();
            if let Some(certificate) = certificate {
                head.extensions.insert(certificate);
            }
            let whole = tokio::time::timeout(BODY, Limited::new(body, limit).collect()).await;
            Ok(match whole {
                Ok(Ok(body)) => handler(Request::from_parts(head, body.to_bytes())).await,
                Ok(Err(e)) => text(StatusCode::PAYLOAD_TOO_LARGE, &e.to_string()),
                Err(_) => text(StatusCode::REQUEST_TIMEOUT, "the body took too long"),
            })
        })
    }
}

//! A small HTTP server for what this process offers beside its work: webhooks, metrics, health.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::future::BoxFuture;
use http::{Request, Response, StatusCode, header};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio::sync::{Semaphore, watch};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

/// Time for a TLS handshake, and for the head of a request.
const HEAD: Duration = Duration::from_secs(10);
/// Time for the body of a request.
const BODY: Duration = Duration::from_secs(30);
/// Time for requests to finish at the end.
const DRAIN: Duration = Duration::from_secs(5);

/// What connections may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Connections at one time; further ones wait.
    pub connections: usize,
    /// Bytes of a body.
    pub body: usize,
}

/// Answers requests.
pub type Handler = Arc<dyn Fn(Request<Bytes>) -> BoxFuture<'static, Response<Full<Bytes>>> + Send + Sync>;

/// An answer of plain text.
pub fn text(status: StatusCode, text: &str) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from(text.to_owned())));
    *response.status_mut() = status;
    let plain = header::HeaderValue::from_static("text/plain; charset=utf-8");
    response.headers_mut().insert(header::CONTENT_TYPE, plain);
    response.headers_mut().insert("x-content-type-options", header::HeaderValue::from_static("nosniff"));
    response
}

/// Serves until stopped. With `tls`, each connection uses the settings that are in force when it comes.
pub async fn serve(
    listener: TcpListener,
    tls: Option<watch::Receiver<Arc<rustls::ServerConfig>>>,
    limits: Limits,
    handler: Handler,
    stop: CancellationToken,
) {
    let slots = Arc::new(Semaphore::new(limits.connections));
    loop {
        let Ok(slot) = Arc::clone(&slots).acquire_owned().await else { return };
        let stream = tokio::select! {
            () = stop.cancelled() => break,
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => stream,
                Err(e) => {
                    // Out of descriptors, most likely: wait for some to come back.
                    tracing::warn!(error = %e, "a connection could not be accepted");
                    tokio::time::sleep(Duration::from_millis(50)).await;
                    continue;
                }
            },
        };
        let _ = stream.set_nodelay(true);
        let config = tls.as_ref().map(|tls| Arc::clone(&tls.borrow()));
        let (handler, stop) = (Arc::clone(&handler), stop.clone());
        tokio::spawn(async move {
            match config {
                None => connection(stream, limits, handler, stop).await,
                Some(config) => {
                    let accepting = TlsAcceptor::from(config).accept(stream);
                    match tokio::time::timeout(HEAD, accepting).await {
                        Ok(Ok(stream)) => connection(stream, limits, handler, stop).await,
                        Ok(Err(e)) => tracing::debug!(error = %e, "TLS handshake failed"),
                        Err(_) => tracing::debug!("TLS handshake took too long"),
                    }
                }
            }
            drop(slot);
        });
    }
    // Whoever is being served gets a moment.
    let all = u32::try_from(limits.connections).unwrap_or(u32::MAX);
    let _ = tokio::time::timeout(DRAIN, slots.acquire_many(all)).await;
}

async fn connection(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    limits: Limits,
    handler: Handler,
    stop: CancellationToken,
) {
    let service = hyper::service::service_fn(move |request: Request<Incoming>| {
        let handler = Arc::clone(&handler);
        async move {
            let (head, body) = request.into_parts();
            let whole = tokio::time::timeout(BODY, Limited::new(body, limits.body).collect()).await;
            let response = match whole {
                Ok(Ok(body)) => handler(Request::from_parts(head, body.to_bytes())).await,
                Ok(Err(e)) => text(StatusCode::PAYLOAD_TOO_LARGE, &e.to_string()),
                Err(_) => text(StatusCode::REQUEST_TIMEOUT, "the body took too long"),
            };
            Ok::<_, std::convert::Infallible>(response)
        }
    });
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder.http1().timer(TokioTimer::new()).header_read_timeout(HEAD);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(250)
        .keep_alive_interval(Duration::from_secs(30));
    let serving = builder.serve_connection(TokioIo::new(stream), service);
    let mut serving = std::pin::pin!(serving);
    let ended = tokio::select! {
        ended = serving.as_mut() => ended,
        () = stop.cancelled() => {
            serving.as_mut().graceful_shutdown();
            match tokio::time::timeout(DRAIN, serving).await {
                Ok(ended) => ended,
                Err(_) => return,
            }
        }
    };
    if let Err(e) = ended {
        tracing::debug!(error = %e, "connection ended");
    }
}

//! Connections: TLS, HTTP/1.1 and HTTP/2, limits, and an orderly end.

use std::sync::Arc;
use std::time::Duration;

use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::auth::PeerCertificate;
use crate::server::{ApiService, Server};

/// What connections may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Connections at one time; further ones wait until one ends.
    pub connections: usize,
    /// Time for the TLS handshake.
    pub handshake: Duration,
    /// Time for the head of a request, counted from the end of the one before (apiserver's `ReadHeaderTimeout`).
    pub head: Duration,
    /// Bytes of a head.
    pub head_bytes: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 16_384,
            handshake: Duration::from_secs(10),
            head: Duration::from_secs(32),
            head_bytes: 64 << 10,
        }
    }
}

/// Time that requests get to finish when the server ends.
const DRAIN: Duration = Duration::from_secs(5);
/// Streams of one HTTP/2 connection (apiserver's `--http2-max-streams-per-connection`).
const MAX_STREAMS: u32 = 1000;
/// Keep-alive of HTTP/2 connections, so that vanished clients are noticed.
const PING_EVERY: Duration = Duration::from_secs(30);

/// Serves connections until `stop`, then lets running requests finish for a moment.
pub async fn serve(
    server: Arc<Server>,
    listener: TcpListener,
    tls: Arc<rustls::ServerConfig>,
    stop: CancellationToken,
) {
    serve_within(Limits::default(), server, listener, tls, stop).await;
}

/// As [`serve`], with other limits.
pub async fn serve_within(
    limits: Limits,
    server: Arc<Server>,
    listener: TcpListener,
    tls: Arc<rustls::ServerConfig>,
    stop: CancellationToken,
) {
    let acceptor = TlsAcceptor::from(tls);
    let connections = TaskTracker::new();
    let slots = Arc::new(Semaphore::new(limits.connections));
    loop {
        let Ok(slot) = Arc::clone(&slots).acquire_owned().await else { break };
        let (stream, from) = tokio::select! {
            () = stop.cancelled() => break,
            accepted = listener.accept() => match accepted {
                Ok((stream, from)) => (stream, from.ip()),
                Err(e) => {
                    // Out of descriptors, most likely: wait for some to come back.
                    tracing::warn!(error = %e, "a connection could not be accepted");
                    tokio::time::sleep(Duration::from_millis(50)).await;
                    continue;
                }
            },
        };
        let (acceptor, service) = (acceptor.clone(), server.authenticating_service());
        let stop = stop.clone();
        connections.spawn(async move {
            connection(limits, acceptor, (stream, from), service, stop).await;
            drop(slot);
        });
    }
    connections.close();
    if tokio::time::timeout(DRAIN, connections.wait()).await.is_err() {
        tracing::debug!("connections were cut at the end");
    }
}

async fn connection(
    limits: Limits,
    acceptor: TlsAcceptor,
    (stream, from): (TcpStream, std::net::IpAddr),
    service: ApiService,
    stop: CancellationToken,
) {
    let _ = stream.set_nodelay(true);
    let stream = match tokio::time::timeout(limits.handshake, acceptor.accept(stream)).await {
        Ok(Ok(stream)) => stream,
        Ok(Err(e)) => return tracing::debug!(error = %e, "TLS handshake failed"),
        Err(_) => return tracing::debug!("TLS handshake took too long"),
    };
    let peer = stream.get_ref().1.peer_certificates().and_then(<[_]>::first).map(super::tls::peer);
    let service = TowerToHyperService::new(WithPeer { service, peer, from });
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(limits.head)
        .max_buf_size(limits.head_bytes.max(8192));
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(MAX_STREAMS)
        .max_header_list_size(u32::try_from(limits.head_bytes).unwrap_or(u32::MAX))
        .keep_alive_interval(PING_EVERY);
    let connection = builder.serve_connection(TokioIo::new(stream), service);
    let mut connection = std::pin::pin!(connection);
    let result = tokio::select! {
        result = connection.as_mut() => result,
        () = stop.cancelled() => {
            connection.as_mut().graceful_shutdown();
            match tokio::time::timeout(DRAIN, connection).await {
                Ok(result) => result,
                Err(_) => return,
            }
        }
    };
    if let Err(e) = result {
        tracing::debug!(error = %e, "connection ended");
    }
}

/// Tells the service who is at the other end.
#[derive(Clone)]
struct WithPeer {
    service: ApiService,
    peer: Option<PeerCertificate>,
    from: std::net::IpAddr,
}

impl tower::Service<http::Request<hyper::body::Incoming>> for WithPeer {
    type Response = http::Response<super::body::Body>;
    type Error = std::convert::Infallible;
    type Future = <ApiService as tower::Service<http::Request<hyper::body::Incoming>>>::Future;

    fn poll_ready(&mut self, _: &mut std::task::Context<'_>) -> std::task::Poll<Result<(), Self::Error>> {
        std::task::Poll::Ready(Ok(()))
    }

    fn call(&mut self, mut request: http::Request<hyper::body::Incoming>) -> Self::Future {
        request.extensions_mut().insert(super::PeerAddress(self.from));
        if let Some(peer) = &self.peer {
            request.extensions_mut().insert(peer.clone());
        }
        self.service.call(request)
    }
}

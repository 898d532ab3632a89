//! Connections: TLS, HTTP/1.1 and HTTP/2, limits, and an orderly end.
//!
//! Deadlines are kube-apiserver's (`SecureServingInfo.Serve`): a connection without a request is closed, whatever bytes
//! come over it. [`connections`] keeps their number below the limit of open files.

mod connections;

use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::auth::PeerCertificate;
use crate::server::{ApiService, Server};
pub use connections::Connection;
use connections::{Connections, most_connections, open_files_limit};

/// What connections may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Connections at one time. When there are as many, an idle one is closed for the next, strangers' first.
    pub connections: usize,
    /// Time for the TLS handshake.
    pub handshake: Duration,
    /// Time for the head of the first request, counted from the handshake (apiserver's `ReadHeaderTimeout`).
    pub head: Duration,
    /// Time without a request after which a connection is closed (apiserver's `IdleTimeout`). Over HTTP/1.1 the head
    /// of the next request has to be there by then.
    pub idle: Duration,
    /// Time between two pings of an HTTP/2 connection, so that vanished clients are noticed.
    pub ping: Duration,
    /// Time for the answer to a ping.
    pub ping_answer: Duration,
    /// Bytes of a head.
    pub head_bytes: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: MOST_CONNECTIONS.min(most_connections(open_files_limit())),
            handshake: Duration::from_secs(10),
            head: Duration::from_secs(32),
            idle: Duration::from_secs(90),
            ping: Duration::from_secs(30),
            ping_answer: Duration::from_secs(20),
            head_bytes: 64 << 10,
        }
    }
}

/// Connections at one time, however many files may be open.
const MOST_CONNECTIONS: usize = 16_384;
/// Time that requests get to finish when the server ends, and when a connection does.
const DRAIN: Duration = Duration::from_secs(5);
/// Streams of one HTTP/2 connection (the default of Go's `http2.Server`, which kube-apiserver had until it took 100).
const MAX_STREAMS: u32 = 250;
/// Streams that a client has reset before they were handed to the server, and streams reset for errors of the client,
/// after which the connection is closed (CVE-2023-44487, CVE-2025-8671).
const MAX_PENDING_RESETS: usize = 20;
const MAX_ERROR_RESETS: usize = 200;
/// Between two looks at the objects that flow control is configured with (`ensureAPFBootstrapConfiguration`).
const KEEP: Duration = Duration::from_mins(1);
/// Time between two attempts to accept connections after a failed one.
const ACCEPT_AGAIN: Duration = Duration::from_millis(50);

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
    let tasks = TaskTracker::new();
    let connections = Arc::new(Connections::new(limits.connections));
    tasks.spawn(keep_flow_control(Arc::clone(&server), stop.clone()));
    loop {
        let accepted = tokio::select! {
            () = stop.cancelled() => break,
            accepted = listener.accept() => accepted,
        };
        plimsoll_client::fault::point("listener", "");
        let (stream, from) = match accepted {
            Ok((stream, from)) => (stream, from.ip()),
            Err(e) => {
                // Out of descriptors, most likely: wait for some to come back.
                tracing::warn!(error = %e, "a connection could not be accepted");
                tokio::time::sleep(ACCEPT_AGAIN).await;
                continue;
            }
        };
        let place = tokio::select! {
            () = stop.cancelled() => break,
            place = connections.open() => place,
        };
        let (acceptor, stop) = (acceptor.clone(), stop.clone());
        let service = server.authenticating_service().until(stop.clone());
        tasks.spawn(async move {
            let connection = Arc::clone(&place.connection);
            tokio::select! {
                () = serve_one(limits, acceptor, (stream, from), service, &connection, stop) => {}
                () = connection.evicted() => {}
            }
        });
    }
    tasks.close();
    if tokio::time::timeout(DRAIN, tasks.wait()).await.is_err() {
        tracing::debug!("connections were cut at the end");
    }
}

/// Keeps what flow control is configured with, as long as there are clients.
async fn keep_flow_control(server: Arc<Server>, stop: CancellationToken) {
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(KEEP) => {}
        }
        if let Err(e) = crate::bootstrap::keep_flow_control(&server).await {
            tracing::warn!(error = %e, "flow control is not configured as it should be");
        }
    }
}

/// The HTTP of a connection: versions, deadlines, sizes.
fn http(limits: Limits, negotiated: Option<&[u8]>) -> auto::Builder<TokioExecutor> {
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(limits.idle.max(limits.head))
        .max_buf_size(limits.head_bytes.max(8192));
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(MAX_STREAMS)
        .max_pending_accept_reset_streams(MAX_PENDING_RESETS)
        .max_local_error_reset_streams(MAX_ERROR_RESETS)
        .max_header_list_size(u32::try_from(limits.head_bytes).unwrap_or(u32::MAX))
        .keep_alive_interval(limits.ping)
        .keep_alive_timeout(limits.ping_answer);
    match negotiated {
        Some(b"h2") => builder.http2_only(),
        Some(b"http/1.1") => builder.http1_only(),
        _ => builder,
    }
}

async fn serve_one(
    limits: Limits,
    acceptor: TlsAcceptor,
    (stream, from): (TcpStream, std::net::IpAddr),
    service: ApiService,
    connection: &Arc<Connection>,
    stop: CancellationToken,
) {
    let _ = stream.set_nodelay(true);
    let shaken = tokio::select! {
        () = stop.cancelled() => return,
        shaken = tokio::time::timeout(limits.handshake, acceptor.accept(stream)) => shaken,
    };
    let stream = match shaken {
        Ok(Ok(stream)) => stream,
        Ok(Err(e)) => return tracing::debug!(error = %e, "TLS handshake failed"),
        Err(_) => return tracing::debug!("TLS handshake took too long"),
    };
    let tls = stream.get_ref().1;
    let peer = match tls.peer_certificates().and_then(<[_]>::first).map(super::tls::peer).transpose() {
        Ok(peer) => peer,
        Err(e) => return tracing::debug!(error = %e, "the client certificate can't be read"),
    };
    let builder = http(limits, tls.alpn_protocol());
    let service = WithPeer { service, peer, from, connection: Arc::clone(connection) };
    let serving = builder.serve_connection(TokioIo::new(stream), TowerToHyperService::new(service));
    let mut serving = std::pin::pin!(serving);
    let mut finishing = false;
    let result = loop {
        tokio::select! {
            result = serving.as_mut() => break Some(result),
            () = stop.cancelled() => break None,
            () = connection.expired(limits.head, limits.idle) => break None,
            () = connection.finishing(), if !finishing => {
                finishing = true;
                serving.as_mut().graceful_shutdown();
            }
        }
    };
    let result = match result {
        Some(result) => result,
        // Requests under way get a moment; an idle connection ends at once.
        None => {
            serving.as_mut().graceful_shutdown();
            match tokio::time::timeout(DRAIN, serving).await {
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
    connection: Arc<Connection>,
}

impl tower::Service<http::Request<hyper::body::Incoming>> for WithPeer {
    type Response = http::Response<super::body::Body>;
    type Error = std::convert::Infallible;
    type Future = BoxFuture<'static, Result<Self::Response, Self::Error>>;

    fn poll_ready(&mut self, _: &mut std::task::Context<'_>) -> std::task::Poll<Result<(), Self::Error>> {
        std::task::Poll::Ready(Ok(()))
    }

    fn call(&mut self, mut request: http::Request<hyper::body::Incoming>) -> Self::Future {
        let in_flight = self.connection.request();
        let extensions = request.extensions_mut();
        extensions.insert(super::PeerAddress(self.from));
        extensions.insert(Arc::clone(&self.connection));
        if let Some(peer) = &self.peer {
            extensions.insert(peer.clone());
        }
        let answer = self.service.call(request);
        Box::pin(async move { Ok(answer.await?.map(|body| body.keeping(in_flight))) })
    }
}

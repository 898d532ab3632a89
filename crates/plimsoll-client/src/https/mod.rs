//! HTTPS server: TLS, HTTP/1.1 and HTTP/2, limits, and an orderly end.
//!
//! Deadlines are kube-apiserver's (`SecureServingInfo.Serve`): a connection without a request is closed, whatever bytes
//! come over it. [`connections`] keeps their number below the limit of open files.

mod connections;
pub mod handler;
pub mod subject;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use hyper::body::Incoming;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use hyper_util::service::TowerToHyperService;
use rustls::pki_types::CertificateDer;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio_rustls::TlsAcceptor;
use tokio_util::either::Either;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::fault;
pub use connections::{Connection, InFlight};
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
/// Time between two attempts to accept connections after a failed one.
const ACCEPT_AGAIN: Duration = Duration::from_millis(50);

type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// TLS settings, which may change while connections are served: each connection uses those in force when it comes.
pub type Tls = watch::Receiver<Arc<rustls::ServerConfig>>;

/// TLS settings that never change.
pub fn fixed(tls: Arc<rustls::ServerConfig>) -> Tls {
    watch::channel(tls).1
}

/// The other end of a connection.
pub struct Peer<'a> {
    /// Its address.
    pub address: std::net::IpAddr,
    /// The certificate that it has shown, which has been verified.
    pub certificate: Option<&'a CertificateDer<'a>>,
    /// The connection.
    pub connection: &'a Arc<Connection>,
}

/// Makes the service that answers the requests of a connection.
pub trait Connect: Send + Sync + 'static {
    /// The service.
    type Service: tower::Service<
            Request<Incoming>,
            Response = Response<Self::Body>,
            Error = std::convert::Infallible,
            Future: Send,
        > + Clone
        + Send
        + 'static;
    /// Body of its answers.
    type Body: http_body::Body<Data = Bytes, Error: Into<BoxError>> + Send + 'static;

    /// The service for a peer.
    ///
    /// # Errors
    /// Why the connection is closed.
    fn connect(&self, peer: &Peer<'_>) -> Result<Self::Service, String>;
}

/// A listening socket and how it serves.
pub struct Listener {
    /// Of what, for logs and tests of panics.
    pub name: &'static str,
    /// The socket.
    pub socket: TcpListener,
    /// TLS; `None`: plain HTTP.
    pub tls: Option<Tls>,
    /// What connections may take.
    pub limits: Limits,
}

/// Serves connections until `stop`, then lets running requests finish for a moment.
pub async fn serve(listener: Listener, connect: impl Connect, stop: CancellationToken) {
    let Listener { name, socket, tls, limits } = listener;
    let tasks = TaskTracker::new();
    let connections = Arc::new(Connections::new(limits.connections));
    let connect = Arc::new(connect);
    loop {
        let accepted = tokio::select! {
            () = stop.cancelled() => break,
            accepted = socket.accept() => accepted,
        };
        fault::point("listener", name);
        let (stream, from) = match accepted {
            Ok((stream, from)) => (stream, from.ip()),
            Err(e) => {
                // Out of descriptors, most likely: wait for some to come back.
                tracing::warn!(listener = name, error = %e, "a connection could not be accepted");
                tokio::time::sleep(ACCEPT_AGAIN).await;
                continue;
            }
        };
        let place = tokio::select! {
            () = stop.cancelled() => break,
            place = connections.open() => place,
        };
        let tls = tls.as_ref().map(|tls| TlsAcceptor::from(Arc::clone(&tls.borrow())));
        let (connect, stop) = (Arc::clone(&connect), stop.clone());
        tasks.spawn(async move {
            let connection = Arc::clone(&place.connection);
            tokio::select! {
                () = serve_one(limits, tls, (stream, from), &*connect, &connection, stop) => {}
                () = connection.evicted() => {}
            }
        });
    }
    tasks.close();
    if tokio::time::timeout(DRAIN, tasks.wait()).await.is_err() {
        tracing::debug!(listener = name, "connections were cut at the end");
    }
}

async fn serve_one<C: Connect>(
    limits: Limits,
    tls: Option<TlsAcceptor>,
    (stream, address): (TcpStream, std::net::IpAddr),
    connect: &C,
    connection: &Arc<Connection>,
    stop: CancellationToken,
) {
    let _ = stream.set_nodelay(true);
    // One type for both: HTTP is compiled for each type of stream.
    let stream = match tls {
        None => Either::Left(stream),
        Some(tls) => {
            let shaken = tokio::select! {
                () = stop.cancelled() => return,
                shaken = tokio::time::timeout(limits.handshake, tls.accept(stream)) => shaken,
            };
            match shaken {
                Ok(Ok(stream)) => Either::Right(stream),
                Ok(Err(e)) => return tracing::debug!(error = %e, "TLS handshake failed"),
                Err(_) => return tracing::debug!("TLS handshake took too long"),
            }
        }
    };
    let session = match &stream {
        Either::Left(_) => None,
        Either::Right(tls) => Some(tls.get_ref().1),
    };
    let certificate = session.and_then(|s| s.peer_certificates()).and_then(<[_]>::first);
    match connect.connect(&Peer { address, certificate, connection }) {
        Ok(service) => {
            let builder = http(limits, session.and_then(|s| s.alpn_protocol()));
            requests(limits, stream, builder, service, connection, stop).await;
        }
        Err(e) => tracing::debug!(error = e, "a connection was refused"),
    }
}

/// Answers the requests of one connection.
async fn requests<S, B>(
    limits: Limits,
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    builder: auto::Builder<TokioExecutor>,
    service: S,
    connection: &Arc<Connection>,
    stop: CancellationToken,
) where
    S: tower::Service<Request<Incoming>, Response = Response<B>, Error = std::convert::Infallible>
        + Clone
        + Send
        + 'static,
    S::Future: Send,
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
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

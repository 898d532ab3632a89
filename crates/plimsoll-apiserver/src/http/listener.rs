//! The server's listener: what each connection's requests are told of the other end.

use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use plimsoll_client::https::{self, Connect, Connection, Peer};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::aggregation::services;
use crate::auth::PeerCertificate;
use crate::server::Server;
use crate::service::ApiService;

pub use plimsoll_client::https::Limits;

/// Between two looks at the objects that flow control is configured with (`ensureAPFBootstrapConfiguration`).
const KEEP: Duration = Duration::from_mins(1);

/// Serves connections until `stop`, then lets running requests finish for a moment.
pub fn serve(
    server: Arc<Server>,
    listener: TcpListener,
    tls: Arc<rustls::ServerConfig>,
    stop: CancellationToken,
) -> BoxFuture<'static, ()> {
    serve_within(Limits::default(), server, listener, tls, stop)
}

/// As [`serve`], with other limits.
pub fn serve_within(
    limits: Limits,
    server: Arc<Server>,
    listener: TcpListener,
    tls: Arc<rustls::ServerConfig>,
    stop: CancellationToken,
) -> BoxFuture<'static, ()> {
    Box::pin(async move {
        let tls = Some(https::fixed(tls));
        let listener = https::Listener { name: "API server", socket: listener, tls, limits };
        let connections = Connections { server: Arc::clone(&server), stop: stop.clone() };
        let others = services::keep(Arc::clone(&server), stop.clone());
        tokio::join!(
            https::serve(listener, connections, stop.clone()),
            keep_flow_control(server, stop.clone()),
            others
        );
    })
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

struct Connections {
    server: Arc<Server>,
    stop: CancellationToken,
}

impl Connect for Connections {
    type Service = WithPeer;
    type Body = super::body::Body;

    fn connect(&self, peer: &Peer<'_>) -> Result<WithPeer, String> {
        let service = self.server.authenticating_service().until(self.stop.clone());
        let certificate = peer.certificate.map(super::tls::peer).transpose();
        let certificate = certificate.map_err(|e| format!("the client certificate can't be read: {e}"))?;
        Ok(WithPeer {
            service,
            peer: certificate,
            from: peer.address,
            connection: Arc::clone(peer.connection),
        })
    }
}

/// Gives the service the peer's identity.
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

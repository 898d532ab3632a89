//! A server behind its listener on the loopback interface, and clients that connect to it.

#![allow(dead_code, clippy::unwrap_used)]

use std::net::SocketAddr;
use std::sync::Arc;

use http::{Method, Request, StatusCode, header};
use http_body_util::{BodyExt as _, Full};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use plimsoll_apiserver::auth::User;
use plimsoll_apiserver::http::listener::{Limits, serve_within};
use plimsoll_apiserver::http::tls::Credentials;
use plimsoll_apiserver::{Server, ServerConfig};
use rustls::pki_types::{CertificateDer, ServerName, pem::PemObject as _};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::client::TlsStream;
use tokio_util::sync::CancellationToken;

/// Versions of HTTP that a client offers in the TLS handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Offer {
    Http1,
    Http2,
}

pub struct Front {
    pub server: Arc<Server>,
    pub credentials: Credentials,
    pub address: SocketAddr,
    stop: CancellationToken,
}

impl Drop for Front {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

impl Front {
    pub async fn start(limits: Limits) -> Self {
        Self::start_with(limits, ServerConfig::default()).await
    }

    /// The administrator's token is added to the configuration.
    pub async fn start_with(limits: Limits, mut config: ServerConfig) -> Self {
        let credentials = Credentials::generate(&[]).unwrap();
        config.auth.tokens.push((credentials.token.clone(), User::admin()));
        let server = Server::new(config).await.unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let stop = CancellationToken::new();
        let tls = credentials.tls().unwrap();
        tokio::spawn(serve_within(limits, Arc::clone(&server), listener, tls, stop.clone()));
        Self { server, credentials, address, stop }
    }

    pub async fn tls(&self, offer: Offer) -> std::io::Result<TlsStream<TcpStream>> {
        let mut roots = rustls::RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(self.credentials.ca.as_bytes()).unwrap()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut config = rustls::ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        config.alpn_protocols = vec![match offer {
            Offer::Http1 => b"http/1.1".to_vec(),
            Offer::Http2 => b"h2".to_vec(),
        }];
        let stream = TcpStream::connect(self.address).await?;
        let name = ServerName::try_from("localhost").unwrap();
        tokio_rustls::TlsConnector::from(Arc::new(config)).connect(name, stream).await
    }

    /// An HTTP/2 connection, and the task that ends with it.
    pub async fn http2(&self) -> (http2::SendRequest<Full<Bytes>>, tokio::task::JoinHandle<()>) {
        let io = TokioIo::new(self.tls(Offer::Http2).await.unwrap());
        let (sender, connection) = http2::handshake(TokioExecutor::new(), io).await.unwrap();
        (sender, tokio::spawn(async move { drop(connection.await) }))
    }

    /// An HTTP/1.1 connection, and the task that ends with it.
    pub async fn http1(&self) -> (http1::SendRequest<Full<Bytes>>, tokio::task::JoinHandle<()>) {
        let io = TokioIo::new(self.tls(Offer::Http1).await.unwrap());
        let (sender, connection) = http1::handshake(io).await.unwrap();
        (sender, tokio::spawn(async move { drop(connection.await) }))
    }

    /// A request of the administrator.
    pub fn request(&self, method: Method, path: &str, body: impl Into<Bytes>) -> Request<Full<Bytes>> {
        self.request_as(&self.credentials.token, method, path, body)
    }

    /// A request with a bearer token.
    pub fn request_as(
        &self,
        token: &str,
        method: Method,
        path: &str,
        body: impl Into<Bytes>,
    ) -> Request<Full<Bytes>> {
        Request::builder()
            .method(method)
            .uri(format!("https://localhost{path}"))
            .header(header::HOST, "localhost")
            .header(header::AUTHORIZATION, format!("Bearer {token}"))
            .header(header::CONTENT_TYPE, "application/json")
            .body(Full::new(body.into()))
            .unwrap()
    }

    /// Sends a request over a connection of its own, and reads the answer.
    pub async fn send(&self, request: Request<Full<Bytes>>) -> (StatusCode, http::HeaderMap, Bytes) {
        let (mut sender, _) = self.http2().await;
        read(sender.send_request(request).await.unwrap()).await
    }

    /// Waits for an answer to a GET of the administrator, over a new connection.
    pub async fn get(&self, path: &str) -> (StatusCode, Bytes) {
        let (status, _, body) = self.send(self.request(Method::GET, path, "")).await;
        (status, body)
    }
}

/// Reads an answer to its end.
pub async fn read(response: http::Response<Incoming>) -> (StatusCode, http::HeaderMap, Bytes) {
    let (parts, body) = response.into_parts();
    (parts.status, parts.headers, body.collect().await.unwrap().to_bytes())
}

//! An HTTPS endpoint on the loopback address, for webhooks.

use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use hyper_util::rt::TokioIo;
use hyper_util::service::TowerToHyperService;
use plimsoll_apiserver::http::tls::Credentials;
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

/// An endpoint that runs until it is dropped.
pub struct Https {
    /// Where it listens.
    pub address: SocketAddr,
    /// Its authority, as `caBundle` has it.
    pub ca: String,
    task: tokio::task::JoinHandle<()>,
    accepted: Arc<AtomicUsize>,
}

impl Drop for Https {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Https {
    /// Starts it; `names` are names it has beside the loopback address.
    pub async fn start<F, A>(names: &[String], answer: F) -> Self
    where
        F: Fn(Request<hyper::body::Incoming>) -> A + Clone + Send + Sync + 'static,
        A: Future<Output = Response<Full<Bytes>>> + Send + 'static,
    {
        let credentials = Credentials::generate(names).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let ca = BASE64_STANDARD.encode(&credentials.ca);
        let acceptor = TlsAcceptor::from(credentials.tls().unwrap());
        let accepted: Arc<AtomicUsize> = Arc::default();
        let counted = Arc::clone(&accepted);
        let task = tokio::spawn(async move {
            // They end with the endpoint.
            let mut connections = tokio::task::JoinSet::new();
            loop {
                let Ok((stream, _)) = listener.accept().await else { return };
                counted.fetch_add(1, Ordering::SeqCst);
                let (acceptor, answer) = (acceptor.clone(), answer.clone());
                connections.spawn(async move {
                    let Ok(stream) = acceptor.accept(stream).await else { return };
                    let service = tower::service_fn(move |request| {
                        let answer = answer(request);
                        async move { Ok::<_, std::convert::Infallible>(answer.await) }
                    });
                    let service = TowerToHyperService::new(service);
                    let builder =
                        hyper_util::server::conn::auto::Builder::new(hyper_util::rt::TokioExecutor::new());
                    let _ = builder.serve_connection(TokioIo::new(stream), service).await;
                });
            }
        });
        Self { address, ca, task, accepted }
    }

    /// How many connections there have been.
    #[allow(dead_code)] // not every executable asks
    pub fn connections(&self) -> usize {
        self.accepted.load(Ordering::SeqCst)
    }
}

/// A JSON answer.
pub fn json(status: u16, body: String) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from(body)));
    *response.status_mut() = http::StatusCode::from_u16(status).unwrap();
    response.headers_mut().insert("content-type", http::HeaderValue::from_static("application/json"));
    response
}

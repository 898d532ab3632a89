//! The HTTP client for an API server behind a network: every step has a deadline, and dead connections are dropped.
//!
//! kube's own stack sets no deadline for a response, keeps idle connections for 90 s and retries 429, 503 and 504 for
//! minutes. A network that drops packets without a reset would leave requests waiting for ever.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use http::Uri;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use kube::client::{Body, ClientBuilder, ConfigExt};
use kube::{Client, Config};
use tower::{BoxError, Service, ServiceBuilder};

/// Time for the TCP and TLS handshakes.
const CONNECT: Duration = Duration::from_secs(10);
/// Idle connections are closed after this time. It is shorter than [`crate::api::DEADLINE`]: a request that is retried
/// after its deadline never gets a connection that was idle when the network failed.
const IDLE: Duration = Duration::from_secs(15);
/// Silence on a connection after which TCP sends keepalive probes, the pause between two, and how many go unanswered.
const KEEPALIVE: (Duration, Duration, u32) = (Duration::from_secs(15), Duration::from_secs(5), 3);
/// Sent bytes may stay unacknowledged for this time (`TCP_USER_TIMEOUT`; client-go relies on HTTP/2 pings of 30 s
/// and 15 s, see `http2ReadIdleTimeout` in k8s.io/apimachinery/pkg/util/net).
const UNACKNOWLEDGED: Duration = Duration::from_secs(20);

/// A client with deadlines.
///
/// # Errors
/// When the configuration can't be used: certificates, credentials or a proxy that is not supported.
pub fn client(config: Config) -> Result<Client, kube::Error> {
    if config.proxy_url.is_some() {
        // kube's stack names the missing support.
        return Client::try_from(config);
    }
    let mut tcp = HttpConnector::new();
    tcp.enforce_http(false);
    tcp.set_nodelay(true);
    tcp.set_keepalive(Some(KEEPALIVE.0));
    tcp.set_keepalive_interval(Some(KEEPALIVE.1));
    tcp.set_keepalive_retries(Some(KEEPALIVE.2));
    #[cfg(any(target_os = "android", target_os = "fuchsia", target_os = "linux"))]
    tcp.set_tcp_user_timeout(Some(UNACKNOWLEDGED));
    let connector = Within { inner: config.rustls_https_connector_with_connector(tcp)? };
    let http: hyper_util::client::legacy::Client<_, Body> =
        hyper_util::client::legacy::Builder::new(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(IDLE)
            .build(connector);
    let service = ServiceBuilder::new()
        .layer(config.base_uri_layer())
        .option_layer(config.auth_layer()?)
        .layer(config.extra_headers_layer()?)
        .map_err(BoxError::from)
        .service(http);
    Ok(ClientBuilder::new(service, config.default_namespace).build())
}

/// A connector with a deadline for the whole of connecting.
#[derive(Clone)]
struct Within<C> {
    inner: C,
}

impl<C> Service<Uri> for Within<C>
where
    C: Service<Uri>,
    C::Future: Send + 'static,
    C::Response: 'static,
    C::Error: Into<BoxError>,
{
    type Response = C::Response;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<C::Response, BoxError>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(cx).map_err(Into::into)
    }

    fn call(&mut self, to: Uri) -> Self::Future {
        let connecting = self.inner.call(to);
        Box::pin(async move {
            match tokio::time::timeout(CONNECT, connecting).await {
                Ok(connected) => connected.map_err(Into::into),
                Err(_) => Err(format!("no connection within {} s", CONNECT.as_secs()).into()),
            }
        })
    }
}

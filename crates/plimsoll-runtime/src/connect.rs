//! The HTTP client for an API server behind a network: every step has a deadline, and dead connections are dropped.
//!
//! kube's own stack sets no deadline for a response, keeps idle connections for 90 s and retries 429, 503 and 504 for
//! minutes. A network that drops packets without a reset would leave requests waiting for ever.

mod credentials;
pub(crate) mod exec;
mod kubeconfig;
mod proxy;
mod renewal;

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use futures::TryStreamExt as _;
use futures::future::BoxFuture;
use http::header::AUTHORIZATION;
use http::uri::{Authority, PathAndQuery, Scheme};
use http::{HeaderValue, Request, Response, Uri};
use http_body_util::{BodyDataStream, BodyExt as _, Full};
use hyper::body::Incoming;
use hyper_rustls::MaybeHttpsStream;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::client::legacy::connect::proxy::{SocksV5, Tunnel};
use hyper_util::client::proxy::matcher::Intercept;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use kube::client::{Body, ClientBuilder, ConfigExt};
use kube::{Client, Config};
use plimsoll_api::request::Error;
use plimsoll_client::rest::{self, Answer, Api, Transport};
use tokio::net::TcpStream;
use tower::util::BoxCloneSyncService;
use tower::{BoxError, Service, ServiceBuilder, ServiceExt};

pub use kubeconfig::{from_kubeconfig, infer};
use renewal::Renewed;

/// Time for the TCP and TLS handshakes.
const CONNECT: Duration = Duration::from_secs(10);
/// Idle connections are closed after this time. It is shorter than [`DEADLINE`](crate::api::DEADLINE): a request that is retried
/// after its deadline never gets a connection that was idle when the network failed.
const IDLE: Duration = Duration::from_secs(15);
/// Most bytes that are read from a connection at once. hyper's own limit is 400 KiB, and a connection on which much was read keeps
/// its buffer: that of each watch, since its list.
const READ_BUFFER: usize = 32 * 1024;
/// Silence on a connection after which TCP sends keepalive probes, the pause between two, and how many go unanswered.
const KEEPALIVE: (Duration, Duration, u32) = (Duration::from_secs(15), Duration::from_secs(5), 3);
/// Sent bytes may stay unacknowledged for this time (`TCP_USER_TIMEOUT`; client-go relies on HTTP/2 pings of 30 s
/// and 15 s, see `http2ReadIdleTimeout` in k8s.io/apimachinery/pkg/util/net).
const UNACKNOWLEDGED: Duration = Duration::from_secs(20);

/// kube's client, with deadlines.
///
/// # Errors
/// When the configuration can't be used: certificates, credentials or a proxy that is not supported.
pub fn client(config: Config) -> Result<Client, kube::Error> {
    let namespace = config.default_namespace.clone();
    let connections = Arc::new(Renewed::new(config)?);
    let whole = tower::service_fn(move |request: Request<Body>| {
        let connections = Arc::clone(&connections);
        async move {
            let (head, body) = request.into_parts();
            let body = Full::new(body.collect().await?.to_bytes());
            connections.send(Request::from_parts(head, body)).await
        }
    });
    Ok(ClientBuilder::new(whole, namespace).build())
}

/// Requests with deadlines, writing as `manager`.
///
/// # Errors
/// As [`client`].
pub fn api(config: Config, manager: &'static str) -> Result<Api, kube::Error> {
    Ok(Api::new(Arc::new(Remote(Arc::new(Renewed::new(config)?))), manager))
}

/// Connections to an API server.
type Http = BoxCloneSyncService<Request<Full<Bytes>>, Response<Incoming>, BoxError>;

/// The stack of layers: connections, and what the configuration adds to each request. `bearer` is what a token does.
fn service(config: &Config, bearer: Option<HeaderValue>) -> Result<Http, kube::Error> {
    let mut tcp = HttpConnector::new();
    tcp.enforce_http(false);
    tcp.set_nodelay(true);
    tcp.set_keepalive(Some(KEEPALIVE.0));
    tcp.set_keepalive_interval(Some(KEEPALIVE.1));
    tcp.set_keepalive_retries(Some(KEEPALIVE.2));
    #[cfg(any(target_os = "android", target_os = "fuchsia", target_os = "linux"))]
    tcp.set_tcp_user_timeout(Some(UNACKNOWLEDGED));
    let connector = match proxy::of(config).map_err(|why| kube::Error::Service(why.into()))? {
        Some(proxy) => through(&proxy, config, tcp)?,
        None => {
            let plain = ServiceExt::<Uri>::map_response(tcp, MaybeHttpsStream::Http);
            BoxCloneSyncService::new(ServiceExt::<Uri>::map_err(plain, BoxError::from))
        }
    };
    let connector = Within { inner: config.rustls_https_connector_with_connector(connector)? };
    let http: hyper_util::client::legacy::Client<_, Full<Bytes>> =
        hyper_util::client::legacy::Builder::new(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(IDLE)
            .http1_max_buf_size(READ_BUFFER)
            .build(connector);
    let base = Base::of(&config.cluster_url);
    let layers = ServiceBuilder::new()
        .map_request(move |request: Request<Full<Bytes>>| {
            let mut request = base.prepend(request);
            if let Some(bearer) = &bearer {
                request.headers_mut().insert(AUTHORIZATION, bearer.clone());
            }
            request
        })
        .option_layer(config.auth_layer()?)
        .layer(config.extra_headers_layer()?)
        .map_err(BoxError::from);
    Ok(BoxCloneSyncService::new(layers.service(http)))
}

/// A connection to a server, or through a proxy to which it may be one of TLS.
type Stream = MaybeHttpsStream<TokioIo<TcpStream>>;

/// What makes connections, on which there is no TLS of the server yet.
type Connector = BoxCloneSyncService<Uri, Stream, BoxError>;

/// Has a proxy make the connections. To `http://` servers these are tunnels, too: such a server is seldom behind a proxy, and
/// requests for net/http's way, with the whole URL, would need connections of their own.
fn through(proxy: &Intercept, config: &Config, tcp: HttpConnector) -> Result<Connector, kube::Error> {
    let url = proxy.uri().clone();
    Ok(match url.scheme_str() {
        Some("socks5" | "socks5h") => {
            let mut socks = SocksV5::new(with_port(url.clone(), 1080), tcp);
            if let Some((user, password)) = proxy.raw_auth() {
                socks = socks.with_auth(user.to_owned(), password.to_owned());
            }
            tunnels(&url, ServiceExt::<Uri>::map_response(socks, MaybeHttpsStream::Http))
        }
        // Authorities and client certificate are those for the server (net/http's `Transport.dialConn`).
        Some("https") => tunnels(&url, tunnel(proxy, config.rustls_https_connector_with_connector(tcp)?)),
        _ => {
            let http = tunnel(proxy, tcp);
            tunnels(&url, ServiceExt::<Uri>::map_response(http, MaybeHttpsStream::Http))
        }
    })
}

fn tunnel<C>(proxy: &Intercept, inner: C) -> Tunnel<C> {
    let tunnel = Tunnel::new(proxy.uri().clone(), inner);
    match proxy.basic_auth() {
        Some(credentials) => tunnel.with_auth(credentials.clone()),
        None => tunnel,
    }
}

/// Connections through the proxy at `url`, with errors that name it.
fn tunnels<S>(url: &Uri, proxy: S) -> Connector
where
    S: Service<Uri, Response = Stream, Error: Into<BoxError>, Future: Send + 'static>
        + Clone
        + Send
        + Sync
        + 'static,
{
    let address: Arc<str> = url.to_string().into();
    let named = move |error: S::Error| -> BoxError {
        let error: BoxError = error.into();
        format!("proxy {address}: {}", with_causes(&*error)).into()
    };
    // Both kinds of tunnels take 443 for the port of a server without one.
    let port = |server: Uri| {
        if server.scheme() == Some(&Scheme::HTTP) { with_port(server, 80) } else { server }
    };
    let asked = ServiceExt::<Uri>::map_request(proxy, port);
    BoxCloneSyncService::new(ServiceExt::<Uri>::map_err(asked, named))
}

fn with_port(url: Uri, port: u16) -> Uri {
    if url.port().is_some() {
        return url;
    }
    let mut parts = url.into_parts();
    parts.authority = parts.authority.and_then(|host| Authority::try_from(format!("{host}:{port}")).ok());
    // One without a host says so when it is connected to.
    Uri::from_parts(parts).unwrap_or_default()
}

/// Where the API server is: what comes before the path of each request (kube's `BaseUriLayer`, which parses it again for each).
#[derive(Clone, Debug)]
struct Base {
    scheme: Option<Scheme>,
    authority: Option<Authority>,
    /// Without a slash at its end.
    path: Arc<str>,
}

impl Base {
    fn of(url: &Uri) -> Self {
        let path = url.path().trim_end_matches('/').into();
        Self { scheme: url.scheme().cloned(), authority: url.authority().cloned(), path }
    }

    fn prepend<B>(&self, mut request: Request<B>) -> Request<B> {
        let mut parts = request.uri().clone().into_parts();
        parts.scheme.clone_from(&self.scheme);
        parts.authority.clone_from(&self.authority);
        if !self.path.is_empty() {
            let rest = parts.path_and_query.as_ref().map_or("", |rest| rest.as_str());
            parts.path_and_query = PathAndQuery::try_from(format!("{}{rest}", self.path)).ok();
        }
        // The parts of two URIs make one. Where the server's has no host, connecting says so.
        if let Ok(uri) = Uri::from_parts(parts) {
            *request.uri_mut() = uri;
        }
        request
    }
}

fn split<B>(answer: Response<B>) -> Answer
where
    B: hyper::body::Body<Data = Bytes, Error: Into<BoxError>> + Send + 'static,
{
    let (status, retry_after) = (answer.status(), rest::retry_after(answer.headers()));
    let body = BodyDataStream::new(answer.into_body());
    Answer { status, retry_after, body: Box::pin(body.map_err(io::Error::other)) }
}

/// The stack as the transport of [`Api`]. kube's client puts a queue and a task in front of it, through which each request
/// would go.
struct Remote(Arc<Renewed>);

impl Transport for Remote {
    fn send(&self, request: Request<Vec<u8>>) -> BoxFuture<'static, Result<Answer, Error>> {
        let connections = Arc::clone(&self.0);
        Box::pin(async move {
            let answer = connections.send(request.map(|body| Full::new(body.into()))).await;
            answer.map(split).map_err(|e| Error::Transport(with_causes(&*e)))
        })
    }

    fn is_remote(&self) -> bool {
        true
    }
}

/// hyper's errors say what failed; why is in their causes.
fn with_causes(error: &(dyn std::error::Error + 'static)) -> String {
    let causes = std::iter::successors(Some(error), |e| e.source());
    causes.map(ToString::to_string).collect::<Vec<_>>().join(": ")
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

#[cfg(test)]
mod tests {
    use plimsoll_client::rest::Encoding;

    use super::*;

    #[test]
    fn requests_go_to_the_server_as_with_kubes_layer() {
        use tower::Layer as _;

        for base in
            ["https://10.0.0.1:6443", "https://h/", "http://h/k8s/clusters/c/", "http://h:80/p?x=1", "/p"]
        {
            let base: Uri = base.parse().unwrap();
            for path in ["/", "/apis/batch/v1/jobs?watch=1&labelSelector=a%3Db", "/api"] {
                let request = || Request::get(path).body(()).unwrap();
                let mut seen = None;
                let inner = tower::service_fn(|request: Request<()>| {
                    seen = Some(request.uri().clone());
                    std::future::ready(Ok::<_, std::convert::Infallible>(()))
                });
                let layer = kube::client::middleware::BaseUriLayer::new(base.clone());
                drop(layer.layer(inner).call(request()));
                assert_eq!(Some(Base::of(&base).prepend(request()).uri()), seen.as_ref(), "{base} {path}");
            }
        }
    }

    /// kube-apiserver encodes errors as objects were asked for.
    #[tokio::test]
    async fn errors_in_protobuf_are_read() {
        use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let server = tokio::spawn(async move {
            loop {
                let (mut stream, _) = listener.accept().await.unwrap();
                let mut head = Vec::new();
                while !head.ends_with(b"\r\n\r\n") {
                    head.push(stream.read_u8().await.unwrap());
                }
                assert!(String::from_utf8(head).unwrap().contains("application/vnd.kubernetes.protobuf"));
                // The code 403 in field 6 of a Status.
                let body: &[u8] = b"k8s\0\x12\x03\x30\x93\x03";
                let head = "HTTP/1.1 403 Forbidden\r\nConnection: close\r\nContent-Length:";
                stream.write_all(format!("{head} {}\r\n\r\n", body.len()).as_bytes()).await.unwrap();
                stream.write_all(body).await.unwrap();
            }
        });
        let api = api(Config::new(url.parse().unwrap()), "test").unwrap();
        let list = api.get_list("/api/v1/nodes", Encoding::Protobuf).await;
        assert_eq!(list.unwrap_err().code(), 403);
        let watch = api.watch("/api/v1/nodes?watch=1", Encoding::Protobuf).await;
        assert_eq!(watch.err().map(|e| e.code()), Some(403));
        server.abort();
    }
}

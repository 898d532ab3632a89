//! A proxy in front of an API server that answers, hangs, cuts and repeats as a test says. It speaks plain HTTP to its
//! clients and passes their requests on with its own credentials.

use std::convert::Infallible;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use futures::StreamExt;
use http::{Method, Request, Response, StatusCode};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::sync::watch;

/// What happens to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// It is passed on.
    None,
    /// It is answered with this code, and not passed on.
    Status(u16),
    /// It is neither passed on nor answered; a stream goes silent.
    Hang,
    /// It is passed on, and its answer is kept.
    Lose,
    /// The connection ends without an answer.
    Cut,
    /// It is passed on, and the connection ends without an answer.
    LoseAndCut,
    /// It is passed on later.
    Delay(Duration),
    /// It is passed on twice; the second answer is given.
    Repeat,
}

/// What a rule sees of a request.
#[derive(Debug)]
pub struct Asked<'a> {
    pub method: &'a Method,
    pub path: &'a str,
    /// The query of the URI.
    pub query: &'a str,
    /// A watch.
    pub watch: bool,
    /// A watch that is under way: the rules have changed meanwhile.
    pub open: bool,
}

impl Asked<'_> {
    pub fn writes(&self) -> bool {
        !matches!(*self.method, Method::GET | Method::HEAD)
    }

    /// Whether this field manager sends it.
    pub fn by(&self, manager: &str) -> bool {
        self.query.split('&').any(|part| part.strip_prefix("fieldManager=") == Some(manager))
    }

    /// Whether it is about a resource, such as `workloads`.
    pub fn about(&self, plural: &str) -> bool {
        self.path.split('/').any(|part| part == plural)
    }
}

type Rule = Arc<dyn Fn(&Asked<'_>) -> Fault + Send + Sync>;
type Body = UnsyncBoxBody<Bytes, std::io::Error>;

struct State {
    upstream: kube::Client,
    rule: Mutex<Rule>,
    changes: watch::Sender<u64>,
}

/// A running proxy; ends with this value.
pub struct Proxy {
    state: Arc<State>,
    task: tokio::task::JoinHandle<()>,
    /// Leads clients to it.
    pub kubeconfig: PathBuf,
}

impl Proxy {
    /// A proxy in front of the server of `kubeconfig`; its own is written into `dir`.
    pub async fn start(kubeconfig: &Path, dir: &Path) -> Self {
        let file = kube::config::Kubeconfig::read_from(kubeconfig).unwrap();
        let mut config = kube::Config::from_custom_kubeconfig(file, &Default::default()).await.unwrap();
        config.default_retry = false;
        let state = State {
            upstream: kube::Client::try_from(config).unwrap(),
            rule: Mutex::new(Arc::new(|_| Fault::None)),
            changes: watch::Sender::new(0),
        };
        let state = Arc::new(state);
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let own = dir.join(format!("proxy-{port}"));
        let text = serde_json::json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "proxy",
            "clusters": [{"name": "proxy", "cluster": {"server": format!("http://127.0.0.1:{port}")}}],
            "contexts": [{"name": "proxy", "context": {"cluster": "proxy", "user": "proxy"}}],
            "users": [{"name": "proxy", "user": {}}],
        });
        std::fs::write(&own, text.to_string()).unwrap();
        let task = tokio::spawn(serve(listener, Arc::clone(&state)));
        Self { state, task, kubeconfig: own }
    }

    /// Treats requests and open watches like this from now on.
    pub fn rule(&self, rule: impl Fn(&Asked<'_>) -> Fault + Send + Sync + 'static) {
        *self.state.rule.lock().unwrap() = Arc::new(rule);
        self.state.changes.send_modify(|n| *n += 1);
    }

    /// No faults from now on. What hangs goes on hanging.
    pub fn heal(&self) {
        self.rule(|_| Fault::None);
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn serve(listener: tokio::net::TcpListener, state: Arc<State>) {
    let mut connections = tokio::task::JoinSet::new();
    loop {
        let Ok((stream, _)) = listener.accept().await else { continue };
        let _ = stream.set_nodelay(true);
        let state = Arc::clone(&state);
        connections.spawn(async move {
            let service = hyper::service::service_fn(move |request| handle(Arc::clone(&state), request));
            let builder = hyper_util::server::conn::auto::Builder::new(TokioExecutor::new());
            // Connections end with errors here all the time.
            let _ = builder.serve_connection(TokioIo::new(stream), service).await;
        });
    }
}

fn cut() -> std::io::Error {
    std::io::Error::other("cut")
}

async fn handle(state: Arc<State>, request: Request<Incoming>) -> Result<Response<Body>, std::io::Error> {
    let (head, body) = request.into_parts();
    let body = body.collect().await.map_err(std::io::Error::other)?.to_bytes();
    let query = head.uri.query().unwrap_or_default();
    let watch = query.contains("watch=true");
    let changes = state.changes.subscribe();
    let rule = Arc::clone(&state.rule.lock().unwrap());
    let asked = Asked { method: &head.method, path: head.uri.path(), query, watch, open: false };
    let fault = rule(&asked);
    match fault {
        Fault::None | Fault::Repeat => {}
        Fault::Status(code) => return Ok(status(code)),
        Fault::Hang => match std::future::pending::<Infallible>().await {},
        Fault::Cut => return Err(cut()),
        Fault::Delay(time) => tokio::time::sleep(time).await,
        Fault::Lose | Fault::LoseAndCut => {
            let _ = pass(&state, &head, &body).await;
            match fault {
                Fault::Lose => match std::future::pending::<Infallible>().await {},
                _ => return Err(cut()),
            }
        }
    }
    if fault == Fault::Repeat {
        let _ = pass(&state, &head, &body).await?.into_body().collect().await;
    }
    let (answer, rest) = pass(&state, &head, &body).await?.into_parts();
    let rest = if watch {
        stream(rest, head, state, changes)
    } else {
        rest.map_err(std::io::Error::other).boxed_unsync()
    };
    Ok(Response::from_parts(answer, rest))
}

async fn pass(
    state: &State,
    head: &http::request::Parts,
    body: &Bytes,
) -> Result<Response<kube::client::Body>, std::io::Error> {
    let path = head.uri.path_and_query().map_or("/", http::uri::PathAndQuery::as_str);
    let mut request = Request::new(kube::client::Body::from(body.to_vec()));
    *request.method_mut() = head.method.clone();
    *request.uri_mut() = path.parse().map_err(std::io::Error::other)?;
    for name in [http::header::ACCEPT, http::header::CONTENT_TYPE, http::header::ACCEPT_ENCODING] {
        if let Some(value) = head.headers.get(&name) {
            request.headers_mut().insert(name, value.clone());
        }
    }
    let mut answer = state.upstream.send(request).await.map_err(std::io::Error::other)?;
    // They belong to the other connection.
    for name in [http::header::CONNECTION, http::header::TRANSFER_ENCODING, http::header::CONTENT_LENGTH] {
        answer.headers_mut().remove(name);
    }
    Ok(answer)
}

/// A watch, to which new rules apply while it is under way.
fn stream(
    body: kube::client::Body,
    head: http::request::Parts,
    state: Arc<State>,
    changes: watch::Receiver<u64>,
) -> Body {
    let start = (body.into_data_stream(), changes, false);
    let frames = futures::stream::unfold(Some(start), move |now| {
        let (head, state) = (head.clone(), Arc::clone(&state));
        async move {
            let (mut data, mut changes, mut silent) = now?;
            loop {
                tokio::select! {
                    _ = changes.changed() => {
                        let rule = Arc::clone(&state.rule.lock().unwrap());
                        let (path, query) = (head.uri.path(), head.uri.query().unwrap_or_default());
                        let asked = Asked { method: &head.method, path, query, watch: true, open: true };
                        match rule(&asked) {
                            Fault::Cut | Fault::Status(_) | Fault::LoseAndCut => return Some((Err(cut()), None)),
                            // What has hung once stays silent: the network has forgotten the connection.
                            Fault::Hang | Fault::Lose => silent = true,
                            Fault::None | Fault::Delay(_) | Fault::Repeat => {}
                        }
                    }
                    next = data.next(), if !silent => {
                        let frame = match next? {
                            Ok(bytes) => Ok(Frame::data(bytes)),
                            Err(e) => Err(std::io::Error::other(e)),
                        };
                        return Some((frame, Some((data, changes, silent))));
                    }
                }
            }
        }
    });
    StreamBody::new(frames).boxed_unsync()
}

/// A refusal as kube-apiserver writes it; 404 as for a path that it does not know.
fn status(code: u16) -> Response<Body> {
    let (kind, text) = match code {
        404 => ("text/plain", "404 page not found\n".to_owned()),
        _ => {
            let reason = match code {
                410 => "Expired",
                429 => "TooManyRequests",
                500 => "InternalError",
                503 => "ServiceUnavailable",
                _ => "Unknown",
            };
            let status = serde_json::json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
                "message": format!("fault injected: {reason}"), "reason": reason, "code": code});
            ("application/json", status.to_string())
        }
    };
    let body = Full::new(Bytes::from(text)).map_err(|e| match e {}).boxed_unsync();
    let mut response = Response::new(body);
    *response.status_mut() = StatusCode::from_u16(code).unwrap();
    response.headers_mut().insert(http::header::CONTENT_TYPE, kind.parse().unwrap());
    response
}

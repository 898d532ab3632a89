//! Hostile and unlucky clients over real TLS connections: each gets a clear error, the server stays up. An executable of its
//! own: the memory and the open files of the process are measured.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::sync::Arc;
use std::time::Duration;

use http::{Method, Request, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1::SendRequest;
use hyper_util::rt::TokioIo;
use plimsoll_apiserver::auth::{AuthConfig, User};
use plimsoll_apiserver::http::listener::{Limits, serve_within};
use plimsoll_apiserver::http::tls::Credentials;
use plimsoll_apiserver::store::{Durability, Store};
use plimsoll_apiserver::{Server, ServerConfig};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;

use support::Disk;

#[path = "integration/support/mod.rs"]
mod support;

const CONFIGMAPS: &str = "/api/v1/namespaces/default/configmaps";
/// Upstream's limit of a request body.
const BODY_LIMIT: usize = 3 * 1024 * 1024;

struct Cluster {
    server: Arc<Server>,
    credentials: Credentials,
    address: std::net::SocketAddr,
    stop: CancellationToken,
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

impl Cluster {
    async fn start(store: Store) -> Self {
        Self::start_within(Limits::default(), store).await
    }

    async fn start_within(limits: Limits, store: Store) -> Self {
        let credentials = Credentials::generate(&[]).unwrap();
        let auth =
            AuthConfig { tokens: vec![(credentials.token.clone(), User::admin())], ..AuthConfig::default() };
        let server = Server::over(ServerConfig { auth, ..ServerConfig::default() }, store).await.unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let stop = CancellationToken::new();
        let tls = credentials.tls().unwrap();
        tokio::spawn(serve_within(limits, Arc::clone(&server), listener, tls, stop.clone()));
        Self { server, credentials, address, stop }
    }

    async fn tls(&self) -> tokio_rustls::client::TlsStream<TcpStream> {
        use rustls::pki_types::{CertificateDer, pem::PemObject as _};
        let mut roots = rustls::RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(self.credentials.ca.as_bytes()).unwrap()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = rustls::ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        let stream = TcpStream::connect(self.address).await.unwrap();
        let name = rustls::pki_types::ServerName::try_from("localhost").unwrap();
        tokio_rustls::TlsConnector::from(Arc::new(config)).connect(name, stream).await.unwrap()
    }

    async fn connect(&self) -> SendRequest<Full<Bytes>> {
        let (sender, connection) =
            hyper::client::conn::http1::handshake(TokioIo::new(self.tls().await)).await.unwrap();
        tokio::spawn(connection);
        sender
    }

    fn request(
        &self,
        method: Method,
        path: &str,
        media: &str,
        body: impl Into<Bytes>,
    ) -> Request<Full<Bytes>> {
        Request::builder()
            .method(method)
            .uri(path)
            .header("host", "localhost")
            .header("authorization", format!("Bearer {}", self.credentials.token))
            .header("content-type", media)
            .body(Full::new(body.into()))
            .unwrap()
    }

    async fn send(&self, request: Request<Full<Bytes>>) -> (StatusCode, Value) {
        let response = self.connect().await.send_request(request).await.unwrap();
        let status = response.status();
        let body = response.into_body().collect().await.unwrap().to_bytes();
        (status, serde_json::from_slice(&body).unwrap_or(Value::Null))
    }

    async fn create(&self, name: &str, size: usize) -> (StatusCode, Value) {
        let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name},
                            "data": {"filling": "x".repeat(size)}});
        self.send(self.request(Method::POST, CONFIGMAPS, "application/json", object.to_string())).await
    }

    async fn watch(&self) -> Incoming {
        let path = format!("{CONFIGMAPS}?watch=1&resourceVersion=0");
        let mut connection = self.connect().await;
        let response =
            connection.send_request(self.request(Method::GET, &path, "application/json", "")).await.unwrap();
        assert_eq!(response.status(), StatusCode::OK);
        response.into_body()
    }

    /// The server still answers, and answers right.
    async fn assert_well(&self) {
        let (status, list) =
            self.send(self.request(Method::GET, "/api/v1/namespaces", "application/json", "")).await;
        assert_eq!(status, StatusCode::OK);
        assert_eq!(list["kind"], "NamespaceList");
    }
}

fn assert_status(answer: &(StatusCode, Value), code: u16, reason: &str) {
    assert_eq!(answer.0.as_u16(), code, "{}", answer.1);
    assert_eq!(answer.1["kind"], "Status", "{}", answer.1);
    assert_eq!(answer.1["reason"], reason, "{}", answer.1);
    assert_eq!(answer.1["code"], code);
}

#[tokio::test]
async fn without_credentials_nothing_is_shown() {
    let cluster = Cluster::start(Store::in_memory()).await;
    for (header, code, reason) in [
        (None, 403, "Forbidden"),
        (Some("Bearer wrong"), 401, "Unauthorized"),
        (Some("Bearer "), 403, "Forbidden"),
        (Some("Basic YWRtaW46YWRtaW4="), 403, "Forbidden"),
        (Some("Bearer"), 403, "Forbidden"),
    ] {
        let mut request = cluster.request(Method::GET, "/api/v1/secrets", "application/json", "");
        request.headers_mut().remove("authorization");
        if let Some(header) = header {
            request.headers_mut().insert("authorization", header.parse().unwrap());
        }
        let answer = cluster.send(request).await;
        assert_status(&answer, code, reason);
    }
    cluster.assert_well().await;
}

#[tokio::test]
async fn bodies_over_the_limit_are_refused() {
    let cluster = Cluster::start(Store::in_memory()).await;
    let answer = cluster.create("big", BODY_LIMIT + 1).await;
    assert_status(&answer, 413, "RequestEntityTooLarge");
    // Without a length in advance, too.
    let mut stream = cluster.tls().await;
    let head = format!(
        "POST {CONFIGMAPS} HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {}\r\n\
         content-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n",
        cluster.credentials.token
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    let chunk = vec![b' '; 64 * 1024];
    for _ in 0..(BODY_LIMIT / chunk.len() + 2) {
        // The server may answer and close before everything is sent.
        if stream.write_all(format!("{:x}\r\n", chunk.len()).as_bytes()).await.is_err()
            || stream.write_all(&chunk).await.is_err()
            || stream.write_all(b"\r\n").await.is_err()
        {
            break;
        }
    }
    let mut answer = [0; 64];
    if let Ok(n) = stream.read(&mut answer).await
        && n > 0
    {
        assert!(answer.starts_with(b"HTTP/1.1 413"), "{}", String::from_utf8_lossy(&answer));
    }
    cluster.assert_well().await;
    let (status, _) = cluster.create("fits", 100).await;
    assert_eq!(status, StatusCode::CREATED);
}

#[tokio::test]
async fn malformed_bodies_are_refused_and_change_nothing() {
    let cluster = Cluster::start(Store::in_memory()).await;
    let deep_json = format!(
        r#"{{"apiVersion":"v1","kind":"ConfigMap","metadata":{{"name":"a"}},"data":{}{}}}"#,
        "[".repeat(200_000),
        "]".repeat(200_000)
    );
    let deep_yaml = format!("data: {}", "{a: ".repeat(20_000));
    let mut proto = b"k8s\0".to_vec();
    proto.extend([0x0a, 0xff, 0xff, 0xff, 0xff, 0x0f]);
    // Each level of an alias bomb doubles the one before.
    let mut bomb = String::from("a0: &a0 [x,x,x,x,x,x,x,x,x,x]\n");
    for n in 1..12 {
        let refs = vec![format!("*a{}", n - 1); 10].join(",");
        bomb.push_str(&format!("a{n}: &a{n} [{refs}]\n"));
    }
    let bodies: Vec<(&str, Vec<u8>)> = vec![
        ("application/json", b"".to_vec()),
        ("application/json", b"{".to_vec()),
        ("application/json", b"null".to_vec()),
        ("application/json", b"[]".to_vec()),
        ("application/json", b"\xff\xfe\xfd".to_vec()),
        ("application/json", br#"{"apiVersion":"v1"}"#.to_vec()),
        ("application/json", br#"{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a"}}"#.to_vec()),
        ("application/json", br#"{"apiVersion":5,"kind":{},"metadata":[]}"#.to_vec()),
        ("application/json", deep_json.into_bytes()),
        ("application/yaml", b"a: b: c: d".to_vec()),
        ("application/yaml", deep_yaml.into_bytes()),
        ("application/yaml", bomb.into_bytes()),
        ("application/vnd.kubernetes.protobuf", b"k8s".to_vec()),
        ("application/vnd.kubernetes.protobuf", proto),
        ("application/vnd.kubernetes.protobuf", vec![0xff; 1000]),
    ];
    for (media, body) in bodies {
        let head: String = String::from_utf8_lossy(&body).chars().take(40).collect();
        let (status, answer) = cluster.send(cluster.request(Method::POST, CONFIGMAPS, media, body)).await;
        assert!(status.is_client_error(), "{media} {head:?}: {status} {answer}");
        assert_eq!(answer["kind"], "Status", "{media} {head:?}: {answer}");
        assert!(answer["message"].as_str().is_some_and(|m| !m.is_empty()), "{media} {head:?}: {answer}");
    }
    let (_, list) = cluster.send(cluster.request(Method::GET, CONFIGMAPS, "application/json", "")).await;
    assert_eq!(list["items"], json!([]));
    cluster.assert_well().await;
}

#[tokio::test]
async fn what_is_not_tls_is_dropped() {
    let cluster = Cluster::start(Store::in_memory()).await;
    for noise in [&b"GET / HTTP/1.1\r\nhost: x\r\n\r\n"[..], &[0; 4096], &[0x16, 0x03, 0x01, 0xff, 0xff]] {
        let mut stream = TcpStream::connect(cluster.address).await.unwrap();
        stream.write_all(noise).await.unwrap();
        stream.shutdown().await.unwrap();
        let mut rest = Vec::new();
        // It ends, with or without an alert; no byte of HTTP comes in clear text.
        let _ = tokio::time::timeout(Duration::from_secs(15), stream.read_to_end(&mut rest)).await.unwrap();
        assert!(!rest.starts_with(b"HTTP/"), "{rest:?}");
    }
    // Connections that are opened and forgotten take nothing from others.
    let mut idle = Vec::new();
    for _ in 0..200 {
        idle.push(TcpStream::connect(cluster.address).await.unwrap());
    }
    cluster.assert_well().await;
}

fn narrow() -> Limits {
    let moment = Duration::from_millis(700);
    Limits { connections: 40, handshake: moment, head: moment, head_bytes: 16 << 10, ..Limits::default() }
}

/// Those who open connections and say nothing, or say it slowly, are cut; whoever waits behind them is served.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slow_heads_are_cut() {
    let cluster = Cluster::start_within(narrow(), Store::in_memory()).await;
    let mut slow = tokio::task::JoinSet::new();
    for _ in 0..20 {
        let mut stream = cluster.tls().await;
        slow.spawn(async move {
            stream.write_all(b"GET /readyz HTTP/1.1\r\nhost: localhost\r\nx-slow: ").await.unwrap();
            for _ in 0..300 {
                if stream.write_all(b"x").await.is_err() {
                    return true;
                }
                let mut answer = [0; 256];
                let read = tokio::time::timeout(Duration::from_millis(50), stream.read(&mut answer)).await;
                // The end, or an answer that says so.
                if let Ok(read) = read {
                    return read.map_or(true, |n| n == 0 || answer.starts_with(b"HTTP/1.1 408"));
                }
            }
            false
        });
    }
    // More than there is room for: they wait until the others have been cut.
    let mut silent = Vec::new();
    for _ in 0..60 {
        silent.push(TcpStream::connect(cluster.address).await.unwrap());
    }
    tokio::time::timeout(Duration::from_secs(20), cluster.assert_well()).await.unwrap();
    while let Some(cut) = slow.join_next().await {
        assert!(cut.unwrap(), "a slow head was waited for");
    }
    // A head without an end.
    let mut stream = cluster.tls().await;
    stream.write_all(b"GET /readyz HTTP/1.1\r\nhost: localhost\r\nx-long: ").await.unwrap();
    let _ = stream.write_all(&vec![b'x'; 64 << 10]).await;
    let mut answer = Vec::new();
    let _ = tokio::time::timeout(Duration::from_secs(10), stream.read_to_end(&mut answer)).await.unwrap();
    assert!(answer.is_empty() || answer.starts_with(b"HTTP/1.1 431"), "{}", String::from_utf8_lossy(&answer));
    cluster.assert_well().await;
}

/// As many open connections as this process may have, up to ten thousand.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_thousand_connections_are_held() {
    let cluster = Cluster::start(Store::in_memory()).await;
    // Both ends are here, and other tests have some.
    let wanted = (support::most_files().saturating_sub(1500) / 2).min(10_000);
    let before = support::resident().unwrap_or(0);
    let mut idle = Vec::new();
    let mut connected = Vec::new();
    for n in 0..wanted {
        if n % 20 == 0 {
            connected.push(cluster.tls().await);
        } else {
            idle.push(TcpStream::connect(cluster.address).await.unwrap());
        }
    }
    for _ in 0..3 {
        tokio::time::timeout(Duration::from_secs(15), cluster.assert_well()).await.unwrap();
    }
    // The first one is still there, unless it has been silent for too long by now.
    assert_eq!(idle.len() + connected.len(), wanted);
    let grown = support::resident().unwrap_or(0).saturating_sub(before);
    assert!(grown < 100_000 * wanted as u64 + (64 << 20), "{grown} bytes for {wanted} connections");
}

/// A body that never comes, of a length nobody knows.
struct Endless;

impl http_body::Body for Endless {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        self: std::pin::Pin<&mut Self>,
        _: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Result<http_body::Frame<Bytes>, Self::Error>>> {
        std::task::Poll::Pending
    }
}

#[tokio::test(start_paused = true)]
async fn bodies_that_never_end_are_bounded_in_number_and_time() {
    let server = Server::new(ServerConfig::default()).await.unwrap();
    let send = || {
        let request = Request::post(CONFIGMAPS).header("content-type", "application/json");
        tower::ServiceExt::oneshot(server.service(), request.body(Endless).unwrap())
    };
    let mut waiting: Vec<_> = (0..170).map(|_| tokio::spawn(send())).collect();
    tokio::time::sleep(Duration::from_secs(1)).await;
    let refused = send().await.unwrap();
    assert_eq!(refused.status(), StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(refused.headers()["retry-after"], "1");
    // Small ones of a known length still fit.
    let body = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "small"}}).to_string();
    let request = Request::post(CONFIGMAPS).header("content-type", "application/json");
    let request = request.body(Full::new(Bytes::from(body))).unwrap();
    let small = tower::ServiceExt::oneshot(server.service(), request).await.unwrap();
    assert_eq!(small.status(), StatusCode::CREATED);
    for answer in waiting.drain(..) {
        assert_eq!(answer.await.unwrap().unwrap().status(), StatusCode::GATEWAY_TIMEOUT);
    }
    // Their room is free again.
    let again = tokio::spawn(send());
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(!again.is_finished());
}

/// Watchers that never read are cut; writers and other watchers don't notice them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stuck_and_vanishing_watchers_hold_nobody_up() {
    let cluster = Cluster::start(Store::in_memory()).await;
    let mut stuck = Vec::new();
    for _ in 0..100 {
        stuck.push(cluster.watch().await);
    }
    for _ in 0..40 {
        drop(cluster.watch().await);
    }
    let mut reader = cluster.watch().await;
    let wanted = 1200;
    let reading = tokio::spawn(async move {
        let mut lines = 0;
        while lines < wanted {
            let frame = reader.frame().await.unwrap().unwrap();
            lines += frame.data_ref().map_or(0, |d| d.iter().filter(|b| **b == b'\n').count());
        }
        lines
    });
    // More than sockets and windows hold for somebody who doesn't read.
    let service = cluster.server.service();
    for n in 0..wanted {
        let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": format!("m{n}")},
                            "data": {"filling": "x".repeat(100_000)}});
        let request = cluster.request(Method::POST, CONFIGMAPS, "application/json", object.to_string());
        let response = tower::ServiceExt::oneshot(service.clone(), request).await.unwrap();
        assert_eq!(response.status(), StatusCode::CREATED);
    }
    // What was written, the window, and what sockets and connections hold; not a copy for each watcher.
    if let Some(bytes) = support::resident() {
        assert!(bytes < 1 << 30, "{bytes}");
    }
    let lines = tokio::time::timeout(Duration::from_secs(60), reading).await.unwrap().unwrap();
    assert!(lines >= wanted);
    // Whoever wakes up too late is cut, without an error event, and starts again from a list.
    let mut late = stuck.pop().unwrap();
    let mut lines = 0;
    while let Some(frame) = tokio::time::timeout(Duration::from_secs(30), late.frame()).await.unwrap() {
        let Ok(frame) = frame else { break };
        lines += frame.data_ref().map_or(0, |d| d.iter().filter(|b| **b == b'\n').count());
    }
    assert!(lines < wanted, "{lines}");
    assert!(cluster.server.store().metrics().watches_cut > 0);
    cluster.assert_well().await;
    drop(stuck);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_disk_refuses_writes_with_a_status_and_serves_reads() {
    let disk = Disk::default();
    disk.set_room(u64::MAX);
    let cluster = Cluster::start(Store::open_with(disk.opener(), Durability::Durable).unwrap()).await;
    disk.set_room(400_000);
    let mut acknowledged = Vec::new();
    let mut refusal = None;
    for n in 0..200 {
        let name = format!("m{n}");
        match cluster.create(&name, 20_000).await {
            (StatusCode::CREATED, _) => acknowledged.push(name),
            other => {
                refusal = Some(other);
                break;
            }
        }
    }
    let refusal = refusal.unwrap();
    assert_eq!(refusal.1["kind"], "Status", "{}", refusal.1);
    assert!(refusal.0.is_server_error(), "{}", refusal.1);
    assert!(refusal.1["message"].as_str().unwrap().contains("journal"), "{}", refusal.1);
    cluster.assert_well().await;
    for name in &acknowledged {
        let path = format!("{CONFIGMAPS}/{name}");
        let (status, _) = cluster.send(cluster.request(Method::GET, &path, "application/json", "")).await;
        assert_eq!(status, StatusCode::OK, "{name}");
    }
    // Room again: writes go on.
    disk.set_room(u64::MAX);
    let mut status = StatusCode::INTERNAL_SERVER_ERROR;
    for attempt in 0..200 {
        status = cluster.create(&format!("later{attempt}"), 10).await.0;
        if status == StatusCode::CREATED {
            break;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert_eq!(status, StatusCode::CREATED);
}

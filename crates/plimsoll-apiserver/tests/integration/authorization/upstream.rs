//! etcd and kube-apiserver from `KUBEBUILDER_ASSETS`, as controller-runtime's envtest runs them, and a client of them.

use std::fs::File;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt, Full};
use hyper_util::rt::TokioIo;
use plimsoll_apiserver::http::tls::Credentials;
use rustls::RootCertStore;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use serde_json::Value;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

const PATIENCE: Duration = Duration::from_secs(90);

/// The two processes; they end with this, and their directory goes.
pub struct Upstream {
    children: Vec<Child>,
    dir: PathBuf,
    port: u16,
    token: String,
    tls: TlsConnector,
}

/// A request.
#[derive(Default)]
pub struct Call<'a> {
    /// Bearer token; `None`: the administrator's.
    pub token: Option<&'a str>,
    pub headers: &'a [(String, String)],
    pub method: &'a str,
    pub path: &'a str,
    pub content_type: &'a str,
    pub body: &'a str,
}

impl Upstream {
    /// Starts both, and waits until the API server is ready.
    pub async fn start(assets: &Path) -> Self {
        let dir = std::env::temp_dir().join(format!("plimsoll-authorization-{}", std::process::id()));
        let pki = dir.join("pki");
        std::fs::create_dir_all(&dir).unwrap();
        let credentials = Credentials::load_or_create(&pki, &[]).unwrap();
        let tokens = dir.join("tokens.csv");
        // The token of a requestor of `impersonation.json` is the requestor's name.
        let requestors: String =
            (0..super::MAX_REQUESTORS).map(|i| format!("requestor-{i},requestor-{i},\n")).collect();
        let admin = format!("{},admin,admin,system:masters\n", credentials.token);
        std::fs::write(&tokens, format!("{admin}{requestors}")).unwrap();
        let [port, etcd, peer] = [(); 3].map(|()| free_port());
        let token = credentials.token.clone();
        let mut running = Self { children: Vec::new(), dir, port, token, tls: connector(&credentials.ca) };
        let etcd = format!("http://127.0.0.1:{etcd}");
        let data = format!("--data-dir={}", running.dir.join("etcd").display());
        let peer = format!("--listen-peer-urls=http://127.0.0.1:{peer}");
        let (listen, advertise) =
            (format!("--listen-client-urls={etcd}"), format!("--advertise-client-urls={etcd}"));
        running.spawn(assets, "etcd", &[data, listen, advertise, peer, "--unsafe-no-fsync".into()]);
        let file = |name: &str| pki.join(name).display().to_string();
        let args = [
            format!("--etcd-servers={etcd}"),
            format!("--secure-port={port}"),
            "--bind-address=127.0.0.1".into(),
            format!("--cert-dir={}", running.dir.display()),
            format!("--tls-cert-file={}", file("server.crt")),
            format!("--tls-private-key-file={}", file("server.key")),
            format!("--token-auth-file={}", tokens.display()),
            "--service-account-issuer=https://kubernetes.default.svc".into(),
            format!("--service-account-key-file={}", file("server.crt")),
            format!("--service-account-signing-key-file={}", file("server.key")),
            "--service-cluster-ip-range=10.0.0.0/16".into(),
            "--authorization-mode=RBAC".into(),
            "--allow-privileged=true".into(),
        ];
        running.spawn(assets, "kube-apiserver", &args);
        let began = Instant::now();
        let ready = Call { method: "GET", path: "/readyz", ..Call::default() };
        while running.try_send(&ready).await.is_none_or(|a| a.0 != 200) {
            assert!(began.elapsed() < PATIENCE, "kube-apiserver is not ready");
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
        running
    }

    fn spawn(&mut self, assets: &Path, name: &str, args: &[String]) {
        let log = File::create(self.dir.join(format!("{name}.log"))).unwrap();
        let mut command = Command::new(assets.join(name));
        command.args(args).stdin(Stdio::null()).stdout(log.try_clone().unwrap()).stderr(log);
        self.children.push(command.spawn().unwrap());
    }

    /// Sends a request.
    pub async fn send(&self, call: &Call<'_>) -> (u16, Value) {
        for _ in 0..5 {
            if let Some(answer) = self.try_send(call).await {
                return answer;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        panic!("{} {}: no answer", call.method, call.path);
    }

    async fn try_send(&self, call: &Call<'_>) -> Option<(u16, Value)> {
        let stream = TcpStream::connect(("127.0.0.1", self.port)).await.ok()?;
        let _ = stream.set_nodelay(true);
        let stream = self.tls.connect(ServerName::try_from("127.0.0.1").unwrap(), stream).await.ok()?;
        let (mut sender, connection) =
            hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.ok()?;
        let connection = tokio::spawn(connection);
        let mut request = Request::builder()
            .method(call.method)
            .uri(call.path)
            .header("host", "127.0.0.1")
            .header("accept", "application/json")
            .header("authorization", format!("Bearer {}", call.token.unwrap_or(&self.token)));
        if !call.body.is_empty() {
            request = request.header("content-type", call.content_type);
        }
        for (name, value) in call.headers {
            request = request.header(name, value);
        }
        let body = Full::new(Bytes::from(call.body.to_owned()));
        let response = sender.send_request(request.body(body).unwrap()).await.ok()?;
        let status = response.status().as_u16();
        let streams = call.path.contains("watch=1") && status == 200;
        let bytes =
            if streams { Bytes::new() } else { response.into_body().collect().await.ok()?.to_bytes() };
        connection.abort();
        Some((status, serde_json::from_slice(&bytes).unwrap_or_default()))
    }
}

impl Drop for Upstream {
    fn drop(&mut self) {
        for child in self.children.iter_mut().rev() {
            let _ = child.kill();
            let _ = child.wait();
        }
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}

fn connector(ca: &str) -> TlsConnector {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(ca.as_bytes()) {
        roots.add(certificate.unwrap()).unwrap();
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    TlsConnector::from(Arc::new(config))
}

/// A port that no process listens on at the moment.
fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

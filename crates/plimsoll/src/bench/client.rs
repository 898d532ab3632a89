//! The least a client can be: one connection, one request at a time. What a benchmark spends on its own side is taken
//! from the server's share of the machine.

use std::sync::Arc;

use anyhow::{Context, bail};
use bytes::Bytes;
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HOST};
use http::{HeaderValue, Method, Request, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper_util::rt::TokioIo;
use kube::client::ConfigExt;
use kube::config::{KubeConfigOptions, Kubeconfig};
use plimsoll_runtime::connect;
use rustls::pki_types::ServerName;
use tokio::net::TcpStream;

/// JSON.
pub const JSON: &str = "application/json";
/// A JSON merge patch (RFC 7396).
pub const MERGE_PATCH: &str = "application/merge-patch+json";
/// Protobuf, and what Go clients accept with it.
pub const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";

/// An API server and how to get in.
#[derive(Clone)]
pub struct Target {
    /// What kube's own client needs.
    pub config: kube::Config,
    host: String,
    port: u16,
    name: ServerName<'static>,
    tls: Arc<rustls::ClientConfig>,
    authorization: Option<HeaderValue>,
}

impl Target {
    /// The current context of a kubeconfig: client certificates and static tokens.
    pub async fn new(kubeconfig: Kubeconfig) -> anyhow::Result<Self> {
        let options = KubeConfigOptions::default();
        let config = connect::from_kubeconfig(kubeconfig, &options).await.context("the kubeconfig")?;
        if config.auth_info.exec.is_some() || config.auth_info.auth_provider.is_some() {
            bail!(
                "a kubeconfig with exec or auth-provider is not supported here: use a certificate or a token"
            );
        }
        let url = &config.cluster_url;
        if url.scheme_str() != Some("https") {
            bail!("{url}: only https is supported");
        }
        let host = url.host().context("the cluster's URL has no host")?.trim_matches(['[', ']']).to_owned();
        let port = url.port_u16().unwrap_or(443);
        let mut tls = config.rustls_client_config().context("the kubeconfig's certificates")?;
        tls.alpn_protocols = vec![b"http/1.1".to_vec()];
        let name = config.tls_server_name.clone().unwrap_or_else(|| host.clone());
        let name = ServerName::try_from(name).context("the server's name")?;
        // The secret's type keeps it to itself; a kubeconfig is what it may be written to.
        let written = serde_json::to_value(&config.auth_info).unwrap_or_default();
        let token = match (written["token"].as_str(), &config.auth_info.token_file) {
            (Some(token), _) => Some(token.to_owned()),
            (None, Some(file)) => Some(std::fs::read_to_string(file).context("tokenFile")?.trim().to_owned()),
            (None, None) => None,
        };
        let authorization = match token {
            Some(token) => Some(HeaderValue::try_from(format!("Bearer {token}")).context("the token")?),
            None => None,
        };
        Ok(Self { host, port, name, tls: Arc::new(tls), authorization, config })
    }

    /// A new connection.
    pub async fn connect(&self) -> anyhow::Result<Connection> {
        let stream = TcpStream::connect((self.host.as_str(), self.port)).await.context("connecting")?;
        stream.set_nodelay(true)?;
        let connector = tokio_rustls::TlsConnector::from(Arc::clone(&self.tls));
        let stream = connector.connect(self.name.clone(), stream).await.context("TLS")?;
        let (sender, connection) = handshake(TokioIo::new(stream)).await.context("HTTP")?;
        tokio::spawn(async move {
            let _ = connection.await;
        });
        let host = HeaderValue::try_from(format!("{}:{}", self.host, self.port))?;
        Ok(Connection { sender, host, authorization: self.authorization.clone() })
    }
}

/// One connection.
pub struct Connection {
    sender: SendRequest<Full<Bytes>>,
    host: HeaderValue,
    authorization: Option<HeaderValue>,
}

impl Connection {
    async fn start(
        &mut self,
        method: Method,
        path: &str,
        format: &'static str,
        body: Bytes,
    ) -> anyhow::Result<http::Response<Incoming>> {
        let mut request = Request::builder().method(method).uri(path).header(HOST, self.host.clone());
        if let Some(token) = &self.authorization {
            request = request.header(AUTHORIZATION, token.clone());
        }
        let accept = if format == PROTOBUF {
            "application/vnd.kubernetes.protobuf,application/json"
        } else {
            "application/json"
        };
        request = request.header(ACCEPT, accept).header("user-agent", "plimsoll-bench");
        if !body.is_empty() {
            request = request.header(CONTENT_TYPE, format);
        }
        self.sender.ready().await?;
        Ok(self.sender.send_request(request.body(Full::new(body))?).await?)
    }

    /// Sends a request and reads the answer to its end; anything but a success is an error with the server's words.
    pub async fn send(
        &mut self,
        method: Method,
        path: &str,
        format: &'static str,
        body: Bytes,
    ) -> anyhow::Result<Bytes> {
        let response = self.start(method, path, format, body).await?;
        let status = response.status();
        let answer = response.into_body().collect().await?.to_bytes();
        check(status, &answer)?;
        Ok(answer)
    }

    /// As [`Connection::send`], keeping only the number of bytes.
    pub async fn count(&mut self, path: &str) -> anyhow::Result<u64> {
        let response = self.start(Method::GET, path, JSON, Bytes::new()).await?;
        let status = response.status();
        let mut body = response.into_body();
        let (mut bytes, mut head) = (0, Bytes::new());
        while let Some(frame) = body.frame().await {
            if let Ok(data) = frame?.into_data() {
                bytes += data.len() as u64;
                if head.is_empty() {
                    head = data;
                }
            }
        }
        check(status, &head)?;
        Ok(bytes)
    }

    /// Opens a watch: the body as it comes.
    pub async fn watch(&mut self, path: &str) -> anyhow::Result<Incoming> {
        let response = self.start(Method::GET, path, JSON, Bytes::new()).await?;
        let status = response.status();
        let body = response.into_body();
        if status.is_success() {
            return Ok(body);
        }
        check(status, &body.collect().await?.to_bytes())?;
        bail!("{status}")
    }
}

fn check(status: StatusCode, answer: &[u8]) -> anyhow::Result<()> {
    if status.is_success() {
        return Ok(());
    }
    let text: String = String::from_utf8_lossy(answer).chars().take(400).collect();
    bail!("{status}: {text}")
}

//! Another API server behind a Service: one HTTPS request to it.

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Request, Response, header};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use plimsoll_client::certificates::provider;
use rustls::RootCertStore;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use serde_json::Value;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use crate::auth::User;
use crate::store::Store;
use crate::webhook_client::service::{self, Unresolved};

/// Time to connect, with TLS.
const CONNECT: Duration = Duration::from_secs(10);

/// The certificate that this server shows to the servers behind it, and its key, as PEM.
#[derive(Clone)]
pub struct ProxyClient {
    /// The certificate.
    pub certificate: String,
    /// Its key.
    pub key: String,
}

/// Another API server, as an APIService names it.
pub(crate) struct Remote {
    /// `spec.service`.
    service: Value,
    /// Its name in certificates.
    host: String,
    tls: Result<Arc<rustls::ClientConfig>, String>,
}

/// Why a server was not reached.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Unreachable {
    /// The Service leads nowhere.
    #[error(transparent)]
    Service(#[from] Unresolved),
    /// The server does not answer.
    #[error("{0}")]
    Server(String),
}

impl Remote {
    /// The server of `spec` of an APIService, which is asked with the certificate of `client`.
    pub fn new(spec: &Value, client: Option<&ProxyClient>) -> Self {
        let service = spec["service"].clone();
        let text = |field: &str| service[field].as_str().unwrap_or("").to_owned();
        let host = format!("{}.{}.svc", text("name"), text("namespace"));
        Self { tls: tls(spec, client).map_err(|e| format!("tls: {e}")), host, service }
    }

    /// Where it is, for messages: `https://name.namespace.svc:443`.
    pub fn url(&self) -> String {
        format!("https://{}:{}", self.host, self.service["port"].as_u64().unwrap_or(443))
    }

    /// Name and namespace of its Service, and the port.
    pub fn service(&self) -> (&str, &str, u64) {
        let text = |field: &str| self.service[field].as_str().unwrap_or("");
        (text("name"), text("namespace"), self.service["port"].as_u64().unwrap_or(443))
    }

    /// Sends a request, and gives the head of the answer, whose body comes as it is sent.
    ///
    /// # Errors
    /// See [`Unreachable`].
    pub async fn send(
        &self,
        store: &Store,
        mut request: Request<Full<Bytes>>,
    ) -> Result<Response<Incoming>, Unreachable> {
        let failed = |e: &dyn std::fmt::Display| Unreachable::Server(e.to_string());
        let (address, port) = service::resolve(store, &self.service)?;
        let tls = self.tls.clone().map_err(Unreachable::Server)?;
        let name = ServerName::try_from(self.host.clone()).map_err(|e| failed(&e))?;
        let connecting = async {
            let stream = TcpStream::connect((address.as_str(), port))
                .await
                .map_err(|e| failed(&format!("dial tcp {address}:{port}: {e}")))?;
            let _ = stream.set_nodelay(true);
            let stream = TlsConnector::from(tls).connect(name, stream).await;
            let stream = stream.map_err(|e| failed(&format!("tls: failed to verify certificate: {e}")))?;
            hyper::client::conn::http1::handshake::<_, Full<Bytes>>(TokioIo::new(stream))
                .await
                .map_err(|e| failed(&e))
        };
        let connected = tokio::time::timeout(CONNECT, connecting).await;
        let (mut sender, connection) = connected.map_err(|_| failed(&"dial tcp: i/o timeout"))??;
        // It ends with the body of the answer, or when that is dropped.
        tokio::spawn(connection);
        let host = HeaderValue::from_str(&self.host).map_err(|e| failed(&e))?;
        request.headers_mut().insert(header::HOST, host);
        sender.send_request(request).await.map_err(|e| failed(&e))
    }
}

/// The user who looks at servers and their documents.
fn aggregator() -> User {
    User::new("system:kube-aggregator", &["system:masters"])
}

/// A request of the aggregator itself, for discovery and documents.
///
/// # Errors
/// When the path can't be asked for.
pub(super) fn own_request(path: &str) -> Result<Request<Full<Bytes>>, Unreachable> {
    let mut request = Request::get(path)
        .header(header::ACCEPT, "application/json")
        .header(header::USER_AGENT, "kube-aggregator")
        .body(Full::new(Bytes::new()))
        .map_err(|e| Unreachable::Server(e.to_string()))?;
    name_user(request.headers_mut(), &aggregator());
    Ok(request)
}

/// Names a user to the server behind (`k8s.io/client-go/transport`, `NewAuthProxyRoundTripper`), instead of what the client
/// said of itself. Impersonation is done with: the server behind would ask for the right to it again.
pub(crate) fn name_user(headers: &mut HeaderMap, user: &User) {
    let own: Vec<HeaderName> = headers.keys().filter(|name| is_about_user(name.as_str())).cloned().collect();
    for name in own {
        headers.remove(name);
    }
    headers.remove(header::AUTHORIZATION);
    let mut add = |name: &str, value: &str| {
        if let (Ok(name), Ok(value)) = (HeaderName::try_from(name), HeaderValue::from_str(value)) {
            headers.append(name, value);
        }
    };
    add("x-remote-user", &user.name);
    if !user.uid.is_empty() {
        add("x-remote-uid", &user.uid);
    }
    for group in &user.groups {
        add("x-remote-group", group);
    }
    for (key, values) in &user.extra {
        let name = format!("x-remote-extra-{}", escaped(key));
        values.iter().for_each(|value| add(&name, value));
    }
}

fn is_about_user(header: &str) -> bool {
    header.starts_with("x-remote-") || header.starts_with("impersonate-")
}

/// A key as a part of a header's name (`headerKeyEscape`): in lower case, with what no header may have escaped.
fn escaped(key: &str) -> String {
    let mut out = String::new();
    for byte in key.to_lowercase().bytes() {
        if byte.is_ascii_alphanumeric() || b"!#$&'*+-.^_`|~".contains(&byte) {
            out.push(char::from(byte));
        } else {
            let _ = write!(out, "%{byte:02X}");
        }
    }
    out
}

/// Trusts the bundle of an APIService and no other authority, or all that serves its Service, if that is what it says.
fn tls(spec: &Value, client: Option<&ProxyClient>) -> Result<Arc<rustls::ClientConfig>, String> {
    let config = rustls::ClientConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .map_err(|e| e.to_string())?;
    let config = if spec["insecureSkipTLSVerify"] == true {
        config.dangerous().with_custom_certificate_verifier(Arc::new(Unverified))
    } else {
        let bundle = spec["caBundle"].as_str().unwrap_or("");
        let pem = BASE64_STANDARD.decode(bundle).map_err(|e| e.to_string())?;
        let mut roots = RootCertStore::empty();
        for certificate in CertificateDer::pem_slice_iter(&pem) {
            roots.add(certificate.map_err(|e| e.to_string())?).map_err(|e| e.to_string())?;
        }
        config.with_root_certificates(roots)
    };
    let config = match client {
        None => config.with_no_client_auth(),
        Some(client) => {
            let chain: Result<Vec<_>, _> =
                CertificateDer::pem_slice_iter(client.certificate.as_bytes()).collect();
            let key = PrivateKeyDer::from_pem_slice(client.key.as_bytes()).map_err(|e| e.to_string())?;
            config.with_client_auth_cert(chain.map_err(|e| e.to_string())?, key).map_err(|e| e.to_string())?
        }
    };
    Ok(Arc::new(config))
}

/// `insecureSkipTLSVerify`: takes any certificate; only its owner can finish the handshake.
#[derive(Debug)]
struct Unverified;

impl ServerCertVerifier for Unverified {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &rustls::DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = provider().signature_verification_algorithms;
        rustls::crypto::verify_tls12_signature(message, certificate, signed, &algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &rustls::DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = provider().signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, certificate, signed, &algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<rustls::SignatureScheme> {
        provider().signature_verification_algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_can_t_name_itself() {
        let mut headers = HeaderMap::new();
        let own =
            ["x-remote-user", "x-remote-group", "x-remote-extra-a", "impersonate-user", "authorization"];
        for name in own.into_iter().chain(["accept"]) {
            headers.insert(name, HeaderValue::from_static("mine"));
        }
        let mut user = User::new("alice", &["team"]);
        user.extra.insert("Example.org/Key".into(), vec!["v".into()]);
        name_user(&mut headers, &user);
        let all = |name: &str| {
            headers.get_all(name).iter().map(|v| v.to_str().unwrap()).collect::<Vec<_>>().join(" ")
        };
        assert_eq!((all("x-remote-user"), all("impersonate-user")), ("alice".into(), String::new()));
        assert_eq!(all("x-remote-group"), "team system:authenticated");
        assert_eq!(all("x-remote-extra-example.org%2fkey"), "v");
        assert_eq!(
            (all("x-remote-extra-a"), all("authorization"), all("accept")),
            (String::new(), String::new(), "mine".into())
        );
    }
}

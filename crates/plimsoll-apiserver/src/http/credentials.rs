//! Credentials: the laptop's own certificate authority, the server's certificate, the administrator's certificate and
//! token, and the kubeconfig that carries them.
//!
//! They live in `pki/`, each file written whole. A certificate is kept for as long as a client that trusts the authority
//! would accept it; otherwise the same authority issues another one, so that kubeconfigs written before still work. A
//! process that is killed meanwhile leaves files from which the next start goes on: a key without its certificate, or a
//! certificate that the authority did not issue, counts as missing.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use plimsoll_client::certificates::{Authority, Issued, Subject, check_key, provider, server_config};
use rand::RngExt;
use rustls::RootCertStore;
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::ServerCertVerifier as _;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::ClientCertVerifier;

use crate::aggregation::ProxyClient;
use crate::auth::pem::pem_error;
use crate::private;

/// Names and addresses the server's certificate is good for.
const NAMES: [&str; 8] = [
    "localhost",
    "127.0.0.1",
    "::1",
    "kubernetes",
    "kubernetes.default",
    "kubernetes.default.svc",
    "kubernetes.default.svc.cluster.local",
    "10.0.0.1",
];

const CA: Pair = Pair { certificate: "ca.crt", key: "ca.key" };
const SERVER: Pair = Pair { certificate: "server.crt", key: "server.key" };
const ADMIN: Pair = Pair { certificate: "admin.crt", key: "admin.key" };
const TOKEN: &str = "token";
/// Common name of the certificate for the servers behind this one, as `extension-apiserver-authentication` has it.
const PROXY_CLIENT: &str = "front-proxy-client";

const RESTORE_CA: &str = "restore it from a copy, or remove ca.crt and ca.key: the next start makes a new authority, and \
                          kubeconfigs written before no longer work";
const REMOVE: &str = "restore it from a copy, or remove it: the next start makes a new one";

/// File names of a certificate and its key.
#[derive(Clone, Copy)]
struct Pair {
    certificate: &'static str,
    key: &'static str,
}

/// Why credentials could not be made or read.
#[derive(Debug, thiserror::Error)]
pub enum CredentialsError {
    /// A file that can't be read or written.
    #[error("{}: {source}; it must be readable and writable for the user that runs this program", path.display())]
    File {
        /// Its path.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// A file with other contents than it should have.
    #[error("{}: {why}; {remedy}", path.display())]
    Damaged {
        /// Its path.
        path: PathBuf,
        /// What is wrong.
        why: String,
        /// What to do.
        remedy: &'static str,
    },
    /// A certificate or key could not be made.
    #[error("certificates: {0}")]
    Certificate(#[from] plimsoll_client::certificates::Error),
    /// TLS settings.
    #[error("TLS: {0}")]
    Tls(String),
}

/// All that is needed to serve and to connect.
#[derive(Clone)]
pub struct Credentials {
    /// Certificate of the authority, PEM.
    pub ca: String,
    /// Certificate of the server, PEM.
    pub server_certificate: String,
    server_key: String,
    /// Certificate of the administrator, PEM.
    pub client_certificate: String,
    client_key: String,
    /// The administrator's bearer token.
    pub token: String,
    /// What the server shows to the servers behind it; `None`: the authority's key was not kept.
    pub proxy_client: Option<ProxyClient>,
}

impl std::fmt::Debug for Credentials {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Credentials").field("ca", &self.ca).finish_non_exhaustive()
    }
}

/// A subject without an end: the laptop's certificates are made again when they no longer fit.
fn subject<'a>(common_name: &'a str, organization: Option<&'a str>) -> Subject<'a> {
    Subject { common_name, organization, valid: None }
}

fn new_authority() -> Result<Authority, CredentialsError> {
    Ok(Authority::generate(&subject("plimsoll-ca", None))?)
}

/// The serving certificate for `hosts` and the usual local names.
fn server(authority: &Authority, hosts: &[String]) -> Result<Issued, CredentialsError> {
    let mut names: Vec<String> = NAMES.iter().map(|n| (*n).to_owned()).collect();
    names.extend(hosts.iter().filter(|h| !NAMES.contains(&h.as_str())).cloned());
    Ok(authority.server(&subject("plimsoll-apiserver", None), names)?)
}

fn admin(authority: &Authority) -> Result<Issued, CredentialsError> {
    Ok(authority.client(&subject("admin", Some(crate::auth::MASTERS)))?)
}

fn new_token() -> String {
    let secret: [u8; 24] = rand::rng().random();
    secret.iter().map(|b| format!("{b:02x}")).collect()
}

impl Credentials {
    /// New credentials, good for `hosts` besides the usual local names.
    ///
    /// # Errors
    /// Key generation failed.
    pub fn generate(hosts: &[String]) -> Result<Self, CredentialsError> {
        let authority = new_authority()?;
        let (server, admin) = (server(&authority, hosts)?, admin(&authority)?);
        Self::of(authority.certificate().to_owned(), server, admin, new_token()).behind(Some(&authority))
    }

    fn of(ca: String, server: Issued, admin: Issued, token: String) -> Self {
        Self {
            ca,
            server_certificate: server.certificate,
            server_key: server.key,
            client_certificate: admin.certificate,
            client_key: admin.key,
            token,
            proxy_client: None,
        }
    }

    /// With a certificate for the servers behind this one, of this process alone.
    fn behind(mut self, authority: Option<&Authority>) -> Result<Self, CredentialsError> {
        if let Some(authority) = authority {
            let Issued { certificate, key } = authority.client(&subject(PROXY_CLIENT, None))?;
            self.proxy_client = Some(ProxyClient { certificate, key });
        }
        Ok(self)
    }

    /// The credentials in a directory, with what is missing made, and a new serving certificate if the one that is there
    /// doesn't name all `hosts`. Only the owner can read them. The caller keeps other processes away.
    ///
    /// # Errors
    /// The directory can't be used, or a file is damaged.
    pub fn load_or_create(dir: &Path, hosts: &[String]) -> Result<Self, CredentialsError> {
        private::create_dir_all(dir)
            .map_err(|source| CredentialsError::File { path: dir.to_owned(), source })?;
        let files = Files { dir };
        let token = match files.token()? {
            Some(token) => token,
            None => {
                let token = new_token();
                files.write(TOKEN, &token)?;
                token
            }
        };
        let (certificate, authority) = files.authority()?;
        if let Some(certificate) = &certificate {
            let trust = files.trust(certificate)?;
            let server = files.pair(SERVER)?.filter(|s| trust.accepts_server(s, hosts));
            let admin = files.pair(ADMIN)?.filter(|a| trust.accepts_client(a));
            match (server, admin, authority) {
                (Some(server), Some(admin), authority) => {
                    return Self::of(certificate.clone(), server, admin, token).behind(authority.as_ref());
                }
                (server, admin, Some(authority)) => {
                    return files.complete(&authority, server, admin, hosts, token);
                }
                _ => tracing::warn!(
                    "{}: the certificates don't fit the address any more, and the authority's key was not kept when they \
                     were made, so all of them are made again: kubeconfigs written before no longer work",
                    dir.display()
                ),
            }
        }
        let authority = new_authority()?;
        // In this order a start that is interrupted here begins anew, or knows the certificates below for strangers'.
        files.remove(CA.key)?;
        files.write(CA.certificate, authority.certificate())?;
        files.write(CA.key, &authority.key())?;
        files.complete(&authority, None, None, hosts, token)
    }

    /// Settings of a TLS listener: our certificate, and client certificates of our authority if they are sent.
    ///
    /// # Errors
    /// The certificates can't be used.
    pub fn tls(&self) -> Result<Arc<rustls::ServerConfig>, CredentialsError> {
        let bad = |e: &dyn std::fmt::Display| CredentialsError::Tls(e.to_string());
        let verifier =
            client_verifier(roots(&self.ca).map_err(CredentialsError::Tls)?).map_err(|e| bad(&e))?;
        chain(&self.server_certificate).map_err(CredentialsError::Tls)?;
        server_config(&self.server_certificate, &self.server_key, Some(verifier))
            .map_err(CredentialsError::Tls)
    }

    /// A kubeconfig for a server at `url` (`https://127.0.0.1:6443`).
    pub fn kubeconfig(&self, url: &str) -> String {
        let b64 = |text: &str| BASE64_STANDARD.encode(text);
        format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: plimsoll\npreferences: {{}}\nclusters:\n\
             - name: plimsoll\n  cluster:\n    server: {url}\n    certificate-authority-data: {}\n\
             contexts:\n- name: plimsoll\n  context:\n    cluster: plimsoll\n    user: plimsoll-admin\n\
             users:\n- name: plimsoll-admin\n  user:\n    client-certificate-data: {}\n    client-key-data: {}\n    \
             token: \"{}\"\n",
            b64(&self.ca),
            b64(&self.client_certificate),
            b64(&self.client_key),
            self.token
        )
    }
}

fn chain(pem: &str) -> Result<Vec<CertificateDer<'static>>, String> {
    let all: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem.as_bytes()).collect();
    let all = all.map_err(|e| pem_error(&e))?;
    if all.is_empty() {
        return Err("there is no certificate in it".to_owned());
    }
    match all.iter().find_map(|der| x509_parser::parse_x509_certificate(der).err()) {
        Some(why) => Err(format!("it holds no X.509 certificate: {why}")),
        None => Ok(all),
    }
}

fn roots(ca: &str) -> Result<Arc<RootCertStore>, String> {
    let mut roots = RootCertStore::empty();
    for certificate in chain(ca)? {
        roots.add(certificate).map_err(|e| e.to_string())?;
    }
    Ok(Arc::new(roots))
}

fn client_verifier(
    roots: Arc<RootCertStore>,
) -> Result<Arc<dyn ClientCertVerifier>, rustls::server::VerifierBuilderError> {
    WebPkiClientVerifier::builder_with_provider(roots, provider()).allow_unauthenticated().build()
}

/// What clients and the server accept: certificates of the authority.
struct Trust {
    server: Arc<WebPkiServerVerifier>,
    client: Arc<dyn ClientCertVerifier>,
}

impl Trust {
    fn of(ca: &str) -> Result<Self, String> {
        let roots = roots(ca)?;
        let server = WebPkiServerVerifier::builder_with_provider(Arc::clone(&roots), provider());
        Ok(Self {
            server: server.build().map_err(|e| e.to_string())?,
            client: client_verifier(roots).map_err(|e| e.to_string())?,
        })
    }

    /// Whether a client that connects to any of `hosts`, or to localhost, accepts it.
    fn accepts_server(&self, server: &Issued, hosts: &[String]) -> bool {
        let Ok(chain) = chain(&server.certificate) else { return false };
        let Some((own, rest)) = chain.split_first() else { return false };
        hosts.iter().map(String::as_str).chain(["localhost"]).all(|host| {
            let Ok(name) = ServerName::try_from(host) else { return false };
            self.server.verify_server_cert(own, rest, &name, &[], UnixTime::now()).is_ok()
        })
    }

    fn accepts_client(&self, client: &Issued) -> bool {
        let Ok(chain) = chain(&client.certificate) else { return false };
        let Some((own, rest)) = chain.split_first() else { return false };
        self.client.verify_client_cert(own, rest, UnixTime::now()).is_ok()
    }
}

/// The files of a directory.
struct Files<'a> {
    dir: &'a Path,
}

impl Files<'_> {
    fn damaged(&self, name: &str, why: String, remedy: &'static str) -> CredentialsError {
        CredentialsError::Damaged { path: self.dir.join(name), why, remedy }
    }

    /// Text of a file; `None`: it isn't there.
    fn read(&self, name: &str, remedy: &'static str) -> Result<Option<String>, CredentialsError> {
        match std::fs::read(self.dir.join(name)) {
            Ok(bytes) => String::from_utf8(bytes)
                .map(Some)
                .map_err(|_| self.damaged(name, "it is not text".to_owned(), remedy)),
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(source) => Err(CredentialsError::File { path: self.dir.join(name), source }),
        }
    }

    fn write(&self, name: &str, text: &str) -> Result<(), CredentialsError> {
        let path = self.dir.join(name);
        private::write(&path, text).map_err(|source| CredentialsError::File { path, source })
    }

    fn remove(&self, name: &str) -> Result<(), CredentialsError> {
        let path = self.dir.join(name);
        private::remove_if_there(&path).map_err(|source| CredentialsError::File { path, source })
    }

    fn token(&self) -> Result<Option<String>, CredentialsError> {
        let Some(text) = self.read(TOKEN, REMOVE)? else { return Ok(None) };
        let token = text.trim();
        if token.is_empty() || !token.bytes().all(|b| b.is_ascii_graphic() && b != b'"' && b != b'\\') {
            return Err(self.damaged(TOKEN, "it is no bearer token".to_owned(), REMOVE));
        }
        Ok(Some(token.to_owned()))
    }

    /// The certificate of the authority and, where its key was kept, the authority. A key alone is what an unfinished
    /// start left.
    fn authority(&self) -> Result<(Option<String>, Option<Authority>), CredentialsError> {
        let Some(certificate) = self.read(CA.certificate, RESTORE_CA)? else { return Ok((None, None)) };
        let der = chain(&certificate).map_err(|why| self.damaged(CA.certificate, why, RESTORE_CA))?;
        let Some(own) = der.first() else { return Ok((None, None)) };
        let Some(pem) = self.read(CA.key, RESTORE_CA)? else { return Ok((Some(certificate), None)) };
        let broken = |why| self.damaged(CA.key, why, RESTORE_CA);
        PrivateKeyDer::from_pem_slice(pem.as_bytes()).map_err(|e| broken(pem_error(&e)))?;
        check_key(&pem).map_err(|e| broken(e.to_string()))?;
        let authority = Authority::load(&certificate, &pem)
            .map_err(|e| self.damaged(CA.certificate, e.to_string(), RESTORE_CA))?;
        if !is_key_of(own, &authority.public_key()) {
            return Err(broken(format!("it is not the key of {}", CA.certificate)));
        }
        Ok((Some(certificate), Some(authority)))
    }

    fn trust(&self, ca: &str) -> Result<Trust, CredentialsError> {
        Trust::of(ca).map_err(|why| self.damaged(CA.certificate, why, RESTORE_CA))
    }

    /// A certificate with its key; `None` if either is missing.
    fn pair(&self, pair: Pair) -> Result<Option<Issued>, CredentialsError> {
        let (certificate, key) = (self.read(pair.certificate, REMOVE)?, self.read(pair.key, REMOVE)?);
        let (Some(certificate), Some(key)) = (certificate, key) else { return Ok(None) };
        let der = chain(&certificate).map_err(|why| self.damaged(pair.certificate, why, REMOVE))?;
        let broken = |why| self.damaged(pair.key, why, REMOVE);
        let private = PrivateKeyDer::from_pem_slice(key.as_bytes()).map_err(|e| broken(pem_error(&e)))?;
        let signer = provider().key_provider.load_private_key(private).map_err(|e| broken(e.to_string()))?;
        if let (Some(own), Some(public)) = (der.first(), signer.public_key())
            && !is_key_of(own, &public)
        {
            return Err(broken(format!("it is not the key of {}", pair.certificate)));
        }
        Ok(Some(Issued { certificate, key }))
    }

    /// Issues what is missing.
    fn complete(
        &self,
        authority: &Authority,
        server_pair: Option<Issued>,
        admin_pair: Option<Issued>,
        hosts: &[String],
        token: String,
    ) -> Result<Credentials, CredentialsError> {
        let issued =
            |there: Option<Issued>, pair: Pair, new: &dyn Fn() -> Result<Issued, CredentialsError>| {
                if let Some(there) = there {
                    return Ok(there);
                }
                let new = new()?;
                self.remove(pair.certificate)?;
                self.write(pair.key, &new.key)?;
                self.write(pair.certificate, &new.certificate)?;
                Ok::<_, CredentialsError>(new)
            };
        let server = issued(server_pair, SERVER, &|| server(authority, hosts))?;
        let admin = issued(admin_pair, ADMIN, &|| admin(authority))?;
        Credentials::of(authority.certificate().to_owned(), server, admin, token).behind(Some(authority))
    }
}

/// Whether a public key (SubjectPublicKeyInfo) is that of a certificate.
fn is_key_of(certificate: &CertificateDer<'_>, public: &[u8]) -> bool {
    x509_parser::parse_x509_certificate(certificate)
        .is_ok_and(|(_, c)| c.tbs_certificate.subject_pki.raw == public)
}

#[cfg(test)]
mod tests;

//! Credentials: the laptop's own certificate authority, the server's certificate, the administrator's
//! certificate and token, and the kubeconfig that carries them.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use rand::RngExt;
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};
use rustls::RootCertStore;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use sha2::{Digest, Sha256};

use crate::auth::PeerCertificate;

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

/// Why credentials could not be made or read.
#[derive(Debug, thiserror::Error)]
pub enum CredentialsError {
    /// A file.
    #[error("{path}: {source}")]
    File {
        /// Its path.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// A certificate or key.
    #[error("certificates: {0}")]
    Certificate(#[from] rcgen::Error),
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
}

impl std::fmt::Debug for Credentials {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Credentials").field("ca", &self.ca).finish_non_exhaustive()
    }
}

const FILES: [&str; 6] = ["ca.crt", "server.crt", "server.key", "admin.crt", "admin.key", "token"];

impl Credentials {
    /// New credentials, good for `hosts` besides the usual local names.
    ///
    /// # Errors
    /// Key generation failed.
    pub fn generate(hosts: &[String]) -> Result<Self, CredentialsError> {
        let ca_key = KeyPair::generate()?;
        let mut params = CertificateParams::new(Vec::<String>::new())?;
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
        params.distinguished_name.push(DnType::CommonName, "plimsoll-ca");
        let ca = params.self_signed(&ca_key)?.pem();
        let issuer = Issuer::new(params, ca_key);

        let mut names: Vec<String> = NAMES.iter().map(|n| (*n).to_owned()).collect();
        names.extend(hosts.iter().filter(|h| !NAMES.contains(&h.as_str())).cloned());
        let server_key = KeyPair::generate()?;
        let mut params = CertificateParams::new(names)?;
        params.distinguished_name.push(DnType::CommonName, "plimsoll-apiserver");
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        let server_certificate = params.signed_by(&server_key, &issuer)?.pem();

        let client_key = KeyPair::generate()?;
        let mut params = CertificateParams::new(Vec::<String>::new())?;
        params.distinguished_name.push(DnType::CommonName, "admin");
        params.distinguished_name.push(DnType::OrganizationName, crate::auth::MASTERS);
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        let client_certificate = params.signed_by(&client_key, &issuer)?.pem();

        let secret: [u8; 24] = rand::rng().random();
        Ok(Self {
            ca,
            server_certificate,
            server_key: server_key.serialize_pem(),
            client_certificate,
            client_key: client_key.serialize_pem(),
            token: secret.iter().map(|b| format!("{b:02x}")).collect(),
        })
    }

    /// The credentials in a directory, made if they aren't there. Only the owner can read them.
    ///
    /// # Errors
    /// The directory can't be used.
    pub fn load_or_create(dir: &Path, hosts: &[String]) -> Result<Self, CredentialsError> {
        let path = |name: &str| dir.join(name);
        let file = |path: PathBuf| move |source| CredentialsError::File { path, source };
        if FILES.iter().all(|f| path(f).exists()) {
            let read = |name: &str| std::fs::read_to_string(path(name)).map_err(file(path(name)));
            return Ok(Self {
                ca: read("ca.crt")?,
                server_certificate: read("server.crt")?,
                server_key: read("server.key")?,
                client_certificate: read("admin.crt")?,
                client_key: read("admin.key")?,
                token: read("token")?.trim().to_owned(),
            });
        }
        let new = Self::generate(hosts)?;
        std::fs::create_dir_all(dir).map_err(file(dir.to_owned()))?;
        let contents = [
            &new.ca,
            &new.server_certificate,
            &new.server_key,
            &new.client_certificate,
            &new.client_key,
            &new.token,
        ];
        for (name, text) in FILES.iter().zip(contents) {
            write_private(&path(name), text).map_err(file(path(name)))?;
        }
        Ok(new)
    }

    /// Settings of a TLS listener: our certificate, and client certificates of our authority if they are sent.
    ///
    /// # Errors
    /// The certificates can't be used.
    pub fn tls(&self) -> Result<Arc<rustls::ServerConfig>, CredentialsError> {
        let bad = |e: &dyn std::fmt::Display| CredentialsError::Tls(e.to_string());
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut roots = RootCertStore::empty();
        for der in CertificateDer::pem_slice_iter(self.ca.as_bytes()) {
            roots.add(der.map_err(|e| bad(&e))?).map_err(|e| bad(&e))?;
        }
        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider))
            .allow_unauthenticated()
            .build()
            .map_err(|e| bad(&e))?;
        let chain: Vec<CertificateDer<'static>> =
            CertificateDer::pem_slice_iter(self.server_certificate.as_bytes())
                .collect::<Result<_, _>>()
                .map_err(|e| bad(&e))?;
        let key = PrivateKeyDer::from_pem_slice(self.server_key.as_bytes()).map_err(|e| bad(&e))?;
        let mut config = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|e| bad(&e))?
            .with_client_cert_verifier(verifier)
            .with_single_cert(chain, key)
            .map_err(|e| bad(&e))?;
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Ok(Arc::new(config))
    }

    /// A kubeconfig for a server at `url` (`https://127.0.0.1:6443`).
    pub fn kubeconfig(&self, url: &str) -> String {
        let b64 = |text: &str| BASE64_STANDARD.encode(text);
        format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: plimsoll\npreferences: {{}}\nclusters:\n\
             - name: plimsoll\n  cluster:\n    server: {url}\n    certificate-authority-data: {}\n\
             contexts:\n- name: plimsoll\n  context:\n    cluster: plimsoll\n    user: plimsoll-admin\n\
             users:\n- name: plimsoll-admin\n  user:\n    client-certificate-data: {}\n    client-key-data: {}\n    \
             token: {}\n",
            b64(&self.ca),
            b64(&self.client_certificate),
            b64(&self.client_key),
            self.token
        )
    }
}

/// Writes a file that only its owner can read, replacing what is there.
///
/// # Errors
/// As of the file system.
pub fn write_private(path: &Path, text: &str) -> std::io::Result<()> {
    use std::io::Write;
    let mut options = std::fs::OpenOptions::new();
    options.write(true).create(true).truncate(true);
    #[cfg(unix)]
    {
        use std::os::unix::fs::OpenOptionsExt;
        options.mode(0o600);
    }
    let mut file = options.open(path)?;
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        file.set_permissions(std::fs::Permissions::from_mode(0o600))?;
    }
    file.write_all(text.as_bytes())
}

/// The subject of a certificate that has been verified.
pub fn peer(certificate: &CertificateDer<'_>) -> PeerCertificate {
    let (common_name, organizations) = subject(certificate).unwrap_or_default();
    let fingerprint = Sha256::digest(certificate).iter().map(|b| format!("{b:02x}")).collect();
    PeerCertificate { common_name, organizations, fingerprint }
}

const COMMON_NAME: &[u8] = &[0x55, 0x04, 0x03];
const ORGANIZATION: &[u8] = &[0x55, 0x04, 0x0a];
const SEQUENCE: u8 = 0x30;
const SET: u8 = 0x31;
const OID: u8 = 0x06;
const VERSION: u8 = 0xa0;

/// One element of DER: tag, contents, what follows.
fn element(der: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (&tag, rest) = der.split_first()?;
    let (&first, rest) = rest.split_first()?;
    let (length, rest) = if first < 0x80 {
        (usize::from(first), rest)
    } else {
        let count = usize::from(first & 0x7f);
        if count == 0 || count > 4 || rest.len() < count {
            return None;
        }
        let (digits, rest) = rest.split_at(count);
        (digits.iter().fold(0, |n, d| (n << 8) | usize::from(*d)), rest)
    };
    (rest.len() >= length).then(|| {
        let (contents, rest) = rest.split_at(length);
        (tag, contents, rest)
    })
}

/// Common name and organizations of a certificate's subject.
fn subject(der: &[u8]) -> Option<(String, Vec<String>)> {
    let (_, certificate, _) = element(der)?;
    let (_, mut fields, _) = element(certificate)?;
    if fields.first() == Some(&VERSION) {
        (_, _, fields) = element(fields)?;
    }
    // Serial number, algorithm, issuer, validity come before the subject.
    for _ in 0..4 {
        (_, _, fields) = element(fields)?;
    }
    let (tag, mut names, _) = element(fields)?;
    if tag != SEQUENCE {
        return None;
    }
    let (mut common_name, mut organizations) = (String::new(), Vec::new());
    while !names.is_empty() {
        let (tag, set, rest) = element(names)?;
        names = rest;
        if tag != SET {
            return None;
        }
        let (_, pair, _) = element(set)?;
        let (tag, oid, value) = element(pair)?;
        let (_, text, _) = element(value)?;
        let text = String::from_utf8_lossy(text).into_owned();
        match (tag, oid) {
            (OID, COMMON_NAME) => common_name = text,
            (OID, ORGANIZATION) => organizations.push(text),
            _ => {}
        }
    }
    Some((common_name, organizations))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_administrators_certificate_says_who_it_is() {
        let credentials = Credentials::generate(&[]).unwrap();
        let der = CertificateDer::from_pem_slice(credentials.client_certificate.as_bytes()).unwrap();
        let peer = peer(&der);
        assert_eq!(peer.common_name, "admin");
        assert_eq!(peer.organizations, ["system:masters"]);
        assert_eq!(peer.fingerprint.len(), 64);
        credentials.tls().unwrap();
    }

    #[test]
    fn broken_certificates_are_nobodys() {
        for bytes in [&[][..], &[0x30], &[0x30, 0x84, 0xff, 0xff, 0xff, 0xff], &[0x30, 0x02, 0x30, 0x00]] {
            assert_eq!(subject(bytes), None);
        }
    }
}

//! Certificate authorities of our own, what they issue, and TLS settings with it. Certificates and keys are PEM.

use std::sync::Arc;
use std::time::Duration;

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};
use rustls::RootCertStore;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::ClientCertVerifier;

pub use rcgen::Error;

/// Clocks of others may be behind: certificates are valid from a little earlier on.
pub const EARLIER: Duration = Duration::from_secs(3600);

/// A certificate and its key.
pub struct Issued {
    /// The certificate.
    pub certificate: String,
    /// Its key.
    pub key: String,
}

/// Subject and time of a certificate.
pub struct Subject<'a> {
    /// Common name.
    pub common_name: &'a str,
    /// Organization, if any.
    pub organization: Option<&'a str>,
    /// From when on it is valid, since the epoch, and for how long. `None`: from 1975 to 4096.
    pub valid: Option<(Duration, Duration)>,
}

impl Subject<'_> {
    fn params(&self, names: Vec<String>) -> Result<CertificateParams, Error> {
        let mut params = CertificateParams::new(names)?;
        params.distinguished_name.push(DnType::CommonName, self.common_name);
        if let Some(organization) = self.organization {
            params.distinguished_name.push(DnType::OrganizationName, organization);
        }
        if let Some((from, life)) = self.valid {
            let epoch = rcgen::date_time_ymd(1970, 1, 1);
            params.not_before = epoch + from.saturating_sub(EARLIER);
            params.not_after = epoch + (from + life);
        }
        Ok(params)
    }
}

/// A certificate authority.
pub struct Authority {
    certificate: String,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    /// A new authority.
    ///
    /// # Errors
    /// Key generation failed.
    pub fn generate(subject: &Subject<'_>) -> Result<Self, Error> {
        let key = KeyPair::generate()?;
        let mut params = subject.params(Vec::new())?;
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
        let certificate = params.self_signed(&key)?.pem();
        Ok(Self { certificate, issuer: Issuer::new(params, key) })
    }

    /// An authority that was made before.
    ///
    /// # Errors
    /// The certificate or its key can't be used.
    pub fn load(certificate: &str, key: &str) -> Result<Self, Error> {
        let issuer = Issuer::from_ca_cert_pem(certificate, KeyPair::from_pem(key)?)?;
        Ok(Self { certificate: certificate.to_owned(), issuer })
    }

    /// Its certificate.
    pub fn certificate(&self) -> &str {
        &self.certificate
    }

    /// Its key.
    pub fn key(&self) -> String {
        self.issuer.key().serialize_pem()
    }

    /// Its public key (SubjectPublicKeyInfo, DER).
    pub fn public_key(&self) -> Vec<u8> {
        rcgen::PublicKeyData::subject_public_key_info(self.issuer.key())
    }

    /// A serving certificate for these names and addresses.
    ///
    /// # Errors
    /// A name can't be put into a certificate, or key generation failed.
    pub fn server(&self, subject: &Subject<'_>, names: Vec<String>) -> Result<Issued, Error> {
        self.issue(subject.params(names)?, ExtendedKeyUsagePurpose::ServerAuth)
    }

    /// A client certificate.
    ///
    /// # Errors
    /// Key generation failed.
    pub fn client(&self, subject: &Subject<'_>) -> Result<Issued, Error> {
        self.issue(subject.params(Vec::new())?, ExtendedKeyUsagePurpose::ClientAuth)
    }

    fn issue(&self, mut params: CertificateParams, usage: ExtendedKeyUsagePurpose) -> Result<Issued, Error> {
        params.extended_key_usages = vec![usage];
        let key = KeyPair::generate()?;
        let certificate = params.signed_by(&key, &self.issuer)?.pem();
        Ok(Issued { certificate, key: key.serialize_pem() })
    }
}

/// Whether certificates can be signed with a key.
///
/// # Errors
/// Why not.
pub fn check_key(key: &str) -> Result<(), Error> {
    KeyPair::from_pem(key).map(drop)
}

/// The cryptography that TLS runs on.
pub fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

/// What verifies client certificates of the authorities in these bundles, where a certificate is shown; `None`: there is no
/// authority.
///
/// # Errors
/// A bundle can't be read.
pub fn client_verifier(bundles: &[&str]) -> Result<Option<Arc<dyn ClientCertVerifier>>, String> {
    let mut roots = RootCertStore::empty();
    for bundle in bundles {
        for certificate in CertificateDer::pem_slice_iter(bundle.as_bytes()) {
            roots.add(certificate.map_err(|e| e.to_string())?).map_err(|e| e.to_string())?;
        }
    }
    if roots.is_empty() {
        return Ok(None);
    }
    let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider());
    verifier.allow_unauthenticated().build().map(Some).map_err(|e| e.to_string())
}

/// TLS settings of a server: HTTP/2 and HTTP/1.1, and `clients` to verify client certificates with where they are sent.
///
/// # Errors
/// The certificate or its key can't be used.
pub fn server_config(
    certificate: &str,
    key: &str,
    clients: Option<Arc<dyn ClientCertVerifier>>,
) -> Result<Arc<rustls::ServerConfig>, String> {
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(certificate.as_bytes()).collect();
    let chain = chain.map_err(|e| e.to_string())?;
    let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).map_err(|e| e.to_string())?;
    let config = rustls::ServerConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .map_err(|e| e.to_string())?;
    let config = match clients {
        Some(clients) => config.with_client_cert_verifier(clients),
        None => config.with_no_client_auth(),
    };
    let mut config = config.with_single_cert(chain, key).map_err(|e| e.to_string())?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}

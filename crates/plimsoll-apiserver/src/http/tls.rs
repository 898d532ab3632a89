//! The client at the other end of a TLS connection.

pub use super::credentials::{Credentials, CredentialsError};
pub use plimsoll_client::https::subject::peer;

#[cfg(test)]
mod tests {
    use super::*;
    use rustls::pki_types::CertificateDer;
    use rustls::pki_types::pem::PemObject;

    #[test]
    fn the_administrators_certificate_says_who_it_is() {
        let credentials = Credentials::generate(&[]).unwrap();
        let der = CertificateDer::from_pem_slice(credentials.client_certificate.as_bytes()).unwrap();
        let peer = peer(&der).unwrap();
        assert_eq!(peer.common_name, "admin");
        assert_eq!(peer.organizations, ["system:masters"]);
        assert_eq!(peer.fingerprint.len(), 64);
        credentials.tls().unwrap();
    }
}

//! Certificates of the webhook server: our own authority and a server certificate, kept in a Secret that all replicas
//! share, and renewed long before they end.

use std::sync::Arc;
use std::time::Duration;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use plimsoll_api::json;
use plimsoll_client::certificates::{self, Authority, EARLIER, Issued, Subject, server_config};
use plimsoll_state::Time;
use rustls::server::danger::ClientCertVerifier;
use serde_json::{Value, json};

use crate::api::{Api, Resource};
use crate::clock;

const SECRETS: Resource = Resource { api_version: "v1", plural: "secrets", kind: "Secret" };
const NAMESPACES: Resource = crate::api::NAMESPACES;
/// When the server's certificate is renewed.
const RENEW: &str = "plimsoll.dev/renew-after";
/// When the authority is renewed.
const RENEW_CA: &str = "plimsoll.dev/renew-authority-after";
/// For which names and addresses the certificate is.
const HOSTS: &str = "plimsoll.dev/hosts";
/// The authority: ten years, renewed after nine.
const CA_LIFE: (Duration, Duration) = (days(3650), days(3285));
/// The server: a year, renewed after nine months (Kueue's rotator: 90 days before the end).
const SERVER_LIFE: (Duration, Duration) = (days(365), days(275));
/// Tries when several replicas make certificates at once.
const CONFLICTS: u32 = 8;

const fn days(n: u64) -> Duration {
    Duration::from_secs(n * 86_400)
}

/// What a server needs, and what others need to trust it. PEM.
#[derive(Clone, PartialEq, Eq)]
pub struct Certs {
    /// Authorities to trust: the present one first, then the one before it.
    pub bundle: String,
    ca_key: String,
    certificate: String,
    key: String,
    hosts: String,
    renew: Time,
    renew_ca: Time,
}

impl std::fmt::Debug for Certs {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Certs").field("bundle", &self.bundle).finish_non_exhaustive()
    }
}

/// Why there are no certificates.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// They could not be made.
    #[error("certificates: {0}")]
    Make(#[from] certificates::Error),
    /// They could not be used.
    #[error("TLS: {0}")]
    Tls(String),
    /// The Secret could not be read or written.
    #[error("secret {0}: {1}")]
    Secret(String, crate::api::Error),
}

fn after(at: Time, more: Duration) -> Time {
    Time(at.0.saturating_add(i64::try_from(more.as_nanos()).unwrap_or(i64::MAX)))
}

/// A subject whose certificate is valid from now on.
fn subject<'a>(
    common_name: &'a str,
    organization: Option<&'a str>,
    now: Time,
    life: Duration,
) -> Subject<'a> {
    let now = Duration::from_nanos(u64::try_from(now.0).unwrap_or(0));
    Subject { common_name, organization, valid: Some((now, life)) }
}

/// The first certificate of a bundle.
fn first(bundle: &str) -> &str {
    const END: &str = "-----END CERTIFICATE-----\n";
    bundle.find(END).and_then(|i| bundle.get(..i + END.len())).unwrap_or(bundle)
}

impl Certs {
    /// New certificates for `hosts`; clients that still trust only the authority before are told of both.
    fn with_new_authority(hosts: &[String], now: Time, before: Option<&Self>) -> Result<Self, Error> {
        // Two authorities of one name confuse clients that look them up by name.
        let organization = now.0.to_string();
        let subject = subject("plimsoll-webhook-ca", Some(&organization), now, CA_LIFE.0);
        let authority = Authority::generate(&subject)?;
        let ca = authority.certificate();
        let bundle = format!("{ca}{}", before.map_or("", |b| first(&b.bundle)));
        Self::signed(bundle, authority.key(), after(now, CA_LIFE.1), hosts, now)
    }

    fn signed(
        bundle: String,
        ca_key: String,
        renew_ca: Time,
        hosts: &[String],
        now: Time,
    ) -> Result<Self, Error> {
        let authority = Authority::load(first(&bundle), &ca_key)?;
        let subject = subject("plimsoll-webhook", None, now, SERVER_LIFE.0);
        let Issued { certificate, key } = authority.server(&subject, hosts.to_vec())?;
        let hosts = hosts.join(",");
        Ok(Self { bundle, ca_key, certificate, key, hosts, renew: after(now, SERVER_LIFE.1), renew_ca })
    }

    /// These certificates, or what replaces them: a new server certificate from the same authority, or all new.
    fn renewed(present: Option<&Self>, hosts: &[String], now: Time) -> Result<Option<Self>, Error> {
        let Some(old) = present else { return Self::with_new_authority(hosts, now, None).map(Some) };
        // Made by a clock that was ahead, and not valid yet (Kueue's rotator verifies the chain).
        let ahead = |renew: Time, life: Duration| renew > after(now, life + EARLIER);
        if now >= old.renew_ca || ahead(old.renew_ca, CA_LIFE.1) || old.config().is_err() {
            return Self::with_new_authority(hosts, now, Some(old)).map(Some);
        }
        // Other replicas may serve other names: all of them stay.
        let known: Vec<&str> = old.hosts.split(',').collect();
        let missing = hosts.iter().filter(|h| !known.contains(&h.as_str()));
        let all: Vec<String> = known.iter().map(|h| (*h).to_owned()).chain(missing.cloned()).collect();
        if now < old.renew && !ahead(old.renew, SERVER_LIFE.1) && all.len() == known.len() {
            return Ok(None);
        }
        match Self::signed(old.bundle.clone(), old.ca_key.clone(), old.renew_ca, &all, now) {
            Ok(new) => Ok(Some(new)),
            // The authority in the Secret is of no use.
            Err(_) => Self::with_new_authority(hosts, now, None).map(Some),
        }
    }

    /// Settings of a TLS listener.
    ///
    /// # Errors
    /// The certificate or its key can't be used.
    pub fn config(&self) -> Result<Arc<rustls::ServerConfig>, Error> {
        self.config_for(None)
    }

    /// As [`Certs::config`], with what verifies the certificates of clients that show one.
    ///
    /// # Errors
    /// As there.
    pub fn config_for(
        &self,
        clients: Option<Arc<dyn ClientCertVerifier>>,
    ) -> Result<Arc<rustls::ServerConfig>, Error> {
        server_config(&self.certificate, &self.key, clients).map_err(Error::Tls)
    }

    /// Whether a client that trusts these trusts a server that still has the `old` ones.
    pub fn trusts(&self, old: &Self) -> bool {
        self.bundle.contains(first(&old.bundle))
    }

    fn read(secret: &Value) -> Option<Self> {
        let data = |key: &str| -> Option<String> {
            let bytes = BASE64_STANDARD.decode(secret["data"][key].as_str()?).ok()?;
            String::from_utf8(bytes).ok().filter(|t| !t.is_empty())
        };
        let time = |key: &str| clock::parse(json::annotation(secret, key)?);
        Some(Self {
            bundle: data("ca.crt")?,
            ca_key: data("ca.key")?,
            certificate: data("tls.crt")?,
            key: data("tls.key")?,
            hosts: json::annotation(secret, HOSTS)?.to_owned(),
            renew: time(RENEW)?,
            renew_ca: time(RENEW_CA)?,
        })
    }

    fn write(&self, secret: &mut Value) {
        let encode = |text: &str| json!(BASE64_STANDARD.encode(text));
        for (key, text) in [
            ("ca.crt", &self.bundle),
            ("ca.key", &self.ca_key),
            ("tls.crt", &self.certificate),
            ("tls.key", &self.key),
        ] {
            json::set(secret, &["data", key], encode(text));
        }
        let annotations = [
            (HOSTS, self.hosts.clone()),
            (RENEW, clock::text(self.renew)),
            (RENEW_CA, clock::text(self.renew_ca)),
        ];
        for (key, text) in annotations {
            json::set(secret, &["metadata", "annotations", key], json!(text));
        }
    }
}

/// The certificates in the Secret, made or renewed when they have to be.
///
/// # Errors
/// When the Secret can be neither read nor written.
pub async fn ensure(api: &Api, namespace: &str, name: &str, hosts: &[String]) -> Result<Certs, Error> {
    let failed = |e: crate::api::Error| Error::Secret(format!("{namespace}/{name}"), e);
    let mut tries = 0;
    loop {
        tries += 1;
        let present = match api.get(SECRETS, namespace, name).await {
            Ok(secret) => Some(secret),
            Err(e) if e.is_not_found() => None,
            Err(e) => return Err(failed(e)),
        };
        let old = present.as_ref().and_then(Certs::read);
        let certs = match (Certs::renewed(old.as_ref(), hosts, clock::now())?, old) {
            (None, Some(old)) => return Ok(old),
            (Some(new), _) => new,
            (None, None) => continue,
        };
        let written = match present {
            Some(mut secret) => {
                certs.write(&mut secret);
                api.replace(SECRETS, &secret).await
            }
            None => {
                let mut secret = json!({"apiVersion": "v1", "kind": "Secret", "type": "Opaque",
                                        "metadata": {"namespace": namespace, "name": name}});
                certs.write(&mut secret);
                api.create(SECRETS, &secret).await
            }
        };
        match written {
            Ok(_) => return Ok(certs),
            // Another replica was faster: take what it made.
            Err(e) if e.is_conflict() && tries < CONFLICTS => {}
            Err(e) if e.is_not_found() && tries < CONFLICTS => {
                let own = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}});
                match api.create(NAMESPACES, &own).await {
                    Err(e) if !e.is_conflict() => return Err(failed(e)),
                    _ => {}
                }
            }
            Err(e) => return Err(failed(e)),
        }
    }
}

#[cfg(test)]
mod tests {
    use rustls::pki_types::CertificateDer;
    use rustls::pki_types::pem::PemObject;

    use super::*;

    fn hosts(names: &[&str]) -> Vec<String> {
        names.iter().map(|n| (*n).to_owned()).collect()
    }

    /// Whether a client that trusts `bundle` accepts the server as `name` at `now`.
    fn trusted(bundle: &str, certs: &Certs, name: &str, now: Time) -> Result<(), String> {
        use rustls::client::danger::ServerCertVerifier;
        let mut roots = rustls::RootCertStore::empty();
        for der in CertificateDer::pem_slice_iter(bundle.as_bytes()) {
            roots.add(der.unwrap()).unwrap();
        }
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let verifier = rustls::client::WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider)
            .build()
            .unwrap();
        let leaf = CertificateDer::from_pem_slice(certs.certificate.as_bytes()).unwrap();
        let at = rustls::pki_types::UnixTime::since_unix_epoch(Duration::from_nanos(now.0 as u64));
        let name = rustls::pki_types::ServerName::try_from(name.to_owned()).unwrap();
        verifier.verify_server_cert(&leaf, &[], &name, &[], at).map(drop).map_err(|e| e.to_string())
    }

    #[test]
    fn certificates_of_a_clock_that_was_ahead_are_replaced() {
        let now = Time(1_800_000_000_000_000_000);
        let names = ["a".to_owned()];
        let renewed =
            |old: Option<&Certs>, now: Time| Certs::renewed(old, &names, now).expect("certificates");
        let first = renewed(None, now).expect("the first");
        for ahead in [280, 3300] {
            let early = renewed(Some(&first), after(now, days(ahead))).expect("early ones");
            let right = renewed(Some(&early), now).expect("ones that are valid now");
            assert_eq!(renewed(Some(&right), now), None, "{ahead} days ahead");
        }
        // Clocks of replicas differ.
        assert_eq!(renewed(Some(&renewed(None, after(now, EARLIER)).expect("the first")), now), None);
    }

    #[test]
    fn they_are_renewed_in_time_and_stay_trusted() {
        let now = clock::now();
        let names = hosts(&["127.0.0.1", "a.b.svc"]);
        let first = Certs::renewed(None, &names, now).unwrap().unwrap();
        for name in ["127.0.0.1", "a.b.svc"] {
            trusted(&first.bundle, &first, name, now).unwrap();
        }
        assert!(trusted(&first.bundle, &first, "c.b.svc", now).is_err());
        assert_eq!(Certs::renewed(Some(&first), &names, now).unwrap(), None, "good as they are");

        let later = after(now, days(280));
        let second = Certs::renewed(Some(&first), &names, later).unwrap().unwrap();
        assert_eq!(second.bundle, first.bundle, "the authority stays");
        trusted(&first.bundle, &second, "a.b.svc", after(now, days(500))).unwrap();
        assert!(trusted(&first.bundle, &first, "a.b.svc", after(now, days(500))).is_err());

        let late = after(now, days(3300));
        let third = Certs::renewed(Some(&second), &names, late).unwrap().unwrap();
        assert_ne!(third.bundle, second.bundle);
        assert!(third.trusts(&second) && !second.trusts(&third));
        trusted(&third.bundle, &third, "a.b.svc", late).unwrap();
        // A replica that still serves the old certificate is trusted by the new bundle.
        let fourth = Certs::renewed(Some(&first), &names, after(now, days(3200))).unwrap().unwrap();
        trusted(&third.bundle, &fourth, "a.b.svc", late).unwrap();
    }

    #[test]
    fn another_name_is_added() {
        let now = clock::now();
        let one = Certs::renewed(None, &hosts(&["a"]), now).unwrap().unwrap();
        let two = Certs::renewed(Some(&one), &hosts(&["b"]), now).unwrap().unwrap();
        for name in ["a", "b"] {
            trusted(&one.bundle, &two, name, now).unwrap();
        }
        assert_eq!(Certs::renewed(Some(&two), &hosts(&["a"]), now).unwrap(), None);
    }

    #[test]
    fn a_secret_keeps_them_and_a_broken_one_is_replaced() {
        let certs = Certs::renewed(None, &hosts(&["a"]), Time(1_800_000_000_000_000_000)).unwrap().unwrap();
        let mut secret = json!({"metadata": {"name": "s"}});
        certs.write(&mut secret);
        assert_eq!(Certs::read(&secret), Some(certs));
        assert_eq!(Certs::read(&json!({"metadata": {}})), None, "as the manifests make it");
        secret["data"]["tls.key"] = json!(BASE64_STANDARD.encode("nonsense"));
        let broken = Certs::read(&secret).unwrap();
        assert!(Certs::renewed(Some(&broken), &hosts(&["a"]), Time(0)).unwrap().is_some());
    }
}

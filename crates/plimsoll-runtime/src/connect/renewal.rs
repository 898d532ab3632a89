//! Client certificates in files, which are replaced before they expire.

#[cfg(test)]
mod tests;

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use kube::Config;
use tokio::time::Instant;

use super::{Http, service};

/// How often the files are read again. kube does so with files of tokens and authorities; client-go waits for five minutes
/// (`CertCallbackRefreshDuration` in k8s.io/client-go/transport/cert_rotation.go).
const REFRESH: Duration = Duration::from_secs(60);

/// Connections with the client certificate of a configuration as it is now.
pub(super) struct Renewed {
    config: Config,
    state: Mutex<State>,
}

struct State {
    http: Http,
    identity: Identity,
    read: Instant,
}

/// A certificate and its key, as far as they are in files.
#[derive(PartialEq, Eq)]
struct Identity([Option<Vec<u8>>; 2]);

impl Identity {
    fn read(config: &Config) -> Self {
        let auth = &config.auth_info;
        Self([&auth.client_certificate, &auth.client_key].map(|path| std::fs::read(path.as_ref()?).ok()))
    }
}

impl Renewed {
    pub(super) fn new(config: Config) -> Result<Self, kube::Error> {
        // First: whatever changes meanwhile is read again.
        let identity = Identity::read(&config);
        let state = State { http: service(&config)?, identity, read: Instant::now() };
        Ok(Self { config, state: Mutex::new(state) })
    }

    /// Where to send a request. Connections with a certificate that was replaced end with the requests on them: an API server
    /// refuses requests when the certificate of their connection has expired.
    pub(super) fn http(&self) -> Http {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let auth = &self.config.auth_info;
        let has_files = auth.client_certificate.is_some() || auth.client_key.is_some();
        if has_files && state.read.elapsed() >= REFRESH {
            state.read = Instant::now();
            self.refresh(&mut state);
        }
        state.http.clone()
    }

    fn refresh(&self, state: &mut State) {
        let identity = Identity::read(&self.config);
        if identity == state.identity {
            return;
        }
        match service(&self.config) {
            Ok(http) => {
                tracing::info!("Certificate rotation detected, new connections use the new credentials");
                (state.http, state.identity) = (http, identity);
            }
            // The certificate may have been written, and the key not yet.
            Err(e) => tracing::warn!(err = %e, "the new client certificate can't be used yet"),
        }
    }
}

//! Connections with credentials that are renewed: client certificates and tokens in files are read again, and credential plugins run
//! again.

#[cfg(test)]
mod tests;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::Incoming;
use kube::Config;
use kube::config::ExecConfig;
use tokio::time::Instant;
use tower::{BoxError, ServiceExt as _};

use super::credentials::{self, Credentials};
use super::{Http, service};

/// How often the files are read again. client-go does so with tokens (`NewCachedFileTokenSource` in
/// k8s.io/client-go/transport/token_source.go) and waits for five minutes with certificates (`CertCallbackRefreshDuration` in
/// cert_rotation.go beside it).
const REFRESH: Duration = Duration::from_secs(60);

/// Connections with the credentials of a configuration as they are now.
pub(super) struct Renewed {
    config: Config,
    exec: Option<ExecConfig>,
    state: Mutex<State>,
    /// Held while the plugin runs: once for all requests that need it.
    running: tokio::sync::Mutex<()>,
}

struct State {
    http: Http,
    credentials: Arc<Credentials>,
    /// When the files were read.
    read: Instant,
    /// Whether the server refused a request with these credentials.
    refused: bool,
}

/// Connections, and what they show.
type Current = (Http, Arc<Credentials>);

impl State {
    fn current(&self) -> Current {
        (self.http.clone(), Arc::clone(&self.credentials))
    }

    /// Makes the next connections with these credentials. Connections with a certificate that was replaced end with the requests on
    /// them: an API server refuses requests when the certificate of their connection has expired.
    fn show(&mut self, config: &Config, credentials: Credentials) -> Result<(), String> {
        if credentials != *self.credentials {
            self.http = connect(config, &credentials).map_err(|e| e.to_string())?;
            if !credentials.is_same_identity(&self.credentials) {
                tracing::info!("Certificate rotation detected, new connections use the new credentials");
            }
        }
        self.credentials = Arc::new(credentials);
        Ok(())
    }
}

/// # Errors
/// When configuration or credentials can't be used.
fn connect(config: &Config, credentials: &Credentials) -> Result<Http, kube::Error> {
    let bearer = credentials.bearer(&config.auth_info).map_err(invalid)?;
    service(&credentials.config(config), bearer)
}

fn invalid(why: String) -> kube::Error {
    kube::Error::Service(why.into())
}

impl Renewed {
    pub(super) fn new(config: Config) -> Result<Self, kube::Error> {
        let exec = credentials::plugin(&config.auth_info);
        let answer = exec.as_ref().map(credentials::run).transpose().map_err(invalid)?;
        // First: whatever changes meanwhile is read again.
        let credentials = Credentials::read(&config.auth_info, answer).map_err(invalid)?;
        let state = State {
            http: connect(&config, &credentials)?,
            credentials: Arc::new(credentials),
            read: Instant::now(),
            refused: false,
        };
        Ok(Self { config, exec, state: Mutex::new(state), running: tokio::sync::Mutex::default() })
    }

    /// Sends a request, and waits for the head of the answer.
    ///
    /// # Errors
    /// There are no credentials or no answer.
    pub(super) async fn send(
        self: &Arc<Self>,
        request: Request<Full<Bytes>>,
    ) -> Result<Response<Incoming>, BoxError> {
        let (http, shown) = match self.current() {
            Some(current) => current,
            // A task: the plugin runs on when this request is given up, and others wait for it.
            None => tokio::spawn(Arc::clone(self).renew()).await??,
        };
        let answer = http.oneshot(request).await?;
        if answer.status() == StatusCode::UNAUTHORIZED {
            self.refuse(&shown);
        }
        Ok(answer)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// `None`: the plugin has to run first, as in client-go after the end of its credentials and after they were refused.
    fn current(&self) -> Option<Current> {
        let mut state = self.state();
        let auth = &self.config.auth_info;
        if credentials::has_files(auth) && state.read.elapsed() >= REFRESH {
            state.read = Instant::now();
            let read = state.credentials.read_again(auth);
            // The certificate may have been written, and the key not yet.
            if let Err(e) = state.show(&self.config, read) {
                tracing::warn!(err = e, "the new credentials can't be used yet");
            }
        }
        let usable = !state.refused && !state.credentials.have_ended();
        usable.then(|| state.current())
    }

    fn refuse(&self, shown: &Arc<Credentials>) {
        let mut state = self.state();
        state.refused |= self.exec.is_some() && Arc::ptr_eq(&state.credentials, shown);
    }

    /// Runs the plugin, unless it has run for another request.
    async fn renew(self: Arc<Self>) -> Result<Current, String> {
        let _turn = self.running.lock().await;
        if let Some(current) = self.current() {
            return Ok(current);
        }
        let Some(exec) = self.exec.clone() else { return Err("there is no credential plugin".to_owned()) };
        let answer = tokio::task::spawn_blocking(move || credentials::run(&exec)).await;
        let answer = answer.unwrap_or_else(|e| Err(e.to_string()));
        let mut state = self.state();
        state.refused = false;
        let ended = state.credentials.have_ended();
        let renewed = answer.map(|answer| state.credentials.answered(answer));
        if let Err(why) = renewed.and_then(|credentials| state.show(&self.config, credentials)) {
            if ended {
                return Err(format!("getting credentials: {why}"));
            }
            tracing::error!(err = why, "refreshing credentials");
        }
        Ok(state.current())
    }
}

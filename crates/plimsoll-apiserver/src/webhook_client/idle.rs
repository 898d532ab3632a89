//! Connections to webhooks that wait for the next call, as kube-apiserver keeps clients of webhooks
//! (`ClientManager` of k8s.io/apiserver/pkg/util/webhook). A call without one pays for a handshake of TLS out of its timeout.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http_body_util::Full;
use hyper::client::conn::http1::SendRequest;
use rustls::ClientConfig;

/// Idle connections to one webhook (client-go's transport keeps as many for a host).
const MOST: usize = 25;
/// After so long a connection is not used again. Servers close idle ones themselves, Go's after 90 s or more.
const IDLE: Duration = Duration::from_secs(60);

/// The sending half of a connection.
pub(super) type Sender = SendRequest<Full<Bytes>>;

/// Where calls go and whom they trust: calls share connections when all of it is equal.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Endpoint {
    /// The name that the certificate is for.
    pub(super) host: String,
    /// Address.
    pub(super) address: String,
    /// Port.
    pub(super) port: u16,
    /// `caBundle`, in base64.
    pub(super) bundle: String,
}

struct Kept {
    tls: Arc<ClientConfig>,
    idle: Vec<(Sender, Instant)>,
    used: Instant,
}

/// The idle connections of one server.
#[derive(Default)]
pub struct Idle(Mutex<HashMap<Endpoint, Kept>>);

impl Idle {
    fn with<T>(&self, f: impl FnOnce(&mut HashMap<Endpoint, Kept>) -> T) -> T {
        f(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// The latest idle connection to an endpoint.
    pub(super) fn take(&self, endpoint: &Endpoint) -> Option<Sender> {
        let now = Instant::now();
        self.with(|all| {
            let kept = all.get_mut(endpoint)?;
            kept.idle.retain(|(sender, since)| !sender.is_closed() && now - *since < IDLE);
            kept.idle.pop().map(|(sender, _)| sender)
        })
    }

    /// The settings of TLS for an endpoint, made by `make` for the first connection: later ones resume its session.
    ///
    /// # Errors
    /// Those of `make`.
    pub(super) fn tls(
        &self,
        endpoint: &Endpoint,
        make: impl FnOnce() -> Result<Arc<ClientConfig>, String>,
    ) -> Result<Arc<ClientConfig>, String> {
        if let Some(tls) = self.with(|all| all.get(endpoint).map(|kept| Arc::clone(&kept.tls))) {
            return Ok(tls);
        }
        make()
    }

    /// Keeps a connection whose answer was read.
    pub(super) fn put(&self, endpoint: Endpoint, tls: Arc<ClientConfig>, sender: Sender) {
        let now = Instant::now();
        self.with(|all| {
            // Of webhooks whose configuration has changed or is gone.
            all.retain(|_, kept| now - kept.used < IDLE);
            let kept = all.entry(endpoint).or_insert_with(|| Kept { tls, idle: Vec::new(), used: now });
            kept.used = now;
            if kept.idle.len() < MOST {
                kept.idle.push((sender, now));
            }
        });
    }
}

//! The server: what its parts share.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use futures::future::BoxFuture;
use plimsoll_apimachinery::{Kind, KindTable, builtin};
use plimsoll_client::Clock;
use serde_json::Value;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::admission::charges::ChargesInFlight;
use crate::admission::hooks::{AdmissionHook, Hooks};
use crate::admission::plugins::Plugins;
use crate::admission::policies::Policies;
use crate::aggregation::remote::ProxyClient;
use crate::aggregation::table::Aggregation;
use crate::audit::Audit;
use crate::auth::impersonation::Impersonation;
use crate::auth::tokens::{self, ISSUER, Signer};
use crate::auth::{AuthConfig, Rbac, User};
use crate::convert::shared::Conversions;
use crate::custom::clean_ups::CleanUps;
use crate::flow::FlowControl;
use crate::logs::LogSource;
use crate::store::{Durability, Expected, Key, OpenError, Record, Store, StoreError};

/// Bodies of all requests under way, in KiB; further ones are told to come again.
const MAX_BODIES_KIB: usize = 512 << 10;

/// Settings of a server.
#[derive(Clone)]
pub struct ServerConfig {
    /// Where the journal and the credentials live; `None`: nothing is kept.
    pub data: Option<PathBuf>,
    /// When a write is acknowledged: after fsync, or at once.
    pub durability: Durability,
    /// The clock.
    pub clock: Clock,
    /// Authentication and authorization.
    pub auth: AuthConfig,
    /// Admission plugins that are on.
    pub plugins: Plugins,
    /// What this server shows to the servers that APIServices name; `None`: it shows no certificate, so that they take its
    /// users for anonymous.
    pub proxy_client: Option<ProxyClient>,
    /// Where requests are recorded; `None`: nowhere.
    pub audit: Option<Arc<Audit>>,
    /// Address that clients are told in discovery, `host:port`.
    pub address: String,
    /// Network of Service addresses: first address and number of addresses (10.0.0.0/16 as recorded upstream).
    pub service_network: (std::net::Ipv4Addr, u32),
    /// Requests that are served at one time, which priority and fairness divides among them: kube-apiserver's
    /// `--max-requests-inflight` and `--max-mutating-requests-inflight` together.
    pub requests_in_flight: usize,
}

impl Default for ServerConfig {
    fn default() -> Self {
        Self {
            data: None,
            durability: Durability::default(),
            clock: Clock::wall(),
            auth: AuthConfig::default(),
            plugins: Plugins::default(),
            proxy_client: None,
            audit: None,
            address: "127.0.0.1:6443".to_owned(),
            service_network: (std::net::Ipv4Addr::new(10, 0, 0, 0), 1 << 16),
            requests_in_flight: crate::flow::DEFAULT_SEATS,
        }
    }
}

/// Why a server could not be made.
#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    /// The store could not be opened.
    #[error(transparent)]
    Store(#[from] OpenError),
    /// The key that signs tokens of service accounts could not be read or made.
    #[error("{path}: {why}")]
    Key {
        /// Its file.
        path: PathBuf,
        /// Why.
        why: String,
    },
    /// A bootstrap object could not be written.
    #[error("bootstrap of {what}: {why}")]
    Bootstrap {
        /// Which object.
        what: String,
        /// Why.
        why: String,
    },
}

/// The server. Everything in it can be shared.
pub struct Server {
    config: ServerConfig,
    store: Store,
    kinds: RwLock<Arc<KindTable>>,
    /// Notifies watches of the kinds that are served.
    kinds_changed: tokio::sync::watch::Sender<Arc<KindTable>>,
    rbac: Rbac,
    impersonation: Impersonation,
    logs: RwLock<Option<Arc<dyn LogSource>>>,
    priority_defaults: Mutex<(u64, Arc<Vec<Value>>)>,
    hooks: Hooks,
    policies: Policies,
    signer: Signer,
    charges: Arc<ChargesInFlight>,
    conversions: Arc<Conversions>,
    clean_ups: CleanUps,
    /// Room for the bodies of requests under way, in KiB.
    bodies: Arc<Semaphore>,
    flow: FlowControl,
    aggregation: Aggregation,
    followers: Vec<Box<dyn Follower>>,
}

/// A part of the server that follows objects that configure it, in the write that changes them.
pub(crate) trait Follower: Send + Sync {
    /// Whether it follows objects of a kind.
    fn follows(&self, kind: &Kind) -> bool;

    /// An object has been written.
    fn written<'a>(&'a self, server: &'a Arc<Server>, record: &'a Arc<Record>) -> BoxFuture<'a, ()>;

    /// An object is gone.
    fn deleted<'a>(&'a self, server: &'a Arc<Server>, record: &'a Arc<Record>) -> BoxFuture<'a, ()>;
}

impl Server {
    /// A server without the objects that always exist.
    pub(crate) fn assemble(
        config: ServerConfig,
        store: Store,
        signer: Signer,
        followers: Vec<Box<dyn Follower>>,
    ) -> Arc<Self> {
        let kinds = Arc::new(builtin::table());
        let flow = FlowControl::new(config.requests_in_flight);
        Arc::new(Self {
            rbac: Rbac::new(config.auth.mode, store.clone()),
            impersonation: Impersonation::default(),
            store,
            config,
            kinds: RwLock::new(Arc::clone(&kinds)),
            kinds_changed: tokio::sync::watch::Sender::new(kinds),
            logs: RwLock::new(None),
            priority_defaults: Mutex::new((u64::MAX, Arc::default())),
            hooks: Hooks::default(),
            policies: Policies::default(),
            signer,
            charges: Arc::default(),
            conversions: Arc::default(),
            clean_ups: CleanUps::default(),
            bodies: Arc::new(Semaphore::new(MAX_BODIES_KIB)),
            flow,
            aggregation: Aggregation::default(),
            followers,
        })
    }

    /// Why the process has to end, when it has to.
    pub fn fatal(&self) -> &plimsoll_client::Fatal {
        self.store.fatal()
    }

    /// The store.
    pub const fn store(&self) -> &Store {
        &self.store
    }

    /// Settings.
    pub const fn config(&self) -> &ServerConfig {
        &self.config
    }

    /// Authentication settings.
    pub const fn auth(&self) -> &AuthConfig {
        &self.config.auth
    }

    /// The authorizer.
    pub const fn rbac(&self) -> &Rbac {
        &self.rbac
    }

    /// Authorization of impersonation.
    pub(crate) const fn impersonation(&self) -> &Impersonation {
        &self.impersonation
    }

    /// Now.
    pub fn now(&self) -> jiff::Timestamp {
        self.config.clock.now()
    }

    /// The kinds served now.
    pub fn kinds(&self) -> Arc<KindTable> {
        Arc::clone(&self.kinds.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Changes the kind table.
    pub(crate) fn change_kinds(&self, change: impl FnOnce(&mut KindTable)) {
        let mut kinds = self.kinds.write().unwrap_or_else(PoisonError::into_inner);
        let mut table = KindTable::clone(&kinds);
        change(&mut table);
        *kinds = Arc::new(table);
        self.kinds_changed.send_replace(Arc::clone(&kinds));
    }

    /// The kinds served from now on, whenever they change.
    pub(crate) fn follow_kinds(&self) -> tokio::sync::watch::Receiver<Arc<KindTable>> {
        self.kinds_changed.subscribe()
    }

    /// Definitions whose instances are being removed.
    pub(crate) const fn clean_ups(&self) -> &CleanUps {
        &self.clean_ups
    }

    /// Room for a body of so many bytes, if there is.
    pub(crate) fn room_for_bodies(&self, bytes: u64) -> Option<OwnedSemaphorePermit> {
        let kib = u32::try_from(bytes / 1024 + 1).unwrap_or(u32::MAX);
        Arc::clone(&self.bodies).try_acquire_many_owned(kib).ok()
    }

    /// Priority and fairness.
    pub(crate) const fn flow(&self) -> &FlowControl {
        &self.flow
    }

    /// Groups that are served beside the server's own.
    pub(crate) const fn aggregation(&self) -> &Aggregation {
        &self.aggregation
    }

    /// Sets where logs come from.
    pub fn set_log_source(&self, source: Arc<dyn LogSource>) {
        *self.logs.write().unwrap_or_else(PoisonError::into_inner) = Some(source);
    }

    /// Where logs come from.
    pub fn log_source(&self) -> Option<Arc<dyn LogSource>> {
        self.logs.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Writes that quotas are charged for.
    pub const fn charges(&self) -> &Arc<ChargesInFlight> {
        &self.charges
    }

    /// What conversion webhooks made of records.
    pub(crate) const fn conversions(&self) -> &Arc<Conversions> {
        &self.conversions
    }

    /// What signs tokens of service accounts.
    pub(crate) const fn signer(&self) -> &Signer {
        &self.signer
    }

    /// The user a bearer token stands for, and those of the wanted audiences that it is for.
    ///
    /// # Errors
    /// Why it authenticates no user, as a TokenReview reports it.
    pub(crate) fn user_of_token(
        &self,
        token: &str,
        wanted: &[String],
    ) -> Result<(User, Vec<String>), String> {
        let own = || wanted.iter().filter(|a| *a == ISSUER).cloned().collect::<Vec<_>>();
        if let Some(user) = self.config.auth.user_of_token(token).filter(|_| !own().is_empty()) {
            return Ok((user, own()));
        }
        let lookup = |plural: &str, namespace: &str, name: &str| {
            self.store.get(&Key::new(format!("/{plural}"), namespace, name))?.value().ok()
        };
        match tokens::verify(&self.signer, token, wanted, &lookup, self.now()) {
            None => Err("[invalid bearer token]".to_owned()),
            Some(result) => result.map_err(|why| format!("[invalid bearer token, {why}]")),
        }
    }

    /// Adds admission by another part of this process.
    pub fn add_hook(&self, hook: Arc<dyn AdmissionHook>) {
        self.hooks.add(hook);
    }

    pub(crate) const fn policies(&self) -> &Policies {
        &self.policies
    }

    pub(crate) const fn hooks(&self) -> &Hooks {
        &self.hooks
    }

    /// Priority classes that are the default, read again when a class changes.
    pub(crate) fn priority_defaults(&self) -> Arc<Vec<Value>> {
        const RESOURCE: &str = "scheduling.k8s.io/priorityclasses";
        let at = self.store.last_revision(RESOURCE);
        let mut cache = self.priority_defaults.lock().unwrap_or_else(PoisonError::into_inner);
        if cache.0 != at {
            let all = self.store.list(RESOURCE, None);
            let defaults = all.iter().filter_map(|r| r.value().ok()).filter(|c| c["globalDefault"] == true);
            *cache = (at, Arc::new(defaults.collect()));
        }
        Arc::clone(&cache.1)
    }

    /// Stores an object.
    pub(crate) async fn put(
        &self,
        key: Key,
        expected: Expected,
        object: &Value,
    ) -> Result<Arc<Record>, StoreError> {
        self.put_encoded(key, expected, crate::store::Encoded::new(object)?).await
    }

    /// Stores an object that is encoded already.
    pub(crate) async fn put_encoded(
        &self,
        key: Key,
        expected: Expected,
        object: crate::store::Encoded,
    ) -> Result<Arc<Record>, StoreError> {
        self.store.commit(crate::store::Write { key, expected, op: crate::store::Op::Put(object) }).await
    }

    /// Removes an object; `last`: its last state where that differs.
    pub(crate) async fn remove(
        &self,
        key: Key,
        expected: Expected,
        last: Option<&Value>,
    ) -> Result<Arc<Record>, StoreError> {
        let last = last.map(crate::store::Encoded::new).transpose()?;
        let op = crate::store::Op::Delete { last };
        self.store.commit(crate::store::Write { key, expected, op }).await
    }

    /// An object has been written: tells the parts of the server that follow it.
    pub(crate) async fn written(self: &Arc<Self>, kind: &Kind, record: &Arc<Record>) {
        for follower in self.followers.iter().filter(|f| f.follows(kind)) {
            follower.written(self, record).await;
        }
    }

    /// An object is gone: tells the parts of the server that follow it.
    pub(crate) async fn deleted(self: &Arc<Self>, kind: &Kind, record: &Arc<Record>) {
        for follower in self.followers.iter().filter(|f| f.follows(kind)) {
            follower.deleted(self, record).await;
        }
    }

    /// Counters in the text format of Prometheus.
    pub fn metrics_text(&self) -> String {
        let m = self.store.metrics();
        let flow = self.flow.metrics_text();
        format!(
            "# TYPE plimsoll_store_revision gauge\nplimsoll_store_revision {}\n\
             # TYPE plimsoll_store_objects gauge\nplimsoll_store_objects {}\n\
             # TYPE plimsoll_store_object_bytes gauge\nplimsoll_store_object_bytes {}\n{flow}",
            m.revision, m.objects, m.object_bytes
        )
    }
}

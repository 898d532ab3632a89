//! The server: what the parts share, and the service that clients talk to.

use std::convert::Infallible;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::task::{Context, Poll};

use bytes::Bytes;
use futures::future::BoxFuture;
use http::{Request, Response};
use plimsoll_apimachinery::{Kind, KindTable, builtin};
use plimsoll_client::Clock;
use serde_json::Value;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;

use crate::admission::plugins::Plugins;
use crate::admission::policies::Policies;
use crate::admission::quota;
use crate::admission::webhooks::{AdmissionHook, Hooks};
use crate::audit::Audit;
use crate::auth::impersonation::Impersonation;
use crate::auth::tokens::{self, ISSUER, Signer};
use crate::auth::{AuthConfig, Rbac, User};
use crate::bootstrap;
use crate::convert::shared::Conversions;
use crate::custom::CleanUps;
use crate::flow::{self, FlowControl};
use crate::http::{body::Body, handle};
use crate::store::{Durability, Expected, Key, OpenError, Record, Store, StoreError};

/// Settings of a server.
#[derive(Clone)]
pub struct ServerConfig {
    /// Where the journal and the credentials live; `None`: nothing is kept.
    pub data: Option<PathBuf>,
    /// When a write counts as done.
    pub durability: Durability,
    /// The clock.
    pub clock: Clock,
    /// Authentication and authorization.
    pub auth: AuthConfig,
    /// Admission plugins that are on.
    pub plugins: Plugins,
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

/// Where `pods/log` gets its text.
pub trait LogSource: Send + Sync + 'static {
    /// The log of a container, as a body.
    ///
    /// # Errors
    /// What the answer shall be instead.
    fn logs(&self, request: &LogRequest<'_>) -> Result<Body, plimsoll_apimachinery::ApiError>;
}

/// What `pods/log` asks for.
#[derive(Debug)]
pub struct LogRequest<'a> {
    /// The pod.
    pub pod: &'a Value,
    /// Container, one of the pod's.
    pub container: &'a str,
    /// Whether to go on as lines come.
    pub follow: bool,
    /// Lines from the end; `None`: all.
    pub tail_lines: Option<u64>,
    /// Only lines of the last seconds.
    pub since_seconds: Option<u64>,
    /// Times before lines.
    pub timestamps: bool,
    /// Of the container before this one.
    pub previous: bool,
    /// Bytes at most.
    pub limit_bytes: Option<u64>,
}

/// The server. Everything in it can be shared.
pub struct Server {
    config: ServerConfig,
    store: Store,
    kinds: RwLock<Arc<KindTable>>,
    /// Tells watches which kinds are served.
    kinds_changed: tokio::sync::watch::Sender<Arc<KindTable>>,
    rbac: Rbac,
    impersonation: Impersonation,
    logs: RwLock<Option<Arc<dyn LogSource>>>,
    priority_defaults: Mutex<(u64, Arc<Vec<Value>>)>,
    hooks: Hooks,
    policies: Policies,
    signer: Signer,
    charges: Arc<quota::UnderWay>,
    conversions: Arc<Conversions>,
    clean_ups: CleanUps,
    /// Room for the bodies of requests under way, in KiB.
    bodies: Arc<Semaphore>,
    flow: FlowControl,
}

impl Server {
    /// Opens the store, makes the objects that always exist, and is ready.
    ///
    /// # Errors
    /// The store can't be opened or written.
    pub async fn new(config: ServerConfig) -> Result<Arc<Self>, ServerError> {
        let store = match &config.data {
            Some(dir) => Store::open(dir, config.durability)?,
            None => Store::in_memory(),
        };
        Self::over(config, store).await
    }

    /// Why the process has to end, when it has to.
    pub fn fatal(&self) -> &plimsoll_client::Fatal {
        self.store.fatal()
    }

    /// As [`Server::new`], over a store that is already open.
    ///
    /// # Errors
    /// The store can't be written.
    pub async fn over(config: ServerConfig, store: Store) -> Result<Arc<Self>, ServerError> {
        let signer = signer(config.data.as_deref())?;
        let kinds = Arc::new(builtin::table());
        let flow = FlowControl::new(config.requests_in_flight);
        let server = Arc::new(Self {
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
            bodies: Arc::new(Semaphore::new(crate::http::MAX_BODIES_KIB)),
            flow,
        });
        bootstrap::run(&server).await?;
        Ok(server)
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

    /// Who may act as whom.
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

    /// Sets where logs come from.
    pub fn set_log_source(&self, source: Arc<dyn LogSource>) {
        *self.logs.write().unwrap_or_else(PoisonError::into_inner) = Some(source);
    }

    /// Where logs come from.
    pub fn log_source(&self) -> Option<Arc<dyn LogSource>> {
        self.logs.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Writes that quotas are charged for.
    pub const fn charges(&self) -> &Arc<quota::UnderWay> {
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
    /// Why it stands for nobody, as a TokenReview says it.
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

    /// An object has been written: what the server itself must learn of it.
    pub(crate) async fn written(self: &Arc<Self>, kind: &Kind, record: &Arc<Record>) {
        if crate::custom::is_definition(kind) {
            crate::custom::written(self, record).await;
        }
        if flow::keep::is_config(kind) {
            flow::keep::changed(self, &self.flow).await;
        }
    }

    /// An object is gone.
    pub(crate) async fn deleted(self: &Arc<Self>, kind: &Kind, record: &Arc<Record>) {
        if crate::custom::is_definition(kind) {
            crate::custom::deleted(self, record).await;
        }
        if flow::keep::is_config(kind) {
            flow::keep::changed(self, &self.flow).await;
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

    /// A client in this process, as the administrator.
    pub fn service(self: &Arc<Self>) -> ApiService {
        self.service_as(User::admin())
    }

    /// A client in this process, as a user.
    pub fn service_as(self: &Arc<Self>, user: User) -> ApiService {
        ApiService { server: Arc::clone(self), identity: Some(Arc::new(user)), stop: None }
    }

    /// The service for connections: every request is authenticated.
    pub fn authenticating_service(self: &Arc<Self>) -> ApiService {
        ApiService { server: Arc::clone(self), identity: None, stop: None }
    }
}

/// The key that signs tokens: kept with the other credentials, or for this process only.
fn signer(data: Option<&std::path::Path>) -> Result<Signer, ServerError> {
    let Some(dir) = data else {
        return Signer::generate().map_err(|why| ServerError::Key { path: PathBuf::from("sa.key"), why });
    };
    let path = dir.join("pki").join("sa.key");
    Signer::load_or_create(&path).map_err(|why| ServerError::Key { path, why })
}

/// The server as a `tower::Service`. Cheap to clone; `kube::Client::new` takes it as it is.
#[derive(Clone)]
pub struct ApiService {
    server: Arc<Server>,
    identity: Option<Arc<User>>,
    stop: Option<CancellationToken>,
}

impl ApiService {
    /// Ends answers that would go on (watches, followed logs) with `stop`, as the end of their streams.
    #[must_use]
    pub fn until(self, stop: CancellationToken) -> Self {
        Self { stop: Some(stop), ..self }
    }

    /// The server behind it.
    pub const fn server(&self) -> &Arc<Server> {
        &self.server
    }
}

impl<B> tower::Service<Request<B>> for ApiService
where
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Response<Body>, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let this = self.clone();
        Box::pin(async move {
            let answer = handle(&this.server, request, this.identity.as_deref()).await;
            Ok(match this.stop {
                Some(stop) if answer.body().is_endless() => {
                    answer.map(|body| body.until(stop.cancelled_owned()))
                }
                _ => answer,
            })
        })
    }
}

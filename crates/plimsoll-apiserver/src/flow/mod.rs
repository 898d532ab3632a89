//! API Priority and Fairness (KEP-1040): which requests are served now, which wait, and which are rejected.
//!
//! FlowSchemas assign requests to priority levels, levels share the seats of the server, and flows share those of their
//! level. [`classify`], [`level`], [`shuffle`], [`allot`] and [`retry`] are pure; [`keep`] follows the objects; here is
//! what requests go through. Clients in this process aren't limited: controllers and the engine are the server's own.

mod allot;
pub mod bootstrap;
mod classify;
mod config;
pub mod keep;
mod level;
#[cfg(test)]
mod level_tests;
mod metrics;
mod retry;
mod shuffle;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::Duration;

use http::{HeaderName, HeaderValue};
use sha2::{Digest, Sha256};
use tokio::sync::oneshot;
use tokio::time::Instant;
use tokio_util::task::AbortOnDropHandle;

use crate::auth::User;
use crate::http::info::RequestInfo;
use allot::{Claim, Seats};
use classify::{Distinguisher, Spec};
use config::{LevelConfig, Schema};
use level::{Dispatched, Level, Nanos, Place, Queuing, Reason, Ticket};
use metrics::Counts;
use retry::Rejected;

/// Seats without flags: `--max-requests-inflight` and `--max-mutating-requests-inflight` together.
pub const DEFAULT_SEATS: usize = 600;
/// Time that a request waits for its turn: a quarter of `--request-timeout`.
const WAIT: Duration = Duration::from_secs(15);
/// Time after which a watch gives its seats back, though its client hasn't taken all initial events.
const WATCH_BEGINS: Duration = Duration::from_secs(60);
/// Between two adjustments of the levels' seats (`borrowingAdjustmentPeriod`).
const ADJUST: Nanos = 10_000_000_000;
/// Bytes of a list for each seat (`bytesPerSeat`), most bytes that count, as lists are made in pieces
/// (`cacheWithStreamingMaxMemoryUsage`).
const BYTES_PER_SEAT: u64 = 100_000;
const MOST_BYTES: u64 = 1_000_000;
/// Part of a level's seats that one request may take (`priorityLevelMaxSeatsPercent`), in percent.
const MOST_PERCENT: usize = 15;

/// Requests that wait for a turn.
type Waiter = oneshot::Sender<Turn>;

/// One priority level: its queues, and what is known of it.
#[derive(Debug)]
struct LevelState {
    name: String,
    began: Instant,
    exempt: bool,
    queues: Mutex<Level<Waiter>>,
    /// Requests of an exempt level that are served, and most since the last adjustment.
    executing: AtomicUsize,
    high: AtomicUsize,
    /// Most seats of one request.
    most_seats: AtomicUsize,
    rejected: Mutex<Rejected>,
    seats: Mutex<Shared>,
}

/// What the adjustment of seats keeps of a level.
#[derive(Clone, Copy, Debug, Default)]
struct Shared {
    seats: Seats,
    current: usize,
    smoothed: f64,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl LevelState {
    fn now(&self) -> Nanos {
        Nanos::try_from(self.began.elapsed().as_nanos()).unwrap_or(Nanos::MAX)
    }

    /// Dispatches requests whose turn it is. A request that has gone releases its seats.
    fn call(self: &Arc<Self>, dispatched: Dispatched<Waiter>) {
        for (waiter, ticket) in dispatched {
            drop(waiter.send(Turn { level: Arc::clone(self), ticket }));
        }
    }
}

/// Seats of a level, given back when it is dropped.
#[derive(Debug)]
struct Turn {
    level: Arc<LevelState>,
    ticket: Ticket,
}

impl Drop for Turn {
    fn drop(&mut self) {
        let now = self.level.now();
        let dispatched = lock(&self.level.queues).finish(self.ticket, now);
        self.level.call(dispatched);
    }
}

/// A schema, compiled.
#[derive(Debug)]
struct Compiled {
    name: String,
    spec: Spec,
    level: Arc<LevelState>,
    queuing: Option<Queuing>,
    marks: Marks,
    counts: Arc<Counts>,
}

static FLOW_SCHEMA_UID: HeaderName = HeaderName::from_static("x-kubernetes-pf-flowschema-uid");
static PRIORITY_LEVEL_UID: HeaderName = HeaderName::from_static("x-kubernetes-pf-prioritylevel-uid");

/// UIDs of the schema and the level of a request, which its answer carries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Marks {
    schema: HeaderValue,
    level: HeaderValue,
}

impl Marks {
    /// Puts them into the head of an answer.
    pub fn put(&self, headers: &mut http::HeaderMap) {
        headers.insert(&FLOW_SCHEMA_UID, self.schema.clone());
        headers.insert(&PRIORITY_LEVEL_UID, self.level.clone());
    }
}

/// A request is served until this is dropped.
#[derive(Debug)]
pub struct Seat {
    schema: Arc<Compiled>,
    /// `None`: it is exempt.
    turn: Option<Turn>,
    seats: usize,
}

impl Seat {
    /// What the answer carries.
    pub fn marks(&self) -> &Marks {
        &self.schema.marks
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.schema.counts.executing.fetch_sub(1, Ordering::Relaxed);
        self.schema.counts.seats.fetch_sub(self.seats, Ordering::Relaxed);
        if self.turn.is_none() {
            self.schema.level.executing.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

/// The seat of a watch that begins. It is given back when all initial events have been taken, or after
/// [`WATCH_BEGINS`], however slowly the client takes them.
#[derive(Debug)]
pub struct Beginning {
    _seat: Arc<Mutex<Option<Seat>>>,
    _end: AbortOnDropHandle<()>,
}

impl Beginning {
    /// Begins now.
    pub fn new(seat: Seat) -> Self {
        let seat = Arc::new(Mutex::new(Some(seat)));
        let kept = Arc::clone(&seat);
        let end = tokio::spawn(async move {
            tokio::time::sleep(WATCH_BEGINS).await;
            drop(lock(&kept).take());
        });
        Self { _seat: seat, _end: AbortOnDropHandle::new(end) }
    }
}

/// A request is not served.
#[derive(Debug)]
pub struct Refused {
    /// What the answer carries.
    pub marks: Marks,
    /// After how many seconds the client should try again.
    pub retry_after: u64,
}

/// Flow control of a server.
pub struct FlowControl {
    total: usize,
    began: Instant,
    schemas: RwLock<Arc<Vec<Arc<Compiled>>>>,
    levels: Mutex<BTreeMap<String, (Arc<LevelState>, LevelConfig)>>,
    counts: Mutex<BTreeMap<(String, String), Arc<Counts>>>,
    adjusted: AtomicU64,
    /// Whether changes of objects are left for later, as more are on the way.
    paused: AtomicBool,
}

impl FlowControl {
    /// Flow control with so many seats in all, and the objects that have to be assumed.
    pub fn new(total: usize) -> Self {
        let this = Self {
            total: total.max(1),
            began: Instant::now(),
            schemas: RwLock::default(),
            levels: Mutex::default(),
            counts: Mutex::default(),
            adjusted: AtomicU64::new(0),
            paused: AtomicBool::new(false),
        };
        let levels = config::levels(std::iter::empty());
        let schemas = config::in_order(Vec::new(), &levels);
        this.configure(&levels, schemas);
        this
    }

    fn now(&self) -> Nanos {
        Nanos::try_from(self.began.elapsed().as_nanos()).unwrap_or(Nanos::MAX)
    }

    /// Takes on a new configuration. Levels that are gone serve what they have.
    fn configure(&self, configs: &BTreeMap<String, LevelConfig>, schemas: Vec<Schema>) {
        let mut levels = lock(&self.levels);
        let shares: Vec<_> = configs.values().map(|c| c.shares).collect();
        let all = allot::seats(self.total, &shares);
        let mut fresh = BTreeMap::new();
        for ((name, config), seats) in configs.iter().zip(all) {
            let kept = levels.remove(name).filter(|(state, _)| state.exempt == config.exempt);
            let state = kept.map_or_else(|| self.level(name, config, seats), |(state, _)| state);
            let hand = config.queuing.map_or(1, |q| q.hand.max(1));
            let most = (seats.nominal * MOST_PERCENT).div_ceil(100).min(seats.nominal / hand).max(1);
            state.most_seats.store(most, Ordering::Relaxed);
            let current = {
                let mut shared = lock(&state.seats);
                shared.seats = seats;
                shared.current = shared.current.clamp(seats.least, seats.most.max(seats.least));
                shared.current
            };
            let dispatched = lock(&state.queues).configure(current, config.queuing, state.now());
            state.call(dispatched);
            fresh.insert(name.clone(), (state, config.clone()));
        }
        *levels = fresh;
        let compiled = schemas.into_iter().filter_map(|s| self.compile(s, &levels)).map(Arc::new).collect();
        *self.schemas.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(compiled);
    }

    fn level(&self, name: &str, config: &LevelConfig, seats: Seats) -> Arc<LevelState> {
        // Half of what it may lend is lent at first.
        let current = seats.nominal - (seats.nominal - seats.least) / 2;
        Arc::new(LevelState {
            name: name.to_owned(),
            began: self.began,
            exempt: config.exempt,
            queues: Mutex::new(Level::new(current, config.queuing, self.now())),
            executing: AtomicUsize::new(0),
            high: AtomicUsize::new(0),
            most_seats: AtomicUsize::new(1),
            rejected: Mutex::default(),
            seats: Mutex::new(Shared { seats, current, smoothed: 0.0 }),
        })
    }

    fn compile(
        &self,
        schema: Schema,
        levels: &BTreeMap<String, (Arc<LevelState>, LevelConfig)>,
    ) -> Option<Compiled> {
        let name = &schema.spec.priority_level_configuration.name;
        let (level, config) = levels.get(name)?;
        let value = |uid: &str| HeaderValue::from_str(uid).unwrap_or_else(|_| HeaderValue::from_static(""));
        let marks = Marks { schema: value(&schema.uid), level: value(&config.uid) };
        let counts = Arc::clone(lock(&self.counts).entry((schema.name.clone(), name.clone())).or_default());
        let (level, queuing) = (Arc::clone(level), config.queuing);
        Some(Compiled { name: schema.name, spec: schema.spec, level, queuing, marks, counts })
    }

    fn classify(&self, user: &User, info: &RequestInfo) -> Option<Arc<Compiled>> {
        let schemas = self.schemas.read().unwrap_or_else(PoisonError::into_inner);
        let found = schemas.iter().find(|s| s.spec.matches(user, info));
        found.or_else(|| schemas.iter().find(|s| s.name == bootstrap::CATCH_ALL)).map(Arc::clone)
    }

    /// Waits until a request may be served. `bytes`: of the list it asks for, if it does.
    ///
    /// # Errors
    /// Its queue is full, or it has waited for too long.
    pub async fn admit(
        &self,
        user: &User,
        info: &RequestInfo,
        bytes: impl FnOnce() -> u64,
    ) -> Result<Option<Seat>, Refused> {
        let Some(schema) = self.classify(user, info) else { return Ok(None) };
        let level = Arc::clone(&schema.level);
        if level.exempt {
            let executing = level.executing.fetch_add(1, Ordering::Relaxed) + 1;
            level.high.fetch_max(executing, Ordering::Relaxed);
            return Ok(Some(seated(schema, None, 1)));
        }
        self.adjust();
        let most = level.most_seats.load(Ordering::Relaxed);
        let wanted = bytes().min(MOST_BYTES).div_ceil(BYTES_PER_SEAT);
        let seats = usize::try_from(wanted).unwrap_or(1).clamp(1, most);
        let hash = match schema.queuing {
            Some(queuing) if queuing.queues > 1 => hash(&schema, user, info),
            _ => 0,
        };
        let now = level.now();
        let started = lock(&level.queues).try_start(now, hash, seats);
        if let Some(ticket) = started {
            return Ok(Some(seated(schema, Some(Turn { level, ticket }), seats)));
        }
        self.wait(schema, hash, seats).await.map(Some)
    }

    async fn wait(&self, schema: Arc<Compiled>, hash: u64, seats: usize) -> Result<Seat, Refused> {
        let level = Arc::clone(&schema.level);
        let (waiter, mut turn) = oneshot::channel();
        let now = level.now();
        let place = lock(&level.queues).wait(now, hash, seats, waiter);
        let place = match place {
            Ok((place, dispatched)) => {
                level.call(dispatched);
                place
            }
            Err(reason) => return Err(self.refuse(&schema, reason.into())),
        };
        let _waiting = InQueue::new(&schema, place);
        match tokio::time::timeout(WAIT, &mut turn).await {
            Ok(Ok(turn)) => Ok(seated(Arc::clone(&schema), Some(turn), seats)),
            // Its turn may have come at the last moment.
            _ => match turn.try_recv() {
                Ok(turn) => Ok(seated(Arc::clone(&schema), Some(turn), seats)),
                Err(_) => Err(self.refuse(&schema, Why::TimeOut)),
            },
        }
    }

    fn refuse(&self, schema: &Compiled, why: Why) -> Refused {
        schema.counts.rejected[why as usize].fetch_add(1, Ordering::Relaxed);
        let retry_after = lock(&schema.level.rejected).note(self.now() / 1_000_000_000);
        Refused { marks: schema.marks.clone(), retry_after }
    }

    /// Lets levels lend and borrow seats, once in a while.
    fn adjust(&self) {
        let (now, last) = (self.now(), self.adjusted.load(Ordering::Relaxed));
        let due = now.saturating_sub(last) >= ADJUST;
        if due && self.adjusted.compare_exchange(last, now, Ordering::Relaxed, Ordering::Relaxed).is_ok() {
            self.borrow(now);
        }
    }

    fn borrow(&self, now: Nanos) {
        let levels = lock(&self.levels);
        let claim = |(state, _): &(Arc<LevelState>, LevelConfig)| {
            let demand = if state.exempt {
                let executing = state.executing.load(Ordering::Relaxed);
                let high = state.high.swap(executing, Ordering::Relaxed).max(executing);
                level::Demand { high, ..level::Demand::default() }
            } else {
                lock(&state.queues).take_demand(now)
            };
            let mut shared = lock(&state.seats);
            shared.smoothed = allot::smooth(shared.smoothed, &demand);
            let (seats, smoothed) = (shared.seats, shared.smoothed);
            Claim { seats, high: demand.high, smoothed, exempt: state.exempt }
        };
        let claims: Vec<Claim> = levels.values().map(claim).collect();
        for ((state, config), limit) in levels.values().zip(allot::borrow(&claims)) {
            lock(&state.seats).current = limit;
            let dispatched = lock(&state.queues).configure(limit, config.queuing, now);
            state.call(dispatched);
        }
    }
}

fn seated(schema: Arc<Compiled>, turn: Option<Turn>, seats: usize) -> Seat {
    schema.counts.dispatched.fetch_add(1, Ordering::Relaxed);
    schema.counts.executing.fetch_add(1, Ordering::Relaxed);
    schema.counts.seats.fetch_add(seats, Ordering::Relaxed);
    Seat { schema, turn, seats }
}

/// Why a request is rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Why {
    QueueFull,
    ConcurrencyLimit,
    TimeOut,
}

impl From<Reason> for Why {
    fn from(reason: Reason) -> Self {
        match reason {
            Reason::QueueFull => Self::QueueFull,
            Reason::ConcurrencyLimit => Self::ConcurrencyLimit,
        }
    }
}

/// A request in a queue, which it leaves when its client goes.
struct InQueue<'s> {
    schema: &'s Arc<Compiled>,
    place: Place,
}

impl<'s> InQueue<'s> {
    fn new(schema: &'s Arc<Compiled>, place: Place) -> Self {
        schema.counts.waiting.fetch_add(1, Ordering::Relaxed);
        Self { schema, place }
    }
}

impl Drop for InQueue<'_> {
    fn drop(&mut self) {
        self.schema.counts.waiting.fetch_sub(1, Ordering::Relaxed);
        let level = &self.schema.level;
        let now = level.now();
        let (_, dispatched) = lock(&level.queues).cancel(self.place, now);
        level.call(dispatched);
    }
}

/// The flow of a request as a number (`hashFlowID`).
fn hash(schema: &Compiled, user: &User, info: &RequestInfo) -> u64 {
    let distinguisher = match schema.spec.distinguisher() {
        Distinguisher::None => "",
        Distinguisher::ByUser => user.name.as_str(),
        Distinguisher::ByNamespace => info.namespace.as_str(),
    };
    let digest = Sha256::new().chain_update(&schema.name).chain_update([0_u8]).chain_update(distinguisher);
    let bytes = digest.finalize();
    bytes.iter().take(8).rev().fold(0, |n, b| (n << 8) | u64::from(*b))
}

/// Whether a request is limited at all: long-running ones but watches aren't (`BasicLongRunningRequestCheck`).
pub fn is_limited(info: &RequestInfo) -> bool {
    !matches!(info.subresource.as_str(), "log" | "exec" | "attach" | "portforward" | "proxy")
}

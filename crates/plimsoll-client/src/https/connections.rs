//! The open connections: how many there may be, which of them are idle, and which one makes place for the next.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// Descriptors kept for everything but clients' connections: the store, logs, calls to webhooks, the listener.
const RESERVED_FILES: usize = 96;
/// Descriptors assumed where the system does not tell (macOS' default).
const ASSUMED_FILES: usize = 256;
/// Time between two attempts to find an idle connection while all of them are busy.
const RETRY: Duration = Duration::from_millis(100);

/// Connections that fit below the limit of open files, of which a part stays reserved.
pub fn most_connections(files: Option<usize>) -> usize {
    let files = files.unwrap_or(ASSUMED_FILES);
    files.saturating_sub(RESERVED_FILES.max(files / 8)).max(16)
}

/// Files that this process may have open (the soft `RLIMIT_NOFILE`), where the system tells (Linux).
pub fn open_files_limit() -> Option<usize> {
    let limits = std::fs::read_to_string("/proc/self/limits").ok()?;
    let line = limits.lines().find(|l| l.starts_with("Max open files"))?;
    line.split_whitespace().nth(3)?.parse().ok()
}

/// One connection, as the listener and the requests on it share it.
#[derive(Debug)]
pub struct Connection {
    opened: Instant,
    /// Requests whose answer has not been sent.
    active: AtomicUsize,
    /// Whether there has been a request.
    used: AtomicBool,
    /// Whether a client has authenticated itself on it.
    authenticated: AtomicBool,
    /// Milliseconds from `opened` to the end of the last request.
    quiet_since: AtomicU64,
    /// Ends it at once: its place is needed.
    evicted: CancellationToken,
    /// Lets requests finish and takes no further ones.
    finishing: CancellationToken,
}

impl Connection {
    fn new() -> Self {
        Self {
            opened: Instant::now(),
            active: AtomicUsize::new(0),
            used: AtomicBool::new(false),
            authenticated: AtomicBool::new(false),
            quiet_since: AtomicU64::new(0),
            evicted: CancellationToken::new(),
            finishing: CancellationToken::new(),
        }
    }

    /// A client has authenticated itself: this connection is closed for others only after those of strangers.
    pub fn authenticated(&self) {
        self.authenticated.store(true, Ordering::Relaxed);
    }

    /// Takes no further requests, as kube-apiserver does with HTTP/2 connections of clients that it doesn't know
    /// (`UnauthenticatedHTTP2DOSMitigation`).
    pub fn finish(&self) {
        self.finishing.cancel();
    }

    /// A request begins; it ends when the guard is dropped.
    pub fn request(self: &Arc<Self>) -> InFlight {
        self.active.fetch_add(1, Ordering::Relaxed);
        self.used.store(true, Ordering::Relaxed);
        InFlight(Arc::clone(self))
    }

    /// Waits until no further request may begin.
    pub(super) async fn finishing(&self) {
        self.finishing.cancelled().await;
    }

    /// Waits until the place is needed for another connection.
    pub(super) async fn evicted(&self) {
        self.evicted.cancelled().await;
    }

    fn quiet_since(&self) -> Instant {
        self.opened + Duration::from_millis(self.quiet_since.load(Ordering::Relaxed))
    }

    /// Waits until there has been no request for too long: `head` for the first one, `idle` for each further one.
    pub(super) async fn expired(&self, head: Duration, idle: Duration) {
        loop {
            let now = Instant::now();
            let used = self.used.load(Ordering::Relaxed);
            let end = if self.active.load(Ordering::Relaxed) > 0 {
                // Checked again soon enough that the end comes at most a quarter late.
                now + idle / 4
            } else {
                self.quiet_since() + if used { idle } else { head }
            };
            if end <= now {
                return;
            }
            tokio::time::sleep_until(end).await;
        }
    }

    /// How soon this connection goes when its place is needed: strangers first, then the one that has been idle for
    /// longest. `None`: not at all, as a known client waits for an answer.
    fn order(&self) -> Option<(bool, Instant)> {
        let known = self.authenticated.load(Ordering::Relaxed);
        let busy = known && self.active.load(Ordering::Relaxed) > 0;
        (!busy && !self.evicted.is_cancelled()).then(|| (known, self.quiet_since()))
    }
}

/// A request on a connection, until its answer has been sent or given up.
#[derive(Debug)]
pub struct InFlight(Arc<Connection>);

impl Drop for InFlight {
    fn drop(&mut self) {
        let quiet = self.0.opened.elapsed().as_millis();
        self.0.quiet_since.store(u64::try_from(quiet).unwrap_or(u64::MAX), Ordering::Relaxed);
        self.0.active.fetch_sub(1, Ordering::Relaxed);
    }
}

/// All connections of a listener.
#[derive(Debug)]
pub(super) struct Connections {
    most: usize,
    open: Mutex<Open>,
    freed: Notify,
}

#[derive(Debug, Default)]
struct Open {
    next: u64,
    all: BTreeMap<u64, Arc<Connection>>,
}

impl Connections {
    pub(super) fn new(most: usize) -> Self {
        Self { most: most.max(1), open: Mutex::default(), freed: Notify::new() }
    }

    fn lock(&self) -> MutexGuard<'_, Open> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn try_open(self: &Arc<Self>) -> Option<Place> {
        let mut open = self.lock();
        if open.all.len() >= self.most {
            return None;
        }
        let (id, connection) = (open.next, Arc::new(Connection::new()));
        open.next += 1;
        open.all.insert(id, Arc::clone(&connection));
        Some(Place { connections: Arc::clone(self), id, connection })
    }

    fn evict_one(&self) {
        let open = self.lock();
        let found = open.all.values().filter_map(|c| Some((c.order()?, c))).min_by_key(|(order, _)| *order);
        if let Some((_, connection)) = found {
            tracing::debug!("all connections are taken, closing an idle one");
            connection.evicted.cancel();
        }
    }

    /// A place for one more connection, that of an idle one if need be. Waits while clients wait for answers on all.
    pub(super) async fn open(self: &Arc<Self>) -> Place {
        loop {
            let freed = self.freed.notified();
            if let Some(place) = self.try_open() {
                return place;
            }
            self.evict_one();
            let _ = tokio::time::timeout(RETRY, freed).await;
        }
    }
}

/// The place of one connection among all, given back when it is dropped.
#[derive(Debug)]
pub(super) struct Place {
    connections: Arc<Connections>,
    id: u64,
    /// The connection.
    pub(super) connection: Arc<Connection>,
}

impl Drop for Place {
    fn drop(&mut self) {
        self.connections.lock().all.remove(&self.id);
        self.connections.freed.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_of_the_descriptors_stays_reserved() {
        assert_eq!(most_connections(Some(1024)), 896);
        assert_eq!(most_connections(Some(256)), 160);
        assert_eq!(most_connections(None), 160);
        assert_eq!(most_connections(Some(20_000)), 17_500);
        assert_eq!(most_connections(Some(8)), 16);
    }

    #[tokio::test(start_paused = true)]
    async fn strangers_make_place_before_known_clients_and_busy_ones_never() {
        let connections = Arc::new(Connections::new(3));
        let busy = connections.open().await;
        busy.connection.authenticated();
        let _request = busy.connection.request();
        let known = connections.open().await;
        known.connection.authenticated();
        tokio::time::advance(Duration::from_secs(5)).await;
        let stranger = connections.open().await;
        let evicted = |place: &Place| place.connection.evicted.is_cancelled();

        let opening = |all: &Arc<Connections>| {
            let all = Arc::clone(all);
            tokio::spawn(async move { all.open().await })
        };
        let first = opening(&connections);
        stranger.connection.evicted().await;
        assert!(!evicted(&known) && !evicted(&busy));
        drop(stranger);
        let first = first.await.unwrap();
        first.connection.authenticated();
        drop(first.connection.request());

        let second = opening(&connections);
        known.connection.evicted().await;
        assert!(!evicted(&first) && !evicted(&busy));
        drop(known);
        let _second = second.await.unwrap();
        assert!(!evicted(&busy));
    }

    #[tokio::test(start_paused = true)]
    async fn connections_expire_after_their_last_request() {
        let (head, idle) = (Duration::from_secs(32), Duration::from_secs(90));
        let connections = Arc::new(Connections::new(10));
        let began = Instant::now();
        let unused = connections.open().await;
        unused.connection.expired(head, idle).await;
        assert_eq!(began.elapsed().as_secs(), 32);

        let used = connections.open().await;
        let request = used.connection.request();
        let waiting = Arc::clone(&used.connection);
        let expired = tokio::spawn(async move { waiting.expired(head, idle).await });
        tokio::time::sleep(Duration::from_secs(400)).await;
        assert!(!expired.is_finished(), "a request is under way");
        drop(request);
        let ended = Instant::now();
        expired.await.unwrap();
        assert!((90..=113).contains(&ended.elapsed().as_secs()), "{:?}", ended.elapsed());
    }
}

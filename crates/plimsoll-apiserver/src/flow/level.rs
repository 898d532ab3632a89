//! The queues of one priority level: fair queuing of requests between flows, by seats times time
//! (KEP-1040; `k8s.io/apiserver/pkg/util/flowcontrol/fairqueuing/queueset`).
//!
//! Nothing here knows of clocks, tasks or requests: callers say when it is, and what a waiting request is.

use std::collections::VecDeque;

use super::shuffle;

/// Nanoseconds since some start.
pub type Nanos = u64;
/// Seats times nanoseconds.
type Work = i128;

/// Estimate of how long a request is served, before it is known (`estimatedServiceDuration`).
const SERVICE: Work = 3_000_000;

/// Queues of a level.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Queuing {
    /// Number of queues.
    pub queues: usize,
    /// How many of them a flow may use.
    pub hand: usize,
    /// Requests that may wait in one of them.
    pub length: usize,
}

/// A request that waits.
#[derive(Debug)]
struct Waiting<W> {
    id: u64,
    seats: usize,
    arrived: Work,
    waiter: W,
}

#[derive(Debug)]
struct Queue<W> {
    waiting: VecDeque<Waiting<W>>,
    seats_waiting: usize,
    executing: usize,
    seats_in_use: usize,
    /// Virtual time at which its next request is dispatched.
    next: Work,
}

impl<W> Queue<W> {
    const fn new() -> Self {
        Self { waiting: VecDeque::new(), seats_waiting: 0, executing: 0, seats_in_use: 0, next: 0 }
    }

    fn is_active(&self) -> bool {
        self.executing > 0 || !self.waiting.is_empty()
    }

    /// Dispatch in the virtual world does not precede arrival: a queue that could not use its share earlier doesn't
    /// get it later (upstream's `boundNextDispatchLocked`).
    fn bound(&mut self) {
        if let Some(first) = self.waiting.front() {
            self.next = self.next.max(first.arrived);
        }
    }
}

/// The right to be served, to be given back with [`Level::finish`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ticket {
    queue: Option<usize>,
    seats: usize,
    began: Nanos,
}

/// Where a request waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    queue: usize,
    id: u64,
}

/// Why a request is rejected, as the metric names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// All seats are taken, and the level has no queues.
    ConcurrencyLimit,
    /// The queue is full.
    QueueFull,
}

/// How many seats were wanted over a time.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Demand {
    /// Most at any time.
    pub high: usize,
    /// Mean.
    pub average: f64,
    /// Standard deviation.
    pub deviation: f64,
}

/// Seats in use and wanted, integrated over time.
#[derive(Debug, Default)]
struct Integrator {
    since: Nanos,
    sum: f64,
    squares: f64,
    high: usize,
}

/// A priority level. `W`: what a waiting request is called by.
#[derive(Debug)]
pub struct Level<W> {
    limit: usize,
    queuing: Option<Queuing>,
    queues: Vec<Queue<W>>,
    /// Virtual time: seats times nanoseconds given to each active queue so far.
    progress: Work,
    now: Nanos,
    robin: usize,
    enqueued: u64,
    active: usize,
    waiting: usize,
    seats_waiting: usize,
    executing: usize,
    seats_in_use: usize,
    demand: Integrator,
}

/// Requests that are served from now on.
pub type Dispatched<W> = Vec<(W, Ticket)>;

impl<W> Level<W> {
    /// A level that has so many seats, from `now` on. Sizes have passed [`shuffle::check`].
    pub fn new(limit: usize, queuing: Option<Queuing>, now: Nanos) -> Self {
        let mut level = Self {
            limit,
            queuing,
            queues: Vec::new(),
            progress: 0,
            now,
            robin: 0,
            enqueued: 0,
            active: 0,
            waiting: 0,
            seats_waiting: 0,
            executing: 0,
            seats_in_use: 0,
            demand: Integrator { since: now, ..Integrator::default() },
        };
        level.resize();
        level
    }

    /// Changes seats and queues. Queues that are too many go when they are empty.
    pub fn configure(&mut self, limit: usize, queuing: Option<Queuing>, now: Nanos) -> Dispatched<W> {
        self.sync(now);
        (self.limit, self.queuing) = (limit, queuing);
        self.resize();
        self.dispatch()
    }

    fn resize(&mut self) {
        let wanted = self.queuing.map_or(0, |q| q.queues);
        while self.queues.len() > wanted && self.queues.last().is_some_and(|q| !q.is_active()) {
            self.queues.pop();
        }
        if self.queues.len() < wanted {
            self.queues.resize_with(wanted, Queue::new);
        }
    }

    /// Seats.
    #[cfg(test)]
    pub const fn limit(&self) -> usize {
        self.limit
    }

    /// Requests that wait, requests that are served, and the seats of these.
    #[cfg(test)]
    pub const fn counts(&self) -> (usize, usize, usize) {
        (self.waiting, self.executing, self.seats_in_use)
    }

    /// Whether no request waits or is served.
    #[cfg(test)]
    pub const fn is_idle(&self) -> bool {
        self.waiting == 0 && self.executing == 0
    }

    /// Lets virtual time pass: all active queues share the seats evenly.
    fn sync(&mut self, now: Nanos) {
        let passed = now.saturating_sub(self.now);
        let wanted = self.seats_in_use + self.seats_waiting;
        #[allow(clippy::cast_precision_loss, reason = "statistics")]
        {
            let (wanted, seconds) = (wanted as f64, passed as f64 / 1e9);
            self.demand.sum += wanted * seconds;
            self.demand.squares += wanted * wanted * seconds;
        }
        self.demand.high = self.demand.high.max(wanted);
        if self.active > 0 {
            let shared = Work::try_from(wanted.min(self.limit)).unwrap_or(0) * Work::from(passed);
            self.progress += shared / Work::try_from(self.active).unwrap_or(1);
        }
        self.now = self.now.max(now);
    }

    /// How many seats were wanted since the last call.
    pub fn take_demand(&mut self, now: Nanos) -> Demand {
        self.sync(now);
        let taken = std::mem::take(&mut self.demand);
        self.demand.since = self.now;
        self.demand.high = self.seats_in_use + self.seats_waiting;
        #[allow(clippy::cast_precision_loss, reason = "statistics")]
        let seconds = self.now.saturating_sub(taken.since) as f64 / 1e9;
        if seconds <= 0.0 {
            return Demand { high: taken.high, ..Demand::default() };
        }
        let average = taken.sum / seconds;
        let deviation = (taken.squares / seconds - average * average).max(0.0).sqrt();
        Demand { high: taken.high, average, deviation }
    }

    /// Whether a request of so many seats can be served now. One that has more seats than the level is served alone.
    const fn fits(&self, seats: usize) -> bool {
        if seats > self.limit { self.executing == 0 } else { self.seats_in_use + seats <= self.limit }
    }

    /// The queue of a flow's hand with the least work.
    fn choose(&mut self, queuing: Queuing, hash: u64) -> usize {
        let first = usize::try_from(self.enqueued).unwrap_or(0) % queuing.hand;
        self.enqueued = self.enqueued.wrapping_add(1);
        let hand = shuffle::hand(hash, queuing.queues, queuing.hand).enumerate();
        let order = |n: usize| (n + queuing.hand - first) % queuing.hand;
        let best = hand.min_by_key(|(n, q)| (self.queues.get(*q).map_or(0, |q| q.seats_waiting), order(*n)));
        best.map_or(0, |(_, q)| q)
    }

    /// Serves a request at once, if none waits and there are seats.
    pub fn try_start(&mut self, now: Nanos, hash: u64, seats: usize) -> Option<Ticket> {
        self.sync(now);
        if self.waiting > 0 || !self.fits(seats) {
            return None;
        }
        let at = self.queuing.map(|queuing| self.choose(queuing, hash));
        if let Some(queue) = at.and_then(|at| self.queues.get_mut(at)) {
            if !queue.is_active() {
                queue.next = self.progress;
                self.active += 1;
            }
            queue.next = queue.next.max(self.progress);
        }
        Some(self.begin(at, seats))
    }

    fn begin(&mut self, at: Option<usize>, seats: usize) -> Ticket {
        self.executing += 1;
        self.seats_in_use += seats;
        if let Some(queue) = at.and_then(|at| self.queues.get_mut(at)) {
            queue.executing += 1;
            queue.seats_in_use += seats;
            queue.next += Work::try_from(seats).unwrap_or(0) * SERVICE;
        }
        Ticket { queue: at, seats, began: self.now }
    }

    /// Lets a request wait for its turn, which may be at once: then it is among the dispatched.
    ///
    /// # Errors
    /// Its queue is full, or there are none.
    pub fn wait(
        &mut self,
        now: Nanos,
        hash: u64,
        seats: usize,
        waiter: W,
    ) -> Result<(Place, Dispatched<W>), Reason> {
        self.sync(now);
        let Some(queuing) = self.queuing else { return Err(Reason::ConcurrencyLimit) };
        let at = self.choose(queuing, hash);
        let id = self.enqueued;
        let (progress, full) = (self.progress, self.seats_in_use >= self.limit);
        let Some(queue) = self.queues.get_mut(at) else { return Err(Reason::ConcurrencyLimit) };
        if full && queue.waiting.len() >= queuing.length {
            return Err(Reason::QueueFull);
        }
        if !queue.is_active() {
            queue.next = progress;
            self.active += 1;
        }
        queue.waiting.push_back(Waiting { id, seats, arrived: progress, waiter });
        queue.seats_waiting += seats;
        queue.bound();
        self.waiting += 1;
        self.seats_waiting += seats;
        Ok((Place { queue: at, id }, self.dispatch()))
    }

    /// Serves what can be served.
    fn dispatch(&mut self) -> Dispatched<W> {
        let mut all = Vec::new();
        while self.waiting > 0 && (self.seats_in_use < self.limit || self.executing == 0) {
            let Some(at) = self.next_queue() else { break };
            let Some(queue) = self.queues.get_mut(at) else { break };
            let Some(first) = queue.waiting.front() else { break };
            let seats = first.seats;
            if !self.fits(seats) {
                break;
            }
            // The others win when the virtual times are the same next time.
            self.robin = at;
            let Some(queue) = self.queues.get_mut(at) else { break };
            let Some(first) = queue.waiting.pop_front() else { break };
            queue.seats_waiting -= seats;
            self.waiting -= 1;
            self.seats_waiting -= seats;
            let ticket = self.begin(Some(at), seats);
            if let Some(queue) = self.queues.get_mut(at) {
                queue.bound();
            }
            all.push((first.waiter, ticket));
        }
        all
    }

    /// The queue whose first request would be finished first in the virtual world.
    fn next_queue(&self) -> Option<usize> {
        let count = self.queues.len();
        let from_robin = (1..=count).map(|n| (self.robin + n) % count);
        let finish = |at: usize| {
            let queue = self.queues.get(at)?;
            let first = queue.waiting.front()?;
            Some((queue.next + Work::try_from(first.seats).unwrap_or(0) * SERVICE, at))
        };
        from_robin.filter_map(finish).min_by_key(|(finish, _)| *finish).map(|(_, at)| at)
    }

    /// A request has been served. What was estimated is replaced by what it took.
    pub fn finish(&mut self, ticket: Ticket, now: Nanos) -> Dispatched<W> {
        self.sync(now);
        self.executing = self.executing.saturating_sub(1);
        self.seats_in_use = self.seats_in_use.saturating_sub(ticket.seats);
        if let Some(queue) = ticket.queue.and_then(|at| self.queues.get_mut(at)) {
            queue.executing = queue.executing.saturating_sub(1);
            queue.seats_in_use = queue.seats_in_use.saturating_sub(ticket.seats);
            let took = Work::from(now.saturating_sub(ticket.began));
            queue.next += Work::try_from(ticket.seats).unwrap_or(0) * (took - SERVICE);
            queue.bound();
            if !queue.is_active() {
                self.active = self.active.saturating_sub(1);
                self.resize();
            }
        }
        self.dispatch()
    }

    /// A request doesn't wait any longer; `false`: it doesn't wait any more, as it has been dispatched.
    pub fn cancel(&mut self, place: Place, now: Nanos) -> (bool, Dispatched<W>) {
        self.sync(now);
        let Some(queue) = self.queues.get_mut(place.queue) else { return (false, Vec::new()) };
        let Some(at) = queue.waiting.iter().position(|w| w.id == place.id) else {
            return (false, Vec::new());
        };
        if let Some(gone) = queue.waiting.remove(at) {
            queue.seats_waiting -= gone.seats;
            self.waiting -= 1;
            self.seats_waiting -= gone.seats;
        }
        queue.bound();
        if !queue.is_active() {
            self.active = self.active.saturating_sub(1);
            self.resize();
        }
        // It may have been too wide for the seats that are free.
        (true, self.dispatch())
    }

    /// Compares sums with what they are sums of.
    #[cfg(test)]
    pub fn check(&self) {
        let sum = |of: fn(&Queue<W>) -> usize| self.queues.iter().map(of).sum::<usize>();
        assert_eq!(self.waiting, sum(|q| q.waiting.len()));
        assert_eq!(self.seats_waiting, sum(|q| q.seats_waiting));
        assert_eq!(self.active, sum(|q| usize::from(q.is_active())));
        if self.queuing.is_some() {
            assert_eq!(self.executing, sum(|q| q.executing));
            assert_eq!(self.seats_in_use, sum(|q| q.seats_in_use));
        }
        for queue in &self.queues {
            assert_eq!(queue.seats_waiting, queue.waiting.iter().map(|w| w.seats).sum::<usize>());
        }
        assert!(
            self.seats_in_use <= self.limit || self.executing == 1,
            "{} of {}",
            self.seats_in_use,
            self.limit
        );
        // Seats are free only if the next request doesn't fit.
        if let Some(queue) = self.next_queue().and_then(|at| self.queues.get(at)) {
            assert!(queue.waiting.front().is_some_and(|w| !self.fits(w.seats)));
        }
    }
}

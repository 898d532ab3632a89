//! Tasks that are started again when they panic, and those whose panic ends the process.
//!
//! A panic of an unsupervised task leaves a process that looks healthy and does only part of its work. Tasks that
//! can begin anew (watches, controllers, writers of statuses) are restarted with growing pauses and counted. Tasks that
//! own state which can't be rebuilt (the engine, the journal, the executor) end the process with the reason; its
//! supervisor, such as a Deployment, starts it again.

use std::any::Any;
use std::collections::BTreeMap;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// First and longest pause before a restart.
const BACKOFF: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(30));
/// A task that has run for this long begins with the first pause again.
const CALM: Duration = Duration::from_secs(60);

/// Why a process has to end; cheap to clone.
#[derive(Clone, Debug)]
pub struct Fatal {
    reason: watch::Sender<Option<String>>,
}

impl Default for Fatal {
    fn default() -> Self {
        Self { reason: watch::Sender::new(None) }
    }
}

impl Fatal {
    /// Sets the reason. The first one stays.
    pub fn set(&self, reason: String) {
        self.reason.send_if_modified(|known| {
            let first = known.is_none();
            if first {
                tracing::error!(reason, "this process has to end");
                *known = Some(reason);
            }
            first
        });
    }

    /// The reason, if there is one.
    pub fn get(&self) -> Option<String> {
        self.reason.borrow().clone()
    }

    /// Waits for a reason.
    pub async fn wait(&self) -> String {
        let mut reason = self.reason.subscribe();
        let known = reason.wait_for(Option::is_some).await;
        // The sender is in `self`.
        known.ok().and_then(|r| r.clone()).unwrap_or_default()
    }
}

#[derive(Debug, Default)]
struct Log {
    restarts: BTreeMap<String, u64>,
    /// Tasks that wait to be started again, and why.
    down: BTreeMap<String, String>,
}

/// Runs tasks until it is told to stop; cheap to clone.
#[derive(Clone, Debug)]
pub struct Supervisor {
    tasks: TaskTracker,
    stop: CancellationToken,
    fatal: Fatal,
    log: Arc<Mutex<Log>>,
}

/// What a panic said.
pub fn message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|t| (*t).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "no message".into())
}

/// Carries out one piece of work of a task that goes on; a panic is logged and given back as its message.
///
/// # Errors
/// The message of a panic.
pub async fn caught<T>(what: &str, work: impl Future<Output = T>) -> Result<T, String> {
    AssertUnwindSafe(work).catch_unwind().await.map_err(|panic| {
        let why = message(&*panic);
        tracing::error!(what, why, "panicked");
        why
    })
}

impl Supervisor {
    /// One whose tasks are to end when `stop` is cancelled.
    pub fn new(stop: CancellationToken) -> Self {
        Self { tasks: TaskTracker::new(), stop, fatal: Fatal::default(), log: Arc::default() }
    }

    fn log(&self) -> MutexGuard<'_, Log> {
        self.log.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs what `make` makes, again after each panic, until it returns.
    pub fn spawn<F>(&self, name: impl Into<String>, mut make: impl FnMut() -> F + Send + 'static)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        self.keep(name.into(), Box::new(move || Box::pin(make())));
    }

    /// The same for all tasks: each type of task would compile a scheduler's worth of code.
    fn keep(&self, name: String, mut make: Box<dyn FnMut() -> BoxFuture<'static, ()> + Send>) {
        let supervisor = self.clone();
        self.tasks.spawn(async move {
            let mut pause = BACKOFF.0;
            loop {
                let began = Instant::now();
                let run = AssertUnwindSafe(async { make().await });
                let Err(panic) = run.catch_unwind().await else { return };
                if began.elapsed() >= CALM {
                    pause = BACKOFF.0;
                }
                supervisor.panicked(&name, &message(&*panic), pause);
                tokio::select! {
                    () = supervisor.stop.cancelled() => return,
                    () = tokio::time::sleep(pause) => {}
                }
                supervisor.log().down.remove(&name);
                pause = (pause * 2).min(BACKOFF.1);
            }
        });
    }

    fn panicked(&self, name: &str, why: &str, pause: Duration) {
        tracing::error!(task = name, why, ?pause, "panicked; restarting");
        let mut log = self.log();
        *log.restarts.entry(name.to_owned()).or_default() += 1;
        log.down.insert(name.to_owned(), why.to_owned());
    }

    /// Carries out one piece of work of a task that goes on; a panic counts as a restart of the task.
    ///
    /// # Errors
    /// The message of a panic.
    pub async fn caught<T>(&self, task: &str, work: impl Future<Output = T>) -> Result<T, String> {
        let done = caught(task, work).await;
        if done.is_err() {
            *self.log().restarts.entry(task.to_owned()).or_default() += 1;
        }
        done
    }

    /// Runs a task whose panic ends the process.
    pub fn spawn_vital(&self, name: impl Into<String>, task: impl Future<Output = ()> + Send + 'static) {
        self.keep_vital(name.into(), Box::pin(task));
    }

    fn keep_vital(&self, name: String, task: BoxFuture<'static, ()>) {
        let fatal = self.fatal.clone();
        self.tasks.spawn(async move {
            if let Err(panic) = AssertUnwindSafe(task).catch_unwind().await {
                fatal.set(format!("{name} panicked: {}", message(&*panic)));
            }
        });
    }

    /// Runs a thread whose panic ends the process.
    ///
    /// # Errors
    /// When the system gives no thread.
    pub fn spawn_thread(
        &self,
        name: &str,
        run: impl FnOnce() + Send + 'static,
    ) -> std::io::Result<std::thread::JoinHandle<()>> {
        let (what, fatal) = (name.to_owned(), self.fatal.clone());
        std::thread::Builder::new().name(name.to_owned()).spawn(move || {
            if let Err(panic) = std::panic::catch_unwind(AssertUnwindSafe(run)) {
                fatal.set(format!("the {what} thread panicked: {}", message(&*panic)));
            }
        })
    }

    /// Why the process has to end.
    pub const fn fatal(&self) -> &Fatal {
        &self.fatal
    }

    /// How often each task was started again; none that never was.
    pub fn restarts(&self) -> BTreeMap<String, u64> {
        self.log().restarts.clone()
    }

    /// Tasks that are down at the moment, with the reason.
    pub fn down(&self) -> Vec<String> {
        let line =
            |(name, why): (&String, &String)| format!("{name} panicked and waits to be started again: {why}");
        self.log().down.iter().map(line).collect()
    }

    /// Waits until all tasks have ended. There are to be no new ones.
    pub async fn wait(&self) {
        self.tasks.close();
        self.tasks.wait().await;
    }
}

#[cfg(test)]
#[allow(clippy::panic)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn what_panics_is_started_again_with_growing_pauses() {
        let stop = CancellationToken::new();
        let supervisor = Supervisor::new(stop.clone());
        let (bad, good) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
        let count = Arc::clone(&bad);
        supervisor.spawn("bad", move || {
            let count = Arc::clone(&count);
            async move {
                let n = count.fetch_add(1, Ordering::SeqCst);
                if n < 4 {
                    panic!("object {n} is poisoned");
                }
                std::future::pending::<()>().await;
            }
        });
        let (count, stopped) = (Arc::clone(&good), stop.clone());
        supervisor.spawn("good", move || {
            let (count, stopped) = (Arc::clone(&count), stopped.clone());
            async move {
                while !stopped.is_cancelled() {
                    count.fetch_add(1, Ordering::SeqCst);
                    tokio::time::sleep(Duration::from_millis(10)).await;
                }
            }
        });
        tokio::time::sleep(Duration::from_millis(650)).await;
        assert_eq!(bad.load(Ordering::SeqCst), 3, "after 0, 100 and 300 ms");
        assert_eq!(supervisor.down(), ["bad panicked and waits to be started again: object 2 is poisoned"]);
        tokio::time::sleep(Duration::from_secs(2)).await;
        assert_eq!((bad.load(Ordering::SeqCst), supervisor.down()), (5, Vec::new()));
        assert_eq!(supervisor.restarts(), BTreeMap::from([("bad".to_owned(), 4)]));
        assert!(good.load(Ordering::SeqCst) > 200, "the others go on");
        assert_eq!(supervisor.fatal().get(), None);
    }

    #[tokio::test(start_paused = true)]
    async fn what_cannot_begin_anew_ends_the_process() {
        let supervisor = Supervisor::new(CancellationToken::new());
        supervisor.spawn_vital("the executor", async { panic!("{}", "lost its place") });
        supervisor.wait().await;
        assert_eq!(supervisor.fatal().wait().await, "the executor panicked: lost its place");
        let thread = supervisor.spawn_thread("engine", || panic!("second"));
        thread.unwrap().join().unwrap();
        assert_eq!(
            supervisor.fatal().get().unwrap(),
            "the executor panicked: lost its place",
            "the first stays"
        );
        let caught = supervisor.caught("job controllers", async { panic!("no") }).await;
        assert_eq!(caught.map(|()| 0), Err("no".into()));
        assert_eq!(supervisor.restarts(), BTreeMap::from([("job controllers".to_owned(), 1)]));
    }
}

//! Puts the parts together and runs them.

use std::sync::Arc;
use std::time::Duration;

use plimsoll_api::event::ObjectReference;
use plimsoll_client::Supervisor;
use plimsoll_client::discovery::Groups;
use plimsoll_client::health::{Health, SILENCE};
use plimsoll_client::leader_election::Claim;
use tokio_util::sync::CancellationToken;

use crate::api::{self, Api, Resource};
use crate::cache::Cache;
use crate::event_recorder::{Ended, Recorder};
use crate::extender::Extenders;
use crate::jobs::control;
use crate::leading::Leading;
use crate::metrics::jobs::JobMetrics;
use crate::reload::{self, Reloads};
use crate::settings::{Settings, limit};
use crate::shard::Shard;
use crate::status::Statuses;
use crate::synced::Synced;
use crate::throttle::Throttle;
use crate::{declared, driver, execute, ingest, moves, multikueue, take_over};

/// A running engine with its watches and writers.
#[derive(Debug)]
pub struct Runtime {
    /// Last seen objects, for webhooks.
    pub cache: Cache,
    supervisor: Supervisor,
    stop: CancellationToken,
    inbox: driver::Inbox,
    jobs: JobMetrics,
    reloads: Reloads,
    thread: Option<std::thread::JoinHandle<()>>,
    synced: Synced,
    health: Health,
    shard: Option<Shard>,
    claim: Claim,
}

/// A look at a running engine from outside; outlives it.
#[derive(Clone, Debug)]
pub struct Monitor {
    inbox: driver::Inbox,
    jobs: JobMetrics,
    reloads: Reloads,
    supervisor: Supervisor,
    synced: Synced,
    health: Health,
}

impl Monitor {
    /// The way to ask it.
    pub fn inbox(&self) -> driver::Inbox {
        self.inbox.clone()
    }

    /// What is counted of job integrations.
    pub fn job_metrics(&self) -> JobMetrics {
        self.jobs.clone()
    }

    /// What became of reloads of plugins.
    pub fn reloads(&self) -> Reloads {
        self.reloads.clone()
    }

    /// Why it has failed, if it has.
    pub fn failure(&self) -> Option<String> {
        self.supervisor.fatal().get()
    }

    /// The tasks that belong to it.
    pub const fn supervisor(&self) -> &Supervisor {
        &self.supervisor
    }

    /// Whether everything has been seen once.
    pub fn is_synced(&self) -> bool {
        self.synced.is_done()
    }

    /// What keeps it from its work; empty when nothing does.
    pub fn problems(&self) -> Vec<String> {
        self.health.problems()
    }
}

/// Pause between two looks whether there is progress.
const LOOK: Duration = Duration::from_secs(5);

/// Pauses the engine's decisions while a resource is not served.
async fn pause(health: Health, inbox: driver::Inbox, stop: CancellationToken) {
    let mut pauses = health.pauses();
    loop {
        inbox.pause(*pauses.borrow_and_update());
        tokio::select! {
            () = stop.cancelled() => return,
            changed = pauses.changed() => if changed.is_err() { return },
        }
    }
}

/// Starts [`pause`].
fn pauses((health, inbox): (&Health, &driver::Inbox), supervisor: &Supervisor, stop: &CancellationToken) {
    let (health, inbox, stop) = (health.clone(), inbox.clone(), stop.clone());
    supervisor.spawn("pauses", move || pause(health.clone(), inbox.clone(), stop.clone()));
}

/// Whether a workload has finished, as last seen.
fn ended(cache: Cache) -> Ended {
    Arc::new(move |about: &ObjectReference| {
        about.kind == api::WORKLOADS.kind
            && cache.objects(|objects| objects.has_finished(&about.namespace, &about.name))
    })
}

/// Lets events that wait at a stop be written for a moment. All of them may take minutes at the rate that a client has.
async fn until_stopped(events: impl Future<Output = ()>, stop: CancellationToken) {
    let late = async {
        stop.cancelled().await;
        tokio::time::sleep(execute::GRACE).await;
    };
    tokio::select! {
        () = events => {}
        () = late => tracing::debug!("events were cut off by the stop"),
    }
}

/// Follows the resources.
fn watch_all(
    api: &Api,
    resources: Vec<Resource>,
    sinks: &ingest::Sinks,
    supervisor: &Supervisor,
    stop: &CancellationToken,
) -> take_over::Memories {
    let (mut given, mut of_trees) = (Vec::new(), Vec::new());
    for resource in resources {
        let follower = ingest::Follower::new(api.clone(), resource, sinks.clone());
        if take_over::GIVES.contains(&resource) {
            given.push((resource, follower.memory()));
        }
        if take_over::OF_TREES.contains(&resource) {
            of_trees.push((resource, follower.memory()));
        }
        let (name, stop) = (format!("watch of {}", resource.plural), stop.clone());
        supervisor.spawn(name, move || follower.clone().run(stop.clone()));
    }
    (given, of_trees)
}

/// Follows the jobs of kinds that are not built in.
fn declared_kinds(
    api: &Api,
    sinks: &ingest::Sinks,
    settings: &Settings,
    supervisor: &Supervisor,
    stop: &CancellationToken,
) {
    // Kinds that MultiKueue dispatches are followed, too, also where another controller makes their workloads.
    let mut names = settings.jobs.external_frameworks.clone();
    names.extend(settings.jobs.multikueue.external_frameworks.iter().cloned());
    names.sort_unstable();
    names.dedup();
    supervisor.spawn("external frameworks", {
        let (api, cache, stop) = (api.clone(), sinks.cache.clone(), stop.clone());
        move || declared::discover(api.clone(), cache.clone(), names.clone(), stop.clone())
    });
    let (api, sinks, stop, within) = (api.clone(), sinks.clone(), stop.clone(), supervisor.clone());
    supervisor.spawn("declared kinds", move || {
        let (api, within) = (api.clone(), within.clone());
        let (health, followed) = (sinks.health.clone(), sinks.clone());
        let start = move |custom: plimsoll_jobs::CustomKind, token: CancellationToken| {
            let follower = ingest::Follower::of_declared(api.clone(), custom, followed.clone());
            let name = format!("watch of {}", custom.framework());
            within.spawn(name, move || follower.clone().run(token.clone()));
        };
        let end = move |custom: plimsoll_jobs::CustomKind| health.forget(custom.preferred());
        declared::run(sinks.cache.clone(), stop.clone(), start, end)
    });
}

impl Runtime {
    /// For metrics and health.
    pub fn monitor(&self) -> Monitor {
        let jobs = self.jobs.clone();
        let (supervisor, synced) = (self.supervisor.clone(), self.synced.clone());
        let (inbox, reloads, health) = (self.inbox.clone(), self.reloads.clone(), self.health.clone());
        Monitor { inbox, jobs, reloads, supervisor, synced, health }
    }

    /// Starts everything against the API server behind `api`. Until `claim` is held the state is only kept up to date;
    /// writes happen only while it is.
    ///
    /// # Errors
    /// When the system gives no thread for the engine.
    pub fn start(api: &Api, settings: &Settings, cache: Cache, claim: &Claim) -> std::io::Result<Self> {
        let roles = settings.roles;
        let nodes = settings.watches_nodes();
        let resources = settings.watched();
        let stop = CancellationToken::new();
        let supervisor = Supervisor::new(stop.clone());
        let engine = settings.engine();
        let shard = settings.shard(resources.len());
        let whole = engine.scheduler.as_ref().is_some_and(plimsoll_scheduler::Config::reads_objects);
        let driver::Driver { inbox, actions, flow, thread } =
            driver::start(engine, resources.len(), &supervisor)?;
        let api = api.writing_as("kueue-admission").without_managed_fields();
        let throttle = Throttle::default();
        let (recorder, writer) = Recorder::new(api.limited(&settings.events()), throttle.clone());
        let writer = writer.until(ended(cache.clone()));
        let stopping = stop.clone();
        supervisor.spawn("event recorder", move || until_stopped(writer.clone().run(), stopping.clone()));
        let (queue, workers) = (control::Queue::default(), multikueue::Inbox::default());
        let jobs = JobMetrics::default();
        let synced = Synced::new(resources.len());
        let health = Health::default();
        let sinks = ingest::Sinks {
            inbox: inbox.clone(),
            cache: cache.clone(),
            queue: queue.clone(),
            multikueue: workers.clone(),
            metrics: jobs.clone(),
            roles,
            nodes,
            whole,
            synced: synced.clone(),
            health: health.clone(),
            groups: Groups::new(api.clone()),
            custom_labels: settings.queueing.custom_labels.as_slice().into(),
            preemption_configs: settings.reads_preemption_configs(),
            shard: shard.clone(),
        };
        let given = watch_all(&api, resources, &sinks, &supervisor, &stop);
        if roles.queueing {
            declared_kinds(&api, &sinks, settings, &supervisor, &stop);
        }
        let took_over = taking_over((&api, claim, &sinks), given.clone(), &supervisor, &stop);
        pauses((&health, &inbox), &supervisor, &stop);
        let statuses = Statuses::default();
        // All writers but the event recorder: Events decide nothing.
        let held = claim.clone();
        let api = api.while_leading(move || held.held());
        let writing = execute::Context {
            api: api.clone(),
            cache: cache.clone(),
            inbox: inbox.clone(),
            flow,
            recorder: recorder.clone(),
            statuses: statuses.clone(),
            throttle: throttle.clone(),
            claim: claim.clone(),
            extenders: Extenders::new(&settings.place.extenders),
            health: health.clone(),
            limits: settings.limits(),
            shard: shard.clone(),
            coalescing: settings.coalescing.clone(),
        };
        // It owes answers to the engine.
        supervisor.spawn_vital("the executor", execute::run(writing, actions, stop.clone()));
        let reloads = Reloads::of(&settings.plugins);
        follow_plugins(settings, (&inbox, &recorder), &reloads, (&supervisor, &stop));
        if roles.queueing {
            let api = api.limited(&limit(settings.queueing_client));
            let may_write = (claim.clone(), health.clone(), throttle);
            write_statuses(statuses, (&api, &cache), may_write, (&supervisor, &stop));
            let leading = Leading { claim: claim.clone(), took_over, health: health.clone() };
            let context = multikueue::Context {
                inbox: workers,
                api: deciding(&api, claim, &stop),
                cache: cache.clone(),
                recorder: recorder.clone(),
                leading: leading.clone(),
                synced: synced.clone(),
                metrics: jobs.clone(),
                supervisor: supervisor.clone(),
            };
            let of_shards = (given.1, settings.shard_leases.clone());
            let moves = moves::Context::new((&api, &sinks), (&recorder, &leading), of_shards);
            moves::start(&moves, (&supervisor, &stop));
            multikueue::start_where_due(context, shard.as_ref(), &stop);
            let context = control::Context {
                queue,
                api: deciding(&api, claim, &stop).writing_as("kueue-job-controller"),
                cache: cache.clone(),
                inbox: inbox.clone(),
                recorder,
                leading,
                synced: synced.clone(),
                metrics: jobs.clone(),
                supervisor: supervisor.clone(),
                shard: shard.clone(),
            };
            let stop = stop.clone();
            supervisor.spawn("job controllers", move || control::run(context.clone(), stop.clone()));
        }
        let (thread, claim) = (Some(thread), claim.clone());
        Ok(Self { cache, supervisor, stop, inbox, jobs, reloads, thread, synced, health, shard, claim })
    }

    /// Waits until everything has been seen once, and so the engine decides and webhooks know what exists.
    pub async fn synced(&self) {
        self.synced.wait().await;
    }

    /// Waits until a part has failed that can't be started again, and says why. Never returns while all work.
    pub async fn failed(&self) -> String {
        self.supervisor.fatal().wait().await
    }

    /// Waits until nothing has been heard of a resource, or of the engine, for too long, and says of which. Another
    /// replica may do better.
    pub async fn stalled(&self) -> String {
        let mut answered = tokio::time::Instant::now();
        let mut ping = self.inbox.ping();
        loop {
            tokio::select! {
                _ = &mut ping => {
                    answered = tokio::time::Instant::now();
                    tokio::time::sleep(LOOK).await;
                    ping = self.inbox.ping();
                }
                () = tokio::time::sleep(LOOK) => {}
            }
            if let Some(problem) = self.health.silence() {
                return problem;
            }
            if answered.elapsed() >= SILENCE {
                return format!("the engine has not ended its step for {} s", answered.elapsed().as_secs());
            }
        }
    }

    /// Stops everything and waits for it.
    pub async fn stop(mut self) {
        self.stop.cancel();
        self.inbox.stop();
        self.supervisor.wait().await;
        // The next leader of the shard must not decide before such writes were carried out or failed.
        if self.shard.is_some_and(|shard| shard.is_unsettled()) {
            self.claim.let_expire();
        }
        if let Some(thread) = self.thread.take() {
            let _ = tokio::task::spawn_blocking(move || thread.join()).await;
        }
    }
}

/// The client of controllers whose writes decide. None begins after the stop, and one that the stop cuts off leaves the Lease to
/// expire: the API server may still carry it out when another process leads.
fn deciding(api: &Api, claim: &Claim, stop: &CancellationToken) -> Api {
    let (held, stopped) = (claim.clone(), stop.clone());
    let api = api.while_leading(move || held.held() && !stopped.is_cancelled());
    let (left, stopped) = (claim.clone(), stop.clone());
    api.reporting_cuts(move || {
        if stopped.is_cancelled() {
            left.let_expire();
        }
    })
}

/// Has a new leader wait until the watches have shown what the one before wrote; the token is cancelled then.
fn taking_over(
    (api, claim, sinks): (&Api, &Claim, &ingest::Sinks),
    given: take_over::Memories,
    supervisor: &Supervisor,
    stop: &CancellationToken,
) -> CancellationToken {
    let took_over = CancellationToken::new();
    let (api, claim, sinks, stop) = (api.clone(), claim.clone(), sinks.clone(), stop.clone());
    let done = took_over.clone();
    supervisor.spawn("taking over", move || {
        let work = take_over::run(api.clone(), claim.clone(), given.clone(), sinks.clone(), done.clone());
        let stop = stop.clone();
        async move { stop.run_until_cancelled(work).await.unwrap_or_default() }
    });
    took_over
}

/// Writes the statuses of queues, as far as the process leads and the API server has room.
fn write_statuses(
    statuses: Statuses,
    (api, cache): (&Api, &Cache),
    may_write: (Claim, Health, Throttle),
    (supervisor, stop): (&Supervisor, &CancellationToken),
) {
    let (api, cache, stop) = (api.clone(), cache.clone(), stop.clone());
    supervisor.spawn("statuses", move || {
        statuses.clone().run(api.clone(), cache.clone(), may_write.clone(), stop.clone())
    });
}

/// Follows the files that plugins come from, as far as the roles use them.
fn follow_plugins(
    settings: &Settings,
    (inbox, recorder): (&driver::Inbox, &Recorder),
    reloads: &Reloads,
    (supervisor, stop): (&Supervisor, &CancellationToken),
) {
    let (roles, gangs) = (settings.roles, settings.schedules_gangs());
    for source in settings.plugins.clone() {
        let (inbox, recorder, reloads) = (inbox.clone(), recorder.clone(), reloads.clone());
        let stop = stop.clone();
        let name = match source.of() {
            reload::Of::Placement if roles.placement => "reloads of plugins",
            reload::Of::Queueing if roles.queueing => "reloads of rules",
            reload::Of::Placement | reload::Of::Queueing => continue,
        };
        supervisor.spawn(name, move || {
            let (inbox, recorder) = (inbox.clone(), recorder.clone());
            reload::run(source.clone(), gangs, (inbox, recorder), reloads.clone(), stop.clone())
        });
    }
}

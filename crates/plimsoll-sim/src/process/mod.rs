//! The process under test as a whole: watches, cache, engine, executor. What decides is the product's own code; what is
//! modelled here is the asynchronous shell around it. A crash drops all of it, and a new one starts from lists.

mod calls;
mod executor;
mod extenders;
mod ingest;
mod jobs;
mod role;
mod shard;
mod statuses;

use std::collections::BTreeSet;
use std::rc::Rc;

use plimsoll_api::kueue::{QuotaRelease, QuotaReleaseStrategy};
use plimsoll_engine::{Action, Engine, EngineConfig, Event, Unanswered};
use plimsoll_jobs::ObjectStore;
use plimsoll_queueing::{
    Action as QueueAction, DeviceMapping, Event as QueueEvent, FairSharing, Gates, WaitForPodsReady,
    WorkloadKey,
};
use plimsoll_state::{Duration, Time};

use crate::agenda::Event as Happens;
use crate::api::{Kind, Watch};
use crate::check::Seen;
use crate::check::quota::{Books, Column};
use crate::network::Network;
use crate::scenario::devices::CLASS;
use crate::scenario::{Release, Settings};
use calls::Calls;
use executor::Executor;
use jobs::Jobs;
use role::Role;
use statuses::Statuses;

/// Least time between two steps of the engine (the runtime's driver).
const GATHER: Duration = Duration(500_000);
/// How long the job of an evicted workload that is no part of the cluster takes to stop.
const STOPS: Duration = Duration::from_millis(20);

/// A process.
#[derive(Debug)]
pub struct Process {
    /// Which life this is.
    pub life: u32,
    /// Which replica lives.
    pub replica: u32,
    role: Role,
    /// Since when it has led, if it followed before.
    led_since: Option<Time>,
    engine: Engine,
    /// Last seen objects.
    objects: ObjectStore,
    watches: Vec<Watch>,
    /// Kinds that were never listed: nothing is decided before that.
    unlisted: BTreeSet<Kind>,
    calls: Calls,
    executor: Executor,
    /// Actions of the engine that are under way.
    unanswered: Unanswered,
    statuses: Statuses,
    jobs: Jobs,
    config: plimsoll_jobs::Config,
    /// Whether it was asked to stop: it begins nothing any more.
    pub stopping: bool,
    /// Whether the engine places pods.
    placement: bool,
    /// Whether its own controller answers for the admission check.
    provisioning: bool,
    inbox: Vec<Event>,
    /// When the engine's next step is put down for.
    due: Option<Time>,
    stepped: Time,
    /// Quotas as the process knows them.
    pub known: Known,
    /// The shard that it leads; `None`: the whole cluster.
    shard: Option<shard::Shard>,
}

/// Quotas as a process has known them since its life began, by serial number.
#[derive(Debug, Default)]
pub struct Known(Vec<Seen>);

impl Known {
    /// Serial number of what is known now. What [`Known::since`] has first is of this time.
    fn serial(&mut self, now: Time) -> u64 {
        if let Some(last) = self.0.last().filter(|last| last.at != now) {
            let quotas = Rc::clone(&last.quotas);
            self.0.push(Seen { at: now, quotas });
        }
        self.0.len() as u64
    }

    /// All from this serial number on.
    pub fn since(&self, serial: u64) -> &[Seen] {
        let from = usize::try_from(serial).unwrap_or(usize::MAX).saturating_sub(1);
        self.0.get(from..).unwrap_or_default()
    }

    /// Takes in what the process sees.
    fn see(&mut self, kind: Kind, name: &str, object: Option<&serde_json::Value>, now: Time) {
        if matches!(
            kind,
            Kind::Pod
                | Kind::Job
                | Kind::Workload
                | Kind::ProvisioningRequest
                | Kind::PodTemplate
                | Kind::DeviceClass
                | Kind::ResourceSlice
                | Kind::ClaimTemplate
                | Kind::ResourceClaim
        ) {
            return;
        }
        let mut quotas = self.0.last().map(|q| (*q.quotas).clone()).unwrap_or_default();
        quotas.know(kind, name, object);
        if self.0.last().is_none_or(|last| *last.quotas != quotas) {
            self.0.push(Seen { at: now, quotas: Rc::new(quotas) });
        }
    }
}

/// Kinds that the process watches.
fn watched(settings: &Settings) -> impl Iterator<Item = Kind> {
    let (placement, provisioning, devices) = (settings.placement, settings.provisioning, settings.devices);
    let shards = settings.shards;
    let needed = move |kind: &Kind| match kind {
        Kind::QuotaLoan => shards,
        Kind::Pod | Kind::Job => placement,
        Kind::ProvisioningConfig | Kind::ProvisioningRequest | Kind::PodTemplate => provisioning,
        Kind::DeviceClass | Kind::ResourceSlice | Kind::ClaimTemplate | Kind::ResourceClaim => devices,
        _ => true,
    };
    Kind::ALL.into_iter().filter(needed)
}

fn device_mapping() -> DeviceMapping {
    let classes = vec![CLASS.to_owned()];
    DeviceMapping { resource: "example.com/devices".to_owned(), classes, ..DeviceMapping::default() }
}

fn pods_ready(settings: &Settings) -> WaitForPodsReady {
    let timeout = Duration::from_millis(settings.pods_ready);
    WaitForPodsReady {
        timeout,
        recovery_timeout: Some(timeout),
        block_admission: settings.block_admission,
        backoff_limit: Some(3),
        backoff_base: Duration::from_seconds(1),
        backoff_max: Duration::from_seconds(10),
    }
}

fn quota_release(settings: &Settings) -> QuotaRelease {
    let strategy = |terminal: bool| match terminal {
        true => QuotaReleaseStrategy::OnTerminal,
        false => QuotaReleaseStrategy::OnQuotaReleased,
    };
    let of = |r: Release| QuotaRelease { jobs: strategy(r.jobs), pods: strategy(r.pods) };
    settings.release.map_or_else(QuotaRelease::default, of)
}

impl Process {
    /// A replica beside the one that leads, which has not listed anything yet.
    pub fn standby(life: u32, replica: u32, settings: Settings) -> Self {
        Self { role: Role::Follows, ..Self::new(life, replica, settings) }
    }

    /// A process that leads, and has not listed anything yet.
    pub fn new(life: u32, replica: u32, settings: Settings) -> Self {
        let queueing = plimsoll_queueing::Config {
            fair_sharing: settings.fair_sharing.then(FairSharing::default),
            watch_nodes: settings.topology,
            overtaking: settings.overtaking,
            explain_every: Duration::from_millis(settings.explain_every),
            shard: settings.shards,
            device_mappings: settings.devices.then(device_mapping).into_iter().collect(),
            // Devices count, and nothing covers them.
            ignore_undeclared: settings.devices,
            wait_for_pods_ready: (settings.pods_ready > 0).then(|| pods_ready(&settings)),
            // Without a policy of a ClusterQueue, or annotations of jobs, they change nothing.
            gates: Gates {
                concurrent_admission: true,
                partial_scale_up: true,
                partial_preemption: true,
                ..Gates::default()
            },
            ..plimsoll_queueing::Config::default()
        };
        let extenders = settings.extender.iter().map(extenders::extender).collect();
        let scheduler = plimsoll_scheduler::Config { extenders, ..plimsoll_scheduler::Config::default() };
        let scheduler = settings.placement.then_some(scheduler);
        let config = EngineConfig { scheduler, queueing: Some(queueing), joint: settings.joint };
        let mut objects = ObjectStore::default();
        if settings.provisioning {
            objects.serve(
                plimsoll_jobs::Kind::ProvisioningRequest,
                Some(plimsoll_api::resource::PROVISIONING_REQUESTS),
            );
        }
        Self {
            life,
            replica,
            role: Role::Leads,
            led_since: None,
            engine: Engine::new(config),
            objects,
            watches: watched(&settings).map(Watch::new).collect(),
            unlisted: watched(&settings).collect(),
            calls: Calls::default(),
            executor: Executor::default(),
            unanswered: Unanswered::default(),
            statuses: Statuses::default(),
            jobs: Jobs::default(),
            config: plimsoll_jobs::Config {
                wait_for_pods_ready: settings.pods_ready > 0,
                concurrent_admission: true,
                partial_scale_up: true,
                partial_preemption: true,
                quota_release: quota_release(&settings),
                ..plimsoll_jobs::Config::default()
            },
            stopping: false,
            placement: settings.placement,
            provisioning: settings.provisioning,
            inbox: Vec::new(),
            due: None,
            stepped: Time(0),
            known: Known::default(),
            shard: settings.shards.then(|| shard::Shard::new(replica, watched(&settings).count())),
        }
    }

    /// Begins to list everything.
    pub fn start(&self, network: &mut Network) {
        for watch in &self.watches {
            self.list_later(watch.kind, network);
        }
    }

    /// The engine, for questions.
    pub const fn engine(&self) -> &Engine {
        &self.engine
    }

    /// Whether it has seen and answered everything there is: nothing is under way.
    pub fn is_idle(&mut self, network: &Network) -> bool {
        let idle = self.may_decide()
            && self.inbox.is_empty()
            && self.calls.is_idle()
            && self.executor.is_idle()
            && self.statuses.is_idle()
            && self.jobs.is_idle()
            && !self.gives_away()
            && !network.busy(self.life)
            && self.watches.iter().all(|w| w.listed && !w.behind(&network.api));
        assert!(!idle || self.unanswered.is_empty(), "never answered: {:?}", self.unanswered);
        idle
    }

    fn tell(&mut self, event: Event, network: &mut Network) {
        assert_eq!(self.unanswered.answered(&event), Ok(()), "an action is answered a second time");
        self.inbox.push(event);
        let at = self.stepped.plus(GATHER).max(network.now());
        self.step_at(at, network);
    }

    fn step_at(&mut self, at: Time, network: &mut Network) {
        // What comes before everything was listed is taken in with the rest; a follower has nothing to wait for.
        let lists = self.role == Role::Leads && !self.unlisted.is_empty();
        if lists || self.due.is_some_and(|due| due <= at) {
            return;
        }
        self.due = Some(at);
        network.agenda.at(at, Happens::Engine(self.life));
    }

    /// A step of the engine, if one is due.
    pub fn step(&mut self, network: &mut Network) -> bool {
        let now = network.now();
        if self.due != Some(now) || self.stopping {
            return false;
        }
        self.due = None;
        self.stepped = now;
        if !self.may_decide() {
            self.engine.observe(now, &mut self.inbox);
            return true;
        }
        let mut actions = Vec::new();
        self.engine.step(now, &mut self.inbox, &mut actions);
        for action in actions {
            self.act(action, network);
        }
        self.pump(network);
        if let Some(wake) = self.engine.next_wake() {
            self.step_at(wake.max(now.plus(GATHER)), network);
        }
        true
    }

    fn act(&mut self, action: Action, network: &mut Network) {
        match action {
            Action::Queueing(
                status @ (QueueAction::ClusterQueueStatus(..)
                | QueueAction::LocalQueueStatus(..)
                | QueueAction::CohortStatus(..)
                | QueueAction::RunWindowStatus(..)),
            ) => self.put_status(&status, network),
            Action::Queueing(QueueAction::Record(..))
            | Action::Scheduler(plimsoll_scheduler::Action::Record { .. }) => {}
            action => {
                let decided = self.known.serial(network.now());
                self.unanswered.emitted(&action);
                if let Some(superseded) = self.executor.push(action, decided) {
                    self.superseded(superseded, network);
                }
            }
        }
    }

    /// The job of an evicted workload that is no part of the cluster has stopped.
    pub fn stopped(&mut self, name: &str, network: &mut Network) {
        let namespace = crate::scenario::objects::NAMESPACE;
        let Some(workload) = self.objects.get(plimsoll_jobs::Kind::Workload, namespace, name) else { return };
        if self.controls() && ingest::waits_for_stop(&workload) && self.may_write(namespace, name) {
            let (namespace, name) = crate::api::name_of(&workload);
            let event = QueueEvent::WorkloadStopped(WorkloadKey { namespace, name });
            self.tell(Event::Queueing(event), network);
        }
    }

    /// What the engine has charged: quota and usage by node of the quota tree and flavor, in thousandths of CPUs.
    pub fn books(&self) -> Books {
        let tree = self.engine.queueing().map(plimsoll_queueing::Queueing::quota_tree).unwrap_or_default();
        let cells = tree.into_iter().flat_map(|n| n.cells.into_iter().map(move |c| (n.name.clone(), c)));
        let cpus = cells.filter(|(_, c)| c.resource == "cpu");
        cpus.map(|(n, c)| ((n, c.flavor), Column { quota: c.subtree, used: c.usage })).collect()
    }
}

//! A large cluster in virtual time, with one leader or with several shards:
//!
//!     shards NODES SHARDS even|skewed PERCENT [EVENTS]
//!
//! The same gangs come to the same nodes and the same quota, whatever SHARDS is: a twentieth of the nodes, a ClusterQueue
//! with their CPUs as its quota, and the gangs of that queue belong together (a *pool*), and SHARDS divides the pools. With
//! one shard, all ClusterQueues are in one cohort and borrow from each other; those of a shard are a cohort of their own, and nothing
//! is lent between shards. PERCENT: the work that comes, of what the nodes do in the time in which it comes. `skewed`: pools get
//! between half and one and a half times that. EVENTS: the most in a step; without, as many as in the driver of `plimsoll run`. Writes are
//! carried out at once. Shards are played one after the other, so that the memory is that of the process of one.

#![allow(
    clippy::print_stdout,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a program for measuring"
)]

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::time::Instant;

use plimsoll_engine::{Action, Engine, EngineConfig, Event};
use plimsoll_queueing::{
    ClusterQueue, Condition, Config, FlavorQuotas, LocalQueue, PodSet, ResourceFlavor, ResourceGroup,
    ResourceQuota, Workload, WorkloadKey, cond,
};
use plimsoll_state::ObjectEvent;
use plimsoll_state::model::{Container, LabelSelector, Node, Pod, PodSpec, StringMap};
use plimsoll_state::rng::Rng;
use plimsoll_state::time::{Duration, Time};

/// The one of the program: how long it takes to grow a list, or to free many objects, depends on it.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Parts that the cluster has however many shards there are.
const POOLS: usize = 20;
/// CPUs of a node, in millicores.
const NODE: i64 = 8_000;
/// Seconds in which gangs come.
const ARRIVALS: i64 = 600;
/// Most events in a step of the driver of `plimsoll run`.
const BATCH: usize = 512;
/// Seconds that a gang runs.
const RUNS: (i64, i64) = (60, 540);

/// What a user submits.
struct Gang {
    pool: usize,
    arrives: i64,
    pods: usize,
    cpu: i64,
    seconds: i64,
}

fn between(rng: &mut Rng, least: i64, most: i64) -> i64 {
    least + i64::from(rng.below(u32::try_from(most - least + 1).unwrap()))
}

/// The gangs of all pools, by the time when they come.
fn gangs(nodes: usize, skewed: bool, percent: usize) -> Vec<Gang> {
    let mut rng = Rng::new(7);
    let mut all = Vec::new();
    for pool in 0..POOLS {
        let share = if skewed { 0.5 + pool as f64 / (POOLS - 1) as f64 } else { 1.0 };
        let capacity = (nodes / POOLS) as i64 * NODE * ARRIVALS;
        let mut left = (capacity as f64 * percent as f64 / 100.0 * share) as i64;
        while left > 0 {
            let pods = match rng.below(4) {
                0 => 1,
                1 => 8,
                2 => 16,
                _ => 64,
            };
            let (cpu, seconds) = (2_000 * between(&mut rng, 1, 4), between(&mut rng, RUNS.0, RUNS.1));
            left -= cpu * seconds * pods as i64;
            all.push(Gang { pool, arrives: between(&mut rng, 0, ARRIVALS), pods, cpu, seconds });
        }
    }
    all.sort_by_key(|gang| gang.arrives);
    all
}

fn queue(name: &str, cohort: &str, cpu: i64) -> ClusterQueue {
    let quota =
        ResourceQuota { resource: "cpu".into(), nominal: cpu, borrowing_limit: None, lending_limit: None };
    let flavors = vec![FlavorQuotas { flavor: "f".into(), resources: vec![quota] }];
    ClusterQueue {
        name: name.into(),
        cohort: cohort.into(),
        resource_groups: vec![ResourceGroup { covered: vec!["cpu".into()], flavors }],
        namespace_selector: Some(LabelSelector::default()),
        fair_weight_nano: 1_000_000_000,
        ..ClusterQueue::default()
    }
}

fn name(gang: usize) -> String {
    format!("w{gang}")
}

/// A leader with its part of the cluster.
struct Leader<'a> {
    engine: Engine,
    gangs: &'a [Gang],
    now: i64,
    events: Vec<Event>,
    /// Most events in a step.
    batch: usize,
    /// Workloads that have not ended, and how many of their pods have no node.
    running: HashMap<usize, (Workload, usize)>,
    ends: BinaryHeap<Reverse<(i64, usize)>>,
    version: u64,
    /// Microseconds that each step took, and of these on a processor, with the events and actions of the step and the nodes that it
    /// looked at.
    steps: Vec<u128>,
    on_processor: Vec<(u64, [usize; 4])>,
    admitted: usize,
    bound: usize,
    /// Seconds from creation to the last binding, over all gangs.
    waited: i64,
    finished: i64,
}

impl<'a> Leader<'a> {
    fn new(pools: &std::ops::Range<usize>, per_pool: usize, gangs: &'a [Gang], batch: usize) -> Self {
        let queueing = Config { explain_every: Duration::from_seconds(60), ..Config::usual() };
        let scheduler = plimsoll_scheduler::Config::default();
        let config = EngineConfig { scheduler: Some(scheduler), queueing: Some(queueing), joint: true };
        use plimsoll_queueing::Event as Queue;
        let mut events = vec![
            Queue::NamespaceUpsert("n".into(), StringMap::default()),
            Queue::ResourceFlavorUpsert(Box::new(ResourceFlavor { name: "f".into(), ..Default::default() })),
        ];
        for pool in pools.clone() {
            let name = format!("pool-{pool}");
            let cq = queue(&name, "all", per_pool as i64 * NODE);
            events.push(Queue::ClusterQueueUpsert(Box::new(cq)));
            let lq = LocalQueue {
                namespace: "n".into(),
                name: name.clone(),
                cluster_queue: name,
                ..Default::default()
            };
            events.push(Queue::LocalQueueUpsert(Box::new(lq)));
        }
        Self {
            engine: Engine::new(config),
            gangs,
            now: 0,
            events: events.into_iter().map(Event::Queueing).collect(),
            batch,
            running: HashMap::new(),
            ends: BinaryHeap::new(),
            version: 1,
            steps: Vec::new(),
            on_processor: Vec::new(),
            admitted: 0,
            bound: 0,
            waited: 0,
            finished: 0,
        }
    }

    /// Takes in the nodes in batches, as lists come, without deciding. The microseconds that the longest of these took on a processor.
    fn start(&mut self, pools: std::ops::Range<usize>, per_pool: usize) -> u64 {
        let mut longest = 0;
        for i in pools.start * per_pool..pools.end * per_pool {
            let name = format!("node-{i}");
            let mut n = Node { uid: name.clone(), name: name.clone(), ready: true, ..Node::default() };
            n.labels.insert("kubernetes.io/hostname".into(), name);
            n.labels.insert("topology.kubernetes.io/zone".into(), format!("zone-{}", i % 3));
            n.allocatable.insert("cpu".into(), NODE);
            n.allocatable.insert("pods".into(), 110);
            self.events.push(Event::Object(ObjectEvent::NodeUpsert(Box::new(n))));
            if self.events.len() == self.batch {
                longest = longest.max(self.observe());
            }
        }
        longest.max(self.observe())
    }

    fn observe(&mut self) -> u64 {
        let before = on_processor();
        self.engine.observe(Time(0), &mut self.events);
        on_processor().saturating_sub(before)
    }

    fn workload_event(&mut self, workload: &mut Workload) {
        self.version += 1;
        workload.version = self.version;
        let event = plimsoll_queueing::Event::WorkloadUpsert(Box::new(workload.clone()));
        self.events.push(Event::Queueing(event));
    }

    fn submit(&mut self, number: usize) {
        let gang = &self.gangs[number];
        let container = Container { requests: [("cpu".to_owned(), gang.cpu)].into(), ..Container::default() };
        let spec = PodSpec {
            scheduler_name: "default-scheduler".into(),
            containers: vec![container],
            ..PodSpec::default()
        };
        let count = i32::try_from(gang.pods).unwrap();
        let mut workload = Workload {
            key: WorkloadKey { namespace: "n".into(), name: name(number) },
            uid: name(number),
            generation: 1,
            creation: Time(self.now),
            queue: format!("pool-{}", gang.pool),
            active: true,
            pod_sets: vec![PodSet { name: "main".into(), count, spec, ..PodSet::default() }].into(),
            ..Workload::default()
        };
        self.workload_event(&mut workload);
        self.running.insert(number, (workload, 0));
    }

    fn end(&mut self, number: usize) {
        let Some((mut workload, _)) = self.running.remove(&number) else { return };
        for i in 0..self.gangs[number].pods {
            self.events.push(Event::Object(ObjectEvent::PodDelete(format!("{}-{i}", name(number)))));
        }
        let done = Condition {
            kind: cond::FINISHED.into(),
            status: true,
            reason: "Succeeded".into(),
            ..Condition::default()
        };
        workload.status.conditions.push(done);
        self.workload_event(&mut workload);
        self.events.push(Event::Queueing(plimsoll_queueing::Event::WorkloadDelete(workload.key)));
        self.finished = self.now / 1_000_000_000;
    }

    fn carry_out(&mut self, action: Action) {
        match action {
            Action::Queueing(plimsoll_queueing::Action::UpdateWorkload(update)) => {
                let number: usize = update.key.name[1..].parse().unwrap();
                let Some((mut workload, left)) = self.running.remove(&number) else { return };
                let before = workload.status.is_true(cond::ADMITTED);
                update.apply(&mut workload.status);
                let admitted = !before && workload.status.is_true(cond::ADMITTED);
                self.workload_event(&mut workload);
                let pods = if admitted { self.gangs[number].pods } else { left };
                if admitted {
                    self.admitted += 1;
                    for i in 0..pods {
                        let pod = pod(&workload, i);
                        self.events.push(Event::Object(ObjectEvent::PodUpsert(Box::new(pod))));
                    }
                }
                self.running.insert(number, (workload, pods));
            }
            Action::Scheduler(plimsoll_scheduler::Action::Bind { pod: bound, node }) => {
                let (workload, i) = bound.name.rsplit_once('-').unwrap();
                let number: usize = workload[1..].parse().unwrap();
                let (workload, left) = self.running.get_mut(&number).unwrap();
                let mut pod = pod(workload, i.parse().unwrap());
                pod.spec.node_name = node;
                *left -= 1;
                self.bound += 1;
                if *left == 0 {
                    let gang = &self.gangs[number];
                    self.waited += self.now / 1_000_000_000 - gang.arrives;
                    // Whole seconds, so that a step sees the ends of many.
                    let end = (self.now / 1_000_000_000 + gang.seconds) * 1_000_000_000;
                    self.ends.push(Reverse((end, number)));
                }
                self.events.push(Event::Scheduler(plimsoll_scheduler::Event::Bound(pod.uid.clone())));
                self.events.push(Event::Object(ObjectEvent::PodUpsert(Box::new(pod))));
            }
            Action::Scheduler(plimsoll_scheduler::Action::Unschedulable { pod, .. }) => {
                panic!("{}: admitted, but no node has a place for it", pod.uid);
            }
            Action::Scheduler(_) | Action::Queueing(_) => {}
        }
    }

    /// Plays until all gangs of these pools have ended.
    fn run(&mut self, pools: &std::ops::Range<usize>) {
        let gangs = self.gangs;
        let mut arrivals = (0..gangs.len()).filter(|i| pools.contains(&gangs[*i].pool)).peekable();
        loop {
            while let Some(number) = arrivals.next_if(|i| gangs[*i].arrives * 1_000_000_000 <= self.now) {
                self.submit(number);
            }
            while let Some(Reverse((at, number))) = self.ends.peek().copied().filter(|e| e.0.0 <= self.now) {
                self.ends.pop();
                debug_assert!(at <= self.now);
                self.end(number);
            }
            let mut actions = Vec::new();
            let mut events: Vec<Event> = self.events.drain(..self.events.len().min(self.batch)).collect();
            let handed_in = events.len();
            let (before, began) = (on_processor(), Instant::now());
            self.engine.step(Time(self.now), &mut events, &mut actions);
            self.steps.push(began.elapsed().as_micros());
            let took = on_processor().saturating_sub(before);
            let work = self.engine.scheduler().map_or((0, 0), |s| (s.nodes_looked_at(), s.claims_planned()));
            self.on_processor.push((took, [handed_in, actions.len(), work.0, work.1]));
            actions.into_iter().for_each(|action| self.carry_out(action));
            let wake = self.engine.next_wake();
            if !self.events.is_empty() || wake.is_some_and(|at| at.0 <= self.now) {
                // Each step takes a moment.
                self.now += 1_000;
                continue;
            }
            let arrival = arrivals.peek().map(|i| gangs[*i].arrives * 1_000_000_000);
            let end = self.ends.peek().map(|e| e.0.0);
            if self.running.is_empty() && arrival.is_none() {
                return;
            }
            let next = [arrival, end, wake.map(|at| at.0)].into_iter().flatten().min();
            self.now = next.expect("gangs wait, and nothing will happen any more");
        }
    }
}

fn pod(workload: &Workload, i: usize) -> Pod {
    let name = format!("{}-{i}", workload.key.name);
    Pod {
        uid: name.clone(),
        namespace: "n".into(),
        name,
        labels: [("kueue.x-k8s.io/podset".to_owned(), "main".to_owned())].into_iter().collect(),
        workload: workload.key.name.clone(),
        pod_set: "main".into(),
        spec: workload.pod_sets[0].spec.clone(),
        ..Pod::default()
    }
}

/// Memory that the process has, or has had at most (`VmRSS`, `VmHWM`), in MiB.
fn memory(what: &str) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with(what)).unwrap_or_default();
    line.split_whitespace().nth(1).and_then(|kib| kib.parse::<u64>().ok()).unwrap_or(0) / 1024
}

/// Microseconds that this thread has had a processor, to a tick of the kernel: on a machine that does other things, too, steps are
/// longer than their work.
fn on_processor() -> u64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    text.split_whitespace().next().and_then(|ns| ns.parse::<u64>().ok()).unwrap_or(0) / 1000
}

fn play(nodes: usize, shards: usize, skewed: bool, percent: usize, batch: usize) {
    let all = gangs(nodes, skewed, percent);
    let (pods, before) = (all.iter().map(|gang| gang.pods).sum::<usize>(), memory("VmRSS"));
    let (per_pool, width) = (nodes / POOLS, POOLS / shards);
    let load = if skewed { "skewed" } else { "even" };
    println!(
        "{nodes} nodes, {} gangs, {pods} pods, {load} load of {percent} %, {shards} leader(s)",
        all.len()
    );
    let (mut makespan, mut waited, mut decided, mut seconds) = (0, 0, 0, Vec::new());
    let (mut longest, mut starts, mut steps) = (0, Vec::new(), Vec::new());
    let (mut on_processor, mut longest_at_start) = (Vec::new(), 0);
    for shard in 0..shards {
        let pools = shard * width..(shard + 1) * width;
        let mut leader = Leader::new(&pools, per_pool, &all, batch);
        let began = Instant::now();
        longest_at_start = longest_at_start.max(leader.start(pools.clone(), per_pool));
        starts.push(began.elapsed().as_secs_f64());
        leader.run(&pools);
        let took = leader.steps.iter().sum::<u128>() as f64 / 1e6;
        longest = longest.max(leader.steps.iter().copied().max().unwrap_or(0));
        makespan = makespan.max(leader.finished);
        waited += leader.waited;
        decided += leader.admitted + leader.bound;
        seconds.push(took);
        steps.append(&mut leader.steps);
        on_processor.append(&mut leader.on_processor);
    }
    steps.sort_unstable();
    let slowest = seconds.iter().copied().fold(0.0, f64::max);
    let (sum, p99) = (seconds.iter().sum::<f64>(), steps[steps.len() * 99 / 100]);
    println!("makespan {makespan} s of virtual time, mean wait {:.1} s", waited as f64 / all.len() as f64);
    println!("{decided} decisions in {sum:.1} s of all engines, {slowest:.1} s of the busiest");
    println!(
        "{:.0} decisions/s for each engine, {:.0} of all side by side",
        decided as f64 / sum,
        decided as f64 / slowest
    );
    println!("steps: P99 {p99} us, longest {:.1} ms of {}", longest as f64 / 1e3, steps.len());
    on_processor.sort_unstable();
    let all = on_processor.iter().map(|(took, _)| took).sum::<u64>() as f64 / 1e6;
    let over = on_processor.iter().filter(|(took, _)| *took > 50_000).count();
    println!("on a processor: {all:.1} s of all engines, {over} steps of more than 50 ms; the longest:");
    for (took, [events, actions, looked_at, claims]) in on_processor.iter().rev().take(5) {
        let took = *took as f64 / 1e3;
        println!(
            "  {took:.1} ms: {events} events, {actions} actions, {looked_at} nodes looked at, {claims} claims planned"
        );
    }
    let most = on_processor.iter().map(|(_, [.., claims])| *claims).max().unwrap_or(0);
    println!("most claims planned in a step: {most}");
    let (start, longest) = (starts.iter().copied().fold(0.0, f64::max), longest_at_start as f64 / 1e3);
    println!("start: {start:.2} s, the longest step of it {longest:.1} ms on a processor");
    println!("memory of one process: at most {} MiB, of which the load {before} MiB", memory("VmHWM"));
}

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let number = |i: usize| args.get(i).and_then(|a| a.parse::<usize>().ok());
    match (number(0), number(1), args.get(2).map(String::as_str), number(3)) {
        (Some(nodes), Some(shards), Some(load @ ("even" | "skewed")), Some(percent))
            if shards > 0 && nodes.is_multiple_of(POOLS) && POOLS.is_multiple_of(shards) =>
        {
            play(nodes, shards, load == "skewed", percent, number(4).filter(|n| *n > 0).unwrap_or(BATCH));
        }
        _ => println!(
            "usage: shards NODES SHARDS even|skewed PERCENT [EVENTS] (NODES a multiple of 20, SHARDS a divisor of 20)"
        ),
    }
}

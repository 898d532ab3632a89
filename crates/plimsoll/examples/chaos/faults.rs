//! Which faults come when.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use super::common::proxy::{Asked, Fault, Proxy};

/// What is hit; empty: everything.
const RESOURCES: [&str; 10] =
    ["", "", "workloads", "workloads", "pods", "jobs", "clusterqueues", "localqueues", "nodes", "leases"];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Which {
    All,
    Reads,
    Writes,
    Watches,
}

/// The faults of a phase.
#[derive(Clone, Copy, Debug)]
struct Phase {
    resource: &'static str,
    which: Which,
    fault: Fault,
    /// Requests in a hundred.
    share: u64,
    seed: u64,
}

impl Phase {
    fn name(&self) -> String {
        match self.fault {
            Fault::Status(code) => code.to_string(),
            Fault::Delay(_) => "delay".into(),
            other => format!("{other:?}").to_lowercase(),
        }
    }

    fn hits(&self, asked: &Asked<'_>, count: u64) -> bool {
        let which = match self.which {
            Which::All => true,
            Which::Reads => !asked.writes(),
            Which::Writes => asked.writes(),
            Which::Watches => asked.watch,
        };
        // A mixing step of splitmix64, so that requests are hit independently.
        let mut z = self.seed.wrapping_add(count.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        which
            && (self.resource.is_empty() || asked.about(self.resource))
            && (z ^ (z >> 31)) % 100 < self.share
    }
}

/// The faults of a run, drawn from a seed.
pub struct Plan {
    random: StdRng,
    phase: Option<Phase>,
    until: Instant,
    counts: BTreeMap<String, u32>,
}

impl Plan {
    pub fn new(seed: u64) -> Self {
        // A while without faults, so that something runs.
        let until = Instant::now() + Duration::from_secs(5);
        Self { random: StdRng::seed_from_u64(seed), phase: None, until, counts: BTreeMap::new() }
    }

    /// Goes on to the next phase when it is time.
    pub fn advance(&mut self, proxy: &Proxy) {
        if Instant::now() < self.until {
            return;
        }
        let random = &mut self.random;
        if self.phase.take().is_some() && random.random_range(0..3) == 0 {
            self.until = Instant::now() + Duration::from_millis(random.random_range(500..8000));
            return proxy.heal();
        }
        let fault = match random.random_range(0..14) {
            0..4 => Fault::Status(404),
            4 => Fault::Status(410),
            5 => Fault::Status(429),
            6 => Fault::Status(500),
            7 => Fault::Status(503),
            8 => Fault::Hang,
            9 => Fault::Lose,
            10 => Fault::Cut,
            11 => Fault::LoseAndCut,
            12 => Fault::Delay(Duration::from_millis(random.random_range(50..3000))),
            _ => Fault::Repeat,
        };
        let which = [Which::All, Which::All, Which::Reads, Which::Writes, Which::Watches];
        let phase = Phase {
            resource: RESOURCES[random.random_range(0..RESOURCES.len())],
            which: which[random.random_range(0..which.len())],
            fault,
            share: [100, 100, 50, 10][random.random_range(0..4)],
            seed: random.random(),
        };
        self.until = Instant::now() + Duration::from_millis(random.random_range(1000..20_000));
        *self.counts.entry(phase.name()).or_default() += 1;
        self.phase = Some(phase);
        let count = AtomicU64::new(0);
        proxy.rule(move |asked| match phase.hits(asked, count.fetch_add(1, Ordering::Relaxed)) {
            true => phase.fault,
            false => Fault::None,
        });
    }

    /// The phase, in words.
    pub fn now(&self) -> String {
        self.phase.map_or_else(
            || "no fault".into(),
            |p| {
                let what = if p.resource.is_empty() { "everything" } else { p.resource };
                format!("{} for {} % of {:?} of {what}", p.name(), p.share, p.which).to_lowercase()
            },
        )
    }

    pub fn summary(&self) -> String {
        let all: Vec<String> = self.counts.iter().map(|(name, n)| format!("{n} × {name}")).collect();
        format!("phases: {}", all.join(", "))
    }
}

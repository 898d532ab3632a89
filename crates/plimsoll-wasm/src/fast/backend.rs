//! What answers for a plugin: a guest, or a plugin of the SDK that is compiled in.

use std::fmt::Debug;

use plimsoll_plugin::{Charge, Flavor, Manifest, Permit, Plugin, Pod, Rejection, Ruling, Table, Workload};

use crate::failures::Failures;

use super::guest::{Dirty, FastGuest, FastInstance};

/// How long a guest is not called after a call that executed all the instructions that it may, in nanoseconds.
const PAUSE: i64 = 10_000_000_000;

/// Instructions that a call about a workload may execute: a millisecond or two.
pub const RULE_FUEL: u64 = 2_000_000;

/// The outcome of a decision; an `Err` on the outside: the plugin failed.
pub type Decision = Result<Result<(), Rejection>, String>;

/// What answers for a plugin. Errors are texts of statuses.
pub trait Backend: Debug + Send {
    /// What the plugin does and reads.
    fn manifest(&self) -> &Manifest;

    /// The time of the calls that follow.
    fn at(&mut self, now: i64);

    /// These rows of the table have changed; `None`: all of them.
    fn changed(&mut self, rows: Option<&[u32]>);

    /// What a pod holds.
    ///
    /// # Errors
    /// When the plugin fails.
    fn charges(&mut self, pod: &Pod) -> Result<Vec<Charge>, String>;

    /// PreFilter.
    ///
    /// # Errors
    /// When the plugin fails.
    fn pre_filter(&mut self, pod: &Pod) -> Decision;

    /// Filter, for a pod: for each row 0, or the number of the reason after the first.
    ///
    /// # Errors
    /// When the plugin fails.
    fn filter(&mut self, pod: &Pod, table: &mut Table, rows: &[u32]) -> Result<Vec<u8>, String>;

    /// Score, for a pod: for each row its raw score.
    ///
    /// # Errors
    /// When the plugin fails.
    fn score(&mut self, pod: &Pod, table: &mut Table, rows: &[u32]) -> Result<Vec<i64>, String>;

    /// Reserve.
    ///
    /// # Errors
    /// When the plugin fails.
    fn reserve(&mut self, pod: &Pod) -> Decision;

    /// Permit.
    ///
    /// # Errors
    /// When the plugin fails.
    fn permit(&mut self, pod: &Pod) -> Result<Permit, String>;

    /// PostBind.
    ///
    /// # Errors
    /// When the plugin fails.
    fn post_bind(&mut self, pod: &Pod) -> Result<(), String>;

    /// What the plugin says about a workload that waits for quota.
    ///
    /// # Errors
    /// When the plugin fails.
    fn rule(&mut self, workload: &Workload) -> Result<Ruling, String>;

    /// A score for each flavor.
    ///
    /// # Errors
    /// When the plugin fails.
    fn score_flavors(&mut self, workload: &Workload, flavors: &[Flavor]) -> Result<Vec<i32>, String>;

    /// The place of a workload among candidates for preemption.
    ///
    /// # Errors
    /// When the plugin fails.
    fn victim_order(&mut self, workload: &Workload) -> Result<i32, String>;
}

/// A plugin of the SDK that is compiled in, for tests and embedders.
#[derive(Debug)]
pub struct Native<P> {
    plugin: P,
    manifest: Manifest,
}

impl<P: Plugin> Native<P> {
    /// The plugin with this configuration.
    ///
    /// # Errors
    /// What the plugin says is wrong with it.
    pub fn new(config: &str) -> Result<Self, String> {
        let plugin = P::configure(config)?;
        let manifest = plugin.manifest();
        Ok(Self { plugin, manifest })
    }
}

impl<P: Plugin + Debug + Send> Backend for Native<P> {
    fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    fn at(&mut self, _: i64) {}

    fn changed(&mut self, _: Option<&[u32]>) {}

    fn charges(&mut self, pod: &Pod) -> Result<Vec<Charge>, String> {
        Ok(self.plugin.charges(pod))
    }

    fn pre_filter(&mut self, pod: &Pod) -> Decision {
        Ok(self.plugin.pre_filter(pod))
    }

    fn filter(&mut self, pod: &Pod, table: &mut Table, rows: &[u32]) -> Result<Vec<u8>, String> {
        let one = |reason: Option<u8>| reason.map_or(0, |at| at.saturating_add(1));
        Ok(table.with(|nodes| {
            rows.iter().map(|row| one(self.plugin.filter(pod, nodes, *row as usize))).collect()
        }))
    }

    fn score(&mut self, pod: &Pod, table: &mut Table, rows: &[u32]) -> Result<Vec<i64>, String> {
        Ok(table.with(|nodes| rows.iter().map(|row| self.plugin.score(pod, nodes, *row as usize)).collect()))
    }

    fn reserve(&mut self, pod: &Pod) -> Decision {
        Ok(self.plugin.reserve(pod))
    }

    fn permit(&mut self, pod: &Pod) -> Result<Permit, String> {
        Ok(self.plugin.permit(pod))
    }

    fn post_bind(&mut self, pod: &Pod) -> Result<(), String> {
        self.plugin.post_bind(pod);
        Ok(())
    }

    fn rule(&mut self, workload: &Workload) -> Result<Ruling, String> {
        Ok(self.plugin.rule(workload))
    }

    fn score_flavors(&mut self, workload: &Workload, flavors: &[Flavor]) -> Result<Vec<i32>, String> {
        Ok(flavors.iter().map(|flavor| self.plugin.score_flavor(workload, flavor)).collect())
    }

    fn victim_order(&mut self, workload: &Workload) -> Result<i32, String> {
        Ok(self.plugin.victim_order(workload))
    }
}

/// A guest. An instance that failed is replaced by a new one.
#[derive(Debug)]
pub struct Wasm {
    guest: FastGuest,
    config: String,
    manifest: Manifest,
    instance: Option<FastInstance>,
    /// The pod of the instance's last PreFilter.
    pod: Option<Pod>,
    dirty: Dirty,
    now: i64,
    /// Until when the guest is not called, and why.
    paused: Option<(i64, String)>,
    /// Name of the plugin, and where its failures are counted.
    counted: Option<(String, Failures)>,
}

impl Wasm {
    /// A guest with this configuration.
    ///
    /// # Errors
    /// When it refuses the configuration, fails, or its manifest is not valid.
    pub fn new(guest: FastGuest, config: &str) -> Result<Self, String> {
        let instance = guest.instantiate(config)?;
        let manifest = instance.manifest.clone();
        let config = config.to_owned();
        let (instance, dirty) = (Some(instance), Dirty::All);
        Ok(Self { guest, config, manifest, instance, pod: None, dirty, now: 0, paused: None, counted: None })
    }

    fn with<T>(
        &mut self,
        f: impl FnOnce(&mut Self, &mut FastInstance) -> Result<T, String>,
    ) -> Result<T, String> {
        match &self.paused {
            Some((until, why)) if self.now < *until => return Err(why.clone()),
            _ => self.paused = None,
        }
        let mut instance = match self.instance.take() {
            Some(instance) => instance,
            None => {
                (self.pod, self.dirty) = (None, Dirty::All);
                let made = self.guest.instantiate(&self.config)?;
                if made.manifest != self.manifest {
                    return Err("wasm: the guest has another manifest than before".to_owned());
                }
                made
            }
        };
        let answer = f(self, &mut instance);
        if let (Err(_), Some((plugin, failures))) = (&answer, &self.counted) {
            failures.count(plugin, instance.is_exhausted());
        }
        match &answer {
            Err(why) if instance.is_exhausted() => {
                self.paused = Some((self.now.saturating_add(PAUSE), why.clone()));
            }
            Err(_) => {}
            Ok(_) => self.instance = Some(instance),
        }
        answer
    }

    /// A call about a workload. It has a small budget instead of a pause after one that used it up: rules know no time.
    fn briefly<T>(&mut self, f: impl FnOnce(&mut FastInstance) -> Result<T, String>) -> Result<T, String> {
        let answer = self.with(|_, instance| instance.with_fuel(RULE_FUEL, f));
        self.paused = None;
        answer
    }

    /// Counts its failures under the name of the plugin.
    #[must_use]
    pub fn counted_in(self, plugin: &str, failures: Failures) -> Self {
        Self { counted: Some((plugin.to_owned(), failures)), ..self }
    }

    /// Has the instance know the pod and the nodes.
    fn prepare(&mut self, instance: &mut FastInstance, pod: &Pod, table: &Table) -> Result<(), String> {
        if self.dirty != Dirty::Rows(Vec::new()) {
            instance.write_columns(table, &self.dirty)?;
            self.dirty = Dirty::Rows(Vec::new());
        }
        if self.pod.as_ref() != Some(pod) {
            self.pod = Some(pod.clone());
            // What it says was asked before.
            let _ = instance.pre_filter(pod)?;
        }
        Ok(())
    }
}

impl Backend for Wasm {
    fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    fn at(&mut self, now: i64) {
        self.now = now;
    }

    fn changed(&mut self, rows: Option<&[u32]>) {
        match (rows, &mut self.dirty) {
            (_, Dirty::All) => {}
            (None, dirty) => *dirty = Dirty::All,
            (Some(rows), Dirty::Rows(all)) => all.extend(rows),
        }
    }

    fn charges(&mut self, pod: &Pod) -> Result<Vec<Charge>, String> {
        self.with(|_, instance| instance.charges(pod))
    }

    fn pre_filter(&mut self, pod: &Pod) -> Decision {
        self.with(|this, instance| {
            this.pod = Some(pod.clone());
            instance.pre_filter(pod)
        })
    }

    fn filter(&mut self, pod: &Pod, table: &mut Table, rows: &[u32]) -> Result<Vec<u8>, String> {
        self.with(|this, instance| {
            this.prepare(instance, pod, table)?;
            instance.filter(table, rows)
        })
    }

    fn score(&mut self, pod: &Pod, table: &mut Table, rows: &[u32]) -> Result<Vec<i64>, String> {
        self.with(|this, instance| {
            this.prepare(instance, pod, table)?;
            instance.score(table, rows)
        })
    }

    fn reserve(&mut self, pod: &Pod) -> Decision {
        self.with(|_, instance| instance.reserve(pod))
    }

    fn permit(&mut self, pod: &Pod) -> Result<Permit, String> {
        self.with(|_, instance| instance.permit(pod))
    }

    fn post_bind(&mut self, pod: &Pod) -> Result<(), String> {
        self.with(|_, instance| instance.post_bind(pod))
    }

    fn rule(&mut self, workload: &Workload) -> Result<Ruling, String> {
        self.briefly(|instance| instance.rule(workload))
    }

    fn score_flavors(&mut self, workload: &Workload, flavors: &[Flavor]) -> Result<Vec<i32>, String> {
        self.briefly(|instance| instance.score_flavors(workload, flavors))
    }

    fn victim_order(&mut self, workload: &Workload) -> Result<i32, String> {
        self.briefly(|instance| instance.victim_order(workload))
    }
}

//! The rest of the cluster: kubelets, the Job controller, garbage collection. Each looks at an object some time after it has
//! changed, sees the API as it is then, and never fails: what is under test is Plimsoll.

mod claims;
mod job;
mod kubelets;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use plimsoll_api::kueue::variants;
use plimsoll_state::Duration;
use serde_json::Value;

use crate::agenda::Event;
use crate::api::{Change, Kind, Request, deleting, list, name_of, text, uid};
use crate::dice::{Dice, Draw};
use crate::network::Network;
use crate::scenario::Settings;
use crate::scenario::objects::NAMESPACE;
use claims::Claims;
pub use claims::claims_of;
use kubelets::Kubelets;

/// The rest of the cluster.
#[derive(Debug)]
pub struct Cluster {
    dice: Dice,
    /// How often something was looked at.
    looks: u64,
    /// Jobs that will be looked at.
    jobs: BTreeSet<String>,
    /// Pods made so far, by job.
    made: BTreeMap<String, u32>,
    /// UIDs of pods that have succeeded, by the UID of their Job.
    succeeded: BTreeMap<String, BTreeSet<String>>,
    kubelets: Kubelets,
    claims: Claims,
    /// Whether the pods of a Job run only while all of them have nodes.
    gangs: bool,
    /// Whether Jobs say how many of their pods terminate.
    terminating: bool,
}

/// The Job that owns an object: its name and UID.
fn owner(object: &Value) -> Option<(&str, &str)> {
    let owners = list(object, &["metadata", "ownerReferences"]).iter();
    let mut jobs = owners.filter(|o| o["kind"] == "Job");
    jobs.next().map(|o| (text(o, &["name"]), text(o, &["uid"])))
}

/// The pods that a Job of this name has made, and maybe others: in a long run most pods are of Jobs that are done.
fn pods_named_after<'a>(job: &str, network: &'a Network) -> Vec<&'a Arc<Value>> {
    network.api.named(Kind::Pod, NAMESPACE, &format!("{job}-")).collect()
}

/// Whether a Workload is a parent or a variant.
fn is_of_family(workload: &Value) -> bool {
    variants::is_parent(&workload["metadata"]) || variants::parent(&workload["metadata"]).is_some()
}

/// Kinds that Workloads and requests own.
const OWNED: [Kind; 2] = [Kind::ProvisioningRequest, Kind::PodTemplate];

/// Deletes requests and templates whose owner is gone.
fn collect_owned(network: &mut Network) {
    for kind in OWNED {
        let exists = |o: &Value| {
            let kinds = [Kind::Workload, Kind::ProvisioningRequest];
            let owner = kinds.into_iter().find(|k| o["kind"] == k.name());
            let owner = owner.and_then(|k| network.api.get(k, NAMESPACE, text(o, &["name"])));
            owner.is_some_and(|owner| o["uid"] == uid(owner))
        };
        let orphan =
            |o: &&Arc<Value>| !list(o, &["metadata", "ownerReferences"]).iter().any(exists) && !deleting(o);
        let all: Vec<Arc<Value>> = network.api.all(kind).filter(orphan).cloned().collect();
        for object in all {
            let (name, uid, now) = (name_of(&object), uid(&object).to_owned(), network.now());
            let _ = network.api.handle(Request::Delete { kind, name, uid, grace: None }, now);
        }
    }
}

impl Cluster {
    /// A cluster without nodes.
    pub fn new(seed: u64, settings: &Settings) -> Self {
        Self {
            gangs: settings.gangs,
            terminating: settings.release.is_some(),
            dice: Dice::new(seed).about("cluster"),
            looks: 0,
            jobs: BTreeSet::new(),
            made: BTreeMap::new(),
            succeeded: BTreeMap::new(),
            kubelets: Kubelets::default(),
            claims: Claims::default(),
        }
    }

    fn soon(&mut self, what: &str, longest: i64) -> Duration {
        self.looks += 1;
        Duration::from_millis(self.dice.about(what).of(self.looks).rng().range(1, longest))
    }

    /// Something has changed.
    pub fn changed(&mut self, kind: Kind, change: &Change, network: &mut Network) {
        match kind {
            Kind::Job => self.look_at_job(&name_of(&change.object).1, network),
            Kind::Pod => {
                if change.object["spec"]["resourceClaims"].is_array() {
                    self.look_at_claims(network);
                }
                if change.deleted {
                    let wait = self.soon("collect", 20);
                    network.agenda.after(wait, Event::Collect);
                }
                if let Some((job, _)) = owner(&change.object) {
                    let job = job.to_owned();
                    self.look_at_job(&job, network);
                }
                if !text(&change.object, &["spec", "nodeName"]).is_empty() {
                    let (name, wait) = (name_of(&change.object).1, self.soon("pod", 20));
                    network.agenda.after(wait, Event::Kubelet(name));
                }
            }
            Kind::Workload => {
                // One whose job is gone already is collected, too.
                if let Some((job, _)) = owner(&change.object).filter(|_| !change.deleted) {
                    let job = job.to_owned();
                    self.look_at_job(&job, network);
                }
                let owns = || OWNED.iter().any(|kind| network.api.all(*kind).next().is_some());
                // A variant of a parent that is gone already is collected, too.
                if is_of_family(&change.object) || change.deleted && owns() {
                    network.agenda.after(Duration::from_millis(10), Event::Collect);
                }
            }
            Kind::Node => {
                let (name, wait) = (name_of(&change.object).1, self.soon("node", 50));
                network.agenda.after(wait, Event::Node(name));
            }
            // What belongs to one that is gone already is collected, too.
            Kind::ProvisioningRequest | Kind::PodTemplate => {
                network.agenda.after(Duration::from_millis(10), Event::Collect);
            }
            Kind::Namespace
            | Kind::ProvisioningConfig
            | Kind::ClusterQueue
            | Kind::LocalQueue
            | Kind::Cohort
            | Kind::Flavor
            | Kind::AdmissionCheck
            | Kind::Topology
            | Kind::WorkloadPriorityClass
            | Kind::RunWindow
            | Kind::DeviceClass
            | Kind::QuotaLoan
            | Kind::ResourceSlice => {}
            Kind::ClaimTemplate | Kind::ResourceClaim => self.look_at_claims(network),
        }
    }

    /// Deletes workloads all of whose owners, pods or a parent, are gone, and requests whose owner is: the garbage collector.
    pub fn collect(&self, network: &mut Network) {
        collect_owned(network);
        let gone = |o: &Value| {
            let kind = [Kind::Pod, Kind::Workload].into_iter().find(|k| o["kind"] == k.name());
            kind.is_some_and(|kind| {
                let owner = network.api.get(kind, NAMESPACE, text(o, &["name"]));
                owner.is_none_or(|owner| o["uid"] != uid(owner))
            })
        };
        let orphan = |w: &&Arc<Value>| {
            let owners = list(w, &["metadata", "ownerReferences"]);
            !owners.is_empty() && !deleting(w) && owners.iter().all(gone)
        };
        let all: Vec<Arc<Value>> = network.api.all(Kind::Workload).filter(orphan).cloned().collect();
        for workload in all {
            let (name, uid, now) = (name_of(&workload), uid(&workload).to_owned(), network.now());
            let request = Request::Delete { kind: Kind::Workload, name, uid, grace: None };
            let _ = network.api.handle(request, now);
        }
    }

    fn look_at_job(&mut self, name: &str, network: &mut Network) {
        if self.jobs.insert(name.to_owned()) {
            let wait = self.soon(name, 20);
            network.agenda.after(wait, Event::Job(name.to_owned()));
        }
    }
}

//! Devices: none is in two claims; a pod is bound where its claims can be used, and they stay so while it runs; reservations
//! end with the pods.

use std::collections::BTreeMap;

use plimsoll_state::{Duration, Time};
use serde_json::Value;

use super::{Rule, Violation};
use crate::api::{Name, list, text, uid};
use crate::cluster::claims_of;

/// How long the writes take that end the reservations of pods that are done.
const ENDS: Duration = Duration::from_seconds(60);

/// A device: driver, pool, name.
type Device = (String, String, String);

/// A claim.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Claim {
    uid: String,
    allocated: bool,
    devices: Vec<Device>,
    /// The node on which it can be used; `None`: any.
    node: Option<String>,
    reserved: Vec<String>,
}

impl Claim {
    fn read(object: &Value) -> Self {
        let allocation = &object["status"]["allocation"];
        let results = list(allocation, &["devices", "results"]).iter();
        let device = |r: &Value| {
            let part = |key| text(r, &[key]).to_owned();
            (part("driver"), part("pool"), part("device"))
        };
        let fields = list(allocation, &["nodeSelector", "nodeSelectorTerms"]).first();
        let node = fields.and_then(|t| list(t, &["matchFields"]).first()?["values"][0].as_str());
        Self {
            uid: uid(object).to_owned(),
            allocated: allocation.is_object(),
            devices: results.map(device).collect(),
            node: node.map(str::to_owned),
            reserved: list(object, &["status", "reservedFor"])
                .iter()
                .map(|r| text(r, &["uid"]).to_owned())
                .collect(),
        }
    }
}

/// A pod with claims.
#[derive(Clone, Debug)]
struct Pod {
    uid: String,
    /// Empty while it is not bound, and once it is done.
    node: String,
    claims: Vec<Option<String>>,
    /// Whether it is done.
    done: bool,
}

/// Claims and the pods that use them.
#[derive(Debug, Default)]
pub struct Devices {
    claims: BTreeMap<Name, Claim>,
    pods: BTreeMap<Name, Pod>,
    /// Reservations for pods that are done or gone, and since when.
    stale: BTreeMap<(Name, String), Time>,
}

fn broken(message: String) -> Result<(), Violation> {
    Err(Violation::new(Rule::Devices, message))
}

impl Devices {
    /// A claim has changed, or is gone.
    ///
    /// # Errors
    /// When a device of it is in another claim, or a pod that runs has lost it.
    pub fn claim_changed(&mut self, name: &Name, object: Option<&Value>, now: Time) -> Result<(), Violation> {
        let new = object.map(Claim::read).unwrap_or_default();
        let old = self.claims.insert(name.clone(), new.clone()).unwrap_or_default();
        if object.is_none() {
            self.claims.remove(name);
        }
        if new.devices != old.devices {
            let others = || self.claims.iter().filter(|(other, _)| *other != name);
            let twice = others().find(|(_, c)| c.devices.iter().any(|d| new.devices.contains(d)));
            if let Some((other, claim)) = twice {
                return broken(format!("{} and {} have {:?}", name.1, other.1, claim.devices));
            }
        }
        if (&new.uid, &new.devices, &new.node) != (&old.uid, &old.devices, &old.node) {
            let uses = |p: &&Pod| !p.node.is_empty() && p.claims.iter().flatten().any(|c| *c == name.1);
            for (pod, row) in self.pods.iter().filter(|(pod, row)| pod.0 == name.0 && uses(row)) {
                self.usable(pod, row)?;
            }
        }
        self.find_stale(now);
        Ok(())
    }

    /// A pod has changed, or is gone.
    ///
    /// # Errors
    /// When it was bound where it can't use its claims.
    pub fn pod_changed(&mut self, name: &Name, object: Option<&Value>, now: Time) -> Result<(), Violation> {
        let Some(object) = object.filter(|o| o["spec"]["resourceClaims"].is_array()) else {
            if self.pods.remove(name).is_some() {
                self.find_stale(now);
            }
            return Ok(());
        };
        let done = matches!(text(object, &["status", "phase"]), "Succeeded" | "Failed");
        let node = if done { "" } else { text(object, &["spec", "nodeName"]) };
        let claims = claims_of(object).map(|(_, claim)| claim.map(str::to_owned)).collect();
        let pod = Pod { uid: uid(object).to_owned(), node: node.to_owned(), claims, done };
        let old = self.pods.insert(name.clone(), pod.clone());
        self.find_stale(now);
        let was_bound = old.is_some_and(|o| o.uid == pod.uid && !o.node.is_empty());
        if pod.node.is_empty() || was_bound {
            return Ok(());
        }
        self.usable(name, &pod)?;
        let reserved = |c: &Option<String>| {
            let claim = c.as_ref().and_then(|c| self.claims.get(&(name.0.clone(), c.clone())));
            claim.is_some_and(|c| c.reserved.contains(&pod.uid))
        };
        match pod.claims.iter().find(|c| !reserved(c)) {
            Some(claim) => broken(format!("{} is bound, and {claim:?} is not reserved for it", name.1)),
            None => Ok(()),
        }
    }

    /// Whether a pod can use its claims where it is.
    fn usable(&self, name: &Name, pod: &Pod) -> Result<(), Violation> {
        for claim in &pod.claims {
            let row = claim.as_ref().and_then(|c| self.claims.get(&(name.0.clone(), c.clone())));
            let here = |c: &&Claim| c.allocated && c.node.as_ref().is_none_or(|n| *n == pod.node);
            if row.filter(here).is_none() {
                return broken(format!("{} is on {}, and can't use {claim:?}: {row:?}", name.1, pod.node));
            }
        }
        Ok(())
    }

    fn find_stale(&mut self, now: Time) {
        let mut stale = BTreeMap::new();
        for (name, claim) in &self.claims {
            for uid in &claim.reserved {
                if self.pods.values().any(|p| p.uid == *uid && !p.done) {
                    continue;
                }
                let key = (name.clone(), uid.clone());
                let since = self.stale.get(&key).copied().unwrap_or(now);
                stale.insert(key, since);
            }
        }
        self.stale = stale;
    }

    /// Whether reservations have ended with their pods, some time after the faults have ended.
    ///
    /// # Errors
    /// When one has not.
    pub fn overdue(&self, calm: Time, now: Time) -> Result<(), Violation> {
        match self.stale.iter().find(|(_, since)| now.since((**since).max(calm)) > ENDS) {
            Some(((claim, pod), since)) => {
                broken(format!("{} is reserved for {pod}, which is done since {since:?}", claim.1))
            }
            None => Ok(()),
        }
    }
}

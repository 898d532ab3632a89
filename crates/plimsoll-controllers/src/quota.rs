//! The ResourceQuota controller: what admission has charged is counted anew when something changes that it doesn't
//! charge for (`pkg/controller/resourcequota` upstream).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures::future::BoxFuture;
use jiff::{SignedDuration, Timestamp};
use plimsoll_apimachinery::meta::{Meta, nullable};
use plimsoll_apimachinery::{KindTable, quota};
use plimsoll_client::{Client, Controller, Informer, Outcome, Target, WorkQueue, modify, resources};
use serde::Deserialize;
use serde_json::Value;
use tokio::sync::watch::Receiver;

/// Changes that come within this time are counted together.
const GATHER: SignedDuration = SignedDuration::from_millis(50);

/// An object that may count.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Counted {
    metadata: Meta,
    #[serde(deserialize_with = "nullable")]
    status: Phase,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
struct Phase {
    #[serde(deserialize_with = "nullable")]
    phase: Value,
}

impl Counted {
    /// A pod that has ended doesn't count any more.
    fn is_over(&self) -> bool {
        self.status.phase == "Succeeded" || self.status.phase == "Failed"
    }
}

/// The controller.
pub struct QuotaController {
    client: Arc<dyn Client>,
    quotas: Informer<Value>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// What quotas there are count, by `group/plural`.
    watched: BTreeMap<String, Arc<Informer<Counted>>>,
    table: Option<Arc<KindTable>>,
    /// Time of the last refresh.
    now: Timestamp,
}

impl QuotaController {
    /// The controller, not running yet.
    pub fn new(client: Arc<dyn Client>) -> Self {
        let quotas = Informer::new(client.reader(), &resources::RESOURCE_QUOTAS.storage, |_| None);
        Self { client, quotas, state: Mutex::default() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Watches what the quotas count, and nothing else.
    fn follow(&self, state: &mut State, quotas_changed: bool) {
        let table = self.client.kinds();
        let same = state.table.as_ref().is_some_and(|t| Arc::ptr_eq(t, &table));
        if same && !quotas_changed {
            return;
        }
        let mut wanted = BTreeSet::new();
        for quota in self.quotas.all() {
            wanted.extend(
                quota::counted(&table, &**self.client.reader(), &quota).into_keys().map(str::to_owned),
            );
        }
        state.watched.retain(|storage, _| wanted.contains(storage));
        for storage in wanted {
            let informer =
                |storage: &String| Arc::new(Informer::new(self.client.reader(), storage, |_| None));
            state.watched.entry(storage).or_insert_with_key(informer);
        }
        state.table = Some(table);
    }

    async fn recount(&self, path: &str) -> Outcome {
        let Some(quota) = self.quotas.get(path) else { return Ok(None) };
        let meta = &quota["metadata"];
        let text = |key: &str| meta[key].as_str().unwrap_or_default();
        // A charge after this check changes the version of the quota, and the count isn't written.
        if self.client.is_charging(text("namespace")) {
            return Ok(Some(GATHER));
        }
        let now = self.state().now;
        let status = quota::recount(&self.client.kinds(), &**self.client.reader(), &quota, now);
        if status == quota["status"] {
            return Ok(None);
        }
        // Admission may have charged meanwhile: then this count is old, and the change enqueues the quota.
        let version = meta["resourceVersion"].clone();
        let target = Target::object(&resources::RESOURCE_QUOTAS, text("namespace"), text("name"));
        let written = modify(&*self.client, target.part("status"), text("uid"), |object| {
            let current = object["metadata"]["resourceVersion"] == version;
            if current {
                object["status"] = status.clone();
            }
            current
        });
        match written.await {
            Err(error) if error.code != 404 => Err(error),
            _ => Ok(None),
        }
    }
}

impl Controller for QuotaController {
    fn name(&self) -> &'static str {
        "resourcequota"
    }

    fn signals(&self) -> Vec<Receiver<u64>> {
        vec![self.client.reader().signal()]
    }

    fn refresh(&self, queue: &mut WorkQueue, now: Timestamp) {
        let mut changed = false;
        self.quotas.refresh(|seen| {
            changed = true;
            queue.add(seen.path);
        });
        let mut state = self.state();
        state.now = now;
        self.follow(&mut state, changed);
        let mut namespaces = BTreeSet::new();
        for informer in state.watched.values() {
            informer.refresh(|seen| {
                let counts = |object: Option<&Arc<Counted>>| object.is_some_and(|o| !o.is_over());
                // Creation is charged by admission; what was there before the quota is counted with it.
                if counts(seen.old) != counts(seen.new)
                    && let Some(object) = seen.old.or(seen.new)
                {
                    namespaces.insert(object.metadata.namespace.clone());
                }
            });
        }
        let later = now.saturating_add(GATHER).unwrap_or(now);
        for namespace in namespaces {
            self.quotas.in_namespace(&namespace, |quota| {
                let name = quota["metadata"]["name"].as_str().unwrap_or_default();
                queue.add_at(&format!("{namespace}/{name}"), later);
            });
        }
    }

    fn sync<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Outcome> {
        Box::pin(self.recount(key))
    }
}

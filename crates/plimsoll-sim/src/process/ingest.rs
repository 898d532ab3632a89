//! From watches to the engine and the cache (the runtime's `ingest`).

use std::sync::Arc;

use plimsoll_engine::Event;
use plimsoll_jobs::Kind as Stored;
use plimsoll_jobs::shards::Division;
use plimsoll_state::{ClusterObjectKey, ClusterObjectKind, ObjectEvent};
use serde_json::Value;

use super::{Process, STOPS};
use crate::agenda::Event as Happens;
use crate::api::{Delta, Kind, is_true, list, name_of, text};
use crate::network::{Delivery, Network};

/// Whether the engine waits for the job of this workload to stop.
pub fn waits_for_stop(workload: &Value) -> bool {
    is_true(workload, "Evicted")
        && workload["status"]["admission"].is_object()
        && list(workload, &["metadata", "ownerReferences"]).is_empty()
}

/// Whether the scheduler reads it, besides nodes and pods.
const fn is_of_cluster(kind: Kind) -> bool {
    matches!(
        kind,
        Kind::Namespace | Kind::DeviceClass | Kind::ResourceSlice | Kind::ResourceClaim | Kind::ClaimTemplate
    )
}

impl Process {
    pub(super) fn list_later(&self, kind: Kind, network: &mut Network) {
        let (latency, _) = network.list_latency(self.replica, kind);
        network.agenda.after(latency, Happens::List(self.life, kind));
    }

    /// The list of a kind is there, or failed.
    pub fn list(&mut self, kind: Kind, network: &mut Network) {
        let (_, fails) = network.list_latency(self.replica, kind);
        if fails {
            return self.list_later(kind, network);
        }
        let Some(watch) = self.watches.iter_mut().find(|w| w.kind == kind) else { return };
        let deltas = watch.list(&network.api);
        let first = self.unlisted.remove(&kind);
        self.take(kind, deltas, network);
        self.forget_unseen(kind, network);
        if first {
            self.divide(network, Division::listed);
        }
        if self.unlisted.is_empty() {
            self.step_at(network.now(), network);
            self.wake_workers(network);
        }
    }

    /// Something of a kind has changed: the next change comes, unless one is on its way already.
    pub fn changed(&mut self, kind: Kind, network: &mut Network) {
        let life = self.life;
        let Some(watch) = self.watches.iter_mut().find(|w| w.kind == kind) else { return };
        if watch.behind(&network.api) && !std::mem::replace(&mut watch.coming, true) {
            let latency = network.watch_latency(self.replica, kind);
            network.agenda.after(latency, Happens::Watch(life, kind));
        }
    }

    /// The next change of a kind is there.
    pub fn watch(&mut self, kind: Kind, network: &mut Network) {
        let Some(watch) = self.watches.iter_mut().find(|w| w.kind == kind) else { return };
        watch.coming = false;
        if !watch.behind(&network.api) {
            return;
        }
        let delivery = network.delivery(self.replica, kind);
        if delivery == Delivery::Lost {
            watch.lose();
            return self.list_later(kind, network);
        }
        let deltas = watch.next(&network.api);
        if delivery == Delivery::Twice {
            self.take(kind, deltas.clone(), network);
        }
        self.take(kind, deltas, network);
        self.changed(kind, network);
    }

    fn take(&mut self, kind: Kind, deltas: Vec<Delta>, network: &mut Network) {
        for delta in deltas {
            match delta {
                Delta::Upsert(object) => self.upsert(kind, &object, network),
                Delta::Delete(name, uid) => {
                    self.gone(kind, &name, &uid, network);
                    self.known.see(kind, &name.1, None, network.now());
                    if self.placement
                        && is_of_cluster(kind)
                        && let Some(kind) = ClusterObjectKind::from_name(kind.name())
                    {
                        let (namespace, name) = name.clone();
                        let key = ClusterObjectKey { kind, namespace, name };
                        self.tell(Event::Object(ObjectEvent::ObjectDelete(key)), network);
                    }
                    if self.shard.is_some() {
                        self.gone_from_shard(kind, &name, &uid, network);
                        continue;
                    }
                    let event = match kind {
                        Kind::Pod => Some(Event::Object(ObjectEvent::PodDelete(uid))),
                        Kind::Node => Some(Event::Object(ObjectEvent::NodeDelete(name.1))),
                        _ => plimsoll_api::kueue::delete_event(kind.name(), &name.0, &name.1)
                            .map(Event::Queueing),
                    };
                    event.into_iter().for_each(|e| self.tell(e, network));
                }
            }
        }
        self.lead_if_caught_up(network);
        self.find_what_was_sought(network);
    }

    fn upsert(&mut self, kind: Kind, object: &Arc<Value>, network: &mut Network) {
        self.known.see(kind, text(object, &["metadata", "name"]), Some(object), network.now());
        // The bytes, where they are what is decoded.
        let decoded = matches!(kind, Kind::Node | Kind::Pod) || is_of_cluster(kind);
        let json = if decoded { object.to_string() } else { String::new() };
        let event = match kind {
            Kind::Node => plimsoll_api::convert::node(json.as_bytes())
                .map(|n| Some(Event::Object(ObjectEvent::NodeUpsert(Box::new(n))))),
            Kind::Pod => plimsoll_api::convert::pod(json.as_bytes())
                .map(|p| Some(Event::Object(ObjectEvent::PodUpsert(Box::new(p))))),
            _ => {
                if self.placement
                    && is_of_cluster(kind)
                    && let Ok(Some(known)) =
                        plimsoll_api::convert::cluster_object(kind.name(), json.as_bytes())
                {
                    self.tell(Event::Object(ObjectEvent::ObjectUpsert(Box::new(known))), network);
                }
                plimsoll_api::kueue::upsert_event(object).map(|e| e.map(Event::Queueing))
            }
        };
        // Pods that no queue manages are not kept.
        if let Some(stored) = Stored::of(kind.resource())
            && (kind != Kind::Pod || json.contains("kueue.x-k8s.io/"))
        {
            self.objects.put(stored, Arc::clone(object));
        }
        if let Ok(Some(event)) = event {
            match self.shard.is_some() {
                true => self.seen_in_shard(event, object, network),
                false => self.tell(event, network),
            }
        }
        self.touched(kind, object, network);
        if kind == Kind::Workload && waits_for_stop(object) {
            network.agenda.after(STOPS, Happens::Stopped(self.life, name_of(object).1));
        }
    }
}

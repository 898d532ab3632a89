//! Statuses of queues: the latest wins, one write per object is under way, and a failed one is made again (the
//! runtime's `status`).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use plimsoll_queueing::{Action, QueueStatus};
use plimsoll_state::Duration;
use serde_json::{Value, json};

use super::Process;
use crate::agenda::Event as Happens;
use crate::api::{Kind, Name, Request, Style, uid};
use crate::network::{Answer, Network};
use crate::scenario::objects::NAMESPACE;

/// Pause after a failed write.
const RETRY: Duration = Duration::from_millis(500);
/// Pause between two writes of one status.
const DEBOUNCE: Duration = Duration::from_millis(20);

#[derive(Clone, Debug)]
enum Wanted {
    Queue(Arc<QueueStatus>),
    Share(i64),
}

/// Statuses that should be written.
#[derive(Debug, Default)]
pub struct Statuses {
    wanted: BTreeMap<(Kind, String), Wanted>,
    /// Those that wait for their answer or for the pause after it.
    busy: BTreeSet<(Kind, String)>,
}

fn full(kind: Kind, name: &str) -> Name {
    (if kind == Kind::LocalQueue { NAMESPACE.to_owned() } else { String::new() }, name.to_owned())
}

impl Statuses {
    /// A status is wanted.
    pub fn put(&mut self, action: Action, life: u32, network: &mut Network) {
        let (key, wanted) = match action {
            Action::ClusterQueueStatus(name, status) => ((Kind::ClusterQueue, name), Wanted::Queue(status)),
            Action::LocalQueueStatus(_, name, status) => ((Kind::LocalQueue, name), Wanted::Queue(status)),
            Action::CohortStatus(name, share) => ((Kind::Cohort, name), Wanted::Share(share)),
            _ => return,
        };
        self.wanted.insert(key.clone(), wanted);
        if self.busy.insert(key.clone()) {
            network.agenda.after(Duration::ZERO, Happens::Status(life, key.0, key.1));
        }
    }

    /// Whether nothing is to be written.
    pub fn is_idle(&self) -> bool {
        self.busy.is_empty() && self.wanted.is_empty()
    }
}

impl Process {
    /// The status of a queue may be written.
    pub fn write_status(&mut self, kind: Kind, name: String, network: &mut Network) {
        let key = (kind, name);
        let Some(wanted) = self.statuses.wanted.remove(&key) else {
            self.statuses.busy.remove(&key);
            return;
        };
        let full = full(kind, &key.1);
        let Some(object) = self.cache.get(kind, &full.0, &full.1) else {
            self.statuses.busy.remove(&key);
            return;
        };
        let status = match &wanted {
            Wanted::Share(share) => json!({"fairSharing": {"weightedShare": share}}),
            Wanted::Queue(status) if kind == Kind::LocalQueue => {
                plimsoll_api::kueue::local_queue_status(status)
            }
            Wanted::Queue(status) => plimsoll_api::kueue::cluster_queue_status(status),
        };
        let same = |(k, v): (&String, &Value)| object["status"][k] == *v;
        if status.as_object().into_iter().flatten().all(same) {
            network.agenda.after(DEBOUNCE, Happens::Status(self.life, kind, key.1));
            return;
        }
        let body = json!({"metadata": {"uid": uid(&object)}, "status": status});
        let request = Request::Patch { kind, name: full, status: true, style: Style::Merge, body };
        self.statuses.wanted.entry(key.clone()).or_insert(wanted);
        self.send(super::executor::For::Status(kind, key.1), request, None, false, network);
    }

    /// A write of a status was answered.
    pub(super) fn status_answered(
        &mut self,
        kind: Kind,
        name: String,
        answer: Answer,
        network: &mut Network,
    ) {
        let pause = match answer {
            Ok(object) => {
                self.cache.refresh(kind, object);
                DEBOUNCE
            }
            Err(_) => RETRY,
        };
        network.agenda.after(pause, Happens::Status(self.life, kind, name));
    }
}

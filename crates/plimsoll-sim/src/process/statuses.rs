//! Statuses of queues: the latest wins, one write per object is under way, and a failed one is made again (the
//! runtime's `status`).

use std::collections::BTreeMap;

use plimsoll_api::execution::status::{Status, StatusKey, status_of, status_request};
use plimsoll_jobs::Kind as Stored;
use plimsoll_queueing::Action;
use plimsoll_state::Duration;

use super::Process;
use super::calls::For;
use crate::agenda::Event as Happens;
use crate::api::Request;
use crate::network::{Answer, Network};

/// Pause after a failed write.
const RETRY: Duration = Duration::from_millis(500);
/// Pause between two writes of one status.
const DEBOUNCE: Duration = Duration::from_millis(20);

/// Statuses that should be written.
#[derive(Debug, Default)]
pub struct Statuses {
    wanted: BTreeMap<StatusKey, Status>,
    /// Those that wait for their answer or for the pause after it, with a status that was not written.
    busy: BTreeMap<StatusKey, Option<Status>>,
}

impl Statuses {
    /// Whether nothing is to be written.
    pub fn is_idle(&self) -> bool {
        self.busy.is_empty() && self.wanted.is_empty()
    }
}

impl Process {
    /// Takes the status out of an action; other actions are ignored.
    pub(super) fn put_status(&mut self, action: &Action, network: &mut Network) {
        let Some((key, status)) = status_of(action) else { return };
        self.statuses.wanted.insert(key.clone(), status);
        if !self.statuses.busy.contains_key(&key) {
            self.status_after(Duration::ZERO, key, None, network);
        }
    }

    fn status_after(
        &mut self,
        pause: Duration,
        key: StatusKey,
        again: Option<Status>,
        network: &mut Network,
    ) {
        self.statuses.busy.insert(key.clone(), again);
        network.agenda.after(pause, Happens::Status(self.life, key));
    }

    /// The status of a queue may be written.
    pub fn write_status(&mut self, key: StatusKey, network: &mut Network) {
        if self.stopping {
            return;
        }
        let again = self.statuses.busy.remove(&key).flatten();
        let unsure = again.is_some();
        let Some(status) = self.statuses.wanted.remove(&key).or(again) else { return };
        let (resource, namespace, name) = &key;
        let object = Stored::of(*resource).and_then(|kind| self.objects.get(kind, namespace, name));
        let request = object.and_then(|o| status_request(&key, &status, &o, unsure, network.now()));
        match request.and_then(Request::of_client) {
            Some(request) => {
                self.statuses.busy.insert(key.clone(), None);
                self.send(For::Status(key, status), request, None, network);
            }
            None => self.status_after(DEBOUNCE, key, None, network),
        }
    }

    /// A write of a status was answered.
    pub(super) fn status_answered(
        &mut self,
        key: StatusKey,
        status: Status,
        answer: Answer,
        network: &mut Network,
    ) {
        match answer {
            Ok(object) => {
                if let Some(kind) = Stored::of(key.0) {
                    self.objects.refresh(kind, object);
                }
                self.status_after(DEBOUNCE, key, None, network);
            }
            Err(_) => self.status_after(Duration(RETRY.0 + DEBOUNCE.0), key, Some(status), network),
        }
    }
}

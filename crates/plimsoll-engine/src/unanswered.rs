//! Which actions wait for their answer.
//!
//! Every action that changes something gets exactly one answer: it was done, it failed for a reason, or it was superseded.
//! The engine reacts to each, so an answer that never comes leaves a pod assumed or a workload's status unconfirmed, and
//! one that comes twice undoes what a later action did.

use std::collections::BTreeMap;

use plimsoll_queueing::{Action as QueueAction, Event as QueueEvent, WorkloadKey};
use plimsoll_scheduler::{Action as SchedulerAction, Event as SchedulerEvent};

use crate::{Action, Event};

/// Identifies an action by what its answer names.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ActionId {
    /// PreBind or Bind of the pod of this UID, which follow each other.
    Bind(String),
    /// A call of an extender, by its number.
    Extend(u64),
    /// The condition `PodScheduled` of the pod of this UID.
    Unschedulable(String),
    /// The nomination of the pod of this UID, or the end of it.
    Nominate(String),
    /// `ReleaseClaims` for the pod of this UID.
    ReleaseClaims(String),
    /// The deletion of a victim, by its UID and that of its preemptor.
    Preempt(String, String),
    /// A write of a workload's status, by its number.
    UpdateWorkload(WorkloadKey, u64),
    /// The deactivation of the workload of this UID.
    DeactivateWorkload(String),
    /// The termination of the pod of this UID.
    FailPod(String),
    /// A write to the QuotaLoan of this name, decided for this version.
    UpdateLoan(String, u64),
}

impl Action {
    /// What the action's answer refers to: more than one id where writes were joined, and none where no answer comes. No
    /// answer comes to Kubernetes Events, of which losing one decides nothing, nor to statuses of queues: the latest is
    /// written until it is.
    pub fn ids(&self) -> Vec<ActionId> {
        match self {
            Self::Scheduler(action) => scheduler_id(action).into_iter().collect(),
            Self::Queueing(QueueAction::UpdateWorkload(update)) => {
                update.ids().map(|id| ActionId::UpdateWorkload(update.key.clone(), id)).collect()
            }
            Self::Queueing(QueueAction::DeactivateWorkload { uid, .. }) => {
                vec![ActionId::DeactivateWorkload(uid.clone())]
            }
            Self::Queueing(QueueAction::UpdateLoan(update)) => {
                vec![ActionId::UpdateLoan(update.name.clone(), update.version)]
            }
            Self::Queueing(QueueAction::FailPod { uid, .. }) => vec![ActionId::FailPod(uid.clone())],
            Self::Queueing(
                QueueAction::Record(..)
                | QueueAction::ClusterQueueStatus(..)
                | QueueAction::LocalQueueStatus(..)
                | QueueAction::CohortStatus(..)
                | QueueAction::RunWindowStatus(..),
            ) => Vec::new(),
        }
    }
}

fn scheduler_id(action: &SchedulerAction) -> Option<ActionId> {
    Some(match action {
        SchedulerAction::Bind { pod, .. } | SchedulerAction::Prepare { pod, .. } => {
            ActionId::Bind(pod.uid.clone())
        }
        SchedulerAction::Extend { call, .. } => ActionId::Extend(*call),
        SchedulerAction::Unschedulable { pod, .. } => ActionId::Unschedulable(pod.uid.clone()),
        SchedulerAction::Nominate { pod, .. } => ActionId::Nominate(pod.uid.clone()),
        SchedulerAction::ReleaseClaims { pod, .. } => ActionId::ReleaseClaims(pod.uid.clone()),
        SchedulerAction::Preempt { victim, preemptor, .. } => {
            ActionId::Preempt(victim.uid.clone(), preemptor.uid.clone())
        }
        SchedulerAction::Record { .. } => return None,
    })
}

/// The actions that were emitted and not answered.
#[derive(Clone, Debug, Default)]
pub struct Unanswered {
    /// How many of each are under way.
    rows: BTreeMap<ActionId, u32>,
}

impl Unanswered {
    /// Notes an action that was emitted.
    pub fn emitted(&mut self, action: &Action) {
        for id in action.ids() {
            *self.rows.entry(id).or_default() += 1;
        }
    }

    /// Notes an event for the engine. A write of a workload that is done answers those to it that were emitted before,
    /// because it repeats them.
    ///
    /// # Errors
    /// The id of an action that was not emitted, or is answered already.
    pub fn answered(&mut self, event: &Event) -> Result<(), ActionId> {
        let id = match event {
            Event::Object(_) => return Ok(()),
            Event::Scheduler(event) => match event {
                SchedulerEvent::Bound(uid)
                | SchedulerEvent::Prepared(uid)
                | SchedulerEvent::BindFailed { uid, .. } => ActionId::Bind(uid.clone()),
                SchedulerEvent::Extended { call, .. } => ActionId::Extend(*call),
                SchedulerEvent::Reload(_) => return Ok(()),
                SchedulerEvent::Answered { action, .. } => match scheduler_id(action) {
                    Some(id) => id,
                    None => return Ok(()),
                },
            },
            Event::Queueing(QueueEvent::Written { key, id, .. }) => {
                let first = ActionId::UpdateWorkload(key.clone(), 0);
                let last = ActionId::UpdateWorkload(key.clone(), *id);
                let done: Vec<ActionId> =
                    self.rows.range(first..=last.clone()).map(|(id, _)| id.clone()).collect();
                if !done.contains(&last) {
                    return Err(last);
                }
                for id in done {
                    self.rows.remove(&id);
                }
                return Ok(());
            }
            Event::Queueing(QueueEvent::WriteFailed { key, id, .. }) => {
                ActionId::UpdateWorkload(key.clone(), *id)
            }
            Event::Queueing(QueueEvent::Answered { action, .. }) => {
                let ids = Action::Queueing((**action).clone()).ids();
                return ids.into_iter().try_for_each(|id| self.end(id));
            }
            Event::Queueing(_) => return Ok(()),
        };
        self.end(id)
    }

    fn end(&mut self, id: ActionId) -> Result<(), ActionId> {
        let Some(count) = self.rows.get_mut(&id) else { return Err(id) };
        *count -= 1;
        if *count == 0 {
            self.rows.remove(&id);
        }
        Ok(())
    }

    /// The actions that wait for their answer.
    pub fn ids(&self) -> impl Iterator<Item = &ActionId> {
        self.rows.keys()
    }

    /// Whether all are answered.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }
}

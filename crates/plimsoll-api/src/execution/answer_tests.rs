//! Every action gets exactly one answer, whatever the API server responds and in which order actions end.

use plimsoll_engine::Unanswered;
use plimsoll_queueing::{Condition, LoanChange, LoanUpdate, WorkloadKey, WorkloadUpdate, cond};
use plimsoll_scheduler::{DeviceGrant, PodEvent, PodRef, PreBindWork};
use plimsoll_state::Answer;
use plimsoll_state::model::AllocatedDevice;
use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::lanes::{Group, Lane, Lanes};

const NOW: Time = Time::from_seconds(1_700_000_000);

/// An action of each kind that waits for an answer; `object` says on which pod or workload.
fn action(kind: u8, object: u8, number: u64) -> Action {
    let uid = format!("u{object}");
    let pod = || PodRef { uid: uid.clone(), namespace: "ns".into(), name: uid.clone() };
    let key = || WorkloadKey { namespace: "ns".into(), name: uid.clone() };
    let place = Action::Scheduler;
    match kind {
        0 => place(SchedulerAction::Bind { pod: pod(), node: "n".into() }),
        1 => {
            let claim = claim(number);
            let what = Box::new(PreBindWork { devices: vec![claim], ..PreBindWork::default() });
            place(SchedulerAction::Prepare { pod: pod(), node: "n".into(), what })
        }
        2 | 3 => place(SchedulerAction::Unschedulable {
            pod: pod(),
            reason: plimsoll_scheduler::FailureReason::Unschedulable,
            message: number.to_string(),
            nominated_node: (kind == 3).then(|| "n".into()),
            again: false,
            generation: 1,
        }),
        4 => place(SchedulerAction::Nominate { pod: pod(), node: String::new() }),
        5 => {
            let preemptor = PodRef { uid: format!("p{number}"), ..pod() };
            let (message, generation) = (String::new(), 1);
            let event = Box::new(PodEvent { warning: false, reason: "", action: "", message: String::new() });
            place(SchedulerAction::Preempt { victim: pod(), preemptor, message, event, generation })
        }
        6 => Action::Queueing(QueueAction::DeactivateWorkload { key: key(), uid }),
        7 => Action::Queueing(QueueAction::FailPod { namespace: "ns".into(), name: uid.clone(), uid }),
        11 => Action::Queueing(QueueAction::UpdateLoan(Box::new(LoanUpdate {
            name: uid.clone(),
            uid,
            version: number,
            change: [LoanChange::Grant, LoanChange::Return, LoanChange::Delete][(number % 3) as usize]
                .clone(),
        }))),
        10 => {
            let (claims, deallocate) = (vec![claim(number)], number.is_multiple_of(2));
            place(SchedulerAction::ReleaseClaims { pod: pod(), claims, deallocate })
        }
        _ => {
            let reason = Condition { kind: cond::QUOTA_RESERVED.into(), ..Condition::default() };
            Action::Queueing(QueueAction::UpdateWorkload(Box::new(WorkloadUpdate {
                id: number,
                key: key(),
                uid,
                conditions: vec![reason],
                admission: (kind == 9).then_some(None),
                ..WorkloadUpdate::default()
            })))
        }
    }
}

/// A claim, with devices to get or without.
fn claim(number: u64) -> DeviceGrant {
    let devices = vec![AllocatedDevice::default(); usize::from(number.is_multiple_of(3))];
    DeviceGrant {
        namespace: "ns".into(),
        name: "c".into(),
        uid: "c".into(),
        devices,
        ..DeviceGrant::default()
    }
}

/// What the server makes of a request. Reads show an object of that name, sometimes another one than before.
fn response(request: &Request, fault: u8) -> Response {
    let (_, _, name) = request.target();
    let error =
        |code| Err(Error::Status { code, reason: String::new(), message: "no".into(), retry_after: 0 });
    let object = |uid: &str, node: &str| {
        Ok(json!({
            "metadata": {"uid": uid, "name": name, "namespace": "ns", "resourceVersion": "1"},
            "spec": {"nodeName": node},
            "status": {},
        }))
    };
    match fault {
        0 => error(404),
        1 => error(409),
        2 => error(500),
        3 => error(429),
        4 => Err(Error::Transport("the connection broke".into())),
        5 => error(422),
        6 => object("another", ""),
        7 => object(name, "n"),
        _ => object(name, ""),
    }
}

/// An action that was begun: what it waits for.
struct Running {
    lane: Lane,
    step: Step,
}

proptest! {
    /// Actions are emitted at any time, joined or superseded while they wait, carried out at once or refused, and answered in
    /// any order with any fault.
    #[test]
    fn every_action_gets_exactly_one_answer(
        steps in proptest::collection::vec((0u8..8, 0u8..12, 0u8..3, 0u8..12), 0..160),
    ) {
        let (mut lanes, mut unanswered) = (Lanes::default(), Unanswered::default());
        let (mut running, mut number): (Vec<Running>, u64) = (Vec::new(), 0);
        let tell = |unanswered: &mut Unanswered, events: Vec<Event>| {
            for event in &events {
                prop_assert_eq!(unanswered.answered(event), Ok(()), "{:?}", event);
            }
            Ok(())
        };
        // Then everything ends, with or without faults.
        let end = (0..4000).map(|n| (4 + n % 4, 0, 0, if n < 400 { n % 12 } else { 12 + n / 4 % 4 } as u8));
        let steps = steps.into_iter().map(|(a, b, c, d)| (u32::from(a), b, c, d));
        for (what, kind, object, fault) in steps.chain(end) {
            match what {
                0..=2 => {
                    number += 1;
                    let action = action(kind, object, number);
                    // A pod is prepared or bound once at a time.
                    let busy = action.ids().iter().any(|id| {
                        matches!(id, plimsoll_engine::ActionId::Bind(_)) && unanswered.ids().any(|u| u == id)
                    });
                    if busy {
                        continue;
                    }
                    unanswered.emitted(&action);
                    let lane = Lane::of(&action).unwrap();
                    if let Some(superseded) = lanes.push(lane, action) {
                        tell(&mut unanswered, vec![answered(superseded, Answer::Superseded)])?;
                    }
                }
                3..=5 => {
                    let group = Group::ALL[usize::from(fault) % Group::ALL.len()];
                    let Some((lane, action)) = lanes.next(group) else { continue };
                    if fault == 11 {
                        let refused = match object {
                            0 => elsewhere(&action),
                            _ => refuse(&action, "this process does not lead"),
                        };
                        tell(&mut unanswered, refused)?;
                        lanes.done(lane);
                        continue;
                    }
                    let seen = match &action {
                        Action::Queueing(QueueAction::UpdateWorkload(u)) if fault > 5 => Some(Arc::new(json!({
                            "metadata": {"uid": u.uid, "resourceVersion": "1"}, "status": {},
                        }))),
                        _ => None,
                    };
                    let Ok(step) = begin(action, seen, NOW) else { panic!("not carried out") };
                    running.push(Running { lane, step });
                }
                _ => {
                    if running.is_empty() {
                        continue;
                    }
                    let at = usize::from(object) % running.len();
                    let Running { lane, step } = running.swap_remove(at);
                    let step = match step {
                        Step::Send(request, then) => then(response(&request, fault)),
                        Step::Wait(_, then) => then(),
                        Step::Done(outcome) => {
                            tell(&mut unanswered, outcome.answers)?;
                            lanes.done(lane);
                            continue;
                        }
                    };
                    running.push(Running { lane, step });
                }
            }
        }
        prop_assert!(running.is_empty() && !Group::ALL.iter().any(|g| lanes.has(*g)), "not all ended: {:?}", unanswered);
        prop_assert!(unanswered.is_empty(), "{:?}", unanswered);
    }
}

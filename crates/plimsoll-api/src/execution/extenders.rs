//! Answers of extenders. The runtime and the simulator make the calls; what a failed Bind leaves open is found out here.

use plimsoll_engine::Event;
use plimsoll_scheduler::{Event as SchedulerEvent, ExtenderAnswer, ExtenderCall, PodRef};

use super::pods::whether_bound;
use super::{Outcome, Step};

/// Ends the call of an extender with its answer, or with the reason why it failed. An extender that binds may have created
/// the binding although its answer was lost: the pod is read before its node is given to another pod. kube-scheduler
/// (`pkg/scheduler/extender.go`, `Bind`) forgets the pod, and finds it again by its watch.
pub fn extended(
    pod: PodRef,
    (extender, call): (usize, u64),
    what: &ExtenderCall,
    answer: Result<ExtenderAnswer, String>,
) -> Step {
    let ended = move |uid, answer| {
        Outcome::answer(Event::Scheduler(SchedulerEvent::Extended { uid, extender, call, answer }))
    };
    let (ExtenderCall::Bind(node), Err(_)) = (what, &answer) else { return ended(pod.uid, answer) };
    whether_bound(pod.clone(), node.clone(), true, move |bound| {
        ended(pod.uid, if bound { Ok(ExtenderAnswer::Bound) } else { answer })
    })
}

//! What tests share: one type for everything that a test sends to the scheduler, and pods.

use plimsoll_state::model::{Container, ContainerPort, Pod, PodSpec};
use plimsoll_state::{ObjectEvent, Time};

use crate::Scheduler;

/// A change of an object, or the answer to an action.
#[derive(Clone, Debug)]
pub(crate) enum Event {
    Object(ObjectEvent),
    Answer(crate::Event),
}

impl Scheduler {
    pub(crate) fn apply(&mut self, now: Time, event: Event) {
        match event {
            Event::Object(e) => self.handle_object(now, &e),
            Event::Answer(e) => self.handle(now, e),
        }
    }
}

/// A pod of a workload's pod set `main` that asks for this much CPU, in thousandths, and for a port of its host or none.
pub(crate) fn pod_of_workload(name: &str, cpu: i64, port: bool) -> Pod {
    let ports =
        if port { vec![ContainerPort { host_port: 80, ..ContainerPort::default() }] } else { Vec::new() };
    let container = Container { requests: [("cpu".to_owned(), cpu)].into(), ports, ..Container::default() };
    let spec = PodSpec {
        scheduler_name: "default-scheduler".into(),
        containers: vec![container],
        ..PodSpec::default()
    };
    Pod {
        uid: name.into(),
        namespace: "n".into(),
        name: name.into(),
        pod_set: "main".into(),
        spec,
        ..Pod::default()
    }
}

//! One pod on its way from binding to its end.

use super::container::{Done, Policy, Slot, State, restore};
use super::script::{self, Script};
use super::view::{Container, ContainerStatus, PodView};
use super::{Options, Write};
use crate::time::{Nanos, SECOND, parse};

/// Most state changes of one pod in one call; more wait for the next call.
const CHANGES_PER_CALL: usize = 64;
/// How long a container takes to stop when it is told to.
const STOP_TIME: Nanos = SECOND;

/// Why and how the pod as a whole was stopped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Stop {
    at: Nanos,
    code: i32,
    /// `status.reason` and `status.message` of the pod, if the kubelet gives one.
    pub why: Option<(&'static str, &'static str)>,
}

#[derive(Debug)]
pub(super) struct Run {
    pub pod: PodView,
    pub host_ip: String,
    pub pod_ip: String,
    pub accepted: Nanos,
    pub init: Vec<Slot>,
    pub apps: Vec<Slot>,
    /// Ephemeral containers and when they were refused: a simulated pod has nothing to debug.
    pub refused: Vec<(Container, Nanos)>,
    pub stop: Option<Stop>,
    /// Whether the first container has been reached (address given, sandbox there).
    pub sandbox: bool,
    /// Transition times of the conditions: (type, status, since).
    pub transitions: Vec<(&'static str, bool, Nanos)>,
    starts: Nanos,
    pub deleting: bool,
    /// Whether the API server was asked to remove the pod.
    pub delete_sent: bool,
    finished: bool,
    /// Fingerprint of the status that was reported last.
    pub written: Option<u64>,
    pub wake: Option<Nanos>,
}

impl Run {
    pub fn new(now: Nanos, pod: PodView, host_ip: String, pod_ip: String, options: &Options) -> Self {
        let accepted = pod.status.start_time.as_deref().and_then(parse).unwrap_or(now);
        let starts = accepted.saturating_add(options.scale(script::start_delay(&pod)));
        let slot = |c: &Container, script: Script, old: &[ContainerStatus]| {
            let sidecar = c.restart_policy.as_deref() == Some("Always");
            let script = if sidecar { Script { duration: None, exit_code: 0 } } else { script };
            restore(c, script, sidecar, old.iter().find(|s| s.name == c.name))
        };
        let init = pod.spec.init_containers.iter();
        let init: Vec<Slot> =
            init.map(|c| slot(c, script::init(c), &pod.status.init_container_statuses)).collect();
        let apps = pod.spec.containers.iter();
        let apps: Vec<Slot> =
            apps.map(|c| slot(c, script::app(&pod, c), &pod.status.container_statuses)).collect();
        let sandbox = init.iter().chain(&apps).any(|s| s.state != State::Waiting || s.last.is_some());
        let transitions = pod.transitions();
        let finished = matches!(pod.status.phase.as_str(), "Succeeded" | "Failed");
        let mut run = Self {
            pod,
            host_ip,
            pod_ip,
            accepted,
            init,
            apps,
            refused: Vec::new(),
            stop: None,
            sandbox,
            transitions,
            starts,
            deleting: false,
            delete_sent: false,
            finished,
            written: None,
            wake: None,
        };
        run.refuse(now, None);
        run.note_deletion(now, options);
        run
    }

    /// Takes over what changed in the pod; says whether there is something to do.
    pub fn observe(&mut self, now: Nanos, pod: &PodView, options: &Options) -> bool {
        self.pod.metadata.deletion_timestamp.clone_from(&pod.metadata.deletion_timestamp);
        self.pod.metadata.deletion_grace_period_seconds = pod.metadata.deletion_grace_period_seconds;
        let refused = self.refuse(now, Some(pod));
        self.note_deletion(now, options) || refused
    }

    /// Refuses ephemeral containers that were not there before; says whether there are any.
    fn refuse(&mut self, now: Nanos, seen: Option<&PodView>) -> bool {
        let pod = seen.unwrap_or(&self.pod);
        let known = |c: &&Container| !self.refused.iter().any(|(old, _)| old.name == c.name);
        let reported = |c: &Container| {
            let row = pod.status.ephemeral_container_statuses.iter().find(|s| s.name == c.name)?;
            parse(row.state.terminated.as_ref()?.finished_at.as_deref()?)
        };
        let new = pod.spec.ephemeral_containers.iter().filter(known);
        let new: Vec<_> = new.map(|c| (c.clone(), reported(c).unwrap_or(now))).collect();
        let any = !new.is_empty();
        self.refused.extend(new);
        any
    }

    fn note_deletion(&mut self, now: Nanos, options: &Options) -> bool {
        if self.pod.metadata.deletion_timestamp.is_none() || self.deleting {
            return false;
        }
        self.deleting = true;
        let grace = self.pod.metadata.deletion_grace_period_seconds.unwrap_or(30).max(0);
        let takes = options.scale(STOP_TIME.min(grace.saturating_mul(SECOND)));
        self.order_stop(now.saturating_add(takes), 143, None);
        true
    }

    fn order_stop(&mut self, at: Nanos, code: i32, why: Option<(&'static str, &'static str)>) {
        if self.stop.as_ref().is_none_or(|s| s.at > at) {
            let why = why.or_else(|| self.stop.as_ref().and_then(|s| s.why));
            self.stop = Some(Stop { at, code, why });
        }
    }

    /// The last status did not arrive.
    pub fn unwritten(&mut self) {
        self.written = None;
        self.delete_sent = false;
    }

    /// Whether nothing will ever be done for this pod again.
    pub fn ended(&self) -> bool {
        self.finished && !self.deleting && self.written.is_some()
    }

    /// Brings the pod to `now` and says when to come back.
    pub fn advance(&mut self, now: Nanos, options: &Options, writes: &mut Vec<Write>) -> Option<Nanos> {
        if self.finished { None } else { self.play(now, options, writes) }
    }

    fn play(&mut self, now: Nanos, options: &Options, writes: &mut Vec<Write>) -> Option<Nanos> {
        if let Some(seconds) = self.pod.spec.active_deadline_seconds {
            let at = self.accepted.saturating_add(options.scale(seconds.saturating_mul(SECOND)));
            if at <= now || self.stop.is_none() {
                let why =
                    ("DeadlineExceeded", "Pod was active on the node longer than the specified deadline");
                self.order_stop(at, 137, Some(why));
            }
        }
        for _ in 0..CHANGES_PER_CALL {
            let stop_at = self.stop.as_ref().map(|s| s.at);
            let next = self.next_change(options);
            // What was due before the stop still happens.
            if let Some(at) = stop_at
                && at <= now
                && next.is_none_or(|n| n >= at)
            {
                self.stop_all(at, writes, options);
                return None;
            }
            match next {
                Some(at) if at <= now => self.change(at, options, writes),
                _ => return [next, stop_at].into_iter().flatten().min(),
            }
            if self.settle(now) {
                return None;
            }
        }
        Some(now)
    }

    /// The next container to start or end, and when: `None` while nothing is due by itself.
    fn next_change(&self, options: &Options) -> Option<Nanos> {
        if !self.sandbox {
            return Some(self.starts);
        }
        let ends = |s: &Slot| match &s.state {
            State::Running(since) => s.script.duration.map(|d| since.saturating_add(options.scale(d))),
            State::Backoff(at) => Some(*at),
            _ => None,
        };
        let all = self.init.iter().chain(&self.apps);
        all.filter_map(ends).min()
    }

    fn change(&mut self, at: Nanos, options: &Options, writes: &mut Vec<Write>) {
        self.sandbox = true;
        let policy = match self.pod.spec.restart_policy.as_str() {
            "Never" => Policy::Never,
            "OnFailure" => Policy::OnFailure,
            _ => Policy::Always,
        };
        let mut started: Vec<(String, String)> = Vec::new();
        for (slot, is_init) in
            self.init.iter_mut().map(|s| (s, true)).chain(self.apps.iter_mut().map(|s| (s, false)))
        {
            match slot.state {
                State::Running(since) => {
                    let Some(duration) = slot.script.duration else { continue };
                    let ends = since.saturating_add(options.scale(duration));
                    if ends <= at {
                        slot.end(ends, slot.script.exit_code, since, policy, is_init, options);
                    }
                }
                State::Backoff(again) if again <= at => {
                    slot.state = State::Running(again);
                    slot.restarts += 1;
                    started.push((slot.name.clone(), slot.image.clone()));
                }
                _ => {}
            }
        }
        // Init containers one after the other; a sidecar only has to be started.
        let mut ready = true;
        for slot in &mut self.init {
            match &slot.state {
                State::Waiting => {
                    slot.state = State::Running(at);
                    started.push((slot.name.clone(), slot.image.clone()));
                    ready = slot.sidecar;
                }
                State::Running(_) => ready = slot.sidecar,
                State::Done(done) => ready = done.code == 0,
                State::Backoff(_) => ready = false,
            }
            if !ready {
                break;
            }
        }
        if ready {
            for slot in &mut self.apps {
                if slot.state == State::Waiting {
                    slot.state = State::Running(at);
                    started.push((slot.name.clone(), slot.image.clone()));
                }
            }
        }
        if options.events {
            for (container, image) in started {
                let pulled = format!("Container image \"{image}\" already present on machine");
                writes.push(self.event(&container, "Pulled", pulled));
                writes.push(self.event(&container, "Created", format!("Created container: {container}")));
                writes.push(self.event(&container, "Started", format!("Started container {container}")));
            }
        }
    }

    /// Ends the pod when its containers have ended; says whether it did.
    fn settle(&mut self, now: Nanos) -> bool {
        let failed_init =
            self.init.iter().any(|s| matches!(&s.state, State::Done(d) if d.code != 0 && !s.sidecar));
        let apps_done = self.apps.iter().all(|s| matches!(s.state, State::Done(_)));
        if !(failed_init || apps_done) {
            return false;
        }
        for slot in &mut self.init {
            if let State::Running(since) = slot.state {
                slot.state =
                    State::Done(Done { code: 0, reason: "Completed".into(), started: since, finished: now });
            }
        }
        self.finished = true;
        true
    }

    fn stop_all(&mut self, at: Nanos, writes: &mut Vec<Write>, options: &Options) {
        let code = self.stop.as_ref().map_or(143, |s| s.code);
        let mut killed = Vec::new();
        for slot in self.init.iter_mut().chain(&mut self.apps) {
            match slot.state {
                State::Running(since) => {
                    let reason = if code == 0 { "Completed" } else { "Error" };
                    slot.state =
                        State::Done(Done { code, reason: reason.into(), started: since, finished: at });
                    killed.push(slot.name.clone());
                }
                State::Backoff(_) => {
                    if let Some(last) = slot.last.take() {
                        slot.state = State::Done(last);
                    }
                }
                State::Waiting | State::Done(_) => {}
            }
        }
        if options.events {
            for container in killed {
                let text = format!("Stopping container {container}");
                writes.push(self.event(&container, "Killing", text));
            }
        }
        self.finished = true;
    }

    fn event(&self, container: &str, reason: &'static str, message: String) -> Write {
        Write::Event {
            namespace: self.pod.metadata.namespace.clone(),
            name: self.pod.metadata.name.clone(),
            uid: self.pod.metadata.uid.clone(),
            node: self.pod.spec.node_name.clone(),
            container: container.to_owned(),
            reason,
            message,
        }
    }

    /// Whether the pod is over.
    pub const fn is_finished(&self) -> bool {
        self.finished
    }
}

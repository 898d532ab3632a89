//! The way to the API server and back: latency, and what goes wrong on it.

use std::collections::BTreeMap;
use std::sync::Arc;

use plimsoll_state::{Duration, Time};
use serde_json::Value;

use crate::agenda::{Agenda, Event};
use crate::api::{Api, ApiError, Kind, Name, Request};
use crate::dice::{Dice, Draw};
use crate::scenario::Faults;

/// Milliseconds within which a server carries out what it has begun when its client is gone: less than others wait beyond
/// the time until which a leader writes (`leaseDuration` less `renewDeadline`).
const CUT: i64 = 4_500;

/// An answer.
pub type Answer = Result<Arc<Value>, ApiError>;

/// What becomes of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    /// It is carried out and answered.
    Done,
    /// Carried out, and the answer is lost.
    LostAnswer,
    /// Given up by its client, and carried out after that.
    Late,
    /// Not carried out, and answered with this code.
    Fails(u16),
}

/// The client of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Caller {
    /// Which life of the process.
    pub life: u32,
    /// Its number for what it does.
    pub call: u64,
}

/// A request under way.
#[derive(Debug)]
struct Pending {
    /// The task that waits.
    caller: Caller,
    /// The request.
    request: Request,
    /// Serial number of the quotas that the process knew when it decided on this write, if it gives quota away.
    decided: Option<u64>,
    fate: Fate,
    /// Whether it takes seconds, whatever becomes of it: what its client does meanwhile is built on it.
    slow: bool,
    stage: Stage,
}

/// Where a request is.
#[derive(Debug)]
enum Stage {
    /// On its way; when it reaches the server.
    UnderWay(Time),
    /// Its answer is on its way.
    Answered(Answer),
}

/// The network, with the API server at its end.
#[derive(Debug)]
pub struct Network {
    /// The API server.
    pub api: Api,
    /// Virtual time.
    pub agenda: Agenda,
    /// What goes wrong.
    pub faults: Faults,
    dice: Dice,
    number: u64,
    pending: BTreeMap<u64, Pending>,
    /// Requests so far, by object.
    counts: BTreeMap<(Kind, Name), u64>,
    /// Watch events and lists so far, by replica and kind.
    watched: BTreeMap<(u32, Kind), u64>,
}

/// How a watch event comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delivery {
    /// Once.
    Once,
    /// Twice.
    Twice,
    /// Not at all: the watch breaks.
    Lost,
}

/// How often a write about a pod fails for what it says, in thousandths.
fn rate_of(faults: &Faults, request: &Request) -> u32 {
    match request {
        Request::Patch { kind: Kind::Pod, status: true, body, .. } => {
            let condition = text_at(body, "/status/conditions/0/type");
            match condition {
                "PodScheduled" => faults.explanations,
                "DisruptionTarget" => faults.preemptions,
                _ if body["status"].get("nominatedNodeName").is_some_and(Value::is_null) => {
                    faults.nominations
                }
                _ => 0,
            }
        }
        Request::Delete { kind: Kind::Pod, .. } => faults.preemptions,
        _ => 0,
    }
}

/// Whether it carries out what an engine has decided about a pod or a workload.
const fn is_decision(request: &Request) -> bool {
    matches!(
        request,
        Request::Bind { .. } | Request::Patch { kind: Kind::Pod | Kind::Workload, status: true, .. }
    )
}

fn text_at<'a>(body: &'a Value, pointer: &str) -> &'a str {
    body.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

impl Network {
    /// A network before its first request.
    pub fn new(seed: u64, faults: Faults, start: Time) -> Self {
        Self {
            api: Api::default(),
            agenda: Agenda::new(start),
            faults,
            dice: Dice::new(seed).about("network"),
            number: 0,
            pending: BTreeMap::new(),
            counts: BTreeMap::new(),
            watched: BTreeMap::new(),
        }
    }

    /// Now.
    pub const fn now(&self) -> Time {
        self.agenda.now
    }

    /// Whether a request of this life is under way.
    pub fn busy(&self, life: u32) -> bool {
        self.pending.values().any(|p| p.caller.life == life)
    }

    /// What a request is about and what becomes of it, for traces.
    pub fn describe(&self, number: u64) -> String {
        let Some(pending) = self.pending.get(&number) else { return String::new() };
        let (kind, name) = pending.request.target();
        let verb = match &pending.request {
            Request::Get(..) | Request::Find(..) => "get",
            Request::Create(..) => "create",
            Request::Patch { .. } => "patch",
            Request::Delete { .. } => "delete",
            Request::Bind { .. } => "bind",
        };
        let answer = match &pending.stage {
            Stage::Answered(Err(e)) => format!("{}: {}", e.code, e.message),
            Stage::Answered(Ok(_)) => "done".to_owned(),
            Stage::UnderWay(_) => String::new(),
        };
        let body = match &pending.request {
            Request::Patch { body, .. } => body.to_string(),
            Request::Bind { node, .. } => node.clone(),
            Request::Get(..) | Request::Find(..) | Request::Create(..) | Request::Delete { .. } => {
                String::new()
            }
        };
        let slow = if pending.slow { " slow" } else { "" };
        format!(" {verb} {} {} {:?}{slow} {answer} {body}", kind.name(), name.1, pending.fate)
    }

    /// Sends a request.
    pub fn send(&mut self, caller: Caller, request: Request, decided: Option<u64>) {
        self.number += 1;
        let number = self.number;
        let (kind, name) = request.target();
        let count = self.counts.entry((kind, name.clone())).or_insert(0);
        *count += 1;
        let mut rng = self.dice.about(kind.name()).about(&name.1).of(*count).rng();
        let f = &self.faults;
        let mut fate = Fate::Done;
        let writes = !matches!(request, Request::Get(..) | Request::Find(..));
        let slow = rng.chance(f.slow) || is_decision(&request) && f.decisions > 0 && rng.chance(f.decisions);
        let named = rate_of(f, &request);
        if named > 0 && rng.chance(named) {
            fate = Fate::Fails(503);
        }
        for (rate, other) in [
            (f.unavailable, Fate::Fails(503)),
            (f.lost_answer, Fate::LostAnswer),
            (if writes { f.refused } else { 0 }, Fate::Fails(403)),
            (if writes { f.conflict } else { 0 }, Fate::Fails(409)),
            (f.not_found, Fate::Fails(404)),
        ] {
            if rng.chance(rate) {
                fate = other;
            }
        }
        // Writes that name the version which they are about do nothing the second time.
        let of_tree = matches!(&request, Request::Patch { kind: Kind::Cohort | Kind::ClusterQueue, status: false, body, .. }
            if f.late > 0 && body["metadata"]["resourceVersion"].is_string());
        let of_workload = matches!(&request, Request::Patch { kind: Kind::Workload, status: true, body, .. }
            if f.late > 0 && body["metadata"]["resourceVersion"].is_string());
        let names_version = matches!(kind, Kind::QuotaLoan | Kind::Node) && writes || of_tree || of_workload;
        if names_version && rng.chance(f.late) {
            fate = Fate::Late;
            self.agenda.after(Duration::from_millis(rng.range(10, 1_000)), Event::Answer(number));
        }
        let latency = if fate == Fate::Late {
            Duration::from_millis(rng.range(1_000, 15_000))
        } else if slow {
            Duration::from_millis(rng.range(200, 6_000))
        } else {
            Duration(rng.range(100, 3_000) * 1_000)
        };
        let stage = Stage::UnderWay(self.agenda.now.plus(latency));
        self.pending.insert(number, Pending { caller, request, decided, fate, slow, stage });
        self.agenda.after(latency, Event::Arrive(number));
    }

    /// A request reaches the server. Where it was carried out and gives quota away: in which life that was decided, and
    /// the serial number of the quotas that were known then.
    pub fn arrive(&mut self, number: u64) -> Option<(u32, u64)> {
        let now = self.now();
        let pending = self.pending.get_mut(&number).filter(|p| matches!(p.stage, Stage::UnderWay(_)))?;
        let (answer, carried_out) = match pending.fate {
            Fate::Fails(code) => (Err(ApiError::new(code, "a fault")), false),
            Fate::Done => (self.api.handle(pending.request.clone(), now), true),
            Fate::Late => {
                let _ = self.api.handle(pending.request.clone(), now);
                let Pending { caller, decided, .. } = self.pending.remove(&number)?;
                return decided.map(|serial| (caller.life, serial));
            }
            Fate::LostAnswer => {
                // Carried out or not: the client can't know.
                let _ = self.api.handle(pending.request.clone(), now);
                (Err(ApiError::new(0, "the connection was lost")), true)
            }
        };
        pending.stage = Stage::Answered(answer);
        let life = pending.caller.life;
        let decided = pending.decided.filter(|_| carried_out).map(|serial| (life, serial));
        let (kind, name) = pending.request.target();
        let count = self.counts.get(&(kind, name.clone())).copied().unwrap_or(0);
        let mut rng = self.dice.about("answer").about(&name.1).of(count).rng();
        let latency = match pending.fate {
            Fate::LostAnswer | Fate::Late => Duration::from_millis(rng.range(1, 5_000)),
            Fate::Done | Fate::Fails(_) if pending.slow => Duration::from_millis(rng.range(0, 500)),
            Fate::Done | Fate::Fails(_) => Duration(rng.range(100, 3_000) * 1_000),
        };
        self.agenda.after(latency, Event::Answer(number));
        decided
    }

    /// An answer reaches its client, if a task still waits for it.
    pub fn answer(&mut self, number: u64) -> Option<(Caller, Answer)> {
        if let Some(late) = self.pending.get(&number).filter(|p| p.fate == Fate::Late) {
            return Some((late.caller, Err(ApiError::new(0, "the connection was lost"))));
        }
        let Pending { caller, stage, .. } = self.pending.remove(&number)?;
        let Stage::Answered(answer) = stage else { return None };
        Some((caller, answer))
    }

    /// Forgets requests of a life that will never reach the server; those on the way do: when the last one does.
    pub fn forget(&mut self, life: u32) -> Option<Time> {
        self.pending.retain(|_, p| p.caller.life != life || matches!(p.stage, Stage::UnderWay(_)));
        let arrival = |p: &Pending| match p.stage {
            Stage::UnderWay(at) => Some(at),
            Stage::Answered(_) => None,
        };
        self.pending.values().filter_map(arrival).max()
    }

    /// Connections are closed: the server drops what it has not begun, and what it has begun is carried out soon.
    pub fn cut(&mut self, which: impl Fn(&Caller) -> bool) {
        self.pending.retain(|_, p| !which(&p.caller) || matches!(p.stage, Stage::UnderWay(_)));
        let cut: Vec<u64> =
            self.pending.iter().filter(|(_, p)| which(&p.caller)).map(|(number, _)| *number).collect();
        for number in cut {
            let mut rng = self.dice.about("cut").of(number).rng();
            if rng.chance(500) {
                self.pending.remove(&number);
                continue;
            }
            let latest = self.now().plus(Duration::from_millis(rng.range(1, CUT)));
            let Some(Pending { stage: Stage::UnderWay(at), .. }) = self.pending.get_mut(&number) else {
                continue;
            };
            if latest < *at {
                *at = latest;
                self.agenda.at(latest, Event::Arrive(number));
            }
        }
    }

    fn draw(&mut self, replica: u32, kind: Kind, what: &str) -> plimsoll_state::rng::Rng {
        let count = self.watched.entry((replica, kind)).or_insert(0);
        *count += 1;
        let dice = self.dice.about(what).about(kind.name()).of(*count);
        if replica == 0 { dice.rng() } else { dice.of(u64::from(replica)).rng() }
    }

    /// How long the next change of a kind is under way to a replica.
    pub fn watch_latency(&mut self, replica: u32, kind: Kind) -> Duration {
        let stall = self.faults.stall;
        let mut rng = self.draw(replica, kind, "watch");
        if rng.chance(stall) {
            return Duration::from_millis(rng.range(100, 10_000));
        }
        Duration(rng.range(50, 5_000) * 1_000)
    }

    /// How it comes.
    pub fn delivery(&mut self, replica: u32, kind: Kind) -> Delivery {
        let (lose, repeat) = (self.faults.lose, self.faults.repeat);
        let mut rng = self.draw(replica, kind, "delivery");
        if rng.chance(lose) {
            Delivery::Lost
        } else if rng.chance(repeat) {
            Delivery::Twice
        } else {
            Delivery::Once
        }
    }

    /// How long a list takes, and whether it fails then.
    pub fn list_latency(&mut self, replica: u32, kind: Kind) -> (Duration, bool) {
        let (list, stall) = (self.faults.list, self.faults.stall);
        let mut rng = self.draw(replica, kind, "list");
        let longest = if rng.chance(stall) { 5_000 } else { 50 };
        (Duration::from_millis(rng.range(1, longest)), rng.chance(list))
    }
}

//! The host functions of the guest interface (`scheduler/plugin/host.go`): modules `k8s.io/api`, `k8s.io/scheduler` and
//! `k8s.io/klog`. Arguments are pulled by the guest: a getter returns the length that it needs, and writes only if the buffer
//! of the guest is as long.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::Serialize;
use serde_json::Value;
use wasmtime::{Caller, Extern, Linker, Memory, Result, StoreLimits, Trap, bail};

use crate::nodes::Nodes;

/// Longest reason of a status, in bytes.
const MAX_REASON: usize = 4096;
/// Longest line of a log, in bytes.
const MAX_LOG: usize = 4096;

/// What a guest may ask for in one call.
#[derive(Clone, Debug, Default)]
pub struct Params {
    /// The pod that is being scheduled, in protobuf.
    pub current_pod: Arc<[u8]>,
    /// The pod that is added or removed, in protobuf.
    pub target_pod: Arc<[u8]>,
    /// The node of the call.
    pub node_name: String,
    /// The nodes that passed the filters.
    pub filtered_nodes: Vec<String>,
    /// The verdicts on nodes, as numbers.
    pub statuses: BTreeMap<String, i32>,
    /// The scores of nodes.
    pub scores: BTreeMap<String, i64>,
    /// All nodes.
    pub nodes: Arc<Nodes>,
    /// Pods that wait on Permit, by UID, in protobuf.
    pub waiting: BTreeMap<String, Arc<[u8]>>,
    /// The time in nanoseconds since 1970.
    pub now: i64,
}

/// What a guest said in one call, beside the value that its function returned.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Results {
    /// The reason of the status.
    pub reason: String,
    /// The only nodes that can pass; `None`: all.
    pub node_names: Option<Vec<String>>,
    /// The nominated node.
    pub nominated_node: String,
    /// Normalized scores; `None`: as they were.
    pub scores: Option<BTreeMap<String, i64>>,
    /// Events to register: number of the resource, bits of the actions.
    pub events: Vec<(u32, u32)>,
    /// Waiting pods to reject, by UID.
    pub rejected: Vec<String>,
    /// Events that the guest recorded.
    pub recorded: Vec<Value>,
}

/// The state of an instance that host functions see.
#[derive(Debug)]
pub(crate) struct Host {
    /// Name of the plugin, for logs.
    pub name: Arc<str>,
    pub config: Arc<str>,
    pub severity: i32,
    pub args: Arc<[String]>,
    pub params: Params,
    pub results: Results,
    /// What the guest wrote to standard output and standard error.
    pub out: Vec<u8>,
    pub random: plimsoll_state::rng::Rng,
    pub limits: StoreLimits,
}

/// Adds all host functions.
pub(crate) fn link(linker: &mut Linker<Host>) -> Result<()> {
    api(linker)?;
    getters(linker)?;
    setters(linker)?;
    handle(linker)?;
    klog(linker)
}

type Context<'a> = Caller<'a, Host>;

pub(crate) fn memory(caller: &mut Context<'_>) -> Result<Memory> {
    match caller.get_export("memory") {
        Some(Extern::Memory(memory)) => Ok(memory),
        _ => bail!("guest doesn't export memory[memory]"),
    }
}

/// Charges what a host function costs like instructions, so that a guest that calls nothing else ends as well.
pub(crate) fn charge(caller: &mut Context<'_>, bytes: usize) -> Result<()> {
    let cost = 200 + bytes as u64;
    let Some(left) = caller.get_fuel()?.checked_sub(cost) else { return Err(Trap::OutOfFuel.into()) };
    caller.set_fuel(left)
}

/// Reads the memory of the guest; `what` is named when that is out of bounds.
pub(crate) fn read(caller: &mut Context<'_>, (at, len): (u32, u32), what: &str) -> Result<Vec<u8>> {
    charge(caller, len as usize)?;
    let memory = memory(caller)?;
    let start = at as usize;
    match memory.data(&caller).get(start..start.saturating_add(len as usize)) {
        Some(bytes) => Ok(bytes.to_vec()),
        None => bail!("out of memory reading {what}"),
    }
}

fn read_text(caller: &mut Context<'_>, place: (u32, u32), what: &str) -> Result<String> {
    Ok(String::from_utf8_lossy(&read(caller, place, what)?).into_owned())
}

/// Writes a value unless it is longer than the guest allows; its length (`writeStringIfUnderLimit`).
fn give(caller: &mut Context<'_>, value: &[u8], (at, limit): (u32, u32)) -> Result<u32> {
    charge(caller, value.len())?;
    let Ok(len) = u32::try_from(value.len()) else { bail!("value is longer than 4 GiB") };
    if len == 0 || len > limit {
        return Ok(len);
    }
    let memory = memory(caller)?;
    match memory.write(caller, at as usize, value) {
        Ok(()) => Ok(len),
        Err(_) => bail!("out of memory"),
    }
}

fn api(linker: &mut Linker<Host>) -> Result<()> {
    const API: &str = "k8s.io/api";
    let node = |mut c: Context<'_>, name: u32, name_len: u32, buf: u32, limit: u32| -> Result<u32> {
        let name = read_text(&mut c, (name, name_len), "nodeName")?;
        let nodes = Arc::clone(&c.data().params.nodes);
        give(&mut c, nodes.node(&name).unwrap_or_default(), (buf, limit))
    };
    linker.func_wrap(API, "node", node)?;
    let list = |mut c: Context<'_>, buf: u32, limit: u32| -> Result<u32> {
        let nodes = Arc::clone(&c.data().params.nodes);
        give(&mut c, nodes.list(), (buf, limit))
    };
    linker.func_wrap(API, "nodeList", list)?;
    Ok(())
}

const SCHEDULER: &str = "k8s.io/scheduler";

fn getters(linker: &mut Linker<Host>) -> Result<()> {
    let mut getter = |name: &str, value: fn(&Host) -> Result<Arc<[u8]>>| -> Result<()> {
        let get = move |mut c: Context<'_>, buf: u32, limit: u32| -> Result<u32> {
            let value = value(c.data())?;
            give(&mut c, &value, (buf, limit))
        };
        linker.func_wrap(SCHEDULER, name, get)?;
        Ok(())
    };
    getter("get_config", |host| Ok(host.config.as_bytes().into()))?;
    getter("currentPod", |host| Ok(Arc::clone(&host.params.current_pod)))?;
    getter("targetPod", |host| Ok(Arc::clone(&host.params.target_pod)))?;
    getter("currentNodeName", |host| Ok(host.params.node_name.as_bytes().into()))?;
    getter("filteredNodeList", |host| json(&host.params.filtered_nodes))?;
    getter("nodeToStatusMap", |host| json(&host.params.statuses))?;
    getter("nodeScoreList", |host| json(&host.params.scores))?;
    let images = |mut c: Context<'_>, name: u32, name_len: u32, buf: u32, limit: u32| -> Result<u32> {
        let name = read_text(&mut c, (name, name_len), "nodeName")?;
        let states = c.data().params.nodes.image_states(&name);
        give(&mut c, states.as_bytes(), (buf, limit))
    };
    linker.func_wrap(SCHEDULER, "nodeImageStates", images)?;
    Ok(())
}

fn json(value: &impl Serialize) -> Result<Arc<[u8]>> {
    match serde_json::to_vec(value) {
        Ok(bytes) => Ok(bytes.into()),
        Err(error) => bail!("{error}"),
    }
}

fn setters(linker: &mut Linker<Host>) -> Result<()> {
    let mut setter = |name: &'static str, set: fn(&mut Results, Vec<u8>) -> Result<()>| -> Result<()> {
        let put = move |mut c: Context<'_>, buf: u32, len: u32| -> Result<()> {
            let value = read(&mut c, (buf, len), name)?;
            set(&mut c.data_mut().results, value)
        };
        linker.func_wrap(SCHEDULER, name, put)?;
        Ok(())
    };
    setter("result.node_names", |results, bytes| {
        results.node_names = Some(nul_terminated(&bytes)).filter(|names| !names.is_empty());
        Ok(())
    })?;
    setter("result.nominated_node_name", |results, bytes| {
        results.nominated_node = String::from_utf8_lossy(&bytes).into_owned();
        Ok(())
    })?;
    setter("result.normalized_score_list", |results, bytes| {
        match serde_json::from_slice(&bytes) {
            Ok(scores) => results.scores = scores,
            Err(error) => bail!("the normalized scores are no map from names to integers: {error}"),
        }
        Ok(())
    })?;
    setter("result.cluster_events", |results, bytes| {
        let number = |b: &[u8]| b.iter().rev().fold(0_u32, |sum, byte| sum << 8 | u32::from(*byte));
        let pair = |record: &[u8]| (number(&record[..4]), number(&record[4..]));
        results.events = bytes.chunks_exact(8).map(pair).collect();
        Ok(())
    })?;
    setter("handle.eventrecorder.eventf", |results, bytes| {
        match serde_json::from_slice(&bytes) {
            Ok(event) => results.recorded.push(event),
            Err(error) => bail!("the event is no JSON: {error}"),
        }
        Ok(())
    })?;
    let reason = |mut c: Context<'_>, buf: u32, len: u32| -> Result<()> {
        let text = match read(&mut c, (buf, len), "message") {
            Ok(bytes) => String::from_utf8_lossy(bytes.get(..MAX_REASON).unwrap_or(&bytes)).into_owned(),
            Err(_) => "BUG: out of memory reading message".to_owned(),
        };
        c.data_mut().results.reason = text;
        Ok(())
    };
    linker.func_wrap(SCHEDULER, "result.status_reason", reason)?;
    Ok(())
}

/// Strings that each end with a zero byte (`fromNULTerminated`).
fn nul_terminated(bytes: &[u8]) -> Vec<String> {
    let strings = bytes.split(|byte| *byte == 0);
    let mut out: Vec<String> = strings.map(|s| String::from_utf8_lossy(s).into_owned()).collect();
    if out.last().is_some_and(String::is_empty) {
        out.pop();
    }
    out
}

fn handle(linker: &mut Linker<Host>) -> Result<()> {
    let number = |mut c: Context<'_>, value: u64, at: u32| -> Result<()> {
        let memory = memory(&mut c)?;
        match memory.write(&mut c, at as usize, &value.to_le_bytes()) {
            Ok(()) => Ok(()),
            Err(_) => bail!("out of memory writing the answer"),
        }
    };
    let reject = move |mut c: Context<'_>, uid: u32, uid_len: u32, buf: u32, _limit: u32| -> Result<()> {
        let uid = read_text(&mut c, (uid, uid_len), "rejectWaitingPod")?;
        let waits = c.data().params.waiting.contains_key(&uid);
        if waits {
            c.data_mut().results.rejected.push(uid);
        }
        number(c, waits.into(), buf)
    };
    linker.func_wrap(SCHEDULER, "handle.reject_waiting_pod", reject)?;
    let get = move |mut c: Context<'_>, uid: u32, uid_len: u32, buf: u32, limit: u32| -> Result<()> {
        let uid = read_text(&mut c, (uid, uid_len), "getWaitingPod")?;
        match c.data().params.waiting.get(&uid).cloned() {
            Some(pod) => give(&mut c, &pod, (buf, limit)).map(drop),
            None => number(c, 0, buf),
        }
    };
    linker.func_wrap(SCHEDULER, "handle.get_waiting_pod", get)?;
    Ok(())
}

/// klog: as upstream, `log` drops what is above the configured severity and `logs` what is below it, and only info (0) and
/// error (2) are written.
fn klog(linker: &mut Linker<Host>) -> Result<()> {
    const KLOG: &str = "k8s.io/klog";
    let log = |mut c: Context<'_>, severity: i32, msg: u32, len: u32| {
        if severity <= c.data().severity {
            write_log(&mut c, severity, (msg, len), (0, 0));
        }
    };
    linker.func_wrap(KLOG, "log", log)?;
    let logs = |mut c: Context<'_>, severity: i32, msg: u32, len: u32, pairs: u32, pairs_len: u32| {
        let configured = c.data().severity;
        let drops = if pairs_len == 0 { severity > configured } else { severity < configured };
        if !drops {
            write_log(&mut c, severity, (msg, len), (pairs, pairs_len));
        }
    };
    linker.func_wrap(KLOG, "logs", logs)?;
    linker.func_wrap(KLOG, "severity", |c: Context<'_>| c.data().severity)?;
    Ok(())
}

/// A message that can't be read is dropped.
fn write_log(c: &mut Context<'_>, severity: i32, message: (u32, u32), pairs: (u32, u32)) {
    let Ok(bytes) = read(c, message, "message") else { return };
    let mut text = String::from_utf8_lossy(&bytes).into_owned();
    let Ok(pairs) = read(c, pairs, "pairs") else { return };
    for pair in nul_terminated(&pairs).chunks(2) {
        text.push_str(&format!(" {}={:?}", pair[0], pair.get(1).map_or("", String::as_str)));
    }
    let text: String = text.chars().take(MAX_LOG).collect();
    let plugin = &*c.data().name;
    match severity {
        0 => tracing::info!(plugin, "{text}"),
        2 => tracing::error!(plugin, "{text}"),
        _ => {}
    }
}

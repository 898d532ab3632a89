//! Node ports of Services.

use std::collections::{BTreeMap, BTreeSet};

use plimsoll_apimachinery::{ApiError, FieldError};
use rand::RngExt;
use serde_json::{Value, json};

use super::{RANDOM_TRIES, kind_of, refuse, services};
use crate::write::Write;

const FIRST: u16 = 30000;
const LAST: u16 = 32767;

/// Types whose ports may have node ports.
fn may_have(service: &Value) -> bool {
    matches!(kind_of(service), "NodePort" | "LoadBalancer")
}

/// Whether every port gets one.
fn wants_all(service: &Value) -> bool {
    may_have(service)
        && (kind_of(service) == "NodePort" || service["spec"]["allocateLoadBalancerNodePorts"] != false)
}

/// `apiservice.NeedsHealthCheck`.
fn wants_health(service: &Value) -> bool {
    kind_of(service) == "LoadBalancer" && service["spec"]["externalTrafficPolicy"] == "Local"
}

fn ports(service: &Value) -> &[Value] {
    service["spec"]["ports"].as_array().map_or(&[], Vec::as_slice)
}

fn number(port: &Value) -> i64 {
    port["nodePort"].as_i64().unwrap_or(0)
}

fn health(service: &Value) -> i64 {
    service["spec"]["healthCheckNodePort"].as_i64().unwrap_or(0)
}

/// Ports that are not allocated yet. One number is one Service's, whatever the protocol.
struct Free {
    used: BTreeSet<i64>,
    /// Nothing is taken for good: numbers are checked against others only, and new ones are of no use.
    dry: bool,
}

impl Free {
    fn new(w: &Write) -> Self {
        let all = services(w);
        let of = |s: &Value| -> Vec<i64> {
            ports(s).iter().map(number).chain([health(s)]).filter(|n| *n != 0).collect()
        };
        Self { used: all.iter().flat_map(of).collect(), dry: w.dry_run }
    }

    fn take(&mut self, wanted: i64) -> Result<(), String> {
        if !self.dry && !(i64::from(FIRST)..=i64::from(LAST)).contains(&wanted) {
            return Err(format!(
                "provided port is not in the valid range. The range of valid ports is {FIRST}-{LAST}"
            ));
        }
        if self.used.insert(wanted) { Ok(()) } else { Err("provided port is already allocated".to_owned()) }
    }

    fn next(&mut self) -> Result<i64, ApiError> {
        if self.dry {
            let number = (i64::from(LAST) + 2..).find(|n| !self.used.contains(n)).unwrap_or_default();
            self.used.insert(number);
            return Ok(number);
        }
        let mut rng = rand::rng();
        let random = (0..RANDOM_TRIES).map(|_| rng.random_range(FIRST..=LAST));
        let free = random.chain(FIRST..=LAST).map(i64::from).find(|n| !self.used.contains(n));
        let number =
            free.ok_or_else(|| ApiError::internal("failed to allocate a nodePort: range is full"))?;
        self.used.insert(number);
        Ok(number)
    }
}

fn taken(w: &Write, i: usize, wanted: i64, why: String) -> ApiError {
    refuse(w, &[FieldError::invalid(format!("spec.ports[{i}].nodePort"), &json!(wanted), why)])
}

/// Ports of a new Service. Ports of one number share a node port, whatever their protocols (`initNodePorts`).
pub fn allocate(w: &Write, service: &mut Value) -> Result<(), ApiError> {
    if !may_have(service) {
        return Ok(());
    }
    let (all, mut free) = (wants_all(service), Free::new(w));
    let mut list = ports(service).to_vec();
    let asked: BTreeMap<i64, i64> = list
        .iter()
        .rev()
        .filter(|p| number(p) != 0)
        .map(|p| (p["port"].as_i64().unwrap_or(0), number(p)))
        .collect();
    let mut known: BTreeMap<i64, i64> = BTreeMap::new();
    for (i, port) in list.iter_mut().enumerate() {
        let wanted = number(port);
        if wanted == 0 && !all {
            continue;
        }
        let own = port["port"].as_i64().unwrap_or(0);
        let given = match (known.get(&own), asked.get(&own)) {
            (Some(shared), _) if wanted == 0 || wanted == *shared => *shared,
            (Some(_), _) => {
                free.take(wanted).map_err(|why| taken(w, i, wanted, why))?;
                wanted
            }
            (None, Some(asked)) => {
                free.take(*asked).map_err(|why| taken(w, i, *asked, why))?;
                *asked
            }
            (None, None) => free.next()?,
        };
        known.entry(own).or_insert(given);
        port["nodePort"] = json!(given);
    }
    store(service, list);
    if wants_health(service) {
        check_health(service, &mut free)?;
    }
    Ok(())
}

/// Ports of a new version of a Service (`updateNodePorts`).
pub fn reallocate(w: &Write, new: &mut Value, old: &Value) -> Result<(), ApiError> {
    if !may_have(new) {
        return Ok(());
    }
    let mut free = Free::new(w);
    let kept: BTreeSet<i64> = ports(old).iter().map(number).filter(|n| *n != 0).collect();
    let all = wants_all(new);
    let mut fresh: BTreeSet<i64> = BTreeSet::new();
    let mut seen: BTreeSet<(String, i64)> = BTreeSet::new();
    let mut list = ports(new).to_vec();
    for (i, port) in list.iter_mut().enumerate() {
        let wanted = number(port);
        if wanted == 0 && !all {
            continue;
        }
        if wanted == 0 {
            port["nodePort"] = json!(free.next()?);
        } else if !kept.contains(&wanted) && fresh.insert(wanted) {
            free.take(wanted).map_err(|why| taken(w, i, wanted, why))?;
        }
        let key = (port["protocol"].as_str().unwrap_or_default().to_owned(), number(port));
        if !seen.insert(key.clone()) {
            return Err(ApiError::new(500, "", format!("duplicate nodePort: {{{} {}}}", key.0, key.1)));
        }
    }
    store(new, list);
    if wants_health(new) && !wants_health(old) {
        check_health(new, &mut free)?;
    }
    Ok(())
}

fn check_health(service: &mut Value, free: &mut Free) -> Result<(), ApiError> {
    let wanted = health(service);
    if wanted == 0 {
        service["spec"]["healthCheckNodePort"] = json!(free.next()?);
        return Ok(());
    }
    free.take(wanted).map_err(|why| {
        ApiError::internal(format!("failed to allocate requested HealthCheck NodePort {wanted}: {why}"))
    })
}

fn store(service: &mut Value, list: Vec<Value>) {
    if !list.is_empty() {
        service["spec"]["ports"] = Value::Array(list);
    }
}

/// Node ports that the client left out stay, by the names of their ports (`patchAllocatedValues`).
pub fn carry_over(new: &mut Value, old: &Value) {
    if wants_all(new) && wants_all(old) {
        let numbers =
            |s: &Value| -> BTreeSet<i64> { ports(s).iter().map(number).filter(|n| *n != 0).collect() };
        let used: BTreeSet<i64> = numbers(old).intersection(&numbers(new)).copied().collect();
        let name = |p: &Value| p["name"].as_str().unwrap_or_default().to_owned();
        let known: BTreeMap<String, i64> = ports(old).iter().map(|p| (name(p), number(p))).collect();
        let mut list = ports(new).to_vec();
        for port in list.iter_mut().filter(|p| number(p) == 0) {
            if let Some(before) = known.get(&name(port)).filter(|n| **n != 0 && !used.contains(n)) {
                port["nodePort"] = json!(before);
            }
        }
        store(new, list);
    }
    if wants_health(new) && wants_health(old) && health(new) == 0 && health(old) != 0 {
        new["spec"]["healthCheckNodePort"] = old["spec"]["healthCheckNodePort"].clone();
    }
}

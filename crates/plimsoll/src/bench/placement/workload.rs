//! The workloads: data in `workloads.yaml`, made into the engine's objects.

use anyhow::{Context, bail};
use plimsoll_state::model::{Node, Pod};
use plimsoll_state::{ClusterObject, ObjectEvent};
use serde::Deserialize;
use serde_json::{Value, json};

const DATA: &str = include_str!("workloads.yaml");
/// Zones of the default node.
const ZONES: usize = 3;

/// A workload.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Workload {
    /// Name on the command line.
    pub name: String,
    /// Test case of scheduler_perf.
    pub upstream: Option<String>,
    /// Nodes.
    pub nodes: Nodes,
    /// Manifests of other objects.
    #[serde(default)]
    pub objects: Vec<Value>,
    /// Pods that are there before.
    #[serde(default)]
    pub init: Vec<Pods>,
    /// Pods that are measured.
    pub pods: Pods,
    /// Wanted pods per second.
    pub target: Option<f64>,
    /// Wanted most MiB.
    pub memory: Option<f64>,
    /// Measured pods for the curve over nodes; 0: no curve.
    #[serde(default)]
    pub curve: usize,
}

/// Nodes of a workload.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Nodes {
    /// How many.
    pub count: usize,
    #[serde(default = "one")]
    kinds: usize,
    #[serde(default)]
    node: Value,
}

/// Pods of a workload.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Pods {
    /// How many.
    pub count: usize,
    #[serde(default = "one")]
    kinds: usize,
    #[serde(default)]
    pod: Value,
}

fn one() -> usize {
    1
}

impl Workload {
    /// All workloads.
    pub fn all() -> anyhow::Result<Vec<Self>> {
        serde_saphyr::from_str(DATA).context("workloads.yaml")
    }

    /// The other objects.
    pub fn objects(&self) -> anyhow::Result<Vec<ClusterObject>> {
        let object = |o: &Value| {
            let kind = o["kind"].as_str().unwrap_or_default();
            plimsoll_api::convert::cluster_object(kind, o.to_string().as_bytes())?
                .with_context(|| format!("{kind} is not looked at"))
        };
        self.objects.iter().map(object).collect()
    }
}

impl Nodes {
    /// Makes the nodes.
    pub fn make(&self) -> anyhow::Result<impl Iterator<Item = ObjectEvent>> {
        let base = json!({
            "metadata": {"name": "n", "labels": {}},
            "status": {
                "allocatable": {"cpu": "4", "memory": "32Gi", "pods": "110"},
                "conditions": [{"type": "Ready", "status": "True"}]
            }
        });
        let kinds: Vec<Node> = kinds(self.kinds, &base, &self.node)?
            .iter()
            .map(|v| plimsoll_api::convert::node(v.to_string().as_bytes()).map_err(Into::into))
            .collect::<anyhow::Result<_>>()?;
        let labelled = move |(i, kind): (usize, &Node)| {
            let mut node = Node { name: format!("node-{i:06}"), uid: format!("n{i}"), ..kind.clone() };
            node.labels.insert("kubernetes.io/hostname".into(), node.name.clone());
            node.labels.insert("topology.kubernetes.io/zone".into(), format!("zone-{}", i % ZONES));
            ObjectEvent::NodeUpsert(Box::new(node))
        };
        let count = self.count;
        Ok((0..count).filter_map(move |i| Some(labelled((i, kinds.get(i % kinds.len())?)))))
    }
}

impl Pods {
    /// Makes the pods; `set` keeps the names of different sets apart.
    pub fn make(&self, set: usize) -> anyhow::Result<impl Iterator<Item = ObjectEvent>> {
        let base = json!({
            "metadata": {"name": "p", "namespace": "bench"},
            "spec": {
                "schedulerName": "default-scheduler",
                "containers": [{
                    "name": "c", "image": "pause:3.10",
                    "resources": {"requests": {"cpu": "100m", "memory": "500Mi"}}
                }]
            }
        });
        let kinds: Vec<Pod> = kinds(self.kinds, &base, &self.pod)?
            .iter()
            .map(|v| plimsoll_api::convert::pod(v.to_string().as_bytes()).map_err(Into::into))
            .collect::<anyhow::Result<_>>()?;
        let count = self.count;
        Ok((0..count).filter_map(move |i| {
            let kind = kinds.get(i % kinds.len())?;
            let pod = Pod { name: format!("pod-{set}-{i}"), uid: format!("uid-{set}-{i}"), ..kind.clone() };
            Some(ObjectEvent::PodUpsert(Box::new(pod)))
        }))
    }
}

/// The manifests of all kinds.
fn kinds(count: usize, base: &Value, patch: &Value) -> anyhow::Result<Vec<Value>> {
    if count == 0 {
        bail!("kinds must be at least 1");
    }
    let kind = |i| {
        let mut one = base.clone();
        merge(&mut one, &fill(patch, i)?);
        Ok(one)
    };
    (0..count).map(kind).collect()
}

/// Objects are merged, everything else is replaced.
fn merge(into: &mut Value, patch: &Value) {
    match (into, patch) {
        (_, Value::Null) => {}
        (Value::Object(into), Value::Object(patch)) => {
            for (k, v) in patch {
                merge(into.entry(k.clone()).or_insert(Value::Null), v);
            }
        }
        (into, patch) => *into = patch.clone(),
    }
}

/// Replaces `{i…}` in all strings.
fn fill(value: &Value, i: usize) -> anyhow::Result<Value> {
    Ok(match value {
        Value::String(s) => Value::String(text(s, i)?),
        Value::Array(list) => Value::Array(list.iter().map(|v| fill(v, i)).collect::<anyhow::Result<_>>()?),
        Value::Object(map) => Value::Object(
            map.iter().map(|(k, v)| Ok((k.clone(), fill(v, i)?))).collect::<anyhow::Result<_>>()?,
        ),
        other => other.clone(),
    })
}

fn text(template: &str, i: usize) -> anyhow::Result<String> {
    let mut out = String::new();
    let mut rest = template;
    while let Some((before, after)) = rest.split_once("{i") {
        let (formula, after) = after.split_once('}').with_context(|| format!("{template:?}: no end"))?;
        out.push_str(before);
        out.push_str(&compute(formula, i).with_context(|| format!("{template:?}"))?.to_string());
        rest = after;
    }
    out.push_str(rest);
    Ok(out)
}

/// Operators with numbers, from left to right, beginning with `i`.
fn compute(formula: &str, i: usize) -> Option<usize> {
    let mut value = i;
    let mut rest = formula;
    while let Some(operator) = rest.chars().next() {
        let after = rest.get(operator.len_utf8()..)?;
        let end = after.find(|c: char| !c.is_ascii_digit()).unwrap_or(after.len());
        let (number, more) = after.split_at_checked(end)?;
        let number: usize = number.parse().ok()?;
        value = match operator {
            '+' => value.checked_add(number)?,
            '*' => value.checked_mul(number)?,
            '%' => value.checked_rem(number)?,
            '/' => value.checked_div(number)?,
            _ => return None,
        };
        rest = more;
    }
    Some(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_workload_can_be_made() {
        let all = Workload::all().expect("data");
        for w in &all {
            w.objects().expect(&w.name);
            let few = Nodes { count: w.nodes.count.min(3), ..w.nodes.clone() };
            assert_eq!(few.make().expect(&w.name).count(), 3, "{}", w.name);
            for pods in w.init.iter().chain([&w.pods]) {
                assert!(pods.make(0).expect(&w.name).next().is_some(), "{}", w.name);
            }
            assert!(all.iter().filter(|o| o.name == w.name).count() == 1, "{} is there once", w.name);
        }
    }

    #[test]
    fn formulas_apply_from_left_to_right() {
        for (template, i, want) in [("g{i%7}", 9, "g2"), ("{i%20*10+50}m", 21, "60m"), ("x", 1, "x")] {
            assert_eq!(text(template, i).expect(template), want);
        }
        for bad in ["{i", "{i%0}", "{i?3}", "{i+}"] {
            assert!(text(bad, 1).is_err(), "{bad}");
        }
    }
}

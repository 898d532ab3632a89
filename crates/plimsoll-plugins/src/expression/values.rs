//! What an expression sees: pods and nodes as variables with fields, reduced to what it reads.

use std::sync::Arc;

use plimsoll_cel::cost::SizeEstimate;
use plimsoll_cel::{Environment, ObjectType, Type, Value, from_entries};
use plimsoll_scheduler::framework::{NodeView, PodView};
use plimsoll_state::model::TaintEffect;

use super::reads::{Keys, Reads};

/// Fields of `pod`.
pub(super) const POD: [&str; 5] = ["labels", "name", "namespace", "priority", "requests"];
/// Fields of `node`.
pub(super) const NODE: [&str; 5] = ["allocatable", "labels", "name", "requested", "taints"];

/// The type of `pod`.
pub(super) fn with_pod(environment: Environment) -> Environment {
    let fields = [
        ("name", Type::String),
        ("namespace", Type::String),
        ("labels", Type::map(Type::String)),
        ("priority", Type::Int),
        ("requests", Type::map(Type::Int)),
    ];
    environment.variable("pod", Type::object(ObjectType::new("Pod", fields)))
}

/// The type of `node`.
pub(super) fn with_node(environment: Environment) -> Environment {
    let taint = [("key", Type::String), ("value", Type::String), ("effect", Type::String)];
    let fields = [
        ("name", Type::String),
        ("labels", Type::map(Type::String)),
        ("taints", Type::list(Type::object(ObjectType::new("Taint", taint)))),
        ("allocatable", Type::map(Type::Int)),
        ("requested", Type::map(Type::Int)),
    ];
    environment.variable("node", Type::object(ObjectType::new("Node", fields)))
}

/// The largest that the variables are taken to be when the cost of an expression is bounded: 128 labels, 32 taints and 32
/// resources, with names as long as the API allows. Larger ones meet the budget of the evaluation.
pub(super) fn sizes() -> [(&'static str, SizeEstimate); 2] {
    const NAME: u64 = 317;
    const VALUE: u64 = 63;
    let map =
        |length, value| SizeEstimate::collection(length, length * (NAME + value), SizeEstimate::string(NAME));
    let taint = SizeEstimate::collection(3, NAME + 2 * VALUE, SizeEstimate::string(NAME));
    let taints = SizeEstimate::collection(32, 32 * (NAME + 2 * VALUE), taint);
    let object = |name| {
        SizeEstimate::collection(5, 100_000, map(128, VALUE))
            .with_field("name", SizeEstimate::string(name))
            .with_field("namespace", SizeEstimate::string(VALUE))
            .with_field("priority", SizeEstimate::string(1))
            .with_field("labels", map(128, VALUE))
            .with_field("requests", map(32, 8))
            .with_field("allocatable", map(32, 8))
            .with_field("requested", map(32, 8))
            .with_field("taints", taints.clone())
    };
    [("pod", object(253)), ("node", object(253))]
}

/// A part of a variable.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Datum<'a> {
    Text(&'a str),
    Int(i64),
    List(Vec<Self>),
    /// In order of the keys.
    Map(Vec<(&'a str, Self)>),
}

impl Datum<'_> {
    /// Writes bytes that are equal exactly for equal data.
    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        let text = |out: &mut Vec<u8>, text: &str| {
            out.extend_from_slice(&text.len().to_le_bytes());
            out.extend_from_slice(text.as_bytes());
        };
        match self {
            Self::Text(s) => {
                out.push(0);
                text(out, s);
            }
            Self::Int(i) => {
                out.push(1);
                out.extend_from_slice(&i.to_le_bytes());
            }
            Self::List(all) => {
                out.push(2);
                out.extend_from_slice(&all.len().to_le_bytes());
                all.iter().for_each(|one| one.encode(out));
            }
            Self::Map(all) => {
                out.push(3);
                out.extend_from_slice(&all.len().to_le_bytes());
                for (key, value) in all {
                    text(out, key);
                    value.encode(out);
                }
            }
        }
    }

    /// The value of CEL.
    pub(super) fn value(&self) -> Value {
        match self {
            Self::Text(s) => Value::String(Arc::new((*s).to_owned())),
            Self::Int(i) => Value::Int(*i),
            Self::List(all) => Value::List(Arc::new(all.iter().map(Self::value).collect())),
            Self::Map(all) => from_entries(all.iter().map(|(key, value)| ((*key).to_owned(), value.value()))),
        }
    }
}

/// What is read of a pod.
pub(super) fn of_pod<'a>(pod: PodView<'a>, reads: &'a Reads) -> Datum<'a> {
    let field = |(field, keys): (&'static str, &'a Keys)| {
        let value = match field {
            "name" => Datum::Text(pod.name()),
            "namespace" => Datum::Text(pod.namespace()),
            "labels" => labels(keys, |key| pod.label(key), pod.labels()),
            "priority" => Datum::Int(pod.priority().into()),
            _ => amounts(keys, pod.spec_requests()),
        };
        (field, value)
    };
    Datum::Map(reads.fields().map(field).collect())
}

/// What is read of a node.
pub(super) fn of_node<'a>(node: NodeView<'a>, reads: &'a Reads) -> Datum<'a> {
    let field = |(field, keys): (&'static str, &'a Keys)| {
        let value = match field {
            "name" => Datum::Text(node.name()),
            "labels" => labels(keys, |key| node.label(key), node.labels()),
            "taints" => Datum::List(node.taints().map(taint).collect()),
            "allocatable" => amounts(keys, node.all_allocatable()),
            _ => amounts(keys, node.all_requested()),
        };
        (field, value)
    };
    Datum::Map(reads.fields().map(field).collect())
}

fn labels<'a>(
    keys: &'a Keys,
    one: impl Fn(&str) -> Option<&'a str>,
    all: impl Iterator<Item = (&'a str, &'a str)>,
) -> Datum<'a> {
    Datum::Map(match keys {
        Keys::Some(keys) => {
            keys.iter().filter_map(|key| Some((key.as_str(), Datum::Text(one(key)?)))).collect()
        }
        Keys::All => sorted(all.map(|(key, value)| (key, Datum::Text(value))).collect()),
    })
}

fn amounts<'a>(keys: &'a Keys, all: impl Iterator<Item = (&'a str, i64)>) -> Datum<'a> {
    let is_read = |name: &str| match keys {
        Keys::All => true,
        Keys::Some(keys) => keys.contains(name),
    };
    let read = all.filter(|(name, _)| is_read(name));
    Datum::Map(sorted(read.map(|(name, amount)| (name, Datum::Int(amount))).collect()))
}

fn sorted<'a>(mut entries: Vec<(&'a str, Datum<'a>)>) -> Vec<(&'a str, Datum<'a>)> {
    entries.sort_unstable_by_key(|(key, _)| *key);
    entries
}

fn taint<'a>((key, value, effect): (&'a str, &'a str, TaintEffect)) -> Datum<'a> {
    let effect = match effect {
        TaintEffect::NoSchedule => "NoSchedule",
        TaintEffect::PreferNoSchedule => "PreferNoSchedule",
        TaintEffect::NoExecute => "NoExecute",
    };
    Datum::Map(vec![
        ("effect", Datum::Text(effect)),
        ("key", Datum::Text(key)),
        ("value", Datum::Text(value)),
    ])
}

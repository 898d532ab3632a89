//! Devices and claims for devices.

use super::meta::{Map, ObjectMeta, RawQuantity};
use super::pod::Toleration;
use super::selector::NodeSelector;
use serde::Deserialize;

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct Class {
    pub metadata: ObjectMeta,
    pub spec: ClassSpec,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ClassSpec {
    pub selectors: Option<Vec<Selector>>,
    pub extended_resource_name: Option<String>,
    pub config: Option<Vec<serde_json::Value>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct Selector {
    pub cel: Option<Cel>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct Cel {
    pub expression: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct Slice {
    pub metadata: ObjectMeta,
    pub spec: SliceSpec,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SliceSpec {
    pub driver: Option<String>,
    pub pool: Pool,
    pub node_name: Option<String>,
    pub all_nodes: Option<bool>,
    pub node_selector: Option<NodeSelector>,
    pub devices: Option<Vec<Device>>,
    pub shared_counters: Option<Vec<CounterSet>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Pool {
    pub name: Option<String>,
    pub generation: Option<i64>,
    pub resource_slice_count: Option<i64>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct CounterSet {
    pub name: Option<String>,
    pub counters: Map<Counter>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct Counter {
    pub value: Option<RawQuantity>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Capacity {
    pub value: Option<RawQuantity>,
    pub request_policy: Option<CapacityPolicy>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct CapacityPolicy {
    pub default: Option<RawQuantity>,
    pub valid_values: Option<Vec<RawQuantity>>,
    pub valid_range: Option<CapacityRange>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct CapacityRange {
    pub min: Option<RawQuantity>,
    pub max: Option<RawQuantity>,
    pub step: Option<RawQuantity>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Device {
    pub name: Option<String>,
    pub attributes: Map<Attribute>,
    pub capacity: Map<Capacity>,
    pub taints: Option<Vec<super::node::Taint>>,
    pub consumes_counters: Option<Vec<Consumption>>,
    pub node_name: Option<String>,
    pub all_nodes: Option<bool>,
    pub node_selector: Option<NodeSelector>,
    pub binds_to_node: Option<bool>,
    pub allow_multiple_allocations: Option<bool>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct Attribute {
    pub bool: Option<bool>,
    pub int: Option<i64>,
    pub string: Option<String>,
    pub version: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Consumption {
    pub counter_set: Option<String>,
    pub counters: Map<Counter>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct Claim {
    pub metadata: ObjectMeta,
    pub spec: ClaimSpec,
    pub status: Option<ClaimStatus>,
}

/// The version of an object. Few kinds need it, so that [`ObjectMeta`] does not read it.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct Versioned {
    pub metadata: Version,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Version {
    pub resource_version: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct ClaimTemplate {
    pub metadata: ObjectMeta,
    pub spec: ClaimTemplateSpec,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct ClaimTemplateSpec {
    pub spec: ClaimSpec,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct ClaimSpec {
    pub devices: DeviceClaim,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct DeviceClaim {
    pub requests: Option<Vec<Request>>,
    pub constraints: Option<Vec<Constraint>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Request {
    pub name: Option<String>,
    pub exactly: Option<SubRequest>,
    pub first_available: Option<Vec<SubRequest>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SubRequest {
    pub name: Option<String>,
    pub device_class_name: Option<String>,
    pub selectors: Option<Vec<Selector>>,
    pub allocation_mode: Option<String>,
    pub count: Option<i64>,
    pub tolerations: Option<Vec<Toleration>>,
    pub admin_access: Option<bool>,
    pub capacity: Option<serde_json::Value>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Constraint {
    pub requests: Option<Vec<String>>,
    pub match_attribute: Option<String>,
    pub distinct_attribute: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ClaimStatus {
    pub allocation: Option<Allocation>,
    pub reserved_for: Option<Vec<Consumer>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct Consumer {
    pub uid: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Allocation {
    pub devices: Results,
    pub node_selector: Option<NodeSelector>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct Results {
    pub results: Option<Vec<Given>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Given {
    pub request: Option<String>,
    pub driver: Option<String>,
    pub pool: Option<String>,
    pub device: Option<String>,
    pub admin_access: Option<bool>,
}

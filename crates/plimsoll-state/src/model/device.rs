//! Devices, claims for devices, and classes of devices (`resource.k8s.io`).

use super::{NodeSelector, OwnerRef, TaintEffect};
use crate::time::Time;
use std::collections::BTreeMap;

/// Value of a device attribute.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AttributeValue {
    /// True or false.
    Bool(bool),
    /// An integer.
    Int(i64),
    /// A text.
    Text(String),
    /// A semantic version.
    Version(String),
}

/// A taint of a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceTaint {
    /// Key.
    pub key: String,
    /// Value.
    pub value: String,
    /// Effect; `None`: no effect.
    pub effect: Option<TaintEffect>,
}

/// Amounts in billionths by name.
pub type Counters = BTreeMap<String, i128>;

/// A capacity of a device.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeviceCapacity {
    /// The amount as written.
    pub text: String,
    /// The amount in billionths.
    pub amount: i128,
    /// The shares that a request can get of it; `None`: any amount.
    pub policy: Option<Box<CapacityRequestPolicy>>,
}

/// The shares of a capacity that a request can get (KEP-5075 `CapacityRequestPolicy`); amounts in billionths.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CapacityRequestPolicy {
    /// The share of a request that names no amount.
    pub default: Option<i128>,
    /// The only shares there are, in ascending order; none: see `valid_range`.
    pub valid_values: Vec<i128>,
    /// Limits of the shares.
    pub valid_range: Option<CapacityRequestRange>,
}

/// Limits of the shares of a capacity (KEP-5075 `CapacityRequestPolicyRange`); amounts in billionths.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CapacityRequestRange {
    /// The least share.
    pub min: Option<i128>,
    /// The greatest share.
    pub max: Option<i128>,
    /// A share is `min` plus a multiple of this.
    pub step: Option<i128>,
}

/// A device.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Device {
    /// Name, unique in its pool.
    pub name: String,
    /// Attributes; names without a domain belong to the driver's.
    pub attributes: BTreeMap<String, AttributeValue>,
    /// Capacities; names without a domain belong to the driver's.
    pub capacity: BTreeMap<String, DeviceCapacity>,
    /// Taints.
    pub taints: Vec<DeviceTaint>,
    /// What it takes from the pool's counter sets: (set, amounts).
    pub consumes: Vec<(String, Counters)>,
    /// Nodes that reach it, when the slice leaves that to its devices.
    pub reach: Option<Reach>,
    /// Whether a claim that gets it can be used on the node of its first pod only, whatever nodes reach it.
    pub binds_to_node: bool,
    /// Whether several claims may get it.
    pub multiple: bool,
}

/// Which nodes reach devices.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reach {
    /// One node.
    Node(String),
    /// All nodes.
    All,
    /// Some nodes.
    Selected(NodeSelector),
}

/// A ResourceSlice: some devices of a pool.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ResourceSlice {
    /// Name.
    pub name: String,
    /// Driver.
    pub driver: String,
    /// Pool.
    pub pool: String,
    /// Only the newest generation of a pool counts.
    pub generation: i64,
    /// How many slices the pool has.
    pub slice_count: i64,
    /// Nodes that reach the devices; `None`: each device says.
    pub reach: Option<Reach>,
    /// Devices.
    pub devices: Vec<Device>,
    /// Counter sets: (name, amounts).
    pub counters: Vec<(String, Counters)>,
}

/// A DeviceClass.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeviceClass {
    /// Name.
    pub name: String,
    /// CEL expressions that all must hold.
    pub selectors: Vec<String>,
    /// Extended resource that stands for devices of this class.
    pub extended_resource: Option<String>,
    /// When it was created.
    pub created: Time,
    /// Configurations for drivers (`spec.config`), each as JSON.
    pub config: Vec<String>,
}

impl DeviceClass {
    /// Of several classes for one extended resource, the newest; of equally old ones, the first by name (upstream
    /// `extendedresourcecache`).
    pub fn of_extended_resource<'a>(
        classes: impl Iterator<Item = &'a Self>,
        resource: &str,
    ) -> Option<&'a Self> {
        let named = classes.filter(|c| c.extended_resource.as_deref() == Some(resource));
        named.min_by_key(|c| (std::cmp::Reverse(c.created), &c.name))
    }
}

/// Toleration of device taints.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceToleration {
    /// Key; empty with `exists` tolerates all.
    pub key: String,
    /// The key must be there; otherwise key and value must be equal.
    pub exists: bool,
    /// Value.
    pub value: String,
    /// Effect; `None`: all.
    pub effect: Option<TaintEffect>,
}

/// How many devices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeviceCount {
    /// All that match; at least one.
    All,
    /// This many.
    Exactly(i64),
}

/// One way to satisfy a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceAlternative {
    /// Name of the subrequest; empty when there is only one way.
    pub name: String,
    /// Class.
    pub class: String,
    /// CEL expressions that all must hold.
    pub selectors: Vec<String>,
    /// How many.
    pub count: DeviceCount,
    /// Tolerations.
    pub tolerations: Vec<DeviceToleration>,
    /// For administration: devices in use may be given as well.
    pub admin: bool,
    /// Whether it asks for shares of a device's capacity, which is not supported.
    pub shares_capacity: bool,
}

/// A request for devices.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeviceRequest {
    /// Name, unique in the claim.
    pub name: String,
    /// Whether the alternatives are a prioritised list.
    pub prioritized: bool,
    /// Alternatives, best first.
    pub alternatives: Vec<DeviceAlternative>,
}

impl DeviceRequest {
    /// Name of one of its alternatives in a claim: `request/subrequest`, or that of the request where there is one way only.
    pub fn full_name(&self, alternative: &DeviceAlternative) -> String {
        match alternative.name.as_str() {
            "" => self.name.clone(),
            name => format!("{}/{name}", self.name),
        }
    }
}

/// A condition on the devices of several requests.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeviceConstraint {
    /// Requests (or `request/subrequest`) it is about; none: all.
    pub requests: Vec<String>,
    /// Attribute that must have the same value in all devices.
    pub match_attribute: Option<String>,
    /// Attribute that must have another value in every device. Neither: a condition that is not understood.
    pub distinct_attribute: Option<String>,
}

/// A device given to a request.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct AllocatedDevice {
    /// Request, with subrequest after a slash.
    pub request: String,
    /// Driver.
    pub driver: String,
    /// Pool.
    pub pool: String,
    /// Device.
    pub device: String,
    /// For administration only.
    pub admin: bool,
}

/// What a claim got.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeviceAllocation {
    /// Devices.
    pub devices: Vec<AllocatedDevice>,
    /// Nodes on which the claim can be used; `None`: all.
    pub nodes: Option<NodeSelector>,
}

/// A ResourceClaim.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ResourceClaim {
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub name: String,
    /// UID.
    pub uid: String,
    /// `metadata.resourceVersion`; 0: not known.
    pub version: u64,
    /// Owners.
    pub owners: Vec<OwnerRef>,
    /// Whether deletion has been asked for.
    pub deleting: bool,
    /// Whether a scheduler made it for a pod's extended resources (annotation
    /// `resource.kubernetes.io/extended-resource-claim`).
    pub extended: bool,
    /// Requests.
    pub requests: Vec<DeviceRequest>,
    /// Conditions across requests.
    pub constraints: Vec<DeviceConstraint>,
    /// What it got.
    pub allocation: Option<DeviceAllocation>,
    /// UIDs of the pods that may use it.
    pub reserved_for: Vec<String>,
}

/// Evaluates the CEL selectors of device classes and claims; the language itself is no part of the engine.
pub trait DeviceSelector: Send + Sync + std::fmt::Debug {
    /// Whether a device satisfies an expression.
    ///
    /// # Errors
    /// When the expression can't be compiled or fails for this device.
    fn matches(&self, expression: &str, driver: &str, device: &Device) -> Result<bool, String>;

    /// Whether an expression can be evaluated at all, as far as that can be told without a device.
    ///
    /// # Errors
    /// Why it can't be compiled.
    fn check(&self, _expression: &str) -> Result<(), String> {
        Ok(())
    }
}

//! Devices and claims for them: a ResourceSlice for each node, one DeviceClass, claims that pods share and templates of
//! those that pods have for themselves.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::names::{NAMESPACE, node_name};

/// The driver of all devices.
pub const DRIVER: &str = "dra.example.com";
/// The class of all devices.
pub const CLASS: &str = "device";
/// Most devices that a claim asks for: there is a template for each number up to it.
pub const MOST: u8 = 2;

/// What each pod of a job claims.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Claims {
    /// Devices of its first and of its second own claim; 0: no such claim.
    pub own: [u8; 2],
    /// Whether it uses the first and the second claim that pods share.
    pub shared: [bool; 2],
}

impl Claims {
    /// Whether there are none.
    #[allow(clippy::trivially_copy_pass_by_ref, reason = "as serde wants it")]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// Name of the slice of a node.
pub fn slice_name(node: usize) -> String {
    format!("slice-{}", node_name(node))
}

/// The slice of a node with this many devices.
pub fn slice(node: usize, devices: u8, generation: u64) -> Value {
    let devices: Vec<Value> = (0..devices).map(|d| json!({"name": format!("d{d}")})).collect();
    let node = node_name(node);
    json!({
        "metadata": {"name": format!("slice-{node}")},
        "spec": {
            "driver": DRIVER, "nodeName": node, "devices": devices,
            "pool": {"name": node, "generation": generation, "resourceSliceCount": 1},
        },
    })
}

/// The class.
pub fn class() -> Value {
    json!({"metadata": {"name": CLASS}, "spec": {}})
}

fn spec(devices: u8) -> Value {
    let exactly = json!({"deviceClassName": CLASS, "allocationMode": "ExactCount", "count": devices});
    json!({"devices": {"requests": [{"name": "request", "exactly": exactly}]}})
}

/// Name of the template of claims for this many devices.
pub fn template_name(devices: u8) -> String {
    format!("t{devices}")
}

/// The template of claims for this many devices.
pub fn template(devices: u8) -> Value {
    json!({
        "metadata": {"namespace": NAMESPACE, "name": template_name(devices)},
        "spec": {"spec": spec(devices)},
    })
}

/// Name of a claim that pods share.
pub fn shared_name(claim: usize) -> String {
    format!("s{claim}")
}

/// A claim that pods share: one device.
pub fn shared(claim: usize) -> Value {
    json!({"metadata": {"namespace": NAMESPACE, "name": shared_name(claim)}, "spec": spec(1)})
}

/// Adds to a pod template what its pods claim.
pub fn ask(claims: &Claims, template: &mut Value) {
    let own = claims.own.iter().enumerate().filter(|(_, n)| **n > 0);
    let own =
        own.map(|(i, n)| json!({"name": format!("own{i}"), "resourceClaimTemplateName": template_name(*n)}));
    let shared = claims.shared.iter().enumerate().filter(|(_, uses)| **uses);
    let shared =
        shared.map(|(i, _)| json!({"name": format!("shared{i}"), "resourceClaimName": shared_name(i)}));
    let all: Vec<Value> = own.chain(shared).collect();
    if all.is_empty() {
        return;
    }
    let names: Vec<Value> = all.iter().map(|c| json!({"name": c["name"]})).collect();
    template["spec"]["containers"][0]["resources"]["claims"] = json!(names);
    template["spec"]["resourceClaims"] = json!(all);
}

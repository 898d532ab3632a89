//! Devices and claims for devices.

use super::node::taint;
use super::pod::taint_effect;
use super::selector::node_selector;
use super::{Result, bad, decode, names, optional_time, owners, required};
use crate::Quantity;
use crate::lean::device as lean;
use crate::lean::meta::{Map, RawQuantity};
use plimsoll_state::collect::InsertEach as _;
use plimsoll_state::model::{
    AllocatedDevice, AttributeValue, CapacityRequestPolicy, CapacityRequestRange, Counters, Device,
    DeviceAllocation, DeviceAlternative, DeviceCapacity, DeviceClass, DeviceConstraint, DeviceCount,
    DeviceRequest, DeviceTaint, DeviceToleration, Reach, ResourceClaim, ResourceSlice,
};

/// Marks claims that schedulers make for extended resources (`resourceapi.ExtendedResourceClaimAnnotation`).
const EXTENDED_CLAIM: &str = "resource.kubernetes.io/extended-resource-claim";

fn selectors(list: Option<Vec<lean::Selector>>) -> Vec<String> {
    let list = list.unwrap_or_default().into_iter();
    list.filter_map(|s| s.cel?.expression).collect()
}

pub(super) fn class(bytes: &[u8]) -> Result<DeviceClass> {
    let raw: lean::Class = decode("DeviceClass", bytes)?;
    Ok(DeviceClass {
        name: required("metadata.name", raw.metadata.name)?,
        selectors: selectors(raw.spec.selectors),
        extended_resource: raw.spec.extended_resource_name,
        created: optional_time("metadata.creationTimestamp", raw.metadata.creation_timestamp)?
            .unwrap_or_default(),
        config: raw.spec.config.unwrap_or_default().iter().map(ToString::to_string).collect(),
    })
}

fn reach(
    node: Option<String>,
    all: Option<bool>,
    selector: Option<crate::lean::selector::NodeSelector>,
) -> Result<Option<Reach>> {
    if let Some(node) = node.filter(|n| !n.is_empty()) {
        return Ok(Some(Reach::Node(node)));
    }
    if all == Some(true) {
        return Ok(Some(Reach::All));
    }
    selector.map(|s| node_selector("nodeSelector", s).map(Reach::Selected)).transpose()
}

/// A quantity in billionths.
pub(crate) fn nanos(field: &str, text: &str) -> Result<i128> {
    match text.parse::<Quantity>() {
        Ok(q) => Ok(q.nanos()),
        Err(e) => bad(field.to_owned(), format!("Invalid value: {text:?}: {e}")),
    }
}

fn counters(field: &str, raw: Map<lean::Counter>) -> Result<Counters> {
    let mut out = Counters::new();
    for (name, counter) in raw.unwrap_or_default() {
        let text = counter.value.map_or_else(|| "0".to_owned(), |q| q.0);
        let amount = nanos(&format!("{field}[{name}]"), &text)?;
        out.insert(name, amount);
    }
    Ok(out)
}

fn capacity(name: &str, raw: lean::Capacity) -> Result<DeviceCapacity> {
    let field = format!("spec.devices.capacity[{name}]");
    let optional = |raw: Option<RawQuantity>| raw.map(|q| nanos(&field, &q.0)).transpose();
    let text = raw.value.map_or_else(|| "0".to_owned(), |q| q.0);
    let policy = raw.request_policy.map(|policy| {
        let values = policy.valid_values.unwrap_or_default();
        let range = policy.valid_range.map(|r| {
            let (min, max, step) = (optional(r.min)?, optional(r.max)?, optional(r.step)?);
            Ok(CapacityRequestRange { min, max, step })
        });
        Ok(Box::new(CapacityRequestPolicy {
            default: optional(policy.default)?,
            valid_values: values.iter().map(|q| nanos(&field, &q.0)).collect::<Result<_>>()?,
            valid_range: range.transpose()?,
        }))
    });
    Ok(DeviceCapacity { amount: nanos(&field, &text)?, text, policy: policy.transpose()? })
}

pub(crate) fn slice(bytes: &[u8]) -> Result<ResourceSlice> {
    let raw: lean::Slice = decode("ResourceSlice", bytes)?;
    let spec = raw.spec;
    let sets = spec.shared_counters.unwrap_or_default().into_iter();
    Ok(ResourceSlice {
        name: required("metadata.name", raw.metadata.name)?,
        driver: spec.driver.unwrap_or_default(),
        pool: spec.pool.name.unwrap_or_default(),
        generation: spec.pool.generation.unwrap_or(0),
        slice_count: spec.pool.resource_slice_count.unwrap_or(0),
        reach: reach(spec.node_name, spec.all_nodes, spec.node_selector)?,
        devices: spec.devices.unwrap_or_default().into_iter().map(device).collect::<Result<_>>()?,
        counters: sets
            .map(|s| Ok((s.name.unwrap_or_default(), counters("spec.sharedCounters", s.counters)?)))
            .collect::<Result<_>>()?,
    })
}

fn attribute(raw: lean::Attribute) -> Option<AttributeValue> {
    None.or(raw.bool.map(AttributeValue::Bool))
        .or(raw.int.map(AttributeValue::Int))
        .or(raw.string.map(AttributeValue::Text))
        .or(raw.version.map(AttributeValue::Version))
}

fn device(raw: lean::Device) -> Result<Device> {
    let taint_of = |t: crate::lean::node::Taint| {
        if t.effect.as_deref() == Some("None") {
            return Ok(DeviceTaint {
                key: t.key.unwrap_or_default(),
                value: t.value.unwrap_or_default(),
                effect: None,
            });
        }
        let t = taint(t)?;
        Ok(DeviceTaint { key: t.key, value: t.value, effect: Some(t.effect) })
    };
    let consumes = raw.consumes_counters.unwrap_or_default().into_iter();
    let capacities = raw.capacity.unwrap_or_default().into_iter();
    let attributes = raw.attributes.unwrap_or_default().into_iter();
    Ok(Device {
        name: raw.name.unwrap_or_default(),
        attributes: attributes.filter_map(|(n, v)| Some((n, attribute(v)?))).insert_each(),
        capacity: capacities.map(|(n, v)| Ok((n.clone(), capacity(&n, v)?))).collect::<Result<_>>()?,
        taints: raw.taints.unwrap_or_default().into_iter().map(taint_of).collect::<Result<_>>()?,
        consumes: consumes
            .map(|c| {
                Ok((c.counter_set.unwrap_or_default(), counters("devices.consumesCounters", c.counters)?))
            })
            .collect::<Result<_>>()?,
        reach: reach(raw.node_name, raw.all_nodes, raw.node_selector)?,
        binds_to_node: raw.binds_to_node.unwrap_or(false),
        multiple: raw.allow_multiple_allocations.unwrap_or(false),
    })
}

pub(super) fn claim(bytes: &[u8]) -> Result<ResourceClaim> {
    let mut raw: lean::Claim = decode("ResourceClaim", bytes)?;
    let of_version: lean::Versioned = decode("ResourceClaim", bytes)?;
    let version = of_version.metadata.resource_version.and_then(|v| v.parse().ok()).unwrap_or(0);
    let uid = raw.metadata.uid.take().unwrap_or_default();
    let owners = owners(raw.metadata.owner_references.take());
    let deleting = raw.metadata.deletion_timestamp.is_some();
    let mut annotations = raw.metadata.annotations.take().unwrap_or_default();
    let extended = annotations.remove(EXTENDED_CLAIM).flatten().is_some_and(|v| v == "true");
    let (namespace, name) = names(raw.metadata)?;
    let status = raw.status.unwrap_or_default();
    let (requests, constraints) = asked(raw.spec)?;
    let reserved = status.reserved_for.unwrap_or_default().into_iter();
    Ok(ResourceClaim {
        namespace,
        name,
        uid,
        version,
        owners,
        deleting,
        extended,
        requests,
        constraints,
        allocation: status.allocation.map(allocation).transpose()?,
        reserved_for: reserved.map(|c| c.uid.unwrap_or_default()).collect(),
    })
}

/// A template as the claim that is made from it.
pub(super) fn claim_template(bytes: &[u8]) -> Result<ResourceClaim> {
    let raw: lean::ClaimTemplate = decode("ResourceClaimTemplate", bytes)?;
    let (namespace, name) = names(raw.metadata)?;
    let (requests, constraints) = asked(raw.spec.spec)?;
    Ok(ResourceClaim { namespace, name, requests, constraints, ..ResourceClaim::default() })
}

fn asked(raw: lean::ClaimSpec) -> Result<(Vec<DeviceRequest>, Vec<DeviceConstraint>)> {
    let requests = raw.devices.requests.unwrap_or_default().into_iter();
    let constraints = raw.devices.constraints.unwrap_or_default().into_iter().map(|c| DeviceConstraint {
        requests: c.requests.unwrap_or_default(),
        match_attribute: c.match_attribute,
        distinct_attribute: c.distinct_attribute,
    });
    Ok((requests.map(request).collect::<Result<_>>()?, constraints.collect()))
}

fn request(raw: lean::Request) -> Result<DeviceRequest> {
    let prioritized = raw.first_available.is_some();
    let mut alternatives = Vec::new();
    if let Some(one) = raw.exactly {
        alternatives.push(alternative(one)?);
    }
    for one in raw.first_available.unwrap_or_default() {
        alternatives.push(alternative(one)?);
    }
    Ok(DeviceRequest { name: raw.name.unwrap_or_default(), prioritized, alternatives })
}

fn alternative(raw: lean::SubRequest) -> Result<DeviceAlternative> {
    let count = match raw.allocation_mode.as_deref() {
        None | Some("" | "ExactCount") => DeviceCount::Exactly(raw.count.unwrap_or(1)),
        Some("All") => DeviceCount::All,
        Some(other) => return bad("requests.allocationMode", format!("Unsupported value: {other:?}")),
    };
    let tolerations = raw.tolerations.unwrap_or_default().into_iter().map(|t| DeviceToleration {
        key: t.key.unwrap_or_default(),
        exists: t.operator.as_deref() == Some("Exists"),
        value: t.value.unwrap_or_default(),
        effect: t.effect.as_deref().and_then(taint_effect),
    });
    Ok(DeviceAlternative {
        name: raw.name.unwrap_or_default(),
        class: raw.device_class_name.unwrap_or_default(),
        selectors: selectors(raw.selectors),
        count,
        tolerations: tolerations.collect(),
        admin: raw.admin_access.unwrap_or(false),
        shares_capacity: raw.capacity.is_some_and(|c| !c.is_null()),
    })
}

fn allocation(raw: lean::Allocation) -> Result<DeviceAllocation> {
    let devices = raw.devices.results.unwrap_or_default().into_iter().map(|r| AllocatedDevice {
        request: r.request.unwrap_or_default(),
        driver: r.driver.unwrap_or_default(),
        pool: r.pool.unwrap_or_default(),
        device: r.device.unwrap_or_default(),
        admin: r.admin_access.unwrap_or(false),
    });
    Ok(DeviceAllocation {
        devices: devices.collect(),
        nodes: raw.node_selector.map(|s| node_selector("status.allocation.nodeSelector", s)).transpose()?,
    })
}

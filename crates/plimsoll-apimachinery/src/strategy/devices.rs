//! Fields of resource.k8s.io that the registry drops: those of features that are off by default upstream, and the
//! status of deallocated devices.

use serde_json::Value;

use crate::obj::{Obj, as_obj, child, children, has, list, object, text};

const LISTS: [&str; 4] = ["bools", "ints", "strings", "versions"];

/// Drops `nodeAllocatableResourceMappings` (DRANodeAllocatableResources) and lists as attributes
/// (DRAListTypeAttributes), unless the slice had some before.
pub(super) fn drop_disabled(old: Option<&Obj>, new: &mut Obj) {
    let devices = || old.into_iter().flat_map(|o| list(object(o, "spec"), "devices")).map(as_obj);
    let mapped = devices().any(|d| !object(d, "nodeAllocatableResourceMappings").is_empty());
    let attributes = |d| object(d, "attributes").values().map(as_obj);
    let listed = devices().any(|d| attributes(d).any(|a| LISTS.iter().any(|key| has(a, key))));
    let Some(spec) = child(new, "spec") else { return };
    for device in children(spec, "devices") {
        if !mapped {
            device.remove("nodeAllocatableResourceMappings");
        }
        if listed {
            continue;
        }
        let attributes = child(device, "attributes").into_iter().flat_map(|a| a.values_mut());
        for attribute in attributes.filter_map(Value::as_object_mut) {
            for key in LISTS {
                attribute.remove(key);
            }
        }
    }
}

/// The status of devices is dropped with their allocation (`dropDeallocatedStatusDevices`).
pub(super) fn drop_deallocated(old: &Obj, new: &mut Obj) {
    fn id(of: &Obj) -> [String; 4] {
        ["driver", "pool", "device", "shareID"].map(|key| text(of, key).to_owned())
    }
    let results = |o: &Obj| -> Vec<[String; 4]> {
        let devices = object(object(object(o, "status"), "allocation"), "devices");
        list(devices, "results").iter().map(|r| id(as_obj(r))).collect()
    };
    let mut gone = results(old);
    let kept = results(new);
    gone.retain(|one| !kept.contains(one));
    let Some(status) = child(new, "status") else { return };
    let Some(devices) = status.get_mut("devices").and_then(Value::as_array_mut) else { return };
    devices.retain(|d| !gone.contains(&id(as_obj(d))));
    if devices.is_empty() {
        status.remove("devices");
    }
}

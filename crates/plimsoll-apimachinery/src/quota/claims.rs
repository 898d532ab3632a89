//! Usage of a ResourceClaim: devices by class, in the worst case.

use std::collections::BTreeMap;

use plimsoll_api::quantity::{Format, Quantity};
use serde_json::Value;

use crate::ObjectLister;
use crate::amounts::Amounts;

/// Ends the names of resources that count devices of a class.
pub const BY_CLASS: &str = ".deviceclass.resource.k8s.io/devices";
/// Begins the names that count them as resources that pods ask for.
pub const IMPLICIT: &str = "requests.deviceclass.resource.kubernetes.io/";
/// As many devices a claim can get.
const MOST: i64 = 32;

/// The resources that device classes stand for, by class.
pub fn extended(objects: &dyn ObjectLister) -> BTreeMap<String, String> {
    let read = |class: &Value| {
        let name = class["metadata"]["name"].as_str()?.to_owned();
        Some((name, class["spec"]["extendedResourceName"].as_str().filter(|n| !n.is_empty())?.to_owned()))
    };
    let mut classes = BTreeMap::new();
    objects.for_each("resource.k8s.io/deviceclasses", None, &mut |class| classes.extend(read(&class)));
    classes
}

/// Adds the devices of a claim, also under the names of the resources that their classes stand for.
pub fn usage(claim: &Value, classes: &BTreeMap<String, String>, out: &mut Amounts) {
    let mut devices: BTreeMap<&str, i64> = BTreeMap::new();
    for request in claim["spec"]["devices"]["requests"].as_array().into_iter().flatten() {
        let mut worst: BTreeMap<&str, i64> = BTreeMap::new();
        let alternatives = request["firstAvailable"].as_array().filter(|list| !list.is_empty());
        let exact = request.get("exactly").filter(|e| e.is_object());
        for one in alternatives.into_iter().flatten().chain(exact.filter(|_| alternatives.is_none())) {
            let count = match one["allocationMode"].as_str() {
                Some("ExactCount") => one["count"].as_i64().unwrap_or(0),
                Some("All") => MOST,
                _ => 0,
            };
            let most = worst.entry(one["deviceClassName"].as_str().unwrap_or("")).or_default();
            *most = count.max(*most);
        }
        for (class, count) in worst {
            let sum = devices.entry(class).or_default();
            *sum = sum.saturating_add(count);
        }
    }
    for (class, count) in devices {
        let amount = Quantity::new(count, Format::DecimalSi);
        out.insert(format!("{class}{BY_CLASS}"), amount);
        if !class.is_empty() && count > 0 {
            out.insert(format!("{IMPLICIT}{class}"), amount);
            if let Some(resource) = classes.get(class) {
                out.insert(format!("requests.{resource}"), amount);
            }
        }
    }
}

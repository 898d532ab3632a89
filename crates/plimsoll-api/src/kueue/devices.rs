//! Claim templates, device classes and devices → what quota needs of them (Kueue KEP-2941).

use std::collections::BTreeMap;

use plimsoll_queueing::{ClaimCount, ClaimRequest, ClaimTemplate, QuotaDeviceClass};
use plimsoll_state::Time;
use plimsoll_state::model::ResourceSlice;
use serde_json::Value;

use super::decode::{name, text};
use crate::convert::{ConvertError, Result, nanos};

fn selectors(value: &Value) -> Vec<String> {
    let list = value["selectors"].as_array().into_iter().flatten();
    list.filter_map(|s| s["cel"]["expression"].as_str()).map(str::to_owned).collect()
}

/// A ResourceClaimTemplate. Defaults of `resource.k8s.io/v1`: one device, counted exactly.
pub(super) fn claim_template(object: &Value) -> Result<ClaimTemplate> {
    let requests = object["spec"]["spec"]["devices"]["requests"].as_array().into_iter().flatten();
    Ok(ClaimTemplate {
        namespace: text(&object["metadata"], "namespace"),
        name: name(object)?,
        requests: requests.map(request).collect::<Result<_>>()?,
    })
}

/// The shares of capacities that a request asks for, in billionths.
fn capacity(exactly: &Value) -> Result<BTreeMap<String, i128>> {
    let asked = exactly["capacity"]["requests"].as_object().into_iter().flatten();
    asked
        .map(|(name, amount)| {
            let text = amount.as_str().map_or_else(|| amount.to_string(), str::to_owned);
            Ok((name.clone(), nanos(&format!("devices.requests.capacity.requests[{name}]"), &text)?))
        })
        .collect()
}

fn request(raw: &Value) -> Result<ClaimRequest> {
    if raw["firstAvailable"].is_array() {
        return Ok(ClaimRequest::FirstAvailable);
    }
    let exactly = &raw["exactly"];
    if !exactly.is_object() {
        return Ok(ClaimRequest::Empty);
    }
    Ok(ClaimRequest::Exactly {
        class: text(exactly, "deviceClassName"),
        selectors: selectors(exactly),
        count: match exactly["allocationMode"].as_str() {
            None | Some("" | "ExactCount") => ClaimCount::Exactly(exactly["count"].as_i64().unwrap_or(1)),
            Some("All") => ClaimCount::All,
            Some(other) => ClaimCount::Other(other.to_owned()),
        },
        capacity: capacity(exactly)?,
        admin: exactly["adminAccess"] == true,
    })
}

/// A DeviceClass.
pub(super) fn device_class(object: &Value) -> Result<QuotaDeviceClass> {
    let created = object["metadata"]["creationTimestamp"].as_str().and_then(|t| t.parse().ok());
    Ok(QuotaDeviceClass {
        name: name(object)?,
        selectors: selectors(&object["spec"]),
        extended_resource: object["spec"]["extendedResourceName"].as_str().map(str::to_owned),
        created: Time::from_seconds(created.map_or(0, jiff::Timestamp::as_second)),
    })
}

/// A ResourceSlice.
pub(super) fn resource_slice(object: &Value) -> std::result::Result<ResourceSlice, ConvertError> {
    // Rare enough to be written out again for the decoder that placement uses.
    crate::convert::resource_slice(object.to_string().as_bytes())
}

#[cfg(test)]
mod tests {
    use super::super::{delete_event, upsert_event};
    use super::*;
    use plimsoll_queueing::Event;
    use plimsoll_state::model::{CapacityRequestPolicy, CapacityRequestRange, DeviceCapacity};
    use serde_json::json;

    #[test]
    fn templates_classes_and_slices_reach_quota() {
        let template = json!({"kind": "ResourceClaimTemplate", "metadata": {"namespace": "n", "name": "t"}, "spec": {"spec": {
            "devices": {"requests": [
                {"name": "a", "exactly": {"deviceClassName": "gpu", "selectors": [{"cel": {"expression": "true"}}],
                    "capacity": {"requests": {"memory": "1500m", "slots": 2}}}},
                {"name": "b", "exactly": {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 3, "adminAccess": true}},
                {"name": "c", "exactly": {"deviceClassName": "gpu", "allocationMode": "All"}},
                {"name": "d", "firstAvailable": [{"name": "x", "deviceClassName": "gpu"}]},
                {"name": "e"}]}}}});
        let Ok(Some(Event::ClaimTemplateUpsert(t))) = upsert_event(&template) else { panic!("a template") };
        assert_eq!((t.namespace.as_str(), t.name.as_str(), t.requests.len()), ("n", "t", 5));
        let exactly = |selectors: &[&str], count, capacity, admin| ClaimRequest::Exactly {
            class: "gpu".into(),
            selectors: selectors.iter().map(|s| (*s).to_owned()).collect(),
            count,
            capacity,
            admin,
        };
        let asked = [("memory".to_owned(), 1_500_000_000), ("slots".to_owned(), 2_000_000_000)].into();
        assert_eq!(t.requests[0], exactly(&["true"], ClaimCount::Exactly(1), asked, false));
        assert_eq!(t.requests[1], exactly(&[], ClaimCount::Exactly(3), BTreeMap::new(), true));
        assert_eq!(t.requests[2], exactly(&[], ClaimCount::All, BTreeMap::new(), false));
        assert_eq!(t.requests[3..], [ClaimRequest::FirstAvailable, ClaimRequest::Empty]);
        let class = json!({"kind": "DeviceClass", "metadata": {"name": "gpu", "creationTimestamp": "1970-01-01T00:01:00Z"},
            "spec": {"extendedResourceName": "example.com/gpu", "selectors": [{"cel": {"expression": "true"}}]}});
        let Ok(Some(Event::DeviceClassUpsert(c))) = upsert_event(&class) else { panic!("a class") };
        assert_eq!(
            (c.created, c.extended_resource.as_deref()),
            (Time::from_seconds(60), Some("example.com/gpu"))
        );
        let slice = json!({"kind": "ResourceSlice", "metadata": {"name": "s"}, "spec": {"driver": "d", "pool": {
            "name": "p", "generation": 2, "resourceSliceCount": 1}, "nodeName": "n", "devices": [{"name": "x",
            "capacity": {"memory": {"value": "80", "requestPolicy": {"default": "5", "validValues": ["5", "10"],
                "validRange": {"min": "5", "step": "500m"}}}, "slots": {"value": "4"}},
            "consumesCounters": [{"counterSet": "set", "counters": {"memory": {"value": "10Gi"}}}]}]}});
        let Ok(Some(Event::ResourceSliceUpsert(s))) = upsert_event(&slice) else { panic!("a slice") };
        assert_eq!(s.devices[0].consumes[0].1["memory"], 10 * 1024 * 1024 * 1024 * 1_000_000_000);
        let one = 1_000_000_000;
        let policy = CapacityRequestPolicy {
            default: Some(5 * one),
            valid_values: vec![5 * one, 10 * one],
            valid_range: Some(CapacityRequestRange { min: Some(5 * one), max: None, step: Some(one / 2) }),
        };
        let capacity = |text: &str, amount, policy| DeviceCapacity { text: text.to_owned(), amount, policy };
        assert_eq!(s.devices[0].capacity["memory"], capacity("80", 80 * one, Some(Box::new(policy))));
        assert_eq!(s.devices[0].capacity["slots"], capacity("4", 4 * one, None));
        for kind in ["ResourceClaimTemplate", "DeviceClass", "ResourceSlice"] {
            assert!(delete_event(kind, "n", "x").is_some(), "{kind}");
        }
    }
}

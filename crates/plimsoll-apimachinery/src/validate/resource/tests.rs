use serde_json::{Value, json};

use super::*;

type Check = fn(&Obj, &mut Errors);

/// Check, object, what is said of it.
fn cases() -> Vec<(Check, Value, Vec<&'static str>)> {
    let request =
        json!({"name": "a", "exactly": {"deviceClassName": "c", "allocationMode": "ExactCount", "count": 1}});
    vec![
        (
            claim,
            json!({"spec": {"devices": {"requests": [{"name": "a", "exactly": {}, "firstAvailable": [{}]}]}}}),
            vec![
                "spec.devices.requests[0]: Invalid value: null: exactly one of `exactly` or `firstAvailable` is required, but multiple fields are set",
            ],
        ),
        (
            claim,
            json!({"spec": {"devices": {"requests": [request], "constraints": [{"requests": ["a", "a", "b"], "matchAttribute": "x"}]}}}),
            vec![
                "spec.devices.constraints[0].requests[2]: Invalid value: \"b\": must be the name of a request in the claim or the name of a request and a subrequest separated by '/'",
                "spec.devices.constraints[0].requests[1]: Duplicate value: \"a\"",
                "spec.devices.constraints[0].matchAttribute: Invalid value: \"x\": a fully qualified name must be a domain and a name separated by a slash",
            ],
        ),
        (
            class,
            json!({"spec": {"config": [{"opaque": {"driver": "d", "parameters": [1]}}], "extendedResourceName": "cpu"}}),
            vec![
                "spec.config[0].opaque.parameters: Invalid value: \"<value omitted>\": must be a valid JSON object",
                "spec.extendedResourceName: Invalid value: \"cpu\": must be a valid extended resource name",
            ],
        ),
        (
            slice,
            json!({"spec": {"driver": "d", "nodeName": "n", "pool": {"name": "p", "resourceSliceCount": 1}, "devices": [
                {"name": "a", "attributes": {"x": {"int": 1, "version": "1"}}, "taints": [{"key": "k", "effect": "No"}]},
                {"name": "a", "nodeName": "n", "bindingConditions": ["c"]},
            ]}}),
            vec![
                "spec.devices[0].attributes[x].version: Invalid value: \"1\": must be a string compatible with semver.org spec 2.0.0",
                "spec.devices[0].attributes[x]: Invalid value: {\"IntValue\":1,\"BoolValue\":null,\"StringValue\":null,\"VersionValue\":\"1\",\"IntValues\":null,\"BoolValues\":null,\"StringValues\":null,\"VersionValues\":null}: exactly one value must be specified",
                "spec.devices[0].taints[0].effect: Unsupported value: \"No\": supported values: \"NoExecute\", \"NoSchedule\", \"None\"",
                "spec.devices[1]: Invalid value: null: `nodeName`, `nodeSelector` and `allNodes` can only be set if `perDeviceNodeSelection` is set to true in the ResourceSlice spec",
                "spec.devices[1].bindingFailureConditions: Invalid value: null: bindingFailureConditions are required to use bindingConditions",
                "spec.devices[1]: Duplicate value: \"a\"",
            ],
        ),
        (
            slice,
            json!({"spec": {"driver": "d", "allNodes": true, "pool": {"name": "p", "resourceSliceCount": 1}, "devices": [
                {"name": "a", "allowMultipleAllocations": true, "capacity": {
                    "m": {"value": "10", "requestPolicy": {"default": "3", "validRange": {"min": "1", "max": "12", "step": "4"}}},
                }},
            ]}}),
            vec![
                "spec.devices[0].capacity[m].requestPolicy.validRange.max: Invalid value: \"12\": max is larger than capacity value: 10",
                "spec.devices[0].capacity[m].requestPolicy.validRange.step: Invalid value: \"3\": value is not a multiple of a given step (4) from (1)",
                "spec.devices[0].capacity[m].requestPolicy.validRange.step: Invalid value: \"12\": value is not a multiple of a given step (4) from (1)",
            ],
        ),
    ]
}

#[test]
fn checks_of_objects() {
    for (check, object, want) in cases() {
        let mut errors = Errors::default();
        check(as_obj(&object), &mut errors);
        let found: Vec<String> = errors.0.iter().map(ToString::to_string).collect();
        assert_eq!(found, want, "{object}");
    }
}

#[test]
fn status_of_claims() {
    let spec = json!({"devices": {"requests": [{"name": "a", "exactly": {"deviceClassName": "c"}}]}});
    let result = json!({"request": "a", "driver": "d", "pool": "p", "device": "x"});
    let allocated = json!({"devices": {"results": [result]}});
    let device =
        |conditions: Value| json!([{"driver": "d", "pool": "p", "device": "y", "conditions": conditions}]);
    for (old, new, want) in [
        (json!({}), json!({"allocation": allocated}), vec![]),
        (
            json!({"allocation": allocated}),
            json!({"allocation": {}}),
            vec![
                "status.allocation: Invalid value: {\"Devices\":{\"Results\":null,\"Config\":null},\"NodeSelector\":null,\"AllocationTimestamp\":null}: field is immutable",
            ],
        ),
        (
            json!({}),
            json!({"reservedFor": [{"resource": "pods", "name": "p", "uid": "u"}, {"uid": "u"}]}),
            vec![
                "status.reservedFor[1].resource: Required value",
                "status.reservedFor[1].name: Required value",
                "status.reservedFor[1]: Duplicate value: \"u\"",
                "status.reservedFor: Forbidden: may not be specified when `allocated` is not set",
            ],
        ),
        (
            json!({}),
            json!({"allocation": allocated, "devices": device(json!([{"type": "Ready", "status": "x", "reason": "R"}]))}),
            vec![
                "status.devices[0]: Invalid value: {\"Driver\":\"d\",\"Pool\":\"p\",\"Device\":\"y\",\"ShareID\":\"\"}: must be an allocated device in the claim",
                "status.devices[0].conditions[0].status: Unsupported value: \"x\": supported values: \"False\", \"True\", \"Unknown\"",
                "status.devices[0].conditions[0].lastTransitionTime: Required value",
            ],
        ),
    ] {
        let mut errors = Errors::default();
        let whole = |status: &Value| json!({"spec": spec, "status": status});
        claim_status(as_obj(&whole(&old)), as_obj(&whole(&new)), &mut errors);
        let found: Vec<String> = errors.0.iter().map(ToString::to_string).collect();
        assert_eq!(found, want, "{new}");
    }
}

//! Kinds of the smaller groups.

use serde_json::{Map, Value, json};

use crate::obj::{Obj, child, children, has, int, list, object, set, set_zero, text, with_child};

/// scheduling.k8s.io/v1 `PriorityClass`.
pub(super) fn priority_class(class: &mut Obj) {
    set(class, "preemptionPolicy", "PreemptLowerPriority");
}

/// storage.k8s.io/v1 `StorageClass`.
pub(super) fn storage_class(class: &mut Obj) {
    set(class, "reclaimPolicy", "Delete");
    set(class, "volumeBindingMode", "Immediate");
}

/// storage.k8s.io/v1 `CSIDriver`.
pub(super) fn csi_driver(driver: &mut Obj) {
    with_child(driver, "spec", |spec| {
        set(spec, "attachRequired", true);
        set(spec, "podInfoOnMount", false);
        set(spec, "storageCapacity", false);
        set(spec, "fsGroupPolicy", "ReadWriteOnceWithFSType");
        set(spec, "volumeLifecycleModes", vec!["Persistent"]);
        set(spec, "requiresRepublish", false);
        set(spec, "seLinuxMount", false);
    });
}

/// rbac.authorization.k8s.io/v1 bindings.
pub(super) fn role_binding(binding: &mut Obj) {
    const GROUP: &str = "rbac.authorization.k8s.io";
    if let Some(role) = child(binding, "roleRef") {
        set_zero(role, "apiGroup", GROUP);
    }
    for subject in children(binding, "subjects") {
        if matches!(text(subject, "kind"), "User" | "Group") {
            set(subject, "apiGroup", GROUP);
        }
    }
}

/// admissionregistration.k8s.io/v1 mutating webhooks.
pub(super) fn mutating_webhooks(config: &mut Obj) {
    webhooks(config);
    for hook in children(config, "webhooks") {
        set(hook, "reinvocationPolicy", "Never");
    }
}

/// admissionregistration.k8s.io/v1 validating webhooks.
pub(super) fn validating_webhooks(config: &mut Obj) {
    webhooks(config);
}

fn webhooks(config: &mut Obj) {
    for hook in children(config, "webhooks") {
        set(hook, "failurePolicy", "Fail");
        set(hook, "matchPolicy", "Equivalent");
        set(hook, "namespaceSelector", Map::new());
        set(hook, "objectSelector", Map::new());
        set(hook, "timeoutSeconds", 10);
        if let Some(service) = child(hook, "clientConfig").and_then(|c| child(c, "service")) {
            set(service, "port", 443);
        }
        rules(hook, "rules");
    }
}

fn rules(owner: &mut Obj, key: &str) {
    for rule in children(owner, key) {
        set(rule, "scope", "*");
    }
}

/// Admission policies written in CEL.
pub(super) fn admission_policy(policy: &mut Obj) {
    with_child(policy, "spec", |spec| {
        set(spec, "failurePolicy", "Fail");
        if let Some(matching) = child(spec, "matchConstraints") {
            match_resources(matching);
        }
    });
}

/// Bindings of admission policies.
pub(super) fn admission_policy_binding(binding: &mut Obj) {
    if let Some(matching) = child(binding, "spec").and_then(|s| child(s, "matchResources")) {
        match_resources(matching);
    }
}

fn match_resources(matching: &mut Obj) {
    set(matching, "matchPolicy", "Equivalent");
    set(matching, "namespaceSelector", Map::new());
    set(matching, "objectSelector", Map::new());
    rules(matching, "resourceRules");
    rules(matching, "excludeResourceRules");
}

/// apiextensions.k8s.io/v1 `CustomResourceDefinition`.
pub(super) fn custom_resource_definition(definition: &mut Obj) {
    with_child(definition, "spec", |spec| {
        with_child(spec, "names", |names| {
            let kind = text(names, "kind").to_owned();
            if !kind.is_empty() {
                set(names, "singular", kind.to_lowercase());
                set(names, "listKind", format!("{kind}List"));
            }
        });
        set(spec, "conversion", json!({ "strategy": "None" }));
        let service = child(spec, "conversion")
            .and_then(|c| child(c, "webhook"))
            .and_then(|w| child(w, "clientConfig"))
            .and_then(|c| child(c, "service"));
        if let Some(service) = service {
            set(service, "port", 443);
        }
        // JSON in schemas is decoded into Go's numbers.
        for version in spec.get_mut("versions").and_then(Value::as_array_mut).into_iter().flatten() {
            version.get_mut("schema").into_iter().for_each(crate::go::normalise_numbers);
        }
    });
}

/// autoscaling/v1 `HorizontalPodAutoscaler`.
pub(super) fn autoscaler_v1(autoscaler: &mut Obj) {
    // Metrics that v1 has no fields for are noted there: they are metrics enough.
    const NOTED: &str = "autoscaling.alpha.kubernetes.io/metrics";
    let noted = has(object(object(autoscaler, "metadata"), "annotations"), NOTED);
    with_child(autoscaler, "spec", |spec| {
        set(spec, "minReplicas", 1);
        if !noted {
            set(spec, "targetCPUUtilizationPercentage", 80);
        }
    });
}

/// autoscaling/v2 `HorizontalPodAutoscaler`.
pub(super) fn autoscaler(autoscaler: &mut Obj) {
    with_child(autoscaler, "spec", |spec| {
        set(spec, "minReplicas", 1);
        if list(spec, "metrics").is_empty() {
            let cpu = json!({ "name": "cpu", "target": { "type": "Utilization", "averageUtilization": 80 } });
            spec.insert("metrics".to_owned(), json!([{ "type": "Resource", "resource": cpu }]));
        }
        if let Some(behavior) = child(spec, "behavior") {
            with_child(behavior, "scaleUp", |rules| scaling(rules, Some(0), UP));
            with_child(behavior, "scaleDown", |rules| scaling(rules, None, DOWN));
        }
    });
}

/// Type, value and period of the policies used when none are given.
const UP: &[(&str, i64, i64)] = &[("Pods", 4, 15), ("Percent", 100, 15)];
const DOWN: &[(&str, i64, i64)] = &[("Percent", 100, 15)];

fn scaling(rules: &mut Obj, window: Option<i64>, policies: &[(&str, i64, i64)]) {
    if let Some(window) = window {
        set(rules, "stabilizationWindowSeconds", window);
    }
    set(rules, "selectPolicy", "Max");
    // an empty list is refused
    if !rules.contains_key("policies") {
        let policies: Vec<Value> = policies
            .iter()
            .map(|(kind, value, period)| json!({ "type": kind, "value": value, "periodSeconds": period }))
            .collect();
        rules.insert("policies".to_owned(), Value::Array(policies));
    }
}

/// apiregistration.k8s.io/v1 `APIService`.
pub(super) fn api_service(service: &mut Obj) {
    if let Some(service) = child(service, "spec").and_then(|s| child(s, "service")) {
        set(service, "port", 443);
    }
}

/// networking.k8s.io/v1 `NetworkPolicy`.
pub(super) fn network_policy(policy: &mut Obj) {
    with_child(policy, "spec", |spec| {
        if list(spec, "policyTypes").is_empty() {
            let types =
                if list(spec, "egress").is_empty() { vec!["Ingress"] } else { vec!["Ingress", "Egress"] };
            spec.insert("policyTypes".to_owned(), types.into());
        }
        for key in ["ingress", "egress"] {
            for port in children(spec, key).flat_map(|rule| children(rule, "ports")) {
                set(port, "protocol", "TCP");
            }
        }
    });
}

/// networking.k8s.io/v1 `IngressClass`.
pub(super) fn ingress_class(class: &mut Obj) {
    let parameters = child(class, "spec").and_then(|s| child(s, "parameters"));
    // The decoded field exists and is `null`.
    if let Some(parameters) = parameters.filter(|p| !has(p, "scope")) {
        parameters.insert("scope".to_owned(), "Cluster".into());
    }
}

/// discovery.k8s.io/v1 `EndpointSlice`.
pub(super) fn endpoint_slice(slice: &mut Obj) {
    for port in children(slice, "ports") {
        set(port, "name", "");
        set(port, "protocol", "TCP");
    }
}

/// resource.k8s.io/v1 `ResourceClaim`.
pub(super) fn resource_claim(claim: &mut Obj) {
    if let Some(spec) = child(claim, "spec") {
        claim_spec(spec);
    }
}

/// resource.k8s.io/v1 `ResourceClaimTemplate`.
pub(super) fn resource_claim_template(template: &mut Obj) {
    if let Some(spec) = child(template, "spec").and_then(|s| child(s, "spec")) {
        claim_spec(spec);
    }
}

fn claim_spec(spec: &mut Obj) {
    let Some(devices) = child(spec, "devices") else { return };
    for request in children(devices, "requests") {
        if let Some(exactly) = child(request, "exactly") {
            device_request(exactly);
        }
        for sub in children(request, "firstAvailable") {
            device_request(sub);
        }
    }
}

fn device_request(request: &mut Obj) {
    set(request, "allocationMode", "ExactCount");
    if text(request, "allocationMode") == "ExactCount" && int(request, "count").unwrap_or(0) == 0 {
        request.insert("count".to_owned(), Value::from(1));
    }
    for toleration in children(request, "tolerations") {
        set(toleration, "operator", "Equal");
    }
}

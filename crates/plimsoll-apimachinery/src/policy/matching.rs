//! The requests that a policy or a binding matches (`k8s.io/apiserver/pkg/admission/plugin/policy/matching`).

use serde_json::Value;

use super::{Binding, Policy};
use crate::admission::{Attributes, Target, rule_matches, selects_namespace, selects_object};
use crate::json::{at, list, text};

/// Whether policies never apply to a resource, so that a bad policy can be removed.
pub fn is_exempt(group: &str, plural: &str) -> bool {
    group == "admissionregistration.k8s.io"
        && matches!(
            plural,
            "validatingadmissionpolicies"
                | "validatingadmissionpolicybindings"
                | "mutatingadmissionpolicies"
                | "mutatingadmissionpolicybindings"
        )
}

impl Policy {
    /// Whether the policy may match a request, by its resource, operation and name: the request needs no objects yet.
    pub fn concerns(&self, request: &Attributes) -> bool {
        by_resource(&self.constraints, request).is_some()
    }

    /// The version in which the policy matches a request: the requested one, or an equivalent one that a rule names.
    pub fn matches<'a>(&self, request: &'a Attributes) -> Option<&'a Target> {
        resources(&self.constraints, request)
    }
}

impl Binding {
    /// Whether the binding matches a request.
    pub fn matches(&self, request: &Attributes) -> bool {
        self.resources.as_ref().is_none_or(|r| resources(r, request).is_some())
    }
}

fn resources<'a>(matching: &Value, request: &'a Attributes) -> Option<&'a Target> {
    if !selects_namespace(at(matching, "namespaceSelector"), request)
        || !selects_object(at(matching, "objectSelector"), request)
    {
        return None;
    }
    by_resource(matching, request)
}

fn by_resource<'a>(matching: &Value, request: &'a Attributes) -> Option<&'a Target> {
    let equivalent = text(matching, "matchPolicy") == "Equivalent";
    if rules(list(matching, "excludeResourceRules"), equivalent, request).is_some() {
        return None;
    }
    match list(matching, "resourceRules") {
        [] => Some(&request.target),
        all => rules(all, equivalent, request),
    }
}

fn rules<'a>(rules: &[Value], equivalent: bool, request: &'a Attributes) -> Option<&'a Target> {
    let named = |rule: &Value| {
        let names = list(rule, "resourceNames");
        names.is_empty() || names.iter().any(|n| n == request.name.as_str())
    };
    let others = request.equivalents.iter().filter(|_| equivalent);
    let mut targets = std::iter::once(&request.target).chain(others);
    targets.find(|target| rules.iter().any(|rule| rule_matches(rule, target, request) && named(rule)))
}

//! Which webhooks a request concerns.

use std::collections::BTreeMap;

use serde_json::Value;

use super::{Attributes, Target, Webhook, at, list, text};
use crate::cel::eval::{Asked, Budget, Decision, Fail, Scope, Value as Cel};
use crate::error::ApiError;
use crate::policy::{Authorize, CONDITIONS_BUDGET, Request};

impl Webhook {
    /// Whether the request is for this webhook, and as what: the resource itself, or an equivalent version a
    /// rule names. Its objects are to be converted to that version before [`Webhook::conditions_hold`] and
    /// [`review`](super::review) look at them.
    pub fn target<'a>(&self, request: &'a Attributes) -> Option<&'a Target> {
        if !selects_namespace(&self.namespace_selector, request)
            || !selects_object(&self.object_selector, request)
        {
            return None;
        }
        self.by_rules(request)
    }

    /// Whether the request may be for this webhook, as far as its resource and operation tell: the objects in it needn't
    /// be there yet.
    pub fn concerns(&self, request: &Attributes) -> bool {
        self.by_rules(request).is_some()
    }

    fn by_rules<'a>(&self, request: &'a Attributes) -> Option<&'a Target> {
        // Configurations are never subject to webhooks, so that a bad one can be removed.
        let exempt = request.target.gvk.group == "admissionregistration.k8s.io"
            && (request.target.plural.ends_with("webhookconfigurations")
                || request.target.plural.contains("admissionpolic"));
        if exempt {
            return None;
        }
        let matching = |t: &&Target| self.rules.iter().any(|rule| rule_matches(rule, t, request));
        let mut candidates =
            std::iter::once(&request.target).chain(request.equivalents.iter().filter(|_| self.equivalent));
        candidates.find(matching)
    }

    /// Whether all match conditions hold for a request whose objects are in the version of `target`; `authorize` answers
    /// what they ask of the authorizer.
    ///
    /// # Errors
    /// 403 when one can't be evaluated and failures are not ignored.
    pub fn conditions_hold(
        &self,
        request: &Attributes,
        target: &Target,
        authorize: Authorize<'_>,
    ) -> Result<bool, ApiError> {
        if self.conditions.is_empty() {
            return Ok(true);
        }
        let seen = Request::new(request, target, &request.object, &request.old, &Value::Null);
        let mut seen = Seen { request: seen, authorize };
        let mut budget = Budget::new(CONDITIONS_BUDGET);
        let mut errors = Vec::new();
        for (name, expression, program) in &self.conditions {
            let found = match program {
                Ok(program) => program.evaluate(&mut seen, &mut budget),
                Err(why) => Err(Fail::Error(why.clone())),
            };
            let why = match found {
                Ok(Cel::Bool(true)) => continue,
                Ok(Cel::Bool(false)) => return Ok(false),
                Ok(other) => format!("expected bool, got {}", other.type_of()),
                Err(Fail::Budget) => {
                    errors = vec![Fail::Budget.to_string()];
                    break;
                }
                Err(fail) => fail.to_string(),
            };
            errors.push(format!("{name}: expression '{expression}' resulted in error: {why}"));
        }
        match errors.as_slice() {
            [] => Ok(true),
            _ if self.ignore_failures => Ok(false),
            [one] => Err(forbidden(request, one)),
            many => Err(forbidden(request, &format!("[{}]", many.join(", ")))),
        }
    }
}

/// What match conditions see.
struct Seen<'a> {
    request: Request,
    authorize: Authorize<'a>,
}

impl Scope for Seen<'_> {
    fn variable(&mut self, name: &str) -> Option<Cel> {
        self.request.variable(name)
    }

    fn authorize(&mut self, asked: &Asked) -> Decision {
        (self.authorize)(asked)
    }
}

/// Whether a request's namespace fits a selector; requests outside of namespaces always do.
pub(crate) fn selects_namespace(selector: &Value, request: &Attributes) -> bool {
    let own = request.target.gvk.group.is_empty() && request.target.plural == "namespaces";
    if own {
        let object = if request.object.is_null() { &request.old } else { &request.object };
        return selector_matches(selector, &labels_of(object));
    }
    request.namespace.is_empty() || selector_matches(selector, &request.namespace_labels)
}

/// Whether one of a request's objects fits a selector.
pub(crate) fn selects_object(selector: &Value, request: &Attributes) -> bool {
    let of = |o: &Value| !o.is_null() && selector_matches(selector, &labels_of(o));
    if request.object.is_null() && request.old.is_null() {
        return selector_matches(selector, &BTreeMap::new());
    }
    of(&request.object) || of(&request.old)
}

fn forbidden(request: &Attributes, why: &str) -> ApiError {
    let group = &request.target.gvk.group;
    let dot = if group.is_empty() { "" } else { "." };
    let message = format!("{}{dot}{group} {:?} is forbidden: {why}", request.target.plural, request.name);
    let mut error = ApiError::new(403, "Forbidden", message);
    error.details = Some(Box::new(crate::error::Details {
        name: request.name.clone(),
        group: group.clone(),
        kind: request.target.plural.clone(),
        ..Default::default()
    }));
    error
}

pub(crate) fn rule_matches(rule: &Value, target: &Target, request: &Attributes) -> bool {
    let version = target.resource_version.as_ref().unwrap_or(&target.gvk);
    let one = |key: &str, wanted: &str| list(rule, key).iter().any(|v| v == "*" || v == wanted);
    let scope = match text(rule, "scope") {
        "Namespaced" => !request.namespace.is_empty(),
        "Cluster" => request.namespace.is_empty(),
        _ => true,
    };
    scope
        && request.operation.is_some_and(|o| one("operations", o.name()))
        && one("apiGroups", &version.group)
        && one("apiVersions", &version.version)
        && list(rule, "resources")
            .iter()
            .filter_map(Value::as_str)
            .any(|pattern| resource_matches(pattern, &target.plural, &request.subresource))
}

/// `pods`, `pods/status`, `*`, `*/*`, `pods/*`, `*/status`; a pattern without a slash names no subresource.
fn resource_matches(pattern: &str, plural: &str, subresource: &str) -> bool {
    let (resource, sub) = pattern.split_once('/').unwrap_or((pattern, ""));
    (resource == "*" || resource == plural) && (sub == subresource || sub == "*")
}

/// `metadata.labels` of an object.
pub fn labels_of(object: &Value) -> BTreeMap<String, String> {
    let labels = at(at(object, "metadata"), "labels");
    let pair = |(k, v): (&String, &Value)| (k.clone(), v.as_str().unwrap_or_default().to_owned());
    labels.as_object().into_iter().flatten().map(pair).collect()
}

/// Whether labels fit a `metav1.LabelSelector`; none given or an empty one fits everything.
pub(crate) fn selector_matches(selector: &Value, labels: &BTreeMap<String, String>) -> bool {
    let pairs = at(selector, "matchLabels").as_object().into_iter().flatten();
    let equal = pairs.into_iter().all(|(k, v)| labels.get(k).map(String::as_str) == v.as_str());
    equal
        && list(selector, "matchExpressions").iter().all(|e| {
            let value = labels.get(text(e, "key"));
            let among = value.is_some_and(|v| list(e, "values").iter().any(|x| x == v.as_str()));
            match text(e, "operator") {
                "In" => among,
                "NotIn" => !among,
                "Exists" => value.is_some(),
                "DoesNotExist" => value.is_none(),
                _ => false,
            }
        })
}

//! flowcontrol.apiserver.k8s.io/v1 (`pkg/apis/flowcontrol/validation`).

use serde_json::Value;

use super::checks;
use super::path::{Errors, Path};
use crate::obj::{Obj, as_obj, flag, has, int, list, object, text};

const ALL: &str = "*";
const EXEMPT: &str = "exempt";
/// `FlowSchemaMaxMatchingPrecedence`.
const MAX_PRECEDENCE: i64 = 10_000;
/// `priorityLevelConfigurationQueuingMaxQueues`.
const MAX_QUEUES: i64 = 10_000_000;
/// `shufflesharding.MaxHashBits`.
const MAX_HASH_BITS: f64 = 60.0;
const VERBS: [&str; 9] =
    ["create", "delete", "deletecollection", "get", "list", "patch", "proxy", "update", "watch"];
const NOT_NEGATIVE: &str = "must be a non-negative integer";

/// `FlowSchema`.
pub(super) fn schema(schema: &Obj, errors: &mut Errors) {
    let path = Path::new("spec");
    let spec = object(schema, "spec");
    let precedence = int(spec, "matchingPrecedence").unwrap_or(0);
    let at = path.field("matchingPrecedence");
    if precedence <= 0 {
        errors.invalid(&at, precedence, "must be a positive value");
    }
    if precedence > MAX_PRECEDENCE {
        errors.invalid(&at, precedence, &format!("must not be greater than {MAX_PRECEDENCE}"));
    }
    if precedence == 1 && text(object(schema, "metadata"), "name") != EXEMPT {
        errors.invalid(&at, precedence, "only the schema named 'exempt' may have matchingPrecedence 1");
    }
    if has(spec, "distinguisherMethod") {
        let method = text(object(spec, "distinguisherMethod"), "type");
        errors.one_of(&path.field("distinguisherMethod").field("type"), method, &["ByNamespace", "ByUser"]);
    }
    let level = text(object(spec, "priorityLevelConfiguration"), "name");
    let at = path.field("priorityLevelConfiguration");
    if level.is_empty() {
        errors.required(&at.field("name"), "must reference a priority level");
    } else {
        errors.invalid_all(&at.field("name"), level, &checks::dns_subdomain(level));
    }
    let at = path.field("rules");
    for (i, rule) in list(spec, "rules").iter().map(as_obj).enumerate() {
        policy_rule(rule, &at.index(i), errors);
    }
}

fn policy_rule(rule: &Obj, path: &Path<'_>, errors: &mut Errors) {
    let at = path.field("subjects");
    if list(rule, "subjects").is_empty() {
        errors.required(&at, "subjects must contain at least one value");
    }
    for (i, one) in list(rule, "subjects").iter().map(as_obj).enumerate() {
        subject(one, &at.index(i), errors);
    }
    let (resources, paths) = (list(rule, "resourceRules"), list(rule, "nonResourceRules"));
    if resources.is_empty() && paths.is_empty() {
        errors.required(path, "at least one of resourceRules and nonResourceRules has to be non-empty");
    }
    let at = path.field("resourceRules");
    for (i, rule) in resources.iter().map(as_obj).enumerate() {
        resource_rule(rule, &at.index(i), errors);
    }
    let at = path.field("nonResourceRules");
    for (i, rule) in paths.iter().map(as_obj).enumerate() {
        path_rule(rule, &at.index(i), errors);
    }
}

/// Kinds of subjects, and the members that they have.
const SUBJECTS: [(&str, &str); 3] =
    [("Group", "group"), ("ServiceAccount", "serviceAccount"), ("User", "user")];

fn subject(subject: &Obj, path: &Path<'_>, errors: &mut Errors) {
    let kind = text(subject, "kind");
    let Some((_, own)) = SUBJECTS.iter().find(|(k, _)| *k == kind) else {
        return errors.not_supported(&path.field("kind"), kind, &SUBJECTS.map(|(k, _)| k));
    };
    let at = path.field(own);
    if has(subject, own) {
        let named = object(subject, own);
        let name = text(named, "name");
        if name.is_empty() {
            errors.required(&at.field("name"), "");
        } else if kind == "ServiceAccount" && name != ALL {
            errors.invalid_all(&at.field("name"), name, &checks::dns_subdomain(name));
        }
        let namespace = text(named, "namespace");
        if kind == "ServiceAccount" && namespace.is_empty() {
            errors.required(&at.field("namespace"), "must specify namespace for service account");
        } else if kind == "ServiceAccount" {
            errors.invalid_all(&at.field("namespace"), namespace, &checks::dns_label(namespace));
        }
    } else {
        errors.required(&at, &format!("{own} is required when subject kind is '{kind}'"));
    }
    // In upstream's order.
    for (other, member) in [SUBJECTS[1], SUBJECTS[2], SUBJECTS[0]] {
        if other != kind && has(subject, member) {
            let detail = format!("{member} is forbidden when subject kind is not '{other}'");
            errors.forbidden(&path.field(member), &detail);
        }
    }
}

/// A list that has something in it, where the wildcard stands alone.
fn wild(rule: &Obj, path: &Path<'_>, name: &str, (empty, alone): (&str, &str), errors: &mut Errors) -> bool {
    let values = list(rule, name);
    let wildcard = values.iter().any(|v| v == ALL);
    if values.is_empty() {
        errors.required(&path.field(name), empty);
    } else if wildcard && values.len() > 1 {
        errors.invalid(&path.field(name), Value::Array(values.to_vec()), alone);
    }
    wildcard || values.is_empty()
}

fn verbs(rule: &Obj, path: &Path<'_>, errors: &mut Errors) {
    let texts = ("verbs must contain at least one value", "if '*' is present, must not specify other verbs");
    let known = |verb: &Value| verb.as_str().is_some_and(|verb| VERBS.contains(&verb));
    if !wild(rule, path, "verbs", texts, errors) && !list(rule, "verbs").iter().all(known) {
        errors.not_supported(&path.field("verbs"), Value::Array(list(rule, "verbs").to_vec()), &VERBS);
    }
}

fn resource_rule(rule: &Obj, path: &Path<'_>, errors: &mut Errors) {
    verbs(rule, path, errors);
    let groups = (
        "resource rules must supply at least one api group",
        "if '*' is present, must not specify other api groups",
    );
    wild(rule, path, "apiGroups", groups, errors);
    let resources = (
        "resource rules must supply at least one resource",
        "if '*' is present, must not specify other resources",
    );
    wild(rule, path, "resources", resources, errors);
    if list(rule, "namespaces").is_empty() && flag(rule, "clusterScope") {
        return;
    }
    let namespaces = (
        "resource rules that are not cluster scoped must supply at least one namespace",
        "if '*' is present, must not specify other namespaces",
    );
    if wild(rule, path, "namespaces", namespaces, errors) {
        return;
    }
    let at = path.field("namespaces");
    for (i, namespace) in list(rule, "namespaces").iter().filter_map(Value::as_str).enumerate() {
        for fault in checks::dns_label(namespace) {
            let detail = format!("each member of this list must be '*' or a DNS-1123 label; {fault}");
            errors.invalid(&at.index(i), namespace, &detail);
        }
    }
}

fn path_rule(rule: &Obj, path: &Path<'_>, errors: &mut Errors) {
    verbs(rule, path, errors);
    let texts = (
        "nonResourceURLs must contain at least one value",
        "if '*' is present, must not specify other non-resource URLs",
    );
    if wild(rule, path, "nonResourceURLs", texts, errors) {
        return;
    }
    let at = path.field("nonResourceURLs");
    for (i, url) in list(rule, "nonResourceURLs").iter().filter_map(Value::as_str).enumerate() {
        let stars = url.matches('*').count();
        let fault = match url {
            "" => "must not be empty",
            "/" => continue,
            _ if !url.starts_with('/') => "must start with slash",
            _ if url.contains(' ') => "must not contain white-space",
            _ if url.contains("//") => "must not contain double slash",
            _ if stars > 1 || (stars == 1 && !url.ends_with("/*")) => "wildcard can only do suffix matching",
            _ => continue,
        };
        errors.invalid(&at.index(i), url, fault);
    }
}

/// `PriorityLevelConfiguration`.
pub(super) fn level(level: &Obj, errors: &mut Errors) {
    let path = Path::new("spec");
    let spec = object(level, "spec");
    let kind = text(spec, "type");
    if (text(object(level, "metadata"), "name") == EXEMPT) != (kind == "Exempt") {
        let detail = "must be 'Exempt' if and only if `name` is 'exempt'";
        errors.invalid(&path.field("type"), kind, detail);
    }
    match kind {
        "Exempt" => {
            if has(spec, "limited") {
                errors.forbidden(&path.field("limited"), "must be nil if the type is not Limited");
            }
            shares(object(spec, "exempt"), &path.field("exempt"), errors);
        }
        "Limited" => {
            if has(spec, "exempt") {
                errors.forbidden(&path.field("exempt"), "must be nil if the type is Limited");
            }
            if has(spec, "limited") {
                limited(object(spec, "limited"), &path.field("limited"), errors);
            } else {
                errors.required(&path.field("limited"), "must not be empty when type is Limited");
            }
        }
        _ => errors.not_supported(&path.field("type"), kind, &["Exempt", "Limited"]),
    }
}

fn shares(level: &Obj, path: &Path<'_>, errors: &mut Errors) {
    if let Some(shares) = int(level, "nominalConcurrencyShares").filter(|n| *n < 0) {
        errors.invalid(&path.field("nominalConcurrencyShares"), shares, NOT_NEGATIVE);
    }
    if let Some(percent) = int(level, "lendablePercent") {
        errors.between(&path.field("lendablePercent"), percent, 0..=100);
    }
}

fn limited(level: &Obj, path: &Path<'_>, errors: &mut Errors) {
    let response = object(level, "limitResponse");
    let at = path.field("limitResponse");
    let before = errors.0.len();
    match (text(response, "type"), has(response, "queuing")) {
        ("Reject", true) => {
            let detail = "must be nil if limited.limitResponse.type is not Limited";
            errors.forbidden(&at.field("queuing"), detail);
        }
        ("Queue", false) => {
            let detail = "must not be empty if limited.limitResponse.type is Limited";
            errors.required(&at.field("queuing"), detail);
        }
        ("Queue", true) => queuing(object(response, "queuing"), &at.field("queuing"), errors),
        ("Reject", false) => {}
        (other, _) => errors.not_supported(&at.field("type"), other, &["Queue", "Reject"]),
    }
    let of_response = errors.0.split_off(before);
    shares(level, path, errors);
    // Shares come before the response, the percentage after it.
    let at_percent = errors.0.iter().skip(before).position(|e| e.field.ends_with("lendablePercent"));
    let at = at_percent.map_or(errors.0.len(), |n| before + n);
    errors.0.splice(at..at, of_response);
    if let Some(percent) = int(level, "borrowingLimitPercent").filter(|p| *p < 0) {
        let detail = "if specified, must be a non-negative integer";
        errors.invalid(&path.field("borrowingLimitPercent"), percent, detail);
    }
}

fn queuing(queuing: &Obj, path: &Path<'_>, errors: &mut Errors) {
    let number = |name: &str| int(queuing, name).unwrap_or(0);
    let (length, queues, hand) = (number("queueLengthLimit"), number("queues"), number("handSize"));
    if length <= 0 {
        errors.invalid(&path.field("queueLengthLimit"), length, "must be positive");
    }
    let at = path.field("queues");
    if queues <= 0 {
        errors.invalid(&at, queues, "must be positive");
    } else if queues > MAX_QUEUES {
        errors.invalid(&at, queues, &format!("must not be greater than {MAX_QUEUES}"));
    }
    let at = path.field("handSize");
    #[allow(clippy::cast_precision_loss, reason = "a number of queues")]
    let bits = ((queues.max(1) as f64).log2() * hand as f64).ceil();
    if hand <= 0 {
        errors.invalid(&at, hand, "must be positive");
    } else if hand > queues {
        errors.invalid(&at, hand, &format!("should not be greater than queues ({queues})"));
    } else if bits > MAX_HASH_BITS {
        let detail = format!(
            "required entropy bits of deckSize {queues} and handSize {hand} should not be greater than {MAX_HASH_BITS}"
        );
        errors.invalid(&at, hand, &detail);
    }
}

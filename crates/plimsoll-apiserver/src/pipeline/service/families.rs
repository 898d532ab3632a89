//! Address families of Services in a cluster that has one (`initIPFamilyFields`).

use plimsoll_apimachinery::{ApiError, FieldError, validate};
use serde_json::{Value, json};

use super::{address, kind_of, refuse, texts, wants_address};
use crate::write::Write;

/// The family there is.
const FAMILY: &str = "IPv4";

/// Fills in policy and families, and refuses what can't be had.
pub fn complete(w: &Write, service: &mut Value, old: Option<&Value>) -> Result<(), ApiError> {
    if !wants_address(service) || old.is_some_and(|old| is_settled(service, old)) {
        return Ok(());
    }
    let selectorless = address(service) == "None"
        && service["spec"]["selector"].as_object().is_none_or(serde_json::Map::is_empty);
    if service["spec"]["ipFamilyPolicy"].is_null() {
        let before = old.map(|o| o["spec"]["ipFamilyPolicy"].clone()).filter(|p| !p.is_null());
        let first = if selectorless { "RequireDualStack" } else { "SingleStack" };
        service["spec"]["ipFamilyPolicy"] = before.unwrap_or_else(|| json!(first));
    }
    let errors = validate::service_addresses(old, service);
    if !errors.is_empty() {
        return Err(refuse(w, &errors));
    }
    let mut errors = Vec::new();
    if let Some(old) = old {
        reduce(service, old, &mut errors);
    }
    infer(service, &mut errors);
    if !errors.is_empty() {
        return Err(refuse(w, &errors));
    }
    let single = service["spec"]["ipFamilyPolicy"] == "SingleStack";
    if selectorless {
        // Whatever families its endpoints have; nothing is allocated for it.
        let mut families: Vec<String> = texts(service, "ipFamilies").into_iter().map(str::to_owned).collect();
        if families.is_empty() {
            families.push(FAMILY.to_owned());
        }
        if let ([one], false) = (families.as_slice(), single) {
            let other = if one == FAMILY { "IPv6" } else { FAMILY };
            families.push(other.to_owned());
        }
        service["spec"]["ipFamilies"] = json!(families);
        return Ok(());
    }
    if service["spec"]["ipFamilyPolicy"] == "RequireDualStack" {
        errors.push(policy_error(service, "this cluster is not configured for dual-stack services"));
    }
    for (i, family) in texts(service, "ipFamilies").iter().enumerate().filter(|(_, f)| **f != FAMILY) {
        let detail = "not configured on this cluster";
        errors.push(FieldError::invalid(format!("spec.ipFamilies[{i}]"), &json!(family), detail));
    }
    if !errors.is_empty() {
        return Err(refuse(w, &errors));
    }
    if texts(service, "ipFamilies").is_empty() {
        service["spec"]["ipFamilies"] = json!([FAMILY]);
    }
    Ok(())
}

/// A Service that takes what it can get, and got it (`isMatchingPreferDualStackClusterIPFields`).
fn is_settled(new: &Value, old: &Value) -> bool {
    let same = |field: &str| texts(new, field) == texts(old, field);
    let prefers = |s: &Value| s["spec"]["ipFamilyPolicy"] == "PreferDualStack";
    kind_of(new) == kind_of(old)
        && prefers(new)
        && (prefers(old) || old["spec"]["ipFamilyPolicy"].is_null())
        && same("clusterIPs")
        && same("ipFamilies")
}

/// An update to one family gives the second one back; without the policy that says so it is refused.
fn reduce(service: &mut Value, old: &Value, errors: &mut Vec<FieldError>) {
    let single = service["spec"]["ipFamilyPolicy"] == "SingleStack";
    for (field, what) in [("clusterIPs", "cluster IP"), ("ipFamilies", "IP family")] {
        let (was, is) = (texts(old, field), texts(service, field));
        if single && was == is && is.len() > 1 {
            service["spec"][field] = json!([is.first()]);
        } else if !single && is.len() == 1 && was.len() > 1 {
            let detail = format!("must be 'SingleStack' to release the secondary {what}");
            errors.push(policy_error(service, &detail));
        }
    }
}

/// Families follow from addresses.
fn infer(service: &mut Value, errors: &mut Vec<FieldError>) {
    let single = service["spec"]["ipFamilyPolicy"] == "SingleStack";
    for (field, what) in [("clusterIPs", "cluster IPs"), ("ipFamilies", "IP families")] {
        if single && texts(service, field).len() == 2 {
            let detail =
                format!("must be 'RequireDualStack' or 'PreferDualStack' when multiple {what} are specified");
            errors.push(policy_error(service, &detail));
        }
    }
    let ips: Vec<String> = texts(service, "clusterIPs").into_iter().map(str::to_owned).collect();
    let mut families: Vec<String> = texts(service, "ipFamilies").into_iter().map(str::to_owned).collect();
    for (i, ip) in ips.iter().enumerate().take_while(|(_, ip)| *ip != "None") {
        if i < families.len() {
            continue;
        }
        if ip.contains(':') {
            let detail = "IPv6 is not configured on this cluster";
            let field = format!("spec.clusterIPs[{i}]");
            errors.push(FieldError::invalid(field, &service["spec"]["clusterIPs"], detail));
        } else {
            families.push(FAMILY.to_owned());
        }
    }
    if !families.is_empty() {
        service["spec"]["ipFamilies"] = json!(families);
    }
}

fn policy_error(service: &Value, detail: &str) -> FieldError {
    FieldError::invalid("spec.ipFamilyPolicy", &service["spec"]["ipFamilyPolicy"], detail)
}

//! QuotaLoans (`plimsoll.dev/v1alpha1`).

use plimsoll_queueing::{LoanPhase, LoanedResource, QuotaLoan};
use serde_json::Value;

use super::decode::{amount, deleting, list, name, optional_time, text};
use crate::convert::{Result, bad};

/// A QuotaLoan.
///
/// # Errors
/// When a field has a value that can't be understood, or one that the definition refuses: what is lent has to count the same on both
/// sides.
pub fn quota_loan(object: &Value) -> Result<QuotaLoan> {
    let (meta, spec, status) = (&object["metadata"], &object["spec"], &object["status"]);
    let cohort = |side: &str| match spec[side]["cohort"].as_str() {
        Some(cohort) if !cohort.is_empty() => Ok(cohort.to_owned()),
        _ => bad(format!("spec.{side}.cohort"), "Required value"),
    };
    let (from, to) = (cohort("from")?, cohort("to")?);
    if from == to {
        return bad("spec.to.cohort", format!("Invalid value: {to:?}: a cohort can't lend to itself"));
    }
    let mut resources: Vec<LoanedResource> = Vec::new();
    for (i, row) in list(spec, "resources").iter().enumerate() {
        let at = |field: &str| format!("spec.resources[{i}].{field}");
        let (flavor, resource) = (text(row, "flavor"), text(row, "resource"));
        if flavor.is_empty() {
            return bad(at("flavor"), "Required value");
        }
        if resource.is_empty() {
            return bad(at("resource"), "Required value");
        }
        let quantity = amount(&at("quantity"), &resource, &row["quantity"])?;
        if quantity <= 0 || quantity == i64::MAX {
            let value = &row["quantity"];
            return bad(
                at("quantity"),
                format!("Invalid value: {value}: must be more than zero and limited"),
            );
        }
        if resources.iter().any(|r| (&r.flavor, &r.resource) == (&flavor, &resource)) {
            return bad(at("resource"), format!("Duplicate value: {resource:?} in flavor {flavor:?}"));
        }
        resources.push(LoanedResource { flavor, resource, quantity });
    }
    if resources.is_empty() {
        return bad("spec.resources", "Required value");
    }
    let phase = match status["phase"].as_str() {
        None | Some("Requested") => LoanPhase::Requested,
        Some("Granted") => LoanPhase::Granted,
        Some("Returned") => LoanPhase::Returned,
        Some(other) => {
            let supported = "supported values: \"Requested\", \"Granted\", \"Returned\"";
            return bad("status.phase", format!("Unsupported value: {other:?}: {supported}"));
        }
    };
    let finalizers = list(meta, "finalizers").iter().filter_map(|f| f.as_str().map(str::to_owned));
    Ok(QuotaLoan {
        name: name(object)?,
        uid: text(meta, "uid"),
        version: meta["resourceVersion"].as_str().and_then(|v| v.parse().ok()).unwrap_or(0),
        creation: optional_time("metadata.creationTimestamp", &meta["creationTimestamp"])?
            .unwrap_or_default(),
        deleting: deleting(object),
        finalizers: finalizers.collect(),
        from,
        to,
        resources,
        asked_back: spec["return"] == true,
        phase,
        message: text(status, "message"),
        absent: [false; 2],
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn object() -> Value {
        json!({
            "metadata": {"name": "l", "uid": "u", "resourceVersion": "7", "finalizers": ["other"]},
            "spec": {
                "from": {"cohort": "research"},
                "to": {"cohort": "batch"},
                "resources": [
                    {"flavor": "a100", "resource": "nvidia.com/gpu", "quantity": 64},
                    {"flavor": "a100", "resource": "cpu", "quantity": "1500m"},
                ],
                "return": false,
            },
        })
    }

    #[test]
    fn loans_are_read() {
        let loan = quota_loan(&object()).unwrap();
        let amounts: Vec<i64> = loan.resources.iter().map(|r| r.quantity).collect();
        assert_eq!(amounts, [64, 1500]);
        assert_eq!((loan.version, loan.phase, loan.asked_back), (7, LoanPhase::Requested, false));
    }

    #[test]
    fn mistakes_in_loans_are_named() {
        let table: [(&str, Value, &str); 8] = [
            ("/spec/from", json!({}), "spec.from.cohort: Required value"),
            ("/spec/to/cohort", json!("research"), "spec.to.cohort: Invalid value: \"research\""),
            ("/spec/resources", json!([]), "spec.resources: Required value"),
            ("/spec/resources/0/quantity", json!(0), "spec.resources[0].quantity: Invalid value: 0"),
            ("/spec/resources/1/quantity", json!("-1"), "spec.resources[1].quantity: Invalid value: \"-1\""),
            ("/spec/resources/1/quantity", json!("x"), "spec.resources[1].quantity: cannot parse \"x\""),
            ("/spec/resources/1/resource", json!("nvidia.com/gpu"), "Duplicate value: \"nvidia.com/gpu\""),
            ("/spec/resources/0/flavor", json!(""), "spec.resources[0].flavor: Required value"),
        ];
        for (path, value, says) in table {
            let mut bad = object();
            *bad.pointer_mut(path).unwrap() = value;
            let error = quota_loan(&bad).unwrap_err().to_string();
            assert!(error.contains(says), "{path}: {error}");
        }
        let mut bad = object();
        bad["status"] = json!({"phase": "Lost"});
        assert!(quota_loan(&bad).unwrap_err().to_string().contains("status.phase: Unsupported value"));
    }
}

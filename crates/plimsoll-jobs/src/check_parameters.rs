//! `spec.parameters` of AdmissionChecks (Kueue `pkg/util/admissioncheck`, `refValidForGK`).

use plimsoll_api::json;
use serde_json::Value;

/// Group of the objects that hold parameters.
pub const GROUP: &str = "kueue.x-k8s.io";

/// Name of the object of this kind that the parameters of a check point to.
///
/// # Errors
/// The problem, in Kueue's words.
pub fn reference<'a>(check: &'a Value, kind: &str) -> Result<&'a str, String> {
    let Some(reference) = check["spec"].get("parameters").filter(|p| p.is_object()) else {
        return Err("missing parameters reference".to_owned());
    };
    let (group, named) = (json::text(reference, &["apiGroup"]), json::text(reference, &["kind"]));
    let name = json::text(reference, &["name"]);
    let bad = |what: String| Err(format!("{what}: bad parameters reference"));
    if name.is_empty() {
        return bad("empty name".to_owned());
    }
    if group != GROUP {
        return bad(format!("wrong group {group:?}, expecting {GROUP:?}"));
    }
    if named != kind {
        return bad(format!("wrong kind {named:?}, expecting {kind:?}"));
    }
    Ok(name)
}

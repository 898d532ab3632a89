//! Approval and signing of requests for certificates (`plugin/pkg/admission/certificates`: CertificateApproval and
//! CertificateSigning).

use plimsoll_apimachinery::ApiError;
use serde_json::Value;

use super::{Operation, forbidden};
use crate::auth::Attributes;
use crate::write::Write;

const GROUP: &str = "certificates.k8s.io";

/// Refuses an approval, or a certificate in the status, by a user without the right on the signer.
///
/// # Errors
/// 403 with the name of the signer.
pub fn check(w: &Write, object: &Value, old: Option<&Value>, operation: Operation) -> Result<(), ApiError> {
    let Some(old) = old.filter(|_| operation == Operation::Update) else { return Ok(()) };
    if w.kind.gvk.group != GROUP || w.kind.plural != "certificatesigningrequests" {
        return Ok(());
    }
    let changed = |field: &str| {
        let of =
            |request: &Value| request["status"].get(field).filter(|v| *v != &Value::Array(vec![])).cloned();
        of(object) != of(old)
    };
    let verb = match w.subresource.as_str() {
        "approval" => "approve",
        "status" if changed("certificate") || changed("conditions") => "sign",
        _ => return Ok(()),
    };
    // The stored one: the request's own may be an attempt to change it.
    let signer = old["spec"]["signerName"].as_str().unwrap_or("");
    let domain = signer.split('/').next().unwrap_or("");
    if [signer, &format!("{domain}/*")].iter().any(|name| may(w, verb, name)) {
        return Ok(());
    }
    let why = format!("user not permitted to {verb} requests with signerName {signer:?}");
    Err(forbidden(w, object, &why))
}

fn may(w: &Write, verb: &str, name: &str) -> bool {
    let what = Attributes {
        is_resource: true,
        verb: verb.to_owned(),
        group: GROUP.to_owned(),
        resource: "signers".to_owned(),
        name: name.to_owned(),
        ..Attributes::default()
    };
    w.server.rbac().authorize(&w.user, &what).allowed
}

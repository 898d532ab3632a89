//! Tokens that kubelets ask for on behalf of pods (`admitServiceAccount`).

use plimsoll_apimachinery::ApiError;
use plimsoll_apimachinery::go::go_quote;
use serde_json::Value;

use super::Request;
use crate::auth::Attributes;
use crate::auth::tokens::ISSUER;

pub fn check(r: &Request<'_>) -> Result<(), ApiError> {
    let spec = &r.object["spec"];
    let bound = &spec["boundObjectRef"];
    let text = |field: &str| bound[field].as_str().unwrap_or("");
    if text("apiVersion") != "v1" || text("kind") != "Pod" || text("name").is_empty() {
        return r.refuse("node requested token not bound to a pod");
    }
    let uid = text("uid");
    if uid.is_empty() {
        return r.refuse("node requested token with a pod binding without a uid");
    }
    let pod = r.pod(text("name"))?;
    if pod["metadata"]["uid"] != uid {
        return r.refuse(&format!(
            "the UID in the bound object reference ({uid}) does not match the UID in record. The object might have \
             been deleted and then recreated"
        ));
    }
    if pod["spec"]["nodeName"] != r.node {
        return r.refuse("node requested token bound to a pod scheduled on a different node");
    }
    audience(r, &pod)
}

/// `validateNodeServiceAccountAudience`: a volume of the pod asks for such a token, or the node may have it anyway.
fn audience(r: &Request<'_>, pod: &Value) -> Result<(), ApiError> {
    let audiences = r.object["spec"]["audiences"].as_array().map_or(&[][..], Vec::as_slice);
    let wanted = match audiences {
        [] => "",
        // Defaulting has set this audience where the request names none.
        [one] if one == ISSUER => "",
        [one] => one.as_str().unwrap_or(""),
        _ => return r.refuse("node may only request 0 or 1 audiences"),
    };
    let is_wanted = |audience: &Value| {
        let audience = audience.as_str().unwrap_or("");
        audience == wanted || (wanted.is_empty() && audience == ISSUER)
    };
    for volume in pod["spec"]["volumes"].as_array().into_iter().flatten() {
        let mut sources = volume["projected"]["sources"].as_array().into_iter().flatten();
        if sources
            .any(|s| s["serviceAccountToken"].is_object() && is_wanted(&s["serviceAccountToken"]["audience"]))
        {
            return Ok(());
        }
        let driver = driver(r, pod, volume).and_then(|name| r.find("storage.k8s.io/csidrivers", "", &name));
        let mut requests = driver.iter().filter_map(|d| d["spec"]["tokenRequests"].as_array()).flatten();
        if requests.any(|request| is_wanted(&request["audience"])) {
            return Ok(());
        }
    }
    let what = Attributes {
        is_resource: true,
        verb: "request-serviceaccounts-token-audience".to_owned(),
        resource: wanted.to_owned(),
        namespace: r.w.namespace.clone(),
        name: r.w.name.clone(),
        ..Attributes::default()
    };
    if r.w.server.rbac().authorize(&r.w.user, &what).allowed {
        return Ok(());
    }
    r.refuse(&format!(
        "audience {} not found in pod spec volume, {} is not authorized to request tokens for this audience",
        go_quote(wanted),
        r.w.user.name
    ))
}

/// The CSI driver behind a volume.
fn driver(r: &Request<'_>, pod: &Value, volume: &Value) -> Option<String> {
    let text = |v: &Value| v.as_str().map(str::to_owned);
    if let Some(name) = text(&volume["csi"]["driver"]) {
        return Some(name);
    }
    let claim = if volume["ephemeral"]["volumeClaimTemplate"].is_object() {
        Some(format!("{}-{}", pod["metadata"]["name"].as_str()?, volume["name"].as_str()?))
    } else {
        text(&volume["persistentVolumeClaim"]["claimName"])
    };
    let claim = r.find("/persistentvolumeclaims", &r.w.namespace, &claim?)?;
    let volume = r.find("/persistentvolumes", "", claim["spec"]["volumeName"].as_str()?)?;
    text(&volume["spec"]["csi"]["driver"])
}

//! `serviceaccounts/token`: a signed token, see [`crate::auth::tokens`] (`registry/core/serviceaccount/storage/token.go`).

use std::sync::Arc;

use plimsoll_apimachinery::{ApiError, FieldError, Kind, Subresource};
use serde_json::{Value, json};

use super::super::endpoint::write_of;
use super::super::options::WriteOptions;
use super::super::present::present;
use super::super::reply::Reply;
use super::super::{Req, body_format};
use super::{admitted, decode_own, kind_of_part, own_kind, read};
use crate::auth::tokens::{Grant, ISSUER, Named, claims};
use crate::store::Key;
use crate::{machine, time};

/// Shortest life of a token, in seconds.
const MIN_SECONDS: i64 = 600;
/// Life of a token unless the client says otherwise, in seconds.
const DEFAULT_SECONDS: i64 = 3600;
/// Longest life of a token, in seconds.
const MAX_SECONDS: i64 = 1 << 32;
/// What kubelets ask for on behalf of pods, and the year that they get in its place: clients that never read a token
/// again go on working (`--service-account-extend-token-expiration`).
const WARN_SECONDS: i64 = 60 * 60 + 7;
const EXTENDED_SECONDS: i64 = 365 * 24 * 60 * 60;

/// POST to `serviceaccounts/NAME/token`.
pub async fn create(req: &mut Req, kind: &Arc<Kind>, sub: &Subresource) -> Result<Reply, ApiError> {
    body_format(req, true)?;
    let options = WriteOptions::parse(&req.query, "CreateOptions", false)?;
    let request = decode_own(req, sub, &options)?;
    let (name, namespace) = (req.info.name.clone(), req.info.namespace.clone());
    for (field, wanted) in [("name", &name), ("namespace", &namespace)] {
        let given = request["metadata"][field].as_str().unwrap_or("");
        if !given.is_empty() && given != wanted {
            let detail = format!("must match the service account {field} if specified");
            return Err(invalid(&name, &format!("metadata.{field}"), &json!(given), &detail));
        }
    }
    let account = read(req, kind).await?;
    let own = own_kind(req, sub)?;
    let mut answer = request;
    if let Some(answer) = answer.as_object_mut() {
        answer.remove("status");
    }
    let mut write = write_of(req, kind, &options, "CreateOptions");
    machine::own_update(&own, None, &mut answer, &write.manager, "token", write.now)?;
    let now = write.now;
    let named = Named::of(&account);
    for (field, value) in [("name", &name), ("namespace", &namespace), ("uid", &named.uid)] {
        answer["metadata"][field] = json!(value);
    }
    answer["metadata"]["creationTimestamp"] = json!(time::seconds(now));
    fill(&mut answer)?;
    write.kind = kind_of_part(&req.table, kind, &answer);
    let admitted = admitted(&mut write, &mut answer).await;
    req.warnings.append(&mut write.warnings);
    admitted?;
    // Webhooks may have changed what is asked for.
    let (seconds, audiences) = fill(&mut answer)?;
    let mut grant = Grant { account: named, namespace, seconds, audiences, ..Grant::default() };
    bind(req, &answer["spec"]["boundObjectRef"], &mut grant)?;
    let token = req.server.signer().sign(&claims(&grant, now)).map_err(ApiError::internal)?;
    let end = now.checked_add(jiff::SignedDuration::from_secs(seconds)).unwrap_or(now);
    if answer["spec"].get("boundObjectRef").is_none() {
        answer["spec"]["boundObjectRef"] = json!(null);
    }
    answer["status"] = json!({"token": token, "expirationTimestamp": time::seconds(end)});
    present(req, &own, 201, answer)
}

/// Fills in and checks what a token is asked for with: its life in seconds, and its audiences.
fn fill(request: &mut Value) -> Result<(i64, Vec<String>), ApiError> {
    let seconds = request["spec"]["expirationSeconds"].as_i64().unwrap_or(DEFAULT_SECONDS);
    if seconds < MIN_SECONDS {
        let detail = "may not specify a duration less than 10 minutes";
        return Err(invalid("", "spec.expirationSeconds", &json!(seconds), detail));
    }
    if seconds > MAX_SECONDS {
        let detail = "may not specify a duration larger than 2^32 seconds";
        return Err(invalid("", "spec.expirationSeconds", &json!(seconds), detail));
    }
    let audiences = audiences(&request["spec"]["audiences"]);
    if !request["spec"].is_object() {
        request["spec"] = json!({});
    }
    request["spec"]["expirationSeconds"] = json!(seconds);
    request["spec"]["audiences"] = json!(audiences);
    Ok((seconds, audiences))
}

fn invalid(name: &str, field: &str, value: &Value, detail: &str) -> ApiError {
    let e = FieldError::invalid(field, value, detail);
    ApiError::invalid("authentication.k8s.io", "TokenRequest", name, &[e])
}

fn audiences(list: &Value) -> Vec<String> {
    let given: Vec<String> =
        list.as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect();
    if given.is_empty() { vec![ISSUER.to_owned()] } else { given }
}

/// Ties the token to an object.
fn bind(req: &Req, reference: &Value, grant: &mut Grant) -> Result<(), ApiError> {
    if reference.is_null() {
        return Ok(());
    }
    let text = |f: &str| reference[f].as_str().unwrap_or("");
    let (api_version, kind, name) = (text("apiVersion"), text("kind"), text("name"));
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    let (plural, namespaced) = match (group, kind) {
        ("", "Pod") => ("pods", true),
        ("", "Secret") => ("secrets", true),
        ("", "Node") => ("nodes", false),
        _ => {
            let shown = format!("{group}/{version}, Kind={kind}");
            return Err(ApiError::bad_request(format!("cannot bind token to object of type {shown}")));
        }
    };
    let namespace = if namespaced { req.info.namespace.as_str() } else { "" };
    let object = get(req, plural, namespace, name).ok_or_else(|| ApiError::not_found("", plural, name))?;
    let named = Named::of(&object);
    if !text("uid").is_empty() && text("uid") != named.uid {
        let why = format!(
            "the UID in the bound object reference ({}) does not match the UID in record. The object might have been \
             deleted and then recreated",
            text("uid")
        );
        return Err(ApiError::conflict(group, kind, name, &why));
    }
    match kind {
        "Secret" => grant.secret = Some(named),
        "Node" => grant.node = Some(named),
        _ => bind_pod(req, &object, named, grant)?,
    }
    Ok(())
}

fn bind_pod(req: &Req, pod: &Value, named: Named, grant: &mut Grant) -> Result<(), ApiError> {
    let account = &grant.account.name;
    if pod["spec"]["serviceAccountName"].as_str().unwrap_or("") != account {
        return Err(ApiError::bad_request(format!(
            "cannot bind token for serviceaccount {account:?} to pod running with different serviceaccount name."
        )));
    }
    if let Some(node) = pod["spec"]["nodeName"].as_str().filter(|n| !n.is_empty()) {
        let there = get(req, "nodes", "", node).map(|n| Named::of(&n));
        grant.node = Some(there.unwrap_or_else(|| Named { name: node.to_owned(), uid: String::new() }));
    }
    grant.pod = Some(named);
    if grant.seconds == WARN_SECONDS && grant.audiences == [ISSUER] {
        grant.warn_after = Some(WARN_SECONDS);
        grant.seconds = EXTENDED_SECONDS;
    }
    Ok(())
}

fn get(req: &Req, plural: &str, namespace: &str, name: &str) -> Option<Value> {
    req.server.store().get(&Key::new(format!("/{plural}"), namespace, name))?.value().ok()
}

//! Whether a token is still good (`serviceaccount.validator.Validate`).

use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use super::{ISSUER, Signer, service_account};
use crate::auth::User;

/// Tokens are good for this long after their end, and after the deletion of what they are bound to has begun
/// (go-jose's leeway).
const LEEWAY: SignedDuration = SignedDuration::from_mins(1);
const INVALIDATED: &str = "service account token has been invalidated";

/// Reads an object: plural, namespace, name.
pub type Lookup<'a> = &'a dyn Fn(&str, &str, &str) -> Option<Value>;

/// The user of a token and those of the wanted audiences that it is for. `None`: the token isn't ours.
///
/// # Errors
/// Why it is good no more, in upstream's words.
pub fn verify(
    signer: &Signer,
    token: &str,
    wanted: &[String],
    lookup: Lookup<'_>,
    now: Timestamp,
) -> Option<Result<(User, Vec<String>), String>> {
    let claims = signer.claims(token).filter(|c| c["iss"] == ISSUER)?;
    let for_whom: Vec<String> =
        claims["aud"].as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect();
    let audiences: Vec<String> = for_whom.iter().filter(|a| wanted.contains(a)).cloned().collect();
    if audiences.is_empty() {
        let quoted = |list: &[String]| {
            let list: Vec<_> = list.iter().map(|a| format!("{a:?}")).collect();
            format!("[{}]", list.join(" "))
        };
        return Some(Err(format!(
            "token audiences {} is invalid for the target audiences {}",
            quoted(&for_whom),
            quoted(wanted)
        )));
    }
    Some(in_time(&claims, now).and_then(|()| user(&claims, lookup, now)).map(|user| (user, audiences)))
}

fn in_time(claims: &Value, now: Timestamp) -> Result<(), String> {
    let at = |claim: &str| claims[claim].as_i64().and_then(|s| Timestamp::from_second(s).ok());
    if at("nbf").is_some_and(|from| from.duration_since(now) > LEEWAY) {
        return Err("service account token is not valid yet".to_owned());
    }
    if at("exp").is_none_or(|end| now.duration_since(end) > LEEWAY) {
        return Err("service account token has expired".to_owned());
    }
    Ok(())
}

fn text<'a>(value: &'a Value, field: &str) -> &'a str {
    value[field].as_str().unwrap_or("")
}

/// Whether the deletion of an object began long enough ago.
fn is_leaving(object: &Value, now: Timestamp) -> bool {
    let since = text(&object["metadata"], "deletionTimestamp").parse::<Timestamp>();
    since.is_ok_and(|since| now.duration_since(since) > LEEWAY)
}

fn user(claims: &Value, lookup: Lookup<'_>, now: Timestamp) -> Result<User, String> {
    let private = &claims["kubernetes.io"];
    let (namespace, account) = (text(private, "namespace"), &private["serviceaccount"]);
    let (name, uid) = (text(account, "name"), text(account, "uid"));
    let Some(found) = lookup("serviceaccounts", namespace, name) else {
        return Err(format!("serviceaccounts {name:?} not found"));
    };
    if is_leaving(&found, now) {
        return Err(INVALIDATED.to_owned());
    }
    let found_uid = text(&found["metadata"], "uid");
    if found_uid != uid {
        return Err(format!("service account UID ({found_uid}) does not match claim ({uid})"));
    }
    let mut user = service_account(namespace, name, uid);
    let mut extra = |key: &str, value: String| {
        user.extra.insert(format!("authentication.kubernetes.io/{key}"), vec![value]);
    };
    if let Some(jti) = claims["jti"].as_str() {
        extra("credential-id", format!("JTI={jti}"));
    }
    bound(private, "secret", "secrets", namespace, lookup, now)?;
    bound(private, "pod", "pods", namespace, lookup, now)?;
    if private["pod"].is_null() {
        bound(private, "node", "nodes", "", lookup, now)?;
    }
    for kind in ["pod", "node"] {
        let named = &private[kind];
        if !named.is_null() {
            extra(&format!("{kind}-name"), text(named, "name").to_owned());
            if !text(named, "uid").is_empty() {
                extra(&format!("{kind}-uid"), text(named, "uid").to_owned());
            }
        }
    }
    Ok(user)
}

/// What the token is bound to has to be there, and to be the same.
fn bound(
    private: &Value,
    kind: &str,
    plural: &str,
    namespace: &str,
    lookup: Lookup<'_>,
    now: Timestamp,
) -> Result<(), String> {
    let claim = &private[kind];
    if claim.is_null() {
        return Ok(());
    }
    let found = lookup(plural, namespace, text(claim, "name")).filter(|o| !is_leaving(o, now));
    let found = found.ok_or_else(|| INVALIDATED.to_owned())?;
    let (there, claimed) = (text(&found["metadata"], "uid"), text(claim, "uid"));
    if there != claimed {
        return Err(format!(
            "{kind} UID ({there}) does not match service account {kind} ref claim ({claimed})"
        ));
    }
    Ok(())
}

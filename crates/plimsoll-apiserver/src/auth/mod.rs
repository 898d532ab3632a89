//! Who is asking, and may they: authentication, impersonation, authorization.

pub mod bootstrap;
pub mod escalation;
pub mod rbac;
mod reviews;
pub mod tokens;

use std::collections::BTreeMap;

use http::HeaderMap;
use plimsoll_machinery::{ApiError, Details};
use serde_json::{Value, json};

use crate::http::info::RequestInfo;

pub use rbac::{Attributes, Decision, Rbac};
pub use reviews::create as create_review;

/// The group every authenticated user is in.
pub const AUTHENTICATED: &str = "system:authenticated";
/// The group that may do everything.
pub const MASTERS: &str = "system:masters";

/// A user (`authentication.k8s.io/v1` UserInfo).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct User {
    /// Name.
    pub name: String,
    /// UID, mostly empty.
    pub uid: String,
    /// Groups.
    pub groups: Vec<String>,
    /// What else the authenticator knew.
    pub extra: BTreeMap<String, Vec<String>>,
}

impl User {
    /// An authenticated user in these groups.
    pub fn new(name: &str, groups: &[&str]) -> Self {
        let mut groups: Vec<String> = groups.iter().map(|g| (*g).to_owned()).collect();
        groups.push(AUTHENTICATED.to_owned());
        Self { name: name.to_owned(), groups, ..Self::default() }
    }

    /// The administrator: in-process clients, the kubeconfig's certificate and token.
    pub fn admin() -> Self {
        Self::new("admin", &[MASTERS])
    }

    /// Somebody without credentials.
    pub fn anonymous() -> Self {
        Self {
            name: "system:anonymous".to_owned(),
            groups: vec!["system:unauthenticated".to_owned()],
            ..Self::default()
        }
    }

    /// Whether the user is in a group.
    pub fn is_in(&self, group: &str) -> bool {
        self.groups.iter().any(|g| g == group)
    }

    /// As it stands in reviews.
    pub fn to_value(&self) -> Value {
        let mut v = json!({});
        if !self.name.is_empty() {
            v["username"] = json!(self.name);
        }
        if !self.uid.is_empty() {
            v["uid"] = json!(self.uid);
        }
        if !self.groups.is_empty() {
            v["groups"] = json!(self.groups);
        }
        if !self.extra.is_empty() {
            v["extra"] = json!(self.extra);
        }
        v
    }
}

/// The subject of a verified client certificate, put into the request's extensions by the listener.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerCertificate {
    /// Common name: the user.
    pub common_name: String,
    /// Organizations: the groups.
    pub organizations: Vec<String>,
    /// SHA-256 of the certificate, in lower-case hexadecimal.
    pub fingerprint: String,
}

/// How requests are authorized.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// Whoever is authenticated may do everything.
    AlwaysAllow,
    /// Roles and bindings decide.
    #[default]
    Rbac,
}

/// Settings of authentication and authorization.
#[derive(Clone, Debug, Default)]
pub struct AuthConfig {
    /// Bearer tokens and their users.
    pub tokens: Vec<(String, User)>,
    /// Whether requests without credentials are let in as `system:anonymous` (authorization then decides).
    pub anonymous: bool,
    /// Authorization mode.
    pub mode: Mode,
}

impl AuthConfig {
    /// The user of a request that came over the network. `issued` knows tokens beside the configured ones.
    ///
    /// # Errors
    /// 401 for missing (unless anonymous requests are allowed) or unknown credentials.
    pub fn authenticate(
        &self,
        headers: &HeaderMap,
        peer: Option<&PeerCertificate>,
        issued: impl Fn(&str) -> Option<User>,
    ) -> Result<User, ApiError> {
        if let Some(peer) = peer.filter(|p| !p.common_name.is_empty()) {
            let groups: Vec<&str> = peer.organizations.iter().map(String::as_str).collect();
            let mut user = User::new(&peer.common_name, &groups);
            user.extra.insert(
                "authentication.kubernetes.io/credential-id".to_owned(),
                vec![format!("X509SHA256={}", peer.fingerprint)],
            );
            return Ok(user);
        }
        let header = headers.get(http::header::AUTHORIZATION).and_then(|v| v.to_str().ok());
        let token = header.and_then(|h| {
            let (scheme, token) = h.trim().split_once(' ')?;
            scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
        });
        match token.filter(|t| !t.is_empty()) {
            Some(token) => self.user_of_token(token).or_else(|| issued(token)).ok_or_else(unauthorized),
            None if self.anonymous => Ok(User::anonymous()),
            None => Err(unauthorized()),
        }
    }

    /// The user a bearer token stands for.
    pub fn user_of_token(&self, token: &str) -> Option<User> {
        self.tokens.iter().find(|(t, _)| constant_time_eq(t, token)).map(|(_, u)| u.clone())
    }
}

/// Compares without telling by time how much of a guess was right.
fn constant_time_eq(a: &str, b: &str) -> bool {
    let (a, b) = (a.as_bytes(), b.as_bytes());
    a.len() == b.len() && a.iter().zip(b).fold(0, |acc, (x, y)| acc | (x ^ y)) == 0
}

/// 401.
pub fn unauthorized() -> ApiError {
    let mut e = ApiError::new(401, "Unauthorized", "Unauthorized");
    e.details = None;
    e
}

/// The user that an `Impersonate-User` header asks for; `None`: no impersonation.
///
/// # Errors
/// 400 when groups or other attributes are given without a user name.
pub fn impersonated(headers: &HeaderMap) -> Result<Option<User>, ApiError> {
    let text = |name: &str| headers.get(name).and_then(|v| v.to_str().ok()).unwrap_or("");
    let name = text("impersonate-user");
    let mut groups: Vec<String> = headers
        .get_all("impersonate-group")
        .iter()
        .filter_map(|v| v.to_str().ok())
        .map(str::to_owned)
        .collect();
    let uid = text("impersonate-uid");
    let mut extra: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (header, value) in headers {
        let Some(key) = header.as_str().strip_prefix("impersonate-extra-") else { continue };
        let key = crate::http::query::unescape(key, false).unwrap_or_else(|| key.to_owned());
        extra.entry(key).or_default().push(value.to_str().unwrap_or("").to_owned());
    }
    if name.is_empty() {
        if groups.is_empty() && uid.is_empty() && extra.is_empty() {
            return Ok(None);
        }
        let list: Vec<String> = groups.iter().map(|g| format!("{g:?}")).collect();
        return Err(ApiError::bad_request(format!(
            "requested &user.DefaultInfo{{Name:\"\", UID:{uid:?}, Groups:[]string{{{}}}, \
             Extra:map[string][]string(nil)}} without impersonating a user name",
            list.join(", ")
        )));
    }
    if let Some((namespace, _)) =
        name.strip_prefix("system:serviceaccount:").and_then(|rest| rest.split_once(':'))
        && groups.is_empty()
    {
        groups.push("system:serviceaccounts".to_owned());
        groups.push(format!("system:serviceaccounts:{namespace}"));
    }
    if name != "system:anonymous" && !groups.iter().any(|g| g == AUTHENTICATED) {
        groups.push(AUTHENTICATED.to_owned());
    }
    Ok(Some(User { name: name.to_owned(), uid: uid.to_owned(), groups, extra }))
}

/// 403 as the authorization filter words it.
pub fn forbidden(user: &User, info: &RequestInfo, reason: &str) -> ApiError {
    let mut e = ApiError::new(403, "Forbidden", "");
    let tail = if reason.is_empty() { String::new() } else { format!(": {reason}") };
    let user = &user.name;
    if !info.is_resource {
        e.message = format!("forbidden: User {user:?} cannot {} path {:?}{tail}", info.verb, info.path);
        e.details = Some(Box::default());
        return e;
    }
    let RequestInfo { verb, group, resource, subresource, namespace, .. } = info;
    let name = info.authorized_name();
    let full = if subresource.is_empty() { resource.clone() } else { format!("{resource}/{subresource}") };
    let place = if namespace.is_empty() {
        "at the cluster scope".to_owned()
    } else {
        format!("in the namespace {namespace:?}")
    };
    let qualified = if group.is_empty() { resource.clone() } else { format!("{resource}.{group}") };
    let subject = if name.is_empty() { qualified } else { format!("{qualified} {name:?}") };
    e.message = format!(
        "{subject} is forbidden: User {user:?} cannot {verb} resource {full:?} in API group {group:?} {place}{tail}"
    );
    e.details = Some(Box::new(Details {
        name: name.to_owned(),
        group: group.clone(),
        kind: resource.clone(),
        ..Details::default()
    }));
    e
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_and_anonymous() {
        let mut config =
            AuthConfig { tokens: vec![("secret".into(), User::admin())], ..AuthConfig::default() };
        let mut headers = HeaderMap::new();
        assert_eq!(config.authenticate(&headers, None, |_| None).unwrap_err().code, 401);
        config.anonymous = true;
        assert_eq!(config.authenticate(&headers, None, |_| None).unwrap(), User::anonymous());
        headers.insert("authorization", "Bearer wrong".parse().unwrap());
        assert_eq!(config.authenticate(&headers, None, |_| None).unwrap_err().code, 401);
        headers.insert("authorization", "Bearer secret".parse().unwrap());
        assert_eq!(config.authenticate(&headers, None, |_| None).unwrap(), User::admin());
    }

    #[test]
    fn impersonation_needs_a_name() {
        let mut headers = HeaderMap::new();
        assert_eq!(impersonated(&headers).unwrap(), None);
        headers.insert("impersonate-group", "devs".parse().unwrap());
        assert!(impersonated(&headers).unwrap_err().message.contains("Groups:[]string{\"devs\"}"));
        headers.insert("impersonate-user", "carol".parse().unwrap());
        assert_eq!(impersonated(&headers).unwrap(), Some(User::new("carol", &["devs"])));
    }
}

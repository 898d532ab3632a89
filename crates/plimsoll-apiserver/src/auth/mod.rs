//! Authentication, impersonation and authorization of requests.

pub mod bootstrap;
pub mod impersonation;
pub(crate) mod pem;
pub mod rbac;
mod reviews;
pub mod tokens;

use std::collections::BTreeMap;

use http::HeaderMap;
use plimsoll_apimachinery::go::go_quote;
use plimsoll_apimachinery::{ApiError, Details};
use serde_json::{Value, json};

pub use plimsoll_client::https::subject::PeerCertificate;
pub use rbac::{Attributes, Decision, Rbac};
pub use reviews::create as create_review;

/// The group every authenticated user is in.
pub const AUTHENTICATED: &str = "system:authenticated";
/// The group of requests without credentials.
pub const UNAUTHENTICATED: &str = "system:unauthenticated";
/// The user of requests without credentials.
pub const ANONYMOUS: &str = "system:anonymous";
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

    /// A client without credentials.
    pub fn anonymous() -> Self {
        Self { name: ANONYMOUS.to_owned(), groups: vec![UNAUTHENTICATED.to_owned()], ..Self::default() }
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

/// How requests are authorized.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// Every authenticated client may do everything.
    AlwaysAllow,
    /// Roles and bindings decide.
    #[default]
    Rbac,
}

/// Settings of authentication and authorization.
#[derive(Clone)]
pub struct AuthConfig {
    /// Bearer tokens and their users.
    pub tokens: Vec<(String, User)>,
    /// Whether requests without credentials are those of `system:anonymous`, which authorization decides on
    /// (kube-apiserver's `--anonymous-auth`). It has no effect where every user may do everything.
    pub anonymous: bool,
    /// Authorization mode.
    pub mode: Mode,
}

impl Default for AuthConfig {
    fn default() -> Self {
        Self { tokens: Vec::new(), anonymous: true, mode: Mode::default() }
    }
}

/// Without the tokens.
impl std::fmt::Debug for AuthConfig {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let users: Vec<&str> = self.tokens.iter().map(|(_, user)| user.name.as_str()).collect();
        f.debug_struct("AuthConfig")
            .field("tokens_of", &users)
            .field("anonymous", &self.anonymous)
            .field("mode", &self.mode)
            .finish()
    }
}

impl AuthConfig {
    /// The user of a request that came over the network. `issued` knows tokens beside the configured ones.
    ///
    /// # Errors
    /// 401 for missing (unless anonymous requests are allowed) or unknown credentials.
    pub fn authenticate(
        &self,
        headers: &HeaderMap,
        (peer, now): (Option<&PeerCertificate>, jiff::Timestamp),
        issued: impl Fn(&str) -> Option<User>,
    ) -> Result<User, ApiError> {
        if let Some(peer) = peer.filter(|p| !p.common_name.is_empty()) {
            if !(peer.valid.0..=peer.valid.1).contains(&now.as_second()) {
                return Err(unauthorized());
            }
            let groups: Vec<&str> = peer.organizations.iter().map(String::as_str).collect();
            let mut user = User::new(&peer.common_name, &groups);
            user.uid.clone_from(&peer.uid);
            user.extra.insert(
                "authentication.kubernetes.io/credential-id".to_owned(),
                vec![format!("X509SHA256={}", peer.fingerprint)],
            );
            return Ok(user);
        }
        let header = headers.get(http::header::AUTHORIZATION).and_then(|v| v.to_str().ok());
        // As upstream's `bearertoken` authenticator reads it: another scheme, or none, is no attempt.
        let token = header.and_then(|h| {
            let mut parts = h.trim().splitn(3, ' ');
            let scheme = parts.next()?;
            scheme.eq_ignore_ascii_case("bearer").then(|| parts.next()).flatten()
        });
        match token.filter(|t| !t.is_empty()) {
            Some(token) => self.user_of_token(token).or_else(|| issued(token)).ok_or_else(unauthorized),
            None if self.anonymous && self.mode != Mode::AlwaysAllow => Ok(User::anonymous()),
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

/// 403 as the authorization filter words it (`responsewriters.ForbiddenStatusError`).
pub fn forbidden(user: &User, what: &Attributes, reason: &str) -> ApiError {
    let mut e = ApiError::new(403, "Forbidden", "");
    let tail = if reason.is_empty() { String::new() } else { format!(": {reason}") };
    let Attributes { verb, group, resource, subresource, namespace, name, .. } = what;
    let user = go_quote(&user.name);
    if !what.is_resource {
        let said = sanitized(&format!("User {user} cannot {verb} path {}", go_quote(&what.path)));
        e.message = format!("forbidden: {said}{tail}");
        e.details = Some(Box::default());
        return e;
    }
    let full = if subresource.is_empty() { resource.clone() } else { format!("{resource}/{subresource}") };
    let place = if namespace.is_empty() {
        "at the cluster scope".to_owned()
    } else {
        format!("in the namespace {}", go_quote(namespace))
    };
    let qualified = if group.is_empty() { resource.clone() } else { format!("{resource}.{group}") };
    let subject = if name.is_empty() { qualified } else { format!("{qualified} {}", go_quote(name)) };
    let (full, in_group) = (go_quote(&full), go_quote(group));
    let said =
        sanitized(&format!("User {user} cannot {verb} resource {full} in API group {in_group} {place}"));
    e.message = format!("{subject} is forbidden: {said}{tail}");
    e.details = Some(Box::new(Details {
        name: name.to_owned(),
        group: group.clone(),
        kind: resource.clone(),
        ..Details::default()
    }));
    e
}

/// Text that no browser takes for HTML.
fn sanitized(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_and_anonymous() {
        let mut config =
            AuthConfig { tokens: vec![("secret".into(), User::admin())], ..AuthConfig::default() };
        let mut headers = HeaderMap::new();
        let ask = |config: &AuthConfig, headers: &HeaderMap| {
            let nobody = (None, jiff::Timestamp::UNIX_EPOCH);
            config.authenticate(headers, nobody, |_| None).map_err(|e| e.code)
        };
        assert_eq!(ask(&config, &headers), Ok(User::anonymous()));
        config.mode = Mode::AlwaysAllow;
        assert_eq!(ask(&config, &headers), Err(401));
        config = AuthConfig { anonymous: false, mode: Mode::Rbac, ..config };
        assert_eq!(ask(&config, &headers), Err(401));
        headers.insert("authorization", "Basic c2VjcmV0".parse().unwrap());
        assert_eq!(ask(&config, &headers), Err(401));
        headers.insert("authorization", "Bearer wrong".parse().unwrap());
        assert_eq!(ask(&config, &headers), Err(401));
        headers.insert("authorization", "Bearer secret".parse().unwrap());
        assert_eq!(ask(&config, &headers), Ok(User::admin()));
    }

    /// A connection lasts longer, and a session can be resumed.
    #[test]
    fn a_certificate_is_good_for_its_time() {
        let config = AuthConfig::default();
        let peer = PeerCertificate {
            common_name: "ann".into(),
            organizations: Vec::new(),
            uid: String::new(),
            fingerprint: String::new(),
            valid: (100, 200),
        };
        for (second, want) in [(99, Err(401)), (100, Ok("ann")), (200, Ok("ann")), (201, Err(401))] {
            let at = jiff::Timestamp::from_second(second).unwrap();
            let user = config.authenticate(&HeaderMap::new(), (Some(&peer), at), |_| None);
            assert_eq!(user.as_ref().map(|u| u.name.as_str()).map_err(|e| e.code), want, "{second}");
        }
    }
}

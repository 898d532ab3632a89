//! Delegated authentication and authorization of an aggregated API server
//! (`k8s.io/apiserver/pkg/server/options`, `DelegatingAuthenticationOptions` and `DelegatingAuthorizationOptions`): the API
//! server in front names the user in headers, with a certificate that only it has; tokens and rights are asked of it.

use std::collections::{BTreeMap, HashMap};
use std::hash::Hash;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use http::HeaderMap;
use plimsoll_api::json;
use plimsoll_apimachinery::{ApiError, Details};
use plimsoll_client::certificates;
use plimsoll_client::https::handler::ClientCertificate;
use plimsoll_client::https::subject;
use rustls::pki_types::UnixTime;
use rustls::server::danger::ClientCertVerifier;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::api::{Api, Resource};

const CONFIG_MAPS: Resource = Resource { api_version: "v1", plural: "configmaps", kind: "ConfigMap" };
const TOKEN_REVIEWS: Resource =
    Resource { api_version: "authentication.k8s.io/v1", plural: "tokenreviews", kind: "TokenReview" };
const ACCESS_REVIEWS: Resource = Resource {
    api_version: "authorization.k8s.io/v1",
    plural: "subjectaccessreviews",
    kind: "SubjectAccessReview",
};
/// The ConfigMap in which an API server says whom others may trust.
const TRUST: (&str, &str) = ("kube-system", "extension-apiserver-authentication");
/// How long answers of the API server hold (upstream's `CacheTTL`, `AllowCacheTTL` and `DenyCacheTTL`), and how many are
/// kept.
const ANSWERS: (Duration, usize) = (Duration::from_secs(10), 4096);

const AUTHENTICATED: &str = "system:authenticated";
const UNAUTHENTICATED: &str = "system:unauthenticated";
const ANONYMOUS: &str = "system:anonymous";
const MASTERS: &str = "system:masters";

/// A user.
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
    /// Authenticated users are in a group of their own (upstream's `AuthenticatedGroupAdder`).
    fn authenticated(mut self) -> Self {
        let known = self.groups.iter().any(|g| g == AUTHENTICATED || g == UNAUTHENTICATED);
        if !known && self.name != ANONYMOUS {
            self.groups.push(AUTHENTICATED.to_owned());
        }
        self
    }

    fn anonymous() -> Self {
        Self { name: ANONYMOUS.into(), groups: vec![UNAUTHENTICATED.into()], ..Self::default() }
    }
}

/// Whose certificates are trusted, and what the API server in front calls its headers.
#[derive(Clone, Debug, Default)]
pub struct Trust {
    clients: Option<Arc<dyn ClientCertVerifier>>,
    front: Option<Arc<dyn ClientCertVerifier>>,
    /// Common names that may put users into headers; empty: all.
    names: Vec<String>,
    users: Vec<String>,
    uids: Vec<String>,
    groups: Vec<String>,
    extra: Vec<String>,
    /// Both bundles, for TLS.
    bundles: [String; 2],
}

/// By what they are: verifiers have no value to compare.
impl PartialEq for Trust {
    fn eq(&self, other: &Self) -> bool {
        let parts = |t: &Self| {
            let lists = [&t.names, &t.users, &t.uids, &t.groups, &t.extra].map(Clone::clone);
            (t.bundles.clone(), lists)
        };
        parts(self) == parts(other)
    }
}

impl Trust {
    /// Reads what the API server says.
    ///
    /// # Errors
    /// The ConfigMap can't be read, or its bundles can't be.
    pub async fn read(api: &Api) -> Result<Self, String> {
        let (namespace, name) = TRUST;
        match api.get(CONFIG_MAPS, namespace, name).await {
            Ok(object) => Self::of(&object["data"]).map_err(|e| format!("ConfigMap {namespace}/{name}: {e}")),
            // An API server without certificates of clients and without aggregation.
            Err(e) if e.is_not_found() => Ok(Self::default()),
            Err(e) => Err(format!("ConfigMap {namespace}/{name}: {e}")),
        }
    }

    fn of(data: &Value) -> Result<Self, String> {
        let text = |key: &str| data[key].as_str().unwrap_or("");
        let list = |key: &str| -> Vec<String> { serde_json::from_str(text(key)).unwrap_or_default() };
        let bundles = [text("client-ca-file").to_owned(), text("requestheader-client-ca-file").to_owned()];
        Ok(Self {
            clients: certificates::client_verifier(&[&bundles[0]])?,
            front: certificates::client_verifier(&[&bundles[1]])?,
            names: list("requestheader-allowed-names"),
            users: list("requestheader-username-headers"),
            uids: list("requestheader-uid-headers"),
            groups: list("requestheader-group-headers"),
            extra: list("requestheader-extra-headers-prefix"),
            bundles,
        })
    }

    /// What TLS verifies certificates with.
    ///
    /// # Errors
    /// A bundle can't be read.
    pub fn verifier(&self) -> Result<Option<Arc<dyn ClientCertVerifier>>, String> {
        certificates::client_verifier(&[&self.bundles[0], &self.bundles[1]])
    }

    /// The user that a certificate stands for, or that its owner names.
    fn user(&self, headers: &HeaderMap, shown: Option<&ClientCertificate>) -> Option<User> {
        let ClientCertificate(certificate) = shown?;
        let verified = |verifier: &Option<Arc<dyn ClientCertVerifier>>| {
            let verifier = verifier.as_ref()?;
            verifier.verify_client_cert(certificate, &[], UnixTime::now()).ok()
        };
        let subject = subject::peer(certificate).ok()?;
        let may_name = self.names.is_empty() || self.names.contains(&subject.common_name);
        if may_name
            && verified(&self.front).is_some()
            && let Some(user) = self.named(headers)
        {
            return Some(user);
        }
        verified(&self.clients)?;
        let groups = subject.organizations;
        let user = User { name: subject.common_name, uid: subject.uid, groups, ..User::default() };
        (!user.name.is_empty()).then(|| user.authenticated())
    }

    /// The user in the headers.
    fn named(&self, headers: &HeaderMap) -> Option<User> {
        let all = |names: &[String]| -> Vec<String> {
            let values = names.iter().flat_map(|name| headers.get_all(name));
            values.filter_map(|v| v.to_str().ok().map(str::to_owned)).collect()
        };
        let first = |names: &[String]| all(names).into_iter().find(|v| !v.is_empty());
        let name = first(&self.users)?;
        let mut extra: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for (header, value) in headers {
            let header = header.as_str();
            let key = self.extra.iter().find_map(|prefix| header.strip_prefix(&prefix.to_ascii_lowercase()));
            if let (Some(key), Ok(value)) = (key, value.to_str()) {
                extra.entry(super::decoded(key)).or_default().push(value.to_owned());
            }
        }
        let uid = first(&self.uids).unwrap_or_default();
        Some(User { name, uid, groups: all(&self.groups), extra }.authenticated())
    }
}

/// Answers that hold for a while.
struct Answers<K, V>(Mutex<HashMap<K, (Instant, V)>>);

impl<K: Hash + Eq, V: Clone> Answers<K, V> {
    fn get(&self, key: &K) -> Option<V> {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.get(key).filter(|(at, _)| at.elapsed() < ANSWERS.0).map(|(_, v)| v.clone())
    }

    fn put(&self, key: K, value: V) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if all.len() >= ANSWERS.1 {
            all.retain(|_, (at, _)| at.elapsed() < ANSWERS.0);
        }
        if all.len() < ANSWERS.1 {
            all.insert(key, (Instant::now(), value));
        }
    }
}

impl<K, V> Default for Answers<K, V> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

/// What a user wants to do.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Attributes {
    /// Verb.
    pub verb: String,
    /// Path.
    pub path: String,
    /// Group, version, resource, subresource, namespace, name; `None`: the path is no resource's.
    pub resource: Option<[String; 6]>,
}

/// Asks the API server who its clients are, and what they may do.
pub struct Delegated {
    api: Api,
    trust: Mutex<Arc<Trust>>,
    users: Answers<String, Option<User>>,
    decisions: Answers<String, (bool, String)>,
}

impl Delegated {
    /// Asks this API server.
    pub fn new(api: Api, trust: Trust) -> Self {
        let trust = Mutex::new(Arc::new(trust));
        Self { api, trust, users: Answers::default(), decisions: Answers::default() }
    }

    /// Trusts others from now on.
    pub fn set_trust(&self, trust: Trust) {
        *self.trust.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(trust);
    }

    /// Lets a request pass.
    ///
    /// # Errors
    /// 401 and 403; 500 when the API server does not say.
    pub async fn admit(
        &self,
        headers: &HeaderMap,
        certificate: Option<&ClientCertificate>,
        what: &Attributes,
    ) -> Result<(), ApiError> {
        let user = self.authenticate(headers, certificate).await?;
        if user.groups.iter().any(|g| g == MASTERS) {
            return Ok(());
        }
        let (allowed, reason) = self.decide(&user, what).await?;
        if allowed { Ok(()) } else { Err(forbidden(&user, what, &reason)) }
    }

    async fn authenticate(
        &self,
        headers: &HeaderMap,
        certificate: Option<&ClientCertificate>,
    ) -> Result<User, ApiError> {
        let trust = Arc::clone(&self.trust.lock().unwrap_or_else(PoisonError::into_inner));
        if let Some(user) = trust.user(headers, certificate) {
            return Ok(user);
        }
        let header = headers.get(http::header::AUTHORIZATION).and_then(|v| v.to_str().ok());
        let token = header.and_then(|h| {
            let (scheme, token) = h.trim().split_once(' ')?;
            scheme.eq_ignore_ascii_case("bearer").then(|| token.trim().to_owned())
        });
        match token.filter(|t| !t.is_empty()) {
            None => Ok(User::anonymous()),
            Some(token) => {
                let user = self.user_of(token).await?;
                user.ok_or_else(|| ApiError::new(401, "Unauthorized", "Unauthorized"))
            }
        }
    }

    async fn user_of(&self, token: String) -> Result<Option<User>, ApiError> {
        if let Some(user) = self.users.get(&token) {
            return Ok(user);
        }
        let review = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": token}});
        let answer = self.api.create(TOKEN_REVIEWS, &review).await.map_err(unanswered)?;
        let status = &answer["status"];
        let user = (status["authenticated"] == true).then(|| user(&status["user"]).authenticated());
        self.users.put(token, user.clone());
        Ok(user)
    }

    async fn decide(&self, user: &User, what: &Attributes) -> Result<(bool, String), ApiError> {
        let mut spec = json!({"user": user.name, "groups": user.groups});
        if !user.uid.is_empty() {
            spec["uid"] = json!(user.uid);
        }
        if !user.extra.is_empty() {
            spec["extra"] = json!(user.extra);
        }
        match &what.resource {
            Some([group, version, resource, subresource, namespace, name]) => {
                spec["resourceAttributes"] = json!({
                    "verb": what.verb, "group": group, "version": version, "resource": resource,
                    "subresource": subresource, "namespace": namespace, "name": name,
                });
            }
            None => spec["nonResourceAttributes"] = json!({"verb": what.verb, "path": what.path}),
        }
        let key = spec.to_string();
        if let Some(decision) = self.decisions.get(&key) {
            return Ok(decision);
        }
        let review =
            json!({"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": spec});
        let answer = self.api.create(ACCESS_REVIEWS, &review).await.map_err(unanswered)?;
        let status = &answer["status"];
        let decision = (status["allowed"] == true, json::text(status, &["reason"]).to_owned());
        self.decisions.put(key, decision.clone());
        Ok(decision)
    }
}

fn unanswered(e: crate::api::Error) -> ApiError {
    ApiError::internal(e)
}

fn user(info: &Value) -> User {
    let strings = |v: &Value| -> Vec<String> {
        v.as_array().into_iter().flatten().filter_map(|v| v.as_str().map(str::to_owned)).collect()
    };
    let extra = info["extra"].as_object().into_iter().flatten();
    User {
        name: json::text(info, &["username"]).to_owned(),
        uid: json::text(info, &["uid"]).to_owned(),
        groups: strings(&info["groups"]),
        extra: extra.map(|(k, v)| (k.clone(), strings(v))).collect(),
    }
}

/// 403 as upstream's filter words it (`responsewriters.ForbiddenStatusError`).
fn forbidden(user: &User, what: &Attributes, reason: &str) -> ApiError {
    let tail = if reason.is_empty() { String::new() } else { format!(": {reason}") };
    let (name, verb) = (&user.name, &what.verb);
    let Some([group, _, resource, subresource, namespace, object]) = &what.resource else {
        let mut e = ApiError::new(403, "Forbidden", "");
        e.message = format!("forbidden: User {name:?} cannot {verb} path {:?}{tail}", what.path);
        e.details = Some(Box::default());
        return e;
    };
    let full = if subresource.is_empty() { resource.clone() } else { format!("{resource}/{subresource}") };
    let place = if namespace.is_empty() {
        "at the cluster scope".to_owned()
    } else {
        format!("in the namespace {namespace:?}")
    };
    let subject = if object.is_empty() {
        format!("{resource}.{group}")
    } else {
        format!("{resource}.{group} {object:?}")
    };
    let message = format!(
        "{subject} is forbidden: User {name:?} cannot {verb} resource {full:?} in API group {group:?} {place}{tail}"
    );
    let mut e = ApiError::new(403, "Forbidden", message);
    let (name, group, kind) = (object.clone(), group.clone(), resource.clone());
    e.details = Some(Box::new(Details { name, group, kind, ..Details::default() }));
    e
}

#[cfg(test)]
mod tests {
    use super::*;
    use plimsoll_client::certificates::{Authority, Subject};
    use rustls::pki_types::CertificateDer;
    use rustls::pki_types::pem::PemObject;

    fn authority(name: &str) -> Authority {
        Authority::generate(&Subject { common_name: name, organization: None, valid: None }).unwrap()
    }

    fn shown(authority: &Authority, name: &str, group: Option<&str>) -> ClientCertificate {
        let issued =
            authority.client(&Subject { common_name: name, organization: group, valid: None }).unwrap();
        ClientCertificate(CertificateDer::from_pem_slice(issued.certificate.as_bytes()).unwrap())
    }

    #[test]
    fn only_the_api_server_in_front_names_users() {
        let (clients, front) = (authority("clients"), authority("front"));
        let trust = Trust::of(&json!({
            "client-ca-file": clients.certificate(), "requestheader-client-ca-file": front.certificate(),
            "requestheader-allowed-names": "[\"front-proxy-client\"]",
            "requestheader-username-headers": "[\"X-Remote-User\"]",
            "requestheader-group-headers": "[\"X-Remote-Group\"]",
            "requestheader-extra-headers-prefix": "[\"X-Remote-Extra-\"]",
        }))
        .unwrap();
        let mut headers = HeaderMap::new();
        headers.insert("x-remote-user", "alice".parse().unwrap());
        headers.append("x-remote-group", "a".parse().unwrap());
        headers.append("x-remote-group", "b".parse().unwrap());
        headers.insert("x-remote-extra-example.org%2fkey", "v".parse().unwrap());
        let user = |certificate: Option<&ClientCertificate>| trust.user(&headers, certificate);
        let named = user(Some(&shown(&front, "front-proxy-client", None))).unwrap();
        assert_eq!(
            (named.name.as_str(), named.groups.join(" ")),
            ("alice", "a b system:authenticated".to_owned())
        );
        assert_eq!(named.extra["example.org/key"], ["v"]);
        // Neither without a certificate, nor with one of another name or authority.
        assert_eq!(user(None), None);
        assert_eq!(user(Some(&shown(&front, "mallory", None))), None);
        assert_eq!(user(Some(&shown(&authority("front"), "front-proxy-client", None))), None);
        let own = user(Some(&shown(&clients, "front-proxy-client", Some("team")))).unwrap();
        assert_eq!(
            (own.name.as_str(), own.groups.join(" ")),
            ("front-proxy-client", "team system:authenticated".to_owned())
        );
    }

    #[test]
    fn answers_hold_for_a_while_only() {
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
        runtime.block_on(async {
            let answers: Answers<String, bool> = Answers::default();
            answers.put("a".into(), true);
            assert_eq!(answers.get(&"a".to_owned()), Some(true));
            tokio::time::advance(ANSWERS.0).await;
            assert_eq!(answers.get(&"a".to_owned()), None);
        });
    }
}

//! Impersonation, as kube-apiserver 1.36 does it with its default gates: constrained impersonation (KEP-5284) first,
//! then the form that has existed since Kubernetes 1.3
//! (`k8s.io/apiserver/pkg/endpoints/filters/impersonation`).

use std::collections::{BTreeMap, HashMap};
use std::sync::{Mutex, PoisonError};

use http::{HeaderMap, HeaderValue};
use plimsoll_apimachinery::go::go_quote;
use plimsoll_apimachinery::{ApiError, FieldError, validate};

use super::{ANONYMOUS, AUTHENTICATED, Attributes, MASTERS, Rbac, UNAUTHENTICATED, User, forbidden};

/// Group of the attributes that constrained impersonation asks for, and of `uids` and `userextras` in both forms.
const AUTHENTICATION: &str = "authentication.k8s.io";
/// So many groups or extra values are first tried with one check for all of them.
const MANY: usize = 4;
/// Requestors whose last successful mode is remembered (`newModeIndexCache`).
const MAX_REMEMBERED: usize = 10_000;
const EXTRA: &str = "impersonate-extra-";
const NODE_NAME: &str = "authentication.kubernetes.io/node-name";

/// A user that a request acts as.
#[derive(Debug)]
pub struct Acting {
    /// The user, complete with its groups.
    pub user: User,
    /// The verb of the constrained mode that allowed it; empty for legacy impersonation.
    pub constraint: &'static str,
}

/// The ways to impersonate, in the order in which they are tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    /// A service account acts as the node that its token is bound to.
    AssociatedNode,
    /// Any node.
    ArbitraryNode,
    /// A service account.
    ServiceAccount,
    /// Any other user, with groups, UID and extra.
    UserInfo,
    /// The verb `impersonate`.
    Legacy,
}

/// Authorizes impersonation.
#[derive(Debug, Default)]
pub struct Impersonation {
    /// The mode that last allowed a requestor to impersonate. It is tried first, and its refusal is the one shown.
    last: Mutex<HashMap<String, Mode>>,
}

/// The user that the headers of a request ask for, as they say it; `None`: no impersonation.
///
/// # Errors
/// 400 when groups or other attributes are given without a user name, or a header is not UTF-8.
pub fn wanted(headers: &HeaderMap) -> Result<Option<User>, ApiError> {
    let text = |name: &str| headers.get(name).map_or(Ok(String::new()), |v| utf8(name, v));
    let mut user = User { name: text("impersonate-user")?, uid: text("impersonate-uid")?, ..User::default() };
    for value in headers.get_all("impersonate-group") {
        user.groups.push(utf8("impersonate-group", value)?);
    }
    for (header, value) in headers {
        let Some(key) = header.as_str().strip_prefix(EXTRA) else { continue };
        let key = crate::http::query::unescape(key, false).unwrap_or_else(|| key.to_owned());
        user.extra.entry(key).or_default().push(utf8(header.as_str(), value)?);
    }
    if !user.name.is_empty() {
        return Ok(Some(user));
    }
    if user == User::default() {
        return Ok(None);
    }
    Err(ApiError::bad_request(format!("requested {} without impersonating a user name", go_struct(&user))))
}

fn utf8(name: &str, value: &HeaderValue) -> Result<String, ApiError> {
    let text = std::str::from_utf8(value.as_bytes());
    text.map(str::to_owned).map_err(|_| ApiError::bad_request(format!("header {name} is not valid UTF-8")))
}

/// `%#v` of a `*user.DefaultInfo`.
fn go_struct(user: &User) -> String {
    let strings = |list: &[String]| {
        let quoted: Vec<String> = list.iter().map(|s| go_quote(s)).collect();
        format!("[]string{{{}}}", quoted.join(", "))
    };
    let groups = if user.groups.is_empty() { "[]string(nil)".to_owned() } else { strings(&user.groups) };
    let extra = if user.extra.is_empty() {
        "map[string][]string(nil)".to_owned()
    } else {
        let pairs: Vec<String> =
            user.extra.iter().map(|(k, v)| format!("{}:{}", go_quote(k), strings(v))).collect();
        format!("map[string][]string{{{}}}", pairs.join(", "))
    };
    format!("&user.DefaultInfo{{Name:\"\", UID:{}, Groups:{groups}, Extra:{extra}}}", go_quote(&user.uid))
}

impl Impersonation {
    /// Authorizes a request in the name of another user (`getImpersonatedUser`). `what`: the request.
    ///
    /// # Errors
    /// 403 of the mode that allowed the requestor last, or of the first one that applies.
    pub fn authorize(
        &self,
        rbac: &Rbac,
        requestor: &User,
        wanted: &User,
        what: &Attributes,
    ) -> Result<Acting, ApiError> {
        let last = self.last.lock().unwrap_or_else(PoisonError::into_inner).get(&requestor.name).copied();
        let others = Mode::ALL.into_iter().filter(|mode| Some(*mode) != last);
        let mut refusal = None;
        for mode in last.into_iter().chain(others) {
            if !mode.applies(requestor, wanted) {
                continue;
            }
            match (Check { rbac, requestor, mode }).run(wanted, what) {
                Ok(user) => {
                    if last != Some(mode) {
                        self.remember(&requestor.name, mode);
                    }
                    return Ok(Acting { user, constraint: mode.constraint() });
                }
                Err(e) => refusal = refusal.or(Some(e)),
            }
        }
        // The legacy mode applies to every user, so that there is a refusal.
        Err(refusal.unwrap_or_else(|| ApiError::internal("all impersonation modes failed")))
    }

    fn remember(&self, requestor: &str, mode: Mode) {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        // A forgotten mode costs further checks and no right.
        if last.len() >= MAX_REMEMBERED {
            last.clear();
        }
        last.insert(requestor.to_owned(), mode);
    }
}

impl Mode {
    const ALL: [Self; 5] =
        [Self::AssociatedNode, Self::ArbitraryNode, Self::ServiceAccount, Self::UserInfo, Self::Legacy];

    const fn name(self) -> &'static str {
        match self {
            Self::AssociatedNode => "associated-node",
            Self::ArbitraryNode => "arbitrary-node",
            Self::ServiceAccount => "serviceaccount",
            Self::UserInfo => "user-info",
            Self::Legacy => "",
        }
    }

    const fn verb(self) -> &'static str {
        match self {
            Self::AssociatedNode => "impersonate:associated-node",
            Self::ArbitraryNode => "impersonate:arbitrary-node",
            Self::ServiceAccount => "impersonate:serviceaccount",
            Self::UserInfo => "impersonate:user-info",
            Self::Legacy => "impersonate",
        }
    }

    const fn constraint(self) -> &'static str {
        match self {
            Self::Legacy => "",
            constrained => constrained.verb(),
        }
    }

    /// Whether a requestor can impersonate this user in this mode at all.
    fn applies(self, requestor: &User, wanted: &User) -> bool {
        let only_name = wanted.uid.is_empty() && wanted.groups.is_empty() && wanted.extra.is_empty();
        let (node, account) = (node(&wanted.name), service_account(&wanted.name));
        match self {
            Self::AssociatedNode => {
                let own = requestor.extra.get(NODE_NAME).map(Vec::as_slice);
                only_name
                    && service_account(&requestor.name).is_some()
                    && matches!((node, own), (Some(node), Some([own])) if node == own)
            }
            Self::ArbitraryNode => only_name && node.is_some(),
            Self::ServiceAccount => only_name && account.is_some(),
            Self::UserInfo => node.is_none() && account.is_none(),
            Self::Legacy => true,
        }
    }
}

/// The checks of one mode.
struct Check<'a> {
    rbac: &'a Rbac,
    requestor: &'a User,
    mode: Mode,
}

impl Check<'_> {
    fn run(&self, wanted: &User, what: &Attributes) -> Result<User, ApiError> {
        if self.mode != Mode::Legacy {
            let verb = format!("impersonate-on:{}:{}", self.mode.name(), what.verb);
            self.may(&Attributes { verb, ..what.clone() })?;
        }
        let mut user = wanted.clone();
        self.name(&mut user)?;
        if !wanted.uid.is_empty() {
            self.may(&self.attribute(AUTHENTICATION, "uids", &wanted.uid))?;
        }
        self.groups(&wanted.groups)?;
        self.extra(&wanted.extra)?;
        let is_in = |user: &User, group: &str| user.groups.iter().any(|g| g == group);
        let group = if user.name == ANONYMOUS { UNAUTHENTICATED } else { AUTHENTICATED };
        if !is_in(&user, group) && !is_in(&user, UNAUTHENTICATED) {
            user.groups.push(group.to_owned());
        }
        Ok(user)
    }

    fn may(&self, what: &Attributes) -> Result<(), ApiError> {
        let decision = self.rbac.authorize(self.requestor, what);
        if decision.allowed { Ok(()) } else { Err(self.refuse(what, &decision.reason)) }
    }

    fn refuse(&self, what: &Attributes, reason: &str) -> ApiError {
        forbidden(self.requestor, what, reason)
    }

    fn attribute(&self, group: &str, resource: &str, name: &str) -> Attributes {
        Attributes {
            is_resource: true,
            verb: self.mode.verb().to_owned(),
            group: group.to_owned(),
            resource: resource.to_owned(),
            name: name.to_owned(),
            ..Attributes::default()
        }
    }

    /// The API group of users, groups and service accounts.
    const fn own_group(&self) -> &'static str {
        if matches!(self.mode, Mode::Legacy) { "" } else { AUTHENTICATION }
    }

    /// Nodes and service accounts have fixed groups; legacy impersonation knows no nodes, and lets a client choose the
    /// groups of a service account, which [`Check::groups`] authorizes one by one.
    fn name(&self, user: &mut User) -> Result<(), ApiError> {
        let mut what = self.attribute(self.own_group(), "users", &user.name);
        if self.mode != Mode::Legacy
            && let Some(node) = node(&user.name)
        {
            what.resource = "nodes".to_owned();
            // The associated node is known to be the requestor's own.
            what.name = if self.mode == Mode::AssociatedNode { "*" } else { node }.to_owned();
            user.groups = vec!["system:nodes".to_owned()];
        }
        if let Some((namespace, name)) = service_account(&user.name) {
            what.resource = "serviceaccounts".to_owned();
            what.namespace = namespace.to_owned();
            what.name = name.to_owned();
            if user.groups.is_empty() {
                let own = format!("system:serviceaccounts:{namespace}");
                user.groups = vec!["system:serviceaccounts".to_owned(), own];
            }
        }
        self.may(&what)
    }

    fn groups(&self, groups: &[String]) -> Result<(), ApiError> {
        let what = |name: &str| self.attribute(self.own_group(), "groups", name);
        if self.mode != Mode::Legacy {
            if groups.iter().any(String::is_empty) {
                return Err(self.refuse(&what(""), "impersonating the empty string group is not allowed"));
            }
            if groups.iter().any(|g| g == MASTERS) {
                let reason = "impersonating the system:masters group is not allowed";
                return Err(self.refuse(&what(MASTERS), reason));
            }
            if groups.len() >= MANY && self.may(&what("*")).is_ok() {
                return Ok(());
            }
        }
        groups.iter().try_for_each(|group| self.may(&what(group)))
    }

    fn extra(&self, extra: &BTreeMap<String, Vec<String>>) -> Result<(), ApiError> {
        let what = |key: &str, value: &str| Attributes {
            subresource: key.to_owned(),
            ..self.attribute(AUTHENTICATION, "userextras", value)
        };
        if self.mode != Mode::Legacy {
            check_extra(extra).map_err(|reason| self.refuse(&what("", ""), &reason))?;
            let values: usize = extra.values().map(Vec::len).sum();
            if values.max(extra.len()) >= MANY && self.may(&what("*", "*")).is_ok() {
                return Ok(());
            }
        }
        let mut pairs = extra.iter().flat_map(|(key, values)| values.iter().map(move |v| (key, v)));
        pairs.try_for_each(|(key, value)| self.may(&what(key, value)))
    }
}

/// Keys and values that constrained impersonation takes (`validateExtra`).
fn check_extra(extra: &BTreeMap<String, Vec<String>>) -> Result<(), String> {
    for (key, values) in extra {
        if key.is_empty() {
            return Err("impersonating the empty string key in extra is not allowed".to_owned());
        }
        let errors = validate::domain_prefixed_path("extra.key", key);
        if !errors.is_empty() {
            let why = aggregate(&errors);
            return Err(format!("impersonating an invalid key in extra is not allowed: {why}"));
        }
        if *key != key.to_lowercase() {
            let key = go_quote(key);
            return Err(format!("impersonating a non-lowercase key in extra is not allowed: {key}"));
        }
        if values.iter().any(String::is_empty) {
            return Err("impersonating the empty string value in extra is not allowed".to_owned());
        }
    }
    Ok(())
}

/// As Go's `Aggregate` prints errors.
fn aggregate(errors: &[FieldError]) -> String {
    match errors {
        [one] => one.to_string(),
        all => {
            let all: Vec<String> = all.iter().map(ToString::to_string).collect();
            format!("[{}]", all.join(", "))
        }
    }
}

/// The node whose user this is.
fn node(user: &str) -> Option<&str> {
    user.strip_prefix("system:node:").filter(|name| validate::is_node_name(name))
}

/// Namespace and name of the service account whose user this is (`serviceaccount.SplitUsername`).
fn service_account(user: &str) -> Option<(&str, &str)> {
    let (namespace, name) = user.strip_prefix("system:serviceaccount:")?.split_once(':')?;
    validate::is_service_account(namespace, name).then_some((namespace, name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_need_a_name() {
        let mut headers = HeaderMap::new();
        assert_eq!(wanted(&headers).unwrap(), None);
        headers.insert("impersonate-group", "devs".parse().unwrap());
        headers.insert("impersonate-extra-a%2Fb", "1".parse().unwrap());
        assert_eq!(
            wanted(&headers).unwrap_err().message,
            "requested &user.DefaultInfo{Name:\"\", UID:\"\", Groups:[]string{\"devs\"}, \
             Extra:map[string][]string{\"a/b\":[]string{\"1\"}}} without impersonating a user name"
        );
        headers.insert("impersonate-user", "carol".parse().unwrap());
        let user = wanted(&headers).unwrap().unwrap();
        assert_eq!((user.name.as_str(), user.groups.as_slice()), ("carol", &["devs".to_owned()][..]));
        headers.insert("impersonate-group", HeaderValue::from_bytes(b"\xff").unwrap());
        assert_eq!(wanted(&headers).unwrap_err().code, 400);
    }

    #[test]
    fn names_of_nodes_and_service_accounts() {
        assert_eq!(service_account("system:serviceaccount:ns:bot"), Some(("ns", "bot")));
        for other in ["system:serviceaccount:ns", "system:serviceaccount:ns:a:b", "system:serviceaccount:N:b"]
        {
            assert_eq!(service_account(other), None, "{other}");
        }
        assert_eq!(node("system:node:n1"), Some("n1"));
        assert_eq!(node("system:node:N_1"), None);
    }
}

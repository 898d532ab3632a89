//! The index compared with a plain reading of all roles and bindings, over random policies and random changes.

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use serde_json::{Value, json};

use super::*;
use crate::store::{Expected, Key, Window, Write};

const USERS: [&str; 3] = ["ann", "bob", "system:serviceaccount:a:bot"];
const GROUPS: [&str; 3] = ["devs", "ops", "system:serviceaccounts"];
const NAMESPACES: [&str; 2] = ["a", "b"];
const NAMES: [&str; 4] = ["n1", "n2", "n3", "n4"];

/// One write: a kind of object, its namespace and name, and its state or none.
type Step = (usize, &'static str, &'static str, Option<Value>);

fn some(words: &'static [&'static str], most: usize) -> impl Strategy<Value = Vec<&'static str>> {
    vec(select(words), 0..=most)
}

fn rule() -> impl Strategy<Value = Value> {
    let resource = (
        some(&["get", "list", "*"], 2),
        some(&["", "apps", "*"], 2),
        some(&["pods", "pods/log", "*/log", "deployments", "*"], 2),
        some(&["x", "y"], 1),
    )
        .prop_map(|(verbs, groups, resources, names)| {
            json!({"verbs": verbs, "apiGroups": groups, "resources": resources, "resourceNames": names})
        });
    let path = (some(&["get", "*"], 1), some(&["/healthz", "/api*", "/a**", "*"], 2))
        .prop_map(|(verbs, urls)| json!({"verbs": verbs, "nonResourceURLs": urls}));
    prop_oneof![3 => resource, 1 => path]
}

fn subject() -> impl Strategy<Value = Value> {
    prop_oneof![
        select(&USERS[..]).prop_map(|name| json!({"kind": "User", "name": name})),
        select(&GROUPS[..]).prop_map(|name| json!({"kind": "Group", "name": name})),
        select(&["a", "b", ""][..])
            .prop_map(|ns| json!({"kind": "ServiceAccount", "name": "bot", "namespace": ns})),
        Just(json!({"kind": "ServiceAccount", "name": "bot"})),
    ]
}

fn object(kind: usize) -> BoxedStrategy<Value> {
    if kind < 2 {
        return vec(rule(), 0..3).prop_map(|rules| json!({"metadata": {}, "rules": rules})).boxed();
    }
    let role =
        if kind == 2 { Just("ClusterRole").boxed() } else { select(&["ClusterRole", "Role"][..]).boxed() };
    (role, select(&NAMES[..]), vec(subject(), 0..4))
        .prop_map(|(kind, name, subjects)| {
            json!({"metadata": {}, "roleRef": {"kind": kind, "name": name}, "subjects": subjects})
        })
        .boxed()
}

fn step() -> impl Strategy<Value = Step> {
    (0..4_usize, select(&NAMESPACES[..]), select(&NAMES[..])).prop_flat_map(|(kind, namespace, name)| {
        let namespace = if kind % 2 == 0 { "" } else { namespace };
        proptest::option::weighted(0.8, object(kind)).prop_map(move |object| (kind, namespace, name, object))
    })
}

fn user() -> impl Strategy<Value = User> {
    (select(&USERS[..]), some(&GROUPS, 2)).prop_map(|(name, groups)| User::new(name, &groups))
}

fn request() -> impl Strategy<Value = Attributes> {
    let resource = (
        select(&["get", "list", "delete"][..]),
        select(&["", "apps"][..]),
        select(&[("pods", ""), ("pods", "log"), ("deployments", "")][..]),
        select(&["", "a", "b"][..]),
        select(&["", "x", "y"][..]),
    )
        .prop_map(|(verb, group, (resource, subresource), namespace, name)| Attributes {
            is_resource: true,
            verb: verb.to_owned(),
            group: group.to_owned(),
            resource: resource.to_owned(),
            subresource: subresource.to_owned(),
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            path: String::new(),
        });
    let path = select(&["/healthz", "/api/v1", "/b"][..]).prop_map(|path| Attributes {
        verb: "get".into(),
        path: path.into(),
        ..Attributes::default()
    });
    prop_oneof![4 => resource, 1 => path]
}

fn list(v: &Value) -> &[Value] {
    v.as_array().map_or(&[], Vec::as_slice)
}

/// `VisitRulesFor` and `RuleAllows`, word for word over the stored objects.
fn plainly(store: &Store, user: &User, what: &Attributes) -> Decision {
    let mut errors = Vec::new();
    for (at, namespace) in [(2, ""), (3, what.namespace.as_str())] {
        if at == 3 && namespace.is_empty() {
            continue;
        }
        for record in store.list(KINDS[at].0, Some(namespace).filter(|n| !n.is_empty())).iter() {
            let binding = record.value().unwrap();
            let Some(subject) = list(&binding["subjects"]).iter().find(|s| applies(s, user, namespace))
            else {
                continue;
            };
            let role_ref = &binding["roleRef"];
            let name = role_ref["name"].as_str().unwrap();
            let own = role_ref["kind"] == "Role";
            let key =
                if own { Key::new(KINDS[1].0, namespace, name) } else { Key::new(KINDS[0].0, "", name) };
            let Some(role) = store.get(&key) else {
                let kind = if own { "role" } else { "clusterrole" };
                errors.push(format!("{kind}.rbac.authorization.k8s.io \"{name}\" not found"));
                continue;
            };
            if list(&role.value().unwrap()["rules"]).iter().any(|rule| allows(rule, what)) {
                let (kind, bound) = match namespace {
                    "" => ("ClusterRoleBinding", record.key.name.to_string()),
                    ns => ("RoleBinding", format!("{}/{ns}", record.key.name)),
                };
                let role_kind = role_ref["kind"].as_str().unwrap();
                let to = described(subject, namespace);
                let reason = format!("RBAC: allowed by {kind} \"{bound}\" of {role_kind} \"{name}\" to {to}");
                return Decision { allowed: true, reason };
            }
        }
    }
    let reason = aggregate(&errors);
    let reason = if reason.is_empty() { reason } else { format!("RBAC: {reason}") };
    Decision { allowed: false, reason }
}

fn own_namespace<'a>(subject: &'a Value, namespace: &'a str) -> &'a str {
    subject["namespace"].as_str().filter(|n| !n.is_empty()).unwrap_or(namespace)
}

fn described(subject: &Value, namespace: &str) -> String {
    let (kind, name) = (subject["kind"].as_str().unwrap(), subject["name"].as_str().unwrap());
    match kind {
        "ServiceAccount" => format!("{kind} \"{name}/{}\"", own_namespace(subject, namespace)),
        _ => format!("{kind} \"{name}\""),
    }
}

fn applies(subject: &Value, user: &User, namespace: &str) -> bool {
    let name = subject["name"].as_str().unwrap();
    match subject["kind"].as_str().unwrap() {
        "User" => user.name == name,
        "Group" => user.groups.iter().any(|g| g == name),
        _ => {
            let own = own_namespace(subject, namespace);
            !own.is_empty() && user.name == format!("system:serviceaccount:{own}:{name}")
        }
    }
}

fn allows(rule: &Value, what: &Attributes) -> bool {
    let has = |field: &str, wanted: &str| list(&rule[field]).iter().any(|v| v == "*" || v == wanted);
    if !has("verbs", &what.verb) {
        return false;
    }
    if !what.is_resource {
        return list(&rule["nonResourceURLs"]).iter().filter_map(Value::as_str).any(|url| {
            url == "*"
                || url == what.path
                || (url.ends_with('*') && what.path.starts_with(url.trim_end_matches('*')))
        });
    }
    let full = match what.subresource.as_str() {
        "" => what.resource.clone(),
        sub => format!("{}/{sub}", what.resource),
    };
    let any = format!("*/{}", what.subresource);
    let resource = list(&rule["resources"])
        .iter()
        .any(|r| r == "*" || r == full.as_str() || (!what.subresource.is_empty() && r == any.as_str()));
    let names = list(&rule["resourceNames"]);
    has("apiGroups", &what.group)
        && resource
        && (names.is_empty() || names.iter().any(|n| n == what.name.as_str()))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    /// Also where the window of changes is so small that the index has to be listed anew.
    #[test]
    fn the_index_decides_as_a_plain_reading_does(
        steps in vec((vec(step(), 1..6), vec((user(), request()), 1..6)), 1..12),
        changes in select(&[2_usize, 1000][..]),
    ) {
        let store = Store::in_memory_with(Window { changes, bytes: 1 << 20 });
        let rbac = Rbac::new(Mode::Rbac, store.clone());
        for (writes, requests) in steps {
            for (kind, namespace, name, object) in writes {
                let key = Key::new(KINDS[kind].0, namespace, name);
                let write = match object {
                    Some(object) => Write::put(key, Expected::Anything, &object).unwrap(),
                    None => Write::delete(key, Expected::Anything),
                };
                // A deletion of what is not there is no change.
                let _ = futures::executor::block_on(store.commit(write));
            }
            for (user, what) in requests {
                prop_assert_eq!(rbac.authorize(&user, &what), plainly(&store, &user, &what));
            }
        }
    }
}

#[test]
fn missing_rules_are_compacted_as_upstream_shows_them() {
    let rules = json!([
        {"verbs": ["get", "list"], "apiGroups": [""], "resources": ["pods", "secrets"]},
        {"verbs": ["get"], "apiGroups": ["apps"], "resources": ["deployments"], "resourceNames": ["a", "b"]},
        {"verbs": ["get"], "nonResourceURLs": ["/metrics"]},
    ]);
    let singles = Rule::all(&rules).iter().flat_map(Rule::singles).collect();
    let shown: Vec<String> = compact(singles).iter().map(Rule::compact_string).collect();
    assert_eq!(
        shown,
        [
            "{APIGroups:[\"\"], Resources:[\"pods\"], Verbs:[\"get\" \"list\"]}",
            "{APIGroups:[\"\"], Resources:[\"secrets\"], Verbs:[\"get\" \"list\"]}",
            "{APIGroups:[\"apps\"], Resources:[\"deployments\"], ResourceNames:[\"a\"], Verbs:[\"get\"]}",
            "{APIGroups:[\"apps\"], Resources:[\"deployments\"], ResourceNames:[\"b\"], Verbs:[\"get\"]}",
            "{NonResourceURLs:[\"/metrics\"], Verbs:[\"get\"]}",
        ]
    );
}

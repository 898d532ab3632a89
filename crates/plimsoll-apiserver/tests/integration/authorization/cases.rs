//! Requests for every resource, subresource, verb and way of creating, and the rights that each of them needs.

use std::collections::BTreeMap;
use std::fmt;

use plimsoll_apimachinery::{Kind, KindTable};
use serde_json::{Value, json};

/// The namespace of all namespaced objects.
pub const NAMESPACE: &str = "authz";
const SIGNER: &str = "example.com/signer";
/// Connections to a kubelet, a pod or a Service; and logs. What follows authorization is another matter there.
const CONNECTED: [&str; 5] = ["attach", "exec", "log", "portforward", "proxy"];

/// Those whose GET may run commands, and needs the right to create too (the gate
/// AuthorizePodWebsocketUpgradeCreatePermission).
const STREAMED: [&str; 3] = ["attach", "exec", "portforward"];

/// A right in the sense of RBAC.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Right {
    pub verb: String,
    /// `configmaps`, `pods/status`.
    pub resource: String,
    pub group: String,
}

impl fmt::Display for Right {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}.{}", self.verb, self.resource, self.group)
    }
}

impl Right {
    fn new(verb: &str, resource: &str, group: &str) -> Self {
        Self { verb: verb.to_owned(), resource: resource.to_owned(), group: group.to_owned() }
    }
}

/// The body of a request.
#[derive(Clone, Debug)]
pub enum Body {
    None,
    /// As it is.
    Given(Value),
    /// What the administrator reads at this path.
    Read(String),
}

/// One request.
pub struct Case {
    pub api_version: String,
    pub group: String,
    /// With the subresource.
    pub resource: String,
    /// With `dry-run`, if it is one.
    pub operation: String,
    pub method: &'static str,
    pub path: String,
    pub content_type: &'static str,
    pub body: Body,
    /// In the order in which they are asked for.
    pub needs: Vec<Right>,
    /// The name in the path, as the request's own refusal says it.
    pub path_name: String,
    /// The namespace in the path.
    pub namespace: String,
    /// What the administrator creates before: collection and object.
    pub setup: Vec<(String, Value)>,
    /// Whether only authorization counts, and not what becomes of a request that is let through.
    pub only_authorized: bool,
}

impl Case {
    /// What the case is called in the table.
    pub fn id(&self) -> String {
        format!("{}\t{}\t{}", self.api_version, self.resource, self.operation)
    }

    /// The rights as the table has them.
    pub fn needs_text(&self) -> String {
        let all: Vec<String> = self.needs.iter().map(ToString::to_string).collect();
        if all.is_empty() { "-".to_owned() } else { all.join(" ") }
    }

    /// What a user is told who lacks one of the rights.
    pub fn refusal(&self, user: &str, missing: &Right) -> String {
        let resource = self.resource.split('/').next().unwrap_or_default();
        let qualified =
            if self.group.is_empty() { resource.to_owned() } else { format!("{resource}.{}", self.group) };
        if missing.resource == "signers" {
            let name = &self.path_name;
            let why = format!("user not permitted to approve requests with signerName \"{SIGNER}\"");
            return format!("{qualified} \"{name}\" is forbidden: {why}");
        }
        let sub = self.resource.split('/').nth(1).unwrap_or_default();
        if STREAMED.contains(&sub) && self.needs.first() != Some(missing) {
            return format!("{qualified} \"{}\" is forbidden: ", self.path_name);
        }
        let namespace = &self.namespace;
        let subject =
            if self.path_name.is_empty() { qualified } else { format!("{qualified} \"{}\"", self.path_name) };
        let place = if namespace.is_empty() {
            "at the cluster scope".to_owned()
        } else {
            format!("in the namespace \"{namespace}\"")
        };
        format!(
            "{subject} is forbidden: User \"{user}\" cannot {} resource \"{}\" in API group \"{}\" {place}",
            missing.verb, missing.resource, self.group
        )
    }
}

/// Kinds that a PUT creates (`AllowCreateOnUpdate` of their strategies in `pkg/registry`).
fn put_creates(group: &str, plural: &str) -> bool {
    match group {
        "" => matches!(plural, "endpoints" | "events" | "limitranges" | "services"),
        "coordination.k8s.io" => matches!(plural, "leases" | "leasecandidates"),
        "events.k8s.io" => plural == "events",
        "node.k8s.io" => plural == "runtimeclasses",
        "rbac.authorization.k8s.io" => true,
        _ => false,
    }
}

/// Makes the cases of one kind.
struct Maker<'a> {
    kind: &'a Kind,
    api_version: String,
    template: &'a Value,
    cases: Vec<Case>,
}

/// The cases of all kinds, in the table's order.
pub fn all(table: &KindTable, templates: &BTreeMap<String, Value>) -> Vec<Case> {
    let mut cases = Vec::new();
    for kind in table.iter() {
        let api_version = kind.gvk.api_version();
        let key = format!("{api_version} {}", kind.plural);
        let none = Value::Null;
        let template = templates.get(&key).unwrap_or(&none);
        assert!(
            !template.is_null() || !kind.verbs.iter().any(|v| v == "create"),
            "objects.json has no object for {key}"
        );
        let mut maker = Maker { kind, api_version, template, cases: Vec::new() };
        maker.whole();
        for sub in kind.subresources.clone() {
            maker.subresource(&sub.name, &sub.verbs, &sub.kind.api_version(), &sub.kind.kind);
        }
        cases.append(&mut maker.cases);
    }
    cases
}

impl Maker<'_> {
    fn collection(&self) -> String {
        let root = if self.kind.gvk.group.is_empty() { "/api" } else { "/apis" };
        let namespace = if self.kind.namespaced { format!("/namespaces/{NAMESPACE}") } else { String::new() };
        format!("{root}/{}{namespace}/{}", self.api_version, self.kind.plural)
    }

    /// The name of the object of a case: some kinds are particular about names.
    fn name(&self, operation: &str, sub: &str) -> String {
        let version = self.api_version.replace(['.', '/'], "-");
        let slug = [operation, sub, &version].join("-").replace("--", "-");
        match self.kind.plural.as_str() {
            "componentstatuses" => "etcd-0".to_owned(),
            "apiservices" => format!("v1.{slug}.example.com"),
            "customresourcedefinitions" => format!("{slug}.authz.example.com"),
            // Its pod is one beside those of the cases of pods.
            "bindings" => format!("bound-{slug}"),
            "ipaddresses" => format!("10.201.0.{}", self.cases.len() + 1),
            _ => slug,
        }
    }

    fn object(&self, name: &str) -> Value {
        let mut object = self.template.clone();
        object["metadata"]["name"] = json!(name);
        match self.kind.plural.as_str() {
            "apiservices" => object["spec"]["group"] = json!(name.trim_start_matches("v1.")),
            "customresourcedefinitions" => {
                let plural = name.split('.').next().unwrap_or_default();
                let kind = format!("K{}", plural.replace('-', ""));
                object["spec"]["names"] = json!({"plural": plural, "singular": plural, "kind": kind, "listKind": format!("{kind}List")});
            }
            _ => {}
        }
        object
    }

    fn right(&self, verb: &str, sub: &str) -> Right {
        let resource =
            if sub.is_empty() { self.kind.plural.clone() } else { format!("{}/{sub}", self.kind.plural) };
        Right::new(verb, &resource, &self.kind.gvk.group)
    }

    /// A case for a named object, which exists or does not.
    fn named(&self, operation: &str, sub: &str, verb: &str, exists: bool) -> Case {
        let name = self.name(operation, sub);
        let mut setup = Vec::new();
        if exists && self.kind.verbs.iter().any(|v| v == "create") {
            setup.push((self.collection(), self.object(&name)));
        }
        let tail = if sub.is_empty() { String::new() } else { format!("/{sub}") };
        let method = match verb {
            "get" => "GET",
            "update" => "PUT",
            "patch" => "PATCH",
            "delete" => "DELETE",
            _ => "POST",
        };
        let path = format!("{}/{name}{tail}", self.collection());
        let own = self.kind.plural == "namespaces";
        let namespace = if self.kind.namespaced { NAMESPACE } else { "" };
        Case {
            api_version: self.api_version.clone(),
            group: self.kind.gvk.group.clone(),
            resource: self.right(verb, sub).resource,
            operation: operation.to_owned(),
            method,
            path,
            content_type: "application/json",
            body: Body::None,
            needs: vec![self.right(verb, sub)],
            namespace: if own { name.clone() } else { namespace.to_owned() },
            path_name: name,
            setup,
            only_authorized: CONNECTED.contains(&sub),
        }
    }

    fn push(&mut self, case: Case) {
        self.cases.push(case);
    }

    /// A case, and the same as a dry run, each with its own object.
    fn both(&mut self, make: impl Fn(&Self, &str) -> Case, operation: &str) {
        let real = make(self, operation);
        self.push(real);
        let name = format!("{operation}-dry-run");
        let mut dry = make(self, &name);
        let mark = if dry.path.contains('?') { '&' } else { '?' };
        dry.path = format!("{}{mark}dryRun=All", dry.path);
        self.push(dry);
    }

    fn whole(&mut self) {
        for verb in self.kind.verbs.clone() {
            match verb.as_str() {
                "get" => self.push(self.named("get", "", "get", true)),
                "list" => self.push(self.at_collection("list", "list", "")),
                "watch" => self.push(self.at_collection("watch", "watch", "?watch=1&timeoutSeconds=5")),
                "create" => self.both(Self::creation, "create"),
                "update" => {
                    self.both(|m, o| m.update(o, ""), "update");
                    self.both(Self::update_of_new, "update-new");
                }
                "patch" => {
                    self.both(|m, o| m.merge(o, "", true), "patch");
                    self.both(|m, o| m.merge(o, "", false), "patch-new");
                    self.both(|m, o| m.apply(o, true), "apply");
                    self.both(|m, o| m.apply(o, false), "apply-new");
                }
                "delete" => self.both(|m, o| m.named(o, "", "delete", true), "delete"),
                "deletecollection" => self.both(
                    |m, o| m.at_collection(o, "deletecollection", "?labelSelector=nothing%3Dhere"),
                    "deletecollection",
                ),
                other => panic!("no case for verb {other}"),
            }
        }
    }

    fn at_collection(&self, operation: &str, verb: &str, query: &str) -> Case {
        let method = if verb == "deletecollection" { "DELETE" } else { "GET" };
        let path = format!("{}{query}", self.collection());
        let namespace = if self.kind.namespaced { NAMESPACE } else { "" };
        Case {
            method,
            path,
            path_name: String::new(),
            namespace: namespace.to_owned(),
            needs: vec![self.right(verb, "")],
            ..self.named(operation, "", verb, false)
        }
    }

    fn creation(&self, operation: &str) -> Case {
        let mut case = self.at_collection(operation, "create", "");
        case.method = "POST";
        let name = self.name(operation, "");
        let reads = self.kind.verbs.iter().any(|v| v == "get");
        let mut object = if reads { self.object(&name) } else { self.template.clone() };
        if self.kind.plural == "bindings" {
            object["metadata"]["name"] = json!(name);
            case.setup.push((format!("/api/v1/namespaces/{NAMESPACE}/pods"), pod(&name)));
        }
        // The role `system:basic-user` gives these to every authenticated user.
        if self.kind.plural.starts_with("selfsubject") {
            case.needs.clear();
        }
        case.body = Body::Given(object);
        case
    }

    fn update(&self, operation: &str, sub: &str) -> Case {
        let mut case = self.named(operation, sub, "update", true);
        let readable = sub.is_empty() || sub != "finalize";
        let path = if readable { case.path.clone() } else { case.path.replace("/finalize", "") };
        case.body = Body::Read(path);
        self.approves(&mut case, sub);
        case
    }

    fn update_of_new(&self, operation: &str) -> Case {
        let mut case = self.named(operation, "", "update", false);
        case.body = Body::Given(self.object(&case.path_name));
        if put_creates(&self.kind.gvk.group, &self.kind.plural) {
            case.needs.push(self.right("create", ""));
        }
        case
    }

    fn merge(&self, operation: &str, sub: &str, exists: bool) -> Case {
        let mut case = self.named(operation, sub, "patch", exists);
        case.content_type = "application/merge-patch+json";
        case.body = Body::Given(json!({"metadata": {"annotations": {"a": "b"}}}));
        if exists {
            self.approves(&mut case, sub);
        }
        case
    }

    fn apply(&self, operation: &str, exists: bool) -> Case {
        let mut case = self.named(operation, "", "patch", exists);
        case.content_type = "application/apply-patch+yaml";
        case.path.push_str("?fieldManager=authz&force=true");
        case.body = Body::Given(self.object(&case.path_name));
        if !exists {
            case.needs.push(self.right("create", ""));
        }
        case
    }

    fn apply_part(&self, operation: &str, sub: &str, api_version: &str, kind: &str, exists: bool) -> Case {
        let mut case = self.named(operation, sub, "patch", exists);
        case.content_type = "application/apply-patch+yaml";
        case.path.push_str("?fieldManager=authz&force=true");
        let mut part = json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": case.path_name}});
        if sub == "scale" {
            part["spec"] = json!({"replicas": 1});
        }
        case.body = Body::Given(part);
        if exists {
            self.approves(&mut case, sub);
        }
        case
    }

    /// The plugin CertificateApproval asks for a right on the signer too.
    fn approves(&self, case: &mut Case, sub: &str) {
        if sub == "approval" {
            case.needs.push(Right::new("approve", "signers", &self.kind.gvk.group));
        }
    }

    fn subresource(&mut self, sub: &str, verbs: &[String], api_version: &str, kind: &str) {
        let connects = CONNECTED.contains(&sub);
        for verb in verbs {
            match verb.as_str() {
                "create" if !connects => {
                    self.both(|m, o| m.part_creation(o, sub, api_version, kind), "create");
                }
                "update" if !connects => {
                    self.both(|m, o| m.update(o, sub), "update");
                    self.both(|m, o| m.part_update_of_new(o, sub, api_version, kind), "update-new");
                }
                "patch" if !connects => {
                    self.both(|m, o| m.merge(o, sub, true), "patch");
                    self.both(|m, o| m.merge(o, sub, false), "patch-new");
                    self.both(|m, o| m.apply_part(o, sub, api_version, kind, true), "apply");
                    self.both(|m, o| m.apply_part(o, sub, api_version, kind, false), "apply-new");
                }
                verb => {
                    let mut case = self.named(verb, sub, verb, true);
                    if verb == "get" && STREAMED.contains(&sub) {
                        case.needs.push(self.right("create", sub));
                    }
                    self.push(case);
                }
            }
        }
    }

    fn part_creation(&self, operation: &str, sub: &str, api_version: &str, kind: &str) -> Case {
        let mut case = self.named(operation, sub, "create", true);
        let mut part = json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": case.path_name}});
        match sub {
            "binding" => part["target"] = json!({"kind": "Node", "name": "authz-node"}),
            "token" => part = json!({"apiVersion": api_version, "kind": kind, "spec": {"audiences": ["a"]}}),
            _ => {}
        }
        case.body = Body::Given(part);
        case
    }

    fn part_update_of_new(&self, operation: &str, sub: &str, api_version: &str, kind: &str) -> Case {
        let mut case = self.named(operation, sub, "update", false);
        let whole = self.object(&case.path_name);
        let same = whole["kind"] == kind && whole["apiVersion"] == api_version;
        let part = json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": case.path_name}});
        case.body = Body::Given(if same { whole } else { part });
        if self.kind.plural == "services" {
            // The status has the strategy of the Service.
            case.needs.push(self.right("create", sub));
        }
        case
    }
}

/// A pod.
pub fn pod(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
        "spec": {"containers": [{"name": "c", "image": "i"}]}})
}

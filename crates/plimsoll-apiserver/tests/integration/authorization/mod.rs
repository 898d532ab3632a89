//! Authorization of every verb, subresource and way of creating, generated from the kind table.
//!
//! `table.tsv` has a row for each request: the rights that it needs and the status that kube-apiserver 1.36.2 answers
//! when the user has them. For each row a user with exactly these rights is let through, and a user who has every
//! right but one of them is refused in upstream's words.
//!
//! Where `KUBEBUILDER_ASSETS` names a directory with `etcd` and `kube-apiserver`, the same requests go to those and have
//! to agree with the table; `PLIMSOLL_RECORD=1` writes the table from their answers.

#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stderr)]

mod cases;
mod impersonation;
mod upstream;
mod users;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use cases::{Body, Case, NAMESPACE};
use http::Request;
use http_body_util::{BodyExt, Full};
use plimsoll_apimachinery::{Gvk, Kind, KindTable, Subresource, builtin};
use plimsoll_apiserver::auth::User;
use plimsoll_apiserver::{Server, ServerConfig};
use serde_json::{Value, json};
use tower::ServiceExt;
use upstream::{Call, Upstream};

const HEAD: &str = "# Recorded from kube-apiserver 1.36.2 with default admission and --authorization-mode=RBAC.\n\
                    # apiVersion, resource, operation, status with exactly these rights, rights (verb:resource.group)\n";
/// Users of kube-apiserver with a token each.
const MAX_REQUESTORS: usize = 100;
/// Statuses through which upstream creates an object.
const THROUGH_STATUS: [&str; 2] = ["services/status", "validatingadmissionpolicies/status"];
const WIDGETS: &str = "/apis/authz.example.com/v1/namespaces/authz/widgets";

/// The server that requests go to.
enum Target {
    Embedded(Arc<Server>),
    Upstream(Box<Upstream>),
}

impl Target {
    /// Sends a request as a user, whom kube-apiserver's administrator impersonates; `None`: the administrator.
    async fn send(
        &self,
        user: Option<&str>,
        method: &str,
        path: &str,
        content_type: &str,
        body: &str,
    ) -> (u16, Value) {
        match self {
            Self::Upstream(upstream) => {
                let headers: Vec<_> =
                    user.iter().map(|u| ("impersonate-user".to_owned(), (*u).to_owned())).collect();
                let call = Call { token: None, headers: &headers, method, path, content_type, body };
                upstream.send(&call).await
            }
            Self::Embedded(server) => {
                let user = user.map_or_else(User::admin, |user| User::new(user, &[]));
                embedded(server, user, &Call { method, path, content_type, body, ..Call::default() }).await
            }
        }
    }

    /// Sends a request with headers as a user who has been authenticated.
    async fn impersonate(
        &self,
        requestor: &str,
        headers: &[(String, String)],
        method: &str,
        path: &str,
        body: &str,
    ) -> (u16, Value) {
        let content_type = "application/json";
        let call = Call { token: Some(requestor), headers, method, path, content_type, body };
        match self {
            Self::Upstream(upstream) => upstream.send(&call).await,
            Self::Embedded(server) => embedded(server, User::new(requestor, &[]), &call).await,
        }
    }

    async fn admin(&self, method: &str, path: &str, body: Option<&Value>) -> (u16, Value) {
        let body = body.map(Value::to_string).unwrap_or_default();
        self.send(None, method, path, "application/json", &body).await
    }

    async fn create(&self, path: &str, object: &Value) {
        let (code, answer) = self.admin("POST", path, Some(object)).await;
        assert_eq!(code, 201, "{path}: {answer}\n{object}");
    }

    async fn run(&self, user: &str, case: &Case, body: &str) -> (u16, Value) {
        self.send(Some(user), case.method, &case.path, case.content_type, body).await
    }
}

async fn embedded(server: &Arc<Server>, user: User, call: &Call<'_>) -> (u16, Value) {
    let mut request = Request::builder().method(call.method).uri(call.path);
    for (name, value) in call.headers {
        request = request.header(name, value);
    }
    let request = request.header("content-type", call.content_type);
    let request = request.body(Full::new(Bytes::from(call.body.to_owned()))).unwrap();
    let response = server.service_as(user).oneshot(request).await.unwrap();
    let status = response.status().as_u16();
    if call.path.contains("watch=1") && status == 200 {
        return (status, Value::Null);
    }
    let bytes = response.into_body().collect().await.unwrap().to_bytes();
    (status, serde_json::from_slice(&bytes).unwrap_or_default())
}

/// The kinds of the server and a defined one with all that definitions can have.
fn kinds() -> KindTable {
    let mut table = builtin::table();
    let gvk = Gvk { group: "authz.example.com".into(), version: "v1".into(), kind: "Widget".into() };
    let verbs = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
    let scale = Gvk { group: "autoscaling".into(), version: "v1".into(), kind: "Scale".into() };
    let sub = |name: &str, kind: &Gvk| Subresource {
        name: name.to_owned(),
        kind: kind.clone(),
        verbs: verbs("get patch update"),
    };
    table.insert(Kind {
        subresources: vec![sub("scale", &scale), sub("status", &gvk)],
        gvk,
        plural: "widgets".into(),
        namespaced: true,
        verbs: verbs("create delete deletecollection get list patch update watch"),
        ..Kind::default()
    });
    table
}

fn cases() -> Vec<Case> {
    let text = std::fs::read_to_string(data("objects.json")).unwrap();
    let templates: BTreeMap<String, Value> = serde_json::from_str(&text).unwrap();
    cases::all(&kinds(), &templates)
}

/// A file beside this one.
fn data(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/integration/authorization").join(name)
}

/// Status and rights by the case's ID.
fn table() -> BTreeMap<String, (u16, String)> {
    let text = std::fs::read_to_string(data("table.tsv")).unwrap();
    let row = |line: &str| {
        let columns: Vec<&str> = line.split('\t').collect();
        let [api_version, resource, operation, status, needs] = columns[..] else { panic!("{line}") };
        let id = format!("{api_version}\t{resource}\t{operation}");
        (id, (status.parse().unwrap(), needs.to_owned()))
    };
    text.lines().filter(|l| !l.starts_with('#')).map(row).collect()
}

/// The objects that all cases share, the definition, and what each case starts from.
async fn prepare(target: &Target, cases: &[Case]) {
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}});
    target.create("/api/v1/namespaces", &namespace).await;
    let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}});
    target.create(&format!("/api/v1/namespaces/{NAMESPACE}/serviceaccounts"), &account).await;
    let rbac = "rbac.authorization.k8s.io/v1";
    let empty =
        json!({"apiVersion": rbac, "kind": "ClusterRole", "metadata": {"name": "authz-empty"}, "rules": []});
    target.create(&format!("/apis/{rbac}/clusterroles"), &empty).await;
    let free = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let scale = json!({"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"});
    let version = json!({"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": free},
        "subresources": {"status": {}, "scale": scale}});
    let names =
        json!({"plural": "widgets", "singular": "widget", "kind": "Widget", "listKind": "WidgetList"});
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "widgets.authz.example.com"},
        "spec": {"group": "authz.example.com", "scope": "Namespaced", "names": names, "versions": [version]},
    });
    target.create("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", &definition).await;
    until(async || target.admin("GET", WIDGETS, None).await.0 == 200).await;
    let users = users::objects(cases);
    for (path, object) in &users {
        target.create(path, object).await;
    }
    for (path, object) in cases.iter().flat_map(|c| &c.setup) {
        target.create(path, object).await;
    }
    // kube-apiserver's authorizer reads from a cache, in the order of writes.
    let last = &users.last().unwrap().1["metadata"]["name"];
    let review = json!({"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview",
        "spec": {"user": last, "nonResourceAttributes": {"verb": "x", "path": "/x"}}});
    let path = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
    until(async || target.admin("POST", path, Some(&review)).await.1["status"]["allowed"] == true).await;
}

async fn until(mut is_so: impl AsyncFnMut() -> bool) {
    let began = Instant::now();
    while !is_so().await {
        assert!(began.elapsed() < Duration::from_secs(30), "waited too long");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// Runs all cases. Gives the status of each with exactly the rights it needs, and what was wrong with refusals.
async fn run(target: &Target, cases: &[Case]) -> (BTreeMap<String, u16>, Vec<String>) {
    prepare(target, cases).await;
    let (mut statuses, mut wrong) = (BTreeMap::new(), Vec::new());
    for case in cases {
        let body = match &case.body {
            Body::None => String::new(),
            Body::Given(object) => object.to_string(),
            Body::Read(path) => target.admin("GET", path, None).await.1.to_string(),
        };
        for right in &case.needs {
            let user = users::without(right);
            let (code, answer) = target.run(&user, case, &body).await;
            let message = answer["message"].as_str().unwrap_or_default();
            let expected = case.refusal(&user, right);
            if code != 403 || message != expected {
                wrong.push(format!(
                    "{}\n  without {right}: {code} {message}\n  expected 403 {expected}",
                    case.id()
                ));
            }
        }
        let (code, answer) = target.run(&users::with_only(&case.needs), case, &body).await;
        if code == 403 {
            wrong.push(format!("{}\n  with {}: {code} {}", case.id(), case.needs_text(), answer["message"]));
        }
        if code >= 400 && std::env::var_os("PLIMSOLL_VERBOSE").is_some() {
            eprintln!("{} {code} {}", case.id(), answer["message"]);
        }
        statuses.insert(case.id(), code);
    }
    (statuses, wrong)
}

fn compare(cases: &[Case], statuses: &BTreeMap<String, u16>) -> Vec<String> {
    let table = table();
    let compared = cases.iter().filter(|c| !c.only_authorized);
    let differs = compared.filter_map(|case| {
        let (id, found) = (case.id(), statuses[&case.id()]);
        let expected = table.get(&id)?.0;
        (found != expected)
            .then(|| format!("{id}\n  with {}: {found}, expected {expected}", case.needs_text()))
    });
    differs.collect()
}

fn assert_none(wrong: &[String]) {
    let shown: Vec<&str> = wrong.iter().take(40).map(String::as_str).collect();
    assert!(wrong.is_empty(), "{} cases are wrong:\n{}", wrong.len(), shown.join("\n"));
}

#[test]
fn the_table_has_every_request() {
    let table = table();
    let cases = cases();
    let wrong: Vec<String> = cases
        .iter()
        .filter(|case| table.get(&case.id()).is_none_or(|row| row.1 != case.needs_text()))
        .map(|case| format!("{}\t{}: {:?}", case.id(), case.needs_text(), table.get(&case.id())))
        .collect();
    assert_none(&wrong);
    assert_eq!(table.len(), cases.len(), "rows of the table that no case is for");
}

#[tokio::test]
async fn requests_need_the_rights_in_the_table_and_no_others() {
    let target = Target::Embedded(Server::new(ServerConfig::default()).await.unwrap());
    // The server refuses MutatingAdmissionPolicies, and creates nothing through a status.
    let created = |c: &Case| THROUGH_STATUS.contains(&c.resource.as_str()) && c.operation.contains("-new");
    let (through_status, cases): (Vec<Case>, Vec<Case>) =
        cases().into_iter().filter(|c| !c.resource.starts_with("mutatingadmissionpolic")).partition(created);
    let (statuses, mut wrong) = run(&target, &cases).await;
    wrong.extend(compare(&cases, &statuses));
    assert_none(&wrong);
    assert!(!through_status.is_empty());
    for case in &through_status {
        let Body::Given(body) = &case.body else { continue };
        let body = body.to_string();
        let (code, answer) = target.send(None, case.method, &case.path, case.content_type, &body).await;
        assert_eq!(code, 404, "{}: {answer}", case.id());
    }
}

#[tokio::test]
async fn users_act_as_others_with_the_rights_that_upstream_asks_for() {
    let target = Target::Embedded(Server::new(ServerConfig::default()).await.unwrap());
    compare_impersonation(&impersonation::answers(&target).await);
}

/// The token of a pod's service account says on which node the pod is.
#[tokio::test]
async fn a_service_account_acts_as_its_own_node_only() {
    const NODE: &str = "authentication.kubernetes.io/node-name";
    let server = Server::new(ServerConfig::default()).await.unwrap();
    let mut agent = User::new("system:serviceaccount:kube-system:agent", &[]);
    agent.extra.insert(NODE.to_owned(), vec!["n1".to_owned()]);
    let target = Target::Embedded(Arc::clone(&server));
    let rights = json!([
        "impersonate:associated-node nodes.authentication.k8s.io =*",
        "impersonate-on:associated-node:create selfsubjectreviews.authentication.k8s.io",
    ]);
    impersonation::grant(&target, &agent.name, &rights).await;
    let body = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}).to_string();
    for (node, code) in [("n1", 201), ("n2", 403)] {
        let headers = [("impersonate-user".to_owned(), format!("system:node:{node}"))];
        let path = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
        let (method, content_type) = ("POST", "application/json");
        let call = Call { token: None, headers: &headers, method, path, content_type, body: &body };
        let (found, answer) = embedded(&server, agent.clone(), &call).await;
        assert_eq!(found, code, "{answer}");
        if found == 201 {
            let user =
                json!({"username": "system:node:n1", "groups": ["system:nodes", "system:authenticated"]});
            assert_eq!(answer["status"]["userInfo"], user);
        } else {
            let message = answer["message"].as_str().unwrap();
            assert!(message.contains("cannot impersonate-on:arbitrary-node:create resource"), "{message}");
        }
    }
}

fn compare_impersonation(found: &Value) {
    let text = std::fs::read_to_string(data(impersonation::RECORDED)).unwrap();
    let recorded: Value = serde_json::from_str(&text).unwrap();
    for (about, expected) in recorded.as_object().unwrap() {
        assert_eq!(&found[about], expected, "{about}");
    }
    assert_eq!(found.as_object().unwrap().len(), recorded.as_object().unwrap().len());
}

#[tokio::test]
async fn kube_apiserver_agrees_with_the_tables() {
    let Some(assets) = std::env::var_os("KUBEBUILDER_ASSETS").map(PathBuf::from) else {
        eprintln!("skipped: KUBEBUILDER_ASSETS is not set");
        return;
    };
    if !assets.join("kube-apiserver").exists() {
        eprintln!("skipped: no kube-apiserver in {}", assets.display());
        return;
    }
    let target = Target::Upstream(Box::new(Upstream::start(&assets).await));
    let record = std::env::var_os("PLIMSOLL_RECORD").is_some();
    let acting = impersonation::answers(&target).await;
    if record {
        std::fs::write(data(impersonation::RECORDED), format!("{acting:#}\n")).unwrap();
    }
    compare_impersonation(&acting);
    let cases = cases();
    let (statuses, mut wrong) = run(&target, &cases).await;
    if record {
        let row = |c: &Case| format!("{}\t{}\t{}\n", c.id(), statuses[&c.id()], c.needs_text());
        let rows: String = cases.iter().map(row).collect();
        std::fs::write(data("table.tsv"), format!("{HEAD}{rows}")).unwrap();
    }
    wrong.extend(compare(&cases, &statuses));
    assert_none(&wrong);
}

//! ClusterRoles for users of the queueing kinds: those of Kueue's `config/components/rbac`, under the names that Kueue's
//! manifests give them, and the same for our own kinds. Labels add them to `kueue-batch-admin-role` and
//! `kueue-batch-user-role`, and to Kubernetes' `admin`, `edit` and `view`.

use plimsoll_state::collect::InsertEach as _;
use serde_json::{Value, json};

/// What a role is part of.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Part {
    /// `batch-admin` alone: changes what administrators set up.
    BatchAdmin,
    /// `batch-admin` and Kubernetes' `admin`: reads what administrators set up.
    Admins,
    /// `batch-admin` and `batch-user`: runs jobs.
    Batch,
    /// Every role: reads what tenants have in their namespaces.
    All,
    /// Every role but `batch-user`: reads which workloads wait in ClusterQueues.
    Waiting,
}

impl Part {
    fn labels(self) -> Vec<String> {
        let batch = |who: &str| format!("rbac.kueue.x-k8s.io/batch-{who}");
        let to = |role: &str| format!("rbac.authorization.k8s.io/aggregate-to-{role}");
        let mut labels = vec![batch("admin")];
        if matches!(self, Self::Batch | Self::All) {
            labels.push(batch("user"));
        }
        if matches!(self, Self::Admins | Self::All | Self::Waiting) {
            labels.push(to("admin"));
        }
        if matches!(self, Self::All | Self::Waiting) {
            labels.extend([to("edit"), to("view")]);
        }
        labels
    }
}

/// A kind that roles are about.
struct Row {
    prefix: &'static str,
    group: &'static str,
    plural: &'static str,
    kind: &'static str,
    /// Whether the roles name its status too.
    status: bool,
    editor: Part,
    viewer: Part,
}

const fn kueue(plural: &'static str, kind: &'static str, status: bool, viewer: Part) -> Row {
    Row { prefix: "kueue", group: "kueue.x-k8s.io", plural, kind, status, editor: Part::BatchAdmin, viewer }
}

const fn job(group: &'static str, plural: &'static str, kind: &'static str) -> Row {
    Row { prefix: "kueue", group, plural, kind, status: true, editor: Part::Batch, viewer: Part::All }
}

const ROWS: [Row; 24] = [
    kueue("clusterqueues", "clusterqueue", true, Part::Admins),
    kueue("localqueues", "localqueue", true, Part::All),
    kueue("resourceflavors", "resourceflavor", false, Part::Admins),
    kueue("topologies", "topology", false, Part::Admins),
    kueue("preemptionconfigs", "preemptionconfig", false, Part::Admins),
    kueue("workloads", "workload", true, Part::All),
    kueue("cohorts", "cohort", false, Part::Admins),
    job("batch", "jobs", "job"),
    job("jobset.x-k8s.io", "jobsets", "jobset"),
    job("kubeflow.org", "pytorchjobs", "pytorchjob"),
    job("kubeflow.org", "tfjobs", "tfjob"),
    job("kubeflow.org", "xgboostjobs", "xgboostjob"),
    job("kubeflow.org", "paddlejobs", "paddlejob"),
    job("kubeflow.org", "jaxjobs", "jaxjob"),
    job("kubeflow.org", "mpijobs", "mpijob"),
    job("ray.io", "rayclusters", "raycluster"),
    job("ray.io", "rayjobs", "rayjob"),
    job("ray.io", "rayservices", "rayservice"),
    job("leaderworkerset.x-k8s.io", "leaderworkersets", "leaderworkerset"),
    job("sparkoperator.k8s.io", "sparkapplications", "sparkapplication"),
    job("trainer.kubeflow.org", "trainjobs", "trainjob"),
    Row {
        prefix: "plimsoll",
        group: "plimsoll.dev",
        plural: "runwindows",
        kind: "runwindow",
        status: true,
        editor: Part::BatchAdmin,
        viewer: Part::Admins,
    },
    Row {
        prefix: "plimsoll",
        group: "plimsoll.dev",
        plural: "quotaloans",
        kind: "quotaloan",
        status: true,
        editor: Part::BatchAdmin,
        viewer: Part::Admins,
    },
    Row {
        prefix: "plimsoll",
        group: "plimsoll.dev",
        plural: "jobkinds",
        kind: "jobkind",
        status: true,
        editor: Part::BatchAdmin,
        viewer: Part::Admins,
    },
];

const EDIT: [&str; 7] = ["create", "delete", "get", "list", "patch", "update", "watch"];
const VIEW: [&str; 3] = ["get", "list", "watch"];

/// All roles, as they are installed.
pub fn objects() -> Vec<Value> {
    let aggregates = ["admin", "user"].map(|who| {
        let selector = json!({"matchLabels": {format!("rbac.kueue.x-k8s.io/batch-{who}"): "true"}});
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
            "metadata": {"name": format!("kueue-batch-{who}-role")},
            "aggregationRule": {"clusterRoleSelectors": [selector]},
        })
    });
    let parts = ROWS.iter().flat_map(|row| [row.role("editor", &EDIT), row.role("viewer", &VIEW)]);
    let waiting = [
        waiting("clusterqueues", "pending-workloads-cq", Part::Waiting),
        waiting("localqueues", "pending-workloads-lq", Part::All),
    ];
    // Who reads metrics where clients are authenticated (Kueue `metrics_reader_role.yaml`).
    let metrics = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "kueue-metrics-reader"},
        "rules": [{"nonResourceURLs": ["/metrics"], "verbs": ["get"]}],
    });
    aggregates.into_iter().chain(parts).chain(waiting).chain([metrics]).collect()
}

fn labels(part: Part, role: &str) -> serde_json::Map<String, Value> {
    let mut labels: serde_json::Map<String, Value> =
        part.labels().into_iter().map(|label| (label, json!("true"))).insert_each();
    labels.insert("rbac.kueue.x-k8s.io/role".to_owned(), json!(role));
    labels
}

/// Who reads which workloads wait in a kind of queue.
fn waiting(plural: &str, name: &str, part: Part) -> Value {
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
        "metadata": {"name": format!("kueue-{name}-viewer-role"), "labels": labels(part, &format!("{name}-viewer"))},
        "rules": [{"apiGroups": ["visibility.kueue.x-k8s.io"],
                   "resources": [format!("{plural}/pendingworkloads")], "verbs": VIEW}],
    })
}

impl Row {
    fn role(&self, what: &str, verbs: &[&str]) -> Value {
        let part = if what == "editor" { self.editor } else { self.viewer };
        let labels = labels(part, &format!("{}-{what}", self.kind));
        let mut rules = vec![json!({"apiGroups": [self.group], "resources": [self.plural], "verbs": verbs})];
        if self.status {
            let status = format!("{}/status", self.plural);
            rules.push(json!({"apiGroups": [self.group], "resources": [status], "verbs": ["get"]}));
        }
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
            "metadata": {"name": format!("{}-{}-{what}-role", self.prefix, self.kind), "labels": labels},
            "rules": rules,
        })
    }
}

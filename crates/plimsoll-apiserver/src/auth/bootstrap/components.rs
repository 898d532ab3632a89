//! What Kubernetes' own programs may do, and the roles that users hand on: as data.

use serde_json::{Value, json};

use super::{binding_to, meta, role};

const KUBE_SYSTEM: &str = "kube-system";
const READ: &str = "get list watch";
const WRITE: &str = "create delete deletecollection patch update";

/// Verbs, groups (`core` for the core group), resources, names of objects; words separated by spaces.
type Row = (&'static str, &'static str, &'static str, &'static str);

fn rules(rows: &[Row]) -> Value {
    let words = |text: &str| -> Vec<String> { text.split_whitespace().map(str::to_owned).collect() };
    let rule = |(verbs, groups, resources, names): &Row| {
        let groups: Vec<&str> = groups.split_whitespace().map(|g| if g == "core" { "" } else { g }).collect();
        let mut rule = json!({"verbs": words(verbs), "apiGroups": groups, "resources": words(resources)});
        if !names.is_empty() {
            rule["resourceNames"] = json!(words(names));
        }
        rule
    };
    rows.iter().map(rule).collect()
}

const AUTH_DELEGATOR: &[Row] = &[
    ("create", "authentication.k8s.io", "tokenreviews", ""),
    ("create", "authorization.k8s.io", "subjectaccessreviews", ""),
];

const SCHEDULER: &[Row] = &[
    ("create patch update", "core events.k8s.io", "events", ""),
    ("create", "coordination.k8s.io", "leases", ""),
    ("get list update watch", "coordination.k8s.io", "leases", "kube-scheduler"),
    (
        "create delete deletecollection get list patch update watch",
        "coordination.k8s.io",
        "leasecandidates",
        "",
    ),
    (READ, "core", "nodes", ""),
    ("delete get list watch", "core", "pods", ""),
    ("create", "core", "bindings pods/binding", ""),
    ("patch update", "core", "pods/status", ""),
    (READ, "core", "replicationcontrollers services", ""),
    (READ, "apps extensions", "replicasets", ""),
    (READ, "apps", "statefulsets", ""),
    (READ, "policy", "poddisruptionbudgets", ""),
    (READ, "core", "persistentvolumeclaims persistentvolumes", ""),
    ("create", "authentication.k8s.io", "tokenreviews", ""),
    ("create", "authorization.k8s.io", "subjectaccessreviews", ""),
    (READ, "storage.k8s.io", "csinodes volumeattachments csidrivers csistoragecapacities", ""),
    (READ, "core", "namespaces", ""),
    (READ, "resource.k8s.io", "deviceclasses resourceslices", ""),
    ("get list patch update watch", "resource.k8s.io", "resourceclaims resourceclaims/status", ""),
    ("update", "core", "pods/finalizers", ""),
    ("create delete", "resource.k8s.io", "resourceclaims", ""),
    ("patch update", "resource.k8s.io", "resourceclaims/binding", ""),
    // Behind a gate upstream (GenericWorkload), which a scheduler of this server's version may have on.
    (READ, "scheduling.k8s.io", "podgroups workloads", ""),
    ("patch update", "scheduling.k8s.io", "podgroups/status", ""),
];

const VOLUME_SCHEDULER: &[Row] = &[
    ("get list patch update watch", "core", "persistentvolumes persistentvolumeclaims", ""),
    (READ, "storage.k8s.io", "storageclasses", ""),
];

const CONTROLLER_MANAGER: &[Row] = &[
    ("create patch update", "core events.k8s.io", "events", ""),
    ("create", "coordination.k8s.io", "leases", ""),
    ("get update", "coordination.k8s.io", "leases", "kube-controller-manager"),
    ("create", "core", "secrets serviceaccounts", ""),
    ("delete", "core", "secrets", ""),
    ("get", "core", "configmaps namespaces secrets serviceaccounts", ""),
    ("update", "core", "secrets serviceaccounts", ""),
    ("create", "authentication.k8s.io", "tokenreviews", ""),
    ("create", "authorization.k8s.io", "subjectaccessreviews", ""),
    ("list watch", "*", "*", ""),
    ("create", "core", "serviceaccounts/token", ""),
];

const TO_ADMIN: &[Row] = &[
    ("create", "authorization.k8s.io", "localsubjectaccessreviews", ""),
    (
        "create delete deletecollection get list patch update watch",
        "rbac.authorization.k8s.io",
        "rolebindings roles",
        "",
    ),
];

const TO_EDIT: &[Row] = &[
    (READ, "core", "pods/attach pods/exec pods/portforward pods/proxy secrets services/proxy", ""),
    ("impersonate", "core", "serviceaccounts", ""),
    (WRITE, "core", "pods pods/attach pods/exec pods/portforward pods/proxy", ""),
    ("create", "core", "pods/eviction", ""),
    (
        WRITE,
        "core",
        "configmaps persistentvolumeclaims replicationcontrollers replicationcontrollers/scale secrets \
         serviceaccounts services services/proxy",
        "",
    ),
    ("create", "core", "serviceaccounts/token", ""),
    (WRITE, "core events.k8s.io", "events", ""),
    (
        WRITE,
        "apps",
        "daemonsets deployments deployments/rollback deployments/scale replicasets replicasets/scale statefulsets \
         statefulsets/scale",
        "",
    ),
    (WRITE, "autoscaling", "horizontalpodautoscalers", ""),
    (WRITE, "batch", "cronjobs jobs", ""),
    (
        WRITE,
        "extensions",
        "daemonsets deployments deployments/rollback deployments/scale ingresses networkpolicies replicasets \
         replicasets/scale replicationcontrollers/scale",
        "",
    ),
    (WRITE, "policy", "poddisruptionbudgets", ""),
    (WRITE, "networking.k8s.io", "ingresses networkpolicies", ""),
    ("create delete deletecollection get list patch update watch", "coordination.k8s.io", "leases", ""),
    (WRITE, "resource.k8s.io", "resourceclaims resourceclaimtemplates", ""),
];

const TO_VIEW: &[Row] = &[
    (
        READ,
        "core",
        "configmaps endpoints persistentvolumeclaims persistentvolumeclaims/status pods replicationcontrollers \
         replicationcontrollers/scale serviceaccounts services services/status",
        "",
    ),
    (
        READ,
        "core",
        "bindings limitranges namespaces/status pods/log pods/status replicationcontrollers/status resourcequotas \
         resourcequotas/status",
        "",
    ),
    (READ, "core", "namespaces", ""),
    (READ, "core events.k8s.io", "events", ""),
    (READ, "discovery.k8s.io", "endpointslices", ""),
    (
        READ,
        "apps",
        "controllerrevisions daemonsets daemonsets/status deployments deployments/scale deployments/status \
         replicasets replicasets/scale replicasets/status statefulsets statefulsets/scale statefulsets/status",
        "",
    ),
    (READ, "autoscaling", "horizontalpodautoscalers horizontalpodautoscalers/status", ""),
    (READ, "batch", "cronjobs cronjobs/status jobs jobs/status", ""),
    (
        READ,
        "extensions",
        "daemonsets daemonsets/status deployments deployments/scale deployments/status ingresses ingresses/status \
         networkpolicies replicasets replicasets/scale replicasets/status replicationcontrollers/scale",
        "",
    ),
    (READ, "policy", "poddisruptionbudgets poddisruptionbudgets/status", ""),
    (READ, "networking.k8s.io", "ingresses ingresses/status networkpolicies", ""),
    (READ, "resource.k8s.io", "resourceclaims resourceclaims/status resourceclaimtemplates", ""),
];

/// Roles and bindings of Kubernetes' programs; `admin`, `edit` and `view`, which the controller of aggregated roles
/// fills.
pub fn objects() -> Vec<Value> {
    let label = |to: &str| format!("rbac.authorization.k8s.io/aggregate-to-{to}");
    let labelled = |name: &str, rows: &[Row], to: &str| {
        let mut part = role(name, rules(rows));
        part["metadata"]["labels"][label(to)] = json!("true");
        part
    };
    let aggregate = |name: &str, into: Option<&str>| {
        let mut whole = match into {
            Some(into) => labelled(name, &[], into),
            None => role(name, json!([])),
        };
        let labels = json!({"matchLabels": {label(name): "true"}});
        whole["aggregationRule"] = json!({"clusterRoleSelectors": [labels]});
        whole
    };
    let user = |role: &str, user: &str| binding_to(role, "User", &[user]);
    let mut all = vec![
        labelled("system:aggregate-to-admin", TO_ADMIN, "admin"),
        labelled("system:aggregate-to-edit", TO_EDIT, "edit"),
        labelled("system:aggregate-to-view", TO_VIEW, "view"),
        aggregate("admin", None),
        aggregate("edit", Some("admin")),
        aggregate("view", Some("edit")),
        role("system:auth-delegator", rules(AUTH_DELEGATOR)),
        role("system:kube-scheduler", rules(SCHEDULER)),
        role("system:volume-scheduler", rules(VOLUME_SCHEDULER)),
        role("system:kube-controller-manager", rules(CONTROLLER_MANAGER)),
        user("system:kube-scheduler", "system:kube-scheduler"),
        user("system:volume-scheduler", "system:kube-scheduler"),
        user("system:kube-controller-manager", "system:kube-controller-manager"),
    ];
    let reader = "extension-apiserver-authentication-reader";
    all.push(local(reader, &[(READ, "core", "configmaps", "extension-apiserver-authentication")]));
    let both = ["system:kube-controller-manager", "system:kube-scheduler"];
    all.push(bind_local("system::extension-apiserver-authentication-reader", reader, &both));
    for program in ["kube-controller-manager", "kube-scheduler"] {
        let name = format!("system::leader-locking-{program}");
        let lock = "create get list update watch";
        all.push(local(&name, &[(lock, "coordination.k8s.io", "leases leasecandidates", "")]));
        all.push(bind_local(&name, &name, &[&format!("system:{program}")]));
    }
    all
}

fn local(name: &str, rows: &[Row]) -> Value {
    let mut metadata = meta(name);
    metadata["namespace"] = json!(KUBE_SYSTEM);
    json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": metadata, "rules": rules(rows)})
}

fn bind_local(name: &str, role: &str, users: &[&str]) -> Value {
    let mut binding = binding_to(name, "User", users);
    binding["kind"] = json!("RoleBinding");
    binding["metadata"]["namespace"] = json!(KUBE_SYSTEM);
    binding["roleRef"] = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": role});
    binding
}

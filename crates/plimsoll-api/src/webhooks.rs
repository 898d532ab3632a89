//! The admission webhooks of Kueue (`config/components/webhook/manifests.yaml`) and our own: which there are, at
//! which paths, and the two configurations that register them.

use serde_json::{Value, json};

use crate::resource::Resource;

/// Name of the MutatingWebhookConfiguration.
pub const MUTATING: &str = "plimsoll-mutating-webhook-configuration";
/// Name of the ValidatingWebhookConfiguration.
pub const VALIDATING: &str = "plimsoll-validating-webhook-configuration";
/// Path of the conversion webhook.
pub const CONVERT: &str = "/convert";
/// Namespace that the manifests install into.
pub const NAMESPACE: &str = "plimsoll-system";
/// Service in front of the webhooks.
pub const SERVICE: &str = "plimsoll-webhook-service";
/// Service in front of the conversion webhook. It leads to replicas that are not ready, too: objects that are stored in another
/// version can't be listed without them, and a replica is not ready before it has listed everything.
pub const CONVERSION_SERVICE: &str = "plimsoll-conversion-service";
/// Secret with the certificates of the webhooks.
pub const SECRET: &str = "plimsoll-webhook-server-cert";

/// A resource that webhooks look at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Target {
    /// Group, empty for the core group.
    pub group: &'static str,
    /// Version.
    pub version: &'static str,
    /// Plural.
    pub plural: &'static str,
    /// Kind in lower case, as paths and names have it.
    pub kind: &'static str,
    /// Whether objects are changed when they are created, and not only looked at.
    pub mutates: bool,
    /// Whether they are also changed when they are updated.
    pub follows: bool,
    /// Whether namespaces of the system are left alone.
    pub selects: bool,
    /// Whether writes of the status are validated too.
    pub status: bool,
}

const fn kueue(plural: &'static str, kind: &'static str, mutates: bool) -> Target {
    Target {
        group: "kueue.x-k8s.io",
        version: "v1beta2",
        plural,
        kind,
        mutates,
        follows: false,
        selects: false,
        status: false,
    }
}

const fn apps(plural: &'static str, kind: &'static str) -> Target {
    Target {
        group: "apps",
        version: "v1",
        plural,
        kind,
        mutates: true,
        follows: true,
        selects: true,
        status: false,
    }
}

const fn job(group: &'static str, plural: &'static str, kind: &'static str) -> Target {
    Target { group, version: "v1", plural, kind, mutates: true, follows: false, selects: true, status: false }
}

const fn custom(
    group: &'static str,
    version: &'static str,
    plural: &'static str,
    kind: &'static str,
) -> Target {
    Target { version, ..job(group, plural, kind) }
}

/// Everything that webhooks look at.
pub const TARGETS: [Target; 26] = [
    job("batch", "jobs", "job"),
    job("", "pods", "pod"),
    apps("deployments", "deployment"),
    apps("statefulsets", "statefulset"),
    custom("jobset.x-k8s.io", "v1alpha2", "jobsets", "jobset"),
    custom("kubeflow.org", "v1", "pytorchjobs", "pytorchjob"),
    custom("kubeflow.org", "v1", "tfjobs", "tfjob"),
    custom("kubeflow.org", "v1", "xgboostjobs", "xgboostjob"),
    custom("kubeflow.org", "v1", "paddlejobs", "paddlejob"),
    custom("kubeflow.org", "v1", "jaxjobs", "jaxjob"),
    custom("kubeflow.org", "v2beta1", "mpijobs", "mpijob"),
    custom("ray.io", "v1", "rayclusters", "raycluster"),
    custom("ray.io", "v1", "rayjobs", "rayjob"),
    custom("ray.io", "v1", "rayservices", "rayservice"),
    custom("workload.codeflare.dev", "v1beta2", "appwrappers", "appwrapper"),
    Target {
        follows: true,
        ..custom("leaderworkerset.x-k8s.io", "v1", "leaderworkersets", "leaderworkerset")
    },
    custom("sparkoperator.k8s.io", "v1beta2", "sparkapplications", "sparkapplication"),
    custom("trainer.kubeflow.org", "v1alpha1", "trainjobs", "trainjob"),
    kueue("clusterqueues", "clusterqueue", true),
    kueue("cohorts", "cohort", false),
    kueue("resourceflavors", "resourceflavor", true),
    Target { status: true, ..kueue("workloads", "workload", true) },
    kueue("admissionchecks", "admissioncheck", false),
    kueue("multikueueconfigs", "multikueueconfig", false),
    kueue("multikueueclusters", "multikueuecluster", false),
    Target {
        group: "plimsoll.dev",
        version: "v1alpha1",
        plural: "runwindows",
        kind: "runwindow",
        mutates: false,
        follows: false,
        selects: false,
        status: false,
    },
];

impl Target {
    fn path(&self, verb: &str) -> String {
        let group = self.group.replace('.', "-");
        format!("/{verb}-{group}-{}-{}", self.version, self.kind)
    }

    /// What is at a path, and whether it mutates; `None`: nothing.
    pub fn at(path: &str) -> Option<(Self, bool)> {
        Self::among(&TARGETS, path)
    }

    /// [`Target::at`] among other targets.
    pub fn among(targets: &[Self], path: &str) -> Option<(Self, bool)> {
        targets.iter().find_map(|t| {
            let mutates = t.mutates && path == t.path("mutate");
            (mutates || path == t.path("validate")).then_some((*t, mutates))
        })
    }

    /// A kind of job that a JobKind declares, by its resource and the name of its framework, `<group>/<kind in lower case>`.
    pub fn declared(resource: Resource, framework: &'static str) -> Self {
        let version =
            resource.api_version.split_once('/').map_or(resource.api_version, |(_, version)| version);
        let kind = framework.split_once('/').map_or(framework, |(_, kind)| kind);
        custom(resource.group(), version, resource.plural, kind)
    }

    /// One entry of a configuration.
    fn webhook(&self, mutates: bool, client: &impl Fn(&str) -> Value, namespace: &str) -> Value {
        let (letter, verb) = if mutates { ("m", "mutate") } else { ("v", "validate") };
        let only_new = mutates && !self.follows;
        let operations = if only_new { json!(["CREATE"]) } else { json!(["CREATE", "UPDATE"]) };
        let mut resources = vec![self.plural.to_owned()];
        if self.status && !mutates {
            resources.push(format!("{}/status", self.plural));
        }
        let mut webhook = json!({
            "name": format!("{letter}{}.kb.io", self.kind),
            "admissionReviewVersions": ["v1"],
            "clientConfig": client(&self.path(verb)),
            "failurePolicy": "Fail",
            "sideEffects": "None",
            "rules": [{"apiGroups": [self.group], "apiVersions": [self.version], "operations": operations,
                       "resources": resources}],
        });
        if self.selects {
            // Kueue's own namespace is ours here. Without this, our pods could not start while none of us runs.
            let mut names = vec!["kube-system", "kueue-system", NAMESPACE];
            if !names.contains(&namespace) {
                names.push(namespace);
            }
            webhook["namespaceSelector"] = json!({"matchExpressions": [
                {"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": names}]});
        }
        webhook
    }
}

/// How the API server reaches a path through the Services of the manifests.
pub fn service_client(namespace: &str, path: &str) -> Value {
    let name = if path == CONVERT { CONVERSION_SERVICE } else { SERVICE };
    json!({"service": {"namespace": namespace, "name": name, "path": path, "port": 443}})
}

/// The two configurations. `client` gives the `clientConfig` for a path; `namespace` is where the webhooks run.
pub fn configurations(client: impl Fn(&str) -> Value, namespace: &str) -> [Value; 2] {
    configurations_with(client, namespace, &[])
}

/// [`configurations`], with more targets.
pub fn configurations_with(
    client: impl Fn(&str) -> Value,
    namespace: &str,
    declared: &[Target],
) -> [Value; 2] {
    let one = |kind: &str, name: &str, mutates: bool| {
        let all = TARGETS.iter().chain(declared).filter(|t| !mutates || t.mutates);
        let webhooks: Vec<Value> = all.map(|t| t.webhook(mutates, &client, namespace)).collect();
        json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": kind, "metadata": {"name": name},
               "webhooks": webhooks})
    };
    [
        one("MutatingWebhookConfiguration", MUTATING, true),
        one("ValidatingWebhookConfiguration", VALIDATING, false),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_and_names_are_kueues() {
        let [mutating, validating] = configurations(|path| json!({ "url": path }), "elsewhere");
        let rows = |c: &Value| -> Vec<String> {
            let all = c["webhooks"].as_array().into_iter().flatten();
            all.map(|w| {
                format!("{} {}", w["name"].as_str().unwrap(), w["clientConfig"]["url"].as_str().unwrap())
            })
            .collect()
        };
        assert_eq!(
            rows(&mutating),
            [
                "mjob.kb.io /mutate-batch-v1-job",
                "mpod.kb.io /mutate--v1-pod",
                "mdeployment.kb.io /mutate-apps-v1-deployment",
                "mstatefulset.kb.io /mutate-apps-v1-statefulset",
                "mjobset.kb.io /mutate-jobset-x-k8s-io-v1alpha2-jobset",
                "mpytorchjob.kb.io /mutate-kubeflow-org-v1-pytorchjob",
                "mtfjob.kb.io /mutate-kubeflow-org-v1-tfjob",
                "mxgboostjob.kb.io /mutate-kubeflow-org-v1-xgboostjob",
                "mpaddlejob.kb.io /mutate-kubeflow-org-v1-paddlejob",
                "mjaxjob.kb.io /mutate-kubeflow-org-v1-jaxjob",
                "mmpijob.kb.io /mutate-kubeflow-org-v2beta1-mpijob",
                "mraycluster.kb.io /mutate-ray-io-v1-raycluster",
                "mrayjob.kb.io /mutate-ray-io-v1-rayjob",
                "mrayservice.kb.io /mutate-ray-io-v1-rayservice",
                "mappwrapper.kb.io /mutate-workload-codeflare-dev-v1beta2-appwrapper",
                "mleaderworkerset.kb.io /mutate-leaderworkerset-x-k8s-io-v1-leaderworkerset",
                "msparkapplication.kb.io /mutate-sparkoperator-k8s-io-v1beta2-sparkapplication",
                "mtrainjob.kb.io /mutate-trainer-kubeflow-org-v1alpha1-trainjob",
                "mclusterqueue.kb.io /mutate-kueue-x-k8s-io-v1beta2-clusterqueue",
                "mresourceflavor.kb.io /mutate-kueue-x-k8s-io-v1beta2-resourceflavor",
                "mworkload.kb.io /mutate-kueue-x-k8s-io-v1beta2-workload",
            ]
        );
        assert_eq!(rows(&validating).len(), 26);
        for row in rows(&mutating).iter().chain(&rows(&validating)) {
            let path = row.split(' ').nth(1).unwrap();
            assert!(Target::at(path).is_some_and(|(_, m)| m == path.starts_with("/mutate")), "{path}");
        }
        assert_eq!(Target::at("/mutate-kueue-x-k8s-io-v1beta2-cohort"), None);
        let resources = |c: &Value, i: usize| c["webhooks"][i]["rules"][0]["resources"].clone();
        assert_eq!(resources(&mutating, 20), json!(["workloads"]));
        assert_eq!(resources(&validating, 21), json!(["workloads", "workloads/status"]));
        let names = &mutating["webhooks"][1]["namespaceSelector"]["matchExpressions"][0]["values"];
        assert_eq!(names, &json!(["kube-system", "kueue-system", NAMESPACE, "elsewhere"]));
    }
}

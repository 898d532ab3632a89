//! Labels that kubelets may give their node, so that none draws pods to itself (`getForbiddenLabels`, and
//! `k8s.io/kubelet/pkg/apis`).

use std::collections::BTreeSet;

use serde_json::Value;

const KUBELET: [&str; 11] = [
    "kubernetes.io/hostname",
    "topology.kubernetes.io/zone",
    "topology.kubernetes.io/region",
    "failure-domain.beta.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region",
    "beta.kubernetes.io/instance-type",
    "node.kubernetes.io/instance-type",
    "kubernetes.io/os",
    "kubernetes.io/arch",
    "beta.kubernetes.io/os",
    "beta.kubernetes.io/arch",
];
const KUBELET_NAMESPACES: [&str; 2] = ["kubelet.kubernetes.io", "node.kubernetes.io"];
const RESTRICTED: &str = "node-restriction.kubernetes.io";

/// Keys of labels that differ and that a kubelet may not change, sorted.
pub fn forbidden(object: &Value, old: &Value) -> Vec<String> {
    let (new, old) = (&object["metadata"]["labels"], &old["metadata"]["labels"]);
    let keys = [new, old].into_iter().filter_map(Value::as_object).flat_map(|labels| labels.keys());
    let changed: BTreeSet<&String> = keys.filter(|key| new[key.as_str()] != old[key.as_str()]).collect();
    changed.into_iter().filter(|key| is_forbidden(key)).cloned().collect()
}

fn is_forbidden(key: &str) -> bool {
    let namespace = key.split_once('/').map_or("", |(namespace, _)| namespace);
    let within = |parent: &str| {
        namespace == parent || namespace.strip_suffix(parent).is_some_and(|rest| rest.ends_with('.'))
    };
    let kubernetes = within("kubernetes.io") || within("k8s.io");
    let kubelet = KUBELET.contains(&key) || KUBELET_NAMESPACES.iter().any(|parent| within(parent));
    within(RESTRICTED) || (kubernetes && !kubelet)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_kubelets_own_labels_of_kubernetes() {
        for (key, wanted) in [
            ("kubernetes.io/hostname", false),
            ("foo.node.kubernetes.io/x", false),
            ("example.com/x", false),
            ("plain", false),
            ("node-restriction.kubernetes.io/x", true),
            ("a.node-restriction.kubernetes.io/x", true),
            ("node-role.kubernetes.io/master", true),
            ("k8s.io/x", true),
            ("xk8s.io/x", false),
        ] {
            assert_eq!(is_forbidden(key), wanted, "{key}");
        }
    }
}

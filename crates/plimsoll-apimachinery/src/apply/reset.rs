//! Fields that an endpoint resets, so that writers there don't come to own them (`GetResetFields` of the
//! registry strategies).

use crate::apply::fields::{self, Fields};
use crate::kinds::Kind;

/// Fields that a write to an endpoint doesn't give an owner (`k8s.io/apiserver/pkg/registry/rest`,
/// `ResetFieldsStrategy`).
#[derive(Debug)]
pub struct Reset(Fields);

/// The reset fields of an endpoint of a kind.
pub fn reset(kind: &Kind, subresource: &str) -> Reset {
    let group = kind.gvk.group.as_str();
    let name = kind.gvk.kind.as_str();
    let has_status = kind.subresource("status").is_some();
    let is_request = group == "certificates.k8s.io" && name == "CertificateSigningRequest";
    let paths: &[&[&str]] = match subresource {
        "" if is_request => &[&["f:spec"], &["f:status"]],
        "" if has_status => &[&["f:status"]],
        "status" => status_resets(group, name, kind.custom.is_some()),
        "approval" if is_request => &[&["f:spec"], &["f:status", "f:certificate"]],
        "finalize" => &[&["f:status"]],
        _ => &[],
    };
    let mut set = Fields::new();
    for path in paths {
        fields::insert(&mut set, path);
    }
    Reset(set)
}

/// The reset fields of status endpoints, beside `spec`.
fn status_resets(group: &str, kind: &str, custom: bool) -> &'static [&'static [&'static str]] {
    match (group, kind) {
        ("", "Pod") => {
            &[&["f:spec"], &["f:metadata", "f:deletionTimestamp"], &["f:metadata", "f:ownerReferences"]]
        }
        ("apps", "Deployment") => &[&["f:spec"], &["f:metadata", "f:labels"]],
        ("storage.k8s.io", "VolumeAttachment")
        | ("networking.k8s.io", "ServiceCIDR")
        | ("scheduling.k8s.io", "PodGroup")
        | ("apiregistration.k8s.io" | "admissionregistration.k8s.io" | "resource.k8s.io", _)
        | ("flowcontrol.apiserver.k8s.io" | "storagemigration.k8s.io" | "internal.apiserver.k8s.io", _) => {
            &[&["f:spec"], &["f:metadata"]]
        }
        ("certificates.k8s.io", "CertificateSigningRequest") => &[&["f:spec"], &["f:status", "f:conditions"]],
        ("networking.k8s.io", "NetworkPolicy") => &[],
        _ if custom => &[&["f:spec"], &["f:metadata"]],
        _ => &[&["f:spec"]],
    }
}

impl Reset {
    /// Removes the reset fields from a set.
    pub fn filter(&self, set: &mut Fields) {
        fields::subtract_below(set, &self.0);
    }

    /// Whether a field of the root is reset with all below it.
    pub fn drops(&self, root_field: &str) -> bool {
        let mut nodes = self.0.iter().filter(|(element, _)| element.strip_prefix("f:") == Some(root_field));
        nodes.any(|(_, node)| node.as_object().is_some_and(fields::is_member))
    }
}

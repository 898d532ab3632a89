//! Warnings about kinds that are not pods and have none in them (`GetWarningsFor*`).

use base64::Engine as _;
use serde_json::Value;

use super::path::Path;
use super::{address, deprecated, resources, service};
use crate::obj::{Obj, as_obj, has, list, object, text};

/// core/v1 Service.
pub(super) fn service(o: &Obj, found: &mut Vec<String>) {
    let spec = object(o, "spec");
    let kind = text(spec, "type");
    const HINTS: &str = "service.kubernetes.io/topology-aware-hints";
    if object(object(o, "metadata"), "annotations").contains_key(HINTS) {
        found.push(format!(
            "annotation {HINTS} is deprecated, please use service.kubernetes.io/topology-mode instead"
        ));
    }
    let path = Path::new("spec");
    let all = |key: &str| -> Vec<&str> { list(spec, key).iter().filter_map(Value::as_str).collect() };
    if !matches!(text(spec, "clusterIP"), "" | "None") {
        let at = path.field("clusterIPs");
        found.extend(
            all("clusterIPs").iter().enumerate().filter_map(|(i, ip)| address::warning(&at.index(i), ip)),
        );
    }
    let headless = kind == "ClusterIP" && service::is_headless(spec);
    let external = all("externalIPs");
    if headless {
        if !text(spec, "loadBalancerIP").is_empty() {
            found.push("spec.loadBalancerIP is ignored for headless services".to_owned());
        }
        if !external.is_empty() {
            found.push("spec.externalIPs is ignored for headless services".to_owned());
        }
        if text(spec, "sessionAffinity") != "None" {
            found.push("spec.SessionAffinity is ignored for headless services".to_owned());
        }
    }
    let at = path.field("externalIPs");
    found.extend(external.iter().enumerate().filter_map(|(i, ip)| address::warning(&at.index(i), ip)));
    if !external.is_empty() && !headless && kind != "ExternalName" {
        let text = "spec.externalIPs is deprecated and may no longer be implemented in some clusters";
        found.push(text.to_owned());
    }
    let balancer = text(spec, "loadBalancerIP");
    if !balancer.is_empty() {
        found.extend(address::warning(&path.field("loadBalancerIP"), balancer));
    }
    let at = path.field("loadBalancerSourceRanges");
    for (i, range) in all("loadBalancerSourceRanges").iter().enumerate() {
        found.extend(address::cidr_warnings(&at.index(i), range));
    }
    if kind == "ExternalName" && !external.is_empty() {
        found.push("spec.externalIPs is ignored when spec.type is \"ExternalName\"".to_owned());
    }
    if kind != "ExternalName" && !text(spec, "externalName").is_empty() {
        found.push("spec.externalName is ignored when spec.type is not \"ExternalName\"".to_owned());
    }
    if text(spec, "trafficDistribution") == "PreferClose" {
        found.push(
            "spec.trafficDistribution: \"PreferClose\" is deprecated; use \"PreferSameZone\"".to_owned(),
        );
    }
}

/// Addresses of load balancers that are written in an unusual way.
pub(super) fn balancer_status(status: &Obj, found: &mut Vec<String>) {
    let path = Path::new("status");
    let at = path.field("loadBalancer");
    let at = at.field("ingress");
    let points = list(object(status, "loadBalancer"), "ingress").iter().map(as_obj);
    for (i, ip) in points.map(|point| text(point, "ip")).enumerate().filter(|(_, ip)| !ip.is_empty()) {
        found.extend(address::warning(&at.index(i), ip));
    }
}

/// core/v1 Node.
pub(super) fn node(o: &Obj, found: &mut Vec<String>) {
    let spec = object(o, "spec");
    if has(spec, "configSource") {
        found.push("spec.configSource: the feature is removed".to_owned());
    }
    if !text(spec, "externalID").is_empty() {
        found.push("spec.externalID: this field is deprecated, and is unused by Kubernetes".to_owned());
    }
    let path = Path::new("spec");
    let at = path.field("podCIDRs");
    for (i, network) in list(spec, "podCIDRs").iter().filter_map(Value::as_str).enumerate() {
        found.extend(address::cidr_warnings(&at.index(i), network));
    }
}

/// core/v1 Secret: warnings for key and certificate of TLS, as far as their encoding shows errors.
pub(super) fn secret(o: &Obj, found: &mut Vec<String>) {
    if text(o, "type") != "kubernetes.io/tls" {
        return;
    }
    let blocks = |key: &str| -> Vec<String> {
        let encoded = text(object(o, "data"), key);
        let bytes = base64::engine::general_purpose::STANDARD.decode(encoded).unwrap_or_default();
        pem_types(&String::from_utf8_lossy(&bytes))
    };
    let (certificate, key) = (blocks("tls.crt"), blocks("tls.key"));
    if !certificate.iter().any(|b| b == "CERTIFICATE") {
        found.push(match certificate.as_slice() {
            [] => "tls: failed to find any PEM data in certificate input".to_owned(),
            [one] if one.ends_with("PRIVATE KEY") => "tls: failed to find certificate PEM data in certificate input, but did find a private key; PEM inputs may have been switched".to_owned(),
            many => format!("tls: failed to find \"CERTIFICATE\" PEM block in certificate input after skipping PEM blocks of the following types: [{}]", many.join(" ")),
        });
        return;
    }
    let is_key = |b: &String| b == "PRIVATE KEY" || b.ends_with(" PRIVATE KEY");
    if !key.iter().any(is_key) {
        found.push(match key.as_slice() {
            [] => "tls: failed to find any PEM data in key input".to_owned(),
            [one] if one == "CERTIFICATE" => "tls: found a certificate rather than a key in the PEM for the private key".to_owned(),
            many => format!("tls: failed to find PEM block with type ending in \"PRIVATE KEY\" in key input after skipping PEM blocks of the following types: [{}]", many.join(" ")),
        });
    }
}

/// Types of the PEM blocks of a text.
fn pem_types(text: &str) -> Vec<String> {
    let mut types = Vec::new();
    let mut open: Option<(&str, String)> = None;
    for line in text.lines().map(str::trim_end) {
        if let Some(name) = line.strip_prefix("-----BEGIN ").and_then(|l| l.strip_suffix("-----")) {
            open = Some((name, String::new()));
        } else if let Some(name) = line.strip_prefix("-----END ").and_then(|l| l.strip_suffix("-----")) {
            let done = open.take().filter(|(begun, _)| *begun == name);
            if let Some((name, body)) = done
                && base64::engine::general_purpose::STANDARD.decode(&body).is_ok()
            {
                types.push(name.to_owned());
            }
        } else if let Some((_, body)) = open.as_mut().filter(|_| !line.contains(':')) {
            body.push_str(line.trim());
        }
    }
    types
}

/// core/v1 `ServiceAccount`.
pub(super) fn service_account(old: Option<&Obj>, new: &Obj, found: &mut Vec<String>) {
    const KEY: &str = "kubernetes.io/enforce-mountable-secrets";
    let set = |o: &Obj| object(object(o, "metadata"), "annotations").contains_key(KEY);
    if set(new) && !old.is_some_and(set) {
        found.push(format!(
            "metadata.annotations[{KEY}]: deprecated in v1.32+; prefer separate namespaces to isolate access to mounted secrets"
        ));
    }
}

/// core/v1 `ResourceQuota`: requests are at most limits.
pub(super) fn quota(o: &Obj, found: &mut Vec<String>) {
    let hard = object(object(o, "spec"), "hard");
    for name in ["cpu", "memory", "storage", "ephemeral-storage"] {
        let request = format!("requests.{name}");
        let limit = format!("limits.{name}");
        let bare =
            matches!(name, "cpu" | "memory") && hard.contains_key(name) && !hard.contains_key(&request);
        let request = if bare { name.to_owned() } else { request };
        let (Some(requested), Some(most)) = (hard.get(&request), hard.get(&limit)) else { continue };
        let (requested, most) = (resources::amount(requested), resources::amount(most));
        if requested > most {
            found.push(format!("ResourceQuota {request} ({requested}) should be less than {limit} ({most})"));
        }
    }
}

const CLASS: &str = "volume.beta.kubernetes.io/storage-class";
const CLASS_TEXT: &str = "deprecated since v1.8; use \"storageClassName\" attribute instead";

/// core/v1 `PersistentVolume`.
pub(super) fn volume(o: &Obj, found: &mut Vec<String>) {
    let spec = object(o, "spec");
    let path = Path::new("spec");
    let annotations = object(object(o, "metadata"), "annotations");
    let old = [
        (CLASS, CLASS_TEXT),
        (
            "volume.beta.kubernetes.io/mount-options",
            "deprecated since v1.31; use \"mountOptions\" attribute instead",
        ),
    ];
    for (key, text) in old.iter().filter(|(key, _)| annotations.contains_key(*key)) {
        found.push(format!("metadata.annotations[{key}]: {text}"));
    }
    if text(spec, "persistentVolumeReclaimPolicy") == "Recycle" {
        found.push(
            "spec.persistentVolumeReclaimPolicy: The Recycle reclaim policy is deprecated. Instead, the recommended approach is to use dynamic provisioning.".to_owned(),
        );
    }
    let required = object(object(spec, "nodeAffinity"), "required");
    let at = path.field("nodeAffinity");
    let at = at.field("required");
    let at = at.field("nodeSelectorTerms");
    for (i, term) in list(required, "nodeSelectorTerms").iter().map(as_obj).enumerate() {
        deprecated::expressions(term, false, &at.index(i), found);
    }
    for source in deprecated::SOURCES.iter().filter(|s| s.of_volumes && has(spec, s.key)) {
        found.push(format!("{}: {}", path.field(source.shown), source.why));
    }
}

/// core/v1 `PersistentVolumeClaim`.
pub(super) fn claim(o: &Obj, found: &mut Vec<String>) {
    if object(object(o, "metadata"), "annotations").contains_key(CLASS) {
        found.push(format!("metadata.annotations[{CLASS}]: {CLASS_TEXT}"));
    }
    deprecated::claim(object(o, "spec"), &Path::new("spec"), found);
}

/// storage.k8s.io/v1 `StorageClass`.
pub(super) fn storage_class(o: &Obj, found: &mut Vec<String>) {
    for (i, term) in list(o, "allowedTopologies").iter().map(as_obj).enumerate() {
        for (k, e) in list(term, "matchLabelExpressions").iter().map(as_obj).enumerate() {
            if let Some(message) = deprecated::label(text(e, "key")) {
                found.push(format!("allowedTopologies[{i}].matchLabelExpressions[{k}].key: {message}"));
            }
        }
    }
}

/// storage.k8s.io/v1 `CSIStorageCapacity`.
pub(super) fn capacity(o: &Obj, found: &mut Vec<String>) {
    let selector = object(o, "nodeTopology");
    let path = Path::new("nodeTopology");
    deprecated::expressions(selector, false, &path, found);
    let at = path.field("matchLabels");
    for key in object(selector, "matchLabels").keys() {
        found.extend(deprecated::label(key).map(|why| format!("{}: {why}", at.field(key))));
    }
}

/// node.k8s.io/v1 `RuntimeClass` (`GetWarningsForRuntimeClass`).
pub(super) fn runtime_class(o: &Obj, found: &mut Vec<String>) {
    for key in object(object(o, "scheduling"), "nodeSelector").keys() {
        found.extend(deprecated::label(key).map(|why| format!("scheduling.nodeSelector: {why}")));
    }
}

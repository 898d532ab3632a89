//! Default classes of objects that name none (`pkg/volume/util/storageclass.go`, `GetDefaultClass`).

use serde_json::Value;

use crate::ObjectLister;

const STORAGE: &[&str] =
    &["storageclass.kubernetes.io/is-default-class", "storageclass.beta.kubernetes.io/is-default-class"];
const INGRESS: &[&str] = &["ingressclass.kubernetes.io/is-default-class"];

/// Name of the StorageClass for claims that name none; `None`: no class is the default.
pub fn default_storage_class_name(objects: &dyn ObjectLister) -> Option<String> {
    newest_default(objects, "storage.k8s.io/storageclasses", STORAGE)
}

/// Name of the IngressClass for ingresses that name none; `None`: no class is the default.
pub fn default_ingress_class_name(objects: &dyn ObjectLister) -> Option<String> {
    newest_default(objects, "networking.k8s.io/ingressclasses", INGRESS)
}

/// Name of the object with one of these annotations: of several the newest, then the first by name.
fn newest_default(objects: &dyn ObjectLister, resource: &str, annotations: &[&str]) -> Option<String> {
    let mut newest: Option<(String, std::cmp::Reverse<String>)> = None;
    objects.for_each(resource, None, &mut |class: Value| {
        let meta = &class["metadata"];
        if annotations.iter().any(|a| meta["annotations"][a] == "true") {
            let text = |field: &str| meta[field].as_str().unwrap_or("").to_owned();
            newest = newest.take().max(Some((text("creationTimestamp"), std::cmp::Reverse(text("name")))));
        }
    });
    newest.map(|(_, name)| name.0)
}

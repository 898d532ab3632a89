//! core/v1 Namespace, `PodTemplate`.

use super::path::{Errors, Path};
use super::{meta, pod};
use crate::obj::{Obj, has, list, object, text};

/// core/v1 Namespace.
pub(super) fn namespace(namespace: &Obj, errors: &mut Errors) {
    let path = Path::new("spec");
    let at = path.field("finalizers");
    for finalizer in list(object(namespace, "spec"), "finalizers") {
        meta::finalizer(finalizer.as_str().unwrap_or_default(), &at, errors);
    }
}

/// The remaining finalizers of a namespace, which errors name.
pub(super) fn namespace_finalizers(namespace: &Obj, errors: &mut Errors) {
    let path = Path::new("spec");
    let at = path.field("finalizers");
    for (i, finalizer) in list(object(namespace, "spec"), "finalizers").iter().enumerate() {
        meta::finalizer(finalizer.as_str().unwrap_or_default(), &at.index(i), errors);
    }
}

/// A namespace is in phase Terminating exactly when it is being deleted.
pub(super) fn namespace_status(_: &Obj, new: &Obj, errors: &mut Errors) {
    let path = Path::new("status");
    let phase = text(object(new, "status"), "phase");
    if has(object(new, "metadata"), "deletionTimestamp") {
        if phase != "Terminating" {
            let detail = "may only be 'Terminating' if `deletionTimestamp` is not empty";
            errors.invalid(&path.field("Phase"), phase, detail);
        }
    } else if phase != "Active" {
        let detail = "may only be 'Active' if `deletionTimestamp` is empty";
        errors.invalid(&path.field("Phase"), phase, detail);
    }
}

/// core/v1 `PodTemplate`.
pub(super) fn pod_template(o: &Obj, errors: &mut Errors) {
    pod::template(object(o, "template"), &Path::new("template"), errors);
}

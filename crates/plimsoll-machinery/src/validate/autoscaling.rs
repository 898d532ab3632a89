//! autoscaling `HorizontalPodAutoscaler`, v1 and v2.

use super::path::{Errors, Path};
use crate::obj::{Obj, int, object, text};

/// `HorizontalPodAutoscaler`.
pub(super) fn autoscaler(autoscaler: &Obj, errors: &mut Errors) {
    let spec = object(autoscaler, "spec");
    let path = Path::new("spec");
    let (min, max) = (int(spec, "minReplicas"), int(spec, "maxReplicas").unwrap_or(0));
    if let Some(min) = min.filter(|min| *min < 1) {
        errors.invalid(&path.field("minReplicas"), min, "must be greater than or equal to 1");
    }
    let at = path.field("maxReplicas");
    if max < 1 {
        if max == 0 {
            errors.required(&at, "must be set and greater than 0");
        } else {
            errors.invalid(&at, max, "must be greater than 0");
        }
    }
    if min.is_some_and(|min| max < min) {
        errors.invalid(&at, max, "must be greater than or equal to `minReplicas`");
    }
    let target = object(spec, "scaleTargetRef");
    let at = path.field("scaleTargetRef");
    for key in ["kind", "name"] {
        if text(target, key).is_empty() {
            errors.required(&at.field(key), "");
        }
    }
}

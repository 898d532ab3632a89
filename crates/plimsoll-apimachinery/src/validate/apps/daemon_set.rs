//! apps/v1 `DaemonSet`.

use serde_json::Value;

use super::super::path::{Errors, Path};
use super::super::{golang, pod, selector};
use super::{always_restarted, amount, at_most_all, int_or_percent, matches};
use crate::obj::{Obj, int, object, text};

/// apps/v1 `DaemonSet`.
pub(in super::super) fn daemon_set(o: &Obj, errors: &mut Errors) {
    let spec = object(o, "spec");
    let path = Path::new("spec");
    let at = path.field("selector");
    let chosen = spec.get("selector").and_then(Value::as_object);
    if let Some(chosen) = chosen {
        selector::label_selector(chosen, &at, errors);
    }
    let template = object(spec, "template");
    let here = path.field("template");
    if chosen.is_none_or(selector::is_usable) {
        matches(chosen, template, &here, errors);
    }
    if let Some(chosen) = chosen.filter(|s| selector::is_empty(s)) {
        errors.invalid_text(&at, selector::shown(chosen), "empty selector is invalid for daemonset");
    }
    pod::template(template, &here, errors);
    always_restarted(template, "DaemonSet", &here, errors);
    errors.non_negative(&path.field("minReadySeconds"), int(spec, "minReadySeconds"));
    let template_generation = object(object(o, "metadata"), "annotations")
        .get("deprecated.daemonset.template.generation")
        .and_then(Value::as_str)
        .and_then(|t| t.parse().ok());
    errors.non_negative(&path.field("templateGeneration"), template_generation);
    daemon_strategy(object(spec, "updateStrategy"), &path.field("updateStrategy"), errors);
    errors.non_negative(&path.field("revisionHistoryLimit"), int(spec, "revisionHistoryLimit"));
}

fn daemon_strategy(strategy: &Obj, path: &Path<'_>, errors: &mut Errors) {
    let at = path.field("rollingUpdate");
    match text(strategy, "type") {
        "OnDelete" => {}
        "RollingUpdate" => {
            let Some(rolling) = strategy.get("rollingUpdate").and_then(Value::as_object) else {
                errors.required(&at, "");
                return;
            };
            let (down, up) = (rolling.get("maxUnavailable"), rolling.get("maxSurge"));
            let (down_path, up_path) = (at.field("maxUnavailable"), at.field("maxSurge"));
            int_or_percent(down, &down_path, errors);
            int_or_percent(up, &up_path, errors);
            at_most_all(down, &down_path, errors);
            at_most_all(up, &up_path, errors);
            match (amount(down) != 0, amount(up) != 0) {
                (true, true) => {
                    let value = up.cloned().unwrap_or_default();
                    errors.invalid(&up_path, value, "may not be set when maxUnavailable is non-zero");
                }
                (false, false) => errors.required(&down_path, "cannot be 0 when maxSurge is 0"),
                _ => {}
            }
        }
        _ => {
            let shown = golang::structure("DaemonSetUpdateStrategy", strategy);
            errors.not_supported_text(path, shown, &["RollingUpdate", "OnDelete"]);
        }
    }
}

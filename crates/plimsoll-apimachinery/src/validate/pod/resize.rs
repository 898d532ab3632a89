//! Updates through `resize` (`ValidatePodResize`).

use plimsoll_state::collect::InsertEach as _;
use serde_json::Value;

use super::super::path::{Errors, Path};
use super::annotations;
use crate::obj::{Obj, as_obj, has, list, object, text};

const SIZES: [&str; 2] = ["cpu", "memory"];

/// Only CPU and memory may change, of containers that are otherwise equal.
pub(in super::super) fn resize(old: &Obj, new: &Obj, errors: &mut Errors) {
    let path = Path::new("spec");
    let (before, after) = (object(old, "spec"), object(new, "spec"));
    super::whole(new, errors);
    let refused = if annotations::is_mirror(old) {
        "static pods cannot be resized"
    } else if text(object(before, "os"), "name") == "windows" {
        "windows pods cannot be resized"
    } else {
        ""
    };
    if !refused.is_empty() {
        errors.0.clear();
        errors.forbidden(&Path::new(""), refused);
        return;
    }
    let class = text(object(old, "status"), "qosClass");
    if crate::strategy::qos_class(after) != class {
        errors.invalid(&path, class, "Pod QOS Class may not change as a result of resizing");
    }
    let running = list(object(old, "status"), "containerStatuses")
        .iter()
        .map(as_obj)
        .find(|s| has(object(s, "state"), "running"));
    if running.is_some_and(|s| !has(s, "resources")) {
        errors.forbidden(&path, "Pod running on node without support for resize");
    }
    pod_level(before, after, &path, errors);
    if !list(object(old, "status"), "nodeAllocatableResourceClaimStatuses").is_empty() {
        errors.forbidden(&path, "pods with node allocatable resource claims cannot be resized");
    }
    if !same_containers(before, after, &path, errors) {
        return;
    }
    for key in ["initContainers", "containers"] {
        let at = path.field(key);
        let pairs = list(before, key).iter().zip(list(after, key));
        for (i, (was, is)) in pairs.map(|(was, is)| (as_obj(was), as_obj(is))).enumerate() {
            let here = at.index(i);
            let (was, is) = (object(was, "resources"), object(is, "resources"));
            removed(was, is, "resource", &here.field("resources"), errors);
        }
    }
    containers(before, after, &path, errors);
}

/// Resources of the pod as a whole (`validatePodLevelResourcesResize`).
fn pod_level(before: &Obj, after: &Obj, path: &Path<'_>, errors: &mut Errors) {
    let at = path.field("resources");
    let (was, is) = (before.get("resources"), after.get("resources"));
    let set = |r: Option<&Value>| {
        r.is_some_and(|r| ["requests", "limits"].iter().any(|key| !object(as_obj(r), key).is_empty()))
    };
    if !set(was) && !set(is) {
        return;
    }
    let (Some(is), was) = (is.filter(|r| !r.is_null()), was.filter(|r| !r.is_null())) else {
        errors.forbidden(&at, "pod-level resources cannot be removed");
        return;
    };
    if let Some(was) = was {
        removed(as_obj(was), as_obj(is), "pod-level resource", &at, errors);
    }
    let was = was.map(as_obj).cloned().unwrap_or_default();
    if !same_but_sizes(&was, as_obj(is)) {
        errors.forbidden(path, "only cpu and memory resources are mutable at pod-level");
    }
}

/// Requests and limits can't be removed.
fn removed(was: &Obj, is: &Obj, what: &str, path: &Path<'_>, errors: &mut Errors) {
    for key in ["requests", "limits"] {
        let (was, is) = (object(was, key), object(is, key));
        if was.keys().any(|name| !is.contains_key(name)) {
            errors.forbidden(&path.field(key), &format!("{what} {key} cannot be removed"));
        }
    }
}

/// Whether resources are equal except for CPU and memory.
fn same_but_sizes(was: &Obj, is: &Obj) -> bool {
    let others = |resources: &Obj, key: &str| -> Obj {
        let kept = object(resources, key).iter().filter(|(name, _)| !SIZES.contains(&name.as_str()));
        kept.map(|(name, value)| (name.clone(), value.clone())).insert_each()
    };
    ["requests", "limits"].iter().all(|key| others(was, key) == others(is, key))
}

/// `validatePodResizeContainerOrdering`.
fn same_containers(before: &Obj, after: &Obj, path: &Path<'_>, errors: &mut Errors) -> bool {
    let found = errors.0.len();
    for key in ["containers", "initContainers"] {
        let at = path.field(key);
        let (was, is) = (list(before, key), list(after, key));
        if was.len() != is.len() {
            errors.forbidden(&at, &format!("{key} may not be added or removed on resize"));
            continue;
        }
        for (i, (was, is)) in was.iter().zip(is).enumerate() {
            if text(as_obj(was), "name") != text(as_obj(is), "name") {
                let detail = format!("{key} may not be renamed or reordered on resize");
                errors.forbidden(&at.index(i).field("name"), &detail);
            }
        }
    }
    errors.0.len() == found
}

fn containers(before: &Obj, after: &Obj, path: &Path<'_>, errors: &mut Errors) {
    for (was, is) in list(before, "containers").iter().zip(list(after, "containers")) {
        if !same_container(as_obj(was), as_obj(is)) {
            errors.forbidden(path, "only cpu and memory resources are mutable");
        }
    }
    let at = path.field("initContainers");
    let pairs = list(before, "initContainers").iter().zip(list(after, "initContainers"));
    for (i, (was, is)) in pairs.map(|(was, is)| (as_obj(was), as_obj(is))).enumerate() {
        if !same_container(was, is) {
            let detail = "only cpu and memory resources for init or sidecar containers are mutable";
            errors.forbidden(&at.index(i), detail);
        }
        if was != is && text(is, "restartPolicy") != "Always" {
            let restarts = list(is, "resizePolicy").iter().map(as_obj);
            for _ in restarts.filter(|p| text(p, "restartPolicy") == "RestartContainer") {
                let detail =
                    "non-sidecar init containers with a resize policy of RestartContainer cannot be resized";
                errors.forbidden(&at.index(i), detail);
            }
        }
    }
}

/// Whether a container is equal except for CPU and memory. Like upstream, this ignores claims of the new container, so
/// a container with claims can't be resized.
fn same_container(was: &Obj, is: &Obj) -> bool {
    let rest = |c: &Obj| {
        let mut c = c.clone();
        c.remove("resources");
        c
    };
    let (sizes, now) = (object(was, "resources"), object(is, "resources"));
    rest(was) == rest(is) && same_but_sizes(sizes, now) && list(sizes, "claims").is_empty()
}

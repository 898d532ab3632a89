//! apps/v1.

use serde_json::Value;

use super::pod::template;
use super::volume::persistent_volume_claim;
use crate::obj::{Obj, child, children, has, set, set_zero, text, with_child};

/// apps/v1 Deployment.
pub(super) fn deployment(object: &mut Obj) {
    with_child(object, "spec", |spec| {
        set(spec, "replicas", 1);
        with_child(spec, "strategy", |strategy| {
            set(strategy, "type", "RollingUpdate");
            if text(strategy, "type") == "RollingUpdate" {
                with_child(strategy, "rollingUpdate", |rolling| {
                    set(rolling, "maxUnavailable", "25%");
                    set(rolling, "maxSurge", "25%");
                });
            }
        });
        set(spec, "revisionHistoryLimit", 10);
        set(spec, "progressDeadlineSeconds", 600);
        template(spec);
    });
}

/// apps/v1 `ReplicaSet`.
pub(super) fn replica_set(object: &mut Obj) {
    with_child(object, "spec", |spec| {
        set(spec, "replicas", 1);
        template(spec);
    });
}

/// apps/v1 `StatefulSet`.
pub(super) fn stateful_set(object: &mut Obj) {
    with_child(object, "spec", |spec| {
        set(spec, "podManagementPolicy", "OrderedReady");
        with_child(spec, "updateStrategy", |strategy| {
            // An explicit type gets no default details.
            let named = !text(strategy, "type").is_empty();
            set_zero(strategy, "type", "RollingUpdate");
            let rolling = text(strategy, "type") == "RollingUpdate";
            if rolling && (!named || has(strategy, "rollingUpdate")) {
                with_child(strategy, "rollingUpdate", |rolling| set(rolling, "partition", 0));
            }
        });
        with_child(spec, "persistentVolumeClaimRetentionPolicy", |policy| {
            set(policy, "whenDeleted", "Retain");
            set(policy, "whenScaled", "Retain");
        });
        set(spec, "replicas", 1);
        set(spec, "revisionHistoryLimit", 10);
        for claim in children(spec, "volumeClaimTemplates") {
            claim.insert("apiVersion".to_owned(), Value::from("v1"));
            claim.insert("kind".to_owned(), Value::from("PersistentVolumeClaim"));
            persistent_volume_claim(claim);
        }
        template(spec);
    });
}

/// apps/v1 `DaemonSet`.
pub(super) fn daemon_set(object: &mut Obj) {
    // converting to v1 shows the internal template generation as an annotation; the strategy counts it
    with_child(object, "metadata", |meta| {
        with_child(meta, "annotations", |a| set(a, "deprecated.daemonset.template.generation", "0"));
    });
    with_child(object, "spec", |spec| {
        with_child(spec, "updateStrategy", |strategy| {
            set(strategy, "type", "RollingUpdate");
            if text(strategy, "type") == "RollingUpdate" {
                with_child(strategy, "rollingUpdate", |rolling| {
                    set(rolling, "maxUnavailable", 1);
                    set(rolling, "maxSurge", 0);
                });
            } else if let Some(rolling) = child(strategy, "rollingUpdate") {
                // They are no pointers internally.
                set(rolling, "maxUnavailable", 0);
                set(rolling, "maxSurge", 0);
            }
        });
        set(spec, "revisionHistoryLimit", 10);
        template(spec);
    });
}

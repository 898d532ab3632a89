//! What a workload is charged for while an elastic job shrinks. Its podsets are in the spec and its reclaimable pods in the status,
//! which the API changes one after the other: with the smaller podsets and the reclaimable pods of the larger ones, less would be
//! charged than there are pods.

use plimsoll_queueing::ReclaimablePod;
use serde_json::Value;

use crate::json;

/// Annotation of a workload: how many pods of which podsets stay charged until its reclaimable pods are those of the smaller
/// podsets, such as `main=5`. It is written together with the smaller podsets, and removed when the reclaimable pods follow.
pub const CHARGED_PODS: &str = "plimsoll.dev/charged-pods";

/// Pods of a podset that stay charged.
fn kept(annotations: &Value, pod_set: &str) -> Option<i64> {
    let text = annotations[CHARGED_PODS].as_str()?;
    let rows = text.split(',').filter_map(|row| row.split_once('='));
    rows.filter(|(name, _)| *name == pod_set).find_map(|(_, count)| count.parse().ok())
}

/// The most pods of a podset of `count` pods that can be reclaimed.
fn most(annotations: &Value, pod_set: &str, count: i64) -> i64 {
    count.max(0) - kept(annotations, pod_set).unwrap_or(0).clamp(0, count.max(0))
}

/// Pods of a podset that have ended and are not charged (`status.reclaimablePods`).
pub fn reclaimed(workload: &Value, pod_set: &str) -> i64 {
    let named = |list: &[&str]| json::list(workload, list).iter().find(|row| row["name"] == pod_set);
    let count = named(&["spec", "podSets"]).map_or(0, |p| p["count"].as_i64().unwrap_or(1));
    let rows = named(&["status", "reclaimablePods"]).and_then(|row| row["count"].as_i64());
    rows.unwrap_or(0).min(most(&workload["metadata"]["annotations"], pod_set, count))
}

/// The same for rows and podsets that are decoded.
pub(super) fn limit(
    rows: &mut [ReclaimablePod],
    annotations: &Value,
    pod_sets: &[plimsoll_queueing::PodSet],
) {
    if annotations[CHARGED_PODS].is_null() {
        return;
    }
    for row in rows {
        if let Some(pod_set) = pod_sets.iter().find(|p| p.name == row.name) {
            let most = most(annotations, &row.name, i64::from(pod_set.count));
            row.count = row.count.min(i32::try_from(most).unwrap_or(i32::MAX));
        }
    }
}

/// Whether podsets of a workload stay charged for more than its reclaimable pods leave.
pub fn keeps_charge(workload: &Value, pod_set: &str) -> bool {
    kept(&workload["metadata"]["annotations"], pod_set).is_some()
}

/// Keeps the charge of podsets of a workload: `pods` by podset. Podsets that are not among them are not kept.
pub fn keep_charge<'a>(workload: &mut Value, pods: impl IntoIterator<Item = (&'a str, i64)>) {
    let rows: Vec<String> = pods.into_iter().map(|(name, count)| format!("{name}={count}")).collect();
    if rows.is_empty() {
        if let Some(annotations) =
            workload.pointer_mut("/metadata/annotations").and_then(Value::as_object_mut)
        {
            annotations.remove(CHARGED_PODS);
        }
    } else {
        json::set(workload, &["metadata", "annotations", CHARGED_PODS], rows.join(",").into());
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn workload(count: i64, reclaimable: i64, kept: Option<&str>) -> Value {
        let mut workload = json!({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Workload",
            "metadata": {"namespace": "ns", "name": "wl"},
            "spec": {"podSets": [{"name": "main", "count": count}]},
            "status": {"reclaimablePods": [{"name": "main", "count": reclaimable}]}});
        if let Some(kept) = kept {
            json::set(&mut workload, &["metadata", "annotations", CHARGED_PODS], json!(kept));
        }
        workload
    }

    /// The annotation charges more pods, never fewer: who may write it could use quota for nothing otherwise.
    #[test]
    fn pods_that_stay_charged_are_not_reclaimed() {
        for (count, reclaimable, kept, want) in [
            (10, 15, None, 10),
            (10, 15, Some("main=5"), 5),
            (10, 3, Some("main=5"), 3),
            (10, 3, Some("main=0"), 3),
            (10, 3, Some("main=99"), 0),
            (10, 3, Some("main=-9"), 3),
            (10, 3, Some("other=9,main=8"), 2),
            (10, 3, Some("other=9"), 3),
            (10, 3, Some("main,=,main=x,9"), 3),
        ] {
            let object = workload(count, reclaimable, kept);
            assert_eq!(reclaimed(&object, "main"), want, "{object}");
            let decoded = super::super::workload(&object).unwrap();
            assert_eq!(i64::from(decoded.status.reclaimable[0].count.min(10)), want, "{object}");
        }
        assert_eq!(reclaimed(&json!({}), "main"), 0);
    }

    #[test]
    fn the_annotation_is_written_and_removed() {
        let mut object = workload(10, 15, None);
        keep_charge(&mut object, [("main", 5), ("other", 1)]);
        assert_eq!(object["metadata"]["annotations"], json!({CHARGED_PODS: "main=5,other=1"}));
        assert!(keeps_charge(&object, "main") && !keeps_charge(&object, "mai"));
        keep_charge(&mut object, []);
        assert!(!keeps_charge(&object, "main"));
    }
}

//! When a workload could start (Plimsoll's own): the Workload that is posted, and the AdmissionForecast that answers.

use plimsoll_api::{json, kueue};
use plimsoll_apimachinery::ApiError;
use plimsoll_queueing::{Forecast, Workload};
use serde_json::{Value, json};

use super::documents::{FORECAST_KIND, GROUP};
use crate::clock;

/// The Workload in a request, as it would be in this LocalQueue.
///
/// # Errors
/// 400 when it can't be understood.
pub fn workload(namespace: &str, queue: &str, body: &[u8]) -> Result<Workload, ApiError> {
    let bad = |e: &dyn std::fmt::Display| ApiError::new(400, "BadRequest", format!("not a Workload: {e}"));
    let mut object: Value = serde_json::from_slice(body).map_err(|e| bad(&e))?;
    if !object.is_object() {
        return Err(bad(&"the body is no object"));
    }
    json::set(&mut object, &["metadata", "namespace"], namespace.into());
    if json::name(&object).is_empty() {
        json::set(&mut object, &["metadata", "name"], "forecast".into());
    }
    json::set(&mut object, &["spec", "queueName"], queue.into());
    kueue::workload(&object).map_err(|e| bad(&e))
}

/// The AdmissionForecast.
pub fn document(version: &str, forecast: &Forecast) -> Value {
    let mut status = json!({"preemptedWorkloads": forecast.preempted, "workloadsAhead": forecast.ahead});
    if let Some(start) = forecast.start {
        status["startTime"] = json!(clock::text(start));
    }
    if !forecast.message.is_empty() {
        status["message"] = json!(forecast.message);
    }
    json!({"kind": FORECAST_KIND, "apiVersion": format!("{GROUP}/{version}"), "metadata": {}, "status": status})
}

#[cfg(test)]
mod tests {
    use super::*;
    use plimsoll_state::Time;

    #[test]
    fn a_workload_is_read_as_one_of_the_queue() {
        let body = json!({"metadata": {"namespace": "other"}, "spec": {"queueName": "other", "priority": 3,
            "podSets": [{"name": "main", "count": 2, "template": {"spec": {"containers": []}}}]}});
        let read = workload("n", "l", body.to_string().as_bytes()).unwrap();
        assert_eq!((read.key.namespace.as_str(), read.queue.as_str(), read.priority), ("n", "l", 3));
        for bad in ["", "[]", r#"{"metadata": {"creationTimestamp": "x"}}"#] {
            let refused = workload("n", "l", bad.as_bytes()).map(drop).unwrap_err();
            assert_eq!(refused.code, 400, "{bad}");
        }
    }

    #[test]
    fn what_is_not_known_is_left_out() {
        let start = Some(Time::from_seconds(60));
        let known = document("v1beta2", &Forecast { start, preempted: 0, ahead: 2, message: String::new() });
        assert_eq!(
            known["status"],
            json!({"startTime": "1970-01-01T00:01:00Z", "preemptedWorkloads": 0, "workloadsAhead": 2})
        );
        let never = document("v1beta2", &Forecast { message: "no".into(), ..Forecast::default() });
        assert_eq!(never["status"], json!({"preemptedWorkloads": 0, "workloadsAhead": 0, "message": "no"}));
    }
}

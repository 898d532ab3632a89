//! Events expire.

use std::time::Duration;

use plimsoll_client::{Clock, resources};
use serde_json::json;

use crate::harness::{Harness, SPEED};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn events_go_some_time_after_they_were_last_written() {
    let harness = Harness::with_events_for(Duration::from_mins(2), Clock::scaled(SPEED), None).await;
    let event = |name: &str| {
        json!({
            "apiVersion": "v1", "kind": "Event", "metadata": {"name": name, "namespace": "default"},
            "involvedObject": {"namespace": "default"}, "reason": "Why", "type": "Normal", "count": 1,
        })
    };
    harness.create(&resources::EVENTS, "default", event("once")).await;
    let again = harness.create(&resources::EVENTS, "default", event("again")).await;
    let created: jiff::Timestamp = again["metadata"]["creationTimestamp"].as_str().unwrap().parse().unwrap();
    harness
        .change(&resources::EVENTS, "default", "again", |e| {
            e["lastTimestamp"] = json!((created + Duration::from_mins(4)).to_string());
            true
        })
        .await;
    harness.until("the first goes", |w| w.get(&resources::EVENTS, "default", "once").is_none()).await;
    assert!(harness.get(&resources::EVENTS, "default", "again").is_some(), "it was written again");
    harness.until("the other goes", |w| w.get(&resources::EVENTS, "default", "again").is_none()).await;
    harness.stop().await;
}

//! ResourceQuotas: counted while writes are under way.

use plimsoll_client::{Propagation, Resource, Target, resources};
use serde_json::json;

use crate::harness::Harness;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn quotas_are_counted_and_given_back() {
    let harness = Harness::new().await;
    let quota = json!({
        "apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "q"},
        "spec": {"hard": {"pods": "3", "requests.cpu": "1", "count/jobs.batch": "2"}},
    });
    harness.create(&resources::RESOURCE_QUOTAS, "default", quota).await;
    let used =
        |w: &Harness| w.get(&resources::RESOURCE_QUOTAS, "default", "q").unwrap()["status"]["used"].clone();
    harness
        .until("the first count", |w| {
            used(w) == json!({"pods": "0", "requests.cpu": "0", "count/jobs.batch": "0"})
        })
        .await;
    let pod = |name: &str, exit: Option<&str>| {
        let resources = json!({"requests": {"cpu": "300m"}});
        let mut pod = json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
            "spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "x", "resources": resources}]},
        });
        if let Some(exit) = exit {
            pod["metadata"]["annotations"] = json!({"exit": exit});
        }
        pod
    };
    for (name, exit) in [("a", None), ("b", None), ("c", Some("0"))] {
        harness.create(&resources::PODS, "default", pod(name, exit)).await;
    }
    // The pod that has ended gives back what it used.
    harness
        .until("two pods' worth", |w| {
            used(w) == json!({"pods": "2", "requests.cpu": "600m", "count/jobs.batch": "0"})
        })
        .await;
    harness.create(&resources::PODS, "default", pod("d", None)).await;
    let target = Target::create(&resources::PODS, "default");
    let refused = harness.client.create(target, pod("e", None)).await.unwrap_err();
    assert!(refused.message.contains("exceeded quota: q"), "{refused}");
    harness.delete(&resources::PODS, "default", "a", Propagation::Background).await;
    harness.delete(&resources::PODS, "default", "d", Propagation::Background).await;
    harness.until("one pod's worth", |w| used(w)["pods"] == "1" && used(w)["requests.cpu"] == "300m").await;
    harness.stop().await;
}

/// Counting anew never loses what is charged for writes that are still under way.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_quota_holds_while_it_is_counted() {
    let harness = Harness::new().await;
    let quota = json!({
        "apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "q"},
        "spec": {"hard": {"count/secrets": "10"}},
    });
    harness.create(&resources::RESOURCE_QUOTAS, "default", quota).await;
    let used =
        |w: &Harness| w.get(&resources::RESOURCE_QUOTAS, "default", "q").unwrap()["status"]["used"].clone();
    harness.until("the first count", |w| used(w) == json!({"count/secrets": "0"})).await;
    let secrets = Resource::builtin("", "v1", "secrets", "/secrets");
    let writers: Vec<_> = (0..6)
        .map(|n| {
            let (client, secrets) = (harness.client.clone(), secrets.clone());
            tokio::spawn(async move {
                let mut made = 0;
                for i in 0..8 {
                    let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": format!("s{n}-{i}")}});
                    match client.create(Target::create(&secrets, "default"), secret).await {
                        Ok(_) => made += 1,
                        Err(e) => assert!(e.message.contains("exceeded quota: q"), "{e}"),
                    }
                }
                made
            })
        })
        .collect();
    let mut made = 0;
    for writer in writers {
        made += writer.await.unwrap();
    }
    assert_eq!(made, 10);
    harness.until("all counted", |w| used(w) == json!({"count/secrets": "10"})).await;
    harness.stop().await;
}

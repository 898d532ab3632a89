//! One kind of row each.

use plimsoll_api::kueue::{WorkloadNames, amount};
use plimsoll_queueing::{QuotaNode, ResourceUsage};
use serde_json::{Map, Value, json};

use super::compare::differences;
use super::harness::Harness;

fn verdict(out: &[String]) -> Result<(), String> {
    if out.is_empty() { Ok(()) } else { Err(out.join("\n")) }
}

pub fn workload_name(row: &Value) -> Result<(), String> {
    let text = |f: &str| row[f].as_str().unwrap_or_default();
    let extra = row["generation"].as_i64().map_or(String::new(), |g| g.to_string());
    let name = WorkloadNames::Long.with(text("kind"), text("group"), text("name"), text("uid"), &extra);
    let mut out = Vec::new();
    differences("name", &row["expect"], &name.into(), &mut out);
    verdict(&out)
}

pub fn role_hash(row: &Value) -> Result<(), String> {
    let mut out = Vec::new();
    differences("hash", &row["expect"], &plimsoll_api::kueue::role_hash(&row["podSpec"]).into(), &mut out);
    verdict(&out)
}

pub fn scenario(row: &Value, joint: bool) -> Result<(), String> {
    let mut harness = Harness::new(row, joint)?;
    let mut out = Vec::new();
    let cycles = row["cycles"].as_array().map_or(&[][..], Vec::as_slice);
    for (n, cycle) in cycles.iter().enumerate() {
        if n > 0 {
            harness.stop_evicted();
        }
        harness.cycle();
        compare_cycle(&format!("cycle {n}"), &cycle["expect"], &mut harness, &mut out);
    }
    let mut after = Vec::new();
    compare_final(row, &harness, &mut after);
    if !after.is_empty() {
        // A list that ends because nothing waits any more shows the state after the last stops.
        harness.stop_evicted();
        let mut stopped = Vec::new();
        compare_final(row, &harness, &mut stopped);
        if stopped.is_empty() {
            after.clear();
        }
    }
    out.extend(after);
    verdict(&out)
}

fn object(v: &Value) -> Map<String, Value> {
    v.as_object().cloned().unwrap_or_default()
}

fn compare_cycle(path: &str, expect: &Value, harness: &mut Harness, out: &mut Vec<String>) {
    let seen = std::mem::take(&mut harness.seen);
    for (name, got) in [("admitted", seen.admitted), ("preempted", seen.preempted), ("evicted", seen.evicted)]
    {
        let want = Value::Object(object(&expect[name]));
        let got = Value::Object(got);
        differences(&format!("{path} {name}"), &want, &got, out);
    }
    let mut want = object(&expect["pending"]);
    let mut got = harness.pending();
    for (key, w) in &mut want {
        let Some(w) = w.as_object_mut() else { continue };
        let Some(g) = got.get_mut(key).and_then(Value::as_object_mut) else { continue };
        let unpublished = w.remove("unpublishedMessage").is_some();
        if unpublished {
            harness.unpublished.insert(key.clone());
        }
        if unpublished || (harness.unpublished.contains(key) && !w.contains_key("reason")) {
            // Only where it waits can be compared; our reason is better than none.
            for f in ["reason", "message"] {
                w.remove(f);
                g.remove(f);
            }
        }
        if let Some(any) = w.remove("messageAnyOf") {
            if any.as_array().is_some_and(|a| g.get("message").is_some_and(|m| a.contains(m))) {
                g.remove("message");
            } else {
                w.insert("message".into(), any);
            }
        }
    }
    differences(&format!("{path} pending"), &want.into(), &got.into(), out);
}

fn compare_final(row: &Value, harness: &Harness, out: &mut Vec<String>) {
    let want = &row["final"];
    let Some(queueing) = harness.engine.queueing() else { return };
    let tree = queueing.quota_tree();
    let (mut usage, mut shares, mut inactive) = (Map::new(), Map::new(), Map::new());
    for node in tree.iter().filter(|n| n.cluster_queue) {
        let Some(status) = queueing.status_of_cluster_queue(&node.name) else { continue };
        let mut cells = Map::new();
        for ResourceUsage { flavor, resource, total, borrowed, bytes: _ } in
            status.reservation.iter().filter(|r| r.total != 0)
        {
            let mut cell = json!({ "total": amount(resource, *total) });
            if *borrowed != 0 {
                cell["borrowed"] = amount(resource, *borrowed);
            }
            cells.insert(format!("{flavor}/{resource}"), cell);
        }
        usage.insert(node.name.clone(), cells.into());
        shares.insert(node.name.clone(), node.rounded_share.into());
        if let Some((false, reason, message)) = status.active {
            inactive.insert(node.name.clone(), json!({ "reason": reason, "message": message }));
        }
    }
    differences("final usage", &want["usage"], &usage.into(), out);
    let inactive = if inactive.is_empty() { Value::Null } else { inactive.into() };
    differences("final inactive", &want["inactive"], &inactive, out);
    if want.get("shares").is_some() {
        differences("final shares", &want["shares"], &shares.into(), out);
    }
    if let Some(cohorts) = want.get("cohortShares") {
        let got: Map<String, Value> = tree
            .iter()
            .filter(|n| !n.cluster_queue && cohorts.get(&n.name).is_some())
            .map(|n| (n.name.clone(), n.rounded_share.into()))
            .collect();
        differences("final cohortShares", cohorts, &got.into(), out);
    }
    if let Some(want) = want.get("localQueueConsumed") {
        // A resource that is missing and one that is zero are the same.
        let got = consumed(harness);
        for (queue, amounts) in want.as_object().into_iter().flatten() {
            let (mut want, mut got) = (object(amounts), object(&got[queue]));
            want.retain(|_, v| v != "0");
            got.retain(|_, v| v != "0");
            let path = format!("final localQueueConsumed.{queue}");
            differences(&path, &want.into(), &got.into(), out);
        }
    }
}

fn consumed(harness: &Harness) -> Value {
    let queues = harness.local_queues.iter().filter_map(|(key, status)| {
        let (resources, _) = status.consumed.as_ref()?;
        let amounts: Map<String, Value> = resources
            .iter()
            .map(|(n, v)| {
                let q = plimsoll_api::Quantity::from_nanos(*v, plimsoll_api::quantity::Format::DecimalSi);
                (n.clone(), q.to_string().into())
            })
            .collect();
        Some((key.clone(), Value::Object(amounts)))
    });
    Value::Object(queues.collect())
}

pub fn quota(row: &Value) -> Result<(), String> {
    let harness = Harness::new(row, false)?;
    let tree = harness.engine.queueing().map(|q| q.quota_tree()).unwrap_or_default();
    let expect = &row["expect"];
    let mut out = Vec::new();
    for (section, want) in object(expect) {
        let got = section_of(&section, &want, &tree);
        differences(&section, &want, &got, &mut out);
    }
    verdict(&out)
}

fn section_of(section: &str, want: &Value, tree: &[QuotaNode]) -> Value {
    let mut all = Map::new();
    for node in tree {
        let mut entry = Map::new();
        for c in &node.cells {
            let amount = |v: i64| plimsoll_api::kueue::amount(&c.resource, v);
            let value = match section {
                "available" => amount(c.available),
                "potentialAvailable" => amount(c.potential),
                "borrowing" if c.borrowed > 0 => amount(c.borrowed),
                "cohorts" => json!({ "subtreeQuota": amount(c.subtree), "usage": amount(c.usage) }),
                _ => continue,
            };
            entry.insert(format!("{}/{}", c.flavor, c.resource), value);
        }
        let value: Value = match section {
            "weightedShare" => node.rounded_share.into(),
            "weightedShareExact" if node.share.is_infinite() => "+Inf".into(),
            "weightedShareExact" => format!("{}", node.share).into(),
            "cohorts" if !node.cluster_queue => entry.into(),
            "available" | "potentialAvailable" | "borrowing" if node.cluster_queue => entry.into(),
            _ => continue,
        };
        if want.get(&node.name).is_some() || value.as_object().is_none_or(|o| !o.is_empty()) {
            all.insert(node.name.clone(), value);
        }
    }
    all.into()
}

//! The dashboard and the rules of `deploy/monitoring`: every metric and label that they name is there.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use serde_json::{Value, json};

use crate::common::run::get;
use crate::common::{Up, job, queue};

const QUEUE: &str = "kueue.x-k8s.io/queue-name";
/// What names of metrics begin with.
const FAMILIES: [&str; 4] = ["kueue_", "scheduler_", "plimsoll_", "leader_election_"];
/// What names the families that have no samples in a short run.
const SOURCES: [&str; 3] = [
    include_str!("../../../plimsoll-queueing/src/metrics/table.rs"),
    include_str!("../../../plimsoll-runtime/src/metrics/mod.rs"),
    include_str!("../../../plimsoll-runtime/src/metrics/observe.rs"),
];

fn read(file: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/monitoring").join(file);
    std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// Expressions of PromQL with where they are, and the names that rules of the file record.
fn expressions() -> (Vec<(String, String)>, BTreeSet<String>) {
    let rules: Value = serde_saphyr::from_str(&read("prometheus-rules.yaml")).unwrap();
    let dashboard: Value = serde_json::from_str(&read("grafana-dashboard.json")).unwrap();
    let (mut all, mut recorded) = (Vec::new(), BTreeSet::new());
    let text = |value: &Value| value.as_str().unwrap_or_else(|| panic!("no text: {value}")).to_owned();
    for rule in
        rules["spec"]["groups"].as_array().unwrap().iter().flat_map(|g| g["rules"].as_array().unwrap())
    {
        recorded.extend(rule["record"].as_str().map(str::to_owned));
        let name = rule["alert"].as_str().or(rule["record"].as_str()).unwrap();
        all.push((name.to_owned(), text(&rule["expr"])));
        for part in ["summary", "description"].iter().filter(|_| rule["alert"].is_string()) {
            assert!(rule["annotations"][*part].is_string(), "{name} has no {part}");
        }
    }
    for panel in dashboard["panels"].as_array().unwrap() {
        for target in panel["targets"].as_array().unwrap() {
            all.push((text(&panel["title"]), text(&target["expr"])));
        }
    }
    for variable in
        dashboard["templating"]["list"].as_array().unwrap().iter().filter(|v| v["type"] == "query")
    {
        all.push((text(&variable["name"]), text(&variable["query"])));
    }
    (all, recorded)
}

/// The metrics that an expression names, each with the labels that its selector names.
fn named(expression: &str) -> Vec<(String, Vec<String>)> {
    let part = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == ':';
    let (mut out, mut rest) = (Vec::new(), expression);
    while let Some(at) = rest.find(part) {
        let from = rest.split_at(at).1;
        let end = from.find(|c| !part(c)).unwrap_or(from.len());
        let (word, after) = from.split_at(end);
        rest = after;
        if !FAMILIES.iter().any(|family| word.starts_with(family)) {
            continue;
        }
        let selector = after.strip_prefix('{').and_then(|s| s.split_once('}')).map_or("", |(s, _)| s);
        let labels = selector.split(',').filter_map(|pair| pair.split(['=', '!']).next());
        out.push((
            word.to_owned(),
            labels.map(str::trim).filter(|l| !l.is_empty()).map(str::to_owned).collect(),
        ));
    }
    out
}

/// Labels by which an expression groups.
fn grouped(expression: &str) -> Vec<String> {
    let lists = expression.split(" by (").skip(1).filter_map(|rest| rest.split_once(')'));
    lists.flat_map(|(list, _)| list.split(',')).map(|l| l.trim().to_owned()).collect()
}

#[test]
fn names_are_found_in_expressions() {
    let text = "sum by (queue, le) (rate(kueue_a_bucket{x=\"1\",y!~\"kueue_b\"}[5m])) / scheduler_c";
    let labels = |list: &[&str]| list.iter().map(|l| (*l).to_owned()).collect::<Vec<_>>();
    assert_eq!(named(text)[0], ("kueue_a_bucket".to_owned(), labels(&["x", "y"])));
    assert_eq!(named(text).last().unwrap().0, "scheduler_c");
    assert_eq!(grouped(text), labels(&["queue", "le"]));
}

/// Families by name with their kind, and the labels of their samples.
fn scrape(url: &str) -> BTreeMap<String, (String, BTreeSet<String>)> {
    let (code, text) = get(url, "/metrics");
    assert_eq!(code, 200, "{text}");
    let mut out: BTreeMap<String, (String, BTreeSet<String>)> = BTreeMap::new();
    for line in text.lines() {
        if let Some((name, kind)) = line.strip_prefix("# TYPE ").and_then(|l| l.split_once(' ')) {
            out.insert(name.to_owned(), (kind.to_owned(), BTreeSet::new()));
        } else if let Some((name, rest)) = line.split_once('{').filter(|_| !line.starts_with('#')) {
            let ends = ["", "_bucket", "_sum", "_count"];
            let family = ends.iter().find_map(|end| name.strip_suffix(end).filter(|f| out.contains_key(*f)));
            let labels =
                rest.split("\",").filter_map(|pair| pair.split_once("=\"")).map(|(l, _)| l.to_owned());
            out.get_mut(family.unwrap_or_else(|| panic!("{line}"))).unwrap().1.extend(labels);
        }
    }
    out
}

#[tokio::test(flavor = "multi_thread")]
async fn dashboard_and_rules_name_metrics_that_are_there() {
    let up = Up::start(&["--speed", "10", "--metrics-bind-address", "127.0.0.1:0"]).await;
    up.apply(&queue(2)).await;
    up.create(&job("runs", &json!({QUEUE: "main"}), 2, 1)).await.unwrap();
    up.create(&job("waits", &json!({QUEUE: "main"}), 9, 1)).await.unwrap();
    let url = up.ready["metrics"].as_str().unwrap().to_owned();
    let (expressions, recorded) = expressions();
    assert!(expressions.len() > 25 && recorded.len() == 2, "{}", expressions.len());
    // Families come with their first samples.
    let known = up
        .until("what a job leaves is counted", async |_| {
            let known = scrape(&url);
            known.get("kueue_admission_wait_time_seconds").filter(|(_, labels)| !labels.is_empty())?;
            Some(known)
        })
        .await;
    let mut wrong = Vec::new();
    for (place, expression) in &expressions {
        let mut labels = BTreeSet::new();
        for (name, selected) in named(expression) {
            let histogram = ["_bucket", "_sum", "_count"].iter().find_map(|end| name.strip_suffix(end));
            let histogram = histogram.filter(|family| known.get(*family).is_some_and(|f| f.0 == "histogram"));
            let Some((kind, own)) = known.get(histogram.unwrap_or(&name)) else {
                // A family without samples is not written.
                let family = ["_bucket", "_sum", "_count"].iter().find_map(|end| name.strip_suffix(end));
                let named = [Some(&*name), family].map(|n| n.map(|n| format!("\"{n}\"")));
                let is_there = |named: &String| SOURCES.iter().any(|source| source.contains(named));
                if !named.iter().flatten().any(is_there) {
                    wrong.push(format!("{place}: {name} is no metric"));
                }
                labels.extend(grouped(expression));
                continue;
            };
            if kind == "histogram" && histogram.is_none() {
                wrong.push(format!("{place}: {name} is a histogram"));
            }
            let missing = selected.iter().filter(|l| !own.is_empty() && !own.contains(*l));
            wrong.extend(missing.map(|l| format!("{place}: {name} has no label {l}")));
            // Without a sample its labels are not known.
            labels.extend(if own.is_empty() {
                grouped(expression).into_iter().collect()
            } else {
                own.clone()
            });
        }
        let missing = grouped(expression).into_iter().filter(|l| !labels.contains(l));
        wrong.extend(missing.map(|l| format!("{place}: nothing has the label {l}")));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

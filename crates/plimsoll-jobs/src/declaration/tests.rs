//! Paths, and the bounds of what expressions may say.

use serde_json::json;

use super::path::Path;
use super::*;

#[test]
fn paths_lead_through_names_and_lists() {
    let object = json!({"spec": {"a.b": [{"c/d": {"e~": 1}}]}});
    let path = Path::parse(".spec['a.b'][0][\"c/d\"].e~", true).unwrap();
    assert_eq!(path.at(&object), Some(&json!(1)));
    assert_eq!(object.pointer(&path.pointer()), Some(&json!(1)));
    assert_eq!(path.field(), "spec.a.b[0].c/d.e~");
    assert_eq!(Path::parse(".spec.x", false).unwrap().at(&object), None);
    assert_eq!(Path::parse(".spec.x.y", false).unwrap().keys(), ["spec", "x", "y"]);
    for (text, why) in [
        ("", "must begin with a dot"),
        (".", "a name is missing"),
        (".spec[", "not closed"),
        (".spec[x]", "neither a quoted name nor a number"),
        (".spec[0]x", "a dot is missing"),
    ] {
        assert!(Path::parse(text, true).is_err_and(|e| e.contains(why)), "{text}");
    }
}

fn kind(pod_sets: &Value, reclaimable: &str) -> Declaration {
    let object = json!({"metadata": {"name": "trains.example.com"}, "spec": {
        "group": "example.com", "versions": ["v1"], "plural": "trains", "kind": "Train", "suspendPath": ".spec.paused",
        "active": "true", "finished": "true", "succeeded": "false", "message": "'late'", "podSets": pod_sets,
        "reclaimablePods": reclaimable}});
    Declaration::read(&object).unwrap()
}

#[test]
fn facts_are_what_the_expressions_say() {
    let each = json!([{"forEachPath": ".spec.tasks", "nameExpression": "item.name", "templatePath": ".pod", "count": "item.n"}]);
    let kind = kind(&each, "{'a': object.status.done}");
    let object = |tasks: Value| json!({"spec": {"tasks": tasks}, "status": {"done": 2}});
    let task = |name: &str, n: i64| json!({"name": name, "n": n, "pod": {"spec": {}}});
    let facts = kind.facts(&object(json!([task("A", 3), {"name": "none"}, task("b", 0)]))).unwrap();
    let at = |i: usize| {
        (facts.templates[i].podset.as_str(), facts.templates[i].count, facts.templates[i].pointer.as_str())
    };
    assert_eq!((at(0), at(1)), (("a", 3, "/spec/tasks/0/pod"), ("b", 0, "/spec/tasks/2/pod")));
    assert_eq!(facts.templates[1].field, "spec.tasks[2].pod");
    assert_eq!(facts.finished, Some((false, "late".to_owned())));
    assert_eq!(facts.reclaimable_pods, Some(vec![("a".to_owned(), 2)]));
    assert_eq!((facts.active, facts.pods_ready), (true, true));
    let many: Vec<Value> = (0..19).map(|i| task(&format!("t{i}"), 1)).collect();
    for (tasks, why) in [
        (json!([]), "there is no pod template at spec.tasks[].pod"),
        (json!([task("a", -1)]), "podset \"a\" has -1 pods"),
        (json!([task("a", 1), task("A", 1)]), "two podsets are called \"a\""),
        (json!(many), "there are more than 18 podsets"),
        (json!([{"name": 1, "n": 1, "pod": {}}]), "spec.podSets[0].nameExpression: must evaluate to string"),
    ] {
        assert_eq!(kind.facts(&object(tasks)), Err(why.to_owned()));
    }
}

/// An expression whose estimate is within the bound can still cost too much for an object that is larger than the estimate
/// takes for granted.
#[test]
fn evaluation_is_bounded() {
    let kind = kind(
        &json!([{"name": "a", "templatePath": ".spec"}]),
        "{'a': size(object.spec.all.filter(x, x.contains('b')))}",
    );
    let all: Vec<Value> = (0..2000).map(|_| json!("a".repeat(10_000))).collect();
    let why = kind.facts(&json!({"spec": {"all": all}})).unwrap_err();
    assert!(why.starts_with("spec.reclaimablePods: "), "{why}");
}

//! autoscaling/v1 and v2: what v1 has no fields for travels in annotations (`pkg/apis/autoscaling/v1/conversion.go`), so
//! that nothing is lost on the way there and back.

use serde_json::{Map, Value, json};

const CPU_TARGET: &str = "targetCPUUtilizationPercentage";
const CPU_NOW: &str = "currentCPUUtilizationPercentage";
const METRICS: &str = "autoscaling.alpha.kubernetes.io/metrics";
const CURRENT: &str = "autoscaling.alpha.kubernetes.io/current-metrics";
const CONDITIONS: &str = "autoscaling.alpha.kubernetes.io/conditions";
const BEHAVIOR: &str = "autoscaling.alpha.kubernetes.io/behavior";

type Obj = Map<String, Value>;

/// v2 → v1.
pub fn to_v1(scaler: &mut Obj) {
    take_notes(scaler);
    let mut notes: Vec<(&str, String)> = Vec::new();
    if let Some(spec) = scaler.get_mut("spec").and_then(Value::as_object_mut) {
        let metrics = taken(spec, "metrics");
        let target = |m: &Value| m["resource"]["target"]["averageUtilization"].clone();
        let (cpu, others): (Vec<&Value>, Vec<&Value>) =
            metrics.iter().partition(|m| is_cpu(m) && !target(m).is_null());
        if let Some(metric) = cpu.first() {
            spec.insert(CPU_TARGET.to_owned(), target(metric));
        }
        notes.push((METRICS, array(others.iter().map(|m| old_metric(m, "target")))));
        if let Some(behavior) = spec.remove("behavior").filter(Value::is_object) {
            notes.push((BEHAVIOR, old_behavior(&behavior)));
        }
    }
    if let Some(status) = scaler.get_mut("status").and_then(Value::as_object_mut) {
        let metrics = taken(status, "currentMetrics");
        let percent = |m: &Value| m["resource"]["current"]["averageUtilization"].clone();
        if let Some(metric) = metrics.iter().rfind(|m| is_cpu(m) && !percent(m).is_null()) {
            status.insert(CPU_NOW.to_owned(), percent(metric));
        }
        notes.push((CURRENT, array(metrics.iter().map(|m| old_metric(m, "current")))));
        let conditions = taken(status, "conditions");
        let one = |c: &Value| {
            let field = |name: &'static str| (name, text(&c[name]));
            ordered(&[
                field("type"),
                field("status"),
                ("lastTransitionTime", Some(c["lastTransitionTime"].to_string())),
                field("reason"),
                field("message"),
            ])
        };
        notes.push((CONDITIONS, array(conditions.iter().map(one))));
    }
    notes.retain(|(_, note)| note != "[]");
    if notes.is_empty() {
        return;
    }
    let meta = scaler.entry("metadata").or_insert_with(|| json!({}));
    for (name, note) in notes {
        meta["annotations"][name] = Value::String(note);
    }
}

/// v1 → v2.
pub fn to_v2(scaler: &mut Obj) {
    let notes = take_notes(scaler);
    let noted = |name: &str| -> Option<Value> {
        serde_json::from_str(notes.iter().find(|(n, _)| n == name)?.1.as_str()?).ok()
    };
    let metrics = |name: &str, field: &str| -> Vec<Value> {
        let all = noted(name).unwrap_or_default();
        all.as_array().into_iter().flatten().map(|m| new_metric(m, field)).collect()
    };
    if let Some(spec) = scaler.get_mut("spec").and_then(Value::as_object_mut) {
        let mut all = metrics(METRICS, "target");
        if let Some(percent) = spec.remove(CPU_TARGET).filter(|p| !p.is_null()) {
            let target = json!({"type": "Utilization", "averageUtilization": percent});
            all.push(json!({"type": "Resource", "resource": {"name": "cpu", "target": target}}));
        }
        if !all.is_empty() {
            spec.insert("metrics".to_owned(), Value::Array(all));
        }
        if let Some(behavior) = noted(BEHAVIOR).as_ref().and_then(new_behavior) {
            spec.insert("behavior".to_owned(), behavior);
        }
    }
    if let Some(status) = scaler.get_mut("status").and_then(Value::as_object_mut) {
        let percent = status.remove(CPU_NOW).filter(|p| !p.is_null());
        let mut all = metrics(CURRENT, "current");
        if let Some(percent) = percent.filter(|_| all.is_empty()) {
            let current = json!({"averageUtilization": percent});
            all.push(json!({"type": "Resource", "resource": {"name": "cpu", "current": current}}));
        }
        if !all.is_empty() {
            status.insert("currentMetrics".to_owned(), Value::Array(all));
        }
        if let Some(conditions) = noted(CONDITIONS).filter(Value::is_array) {
            status.insert("conditions".to_owned(), conditions);
        }
    }
}

fn is_cpu(metric: &Value) -> bool {
    metric["type"] == "Resource" && metric["resource"]["name"] == "cpu"
}

fn taken(object: &mut Obj, field: &str) -> Vec<Value> {
    match object.remove(field) {
        Some(Value::Array(list)) => list,
        _ => Vec::new(),
    }
}

/// Removes what this conversion writes, also when a client wrote it.
fn take_notes(scaler: &mut Obj) -> Vec<(String, Value)> {
    let Some(meta) = scaler.get_mut("metadata").and_then(Value::as_object_mut) else { return Vec::new() };
    let Some(annotations) = meta.get_mut("annotations").and_then(Value::as_object_mut) else {
        return Vec::new();
    };
    let names = [METRICS, CURRENT, CONDITIONS, BEHAVIOR];
    let notes: Vec<_> =
        names.iter().filter_map(|n| Some(((*n).to_owned(), annotations.remove(*n)?))).collect();
    if !notes.is_empty() && annotations.is_empty() {
        meta.remove("annotations");
    }
    notes
}

/// A value, if it is there.
fn text(value: &Value) -> Option<String> {
    (!value.is_null()).then(|| value.to_string())
}

/// A value that v1 always writes: zero when it isn't there.
fn quantity(value: &Value) -> Option<String> {
    text(value).or_else(|| Some("\"0\"".to_owned()))
}

/// An object in the order of Go's fields.
fn ordered(fields: &[(&str, Option<String>)]) -> String {
    let one = |(name, value): &(&str, Option<String>)| Some(format!("\"{name}\":{}", value.as_ref()?));
    format!("{{{}}}", fields.iter().filter_map(one).collect::<Vec<_>>().join(","))
}

fn array(items: impl Iterator<Item = String>) -> String {
    format!("[{}]", items.collect::<Vec<_>>().join(","))
}

/// Where a kind of metric is, by its type.
fn source_of(kind: &str) -> Option<&'static str> {
    Some(match kind {
        "Resource" => "resource",
        "ContainerResource" => "containerResource",
        "Pods" => "pods",
        "Object" => "object",
        "External" => "external",
        _ => return None,
    })
}

/// A metric (`what` is `target`) or its state (`current`) as v1 has it.
fn old_metric(metric: &Value, what: &str) -> String {
    let kind = metric["type"].as_str().unwrap_or("");
    let Some(name) = source_of(kind) else { return ordered(&[("type", text(&metric["type"]))]) };
    let source = &metric[name];
    let (measured, named) = (&source[what], &source["metric"]);
    let at = |suffix: &str| format!("{what}{suffix}");
    let (utilization, average, value) = (at("AverageUtilization"), at("AverageValue"), at("Value"));
    let needed = |v: &Value| if what == "current" { quantity(v) } else { text(v) };
    let selector = text(&named["selector"]);
    let content = match kind {
        "Object" => {
            let of = &source["describedObject"];
            let fields = ["kind", "name", "apiVersion"].map(|f| (f, text(&of[f])));
            ordered(&[
                ("target", Some(ordered(&fields))),
                ("metricName", text(&named["name"])),
                (&value, quantity(&measured["value"])),
                ("selector", selector),
                ("averageValue", text(&measured["averageValue"])),
            ])
        }
        "Pods" => ordered(&[
            ("metricName", text(&named["name"])),
            (&average, quantity(&measured["averageValue"])),
            ("selector", selector),
        ]),
        "External" => ordered(&[
            ("metricName", text(&named["name"])),
            ("metricSelector", selector),
            (&value, needed(&measured["value"])),
            (&average, text(&measured["averageValue"])),
        ]),
        _ => ordered(&[
            ("name", text(&source["name"])),
            (&utilization, text(&measured["averageUtilization"])),
            (&average, needed(&measured["averageValue"])),
            ("container", text(&source["container"])),
        ]),
    };
    ordered(&[("type", text(&metric["type"])), (name, Some(content))])
}

/// The reverse of [`old_metric`].
fn new_metric(metric: &Value, what: &str) -> Value {
    let kind = metric["type"].as_str().unwrap_or("");
    let Some(name) = source_of(kind) else { return json!({"type": kind}) };
    let old = &metric[name];
    let at = |suffix: &str| &old[format!("{what}{suffix}").as_str()];
    let mut source = Obj::new();
    let mut measured = Obj::new();
    let mut set = |field: &str, value: &Value| {
        if !value.is_null() {
            measured.insert(field.to_owned(), value.clone());
        }
    };
    let kind_of_target = match kind {
        "Resource" | "ContainerResource" => {
            set("averageUtilization", at("AverageUtilization"));
            set("averageValue", at("AverageValue"));
            if at("AverageUtilization").is_null() { "AverageValue" } else { "Utilization" }
        }
        "Object" => {
            let average = &old["averageValue"];
            set("averageValue", average);
            // v1 cannot leave the value out.
            if average.is_null() || *at("Value") != "0" {
                set("value", at("Value"));
            }
            if average.is_null() { "Value" } else { "AverageValue" }
        }
        _ => {
            set("value", at("Value"));
            set("averageValue", at("AverageValue"));
            if at("Value").is_null() { "AverageValue" } else { "Value" }
        }
    };
    if what == "target" {
        set("type", &json!(kind_of_target));
    }
    if kind == "Object" {
        source.insert("describedObject".to_owned(), old["target"].clone());
    }
    for field in ["name", "container"] {
        if !old[field].is_null() {
            source.insert(field.to_owned(), old[field].clone());
        }
    }
    if !old["metricName"].is_null() {
        let mut named = json!({"name": old["metricName"]});
        let selector = if kind == "External" { &old["metricSelector"] } else { &old["selector"] };
        if !selector.is_null() {
            named["selector"] = selector.clone();
        }
        source.insert("metric".to_owned(), named);
    }
    source.insert(what.to_owned(), Value::Object(measured));
    let mut made = json!({"type": kind});
    made[name] = Value::Object(source);
    made
}

/// The rules of one direction, in the order and with the names of Go's internal type, which has no JSON names.
fn old_behavior(behavior: &Value) -> String {
    let policy = |p: &Value| {
        ordered(&[
            ("Type", text(&p["type"])),
            ("Value", text(&p["value"])),
            ("PeriodSeconds", text(&p["periodSeconds"])),
        ])
    };
    let null = |v: &Value| Some(v.to_string());
    let rules = |r: &Value| {
        let policies = r["policies"].as_array().map(|all| array(all.iter().map(policy)));
        ordered(&[
            ("StabilizationWindowSeconds", null(&r["stabilizationWindowSeconds"])),
            ("SelectPolicy", null(&r["selectPolicy"])),
            ("Policies", policies.or_else(|| Some("null".to_owned()))),
            ("Tolerance", null(&r["tolerance"])),
        ])
    };
    let side =
        |name: &str| Some(behavior[name].as_object().map_or("null".to_owned(), |_| rules(&behavior[name])));
    ordered(&[("ScaleUp", side("scaleUp")), ("ScaleDown", side("scaleDown"))])
}

fn new_behavior(old: &Value) -> Option<Value> {
    let mut behavior = Obj::new();
    for (from, to) in [("ScaleUp", "scaleUp"), ("ScaleDown", "scaleDown")] {
        if let Some(rules) = renamed(&old[from]) {
            behavior.insert(to.to_owned(), rules);
        }
    }
    (!behavior.is_empty()).then_some(Value::Object(behavior))
}

/// Fields with small first letters; nulls go.
fn renamed(rules: &Value) -> Option<Value> {
    let small = |name: &str| {
        let mut letters = name.chars();
        let first = letters.next().map(|c| c.to_ascii_lowercase());
        first.into_iter().chain(letters).collect::<String>()
    };
    let fields = rules.as_object()?.iter().filter(|(_, v)| !v.is_null());
    let one = |(name, value): (&String, &Value)| {
        let value = match value.as_array() {
            Some(list) => Value::Array(list.iter().filter_map(renamed).collect()),
            None => value.clone(),
        };
        (small(name), value)
    };
    Some(Value::Object(fields.map(one).collect()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_and_back() {
        let metric = |name: &str| json!({"name": name, "selector": {"matchLabels": {"a": "b"}}});
        let object = json!({"kind": "Service", "name": "s", "apiVersion": "v1"});
        let scaler = json!({
            "metadata": {"name": "a", "annotations": {"mine": "stays"}},
            "spec": {
                "maxReplicas": 3,
                "metrics": [
                    {"type": "Resource", "resource": {"name": "memory", "target": {"type": "AverageValue", "averageValue": "1Gi"}}},
                    {"type": "Resource", "resource": {"name": "memory", "target": {"type": "Utilization", "averageUtilization": 7}}},
                    {"type": "ContainerResource", "containerResource": {"name": "cpu", "container": "c",
                        "target": {"type": "Utilization", "averageUtilization": 8}}},
                    {"type": "Pods", "pods": {"metric": metric("p"), "target": {"type": "AverageValue", "averageValue": "5"}}},
                    {"type": "Object", "object": {"metric": metric("o"), "describedObject": object,
                        "target": {"type": "Value", "value": "6"}}},
                    {"type": "Object", "object": {"metric": {"name": "o"}, "describedObject": object,
                        "target": {"type": "AverageValue", "averageValue": "6"}}},
                    {"type": "External", "external": {"metric": metric("e"), "target": {"type": "Value", "value": "9"}}},
                    {"type": "External", "external": {"metric": {"name": "e"},
                        "target": {"type": "AverageValue", "averageValue": "9"}}},
                    {"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 55}}},
                ],
                "behavior": {"scaleDown": {"stabilizationWindowSeconds": 30, "selectPolicy": "Max",
                    "policies": [{"type": "Pods", "value": 4, "periodSeconds": 60}]}},
            },
            "status": {
                "currentReplicas": 1,
                "currentMetrics": [
                    {"type": "Resource", "resource": {"name": "cpu", "current": {"averageUtilization": 12, "averageValue": "3m"}}},
                    {"type": "Pods", "pods": {"metric": metric("p"), "current": {"averageValue": "5"}}},
                ],
                "conditions": [{"type": "AbleToScale", "status": "True", "lastTransitionTime": null, "reason": "r", "message": "m"}],
            },
        });
        let mut made = scaler.as_object().unwrap().clone();
        to_v1(&mut made);
        assert_eq!(made["spec"], json!({"maxReplicas": 3, CPU_TARGET: 55}));
        assert_eq!(made["status"], json!({"currentReplicas": 1, CPU_NOW: 12}));
        let notes = &made["metadata"]["annotations"];
        let start = r#"[{"type":"Resource","resource":{"name":"memory","targetAverageValue":"1Gi"}},{"type":"Resource","resource":{"name":"memory","targetAverageUtilization":7}},"#;
        assert!(notes[METRICS].as_str().unwrap().starts_with(start), "{notes}");
        assert_eq!(notes["mine"], "stays");
        let behavior = r#"{"ScaleUp":null,"ScaleDown":{"StabilizationWindowSeconds":30,"SelectPolicy":"Max","Policies":[{"Type":"Pods","Value":4,"PeriodSeconds":60}],"Tolerance":null}}"#;
        assert_eq!(notes[BEHAVIOR], behavior);
        to_v2(&mut made);
        assert_eq!(Value::Object(made), scaler);
    }

    #[test]
    fn nothing_to_note() {
        let scaler = json!({"metadata": {"name": "a", "annotations": {METRICS: "[", CONDITIONS: "{}"}}, "spec": {"maxReplicas": 3}});
        let mut made = scaler.as_object().unwrap().clone();
        to_v2(&mut made);
        assert_eq!(
            Value::Object(made.clone()),
            json!({"metadata": {"name": "a"}, "spec": {"maxReplicas": 3}})
        );
        to_v1(&mut made);
        assert_eq!(Value::Object(made), json!({"metadata": {"name": "a"}, "spec": {"maxReplicas": 3}}));
    }
}

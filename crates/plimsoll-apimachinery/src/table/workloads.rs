//! Rows of apps, batch, policy, autoscaling and scheduling kinds.

use serde_json::{Value, json};

use super::age;
use super::cell::{
    Ctx, at, containers, created, given, int, int_or_string, labels, list, name, or, selector, text,
};

fn pod_spec(v: &Value) -> &Value {
    at(v, &["spec", "template", "spec"])
}

/// Deployment.
pub fn deployment(v: &Value, ctx: Ctx) -> Vec<Value> {
    let [names, images] = containers(pod_spec(v));
    vec![
        name(v),
        json!(format!("{}/{}", int(v, &["status", "readyReplicas"]), int(v, &["spec", "replicas"]))),
        json!(int(v, &["status", "updatedReplicas"])),
        json!(int(v, &["status", "availableReplicas"])),
        created(v, ctx),
        names,
        images,
        selector(at(v, &["spec", "selector"])),
    ]
}

/// Scale.
pub fn scale(v: &Value, ctx: Ctx) -> Vec<Value> {
    let (desired, available) = (int(v, &["spec", "replicas"]), int(v, &["status", "replicas"]));
    vec![name(v), json!(desired), json!(available), created(v, ctx)]
}

/// ReplicaSet and ReplicationController (whose selector is a plain map).
pub fn replica_set(v: &Value, ctx: Ctx) -> Vec<Value> {
    let [names, images] = containers(pod_spec(v));
    let by = at(v, &["spec", "selector"]);
    let structured = by.get("matchLabels").is_some_and(Value::is_object)
        || by.get("matchExpressions").is_some_and(Value::is_array);
    vec![
        name(v),
        json!(int(v, &["spec", "replicas"])),
        json!(int(v, &["status", "replicas"])),
        json!(int(v, &["status", "readyReplicas"])),
        created(v, ctx),
        names,
        images,
        if structured { selector(by) } else { labels(by) },
    ]
}

/// StatefulSet.
pub fn stateful_set(v: &Value, ctx: Ctx) -> Vec<Value> {
    let [names, images] = containers(pod_spec(v));
    let ready = format!("{}/{}", int(v, &["status", "readyReplicas"]), int(v, &["spec", "replicas"]));
    vec![name(v), json!(ready), created(v, ctx), names, images]
}

/// DaemonSet.
pub fn daemon_set(v: &Value, ctx: Ctx) -> Vec<Value> {
    let [names, images] = containers(pod_spec(v));
    let count = |field: &str| json!(int(v, &["status", field]));
    vec![
        name(v),
        count("desiredNumberScheduled"),
        count("currentNumberScheduled"),
        count("numberReady"),
        count("updatedNumberScheduled"),
        count("numberAvailable"),
        labels(at(v, &["spec", "template", "spec", "nodeSelector"])),
        created(v, ctx),
        names,
        images,
        selector(at(v, &["spec", "selector"])),
    ]
}

/// ControllerRevision.
pub fn controller_revision(v: &Value, ctx: Ctx) -> Vec<Value> {
    let owner = list(v, &["metadata", "ownerReferences"]).iter().find(|o| at(o, &["controller"]) == true);
    let controller = owner.map_or_else(
        || "<none>".to_owned(),
        |o| {
            let group = text(o, &["apiVersion"]).split_once('/').map_or("", |(g, _)| g);
            let kind = text(o, &["kind"]).to_lowercase();
            let dot = if group.is_empty() { "" } else { "." };
            format!("{kind}{dot}{group}/{}", text(o, &["name"]))
        },
    );
    vec![name(v), json!(controller), json!(int(v, &["revision"])), created(v, ctx)]
}

/// Job.
pub fn job(v: &Value, ctx: Ctx) -> Vec<Value> {
    let succeeded = int(v, &["status", "succeeded"]);
    let parallelism = int(v, &["spec", "parallelism"]);
    let completions = match at(v, &["spec", "completions"]).as_i64() {
        Some(wanted) => format!("{succeeded}/{wanted}"),
        None if parallelism > 1 => format!("{succeeded}/1 of {parallelism}"),
        None => format!("{succeeded}/1"),
    };
    let start = age::time(at(v, &["status", "startTime"]));
    let end = age::time(at(v, &["status", "completionTime"])).unwrap_or(ctx.now);
    let duration = start.map_or_else(String::new, |s| age::human_duration(age::seconds_between(s, end)));
    let [names, images] = containers(pod_spec(v));
    vec![
        name(v),
        json!(job_status(v)),
        json!(completions),
        json!(duration),
        created(v, ctx),
        names,
        images,
        selector(at(v, &["spec", "selector"])),
    ]
}

fn job_status(v: &Value) -> &'static str {
    let has = |kind: &str| {
        list(v, &["status", "conditions"])
            .iter()
            .find(|c| text(c, &["type"]) == kind)
            .is_some_and(|c| text(c, &["status"]) == "True")
    };
    if has("Complete") {
        "Complete"
    } else if has("Failed") {
        "Failed"
    } else if !at(v, &["metadata", "deletionTimestamp"]).is_null() {
        "Terminating"
    } else if has("Suspended") {
        "Suspended"
    } else if has("FailureTarget") {
        "FailureTarget"
    } else if has("SuccessCriteriaMet") {
        "SuccessCriteriaMet"
    } else {
        "Running"
    }
}

/// CronJob.
pub fn cron_job(v: &Value, ctx: Ctx) -> Vec<Value> {
    let job = at(v, &["spec", "jobTemplate", "spec"]);
    let [names, images] = containers(pod_spec(at(v, &["spec", "jobTemplate"])));
    let suspend = match at(v, &["spec", "suspend"]).as_bool() {
        Some(true) => "True",
        Some(false) => "False",
        None => "<unset>",
    };
    let last = at(v, &["status", "lastScheduleTime"]);
    vec![
        name(v),
        json!(text(v, &["spec", "schedule"])),
        given(v, &["spec", "timeZone"], "<none>"),
        json!(suspend),
        json!(list(v, &["status", "active"]).len()),
        json!(if last.is_null() { "<none>".to_owned() } else { age::age(last, ctx.now) }),
        created(v, ctx),
        names,
        images,
        selector(at(job, &["selector"])),
    ]
}

/// PodTemplate.
pub fn pod_template(v: &Value, _: Ctx) -> Vec<Value> {
    let [names, images] = containers(at(v, &["template", "spec"]));
    vec![name(v), names, images, labels(at(v, &["template", "metadata", "labels"]))]
}

/// PodDisruptionBudget.
pub fn disruption_budget(v: &Value, ctx: Ctx) -> Vec<Value> {
    vec![
        name(v),
        json!(int_or_string(at(v, &["spec", "minAvailable"]))),
        json!(int_or_string(at(v, &["spec", "maxUnavailable"]))),
        json!(int(v, &["status", "disruptionsAllowed"])),
        created(v, ctx),
    ]
}

/// PriorityClass.
pub fn priority_class(v: &Value, ctx: Ctx) -> Vec<Value> {
    vec![
        name(v),
        json!(int(v, &["value"])),
        json!(at(v, &["globalDefault"]) == true),
        created(v, ctx),
        or(text(v, &["preemptionPolicy"]), "PreemptLowerPriority"),
    ]
}

/// HorizontalPodAutoscaler of autoscaling/v1 and v2.
pub fn autoscaler(v: &Value, ctx: Ctx) -> Vec<Value> {
    let target = at(v, &["spec", "scaleTargetRef"]);
    let min = at(v, &["spec", "minReplicas"]).as_i64();
    vec![
        name(v),
        json!(format!("{}/{}", text(target, &["kind"]), text(target, &["name"]))),
        json!(hpa_targets(v)),
        json!(min.map_or_else(|| "<unset>".to_owned(), |m| m.to_string())),
        json!(int(v, &["spec", "maxReplicas"])),
        json!(int(v, &["status", "currentReplicas"])),
        created(v, ctx),
    ]
}

/// The TARGETS cell: at most two metrics, then `+ N more…`.
fn hpa_targets(v: &Value) -> String {
    let metrics = list(v, &["spec", "metrics"]);
    if metrics.is_empty() {
        return match at(v, &["spec", "targetCPUUtilizationPercentage"]).as_i64() {
            Some(target) => {
                let now = at(v, &["status", "currentCPUUtilizationPercentage"]).as_i64();
                format!("cpu: {}/{target}%", now.map_or("<unknown>".to_owned(), |n| format!("{n}%")))
            }
            None => "<none>".to_owned(),
        };
    }
    let current = list(v, &["status", "currentMetrics"]);
    let shown: Vec<String> =
        metrics.iter().take(2).enumerate().map(|(i, m)| hpa_metric(m, current.get(i))).collect();
    let more = metrics.len().saturating_sub(2);
    let tail = if more > 0 { format!(" + {more} more...") } else { String::new() };
    format!("{}{tail}", shown.join(", "))
}

fn hpa_metric(spec: &Value, current: Option<&Value>) -> String {
    let field = match text(spec, &["type"]) {
        "External" => "external",
        "Pods" => "pods",
        "Object" => "object",
        "Resource" => "resource",
        "ContainerResource" => "containerResource",
        _ => return "<unknown type>".to_owned(),
    };
    let (wanted, now) = (at(spec, &[field]), current.map_or(&Value::Null, |c| at(c, &[field, "current"])));
    let head = match field {
        "resource" | "containerResource" => format!("{}: ", text(wanted, &["name"])),
        _ => String::new(),
    };
    let value = |v: &Value, key: &str| at(v, &[key]).as_str().map(str::to_owned);
    if let Some(percent) = at(wanted, &["target", "averageUtilization"]).as_i64() {
        let seen = at(now, &["averageUtilization"]).as_i64();
        return format!("{head}{}/{percent}%", seen.map_or("<unknown>".to_owned(), |s| format!("{s}%")));
    }
    if let Some(average) = value(at(wanted, &["target"]), "averageValue") {
        let suffix = if matches!(field, "object" | "external") { " (avg)" } else { "" };
        let seen = value(now, "averageValue").unwrap_or_else(|| "<unknown>".to_owned());
        return format!("{head}{seen}/{average}{suffix}");
    }
    match value(at(wanted, &["target"]), "value") {
        Some(target) => {
            format!("{head}{}/{target}", value(now, "value").unwrap_or_else(|| "<unknown>".to_owned()))
        }
        None => format!("{head}<unknown>/<auto>"),
    }
}

//! Every kind through its life, and what each one's status says. The tables follow the scenarios of Kueue's
//! `*_controller_test.go` and `*_webhook_test.go`.

use plimsoll_api::conditions::set_status_condition;
use plimsoll_state::Time;
use serde_json::json;

use super::*;
use crate::Config;
use crate::names;
use crate::plan::Write;
use crate::testing::Fixture;
use crate::webhook::{Operation, Review, mutate, validate};

mod app_wrappers;
mod declared_kinds;
mod elastic_ray;
mod jobsets;
mod kubeflow_jobs;
mod ray_jobs;
mod spark_applications;
mod train_jobs;

pub(super) const NOW: Time = Time::from_seconds(1_700_000_000);

/// A pod template with fields that this crate does not know.
pub(super) fn template() -> Value {
    json!({"metadata": {"labels": {"own": "x"}},
           "spec": {"containers": [{"name": "c", "unknownField": 1}], "unknownField": [1]}})
}

/// A suspended job in queue `q`.
pub(super) fn job(table: &JobKind, spec: &Value) -> Value {
    let resource = table.kind.preferred();
    let mut job = json!({
        "apiVersion": resource.api_version, "kind": resource.kind,
        "metadata": {"namespace": "ns", "name": "j", "uid": "ju", "resourceVersion": "1",
                     "labels": {names::QUEUE: "q"}},
        "spec": spec, "unknownField": {"kept": true},
    });
    json::set(&mut job, table.suspend, json!(true));
    job
}

pub(super) fn table_job<'a>(table: &'static JobKind, object: &'a Value) -> TableJob<'a> {
    TableJob { table, resource: table.kind.preferred(), object, cluster: None }
}

/// Name and count of each podset.
pub(super) fn counts(table: &'static JobKind, object: &Value) -> Vec<(String, i64)> {
    let podset = |p: &Value| (json::text(p, &["name"]).to_owned(), p["count"].as_i64().unwrap());
    table_job(table, object).pod_sets().iter().map(podset).collect()
}

fn merge(into: &mut Value, patch: &Value) {
    let Value::Object(patch) = patch else { return *into = patch.clone() };
    for (key, value) in patch {
        if value.is_null() {
            json::remove(into, &[key]);
        } else {
            merge(&mut into[key.as_str()], value);
        }
    }
}

/// The object after the patches of a plan to its kind.
fn patched(object: &Value, plan: &Plan, of: Resource) -> Value {
    let mut new = object.clone();
    for write in plan {
        if let Write::Patch { resource, body, .. } = write
            && *resource == of
        {
            merge(&mut new, body);
        }
    }
    new
}

fn with_condition(wl: &Value, kind: &str, reason: &str) -> Value {
    let mut wl = wl.clone();
    let conditions = set_status_condition(&wl, kind, true, reason, "", NOW).unwrap();
    json::set(&mut wl, &["status", "conditions"], Value::Array(conditions));
    wl
}

fn admitted(made: &Value) -> Value {
    let mut wl = made.clone();
    json::set(&mut wl, &["metadata", "uid"], json!("wu"));
    json::set(&mut wl, &["metadata", "resourceVersion"], json!("2"));
    let assigned: Vec<Value> = json::list(made, &["spec", "podSets"])
        .iter()
        .map(|p| json!({"name": p["name"], "count": p["count"], "flavors": {"cpu": "f"}}))
        .collect();
    json::set(
        &mut wl,
        &["status", "admission"],
        json!({"clusterQueue": "cq", "podSetAssignments": assigned}),
    );
    with_condition(&with_condition(&wl, "QuotaReserved", "QuotaReserved"), "Admitted", "Admitted")
}

/// A job is queued, starts with what was assigned to it, and is as before after an eviction, with all fields that this
/// crate does not know.
pub(super) fn lives(table: &'static JobKind, object: &Value) {
    let resource = table.kind.preferred();
    let framework = table.kind.framework();
    let mut fixture = Fixture::default();
    fixture.put(Kind::Flavor, json!({"metadata": {"name": "f"}, "spec": {"nodeLabels": {"zone": "a"}}}));
    let kind = Kind::Custom(table.kind);
    fixture.serve(kind, Some(resource));
    let go = |fixture: &mut Fixture, object: &Value| {
        fixture.put(kind, object.clone());
        reconcile(framework, "ns", "j", fixture.env(NOW))
    };
    let plan = go(&mut fixture, object);
    let Some(Write::Create(_, made)) = plan.first() else { panic!("{framework}: {plan:?}") };
    let owner = json::controller(made).unwrap();
    assert_eq!((&owner["kind"], &owner["uid"]), (&json!(resource.kind), &json!("ju")), "{framework}");
    let prefix = format!("{}-j-", resource.kind.to_lowercase());
    assert!(json::name(made).starts_with(&prefix), "{framework}: {made}");
    assert_eq!(made["spec"]["queueName"], "q", "{framework}");

    let wl = admitted(made);
    fixture.put(Kind::Workload, wl.clone());
    let plan = go(&mut fixture, object);
    assert!(
        plan.iter().any(|w| matches!(w, Write::Event(e) if e.reason == "Started")),
        "{framework}: {plan:?}"
    );
    let started = patched(object, &plan, resource);
    assert!(!is_suspended(table, &started), "{framework}");
    let injected = matches!(table.inject, Inject::Templates);
    for at in (table.templates)(&started).iter().filter(|_| injected) {
        let template = started.pointer(&at.pointer).unwrap();
        assert_eq!(template["spec"]["nodeSelector"]["zone"], "a", "{framework} {}", at.podset);
        assert_eq!(json::label(template, names::PODSET), at.podset, "{framework}");
        assert_eq!(json::label(template, "own"), "x", "{framework} {}", at.podset);
    }
    assert_eq!(go(&mut fixture, &started), Plan::new(), "{framework}: runs as admitted");

    fixture.put(Kind::Workload, with_condition(&wl, "Evicted", "Preempted"));
    let plan = go(&mut fixture, &started);
    let mut stopped = patched(&started, &plan, resource);
    let uid = |o: &mut Value| o["metadata"]["resourceVersion"] = json!("1");
    uid(&mut stopped);
    assert_eq!(&stopped, object, "{framework}: stopped as it was");

    // A job that its owner has deleted releases its workload.
    fixture.put(Kind::Workload, wl);
    fixture.remove(kind, "ns", "j", "ju");
    let plan = reconcile(framework, "ns", "j", fixture.env(NOW));
    assert!(matches!(plan.as_slice(), [Write::Patch { subresource: "status", .. }]), "{framework}: {plan:?}");
}

/// How a job with this status ended.
pub(super) fn end(table: &JobKind, status: &Value) -> Option<(bool, String)> {
    let mut object = job(table, &json!({}));
    object["status"] = status.clone();
    (table.finished)(&object).map(|f| (f.success, f.message))
}

fn review<'a>(table: &JobKind, old: Option<&'a Value>) -> Review<'a> {
    let resource = table.kind.preferred();
    let operation = if old.is_some() { Operation::Update } else { Operation::Create };
    Review { group: resource.group(), plural: resource.plural, operation, namespace: "ns", old }
}

/// A configuration with all frameworks, those behind gates too.
fn everything() -> Config {
    let mut config = Config::default();
    config.frameworks.extend(TABLES.map(|table| table.kind.framework().to_owned()));
    config
}

/// The refusal of an object, or an empty text.
pub(super) fn refusal(table: &JobKind, object: &Value, old: Option<&Value>) -> String {
    let fixture = Fixture::with_config(everything());
    let outcome = validate(&review(table, old), object, fixture.env(NOW));
    outcome.map_or_else(|denied| denied.message, |_| String::new())
}

/// Rules of every kind: defaults, and what may change while a job runs.
#[test]
fn the_webhooks_of_all_kinds_share_kueues_rules() {
    for table in TABLES {
        let framework = table.kind.framework();
        // What a RayJob and a SparkApplication have to have; other kinds don't know it.
        let spec = json!({"rayClusterSpec": {}, "shutdownAfterJobFinishes": true, "mode": "cluster"});
        let suspended = job(table, &spec);
        let running = |o: &Value| {
            let mut o = o.clone();
            json::set(&mut o, table.suspend, json!(false));
            o
        };
        let defaulted = |config: Config, object: &Value| {
            let mut new = running(object);
            mutate(&review(table, None), &mut new, Fixture::with_config(config).env(NOW));
            is_suspended(table, &new)
        };
        let without = json!({"metadata": {"namespace": "ns", "name": "j"}, "spec": {}});
        let all = Config { manage_jobs_without_queue_name: true, ..everything() };
        let off = Config { frameworks: ["batch/job".to_owned()].into(), ..all.clone() };
        assert!(defaulted(everything(), &suspended), "{framework}");
        assert!(!defaulted(everything(), &without), "{framework}");
        assert!(defaulted(all, &without), "{framework}");
        assert!(!defaulted(off, &suspended), "{framework}");

        let set = |object: &Value, label: &str, value: &str| {
            let mut object = object.clone();
            json::set(&mut object, &["metadata", "labels", label], json!(value));
            object
        };
        let bad = set(&suspended, names::QUEUE, "a b");
        assert!(
            refusal(table, &bad, None)
                .starts_with("metadata.labels[kueue.x-k8s.io/queue-name]: Invalid value")
        );
        let moved = set(&suspended, names::QUEUE, "other");
        assert_eq!(refusal(table, &moved, Some(&suspended)), "", "{framework}");
        let want = "metadata.labels[kueue.x-k8s.io/queue-name]: Invalid value: \"other\": field is immutable";
        assert_eq!(refusal(table, &running(&moved), Some(&running(&suspended))), want, "{framework}");
        let timed = set(&suspended, names::MAX_EXEC_TIME, "0");
        assert!(refusal(table, &timed, None).ends_with("should be greater than 0"), "{framework}");
        // Some of Kueue's webhooks leave alone what no update has changed.
        let kept = refusal(table, &timed, Some(&timed));
        assert_eq!(kept.is_empty(), table.updates == Updates::Changes, "{framework}: {kept}");
    }
}

/// Jobs within queued jobs are not queued, and wait for their ancestor (Kueue `TestFindAncestorJobManagedByKueue` and
/// `TestReconcileGenericJob`).
#[test]
fn a_job_within_a_queued_job_waits_for_it() {
    let table = &jobset::JOB_SET;
    let owner = |kind: &str, version: &str, uid: &str| json!([{"apiVersion": version, "kind": kind, "name": uid, "uid": uid, "controller": true}]);
    let labels = |queued: bool| if queued { json!({names::QUEUE: "q"}) } else { json!({}) };
    let jobs = |wait: bool, manage_all: bool, parent_queued: bool, wl: Option<bool>| {
        let config = Config { manage_jobs_without_queue_name: manage_all, ..Config::default() };
        let mut fixture = Fixture::with_config(config);
        let kind = Kind::Custom(table.kind);
        fixture.serve(kind, Some(table.kind.preferred()));
        let parent = json!({"metadata": {"namespace": "ns", "name": "p", "uid": "p", "labels": labels(parent_queued)}, "spec": {}});
        fixture.put(kind, parent);
        if let Some(admitted) = wl {
            let wl = json!({"metadata": {"namespace": "ns", "name": "w", "uid": "w", "ownerReferences": owner("JobSet", "jobset.x-k8s.io/v1alpha2", "p")}});
            fixture
                .put(Kind::Workload, if admitted { with_condition(&wl, "Admitted", "Admitted") } else { wl });
        }
        let child = json!({"metadata": {"namespace": "ns", "name": "c", "uid": "c", "resourceVersion": "1",
                "ownerReferences": owner("JobSet", "jobset.x-k8s.io/v1alpha2", "p")},
            "spec": {"suspend": wait, "template": template()}});
        fixture.put(Kind::Job, child);
        let plan = crate::reconcile(&crate::Key::job("batch/job", "ns", "c"), fixture.env(NOW));
        let word = |w: &Write| match w {
            Write::Create(..) => "create",
            Write::Patch { body, .. } if body["spec"]["suspend"] == true => "suspend",
            Write::Event(e) if e.reason == "Suspended" => "event",
            _ => "other",
        };
        plan.iter().map(word).collect::<Vec<_>>()
    };
    let none: [&str; 0] = [];
    assert_eq!(jobs(false, false, true, None), ["suspend", "event"], "no workload yet");
    assert_eq!(jobs(false, false, true, Some(false)), ["suspend", "event"], "not admitted");
    assert_eq!(jobs(false, false, true, Some(true)), none, "admitted");
    assert_eq!(jobs(true, false, true, None), none, "waits already");
    assert_eq!(jobs(false, false, false, None), none, "neither is queued");
    assert_eq!(jobs(false, true, false, None), ["suspend", "event"], "all jobs are queued: the topmost one");
}

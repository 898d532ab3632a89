use std::sync::Arc;

use serde_json::{Value, json};

use super::*;
use crate::api::{Api, Request};

fn change(object: Value) -> Change {
    Change { version: 1, object: Arc::new(object), deleted: false }
}

fn queue(nominal: i64) -> Value {
    let cpu = json!({"name": "cpu", "nominalQuota": nominal.to_string()});
    json!({"metadata": {"name": "c"}, "spec": {"resourceGroups": [{"flavors": [{"name": "f", "resources": [cpu]}]}]}})
}

fn workload(name: &str, pods: i64) -> Value {
    let assigned = json!({"name": "main", "count": pods, "flavors": {"cpu": "f"}, "resourceUsage": {"cpu": pods.to_string()}});
    json!({
        "metadata": {"namespace": "n", "name": name, "uid": name},
        "spec": {"podSets": [{"name": "main", "count": pods}]},
        "status": {
            "conditions": [{"type": "QuotaReserved", "status": "True"}],
            "admission": {"clusterQueue": "c", "podSetAssignments": [assigned]},
        },
    })
}

/// What a workload with so many pods does, after one with two of three CPUs.
fn second(pods: i64, known: i64) -> Result<(), Rule> {
    let mut checkers = Checkers::default();
    let mut quotas = Quotas::default();
    quotas.know(Kind::ClusterQueue, "c", Some(&queue(known)));
    let known = [Seen { at: Time(0), quotas: Rc::new(quotas) }];
    let rule = |v: Violation| v.rule;
    checkers.changed(Kind::ClusterQueue, &change(queue(3)), None, Time(0)).map_err(rule)?;
    checkers.changed(Kind::Workload, &change(workload("a", 2)), Some(&known), Time(0)).map_err(rule)?;
    checkers.changed(Kind::Workload, &change(workload("b", pods)), Some(&known), Time(0)).map_err(rule)
}

#[test]
fn too_much_quota_is_found() {
    assert_eq!(second(1, 3), Ok(()));
    assert_eq!(second(2, 3), Err(Rule::Quota));
    // The process may have decided when there was more.
    assert_eq!(second(2, 4), Ok(()));
}

#[test]
fn a_second_reservation_and_half_an_admission_are_found() {
    let changed = |object: Value| {
        let mut checkers = Checkers::default();
        checkers.changed(Kind::Workload, &change(workload("a", 2)), None, Time(0)).unwrap();
        checkers.changed(Kind::Workload, &change(object), None, Time(0)).map_err(|v| v.rule)
    };
    assert_eq!(changed(workload("a", 2)), Ok(()));
    assert_eq!(changed(workload("a", 1)), Err(Rule::AdmittedTwice));
    let mut half = workload("a", 2);
    half["status"]["conditions"][0]["status"] = json!("False");
    assert_eq!(changed(half), Err(Rule::AdmittedWhole));
}

#[test]
fn an_admission_before_its_check_is_found() {
    let with = |rows: Value| {
        let mut object = workload("a", 2);
        object["status"]["admissionChecks"] = rows;
        let admitted = json!({"type": "Admitted", "status": "True"});
        object["status"]["conditions"].as_array_mut().unwrap().push(admitted);
        let mut checked = queue(3);
        checked["spec"]["admissionChecksStrategy"] = json!({"admissionChecks": [{"name": "check"}]});
        let mut checkers = Checkers::default();
        checkers.changed(Kind::ClusterQueue, &change(checked), None, Time(0)).unwrap();
        checkers.changed(Kind::Workload, &change(workload("a", 2)), None, Time(0)).unwrap();
        checkers.changed(Kind::Workload, &change(object), None, Time(0)).map_err(|v| v.rule)
    };
    assert_eq!(with(json!([{"name": "check", "state": "Ready"}])), Ok(()));
    assert_eq!(with(json!([{"name": "check", "state": "Pending"}])), Err(Rule::Unchecked));
    assert_eq!(with(json!([])), Err(Rule::Unchecked));
}

/// What a workload in this queue says, compared with the queue that is there.
fn said(stop: &str, message: &str) -> Result<(), Rule> {
    let mut api = Api::default();
    let mut checkers = Checkers::default();
    let flavor = json!({"metadata": {"name": "f"}, "spec": {}});
    let mut cluster = queue(3);
    cluster["spec"]["stopPolicy"] = json!(stop);
    let local = json!({"metadata": {"namespace": "n", "name": "l"}, "spec": {"clusterQueue": "c"}});
    let mut waiting = workload("a", 2);
    waiting["spec"]["queueName"] = json!("l");
    let condition = json!({"type": "QuotaReserved", "status": "False", "message": message});
    waiting["status"] = json!({ "conditions": [condition] });
    for (kind, object) in [
        (Kind::Flavor, flavor),
        (Kind::ClusterQueue, cluster),
        (Kind::LocalQueue, local),
        (Kind::Workload, waiting),
    ] {
        let object = api.handle(Request::Create(kind, object), Time(0)).unwrap();
        checkers.changed(kind, &change((*object).clone()), None, Time(0)).unwrap();
    }
    checkers.explained(&api, None, Time(0)).map_err(|v| v.rule)
}

#[test]
fn explanations_that_are_not_true_are_found() {
    let wrong = Err(Rule::Explanations);
    assert_eq!(said("Hold", "ClusterQueue c is inactive"), Ok(()));
    assert_eq!(said("None", "ClusterQueue c is inactive"), wrong);
    assert_eq!(said("Hold", "ClusterQueue d is inactive"), wrong);
    assert_eq!(said("None", "ClusterQueue c doesn't exist"), wrong);
    assert_eq!(said("None", "LocalQueue l is inactive"), wrong);
    assert_eq!(said("None", "The workload is deactivated"), wrong);
    let short = "insufficient unused quota for cpu in flavor f, 2 more needed";
    assert_eq!(said("None", short), wrong);
    assert_eq!(said("None", &short.replace(" f,", " g,")), Ok(()));
    assert_eq!(said("None", "insufficient quota for cpu in flavor f, 2 > maximum capacity (1)"), wrong);
}

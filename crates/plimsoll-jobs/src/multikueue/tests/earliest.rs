use super::*;

fn at(seconds: i64) -> Time {
    Time::from_seconds(NOW.seconds() + seconds)
}

fn forecast(start: Option<i64>, preempted: u64, ahead: u64) -> Outlook {
    Outlook::Forecast { start: start.map(at), preempted, ahead }
}

/// The plan of a workload with these nominated clusters, where `two`, `one` and `three` (in this order) are connected.
fn decided(nominated: &[&str], round: Option<i64>, answers: &[(&str, Outlook, i64)]) -> Plan {
    decided_with(nominated, &copy(&[]), round, answers)
}

/// The same with this copy on the nominated clusters.
fn decided_with(
    nominated: &[&str],
    copy: &Value,
    round: Option<i64>,
    answers: &[(&str, Outlook, i64)],
) -> Plan {
    let mut local = workload("Pending", &["QuotaReserved"]);
    local["status"]["nominatedClusterNames"] = json!(nominated);
    let mut manager = manager(local);
    manager.config.multikueue.dispatcher = Dispatcher::Earliest;
    let mut workers: BTreeMap<String, Sight> = BTreeMap::new();
    for name in ["one", "two", "three"] {
        let has = nominated.contains(&name).then(|| copy.clone());
        workers.insert(name.to_owned(), worker(has, None));
    }
    workers.insert("four".to_owned(), Sight::Lost { since: NOW });
    let answers = answers.iter().map(|(name, outlook, seconds)| {
        ((*name).to_owned(), Answer { outlook: outlook.clone(), at: at(*seconds) })
    });
    let memory = Memory { round: round.map(at), answers: answers.collect() };
    plan(&key(), &workers, &memory, manager.env(NOW))
}

fn nominated(plan: &Plan) -> Value {
    patches(plan).first().map_or(Value::Null, |(_, status)| status["nominatedClusterNames"].clone())
}

#[test]
fn workers_are_asked_before_one_is_chosen() {
    let asked = |plan: &Plan| plan.ask.as_ref().map(|q| q.clusters.clone());
    let plan = decided(&[], None, &[]);
    assert_eq!(asked(&plan), Some(vec!["two".to_owned(), "one".to_owned(), "three".to_owned()]));
    assert_eq!((nominated(&plan), remote(&plan)), (Value::Null, Vec::new()), "none gets a copy before");
    let sent = &plan.ask.unwrap().workload;
    assert_eq!((&sent["spec"]["queueName"], &sent["metadata"]["name"]), (&json!("q"), &json!("job-a")));
    // What was answered a while ago is asked again; the others stay as they are.
    let now = forecast(Some(0), 0, 0);
    let plan = decided(&[], None, &[("one", now.clone(), 0), ("two", now.clone(), -10), ("three", now, 0)]);
    assert_eq!(asked(&plan), Some(vec!["two".to_owned()]));
    // The last one that is left needs no question.
    let plan = decided(&["two", "one"], Some(0), &[]);
    assert_eq!((asked(&plan), nominated(&plan)), (None, json!(["two", "one", "three"])));
}

#[test]
fn the_worker_that_could_start_it_first_gets_it() {
    use Outlook::{Never, Silent};
    /// Answers of `two`, `one` and `three`, who gets it, and for how long it is alone.
    type Row = ([Outlook; 3], &'static [&'static str], i64);
    let table: [Row; 9] = [
        ([forecast(Some(60), 0, 0), forecast(Some(0), 0, 0), forecast(Some(0), 0, 4)], &["one"], 30),
        ([forecast(Some(60), 2, 0), forecast(Some(-5), 0, 0), forecast(None, 1, 0)], &["one"], 30),
        ([forecast(Some(60), 2, 0), forecast(None, 1, 0), forecast(Some(1), 0, 0)], &["one"], 30),
        ([forecast(Some(60), 0, 0), forecast(Some(50), 0, 9), Never], &["one"], 80),
        ([forecast(Some(9999), 0, 0), forecast(None, 0, 0), Never], &["two"], 300),
        ([forecast(None, 0, 3), forecast(None, 0, 2), Never], &["one"], 300),
        // Those without an answer may be free now, and come in steps.
        ([Silent, forecast(Some(200), 0, 2), Silent], &["one"], 230),
        ([forecast(Some(9999), 0, 0), forecast(None, 0, 0), Silent], &["three"], 300),
        ([Silent, Never, Silent], &["two", "three"], 300),
    ];
    for (outlooks, want, wait) in table {
        let [two, one, three] = outlooks.clone();
        let plan = decided(&[], None, &[("two", two, 0), ("one", one, 0), ("three", three, 0)]);
        assert_eq!(nominated(&plan), json!(want), "{outlooks:?}");
        assert_eq!(plan.requeue_after.map(Duration::seconds), Some(wait), "{outlooks:?}");
        assert_eq!(plan.round, Some(at(wait)));
        let copied: Vec<&str> = plan.apart.keys().map(String::as_str).collect();
        let mut want = want.to_vec();
        want.sort_unstable();
        assert_eq!(copied, want);
    }
}

#[test]
fn a_round_is_waited_for_and_the_next_worker_comes_after_it() {
    let later = [("two", forecast(Some(60), 0, 0), 0), ("three", forecast(Some(0), 0, 0), 0)];
    let plan = decided(&["one"], Some(7), &later);
    assert_eq!((nominated(&plan), plan.requeue_after), (Value::Null, Some(Duration::from_seconds(7))));
    assert_eq!(plan.round, Some(at(7)));
    let plan = decided(&["one"], Some(0), &later);
    assert_eq!(nominated(&plan), json!(["one", "three"]), "the one before keeps its copy");
    // A manager that starts anew does not know what was answered.
    let plan = decided(&["one"], None, &later);
    assert_eq!((nominated(&plan), plan.round), (Value::Null, Some(at(300))));
}

#[test]
fn a_copy_that_waits_for_checks_has_a_round_for_them() {
    let now = [("two", forecast(Some(0), 0, 0), 0), ("three", forecast(Some(0), 0, 0), 0)];
    let with = |status: &str, since: i64| {
        let mut copy = copy(&[("QuotaReserved", 0)]);
        let condition = &mut copy["status"]["conditions"][0];
        condition["status"] = json!(status);
        condition["lastTransitionTime"] = json!(plimsoll_api::timestamp::text(at(since)));
        decided_with(&["one"], &copy, Some(0), &now)
    };
    let plan = with("True", -40);
    assert_eq!((nominated(&plan), plan.requeue_after), (Value::Null, Some(Duration::from_seconds(260))));
    assert_eq!(plan.round, Some(at(260)));
    // Its checks take too long, or it has lost its quota.
    for (status, since) in [("True", -300), ("False", -40)] {
        assert_eq!(nominated(&with(status, since)), json!(["one", "two"]), "{status} {since}");
    }
}

#[test]
fn answers_are_read_as_they_are_written() {
    let of = |status: Value| Outlook::of(&json!({"kind": "AdmissionForecast", "status": status}));
    assert_eq!(
        of(json!({"startTime": NOW_TEXT, "preemptedWorkloads": 1, "workloadsAhead": 2})),
        forecast(Some(0), 1, 2)
    );
    assert_eq!(of(json!({"preemptedWorkloads": 0, "workloadsAhead": 2})), forecast(None, 0, 2));
    assert_eq!(of(json!({"message": "LocalQueue q is inactive"})), Outlook::Never);
    assert_eq!(of(json!(null)), Outlook::Silent);
}

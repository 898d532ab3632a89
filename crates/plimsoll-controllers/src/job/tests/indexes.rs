//! Indexed Jobs.

use super::*;

#[test]
#[allow(clippy::too_many_lines, reason = "one case after the other")]
fn indexes() {
    let indexed = |more: Value| {
        let mut spec = json!({"completionMode": "Indexed", "completions": 5, "parallelism": 3});
        merge(&mut spec, &more);
        spec
    };
    let per_index = |more: Value| {
        let mut spec = indexed(json!({"backoffLimit": 2_147_483_647, "backoffLimitPerIndex": 1}));
        merge(&mut spec, &more);
        spec
    };
    for (about, spec, status, pods, action, released, completed, failed) in [
        ("the first ones", indexed(json!({})), json!({}), &[] as &[&str], "create 0,1,2", "", "", None),
        (
            "what is missing",
            indexed(json!({})),
            json!({"completedIndexes": "0,2"}),
            &["a Running index=3"],
            "create 1,4",
            "",
            "0,2",
            None,
        ),
        (
            "succeeded ones are added",
            indexed(json!({})),
            json!({"completedIndexes": "0"}),
            &["a Succeeded index=1", "b Running index=2"],
            "create 3,4",
            "a",
            "0,1",
            None,
        ),
        (
            "an index twice counts once",
            indexed(json!({})),
            json!({"completedIndexes": "1"}),
            &["a Succeeded index=1", "b Running index=0", "c Running index=2", "d Running index=3"],
            "nothing",
            "a",
            "1",
            None,
        ),
        (
            "running twice: the one that has got further stays",
            indexed(json!({})),
            json!({}),
            &["a Pending index=0", "b Running index=0", "c Running index=1"],
            "delete a",
            "",
            "",
            None,
        ),
        (
            "no index, or one that doesn't exist",
            indexed(json!({})),
            json!({}),
            &["a Running", "b Running index=7", "c Running index=1"],
            "delete a,b",
            "",
            "",
            None,
        ),
        (
            "at the end",
            indexed(json!({})),
            json!({"completedIndexes": "0-3"}),
            &["a Succeeded index=4"],
            "nothing",
            "a",
            "0-4",
            None,
        ),
        (
            "a failed one stays until it is replaced",
            per_index(json!({})),
            json!({}),
            &["a Failed index=0 ended=60", "b Running index=1", "c Running index=2"],
            "create 0/1",
            "",
            "",
            Some(""),
        ),
        (
            "not before its backoff",
            per_index(json!({})),
            json!({}),
            &["a Failed index=0 ended=3", "b Running index=1", "c Running index=2"],
            "wait",
            "",
            "",
            Some(""),
        ),
        (
            "others needn't wait for it",
            per_index(json!({})),
            json!({}),
            &["a Failed index=0 ended=3", "b Running index=1"],
            "create 2/0",
            "",
            "",
            Some(""),
        ),
        (
            "replaced: now it can go",
            per_index(json!({})),
            json!({}),
            &[
                "a Failed index=0 ended=60",
                "d Running index=0 failures=1",
                "b Running index=1",
                "c Running index=2",
            ],
            "nothing",
            "a",
            "",
            Some(""),
        ),
        (
            "the second failure fails the index",
            per_index(json!({})),
            json!({}),
            &["a Failed index=0 failures=1", "b Running index=1", "c Running index=2"],
            "create 3/0",
            "a",
            "",
            Some("0"),
        ),
        (
            "terminating ones hold their index if only failed ones are replaced",
            indexed(json!({"podReplacementPolicy": "Failed"})),
            json!({}),
            &["a Running index=0 deleting", "b Running index=1"],
            "create 2",
            "",
            "",
            None,
        ),
    ] {
        let (got, freed, status, _, _) = run(job(&spec, &status), pods, Record::default());
        assert_eq!((got.as_str(), freed.as_str()), (action, released), "{about}");
        assert_eq!(status["completedIndexes"].as_str().unwrap_or_default(), completed, "{about}");
        assert_eq!(status["failedIndexes"].as_str(), failed, "{about}");
    }
}

#[test]
fn ends_of_indexed_jobs() {
    let end = |spec: Value, status: Value, pods: &[&str]| {
        let mut all = json!({"completionMode": "Indexed", "completions": 3, "parallelism": 3, "backoffLimit": 2_147_483_647});
        merge(&mut all, &spec);
        let (action, _, status, events, _) = run(job(&all, &status), pods, Record::default());
        let last = status["conditions"].as_array().and_then(|c| c.last().cloned()).unwrap_or_default();
        let text = |key: &str| last[key].as_str().unwrap_or_default().to_owned();
        (action, format!("{} {}: {}", text("type"), text("reason"), text("message")), events)
    };
    let (action, condition, events) =
        end(json!({"backoffLimitPerIndex": 0}), json!({"completedIndexes": "0,1"}), &["a Failed index=2"]);
    assert_eq!(
        (action.as_str(), condition.as_str()),
        ("nothing", "Failed FailedIndexes: Job has failed indexes")
    );
    assert_eq!(events, ["Warning FailedIndexes Job has failed indexes"]);
    let (action, condition, _) = end(
        json!({"backoffLimitPerIndex": 0, "maxFailedIndexes": 0}),
        json!({}),
        &["a Failed index=2", "b Running index=0"],
    );
    assert_eq!(
        (action.as_str(), condition.as_str()),
        (
            "end b",
            "FailureTarget MaxFailedIndexesExceeded: Job has exceeded the specified maximal number of failed indexes"
        )
    );
    let fail_index = json!({"backoffLimitPerIndex": 5, "podFailurePolicy": {"rules": [{"action": "FailIndex", "onExitCodes": {"operator": "In", "values": [7]}}]}});
    let (_, condition, _) = end(fail_index, json!({"completedIndexes": "0,1"}), &["a Failed index=2 exit=7"]);
    assert_eq!(condition, "Failed FailedIndexes: Job has failed indexes");
    let leader = json!({"successPolicy": {"rules": [{"succeededIndexes": "1-2", "succeededCount": 2}, {"succeededIndexes": "0"}]}});
    let (action, condition, _) =
        end(leader.clone(), json!({}), &["a Succeeded index=0", "b Running index=1"]);
    assert_eq!(
        (action.as_str(), condition.as_str()),
        ("end b", "SuccessCriteriaMet SuccessPolicy: Matched rules at index 1")
    );
    let met = json!({"completedIndexes": "0", "conditions": [{"type": "SuccessCriteriaMet", "status": "True", "reason": "SuccessPolicy", "message": "Matched rules at index 1"}]});
    let (_, condition, events) = end(leader, met, &[]);
    assert_eq!(condition, "Complete SuccessPolicy: Matched rules at index 1");
    assert_eq!(events, ["Normal Completed Job completed"]);
}

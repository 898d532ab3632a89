//! Objects of flow control.

use super::*;

const GROUP: &str = "flowcontrol.apiserver.k8s.io";

#[test]
fn flow_schemas() {
    let schema = |precedence: i64, rule: &Value| {
        json!({"spec": {"matchingPrecedence": precedence, "priorityLevelConfiguration": {"name": "system"},
                        "rules": [rule]}})
    };
    let group = json!({"kind": "Group", "group": {"name": "a"}});
    let paths = json!([{"verbs": ["get"], "nonResourceURLs": ["/a/*"]}]);
    let good = json!({"subjects": [group], "nonResourceRules": paths});
    let rows: [(Value, &[&str]); 6] = [
        (schema(0, &good), &[]),
        (
            schema(1, &good),
            &[
                "spec.matchingPrecedence: Invalid value: 1: only the schema named 'exempt' may have matchingPrecedence 1",
            ],
        ),
        (
            json!({"spec": {"matchingPrecedence": 10_001, "distinguisherMethod": {"type": "ByLuck"}}}),
            &[
                "spec.matchingPrecedence: Invalid value: 10001: must not be greater than 10000",
                "spec.distinguisherMethod.type: Unsupported value: \"ByLuck\": supported values: \"ByNamespace\", \"ByUser\"",
                "spec.priorityLevelConfiguration.name: Required value: must reference a priority level",
            ],
        ),
        (
            schema(5, &json!({"subjects": [{"kind": "User", "group": {"name": "a"}}]})),
            &[
                "spec.rules[0].subjects[0].user: Required value: user is required when subject kind is 'User'",
                "spec.rules[0].subjects[0].group: Forbidden: group is forbidden when subject kind is not 'Group'",
                "spec.rules[0]: Required value: at least one of resourceRules and nonResourceRules has to be non-empty",
            ],
        ),
        (
            schema(
                5,
                &json!({"subjects": [group], "resourceRules": [
                    {"verbs": ["*", "get"], "apiGroups": ["*"], "resources": [], "namespaces": []},
                ]}),
            ),
            &[
                "spec.rules[0].resourceRules[0].verbs: Invalid value: [\"*\",\"get\"]: if '*' is present, must not specify other verbs",
                "spec.rules[0].resourceRules[0].resources: Required value: resource rules must supply at least one resource",
                "spec.rules[0].resourceRules[0].namespaces: Required value: resource rules that are not cluster scoped must supply at least one namespace",
            ],
        ),
        (
            schema(
                5,
                &json!({"subjects": [group], "nonResourceRules": [
                    {"verbs": ["get"], "nonResourceURLs": ["/", "/a*", "b", "/c//d"]},
                ]}),
            ),
            &[
                "spec.rules[0].nonResourceRules[0].nonResourceURLs[1]: Invalid value: \"/a*\": wildcard can only do suffix matching",
                "spec.rules[0].nonResourceRules[0].nonResourceURLs[2]: Invalid value: \"b\": must start with slash",
                "spec.rules[0].nonResourceRules[0].nonResourceURLs[3]: Invalid value: \"/c//d\": must not contain double slash",
            ],
        ),
    ];
    for (body, want) in rows {
        assert_eq!(created(GROUP, "flowschemas", &body), want, "{body}");
    }
}

#[test]
fn priority_levels() {
    let limited = |fields: &Value| json!({"spec": {"type": "Limited", "limited": fields}});
    let queue = |queuing: &Value| json!({"limitResponse": {"type": "Queue", "queuing": queuing}});
    let rows: [(Value, &[&str]); 6] = [
        (limited(&queue(&json!({}))), &[]),
        (
            limited(&queue(&json!({"queues": 4}))),
            &[
                "spec.limited.limitResponse.queuing.handSize: Invalid value: 8: should not be greater than queues (4)",
            ],
        ),
        (
            limited(&queue(&json!({"queues": 1024, "handSize": 7, "queueLengthLimit": -1}))),
            &[
                "spec.limited.limitResponse.queuing.queueLengthLimit: Invalid value: -1: must be positive",
                "spec.limited.limitResponse.queuing.handSize: Invalid value: 7: required entropy bits of deckSize 1024 and handSize 7 should not be greater than 60",
            ],
        ),
        (
            limited(
                &json!({"nominalConcurrencyShares": -1, "lendablePercent": 101, "borrowingLimitPercent": -1,
                            "limitResponse": {"type": "Reject", "queuing": {}}}),
            ),
            &[
                "spec.limited.nominalConcurrencyShares: Invalid value: -1: must be a non-negative integer",
                "spec.limited.limitResponse.queuing: Forbidden: must be nil if limited.limitResponse.type is not Limited",
                "spec.limited.lendablePercent: Invalid value: 101: must be between 0 and 100, inclusive",
                "spec.limited.borrowingLimitPercent: Invalid value: -1: if specified, must be a non-negative integer",
            ],
        ),
        (
            json!({"spec": {"type": "Exempt", "exempt": {}}}),
            &["spec.type: Invalid value: \"Exempt\": must be 'Exempt' if and only if `name` is 'exempt'"],
        ),
        (
            json!({"spec": {"type": "Limited"}}),
            &["spec.limited: Required value: must not be empty when type is Limited"],
        ),
    ];
    for (body, want) in rows {
        assert_eq!(created(GROUP, "prioritylevelconfigurations", &body), want, "{body}");
    }
}

use super::*;
use crate::{ObjectType, Program};

fn environment() -> Environment {
    let user = ObjectType::new(
        "kubernetes.UserInfo",
        [("username", Type::String), ("groups", Type::list(Type::String))],
    );
    let request = ObjectType::new(
        "kubernetes.AdmissionRequest",
        [("userInfo", Type::object(user)), ("options", Type::Dyn)],
    );
    let metadata = ObjectType::new("kubernetes.NamespaceMetadata", [("labels", Type::map(Type::String))]);
    let namespace = ObjectType::new("kubernetes.Namespace", [("metadata", Type::object(metadata))]);
    Environment::new()
        .variable("object", Type::Dyn)
        .variable("request", Type::object(request))
        .variable("namespaceObject", Type::object(namespace))
        .variable("authorizer", Type::Opaque("kubernetes.authorization.Authorizer"))
        .variable("authorizer.requestResource", Type::Opaque("kubernetes.authorization.ResourceCheck"))
        .scope("variables")
        .variable("variables.n", Type::Int)
        .variable("variables.d", Type::Dyn)
}

fn ty(source: &str) -> Result<String, String> {
    let program = Program::compile(source, &environment()).map_err(|e| e.to_string())?;
    Ok(program.output_type().to_string())
}

#[test]
fn types() {
    for (source, want) in [
        ("object.spec.x", "dyn"),
        ("object.spec.replicas <= 5", "bool"),
        ("object.a + object.b", "dyn"),
        ("'a' + object.b", "string"),
        ("object.items.all(x, x.y == 1)", "bool"),
        ("object.items.exists_one(x, x.y == 1)", "bool"),
        ("string(object.a)", "string"),
        ("variables.n", "int"),
        ("variables.d", "dyn"),
        ("request.userInfo.groups", "list(string)"),
        ("request.userInfo.username.startsWith('a')", "bool"),
        ("request.options.dryRun", "dyn"),
        ("namespaceObject.metadata.labels['a'] == 'b'", "bool"),
        ("authorizer.group('').resource('pods').check('get').allowed()", "bool"),
        ("authorizer.requestResource.check('get').allowed()", "bool"),
        ("has(object.x) ? object.x : 1", "dyn"),
        ("cel.bind(x, 1, x + 1)", "int"),
        ("object.map(x, x)", "list(dyn)"),
        ("type(object) == string", "bool"),
        ("1 < 2.0", "bool"),
        ("object.?a.orValue(1) == 1", "bool"),
        ("sets.contains([1], [1])", "bool"),
        ("[[], [1]]", "list(dyn)"),
        ("[{}, {'a': 1}]", "list(dyn)"),
        ("[dyn(1), dyn('a')]", "list(dyn)"),
        ("[?object.?a, 'a']", "list(dyn)"),
        ("1 in [dyn(1)] && dyn(1) in ['a'] && null in [null] && [1] in [[1]] && 1 in object.a", "bool"),
        ("request == null", "bool"),
    ] {
        assert_eq!(ty(source), Ok(want.to_owned()), "{source}");
    }
}

#[test]
fn elements_of_an_aggregate_have_one_type() {
    for (source, want) in [
        ("[1, 'a']", "expected type 'int' but found 'string'"),
        ("[1, 2, 'a', true]", "expected type 'int' but found 'string'"),
        ("[1, 1.0]", "expected type 'int' but found 'double'"),
        ("[1, null]", "expected type 'int' but found 'null'"),
        ("['a', dyn(1)]", "expected type 'string' but found 'dyn'"),
        ("[object.x, 'a']", "expected type 'dyn' but found 'string'"),
        ("[request, null]", "expected type 'kubernetes.AdmissionRequest' but found 'null'"),
        ("[[1], ['a']]", "expected type 'list(int)' but found 'list(string)'"),
        ("[[1, 'a']]", "expected type 'int' but found 'string'"),
        ("{'a': 1, 'b': 'c'}", "expected type 'int' but found 'string'"),
        ("{1: 'a', 'b': 'c'}", "expected type 'int' but found 'string'"),
        ("1 in ['a']", "found no matching overload for '@in' applied to '(int, list(string))'"),
        ("'a' in 'abc'", "found no matching overload for '@in' applied to '(string, string)'"),
        ("null in [1]", "found no matching overload for '@in' applied to '(null, list(int))'"),
        ("null == 1", "found no matching overload for '_==_' applied to '(null, int)'"),
        ("[1] == null", "found no matching overload for '_==_' applied to '(list(int), null)'"),
    ] {
        let found = ty(source).unwrap_err();
        let words = found.lines().next().and_then(|l| l.split_once(": <input>:1:"));
        assert_eq!(
            words.and_then(|(_, said)| said.split_once(": ")).map(|(_, what)| what),
            Some(want),
            "{source}"
        );
    }
}

#[test]
fn errors() {
    for (source, want) in [
        (
            "params.x",
            "ERROR: <input>:1:1: undeclared reference to 'params' (in container '')\n | params.x\n | ^",
        ),
        (
            "object.all(x, y)",
            "ERROR: <input>:1:15: undeclared reference to 'y' (in container '')\n | object.all(x, y)\n | ..............^",
        ),
        (
            "nosuch(1)",
            "ERROR: <input>:1:7: undeclared reference to 'nosuch' (in container '')\n | nosuch(1)\n | ......^",
        ),
        ("request.nosuch", "ERROR: <input>:1:8: undefined field 'nosuch'\n | request.nosuch\n | .......^"),
        ("variables.q == 1", "ERROR: <input>:1:10: undefined field 'q'\n | variables.q == 1\n | .........^"),
        (
            "1 == 'a'",
            "ERROR: <input>:1:3: found no matching overload for '_==_' applied to '(int, string)'\n | 1 == 'a'\n | ..^",
        ),
        (
            "object.a.matches('(')",
            "ERROR: <input>:1:18: invalid matches argument\n | object.a.matches('(')\n | .................^",
        ),
        (
            "duration('1d') > duration('1h')",
            "ERROR: <input>:1:10: invalid duration argument\n | duration('1d') > duration('1h')\n | .........^",
        ),
        (
            "timestamp('2024-02-30T00:00:00Z') == object.t",
            "ERROR: <input>:1:11: invalid timestamp argument\n | timestamp('2024-02-30T00:00:00Z') == object.t\n | ..........^",
        ),
        (
            "variables.n && true",
            "ERROR: <input>:1:13: found no matching overload for '_&&_' applied to '(int, bool)'\n | variables.n && true\n | ............^",
        ),
        (
            "variables.n.x",
            "ERROR: <input>:1:12: type 'int' does not support field selection\n | variables.n.x\n | ...........^",
        ),
    ] {
        assert_eq!(ty(source), Err(want.to_owned()), "{source}");
    }
}

/// Patterns are read, not compiled: one that is too large is no error until it is used. Errors have the whole source, and are as many as
/// may be told.
#[test]
fn large_patterns_and_many_errors() {
    assert_eq!(ty(r"object.a.matches('\\pL{40}')"), Ok("bool".to_owned()));
    let many = format!("[{}]", vec!["nosuch(1)"; 150].join(", "));
    let told = ty(&many).expect_err("not declared");
    let errors = told.matches("ERROR").count();
    assert!(
        (1..=MAX_ERRORS).contains(&errors) && told.len() < 2 * MAX_ERROR_BYTES,
        "{errors} {}",
        told.len()
    );
}

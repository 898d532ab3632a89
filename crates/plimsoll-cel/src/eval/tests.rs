use kube_cel::cel::Value;
use kube_cel::cel::objects::Opaque;
use serde_json::json;

use super::*;
use crate::{Program, from_json};

/// A value of the host's own, with a method that costs 100.
#[derive(Debug, PartialEq, Eq)]
struct Greeter;

impl Opaque for Greeter {
    fn runtime_type_name(&self) -> &'static str {
        "test.Greeter"
    }
}

/// `object`, `greeter` and the qualified variables `lazy.one`, which is an expression, and `lazy.broken`.
struct Host(Value);

impl Activation for Host {
    fn resolve(&mut self, name: &str) -> Option<Value> {
        match name {
            "object" => Some(self.0.clone()),
            "greeter" => Some(Value::Opaque(Arc::new(Greeter))),
            _ => None,
        }
    }

    fn select(&mut self, variable: &str, field: &str, budget: &mut Budget) -> Option<Evaluated> {
        match (variable, field) {
            ("lazy", "one") => {
                let program = Program::parse("object.a + 0").ok()?;
                Some(program.evaluate_nested(self, budget))
            }
            ("lazy", _) => Some(EvalError::error(format!("no such key: {field}"))),
            _ => None,
        }
    }

    fn call(
        &mut self,
        target: &dyn Opaque,
        method: &str,
        args: &[Value],
        budget: &mut Budget,
    ) -> Option<Evaluated> {
        target.downcast_ref::<Greeter>()?;
        Some(match (method, args) {
            ("greet", [Value::String(name)]) => {
                budget.charge(100).map(|()| Value::from(format!("hello {name}")))
            }
            _ => EvalError::no_such_overload(),
        })
    }
}

fn run(source: &str, budget: u64) -> Evaluated {
    let object = json!({
        "a": 1, "s": "text", "none": null, "list": [1, 2, 3], "map": {"x": 1, "y-z": 2},
        "long": "x".repeat(1000), "f": 1.5,
    });
    let program = Program::parse(source).unwrap();
    program.evaluate(&mut Host(from_json(&object)), &mut Budget::new(budget))
}

#[test]
fn values() {
    for source in [
        "object.a + 1 == 2",
        "object.map['y-z'] == 2 && 'x' in object.map && !('q' in object.map)",
        "has(object.a) && !has(object.b) && !has(object.none.x)",
        "object.list.all(x, x > 0) && object.list.exists(x, x == 2) && object.list.exists_one(x, x == 3)",
        "object.list.map(x, x * 2) == [2, 4, 6]",
        "object.list.map(x, x > 1, x * 2) == [4, 6]",
        "object.list.filter(x, x != 2) == [1, 3]",
        "object.list.map(x, object.list.filter(y, y < x).size()) == [0, 1, 2]",
        "object.map.all(k, size(k) > 0)",
        // an operand that decides suppresses the error of the other one, on both sides and in loops
        "object.b || true",
        "!(object.b && false)",
        "!object.list.all(x, x == 1 ? object.nosuch : x == 3)",
        "[1, 2].exists(x, x == 1 ? object.nosuch : true)",
        "true || object.a && !(false && object.a)",
        "(object.a || true) && !(object.a && false)",
        "true ? true : object.b",
        "object.a == 1 ? true : object.s < 1",
        "[object.s, object.a].exists(x, x < 2) && ![object.s, object.a].all(x, x > 2)",
        "![true, object.a, false].all(x, x) && [object.a, true].exists(x, x)",
        "![true, object.a, false].all(i, x, x) && [object.a, true].exists(i, x, x)",
        "[].all(x, object.b) && ![].exists(x, object.b)",
        "object.a != object.s && !(object.a in [object.s])",
        "object.?b.orValue(3) == 3 && object.?a.orValue(3) == 1 && object.?b.?c.hasValue() == false",
        "object.?map.?x.value() == 1 && object.map[?'q'].orValue(9) == 9",
        "object.?map.optMap(m, m.x).orValue(0) == 1",
        "[?object.?a, ?object.?b] == [1]",
        "{?'k': object.?b} == {}",
        "cel.bind(x, object.a + 1, x * x) == 4",
        "[3, 1, 2].sortBy(x, -x) == [3, 2, 1]",
        "object.list.all(i, v, i + 1 == v) && object.map.exists(k, v, k == 'x' && v == 1)",
        "object.list.transformList(i, v, v > 1, i * v) == [2, 6]",
        "object.map.transformMap(k, v, v * 10)['x'] == 10",
        "type(object.a) == int && type(object.s) == string && type([]) == list",
        "object.s.startsWith('te') && object.s.contains('ex') && object.s.matches('^t.*t$')",
        "size(object.s) == 4 && object.s.size() == 4 && 'é'.size() == 1",
        "object.s.upperAscii() == 'TEXT' && object.s.substring(1, 2) == 'e'",
        "'%s-%d'.format(['a', 3]) == 'a-3'",
        "quantity('1Gi').isGreaterThan(quantity('1M'))",
        "!quantity('1e40').isLessThan(quantity('10Gi')) && quantity('1e128').isGreaterThan(quantity('10Gi'))",
        "!isQuantity(' 1') && quantity('1k') == quantity('1000') && quantity('1').add(2).sub(quantity('1')).asInteger() == 2",
        "quantity('2').compareTo(quantity('1')) == 1 && [quantity('1')] == [quantity('1000m')]",
        "!'\u{e9}'.matches('^\\\\w$') && !'\u{663}'.matches('^\\\\d$') && '&'.matches('^[a&&b]$')",
        "timestamp('2024-01-01T00:00:00Z').getHours('Asia/Tokyo') == 9 && timestamp('2024-01-01T00:00:00+02:00').getHours() == 22",
        "timestamp('2024-01-01T00:00:00Z').getDayOfMonth('-01:30') == 30 && timestamp('2024-03-01T01:02:03.5Z').getMilliseconds() == 500",
        "timestamp('2024-03-01T01:02:03Z').getMonth() == 2 && timestamp('2024-03-01T01:02:03Z').getDate() == 1",
        "timestamp('2024-03-03T00:00:00Z').getDayOfWeek() == 0 && timestamp('2024-03-01T00:00:00Z').getDayOfYear() == 60",
        "duration('720h').getMilliseconds() == 2592000000 && duration('90m').getHours() == 1",
        "duration('1\u{b5}s') == duration('1000ns') && duration('-1.5h') == duration('-90m') && duration('0') == duration('0s')",
        "string(timestamp('2024-01-01T00:00:00Z')) == '2024-01-01T00:00:00Z' && string(duration('1h0.5s')) == '3600.5s'",
        "string(timestamp('2024-01-01T00:00:00.25+02:00')) == '2024-01-01T00:00:00.25+02:00'",
        "int(timestamp('1970-01-01T00:01:00Z')) == 60 && timestamp(60) == timestamp('1970-01-01T00:01:00Z')",
        "timestamp(timestamp(0)) == timestamp(0) && duration(duration('1s')) == duration('1s')",
        "url('/p').getHost() == '' && url('https://e.com').getEscapedPath() == '' && url('http://localhost/').getScheme() == 'http'",
        "url('https://e.com:443/?a=b').getPort() == '443' && url('https:e.com').getHost() == '' && !isURL('e.com')",
        "url('/?a=b&a=c').getQuery() == {'a': ['b', 'c']}",
        "'aa'.replace('a', 'b', -1) == 'bb' && 'aa'.replace('a', 'b', 1) == 'ba'",
        "'ab\u{e9}'.split('') == ['a', 'b', '\u{e9}'] && 'abc'.split('', 2) == ['a', 'bc'] && 'abc'.split('', 0) == []",
        "object.?a.orValue(object.b) == 1 && object.?a.or(object.nosuch).value() == 1",
        "sets.contains([1, 2], [1]) && math.greatest(1, 2) == 2",
        "['a', 'b'].join('-') == 'a-b' && 'a-b'.split('-') == ['a', 'b']",
        "duration('1h') > duration('1m') && timestamp('2024-01-01T00:00:00Z').getFullYear() == 2024",
        "string(1) == '1' && int('7') == 7 && string(true) == 'true' && dyn(1) == 1",
        "string(1e6) == '1e+06' && string(100000.0) == '100000' && string(0.0001) == '0.0001' && string(1.5e-7) == '1.5e-07'",
        "string(duration('2h0.5s')) == '7200.5s' && string(ip('::1')) == '::1' && string(cidr('10.0.0.0/8')) == '10.0.0.0/8'",
        "'%s %s'.format([timestamp('2024-01-01T00:00:00Z'), duration('1h')]) == '2024-01-01T00:00:00Z 3600s'",
        "'%.1f|%f|%.0f'.format([1234567.25, 1.0, 2.5]) == '1,234,567.2|1.000000|2' && '%e'.format([1.5]) == '1.500000×10⁰⁰'",
        "'%x %X %o %b %x'.format([-2, 255, 8, true, 'ab']) == '-2 FF 10 1 6162' && '100%%'.format([]) == '100%'",
        "'%s'.format([['a\\nb', 1.5, 2]]) == '[\"a\\\\nb\", 1.500000, 2]' && '%s'.format([{'b': 1, 'a': null}]) == '{\"a\":null, \"b\":1}'",
        "'%s %s'.format([type(1), [duration('1s')]]) == 'int [duration(\"1s\")]' && '%s'.format([1e7]) == '1e+07'",
        "[1, 2].sum() == 3 && [].sum() == 0 && [1.5, 1.0].sum() == 2.5",
        "'abab'.lastIndexOf('ab', 1) == 0 && 'a'.lastIndexOf('', 3) == 3 && 'ab'.lastIndexOf('ab', 9) == -1",
        "url('//h/p').getHost() == 'h' && isURL('//[')",
        "!format.dns1123Label().validate('a-1').hasValue() && format.dns1123LabelPrefix().validate('a-') == optional.none()",
        "format.dns1123Label().validate('a.b').value() == ['must not contain dots'] && format.uuid().validate('x').hasValue()",
        "format.named('uri').value().validate('-5').value() == ['parse \"-5\": invalid URI for request']",
        "!format.named('nope').hasValue() && format.byte().validate('').value() == ['invalid base64']",
        "format.date().validate('2024-02-30').hasValue() && !format.date().validate('2024-02-29').hasValue()",
        "!format.datetime().validate('2024-01-01T00:00:00.5+02:00').hasValue() && format.datetime().validate('2024-01-01T24:00:00Z').hasValue()",
        "format.qualifiedName().validate('/a').value() == ['prefix part must be non-empty'] && !format.labelValue().validate('').hasValue()",
        "greeter.greet('you') == 'hello you' && object.list.all(x, greeter.greet('x') == 'hello x')",
        "lazy.one == 1 && object.list.exists(x, x == lazy.one) && has(lazy.one) && lazy.?one.hasValue()",
        "object.a == 1.0 && object.f > 1 && b'a' < b'b' && b'a' + b'b' == b'ab'",
        "object.none == null && object.a != null",
        // one regular expression is compiled once
        "lists.range(500).all(i, 'a1b2'.find('[0-9]') == '1') && 'a'.find('[0-9]') == ''",
        "'a1b2'.findAll('[0-9]') == ['1', '2'] && 'a1b2'.findAll('[0-9]', 1) == ['1']",
        "'a1b2'.findAll('[0-9]', 0) == [] && 'a1b2'.findAll('[0-9]', -1).size() == 2",
        "optional.of([1]) == optional.of([1]) && optional.of(1) in [optional.none(), optional.of(1)]",
        "['b', 'a'].sortBy(x, x) == ['a', 'b'] && sets.intersects(['a'], ['b', 'a'])",
    ] {
        assert_eq!(run(source, 100_000_000), Ok(Value::Bool(true)), "{source}");
    }
}

#[test]
fn errors() {
    for (source, want) in [
        ("object.b", "no such key: b"),
        ("object.none.x", "no such key: x"),
        ("object.map['q']", "no such key: q"),
        ("object.list[3]", "index out of bounds: 3"),
        ("object.list[-1]", "index out of bounds: -1"),
        ("object.a + 'x'", "no such overload"),
        ("object.a < object.s", "no such overload"),
        ("object.a && true", "no such overload"),
        ("object.a ? 1 : 2", "no such overload"),
        ("object.a / 0", "division by zero"),
        ("object.a % 0", "modulus by zero"),
        ("9223372036854775807 + object.a", "integer overflow"),
        ("object.a.contains('x')", "no such overload"),
        ("object.list.all(x, object.nosuch)", "no such key: nosuch"),
        ("object.a.all(x, true)", "got 'types.Int', expected iterable type"),
        ("object.s.map(x, x)", "got 'types.String', expected iterable type"),
        ("object.none.sortBy(x, x)", "got 'types.Null', expected iterable type"),
        ("object.a.all(i, x, true)", "unsupported comprehension range type: types.Int"),
        ("[object.a, object.s].sortBy(x, x)", "list elements must have the same type"),
        ("size(object.a)", "no such overload: size"),
        ("object.a[0]", "no such key: 0"),
        ("object.list.x", "unsupported index type 'string' in list"),
        ("has(object.list.x)", "unsupported index type 'string' in list"),
        ("object.list['x']", "unsupported index type 'string' in list"),
        ("object.list[true]", "unsupported index type 'bool' in list"),
        ("object.list[object.f]", "unsupported index value 1.5 in list"),
        ("-object.list", "no such overload: -_"),
        ("-object.s", "no such overload"),
        ("object.list < object.list", "no such overload: _<_"),
        ("object.none < object.none", "no such overload: _<_"),
        ("object.map + object.map", "no such overload: _+_"),
        ("object.list + object.a", "no such overload"),
        // the error of the first operand, where neither decides
        ("object.a || object.b", "no such overload"),
        ("object.b || object.a", "no such key: b"),
        ("object.b || 1 / 0 == 1", "no such key: b"),
        ("object.b ? true : true", "no such key: b"),
        ("object.?b.value()", "optional.none() dereference"),
        ("greeter.greet(1)", "no such overload"),
        ("[9223372036854775807, object.a].sum()", "integer overflow"),
        ("'abc'.indexOf('c', -1)", "index out of range: -1"),
        ("duration('2562047h') + duration('1h')", "integer overflow"),
        (
            "'%d'.format([object.f])",
            "error during formatting: decimal clause can only be used on integers, was given double",
        ),
        ("'%s %s'.format([object.a])", "index 1 out of range"),
        ("lazy.broken", "no such key: broken"),
        ("lazy", "no such attribute(s): lazy"),
        ("object.s.matches('(')", "error parsing regexp: `(`"),
        ("object.s.find('(')", "error parsing regexp: `(`"),
        ("object.s.find(1)", "no such overload"),
        ("object.?b.orValue(object.b)", "no such key: b"),
        ("quantity('1e')", "unable to parse quantity's suffix"),
        ("quantity('1.5').asInteger()", "cannot convert value to integer"),
        ("timestamp(0).getHours('Nowhere')", "unknown time zone Nowhere"),
        ("duration('1hour')", "type conversion error from '1hour' to 'google.protobuf.Duration'"),
        ("duration('1m30')", "type conversion error from '1m30' to 'google.protobuf.Duration'"),
        ("duration('5m, 999h')", "type conversion error from '5m, 999h' to 'google.protobuf.Duration'"),
    ] {
        assert_eq!(run(source, 100_000_000), Err(EvalError::Error(want.to_owned())), "{source}");
    }
}

#[test]
fn expensive_expressions_exceed_the_budget() {
    let nested =
        (0..12).fold("true".to_owned(), |inner, i| format!("[1,2,3,4,5,6,7,8,9].all(x{i}, {inner})"));
    for source in [
        nested.as_str(),
        "lists.range(1000000000).size() == 0",
        "lists.range(900).all(a, lists.range(900).all(b, lists.range(900).all(c, a + b + c >= 0)))",
        "lists.range(900).all(a, lists.range(900).exists(b, false) || true)",
        "object.long.replace('x', object.long).replace('x', object.long).size() > 0",
        "lists.range(900).map(x, object.long).join(object.long).replace('x', object.long) == ''",
        "'%s%s%s%s'.format([object.long, object.long, object.long, object.long]).replace('x', object.long)\
         .replace('x', object.long) == ''",
        "lists.range(900000).map(x, [x, x]).map(x, [x, x]).size() == 0",
        "cel.bind(a, object.long + object.long, cel.bind(b, lists.range(90000).map(x, a), b == b))",
    ] {
        let found = run(source, 10_000_000);
        assert!(matches!(found, Err(EvalError::CallLimit | EvalError::Budget)), "{source}: {found:?}");
    }
    assert_eq!(
        run("'%.1000000000f'.format([1.0])", 1000),
        Err(EvalError::Error("precision or width is too large".into()))
    );
    assert_eq!(run("object.list.all(x, x > 0)", 10), Err(EvalError::Budget));
    assert_eq!(run("greeter.greet('you') == ''", 100), Err(EvalError::Budget));
}

/// The evaluator charges before it works, also for values inside of other values.
#[test]
fn work_is_charged_in_advance() {
    let wide = |name: &str, body: String| {
        (1..=16).rev().fold(body, |inner, i| {
            let below = vec![format!("{name}{}", i - 1); 8].join(",");
            format!("cel.bind({name}{i}, [{below}], {inner})")
        })
    };
    let both = |body: &str| {
        let inner = wide("b", body.to_owned());
        format!("cel.bind(a0, [1], cel.bind(b0, [1], {}))", wide("a", inner))
    };
    let long = |body: &str| format!("cel.bind(big, lists.range(800).map(x, object.long).join(''), {body})");
    for source in [
        both("optional.of(a16) == optional.of(b16)"),
        both("optional.of(a16) in [optional.of(b16)]"),
        both("[optional.of(a16)] == [optional.of(b16)]"),
        both("sets.contains([optional.of(a16)], [optional.of(b16)])"),
        both("[optional.of(a16), optional.of(b16)].distinct().size() == 1"),
        "lists.range(4000).all(i, 'a'.find('x' + string(i)) == '')".to_owned(),
        "lists.range(4000).all(i, 'a'.findAll('x' + string(i)) == [])".to_owned(),
        "lists.range(4000).all(i, !'a'.matches('x' + string(i)))".to_owned(),
        "lists.range(2000).sortBy(x, object.long).size() > 0".to_owned(),
        long("big.split('').size() > 0 && big.split('').size() > 0"),
        long("big.findAll('x').size() > 0 && big.findAll('.').size() > 0"),
        long("lists.range(100).all(i, !(big in object.map))"),
        long("lists.range(100).exists(i, object.map[big] == 1)"),
        long("lists.range(100).exists(i, object.map[?big].hasValue())"),
        long("lists.range(100).all(i, {big: i}.size() == 1)"),
    ] {
        let found = run(&source, 10_000_000);
        assert!(matches!(found, Err(EvalError::CallLimit | EvalError::Budget)), "{source}: {found:?}");
    }
}

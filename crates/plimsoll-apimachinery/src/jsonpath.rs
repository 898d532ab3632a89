//! The part of JSONPath that definitions use: printer columns, selectable fields, scale paths.
//!
//! Fields, indices, slices, wildcards, unions of indices, and filters that compare one field with a
//! literal; kubectl's template language around it is not part of this.

use serde_json::Value;

const MAX_RESULTS: usize = 10_000;

#[derive(Clone, Debug, PartialEq)]
enum Step {
    Field(String),
    Index(i64),
    Slice(Option<i64>, Option<i64>),
    All,
    Filter(Vec<String>, Option<(Op, Value)>),
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Op {
    Eq,
    Ne,
    Lt,
    Le,
    Gt,
    Ge,
}

/// A parsed path.
#[derive(Clone, Debug, PartialEq)]
pub struct JsonPath {
    steps: Vec<Step>,
}

impl JsonPath {
    /// Parses a path such as `.status.conditions[?(@.type=="Ready")].status`.
    ///
    /// # Errors
    /// A short text when it isn't one.
    pub fn parse(path: &str) -> Result<Self, String> {
        let inner = path.trim().trim_start_matches('{').trim_end_matches('}');
        let mut rest = inner.strip_prefix('$').unwrap_or(inner);
        let mut steps = Vec::new();
        while !rest.is_empty() {
            let (step, after) = if let Some(after) = rest.strip_prefix('[') {
                parse_bracket(after)?
            } else if let Some(after) = rest.strip_prefix('.') {
                if after.starts_with('.') {
                    return Err("recursive descent is not supported".to_owned());
                }
                if after.is_empty() || after.starts_with('[') {
                    rest = after;
                    continue;
                }
                parse_field(after)?
            } else {
                return Err(format!("unexpected {rest:?}"));
            };
            steps.push(step);
            rest = after;
        }
        Ok(Self { steps })
    }

    /// All values found; `None` where the path doesn't fit the object (an index into something that is no
    /// list). A missing field finds nothing.
    pub fn find<'a>(&self, object: &'a Value) -> Option<Vec<&'a Value>> {
        let mut here = vec![object];
        for step in &self.steps {
            let mut next = Vec::new();
            for value in here {
                step.apply(value, &mut next)?;
                if next.len() > MAX_RESULTS {
                    return None;
                }
            }
            here = next;
        }
        Some(here)
    }

    /// The names of a path of plain fields; `None` when it has anything else.
    pub fn fields(&self) -> Option<Vec<&str>> {
        self.steps
            .iter()
            .map(|s| match s {
                Step::Field(name) => Some(name.as_str()),
                _ => None,
            })
            .collect()
    }
}

fn parse_field(text: &str) -> Result<(Step, &str), String> {
    let mut name = String::new();
    let mut chars = text.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            '.' | '[' => return field_step(name, text.get(at..).unwrap_or_default()),
            '\\' => name.extend(chars.next().map(|(_, c)| c)),
            c if c.is_whitespace() || "(){}|&'\",".contains(c) => return Err(format!("unexpected {c:?}")),
            c => name.push(c),
        }
    }
    field_step(name, "")
}

fn field_step(name: String, rest: &str) -> Result<(Step, &str), String> {
    match name.as_str() {
        "" => Err("empty field name".to_owned()),
        "*" => Ok((Step::All, rest)),
        _ => Ok((Step::Field(name), rest)),
    }
}

fn parse_bracket(text: &str) -> Result<(Step, &str), String> {
    if let Some(filter) = text.strip_prefix("?(") {
        let end = filter.find(")]").ok_or("unterminated filter")?;
        let (inside, after) = filter.split_at(end);
        return Ok((parse_filter(inside)?, after.strip_prefix(")]").unwrap_or_default()));
    }
    if let Some(quote) = text.chars().next().filter(|c| *c == '\'' || *c == '"') {
        let body = text.get(1..).unwrap_or_default();
        let end = body.find(&format!("{quote}]")).ok_or("unterminated name")?;
        let (name, after) = body.split_at(end);
        return Ok((Step::Field(name.to_owned()), after.get(2..).unwrap_or_default()));
    }
    let (inside, after) = text.split_once(']').ok_or("unterminated [")?;
    let number = |t: &str| t.trim().parse::<i64>().map_err(|_| format!("invalid array index {t}"));
    let bound = |t: &str| if t.trim().is_empty() { Ok(None) } else { number(t).map(Some) };
    let step = match inside.trim() {
        "*" | "" => Step::All,
        range if range.contains(':') => {
            let mut parts = range.splitn(3, ':');
            let (from, to) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
            if parts.next().is_some_and(|s| !matches!(s.trim(), "" | "1")) {
                return Err("slices with a step are not supported".to_owned());
            }
            Step::Slice(bound(from)?, bound(to)?)
        }
        index => Step::Index(number(index)?),
    };
    Ok((step, after))
}

fn parse_filter(text: &str) -> Result<Step, String> {
    let ops = [("==", Op::Eq), ("!=", Op::Ne), ("<=", Op::Le), (">=", Op::Ge), ("<", Op::Lt), (">", Op::Gt)];
    let found = ops.iter().filter_map(|(s, op)| text.find(s).map(|at| (at, *s, *op))).min_by_key(|f| f.0);
    let (left, test) = match found {
        Some((_, sign, op)) => {
            let (left, right) = text.split_once(sign).ok_or("bad filter")?;
            (left, Some((op, literal(right.trim())?)))
        }
        None => (text, None),
    };
    let path = left.trim().strip_prefix('@').ok_or("a filter must start with @")?;
    let path = JsonPath::parse(path)?;
    let names = path.fields().ok_or("only fields can be compared")?;
    Ok(Step::Filter(names.into_iter().map(str::to_owned).collect(), test))
}

fn literal(text: &str) -> Result<Value, String> {
    for quote in ['\'', '"'] {
        if let Some(inner) = text.strip_prefix(quote).and_then(|t| t.strip_suffix(quote)) {
            return Ok(Value::from(inner));
        }
    }
    serde_json::from_str(text).map_err(|_| format!("bad literal {text}"))
}

impl Step {
    fn apply<'a>(&self, value: &'a Value, out: &mut Vec<&'a Value>) -> Option<()> {
        match (self, value) {
            (Self::Field(name), Value::Object(map)) => out.extend(map.get(name)),
            (Self::Field(_) | Self::All | Self::Filter(..), Value::Null) => {}
            (Self::All, Value::Object(map)) => out.extend(map.values()),
            (Self::All, Value::Array(all)) => out.extend(all),
            (Self::Index(i), Value::Array(all)) => {
                out.push(all.get(position(*i, all.len())?)?);
            }
            (Self::Slice(from, to), Value::Array(all)) => {
                let from = from.map_or(Some(0), |i| position(i, all.len())).unwrap_or(0);
                let to = to.map_or(Some(all.len()), |i| position(i, all.len())).unwrap_or(0);
                out.extend(all.iter().take(to).skip(from));
            }
            (Self::Filter(path, test), Value::Array(all)) => {
                out.extend(all.iter().filter(|v| passes(v, path, test.as_ref())));
            }
            _ => return None,
        }
        Some(())
    }
}

fn position(index: i64, len: usize) -> Option<usize> {
    let len = i64::try_from(len).ok()?;
    usize::try_from(if index < 0 { index.checked_add(len)? } else { index }).ok()
}

fn passes(value: &Value, path: &[String], test: Option<&(Op, Value)>) -> bool {
    let mut here = value;
    for name in path {
        match here.get(name) {
            Some(next) => here = next,
            None => return false,
        }
    }
    let Some((op, wanted)) = test else { return true };
    let order = match (here, wanted) {
        (Value::String(a), Value::String(b)) => Some(a.cmp(b)),
        (Value::Number(a), Value::Number(b)) => {
            a.as_f64().zip(b.as_f64()).and_then(|(a, b)| a.partial_cmp(&b))
        }
        (Value::Bool(a), Value::Bool(b)) => Some(a.cmp(b)),
        _ => None,
    };
    order.is_some_and(|o| match op {
        Op::Eq => o.is_eq(),
        Op::Ne => o.is_ne(),
        Op::Lt => o.is_lt(),
        Op::Le => o.is_le(),
        Op::Gt => o.is_gt(),
        Op::Ge => o.is_ge(),
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn finds() {
        let o = json!({"a": {"b": [{"n": "x", "v": 1}, {"n": "y", "v": 2}]}, "k.l": 3, "s": "t"});
        for (path, want) in [
            (".a.b[0].n", Some(json!(["x"]))),
            (".a.b[-1].n", Some(json!(["y"]))),
            (".a.b[*].n", Some(json!(["x", "y"]))),
            (".a.b[?(@.n=='y')].v", Some(json!([2]))),
            (".a.b[?(@.v>1)].n", Some(json!(["y"]))),
            (".a.b[0:1].n", Some(json!(["x"]))),
            ("['k.l']", Some(json!([3]))),
            (".k\\.l", Some(json!([3]))),
            (".none.deep", Some(json!([]))),
            (".s[0]", None),
            (".a.b[7]", None),
        ] {
            let found = JsonPath::parse(path).unwrap().find(&o);
            assert_eq!(found.map(|f| json!(f)), want, "{path}");
        }
    }

    #[test]
    fn refuses() {
        for path in ["spec.a", ".a[", ".a[?(x)]", ".a b", "..a", ".a[x]"] {
            assert!(JsonPath::parse(path).is_err(), "{path}");
        }
    }
}

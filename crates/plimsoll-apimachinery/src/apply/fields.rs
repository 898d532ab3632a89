//! Field sets in the form in which they are stored: `FieldsV1` trees.
//!
//! A tree maps path elements (`f:name`, `k:{"key":"value"}`, `v:"value"`, `i:0`) to nodes. A node without
//! entries is a field of the set; a node with entries is one when it has the entry `.`. Working on the stored form
//! means that an update touches the few nodes it changes and nothing is translated back and forth.

use serde_json::{Map, Value};

/// A field set below one node.
pub type Fields = Map<String, Value>;

/// Marks a node with children that is in the set itself.
const SELF: &str = ".";

fn empty() -> Value {
    Value::Object(Map::new())
}

/// Whether a node's own path is in the set.
pub fn is_member(node: &Fields) -> bool {
    node.is_empty() || node.contains_key(SELF)
}

/// A node from its parts; `None` when neither it nor anything below is in the set.
pub fn node(member: bool, mut below: Fields) -> Option<Value> {
    match (member, below.is_empty()) {
        (false, true) => None,
        (true, false) => {
            below.insert(SELF.to_owned(), empty());
            Some(Value::Object(below))
        }
        _ => Some(Value::Object(below)),
    }
}

/// Adds a path to the set.
pub fn insert(set: &mut Fields, path: &[&str]) {
    let Some((first, rest)) = path.split_first() else { return };
    if rest.is_empty() {
        add(set, (*first).to_owned(), empty());
        return;
    }
    let entry = set.entry((*first).to_owned());
    let fresh = matches!(entry, serde_json::map::Entry::Vacant(_));
    if let Value::Object(below) = entry.or_insert_with(empty) {
        if !fresh && below.is_empty() {
            below.insert(SELF.to_owned(), empty());
        }
        insert(below, rest);
    }
}

/// Adds a node under an element.
pub fn add(set: &mut Fields, element: String, new: Value) {
    match (set.get_mut(&element), new) {
        (Some(Value::Object(old)), Value::Object(new)) => union_node(old, new),
        (_, new) => {
            set.insert(element, new);
        }
    }
}

fn union_node(old: &mut Fields, new: Fields) {
    let member = is_member(old) || is_member(&new);
    for (element, below) in new {
        if element != SELF {
            add(old, element, below);
        }
    }
    if member && !old.is_empty() {
        old.insert(SELF.to_owned(), empty());
    }
}

/// Adds all of `new`.
pub fn union(set: &mut Fields, new: Fields) {
    if set.is_empty() {
        *set = new;
        return;
    }
    for (element, below) in new {
        add(set, element, below);
    }
}

/// Removes the fields of `other`; children of a field in `other` stay. Returns whether the set changed.
pub fn subtract(set: &mut Fields, other: &Fields) -> bool {
    let mut changed = false;
    for (element, theirs) in other {
        let (Some(Value::Object(ours)), Value::Object(theirs)) = (set.get_mut(element), theirs) else {
            continue;
        };
        let was_member = is_member(ours);
        ours.remove(SELF);
        let below = subtract(ours, theirs);
        let loses = was_member && is_member(theirs);
        if was_member && !loses && !ours.is_empty() {
            ours.insert(SELF.to_owned(), empty());
        }
        if ours.is_empty() && (loses || !was_member) {
            set.remove(element);
        }
        changed |= below || loses;
    }
    changed
}

/// Removes the fields of `other` with everything below them.
pub fn subtract_below(set: &mut Fields, other: &Fields) {
    for (element, theirs) in other {
        let (Some(Value::Object(ours)), Value::Object(theirs)) = (set.get_mut(element), theirs) else {
            continue;
        };
        if is_member(theirs) {
            set.remove(element);
            continue;
        }
        let member = is_member(ours);
        subtract_below(ours, theirs);
        if ours.is_empty() && !member {
            set.remove(element);
        }
    }
}

/// The fields in both sets.
pub fn intersection(a: &Fields, b: &Fields) -> Fields {
    let mut out = Fields::new();
    let (small, large) = if a.len() <= b.len() { (a, b) } else { (b, a) };
    for (element, one) in small {
        let (Value::Object(one), Some(Value::Object(two))) = (one, large.get(element)) else { continue };
        if element == SELF {
            continue;
        }
        if let Some(both) = node(is_member(one) && is_member(two), intersection(one, two)) {
            out.insert(element.clone(), both);
        }
    }
    out
}

/// Paths of the set as messages show them: a node's own fields before deeper ones.
pub fn paths(set: &Fields) -> Vec<String> {
    let mut out = Vec::new();
    collect(set, "", &mut out);
    out
}

fn collect(set: &Fields, prefix: &str, out: &mut Vec<String>) {
    let nodes = || set.iter().filter(|(e, _)| *e != SELF).filter_map(|(e, n)| n.as_object().map(|n| (e, n)));
    for (element, below) in nodes() {
        if is_member(below) {
            out.push(format!("{prefix}{}", element_text(element)));
        }
    }
    for (element, below) in nodes() {
        if !below.is_empty() {
            collect(below, &format!("{prefix}{}", element_text(element)), out);
        }
    }
}

/// A path element as messages show it: `.name`, `[name="a"]`, `[="x"]`, `[0]`.
pub fn element_text(element: &str) -> String {
    match element.split_at_checked(2) {
        Some(("f:", name)) => format!(".{name}"),
        Some(("k:", key)) => match serde_json::from_str::<Map<String, Value>>(key) {
            Ok(key) => {
                let parts: Vec<String> = key.iter().map(|(k, v)| format!("{k}={v}")).collect();
                format!("[{}]", parts.join(","))
            }
            Err(_) => format!("[{key}]"),
        },
        Some(("v:", value)) => format!("[={value}]"),
        Some(("i:", index)) => format!("[{index}]"),
        _ => element.to_owned(),
    }
}

/// Checks a set given by a client and brings it into our form. Elements of unknown type are dropped, as upstream
/// does.
///
/// # Errors
/// A text when it isn't a `FieldsV1` tree.
pub fn canonical(set: &Fields, depth: usize) -> Result<Fields, String> {
    if depth > MAX_DEPTH {
        return Err("fields are nested too deeply".to_owned());
    }
    let mut out = Fields::new();
    for (element, below) in set {
        let Value::Object(below) = below else { return Err(format!("{element}: not an object")) };
        if element == SELF {
            continue;
        }
        let Some((tag, rest)) = element.split_at_checked(2) else {
            return Err("key must be 2 characters long".to_owned());
        };
        let element = match tag {
            "f:" => element.clone(),
            "v:" => {
                let value: Value = serde_json::from_str(rest).map_err(|e| e.to_string())?;
                format!("v:{}", go_json(&value))
            }
            "k:" => {
                let key: Map<String, Value> = serde_json::from_str(rest).map_err(|e| e.to_string())?;
                key_element(key)
            }
            "i:" => {
                let index: i64 = rest.parse().map_err(|_| format!("bad index {rest}"))?;
                format!("i:{index}")
            }
            _ if tag.ends_with(':') => continue,
            _ => return Err(format!("missing colon: {element}")),
        };
        if let Some(n) = node(is_member(below), canonical(below, depth + 1)?) {
            add(&mut out, element, n);
        }
    }
    Ok(out)
}

/// Deepest nesting of field sets and objects that field ownership follows; deeper values are owned as a whole. An
/// object contains its field sets, so that both together must not be deeper than a decoder reads.
pub const MAX_DEPTH: usize = 100;

/// The element of a list item with these key fields.
pub fn key_element(key: Map<String, Value>) -> String {
    // upstream writes the fields sorted by name
    let sorted: std::collections::BTreeMap<String, Value> = key.into_iter().collect();
    let mut out = String::from("k:{");
    for (name, value) in sorted {
        if !out.ends_with('{') {
            out.push(',');
        }
        out.push_str(&go_json(&Value::from(name)));
        out.push(':');
        out.push_str(&go_json(&value));
    }
    out.push('}');
    out
}

/// The element of a set item.
pub fn value_element(value: &Value) -> String {
    ["v:", &go_json(value)].concat()
}

/// JSON as Go's encoder writes it: `<`, `>` and `&` escaped.
fn go_json(value: &Value) -> String {
    let text = value.to_string();
    if !text.contains(['<', '>', '&', '\u{2028}', '\u{2029}']) {
        return text;
    }
    let mut out = String::with_capacity(text.len() + 10);
    for c in text.chars() {
        match c {
            '<' | '>' | '&' | '\u{2028}' | '\u{2029}' => out.push_str(&format!("\\u{:04x}", u32::from(c))),
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn set(v: Value) -> Fields {
        let Value::Object(set) = v else { panic!("not an object") };
        set
    }

    #[test]
    fn set_operations() {
        let a = set(json!({"f:a": {".": {}, "f:b": {}}, "f:c": {"f:d": {}}}));
        let b = set(json!({"f:a": {}, "f:c": {"f:d": {}, "f:e": {}}}));
        let mut u = a.clone();
        union(&mut u, b.clone());
        assert_eq!(u, set(json!({"f:a": {".": {}, "f:b": {}}, "f:c": {"f:d": {}, "f:e": {}}})));
        let mut d = a.clone();
        assert!(subtract(&mut d, &b));
        assert_eq!(d, set(json!({"f:a": {"f:b": {}}})), "a child stays when its parent goes");
        let mut d = b.clone();
        assert!(subtract(&mut d, &a));
        assert_eq!(d, set(json!({"f:c": {"f:e": {}}})));
        assert_eq!(intersection(&a, &b), set(json!({"f:a": {}, "f:c": {"f:d": {}}})));
        let mut r = a.clone();
        subtract_below(&mut r, &b);
        assert_eq!(r, Fields::new());
        let mut kept = set(json!({"f:a": {".": {}, "f:b": {}}}));
        assert!(!subtract(&mut kept, &set(json!({"f:x": {}}))));
        assert!(subtract(&mut kept, &set(json!({"f:a": {"f:b": {}}}))));
        assert_eq!(kept, set(json!({"f:a": {}})), "a member without children is a leaf");
    }

    #[test]
    fn inserting_paths() {
        let mut s = Fields::new();
        insert(&mut s, &["f:a"]);
        insert(&mut s, &["f:a", "f:b"]);
        insert(&mut s, &["f:c", "f:d"]);
        insert(&mut s, &["f:c"]);
        assert_eq!(s, set(json!({"f:a": {".": {}, "f:b": {}}, "f:c": {".": {}, "f:d": {}}})));
        assert_eq!(paths(&s), [".a", ".c", ".a.b", ".c.d"]);
    }

    #[test]
    fn client_sets() {
        let given = set(json!({"f:a": {".": {}}, "k:{\"b\": 1, \"a\": \"<\"}": {}, "z:x": {}}));
        let want = set(json!({"f:a": {}, "k:{\"a\":\"\\u003c\",\"b\":1}": {}}));
        assert_eq!(canonical(&given, 0).unwrap(), want);
        assert!(canonical(&set(json!({"a": {}})), 0).is_err());
        assert!(canonical(&set(json!({"f:a": 1})), 0).is_err());
        assert!(canonical(&set(json!({"v:nope": {}})), 0).is_err());
    }
}

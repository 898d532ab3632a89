//! Field ownership: `managedFields` of updates, and server-side apply.
//!
//! The rules are those of structured-merge-diff and apimachinery's `managedfields`. The order of things on a write is
//! upstream's: decode, default, then [`on_update`] (admission and the kind's strategy come after, what they
//! change has no field manager); for an apply patch [`apply`], then defaults, then admission.

mod bare;
mod compare;
mod conflict;
mod fields;
mod fieldset;
mod last_applied;
mod managed;
mod merge;
mod reset;
mod scale;
#[cfg(test)]
mod tests;
mod types;

use std::sync::LazyLock;

use serde_json::{Map, Value};

pub(crate) use self::compare::equal;
use self::compare::{Comparison, Side, compare};
use self::conflict::Conflict;
use self::fields::Fields;
use self::managed::Entry;
use self::reset::{Reset, reset};
pub use self::scale::{Scaled, replace as replace_managed};
use self::types::Type;
use crate::error::ApiError;
use crate::kinds::Kind;

/// Longest name of a manager, in bytes (`FieldManagerMaxLength`).
pub const MAX_MANAGER: usize = 128;

/// Fields of metadata without an owner.
const SYSTEM: [&str; 9] = [
    "name",
    "namespace",
    "creationTimestamp",
    "selfLink",
    "uid",
    "clusterName",
    "generation",
    "managedFields",
    "resourceVersion",
];

static NOTHING: LazyLock<Value> = LazyLock::new(|| Value::Object(Map::new()));

/// Name of the manager of a request: the `fieldManager` parameter, else the head of the user agent.
pub fn manager_name(field_manager: &str, user_agent: &str) -> String {
    if !field_manager.is_empty() {
        return field_manager.to_owned();
    }
    let mut name = String::new();
    let head = user_agent.split('/').next().unwrap_or_default();
    for c in head.chars().filter(|c| !c.is_control() && (*c == ' ' || !c.is_whitespace())) {
        if name.len() + c.len_utf8() > MAX_MANAGER {
            break;
        }
        name.push(c);
    }
    name
}

/// Brings `metadata.managedFields` of `new` up to date after a create (`old` is `None`), update or patch, through
/// the object (`subresource` empty) or one of its subresources. Both objects are decoded and defaulted; for `scale`
/// they and their kind are Scales ([`Scaled`]). `now` is RFC 3339 in seconds.
pub fn on_update(
    kind: &Kind,
    subresource: &str,
    old: Option<&Value>,
    new: &mut Value,
    manager: &str,
    now: &str,
) {
    // In the metadata of a custom resource, an empty list counts as missing.
    let none = |given: &Value| kind.custom.is_some() && given.as_array().is_some_and(Vec::is_empty);
    let given = managed::take(new).filter(|given| !none(given));
    let mut entries = managed::live_or_new(old, given, !subresource.is_empty());
    // Only creation and the first apply start tracking; other writes leave an untracked object untracked.
    if entries.is_empty() && old.is_some() {
        return;
    }
    // As upstream, which gives up and drops them (`UpdateNoErrors`).
    let ty = Type::of(kind);
    let known = if let Some(custom) = &kind.custom {
        let field = |key: &str| new.get(key).and_then(Value::as_str).unwrap_or_default();
        field("kind") == kind.gvk.kind
            && field("apiVersion") == kind.gvk.api_version()
            && entries.iter().all(|e| managed::is_version_of(e, &kind.gvk.group, &custom.versions))
            && fieldset::fits(ty, new, 0)
    } else {
        fieldset::is_keyed(ty, new, 0)
    };
    if !known {
        return;
    }
    update(kind, subresource, old, new, &mut entries, manager, now);
    managed::put(new, entries);
}

fn update(
    kind: &Kind,
    subresource: &str,
    old: Option<&Value>,
    new: &Value,
    entries: &mut Vec<Value>,
    manager: &str,
    now: &str,
) {
    managed::drop_unknown(kind, entries);
    let reset = reset(kind, subresource);
    let Comparison { changed, removed } = difference(kind, &reset, old, new);
    for entry in entries.iter_mut() {
        if let Some(set) = managed::fields_mut(entry) {
            fields::subtract(set, &changed);
            fields::subtract(set, &removed);
        }
    }
    let api_version = kind.gvk.api_version();
    let mine = Entry { manager, operation: "Update", api_version: &api_version, subresource };
    let time = Some(now);
    if !changed.is_empty() {
        match entries.iter_mut().find(|e| Entry::of(e).same(&mine)) {
            Some(entry) => {
                let mut set = managed::fields_mut(entry).map(std::mem::take).unwrap_or_default();
                fields::union(&mut set, changed);
                *entry = mine.to_value(set, time);
            }
            None => entries.push(mine.to_value(changed, time)),
        }
    }
    entries.retain(|e| managed::fields_of(e).is_some_and(|f| !f.is_empty()));
    managed::cap(entries);
}

/// The fields that differ between two objects and that a manager can own.
fn difference(kind: &Kind, reset: &Reset, old: Option<&Value>, new: &Value) -> Comparison {
    let skip = |parent: &str, field: &str| match parent {
        "" => matches!(field, "apiVersion" | "kind") || reset.drops(field),
        _ => SYSTEM.contains(&field),
    };
    let old = match old {
        Some(old) => Side::Value(old),
        None if kind.custom.is_none() => Side::Zero,
        None => Side::Value(&NOTHING),
    };
    let mut difference = compare(Type::of(kind), old, new, &skip);
    reset.filter(&mut difference.changed);
    reset.filter(&mut difference.removed);
    difference
}

/// Server-side apply: merges `applied` into `live` (`None`: the object is created) and updates the managed fields. The
/// result still needs defaults.
///
/// # Errors
/// 400 for another kind or for managedFields in the configuration, 409 for conflicts unless `force`, 500 (as
/// upstream) when the configuration doesn't fit the schema.
pub fn apply(
    kind: &Kind,
    subresource: &str,
    live: Option<&Value>,
    applied: &Value,
    manager: &str,
    force: bool,
    now: &str,
) -> Result<Value, ApiError> {
    check_applied(kind, applied)?;
    let mut object = live.cloned().unwrap_or_else(|| NOTHING.clone());
    let mut entries = managed::live(live);
    drop(managed::take(&mut object));
    if entries.is_empty() && live.is_some() {
        update(kind, subresource, None, &object, &mut entries, "before-first-apply", now);
    }
    managed::drop_unknown(kind, &mut entries);
    let write = Write { kind, subresource, manager, now };
    let live_object = live.is_some().then_some(&object);
    let result = match write.apply(live_object, applied, entries.clone(), force) {
        Err(conflicts) if manager == "kubectl" => {
            let allowed = last_applied::own_fields(kind, &object);
            let left = conflicts.into_iter().filter_map(|c| c.without(&allowed)).collect::<Vec<_>>();
            if left.is_empty() { write.apply(live_object, applied, entries, true) } else { Err(left) }
        }
        result => result,
    };
    let (mut object, entries) = result.map_err(conflict::error)?;
    if manager == "kubectl" {
        last_applied::sync(&mut object, applied);
    }
    managed::put(&mut object, entries);
    Ok(object)
}

struct Write<'a> {
    kind: &'a Kind,
    subresource: &'a str,
    manager: &'a str,
    now: &'a str,
}

impl Write<'_> {
    fn apply(
        &self,
        live: Option<&Value>,
        applied: &Value,
        mut entries: Vec<Value>,
        force: bool,
    ) -> Result<(Value, Vec<Value>), Vec<Conflict>> {
        let ty = Type::of(self.kind);
        let reset = reset(self.kind, self.subresource);
        let api_version = self.kind.gvk.api_version();
        let mine = Entry {
            manager: self.manager,
            operation: "Apply",
            api_version: &api_version,
            subresource: self.subresource,
        };
        let mut set = fieldset::field_set(ty, applied);
        reset.filter(&mut set);
        let last = entries.iter().position(|e| Entry::of(e).same(&mine)).map(|i| entries.remove(i));
        let last_set = last.as_ref().and_then(managed::fields_of).filter(|s| !s.is_empty());
        let mut merged = merge::merge(ty, live.unwrap_or(&NOTHING), applied);
        if let Some(last_set) = last_set {
            merged = prune(ty, &merged, last_set, &entries, &set);
        }
        let unchanged = live.is_some_and(|l| compare::equal(l, &merged));
        if let Some(live) = live.filter(|_| !unchanged) {
            self.settle(&reset, live, &merged, &mut entries, force)?;
        }
        strip_system(&mut set);
        let last_time = last.as_ref().and_then(|l| l.get("time")).and_then(Value::as_str);
        let time = if unchanged { last_time } else { Some(self.now) };
        entries.push(mine.to_value(set, time));
        Ok((merged, entries))
    }

    /// Finds the fields that the apply takes from other managers, and takes them when forced.
    fn settle(
        &self,
        reset: &Reset,
        live: &Value,
        merged: &Value,
        entries: &mut [Value],
        force: bool,
    ) -> Result<(), Vec<Conflict>> {
        let Comparison { changed, removed } = difference(self.kind, reset, Some(live), merged);
        let mut conflicts = Vec::new();
        for entry in entries.iter() {
            let Some(set) = managed::fields_of(entry) else { continue };
            let taken = fields::intersection(set, &changed);
            if !taken.is_empty() {
                conflicts.push(Conflict::new(&Entry::of(entry), taken));
            }
        }
        if !conflicts.is_empty() && !force {
            return Err(conflicts);
        }
        for entry in entries.iter_mut() {
            if let Some(set) = managed::fields_mut(entry) {
                fields::subtract(set, &changed);
                fields::subtract(set, &removed);
            }
        }
        Ok(())
    }
}

/// Removes the fields that the manager applied last time, doesn't apply now, and no other manager owns.
fn prune(ty: Type<'_>, merged: &Value, last: &Fields, others: &[Value], set: &Fields) -> Value {
    let named = |set: &Fields| fieldset::with_named_parents(ty, set);
    let last = named(last);
    let mut owned = set.clone();
    for other in others.iter().filter_map(managed::fields_of) {
        fields::union(&mut owned, other.clone());
    }
    let all = named(&fieldset::field_set(ty, merged));
    // Fields that another manager or this configuration still owns come back.
    let pruned = merge::remove(ty, merged, &last);
    let mut kept = named(&fieldset::field_set(ty, &pruned));
    fields::union(&mut kept, named(&owned));
    let mut gone = all.clone();
    fields::subtract(&mut gone, &kept);
    let pruned = merge::remove(ty, merged, &gone);
    // So do fields that were removed only with their parent and that this manager never owned.
    let mut gone = all;
    fields::subtract(&mut gone, &named(&fieldset::field_set(ty, &pruned)));
    merge::remove(ty, merged, &fields::intersection(&gone, &last))
}

fn strip_system(set: &mut Fields) {
    let mut system = Fields::new();
    for path in [&["f:apiVersion"][..], &["f:kind"], &["f:metadata"]] {
        fields::insert(&mut system, path);
    }
    for field in SYSTEM {
        fields::insert(&mut system, &["f:metadata", &format!("f:{field}")]);
    }
    fields::subtract(set, &system);
}

/// Checks that an applied configuration is of the kind and fits its schema.
///
/// # Errors
/// 400 for another kind or for managedFields in it, 500 (as upstream) when it doesn't fit the schema.
pub fn check_applied(kind: &Kind, applied: &Value) -> Result<(), ApiError> {
    let text = |key: &str| applied.get(key).and_then(Value::as_str).unwrap_or_default();
    let api_version = text("apiVersion");
    let (group, version, name) = match api_version.split('/').collect::<Vec<_>>().as_slice() {
        [version] => ("", *version, text("kind")),
        [group, version] => (*group, *version, text("kind")),
        _ => ("", "", ""),
    };
    let given = format!("{group}/{version}, Kind={name}");
    if group != kind.gvk.group || version != kind.gvk.version || name != kind.gvk.kind {
        return Err(ApiError::bad_request(format!("invalid object type: {given}")));
    }
    let metadata = |key: &str| applied.get("metadata").and_then(|m| m.get(key)).filter(|v| !v.is_null());
    if metadata("managedFields").is_some() {
        return Err(ApiError::bad_request("metadata.managedFields must be nil"));
    }
    fieldset::validate(Type::of(kind), applied).map_err(|e| {
        let text = |key: &str| metadata(key).and_then(Value::as_str).unwrap_or_default();
        let (namespace, name) = (text("namespace"), text("name"));
        let given = given.strip_prefix('/').map_or(given.clone(), |g| format!("/{g}"));
        let message = format!("failed to create typed patch object ({namespace}/{name}; {given}): {e}");
        ApiError::new(500, "", message)
    })
}

/// Gives the entries of `new` the times of `old` when nothing but times differs, so that a write that changes
/// nothing isn't one.
pub fn keep_times(old: &Value, new: &mut Value) {
    let lists = (managed::entries(Some(old)), managed::entries(Some(new)));
    let (Some(Value::Array(before)), Some(Value::Array(after))) = lists else { return };
    // Entries are sorted by time, among other things, so a new time may have moved one.
    let same = before.len() == after.len()
        && after.iter().all(|a| before.iter().any(|b| equal_without(a, b, "time")));
    if !same || before == after || !equal_but_managed(old, new) {
        return;
    }
    if let Some(list) = new.get_mut("metadata").and_then(|m| m.get_mut("managedFields")) {
        *list = Value::Array(before.clone());
    }
}

fn equal_but_managed(a: &Value, b: &Value) -> bool {
    let (Some(a), Some(b)) = (a.as_object(), b.as_object()) else { return false };
    a.len() == b.len()
        && a.iter().all(|(key, x)| match (key.as_str(), b.get(key)) {
            ("metadata", Some(y)) => equal_without(x, y, "managedFields"),
            (_, y) => y == Some(x),
        })
}

/// Whether two objects are equal, one field aside.
fn equal_without(a: &Value, b: &Value, field: &str) -> bool {
    let (Some(a), Some(b)) = (a.as_object(), b.as_object()) else { return a == b };
    let count = |m: &Map<String, Value>| m.len() - usize::from(m.contains_key(field));
    count(a) == count(b) && a.iter().all(|(k, x)| k == field || b.get(k) == Some(x))
}

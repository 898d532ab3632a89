//! Field ownership: `managedFields` of updates, and server-side apply.
//!
//! The rules are those of structured-merge-diff and apimachinery's `managedfields`. The order of things on a write is
//! upstream's: decode, default, then [`on_update`] (admission and the kind's strategy come after, what they
//! change has no field manager); for an apply patch [`apply`], then defaults, then admission.

mod bare;
mod compare;
mod conflict;
mod difference;
mod fields;
mod fieldset;
mod last_applied;
mod managed;
mod merge;
mod prune;
mod reconcile;
mod reset;
mod scale;
#[cfg(test)]
mod tests;
mod types;
mod versions;
#[cfg(test)]
mod versions_tests;

use serde_json::{Map, Value};

pub(crate) use self::compare::equal;
use self::conflict::Conflict;
use self::difference::{NOTHING, SYSTEM};
use self::fields::Fields;
use self::managed::Entry;
use self::reset::reset;
pub use self::scale::{Scaled, replace as replace_managed};
use self::types::Type;
pub use self::versions::{Served, Versions};
use crate::error::ApiError;
use crate::kinds::Kind;

/// Longest name of a manager, in bytes (`FieldManagerMaxLength`).
pub const MAX_MANAGER: usize = 128;

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

/// As [`Served::on_update`], for a kind without other versions.
pub fn on_update(
    kind: &Kind,
    subresource: &str,
    old: Option<&Value>,
    new: &mut Value,
    manager: &str,
    now: &str,
) {
    Served::from(kind).on_update(subresource, old, new, manager, now);
}

/// As [`Served::apply`], for a kind without other versions.
///
/// # Errors
/// As there.
pub fn apply(
    kind: &Kind,
    subresource: &str,
    live: Option<&Value>,
    applied: &Value,
    manager: &str,
    force: bool,
    now: &str,
) -> Result<Value, ApiError> {
    Served::from(kind).apply(subresource, live, applied, manager, force, now)
}

impl Served<'_> {
    /// Brings `metadata.managedFields` of `new` up to date after a create (`old` is `None`), update or patch, through
    /// the object (`subresource` empty) or one of its subresources. Both objects are decoded and defaulted; for `scale`
    /// they and their kind are Scales ([`Scaled`]). `now` is RFC 3339 in seconds.
    pub fn on_update(
        self,
        subresource: &str,
        old: Option<&Value>,
        new: &mut Value,
        manager: &str,
        now: &str,
    ) {
        let kind = self.kind;
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
        if known && self.update(subresource, old, new, &mut entries, manager, now).is_ok() {
            managed::put(new, entries);
        }
    }

    fn update(
        self,
        subresource: &str,
        old: Option<&Value>,
        new: &Value,
        entries: &mut Vec<Value>,
        manager: &str,
        now: &str,
    ) -> Result<(), ApiError> {
        managed::drop_unknown(self.kind, entries);
        self.reconcile(entries);
        let differences = self.differences(subresource, old, new, entries)?;
        differences.take_from(entries);
        let changed = differences.own.changed;
        let api_version = self.kind.gvk.api_version();
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
        Ok(())
    }

    /// Server-side apply: merges `applied` into `live` (`None`: the object is created) and updates the managed fields.
    /// The result still needs defaults.
    ///
    /// # Errors
    /// 400 for another kind or for managedFields in the configuration, 409 for conflicts unless `force`, 500 (as
    /// upstream) when the configuration doesn't fit the schema, or when the object can't be converted to the version of
    /// an entry.
    pub fn apply(
        self,
        subresource: &str,
        live: Option<&Value>,
        applied: &Value,
        manager: &str,
        force: bool,
        now: &str,
    ) -> Result<Value, ApiError> {
        let kind = self.kind;
        check_applied(kind, applied)?;
        let mut object = live.cloned().unwrap_or_else(|| NOTHING.clone());
        let mut entries = managed::live(live);
        drop(managed::take(&mut object));
        if entries.is_empty() && live.is_some() {
            self.update(subresource, None, &object, &mut entries, "before-first-apply", now)?;
        }
        managed::drop_unknown(kind, &mut entries);
        known_versions(kind, &entries)?;
        self.reconcile(&mut entries);
        let write = Write { served: self, subresource, manager, now };
        let live_object = live.is_some().then_some(&object);
        let result = match write.apply(live_object, applied, entries.clone(), force) {
            Err(Refusal::Conflicts(conflicts)) if manager == "kubectl" => {
                let allowed = last_applied::own_fields(kind, &object);
                let left = conflicts.into_iter().filter_map(|c| c.without(&allowed)).collect::<Vec<_>>();
                if left.is_empty() {
                    write.apply(live_object, applied, entries, true)
                } else {
                    Err(Refusal::Conflicts(left))
                }
            }
            result => result,
        };
        let (mut object, entries) = result.map_err(|refusal| match refusal {
            Refusal::Conflicts(conflicts) => conflict::error(conflicts),
            Refusal::Failed(error) => error,
        })?;
        if manager == "kubectl" {
            last_applied::sync(&mut object, applied);
        }
        managed::put(&mut object, entries);
        Ok(object)
    }
}

/// A custom resource can't be converted to versions that its definition doesn't have (`crConverter.ConvertToVersion`).
fn known_versions(kind: &Kind, entries: &[Value]) -> Result<(), ApiError> {
    let Some(custom) = &kind.custom else { return Ok(()) };
    let unknown = entries.iter().find(|e| !managed::is_version_of(e, &kind.gvk.group, &custom.versions));
    unknown.map_or(Ok(()), |entry| {
        let version = Entry::of(entry).api_version;
        let message = format!("request to convert CR to an invalid group/version: {version}");
        Err(ApiError::new(500, "", message))
    })
}

/// Why an apply changes nothing.
enum Refusal {
    /// Other managers own the fields.
    Conflicts(Vec<Conflict>),
    /// Something else.
    Failed(ApiError),
}

impl From<ApiError> for Refusal {
    fn from(error: ApiError) -> Self {
        Self::Failed(error)
    }
}

struct Write<'a> {
    served: Served<'a>,
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
    ) -> Result<(Value, Vec<Value>), Refusal> {
        let kind = self.served.kind;
        let ty = Type::of(kind);
        let api_version = kind.gvk.api_version();
        let mine = Entry {
            manager: self.manager,
            operation: "Apply",
            api_version: &api_version,
            subresource: self.subresource,
        };
        let mut set = fieldset::field_set(ty, applied);
        reset(kind, self.subresource).filter(&mut set);
        let last = entries.iter().position(|e| Entry::of(e).same(&mine)).map(|i| entries.remove(i));
        let mut merged = merge::merge(ty, live.unwrap_or(&NOTHING), applied);
        if let Some(last) = &last {
            merged = self.served.prune(merged, last, &entries, &set)?;
        }
        let unchanged = live.is_some_and(|l| compare::equal(l, &merged));
        if let Some(live) = live.filter(|_| !unchanged) {
            self.settle(live, &merged, &mut entries, force)?;
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
        live: &Value,
        merged: &Value,
        entries: &mut [Value],
        force: bool,
    ) -> Result<(), Refusal> {
        let differences = self.served.differences(self.subresource, Some(live), merged, entries)?;
        let mut conflicts = Vec::new();
        for entry in entries.iter() {
            let Some(set) = managed::fields_of(entry) else { continue };
            let taken = fields::intersection(set, &differences.of(entry).changed);
            if !taken.is_empty() {
                conflicts.push(Conflict::new(&Entry::of(entry), taken));
            }
        }
        if !conflicts.is_empty() && !force {
            return Err(Refusal::Conflicts(conflicts));
        }
        differences.take_from(entries);
        Ok(())
    }
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

//! Removes what a configuration no longer names (`merge.Updater.prune` of structured-merge-diff).

use std::collections::BTreeMap;

use serde_json::Value;

use super::fields::{self, Fields};
use super::fieldset::{field_set, with_named_parents};
use super::managed::{self, Entry};
use super::merge;
use super::types::Type;
use super::versions::Served;
use crate::error::ApiError;

impl Served<'_> {
    /// Removes from a merged object the fields that the manager applied last time, doesn't apply now (`set`), and no
    /// other manager owns.
    pub(super) fn prune(
        self,
        merged: Value,
        last: &Value,
        others: &[Value],
        set: &Fields,
    ) -> Result<Value, ApiError> {
        let Some(last_set) = managed::fields_of(last).filter(|s| !s.is_empty()) else { return Ok(merged) };
        let last_kind = self.other(Entry::of(last).api_version);
        let last_kind = last_kind.as_deref().unwrap_or(self.kind);
        let (version, ty) = (last_kind.gvk.api_version(), Type::of(last_kind));
        let merged = self.convert(&merged, &version)?;
        let last = with_named_parents(ty, last_set);
        let pruned = self.restored(&merged, merge::remove(ty, &merged, &last), &version, others, set)?;
        // Fields that were removed only with their parent and that this manager never owned come back, too.
        let pruned = self.convert(&pruned, &version)?;
        let mut gone = all(ty, &merged);
        fields::subtract(&mut gone, &all(ty, &pruned));
        let pruned = merge::remove(ty, &merged, &fields::intersection(&gone, &last));
        self.convert(&pruned, &self.kind.gvk.api_version())
    }

    /// The pruned object with what another manager or this configuration still owns, version by version. Fields in the
    /// version of the last configuration (`first`) come first: a conversion may need them.
    fn restored(
        self,
        merged: &Value,
        mut pruned: Value,
        first: &str,
        others: &[Value],
        set: &Fields,
    ) -> Result<Value, ApiError> {
        let own = self.kind.gvk.api_version();
        let mut owned = BTreeMap::from([(own.clone(), set.clone())]);
        for other in others {
            let Some(fields) = managed::fields_of(other) else { continue };
            let version = Entry::of(other).api_version;
            let version = if self.other(version).is_some() { version } else { own.as_str() };
            fields::union(owned.entry(version.to_owned()).or_default(), fields.clone());
        }
        let of_first = owned.remove(first).map(|managed| (first.to_owned(), managed));
        let mut whole = merged.clone();
        for (version, managed) in of_first.into_iter().chain(owned) {
            let kind = self.other(&version);
            let ty = Type::of(kind.as_deref().unwrap_or(self.kind));
            let (converted, rest) = (self.convert(&whole, &version), self.convert(&pruned, &version));
            (whole, pruned) = (converted?, rest?);
            let mut kept = all(ty, &pruned);
            fields::union(&mut kept, with_named_parents(ty, &managed));
            let mut gone = all(ty, &whole);
            fields::subtract(&mut gone, &kept);
            pruned = merge::remove(ty, &whole, &gone);
        }
        Ok(pruned)
    }
}

/// Every field of an object, with the declared ones on the way.
fn all(ty: Type<'_>, object: &Value) -> Fields {
    with_named_parents(ty, &field_set(ty, object))
}

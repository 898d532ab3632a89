//! Objects that go.

use std::sync::Arc;

use plimsoll_api::{json, timestamp};
use plimsoll_state::Time;
use serde_json::Value;

use super::{Kind, ObjectStore, Source};

/// Removed objects that are remembered: more than are removed while a response is on its way.
const REMOVED: usize = 256;

impl ObjectStore {
    /// Forgets the object with this UID (empty: whatever has the name). Another one that has its name by now stays: the
    /// response to a read or a write can show it before the watch shows the end of this one.
    pub fn remove(&mut self, kind: Kind, namespace: &str, name: &str, uid: &str) -> Option<Arc<Value>> {
        if !uid.is_empty() {
            self.removed.truncate(REMOVED - 1);
            self.removed.push_front(uid.to_owned());
        }
        let name = (namespace.to_owned(), name.to_owned());
        let table = self.tables.get_mut(&kind)?;
        if !uid.is_empty() && table.objects.get(&name).is_some_and(|o| o.uid() != uid) {
            return None;
        }
        let old = table.objects.remove(&name)?.object();
        table.unseen.remove(&name);
        match kind {
            Kind::WorkloadPriorityClass => {
                self.same_value.remove(&name.1);
            }
            Kind::JobKind => self.declared.withdraw(&name.1),
            _ => {}
        }
        self.unindex(kind, &name, &old);
        Some(old)
    }

    /// The API server has accepted the deletion of the object with this UID. It counts as terminating until a watch shows
    /// its end, also where events come later that are older than the deletion.
    pub fn deletion_accepted(&mut self, kind: Kind, namespace: &str, name: &str, uid: &str, now: Time) {
        let name = (namespace.to_owned(), name.to_owned());
        let Some(kept) = self.find(kind, &name).filter(|o| o.uid() == uid) else { return };
        let mut object = kept.object();
        if !json::deleting(&object) {
            let stamp = timestamp::text(now).into();
            json::set(Arc::make_mut(&mut object), &["metadata", "deletionTimestamp"], stamp);
            self.keep(kind, &name, object, Source::Answer);
        }
    }

    /// Whether a watch has shown the end of the object with this UID, of late.
    pub fn was_removed(&self, uid: &str) -> bool {
        self.removed.iter().any(|removed| removed == uid)
    }
}

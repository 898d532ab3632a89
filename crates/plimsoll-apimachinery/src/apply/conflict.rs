//! The answer when an apply would take fields of others.

use super::fields::{self, Fields};
use super::managed::Entry;
use crate::error::{ApiError, Cause, Details};

/// Fields of one other manager that the apply would change.
pub struct Conflict {
    /// The manager as messages show it: `"m" with subresource "status" using v1`.
    manager: String,
    order: String,
    /// The fields.
    pub fields: Fields,
}

impl Conflict {
    /// A conflict with the owner of an entry.
    pub fn new(entry: &Entry<'_>, fields: Fields) -> Self {
        let mut manager = format!("{:?}", entry.manager);
        if !entry.subresource.is_empty() {
            manager.push_str(&format!(" with subresource {:?}", entry.subresource));
        }
        let mut order = format!("{}\"{}", entry.manager, entry.operation);
        if entry.operation == "Update" {
            manager.push_str(&format!(" using {}", entry.api_version));
            order.push_str(entry.api_version);
        }
        order.push_str(entry.subresource);
        Self { manager, order, fields }
    }
}

/// 409 with a cause for each field.
pub fn error(mut conflicts: Vec<Conflict>) -> ApiError {
    conflicts.sort_by(|a, b| a.order.cmp(&b.order));
    let mut causes = Vec::new();
    let mut lines = Vec::new();
    for conflict in &conflicts {
        lines.push(format!("conflicts with {}:", conflict.manager));
        for path in fields::paths(&conflict.fields) {
            lines.push(format!("- {path}"));
            causes.push(Cause {
                reason: "FieldManagerConflict".to_owned(),
                message: format!("conflict with {}", conflict.manager),
                field: path,
            });
        }
    }
    let message = match causes.as_slice() {
        [one] => format!("Apply failed with 1 conflict: {}: {}", one.message, one.field),
        many => format!("Apply failed with {} conflicts: {}", many.len(), lines.join("\n")),
    };
    let mut error = ApiError::new(409, "Conflict", message);
    error.details = Some(Box::new(Details { causes, ..Details::default() }));
    error
}

impl Conflict {
    /// The conflict without some fields; `None`: none are left.
    pub fn without(mut self, allowed: &Fields) -> Option<Self> {
        fields::subtract(&mut self.fields, allowed);
        (!self.fields.is_empty()).then_some(self)
    }
}

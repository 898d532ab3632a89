//! Changes of CertificateSigningRequests (`validateCertificateSigningRequestUpdate` in `pkg/apis/certificates/validation`): those who sign
//! don't approve, and what has been approved, denied or issued stays so. The request itself is not checked.

use serde_json::Value;

use super::path::{Errors, Path};
use crate::obj::{Obj, list, object, text};

fn conditions<'a>(request: &'a Obj, kind: &str) -> Vec<&'a Value> {
    list(object(request, "status"), "conditions").iter().filter(|c| c["type"] == kind).collect()
}

/// No condition goes that decides.
fn removals(old: &Obj, new: &Obj, errors: &mut Errors) {
    for kind in ["Approved", "Denied", "Failed"] {
        if conditions(new, kind).len() < conditions(old, kind).len() {
            let why = format!("updates may not remove a condition of type {kind:?}");
            errors.forbidden(&Path::new("status").field("conditions"), &why);
        }
    }
}

/// Nothing else decides than approval.
fn decisions(old: &Obj, new: &Obj, errors: &mut Errors) {
    for kind in ["Approved", "Denied"] {
        let (before, after) = (conditions(old, kind), conditions(new, kind));
        let what = match after.len().cmp(&before.len()) {
            std::cmp::Ordering::Greater => "add",
            std::cmp::Ordering::Equal if before != after => "modify",
            _ => continue,
        };
        let why = format!("updates may not {what} a condition of type {kind:?}");
        errors.forbidden(&Path::new("status").field("conditions"), &why);
    }
}

/// Both answers at once are none, unless they were there.
fn both(old: &Obj, new: &Obj, errors: &mut Errors) {
    let has = |request: &Obj| ["Approved", "Denied"].iter().all(|kind| !conditions(request, kind).is_empty());
    if has(new) && !has(old) {
        let path = Path::new("status");
        errors.invalid(
            &path.field("conditions"),
            "Denied",
            "Approved and Denied conditions are mutually exclusive",
        );
    }
}

fn certificate(old: &Obj, new: &Obj, may_set: bool, errors: &mut Errors) {
    let of = |request: &Obj| text(object(request, "status"), "certificate").to_owned();
    let (before, after) = (of(old), of(new));
    let status = Path::new("status");
    let path = status.field("certificate");
    if before != after && !may_set {
        errors.forbidden(&path, "updates may not set certificate content");
    } else if before != after && !before.is_empty() {
        errors.forbidden(&path, "updates may not modify existing certificate content");
    }
}

/// A change of the object itself.
pub(super) fn update(old: &Obj, new: &Obj, errors: &mut Errors) {
    both(old, new, errors);
    removals(old, new, errors);
    decisions(old, new, errors);
    certificate(old, new, false, errors);
}

/// A change of its status.
pub(super) fn status(old: &Obj, new: &Obj, errors: &mut Errors) {
    both(old, new, errors);
    removals(old, new, errors);
    decisions(old, new, errors);
    certificate(old, new, true, errors);
}

/// An approval or a denial.
pub(super) fn approval(old: &Obj, new: &Obj, errors: &mut Errors) {
    both(old, new, errors);
    removals(old, new, errors);
    certificate(old, new, false, errors);
}

//! Writes to QuotaLoans.

use plimsoll_engine::Action;
use plimsoll_queueing::{Action as QueueAction, LoanChange, LoanUpdate};
use plimsoll_state::Answer;
use serde_json::{Value, json};

use super::{Outcome, Step, answered, not_written, retry};
use crate::json;
use crate::request::{PatchKind, Request};
use crate::resource::QUOTA_LOANS;

/// One request, carried out only while the loan has the version that it was decided for. Whether a write whose response was lost
/// was carried out the watch shows; until then the engine counts with both.
pub(super) fn update(update: LoanUpdate) -> Step {
    let LoanUpdate { name, uid, version, change } = &update;
    let patch = |subresource: &'static str, mut body: Value| {
        json::set(&mut body, &["metadata", "uid"], json!(uid));
        json::set(&mut body, &["metadata", "resourceVersion"], json!(version.to_string()));
        Request::patch(QUOTA_LOANS, "", name, subresource, PatchKind::Merge, body)
    };
    let phase = |phase: &str| json!({"status": {"phase": phase, "message": null}});
    let request = match change {
        LoanChange::Finalizers(finalizers) => patch("", json!({"metadata": {"finalizers": finalizers}})),
        LoanChange::Grant => patch("status", phase("Granted")),
        LoanChange::Return => patch("status", phase("Returned")),
        LoanChange::Explain(message) => patch("status", json!({"status": {"message": message}})),
        LoanChange::Delete => Request::delete(QUOTA_LOANS, "", name, uid),
    };
    retry(request, move |response| {
        let (name, uid) = (update.name.clone(), update.uid.clone());
        let action = Action::Queueing(QueueAction::UpdateLoan(Box::new(update)));
        let done = move |answer| {
            Step::Done(Box::new(Outcome { answers: vec![answered(action, answer)], ..Outcome::default() }))
        };
        match response {
            Ok(_) => done(Answer::Done),
            Err(e) => not_written(&e, (QUOTA_LOANS, "", &*name), uid, done),
        }
    })
}

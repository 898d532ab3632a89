//! Regular expressions, compiled once for the many steps of a loop.

use std::cell::RefCell;
use std::collections::VecDeque;

use regex::Regex;

use crate::budget::Budget;
use crate::error::EvalError;
use crate::pattern;

/// Cost of compiling a regular expression, beside its length.
const COMPILE_COST: u64 = 10_000;
/// Most regular expressions that a thread keeps.
const MAX_KEPT: usize = 8;
/// Largest compiled regular expression, in bytes.
const MAX_SIZE: usize = 1 << 20;

thread_local! {
    /// The regular expressions compiled last; `None` for a pattern that is invalid.
    static KEPT: RefCell<VecDeque<(String, Option<Regex>)>> = const { RefCell::new(VecDeque::new()) };
}

/// Applies a regular expression to a text of `length` bytes.
pub(super) fn apply<R>(
    budget: &mut Budget,
    length: usize,
    pattern: &str,
    apply: impl FnOnce(&Regex) -> R,
) -> Result<R, EvalError> {
    budget.charge((length as u64 / 10 + 1).saturating_mul(pattern.len() as u64 / 4 + 1))?;
    KEPT.with_borrow_mut(|kept| {
        if !kept.iter().any(|(p, _)| p == pattern) {
            budget.charge(COMPILE_COST.saturating_add(pattern.len() as u64))?;
            let built = pattern::compile(pattern, MAX_SIZE).ok();
            kept.truncate(MAX_KEPT - 1);
            kept.push_front((pattern.to_owned(), built));
        }
        match kept.iter().find(|(p, _)| p == pattern) {
            Some((_, Some(regex))) => Ok(apply(regex)),
            _ => EvalError::error(format!("error parsing regexp: `{pattern}`")),
        }
    })
}

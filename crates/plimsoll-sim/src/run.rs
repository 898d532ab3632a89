//! Runs scenarios: a panic of the product is a broken rule like any other.

use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::check::{Rule, Violation};
use crate::scenario::{Ending, Scenario};
use crate::world::{Outcome, World};

/// Runs a scenario to its end.
pub fn run(scenario: &Scenario) -> Outcome {
    traced(scenario, false).0
}

/// Runs a scenario to its end; with `trace` also says what happened, line by line.
pub fn traced(scenario: &Scenario, trace: bool) -> (Outcome, Vec<String>) {
    let mut world = World::new(scenario.clone(), trace);
    let outcome = catch_unwind(AssertUnwindSafe(|| world.run())).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text =
            text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("a panic without a message");
        let mut outcome = world.outcome();
        outcome.violation = Some(Violation::new(Rule::Panic, text.to_owned()));
        outcome
    });
    (outcome, world.take_trace())
}

/// Runs a scenario once for each of its steps, with the process ending after it; every `stride`th step only. Returns the
/// steps of all runs.
///
/// # Errors
/// The scenario that broke a rule.
pub fn ending_everywhere(
    scenario: &Scenario,
    ending: Ending,
    stride: usize,
) -> Result<u64, Box<(Scenario, Violation)>> {
    let ended = |crash_after: Option<u64>| Scenario { crash_after, ending, ..scenario.clone() };
    let checked = |scenario: Scenario| {
        let Outcome { steps, violation, .. } = run(&scenario);
        violation.map_or(Ok(steps), |violation| Err(Box::new((scenario, violation))))
    };
    let whole = checked(ended(None))?;
    let mut steps = whole;
    for last in (1..=whole).step_by(stride.max(1)) {
        steps += checked(ended(Some(last)))?;
    }
    Ok(steps)
}

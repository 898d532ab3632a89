//! Backoff durations.

use crate::Differences;
use plimsoll_scheduler::Backoff;
use plimsoll_state::Duration;
use serde_json::Value;

fn number(v: &Value, key: &str) -> i64 {
    v.get(key).and_then(Value::as_i64).expect("a number")
}

/// A name for a vector without id.
pub fn name(v: &Value) -> String {
    format!("{}-{}-{}", number(v, "attempts"), number(v, "initialSeconds"), number(v, "maxSeconds"))
}

pub fn run(v: &Value) -> Differences {
    let backoff = Backoff {
        initial: Duration::from_seconds(number(v, "initialSeconds")),
        max: Duration::from_seconds(number(v, "maxSeconds")),
    };
    let got = backoff.duration(u32::try_from(number(v, "attempts")).expect("small")).seconds();
    let want = number(v, "expectSeconds");
    if got == want { Vec::new() } else { vec![format!("got {got} s, want {want} s")] }
}

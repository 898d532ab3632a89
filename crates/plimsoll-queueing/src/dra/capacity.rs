//! Shares of the capacity of devices that are allocated more than once (KEP-5075; Kueue `pkg/dra/capacity.go`).

use super::problem::{Problem, quoted};
use crate::config::DeviceSource;
use plimsoll_state::model::{CapacityRequestPolicy, CapacityRequestRange, Device, DeviceCapacity};

/// A billion billionths are one.
const NANO: i128 = 1_000_000_000;

/// Whole units, rounded up; amounts beyond 64 bits become the greatest or least there is.
pub(super) fn units(nanos: i128) -> i64 {
    let whole = nanos.div_euclid(NANO) + i128::from(nanos.rem_euclid(NANO) > 0);
    i64::try_from(whole).unwrap_or(if whole < 0 { i64::MIN } else { i64::MAX })
}

/// The greatest share of a capacity that one of these devices gives to a request; `asked` is the amount that the request
/// names, in billionths. Devices whose policy has no such share don't count.
pub(super) fn greatest_share(
    devices: &[&Device],
    source: &DeviceSource,
    asked: Option<i128>,
    path: &str,
) -> Result<i64, Problem> {
    let name = quoted(&source.name);
    let mut capacities = devices.iter().filter_map(|d| d.capacity.get(&source.name)).peekable();
    if capacities.peek().is_none() {
        let text = format!("matched devices have no capacity dimension {name}");
        return Err(Problem::Missing(path.to_owned(), text));
    }
    let Some(nanos) = capacities.filter_map(|c| share(c, asked)).max() else {
        let text = format!(
            "capacity request cannot be satisfied by any matched device's RequestPolicy for dimension {name}"
        );
        return Err(Problem::Invalid(path.to_owned(), "\"null\"".into(), text));
    };
    Ok(units(nanos.max(0)))
}

/// The share of a request: the amount it names, the default of the policy, or everything; rounded as the policy says.
/// `None`: the policy has no share that is large enough.
fn share(capacity: &DeviceCapacity, asked: Option<i128>) -> Option<i128> {
    let Some(policy) = &capacity.policy else { return Some(asked.unwrap_or(capacity.amount)) };
    let CapacityRequestPolicy { default, valid_values, valid_range } = &**policy;
    let amount = asked.or(*default).unwrap_or(capacity.amount);
    if !valid_values.is_empty() {
        return valid_values.iter().copied().find(|v| *v >= amount);
    }
    match valid_range {
        Some(range) => within(amount, range),
        None => Some(amount),
    }
}

/// An amount rounded up to the limits of shares; in whole units, as Kueue's `roundToValidRange`.
fn within(amount: i128, range: &CapacityRequestRange) -> Option<i128> {
    let mut share = units(amount);
    if let Some(min) = range.min.map(units) {
        share = share.max(min);
        let step = range.step.map_or(0, units);
        let offset = share.saturating_sub(min);
        if step > 0 && offset % step != 0 {
            share = min.saturating_add((offset / step).saturating_add(1).saturating_mul(step));
        }
    }
    let fits = range.max.is_none_or(|max| share <= units(max));
    fits.then(|| i128::from(share) * NANO)
}

//! Capacity that several requests share, and the request policies for it.

use plimsoll_api::Quantity;
use serde_json::Value;

use super::super::path::{Errors, Path};
use super::super::resources::amount;
use super::few;
use crate::obj::{Obj, has, list, object};

/// `validateMultiAllocatableDeviceCapacity` and its counterpart for devices that are allocated once.
pub(super) fn capacity(capacity: &Obj, shared: bool, path: &Path<'_>, errors: &mut Errors) {
    if !has(capacity, "requestPolicy") {
        return;
    }
    let at = path.field("requestPolicy");
    if !shared {
        errors.forbidden(&at, "allowMultipleAllocations must be true");
        return;
    }
    let policy = object(capacity, "requestPolicy");
    let max = amount(capacity.get("value").unwrap_or(&Value::Null));
    let default = policy.get("default").filter(|d| !d.is_null()).map(amount);
    let values = list(policy, "validValues");
    let range = has(policy, "validRange");
    match (values.is_empty(), range, default) {
        (false, true, _) => errors.forbidden(
            &at,
            "exactly one policy can be specified, cannot specify \"validValues\" and \"validRange\" at the same time",
        ),
        (false, false, None) => {
            errors.required(&at.field("default"), "required when validValues is defined");
        }
        (false, false, Some(default)) => valid_values(values, default, max, &at.field("validValues"), errors),
        (true, true, None) => errors.required(&at.field("default"), "required when validRange is defined"),
        (true, true, Some(default)) => {
            valid_range(object(policy, "validRange"), default, max, &at.field("validRange"), errors);
        }
        (true, false, _) => {}
    }
}

fn valid_values(values: &[Value], default: Quantity, max: Quantity, path: &Path<'_>, errors: &mut Errors) {
    let amounts: Vec<Quantity> = values.iter().map(amount).collect();
    for (i, pair) in amounts.windows(2).enumerate() {
        if let [a, b] = pair
            && a > b
        {
            errors.invalid(&path.index(i + 1), b.to_string(), "values must be sorted in ascending order");
        }
    }
    let mut found = false;
    if few(values, 10, path, errors) {
        for (i, option) in amounts.iter().enumerate() {
            if *option > max {
                let detail = format!("option is larger than capacity value: {max}");
                errors.invalid(&path.index(i), option.to_string(), &detail);
            }
            found |= *option == default;
        }
        for (i, option) in amounts.iter().enumerate() {
            if amounts.iter().take(i).any(|before| before.value() == option.value()) {
                errors.duplicate(&path.index(i), option.value().to_string());
            }
        }
    }
    if !found {
        let detail = "default value is not valid according to the requestPolicy";
        errors.invalid(path, default.to_string(), detail);
    }
}

fn valid_range(range: &Obj, default: Quantity, max: Quantity, path: &Path<'_>, errors: &mut Errors) {
    let given = |key: &str| range.get(key).filter(|v| !v.is_null()).map(amount);
    let Some(least) = given("min") else {
        errors.required(&path.field("min"), "required when validRange is defined");
        return;
    };
    let at = path.field("min");
    if least > max {
        errors.invalid(&at, least.to_string(), &format!("min is larger than capacity value: {max}"));
    }
    if default < least {
        errors.invalid(&at, default.to_string(), &format!("default is less than min: {least}"));
    }
    let most = given("max");
    if let Some(most) = most {
        let at = path.field("max");
        if least > most {
            errors.invalid(&at, least.to_string(), &format!("min is larger than max: {most}"));
        }
        if most > max {
            errors.invalid(&at, most.to_string(), &format!("max is larger than capacity value: {max}"));
        }
        if default > most {
            errors.invalid(&at, default.to_string(), &format!("default is more than max: {most}"));
        }
    }
    if let Some(step) = given("step") {
        let at = path.field("step");
        let first = least.saturating_add(step);
        if first > max {
            let detail = format!("one step {first} is larger than capacity value: {max}");
            errors.invalid(&at, step.to_string(), &detail);
        }
        for value in [Some(default), most].into_iter().flatten() {
            let over = value.value().wrapping_sub(least.value());
            // upstream divides by zero here; a step of nothing fits nothing
            if over.checked_rem(step.value()) != Some(0) {
                let detail = format!("value is not a multiple of a given step ({step}) from ({least})");
                errors.invalid(&at, value.to_string(), &detail);
            }
        }
    }
}

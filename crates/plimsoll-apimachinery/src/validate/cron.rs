//! Cron schedules in the standard form of five fields or a descriptor, with the parser's errors (`robfig/cron` v3,
//! `ParseStandard`).

use crate::go::go_quote;

/// Smallest and largest value, and names.
type Bounds = (u32, u32, &'static [&'static str]);

const FIELDS: [Bounds; 5] = [
    (0, 59, &[]),
    (0, 23, &[]),
    (1, 31, &[]),
    (1, 12, &["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"]),
    (0, 6, &["sun", "mon", "tue", "wed", "thu", "fri", "sat"]),
];

/// Whether a schedule can be used.
pub(super) fn check(schedule: &str) -> Result<(), String> {
    let schedule = match schedule.strip_prefix("CRON_TZ=").or_else(|| schedule.strip_prefix("TZ=")) {
        // Nothing after the zone makes the parser give up in its own way; there are no fields then, either.
        Some(rest) => {
            let (zone, rest) = rest.split_once(' ').unwrap_or((rest, ""));
            if !zone.is_empty() && !is_zone(zone) {
                return Err(format!("provided bad location {zone}: unknown time zone {zone}"));
            }
            rest.trim()
        }
        None => schedule,
    };
    if schedule.starts_with('@') {
        return descriptor(schedule);
    }
    let fields: Vec<&str> = schedule.split_whitespace().collect();
    if fields.len() != 5 {
        return Err(format!("expected exactly 5 fields, found {}: [{}]", fields.len(), fields.join(" ")));
    }
    for (field, bounds) in fields.iter().zip(FIELDS) {
        for part in field.split(',').filter(|part| !part.is_empty()) {
            range(part, bounds)?;
        }
    }
    Ok(())
}

/// Whether Go knows a time zone: under exactly this name.
pub(super) fn is_zone(name: &str) -> bool {
    name == "Local" || jiff::tz::TimeZone::get(name).is_ok_and(|zone| zone.iana_name() == Some(name))
}

fn descriptor(schedule: &str) -> Result<(), String> {
    let known = ["@yearly", "@annually", "@monthly", "@weekly", "@daily", "@midnight", "@hourly"];
    if known.contains(&schedule) {
        return Ok(());
    }
    if let Some(duration) = schedule.strip_prefix("@every ") {
        let plain = !duration.is_empty()
            && duration.chars().all(|c| c.is_ascii_digit() || ".hmsuµn".contains(c))
            && duration.bytes().last().is_some_and(|b| b.is_ascii_alphabetic())
            && duration.bytes().next().is_some_and(|b| b.is_ascii_digit());
        if plain {
            return Ok(());
        }
        return Err(format!(
            "failed to parse duration {schedule}: time: invalid duration {}",
            go_quote(duration)
        ));
    }
    Err(format!("unrecognized descriptor: {schedule}"))
}

/// `number`, `number-number`, `*`, each with `/step`.
fn range(text: &str, (min, max, names): Bounds) -> Result<(), String> {
    let parts: Vec<&str> = text.split('/').collect();
    let ends: Vec<&str> = parts.first().copied().unwrap_or_default().split('-').collect();
    let first = ends.first().copied().unwrap_or_default();
    let single = ends.len() == 1;
    let (start, mut end) = if matches!(first, "*" | "?") {
        (min, max)
    } else {
        let start = value(first, names)?;
        let end = match ends.as_slice() {
            [_] => start,
            [_, end] => value(end, names)?,
            _ => return Err(format!("too many hyphens: {text}")),
        };
        (start, end)
    };
    let step = match parts.as_slice() {
        [_] => 1,
        [_, step] => {
            if single {
                end = max;
            }
            number(step)?
        }
        _ => return Err(format!("too many slashes: {text}")),
    };
    if start < min {
        return Err(format!("beginning of range ({start}) below minimum ({min}): {text}"));
    }
    if end > max {
        return Err(format!("end of range ({end}) above maximum ({max}): {text}"));
    }
    if start > end {
        return Err(format!("beginning of range ({start}) beyond end of range ({end}): {text}"));
    }
    if step == 0 {
        return Err(format!("step of range should be a positive number: {text}"));
    }
    Ok(())
}

fn value(text: &str, names: &[&str]) -> Result<u32, String> {
    let lower = text.to_lowercase();
    if let Some(at) = names.iter().position(|name| *name == lower) {
        // Months count from one, days of the week from zero.
        let first = u32::from(names.len() == 12);
        return Ok(u32::try_from(at).unwrap_or(0) + first);
    }
    number(text)
}

fn number(text: &str) -> Result<u32, String> {
    match text.parse::<i64>() {
        Err(_) => Err(format!(
            "failed to parse int from {text}: strconv.Atoi: parsing {}: invalid syntax",
            go_quote(text)
        )),
        Ok(n) => u32::try_from(n).map_err(|_| format!("negative number ({n}) not allowed: {text}")),
    }
}

#[cfg(test)]
mod tests {
    use super::check;

    #[test]
    fn schedules() {
        for fine in [
            "*/5 * * * *",
            "0 0 1 jan sun",
            "@hourly",
            "@every 1h30m",
            "0,30 1-5/2 ? * MON-FRI",
            "1/5 * * * *",
        ] {
            assert_eq!(check(fine), Ok(()), "{fine}");
        }
        for (schedule, why) in [
            ("every day", "expected exactly 5 fields, found 2: [every day]"),
            ("60 * * * *", "end of range (60) above maximum (59): 60"),
            ("* * 0 * *", "beginning of range (0) below minimum (1): 0"),
            ("5-1 * * * *", "beginning of range (5) beyond end of range (1): 5-1"),
            ("*/0 * * * *", "step of range should be a positive number: */0"),
            ("x * * * *", "failed to parse int from x: strconv.Atoi: parsing \"x\": invalid syntax"),
            ("@often", "unrecognized descriptor: @often"),
        ] {
            assert_eq!(check(schedule).unwrap_err(), why);
        }
    }
}

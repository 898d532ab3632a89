//! Prometheus' text format, version 0.0.4.

use std::fmt::Write as _;

use plimsoll_queueing::{MetricFamily, MetricKind, MetricSample, MetricValue};

/// `Content-Type` of the format.
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8; escaping=underscores";

/// Backslash and line feed, and in values of labels also the quote.
fn escaped(text: &str, quote: bool) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '"' if quote => out.push_str("\\\""),
            c => out.push(c),
        }
    }
    out
}

/// A number as Go's client writes it.
fn number(value: f64) -> String {
    if value.is_nan() {
        "NaN".into()
    } else if value.is_infinite() {
        if value > 0.0 { "+Inf".into() } else { "-Inf".into() }
    } else if value != 0.0 && value.abs() < 1e-4 {
        // As `strconv.FormatFloat` with 'g': at least two digits of exponent.
        let text = format!("{value:e}");
        match text.split_once("e-") {
            Some((digits, exponent)) => format!("{digits}e-{exponent:0>2}"),
            None => text,
        }
    } else {
        value.to_string()
    }
}

fn line(out: &mut String, name: &str, sample: &MetricSample, more: &[(&str, &str)], value: &str) {
    out.push_str(name);
    let own = sample.labels.iter().map(|(k, v)| (k.as_ref(), v.as_str()));
    for (i, (key, text)) in own.chain(more.iter().copied()).enumerate() {
        out.push(if i == 0 { '{' } else { ',' });
        let _ = write!(out, "{key}=\"{}\"", escaped(text, true));
    }
    if !sample.labels.is_empty() || !more.is_empty() {
        out.push('}');
    }
    let _ = writeln!(out, " {value}");
}

/// Appends families; `more` are labels that every sample gets. Families without samples are left out, as Go's client
/// does.
pub fn write(out: &mut String, families: &[MetricFamily], more: &[(&str, &str)]) {
    for family in families.iter().filter(|f| !f.samples.is_empty()) {
        let kind = match family.kind {
            MetricKind::Counter => "counter",
            MetricKind::Gauge => "gauge",
            MetricKind::Histogram => "histogram",
        };
        let _ = writeln!(out, "# HELP {} {}", family.name, escaped(family.help, false));
        let _ = writeln!(out, "# TYPE {} {kind}", family.name);
        for sample in &family.samples {
            match &sample.value {
                MetricValue::Number(value) => line(out, family.name, sample, more, &number(*value)),
                MetricValue::Histogram { buckets, sum, count } => {
                    let name = format!("{}_bucket", family.name);
                    for (bound, n) in buckets {
                        let bound = number(*bound);
                        let labels = [more, &[("le", bound.as_str())]].concat();
                        line(out, &name, sample, &labels, &n.to_string());
                    }
                    line(out, &name, sample, &[more, &[("le", "+Inf")]].concat(), &count.to_string());
                    line(out, &format!("{}_sum", family.name), sample, more, &number(*sum));
                    line(out, &format!("{}_count", family.name), sample, more, &count.to_string());
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_numbers_have_exponents_as_in_go() {
        let texts = [0.0, 0.0001, 0.00001, 0.000_015_000_000_000_000_002, -2.5e-12, 1.5].map(number);
        assert_eq!(texts, ["0", "0.0001", "1e-05", "1.5000000000000002e-05", "-2.5e-12", "1.5"]);
    }

    #[test]
    fn the_format_is_prometheus() {
        let sample = |labels: &[(&'static str, &str)], value| {
            MetricSample::new(labels.iter().map(|(k, v)| (*k, (*v).to_owned())).collect(), value)
        };
        let histogram = MetricValue::Histogram { buckets: vec![(0.5, 1), (1.0, 3)], sum: 2.25, count: 4 };
        let families = [
            MetricFamily {
                name: "a_total",
                help: "One\ntwo \\ three \"four\"",
                kind: MetricKind::Counter,
                samples: vec![
                    sample(&[("x", "q\"u\\o\nte")], MetricValue::Number(3.0)),
                    sample(&[("x", "")], MetricValue::Number(f64::NAN)),
                ],
            },
            MetricFamily { name: "none", help: "", kind: MetricKind::Gauge, samples: Vec::new() },
            MetricFamily {
                name: "h",
                help: "H",
                kind: MetricKind::Histogram,
                samples: vec![sample(&[], histogram)],
            },
        ];
        let mut out = String::new();
        write(&mut out, &families, &[]);
        assert_eq!(
            out,
            "# HELP a_total One\\ntwo \\\\ three \"four\"\n# TYPE a_total counter\n\
             a_total{x=\"q\\\"u\\\\o\\nte\"} 3\na_total{x=\"\"} NaN\n\
             # HELP h H\n# TYPE h histogram\nh_bucket{le=\"0.5\"} 1\nh_bucket{le=\"1\"} 3\nh_bucket{le=\"+Inf\"} 4\n\
             h_sum 2.25\nh_count 4\n"
        );
        let mut out = String::new();
        write(&mut out, &families[2..], &[("role", "leader")]);
        assert!(
            out.contains("h_bucket{role=\"leader\",le=\"1\"} 3\n")
                && out.contains("h_sum{role=\"leader\"} 2.25\n")
        );
    }
}

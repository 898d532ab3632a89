//! What is said of the figures.

use serde::{Deserialize, Serialize};

use crate::{cli, say};

/// One row of the table.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Row {
    /// Which one.
    pub case: String,
    /// What was done.
    pub what: String,
    /// The figure.
    pub value: f64,
    /// Its unit.
    pub unit: String,
    /// What it shall reach at least (or at most, where less is better).
    pub target: Option<f64>,
    /// Whether less is better.
    pub less: bool,
    /// Further figures.
    #[serde(default, skip_serializing_if = "serde_json::Map::is_empty")]
    pub more: serde_json::Map<String, serde_json::Value>,
}

impl Row {
    /// A figure of which more is better.
    pub fn more(what: impl Into<String>, value: f64, unit: &str, target: Option<f64>) -> Self {
        Self {
            case: String::new(),
            what: what.into(),
            value,
            unit: unit.into(),
            target,
            less: false,
            more: serde_json::Map::new(),
        }
    }

    /// A figure of which less is better.
    pub fn less(what: impl Into<String>, value: f64, unit: &str, target: Option<f64>) -> Self {
        Self { less: true, ..Self::more(what, value, unit, target) }
    }

    /// Adds a further figure, rounded to three digits after the point.
    #[must_use]
    pub fn with(mut self, key: &str, value: f64) -> Self {
        self.more.insert(key.into(), ((value * 1e3).round() / 1e3).into());
        self
    }

    /// Whether the target is reached; `None`: there is none.
    fn reached(&self) -> Option<bool> {
        self.target.map(|t| if self.less { self.value <= t } else { self.value >= t })
    }

    fn line(&self) -> String {
        let target = match self.target {
            Some(t) => format!("{} {}", if self.less { "≤" } else { "≥" }, number(t)),
            None => String::new(),
        };
        let mark = match self.reached() {
            Some(true) => "yes",
            Some(false) => "NO",
            None => "",
        };
        let more: Vec<String> = self
            .more
            .iter()
            .map(|(k, v)| format!("{k} {}", v.as_f64().map_or_else(|| v.to_string(), number)))
            .collect();
        let value = format!("{} {}", number(self.value), self.unit);
        format!("{:<52} {value:>18} {target:>12} {mark:<4} {}", self.what, more.join(", "))
    }
}

/// A number as people read it: three digits that count.
fn number(value: f64) -> String {
    if value.abs() >= 100.0 {
        let digits = format!("{:.0}", value.abs());
        let mut out = String::new();
        for (i, digit) in digits.chars().enumerate() {
            if i > 0 && (digits.len() - i).is_multiple_of(3) {
                out.push(',');
            }
            out.push(digit);
        }
        return if value < 0.0 { format!("-{out}") } else { out };
    }
    if value.abs() >= 10.0 { format!("{value:.1}") } else { format!("{value:.2}") }
}

/// The head of the table; `compared` with kube-apiserver.
pub fn head(output: cli::Output, compared: bool) {
    if output == cli::Output::Text && compared {
        say::line(&format!("{:<52} {:>18} {:>18} {:>8}", "", "plimsoll", "kube-apiserver", "ratio"));
    } else if output == cli::Output::Text {
        say::line(&format!("{:<52} {:>18} {:>12}", "", "measured", "wanted"));
    }
}

/// A row as soon as it is known.
pub fn row(row: &Row, output: cli::Output) {
    super::history::add(row);
    match output {
        cli::Output::Json => say::line(&serde_json::to_string(row).unwrap_or_default()),
        cli::Output::Text => say::line(row.line().trim_end()),
    }
}

/// How many times better the first figure is than the second: less time, or more in the same time.
fn ratio(ours: &Row, theirs: &Row) -> f64 {
    if ours.less { theirs.value / ours.value } else { ours.value / theirs.value }
}

/// Our row beside kube-apiserver's.
pub fn pair(ours: &Row, theirs: &Row, output: cli::Output) {
    let ratio = ratio(ours, theirs);
    if output == cli::Output::Json {
        let both = serde_json::json!({"case": ours.case, "what": ours.what, "unit": ours.unit, "plimsoll": ours,
                                      "kubeApiserver": theirs, "ratio": (ratio * 1e3).round() / 1e3});
        return say::line(&both.to_string());
    }
    let value = |row: &Row| format!("{} {}", number(row.value), row.unit);
    let times = format!("{}×", number(ratio));
    say::line(&format!("{:<52} {:>18} {:>18} {times:>8}", ours.what, value(ours), value(theirs)));
}

/// Resident memory of this process in bytes, where the system tells (Linux).
pub fn rss() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find(|l| l.starts_with("VmRSS:"))?;
    line.split_whitespace().nth(1)?.parse::<u64>().ok().map(|kib| kib * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ratio_above_one_is_better() {
        let more = |value| Row::more("x", value, "/s", None);
        let less = |value| Row::less("x", value, "s", None);
        assert!((ratio(&more(6.0), &more(2.0)) - 3.0).abs() < 1e-9);
        assert!((ratio(&less(2.0), &less(6.0)) - 3.0).abs() < 1e-9);
    }

    #[test]
    fn numbers_are_short() {
        for (n, want) in
            [(0.5, "0.50"), (12.34, "12.3"), (999.6, "1,000"), (123_456.0, "123,456"), (-1e4, "-10,000")]
        {
            assert_eq!(number(n), want);
        }
        assert_eq!(Row::more("x", 5.0, "/s", Some(6.0)).reached(), Some(false));
        assert_eq!(Row::less("x", 5.0, "s", Some(6.0)).reached(), Some(true));
    }
}

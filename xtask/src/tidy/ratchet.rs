//! Lists of exceptions that only shrink. A line is a figure and a key; a key that isn't listed has a figure of zero.

use std::collections::BTreeMap;
use std::fmt::Write as _;

/// Figures by key: lines of a file, files of a circle, comments of a crate.
pub type Figures = BTreeMap<String, Figure>;

/// What is wrong with one key.
pub struct Figure {
    pub value: usize,
    /// Of the keys of one group only one is reported.
    pub group: String,
    /// Shown when the figure is above the recorded one.
    pub detail: String,
}

impl Figure {
    pub fn alone(key: &str, value: usize, detail: String) -> Self {
        Self { value, group: key.to_owned(), detail }
    }
}

/// A checked-in list.
pub struct Ratchet {
    head: String,
    recorded: BTreeMap<String, usize>,
}

impl Ratchet {
    /// Lines that begin with `#` are the list's head and stay as they are.
    pub fn parse(text: &str) -> Self {
        let head = text.lines().filter(|l| l.starts_with('#')).fold(String::new(), |head, l| head + l + "\n");
        let recorded = text
            .lines()
            .filter_map(|l| l.split_once(' '))
            .filter_map(|(figure, key)| Some((key.trim().to_owned(), figure.parse().ok()?)))
            .collect();
        Self { head, recorded }
    }

    /// Reports figures above the recorded ones, and records that are too high: they have to be lowered.
    pub fn compare(&self, file: &str, hint: &str, figures: &Figures, problems: &mut Vec<String>) {
        let recorded = |key: &String| self.recorded.get(key).copied().unwrap_or(0);
        let mut above: Vec<_> = figures.iter().filter(|(key, figure)| figure.value > recorded(key)).collect();
        // What is new comes first in its group.
        above.sort_by_key(|(key, figure)| (&figure.group, recorded(key)));
        above.dedup_by_key(|(_, figure)| &figure.group);
        problems.extend(above.into_iter().map(|(key, figure)| format!("{key}: {}{hint}", figure.detail)));
        for (key, recorded) in &self.recorded {
            if figures.get(key).is_none_or(|f| f.value < *recorded) {
                problems.push(format!(
                    "{file}: {recorded} for `{key}` is too much; run `cargo xtask tidy --update`"
                ));
            }
        }
    }

    /// Whether the list may be replaced by these figures: their sum is not larger. Files are moved and split, so keys are
    /// not compared one by one.
    pub fn may_become(&self, figures: &Figures) -> bool {
        let sum: usize = figures.values().map(|f| f.value).sum();
        sum <= self.recorded.values().sum()
    }

    pub fn render(&self, figures: &Figures) -> String {
        figures.iter().fold(self.head.clone(), |mut text, (key, figure)| {
            let _ = writeln!(text, "{} {key}", figure.value);
            text
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figures(list: &[(&str, usize)]) -> Figures {
        list.iter().map(|(k, v)| ((*k).to_owned(), Figure::alone(k, *v, format!("{v} lines")))).collect()
    }

    fn problems(list: &str, now: &[(&str, usize)]) -> Vec<String> {
        let mut problems = Vec::new();
        Ratchet::parse(list).compare("list", "", &figures(now), &mut problems);
        problems
    }

    #[test]
    fn figures_may_not_rise() {
        assert!(problems("# head\n10 a\n", &[("a", 10)]).is_empty());
        assert_eq!(problems("10 a\n", &[("a", 11)]), ["a: 11 lines"]);
        assert_eq!(problems("", &[("a", 1)]), ["a: 1 lines"]);
    }

    #[test]
    fn a_group_is_reported_once_by_what_is_new_in_it() {
        let mut now = figures(&[("a", 3), ("b", 3), ("c", 3)]);
        now.values_mut().for_each(|f| f.group = "a".to_owned());
        let mut problems = Vec::new();
        Ratchet::parse("2 a\n2 c\n").compare("list", "", &now, &mut problems);
        assert_eq!(problems, ["b: 3 lines"]);
    }

    #[test]
    fn records_follow_what_falls() {
        assert_eq!(problems("10 a\n", &[("a", 9)]).len(), 1);
        assert_eq!(problems("10 a\n", &[]).len(), 1);
    }

    #[test]
    fn lists_are_replaced_by_shorter_ones_only() {
        let list = Ratchet::parse("# head\n10 a\n5 b\n");
        assert!(list.may_become(&figures(&[("c", 8), ("d", 7)])));
        assert!(!list.may_become(&figures(&[("a", 16)])));
        assert_eq!(list.render(&figures(&[("c", 8)])), "# head\n8 c\n");
    }
}

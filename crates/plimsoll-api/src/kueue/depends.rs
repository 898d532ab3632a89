//! The annotation `plimsoll.dev/depends-on`: `[kind/]name[:outcome]`, separated by commas.

use plimsoll_queueing::{Dependency, Outcome, TargetKind};

/// Annotation on a Job, the pods of a group, or a Workload: what has to come true before it is queued.
pub const DEPENDS_ON: &str = "plimsoll.dev/depends-on";

/// Reads the annotation. The kind is `job`, `pod`, `podgroup` or `workload`, by default whatever answers to the name; the
/// outcome is `succeeded` (the default), `finished`, `failed` or `ready`.
///
/// # Errors
/// What is wrong with which entry, and what would be right.
pub fn depends_on(text: &str) -> Result<Vec<Dependency>, String> {
    let mut out: Vec<Dependency> = text.split(',').map(entry).collect::<Result<_, _>>()?;
    let mut seen = std::collections::BTreeSet::new();
    out.retain(|d| seen.insert(d.clone()));
    Ok(out)
}

fn entry(text: &str) -> Result<Dependency, String> {
    let text = text.trim();
    let words = |all: &[&str]| all.join(", ");
    let (rest, outcome) = match text.split_once(':') {
        None => (text, Outcome::default()),
        Some((rest, word)) => match Outcome::WORDS.iter().find(|(_, w)| *w == word) {
            Some((outcome, _)) => (rest, *outcome),
            None => {
                let known = words(&Outcome::WORDS.map(|(_, w)| w));
                return Err(format!("{text:?}: there is no outcome {word:?}; use one of: {known}"));
            }
        },
    };
    let (kind, name) = match rest.split_once('/') {
        None => (None, rest),
        Some((word, name)) => match TargetKind::WORDS.iter().find(|(_, w)| *w == word) {
            Some((kind, _)) => (Some(*kind), name),
            None => {
                let known = words(&TargetKind::WORDS.map(|(_, w)| w));
                return Err(format!("{text:?}: there is no kind {word:?}; use one of: {known}"));
            }
        },
    };
    if !is_name(name) {
        return Err(format!(
            "{text:?}: {name:?} is not a name: use lower case letters, digits, '-' and '.', at most 253"
        ));
    }
    Ok(Dependency { kind, name: name.to_owned(), outcome })
}

/// DNS subdomain (RFC 1123), as names of objects are.
pub(crate) fn is_name(name: &str) -> bool {
    let word = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    name.len() <= 253
        && name.starts_with(word)
        && name.ends_with(word)
        && name.chars().all(|c| word(c) || c == '-' || c == '.')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_read_strictly() {
        for (text, want) in [
            ("a", "a:succeeded"),
            (" a:failed , job/b.c:ready,a:failed", "a:failed job/b.c:ready"),
            ("podgroup/g:finished,workload/w", "podgroup/g:finished workload/w:succeeded"),
        ] {
            let read =
                depends_on(text).map(|l| l.iter().map(ToString::to_string).collect::<Vec<_>>().join(" "));
            assert_eq!(read.as_deref(), Ok(want), "{text}");
        }
        for (text, want) in [
            ("", "is not a name"),
            ("a,,b", "is not a name"),
            ("a:done", "there is no outcome \"done\"; use one of: succeeded, finished, failed, ready"),
            ("cronjob/a", "there is no kind \"cronjob\""),
            ("A", "is not a name"),
            ("a:succeeded:failed", "there is no outcome"),
        ] {
            let error = depends_on(text).map(drop);
            assert!(error.as_ref().is_err_and(|e| e.contains(want)), "{text}: {error:?}");
        }
    }
}

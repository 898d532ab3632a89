//! Differences between the specs of two pods, which some messages show.

use super::super::golang;
use crate::obj::Obj;

/// Lines around a change that are shown.
const CONTEXT: usize = 3;
/// Most lines of either side that the diff compares one by one.
const MAX_LINES: usize = 2000;

/// A unified diff of two specs, one field a line (apimachinery `diff.Diff`).
pub(super) fn changes(old: &Obj, new: &Obj) -> String {
    let (old, new) = (golang::pretty("PodSpec", old), golang::pretty("PodSpec", new));
    let (old, new): (Vec<&str>, Vec<&str>) = (old.lines().collect(), new.lines().collect());
    unified(&old, &new)
}

/// One line of a diff: kept, gone or new.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Edit {
    Keep,
    Gone,
    New,
}

/// The edits that turn one list of lines into the other, with as few changes as there can be.
fn edits(old: &[&str], new: &[&str]) -> Vec<Edit> {
    let head = old.iter().zip(new).take_while(|(a, b)| a == b).count();
    let (a, b) = (old.get(head..).unwrap_or_default(), new.get(head..).unwrap_or_default());
    let tail = a.iter().rev().zip(b.iter().rev()).take_while(|(a, b)| a == b).count();
    let a = a.get(..a.len() - tail).unwrap_or_default();
    let b = b.get(..b.len() - tail).unwrap_or_default();
    let mut all = vec![Edit::Keep; head];
    if a.len() > MAX_LINES || b.len() > MAX_LINES {
        all.extend(vec![Edit::Gone; a.len()]);
        all.extend(vec![Edit::New; b.len()]);
    } else {
        middle(a, b, &mut all);
    }
    all.extend(vec![Edit::Keep; tail]);
    all
}

/// Longest common subsequence.
fn middle(a: &[&str], b: &[&str], all: &mut Vec<Edit>) {
    let width = b.len() + 1;
    let mut best = vec![0_u16; (a.len() + 1) * width];
    let at = |best: &[u16], i: usize, j: usize| best.get(i * width + j).copied().unwrap_or(0);
    for (i, x) in a.iter().enumerate().rev() {
        for (j, y) in b.iter().enumerate().rev() {
            let value = if x == y {
                at(&best, i + 1, j + 1) + 1
            } else {
                at(&best, i + 1, j).max(at(&best, i, j + 1))
            };
            if let Some(cell) = best.get_mut(i * width + j) {
                *cell = value;
            }
        }
    }
    let (mut i, mut j) = (0, 0);
    while i < a.len() || j < b.len() {
        if i < a.len() && j < b.len() && a.get(i) == b.get(j) {
            all.push(Edit::Keep);
            (i, j) = (i + 1, j + 1);
        } else if i < a.len() && (j == b.len() || at(&best, i + 1, j) >= at(&best, i, j + 1)) {
            all.push(Edit::Gone);
            i += 1;
        } else {
            all.push(Edit::New);
            j += 1;
        }
    }
}

/// The changed lines with their context.
fn unified(old: &[&str], new: &[&str]) -> String {
    let edits = edits(old, new);
    let shown = |i: usize| {
        let from = i.saturating_sub(CONTEXT);
        let near = edits.get(from..(i + CONTEXT + 1).min(edits.len())).unwrap_or_default();
        near.iter().any(|e| *e != Edit::Keep)
    };
    let (mut out, mut hunk) = (String::new(), String::new());
    let (mut i, mut j, mut from, mut counts) = (0, 0, (0, 0), (0, 0));
    for (at, edit) in edits.iter().enumerate() {
        if shown(at) {
            if hunk.is_empty() {
                (from, counts) = ((i, j), (0, 0));
            }
            let (sign, text) = match edit {
                Edit::Keep => (' ', old.get(i)),
                Edit::Gone => ('-', old.get(i)),
                Edit::New => ('+', new.get(j)),
            };
            counts.0 += usize::from(*edit != Edit::New);
            counts.1 += usize::from(*edit != Edit::Gone);
            hunk.push(sign);
            hunk.push_str(text.copied().unwrap_or_default());
            hunk.push('\n');
        } else if !hunk.is_empty() {
            close(&mut out, &mut hunk, from, counts);
        }
        i += usize::from(*edit != Edit::New);
        j += usize::from(*edit != Edit::Gone);
    }
    close(&mut out, &mut hunk, from, counts);
    out
}

fn close(out: &mut String, hunk: &mut String, from: (usize, usize), counts: (usize, usize)) {
    let range = |from: usize, count: usize| match count {
        1 => (from + 1).to_string(),
        0 => format!("{from},0"),
        _ => format!("{},{count}", from + 1),
    };
    if !hunk.is_empty() {
        out.push_str(&format!("@@ -{} +{} @@\n{hunk}", range(from.0, counts.0), range(from.1, counts.1)));
        hunk.clear();
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::obj::as_obj;

    #[test]
    fn a_changed_field_is_shown_in_its_place() {
        let pod = |grace: i64| json!({"terminationGracePeriodSeconds": grace, "restartPolicy": "Always", "nodeSelector": {"a": "b"}});
        let (old, new) = (pod(30), pod(1));
        assert_eq!(
            changes(as_obj(&old), as_obj(&new)),
            "@@ -4,7 +4,7 @@\n  \"Containers\": null,\n  \"EphemeralContainers\": null,\n  \"RestartPolicy\": \"Always\",\n- \"TerminationGracePeriodSeconds\": 30,\n+ \"TerminationGracePeriodSeconds\": 1,\n  \"ActiveDeadlineSeconds\": null,\n  \"DNSPolicy\": \"\",\n  \"NodeSelector\": {\n"
        );
    }
}

//! The text in which a workload's status names the nodes that are reserved for its pods, for users to read and for a process
//! after this one to make the reservations again: `main: node-[1-3,7]*2 other; driver: node-9`. For each podset it names
//! nodes, several of one name but for a part in brackets (numbers as ranges), and how many pods each is for, if not one.
//!
//! A condition's message is bounded. Places that it has no space for are counted at the end (`+12`), and are lost when this
//! process ends.

use std::collections::BTreeMap;

use plimsoll_state::reservation::ReservedNode;

/// Longest text, in bytes; a condition's message may have 32768.
const LONGEST: usize = 32_000;
/// Names in one pair of brackets.
const IN_BRACKETS: usize = 64;
/// Most places that are read from a text, which any client may have written.
const MOST: usize = 100_000;
/// Bytes of the longest name (RFC 1123).
const LONGEST_NAME: usize = 253;

/// A node name in three parts: the middle is without `-` and `.`, after the last `-` before the first `.`.
fn parts(name: &str) -> (&str, &str, &str) {
    let (stem, suffix) = name.split_at(name.find('.').unwrap_or(name.len()));
    let (prefix, middle) = stem.split_at(stem.rfind('-').map_or(0, |at| at + 1));
    (prefix, middle, suffix)
}

/// The number that a part of a name is, if a range of numbers gives back the same text.
fn number(text: &str) -> Option<u64> {
    // Without a sign and leading zeros.
    if !text.starts_with(|c: char| c.is_ascii_digit()) || (text.len() > 1 && text.starts_with('0')) {
        return None;
    }
    text.parse::<u64>().ok().filter(|n| *n < u64::MAX)
}

/// The middles of names, by number of pods, prefix and suffix.
type Groups<'a> = BTreeMap<(usize, &'a str, &'a str), Vec<&'a str>>;

/// The text for these places.
pub(crate) fn text(places: &[ReservedNode]) -> String {
    // By podset, in their order.
    let mut pod_sets: Vec<(&str, Groups<'_>)> = Vec::new();
    for p in places {
        let (prefix, middle, suffix) = parts(&p.node);
        if pod_sets.last().is_none_or(|(name, _)| *name != p.pod_set) {
            pod_sets.push((&p.pod_set, BTreeMap::new()));
        }
        if let Some((_, groups)) = pod_sets.last_mut() {
            groups.entry((p.pods, prefix, suffix)).or_default().push(middle);
        }
    }
    let (mut out, mut left_out) = (String::new(), 0);
    for (name, groups) in pod_sets {
        let start = if out.is_empty() { format!("{name}:") } else { format!("; {name}:") };
        out.push_str(&start);
        for ((pods, prefix, suffix), mut middles) in groups {
            middles.sort_by_cached_key(|m| (number(m), *m));
            for some in ranges(&middles).chunks(IN_BRACKETS) {
                let [(first, count)] = some else {
                    let inner: Vec<&str> = some.iter().map(|(text, _)| &**text).collect();
                    let item = format!("{prefix}[{}]{suffix}", inner.join(","));
                    add(&mut out, &mut left_out, &item, pods, some.iter().map(|(_, n)| n).sum());
                    continue;
                };
                let brackets = *count > 1;
                let item = if brackets {
                    format!("{prefix}[{first}]{suffix}")
                } else {
                    format!("{prefix}{first}{suffix}")
                };
                add(&mut out, &mut left_out, &item, pods, *count);
            }
        }
    }
    if left_out > 0 {
        out.push_str(&format!(" +{left_out}"));
    }
    out
}

/// Adds nodes to a text, or counts their places.
fn add(out: &mut String, left_out: &mut usize, item: &str, pods: usize, nodes: usize) {
    let times = if pods == 1 { String::new() } else { format!("*{pods}") };
    if out.len() + item.len() + times.len() > LONGEST {
        *left_out += pods * nodes;
    } else {
        out.push_str(&format!(" {item}{times}"));
    }
}

/// Sorted parts of names with consecutive numbers as ranges, and how many each stands for.
fn ranges(middles: &[&str]) -> Vec<(String, usize)> {
    let mut out: Vec<(String, usize)> = Vec::new();
    let mut range: Option<(u64, u64)> = None;
    let show = |(a, b): (u64, u64)| {
        let count = usize::try_from(b - a).unwrap_or(0) + 1;
        (if a == b { a.to_string() } else { format!("{a}-{b}") }, count)
    };
    for middle in middles {
        match (number(middle), range) {
            (Some(n), Some((a, b))) if n == b + 1 => range = Some((a, n)),
            (Some(n), before) => {
                out.extend(before.map(show));
                range = Some((n, n));
            }
            (None, before) => {
                out.extend(before.map(show));
                range = None;
                out.push(((*middle).to_owned(), 1));
            }
        }
    }
    out.extend(range.map(show));
    out
}

/// The places that a text names; what can't be read is left out.
pub(crate) fn parse(text: &str) -> Vec<ReservedNode> {
    let mut out = Vec::new();
    for of_pod_set in text.split("; ") {
        let Some((pod_set, items)) = of_pod_set.split_once(": ") else { continue };
        if pod_set.len() > LONGEST_NAME {
            continue;
        }
        for item in items.split(' ').filter(|i| !i.starts_with('+') && *i != "...") {
            let (nodes, pods) = item.split_once('*').unwrap_or((item, "1"));
            let Some(pods) = pods.parse::<usize>().ok().filter(|n| *n > 0) else { continue };
            for node in names(nodes, MOST - out.len()) {
                out.push(ReservedNode { pod_set: pod_set.to_owned(), node, pods });
            }
        }
    }
    out
}

/// The names that an item stands for, `most` of them.
fn names(item: &str, most: usize) -> Vec<String> {
    let whole = |item: &str| (most > 0 && item.len() <= LONGEST_NAME).then(|| item.to_owned());
    let Some((prefix, rest)) = item.split_once('[') else { return Vec::from_iter(whole(item)) };
    let Some((inner, suffix)) = rest.split_once(']') else { return Vec::new() };
    if prefix.len() + suffix.len() > LONGEST_NAME {
        return Vec::new();
    }
    let mut out = Vec::new();
    for part in inner.split(',').filter(|part| part.len() <= LONGEST_NAME) {
        let left = most - out.len();
        let range = part.split_once('-').and_then(|(a, b)| Some((number(a)?, number(b)?)));
        match range {
            Some((a, b)) => {
                out.extend((a..=b).take(left).map(|n| format!("{prefix}{n}{suffix}")));
            }
            None if left > 0 => out.push(format!("{prefix}{part}{suffix}")),
            None => {}
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn place(pod_set: &str, node: &str, pods: usize) -> ReservedNode {
        ReservedNode { pod_set: pod_set.into(), node: node.into(), pods }
    }

    #[test]
    fn nodes_are_named_in_short() {
        let places = [
            place("driver", "node-9", 1),
            place("main", "node-1", 2),
            place("main", "node-10", 2),
            place("main", "node-2", 2),
            place("main", "node-3", 2),
            place("main", "node-03", 2),
            place("main", "other", 1),
        ];
        assert_eq!(text(&places), "driver: node-9; main: other node-[03,1-3,10]*2");
    }

    #[test]
    fn what_has_no_space_is_counted() {
        let places: Vec<_> =
            (0..4_000).map(|i| place("main", &format!("gpu-pool-{i:x}-node.example",), 2)).collect();
        let text = text(&places);
        assert!(text.len() < 32_768, "{}", text.len());
        let left: usize = text.rsplit_once('+').and_then(|(_, n)| n.parse().ok()).unwrap_or(0);
        let read: usize = parse(&text).iter().map(|p| p.pods).sum();
        assert_eq!((left > 0, read + left), (true, 8_000));
    }

    #[test]
    fn a_text_that_anybody_wrote_names_a_bounded_number() {
        for odd in [
            "",
            ":",
            "a: [",
            "a: x]",
            "a: [1-99999999999999]",
            "a: b*0 c*-1 d*99999999999999999999",
            "a: [5-1]",
        ] {
            assert!(parse(odd).len() <= MOST, "{odd}");
        }
        assert_eq!(parse("a: [1-99999999999999]").len(), MOST);
        assert_eq!(parse(&format!("a: [{}]", vec!["0-99999"; 4_000].join(","))).len(), MOST);
        let long = "x".repeat(32_000);
        for odd in
            [format!("a: {long}[1-99999]"), format!("{long}: n-[1-99999]"), format!("a: [{long},1-5]{long}")]
        {
            assert!(parse(&odd).is_empty());
        }
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(
            nodes in prop::collection::btree_map(("[ab]", "[a-c]{0,2}-?[0-9]{1,2}(\\.x-1)?"), 1usize..4, 0..40),
        ) {
            let places: Vec<_> = nodes.iter().map(|((set, node), n)| place(set, node, *n)).collect();
            let mut read = parse(&text(&places));
            read.sort();
            prop_assert_eq!(read, places);
        }
    }
}

//! `cargo xtask picture`: draws when each Workload waited and ran, from `kubectl get workloads -A -o json`.

use std::fmt::Write as _;

use anyhow::{Context as _, Result};
use serde_json::Value;

const LEFT: f64 = 190.0;
const WIDTH: f64 = 640.0;
const ROW: f64 = 26.0;
const TOP: f64 = 34.0;

struct Bar {
    name: String,
    note: String,
    created: i64,
    admitted: i64,
    finished: i64,
    cpu: String,
}

/// Reads a list of Workloads from standard input and writes an SVG to standard output.
pub fn run() -> Result<()> {
    let list: Value = serde_json::from_reader(std::io::stdin().lock()).context("a list of Workloads")?;
    let items = list["items"].as_array().context("no items")?;
    let mut bars = items.iter().map(bar).collect::<Result<Vec<_>>>()?;
    bars.sort_by_key(|b| (b.created, b.admitted, b.name.clone()));
    println!("{}", svg(&bars));
    Ok(())
}

fn bar(workload: &Value) -> Result<Bar> {
    let text = |v: &Value| v.as_str().unwrap_or_default().to_owned();
    let name = text(&workload["metadata"]["name"]);
    let at = |kind: &str| {
        let all = workload["status"]["conditions"].as_array().into_iter().flatten();
        let found = all.clone().find(|c| c["type"] == kind && c["status"] == "True");
        found.and_then(|c| seconds(c["lastTransitionTime"].as_str()?))
    };
    let priority = workload["spec"]["priority"].as_i64().unwrap_or(0);
    let assignment = &workload["status"]["admission"]["podSetAssignments"][0];
    let created = seconds(&text(&workload["metadata"]["creationTimestamp"])).context("creation time")?;
    Ok(Bar {
        // The hash at the end says nothing to a reader.
        name: name.rsplit_once('-').map_or(name.clone(), |(head, _)| head.to_owned()),
        note: format!("{}, priority {priority}", text(&assignment["flavors"]["cpu"])),
        created,
        admitted: at("Admitted").with_context(|| format!("{name} was not admitted"))?,
        finished: at("Finished").with_context(|| format!("{name} has not finished"))?,
        cpu: text(&assignment["resourceUsage"]["cpu"]),
    })
}

/// Seconds of the day of an API time stamp.
fn seconds(time: &str) -> Option<i64> {
    let clock = time.split('T').nth(1)?.trim_end_matches('Z');
    let mut parts = clock.split(':').map(str::parse::<i64>);
    Some(parts.next()?.ok()? * 3600 + parts.next()?.ok()? * 60 + parts.next()?.ok()?)
}

fn svg(bars: &[Bar]) -> String {
    let start = bars.iter().map(|b| b.created).min().unwrap_or(0);
    let end = bars.iter().map(|b| b.finished).max().unwrap_or(1).max(start + 1);
    #[expect(clippy::cast_precision_loss, reason = "seconds of one day")]
    let x = |t: i64| LEFT + WIDTH * (t - start) as f64 / (end - start) as f64;
    #[expect(clippy::cast_precision_loss, reason = "a handful of rows")]
    let height = TOP + ROW * bars.len() as f64 + 30.0;
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {} {height}\" \
         font-family=\"ui-monospace, monospace\" font-size=\"12\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n\
         <text x=\"10\" y=\"20\" fill=\"#333\">Quickstart: grey waits for quota, blue runs (number: CPUs charged)</text>\n",
        LEFT + WIDTH + 20.0
    );
    let mut tick = start;
    while tick <= end {
        let _ = writeln!(
            out,
            "<line x1=\"{0:.1}\" x2=\"{0:.1}\" y1=\"{TOP}\" y2=\"{1}\" stroke=\"#eee\"/>\
             <text x=\"{0:.1}\" y=\"{2}\" fill=\"#777\" text-anchor=\"middle\">{3} s</text>",
            x(tick),
            height - 26.0,
            height - 10.0,
            tick - start
        );
        tick += 5;
    }
    let mut y = TOP + 4.0;
    for b in bars {
        let _ = writeln!(
            out,
            "<text x=\"10\" y=\"{:.1}\" fill=\"#111\">{}</text>\
             <rect x=\"{:.1}\" y=\"{y:.1}\" width=\"{:.1}\" height=\"18\" fill=\"#ccc\"/>\
             <rect x=\"{:.1}\" y=\"{y:.1}\" width=\"{:.1}\" height=\"18\" fill=\"#326ce5\"/>\
             <text x=\"{:.1}\" y=\"{:.1}\" fill=\"#fff\">{} · {}</text>",
            y + 13.0,
            b.name,
            x(b.created),
            x(b.admitted) - x(b.created),
            x(b.admitted),
            x(b.finished) - x(b.admitted),
            x(b.admitted) + 5.0,
            y + 13.0,
            b.cpu,
            b.note
        );
        y += ROW;
    }
    out.push_str("</svg>");
    out
}

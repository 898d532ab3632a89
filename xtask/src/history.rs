//! `cargo xtask history FILE`: draws the figures that `plimsoll bench cluster --history FILE` has kept, one small plot for
//! each row and a line for each program, run by run.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

use anyhow::{Context as _, Result};
use serde_json::Value;

const WIDTH: f64 = 260.0;
const HEIGHT: f64 = 110.0;
const GAP: f64 = 70.0;
const COLUMNS: usize = 3;
const COLOURS: [&str; 4] = ["#1f77b4", "#d62728", "#2ca02c", "#9467bd"];

/// The figures of one row of the benchmark.
#[derive(Debug, Default, PartialEq)]
struct Plot {
    unit: String,
    /// By program: number of the run, and the figure; in the order of measurement.
    lines: BTreeMap<String, Vec<(usize, f64)>>,
}

/// Reads a history and writes an SVG to standard output.
pub fn run(path: &Path) -> Result<()> {
    let text = std::fs::read_to_string(path).with_context(|| path.display().to_string())?;
    let (plots, runs) = read(&text)?;
    println!("{}", svg(&plots, &runs));
    Ok(())
}

/// The plots by name, and what each run was: day and commit. A run is what one command measured of one commit in a day.
fn read(text: &str) -> Result<(BTreeMap<String, Plot>, Vec<String>)> {
    let (mut plots, mut runs): (BTreeMap<String, Plot>, Vec<String>) = (BTreeMap::new(), Vec::new());
    for (i, line) in text.lines().enumerate() {
        let entry: Value = serde_json::from_str(line).with_context(|| format!("line {}", i + 1))?;
        let text = |key: &str| entry[key].as_str().unwrap_or_default();
        // "pods plimsoll 1/2: …": row, program and turn; ratios and the like have no program.
        let mut words = text("what").split_whitespace();
        let (Some(row), Some(program), Some(turn)) = (words.next(), words.next(), words.next()) else {
            continue;
        };
        if row != text("case") || !turn.contains('/') {
            continue;
        }
        let what = text("what").split_once(": ").map_or("", |(_, what)| what);
        let figure = entry["value"].as_f64().with_context(|| format!("line {}: no figure", i + 1))?;
        let run = format!(
            "{} {}",
            text("time").get(..10).unwrap_or_default(),
            text("commit").get(..7).unwrap_or_default()
        );
        let run = runs.iter().position(|r| *r == run).unwrap_or_else(|| {
            runs.push(run);
            runs.len() - 1
        });
        let plot = plots.entry(format!("{row}: {what}")).or_default();
        plot.unit = text("unit").to_owned();
        plot.lines.entry(program.to_owned()).or_default().push((run, figure));
    }
    Ok((plots, runs))
}

fn svg(plots: &BTreeMap<String, Plot>, runs: &[String]) -> String {
    let rows = plots.len().div_ceil(COLUMNS);
    let (width, height) = (
        COLUMNS as f64 * (WIDTH + GAP) + GAP,
        rows as f64 * (HEIGHT + GAP) + 60.0 + 16.0 * runs.len() as f64,
    );
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" \
         font-family=\"ui-monospace, monospace\" font-size=\"11\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n"
    );
    let programs: Vec<&String> = {
        let all: std::collections::BTreeSet<&String> = plots.values().flat_map(|p| p.lines.keys()).collect();
        all.into_iter().collect()
    };
    for (i, program) in programs.iter().enumerate() {
        let colour = COLOURS[i % COLOURS.len()];
        let x = GAP + 140.0 * i as f64;
        let _ = writeln!(
            out,
            "<rect x=\"{x}\" y=\"14\" width=\"12\" height=\"3\" fill=\"{colour}\"/>\
             <text x=\"{}\" y=\"20\" fill=\"#333\">{program}</text>",
            x + 18.0
        );
    }
    for (i, (name, plot)) in plots.iter().enumerate() {
        let (x, y) =
            (GAP + (i % COLUMNS) as f64 * (WIDTH + GAP), 60.0 + (i / COLUMNS) as f64 * (HEIGHT + GAP));
        draw(&mut out, (x, y), (name, plot), runs.len(), &programs);
    }
    for (i, run) in runs.iter().enumerate() {
        let y = 60.0 + rows as f64 * (HEIGHT + GAP) + 16.0 * i as f64;
        let _ = writeln!(out, "<text x=\"{GAP}\" y=\"{y}\" fill=\"#777\">{}: {run}</text>", i + 1);
    }
    out.push_str("</svg>");
    out
}

fn draw(
    out: &mut String,
    (x, y): (f64, f64),
    (name, plot): (&String, &Plot),
    runs: usize,
    programs: &[&String],
) {
    let most = plot.lines.values().flatten().map(|(_, v)| *v).fold(0.0_f64, f64::max).max(1e-9);
    let _ = writeln!(
        out,
        "<text x=\"{x}\" y=\"{}\" fill=\"#333\">{name}</text>\
         <line x1=\"{x}\" x2=\"{1}\" y1=\"{2}\" y2=\"{2}\" stroke=\"#ddd\"/>\
         <text x=\"{3}\" y=\"{4}\" fill=\"#777\" text-anchor=\"end\">{5}</text>\
         <text x=\"{3}\" y=\"{2}\" fill=\"#777\" text-anchor=\"end\">0 {6}</text>",
        y - 8.0,
        x + WIDTH,
        y + HEIGHT,
        x - 4.0,
        y + 8.0,
        short(most),
        plot.unit,
    );
    let at = |run: usize| x + 10.0 + (WIDTH - 20.0) * run as f64 / runs.saturating_sub(1).max(1) as f64;
    for (program, points) in &plot.lines {
        let number = programs.iter().position(|p| *p == program).unwrap_or_default();
        let colour = COLOURS[number % COLOURS.len()];
        // A run has several turns: each is a point, the line goes through their means.
        let mut means: BTreeMap<usize, (f64, f64)> = BTreeMap::new();
        for (run, value) in points {
            let _ = writeln!(
                out,
                "<circle cx=\"{:.1}\" cy=\"{:.1}\" r=\"2.5\" fill=\"{colour}\"/>",
                at(*run),
                y + HEIGHT * (1.0 - value / most)
            );
            let (sum, count) = means.entry(*run).or_default();
            *sum += value;
            *count += 1.0;
        }
        let line: Vec<String> = means
            .iter()
            .map(|(run, (sum, n))| format!("{:.1},{:.1}", at(*run), y + HEIGHT * (1.0 - sum / n / most)))
            .collect();
        let _ = writeln!(out, "<polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\"/>", line.join(" "));
    }
}

/// A number in few characters.
fn short(value: f64) -> String {
    if value >= 100.0 { format!("{value:.0}") } else { format!("{value:.2}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_history_becomes_plots() {
        let entry = |time: &str, commit: &str, what: &str, value: f64| {
            format!(
                "{{\"time\":\"{time}T10:00:00Z\",\"commit\":\"{commit}\",\"case\":\"pods\",\"what\":\"{what}\",\
                 \"value\":{value},\"unit\":\"pods/s\"}}"
            )
        };
        let text = [
            entry("2026-01-01", "aaaaaaaaa", "pods plimsoll 1/2: bound", 10.0),
            entry("2026-01-01", "aaaaaaaaa", "pods plimsoll 2/2: bound", 20.0),
            entry("2026-01-01", "aaaaaaaaa", "pods binder 1/2: bound", 40.0),
            entry("2026-01-01", "aaaaaaaaa", "pods: times as fast as binder", 0.5),
            entry("2026-02-01", "bbbbbbbbb", "pods plimsoll 1/1: bound", 30.0),
        ];
        let (plots, runs) = read(&text.join("\n")).unwrap();
        assert_eq!(runs, ["2026-01-01 aaaaaaa", "2026-02-01 bbbbbbb"]);
        let plot = &plots["pods: bound"];
        assert_eq!((plots.len(), plot.unit.as_str()), (1, "pods/s"));
        assert_eq!(plot.lines["plimsoll"], [(0, 10.0), (0, 20.0), (1, 30.0)]);
        let svg = svg(&plots, &runs);
        assert_eq!((svg.matches("<circle").count(), svg.matches("<polyline").count()), (4, 2));
        assert!(read("no JSON").is_err());
    }
}

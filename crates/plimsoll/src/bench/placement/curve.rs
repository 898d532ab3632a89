//! Cost of a decision by number of nodes, as a table and a plot, and by number of pods: time, longest step, memory and the
//! time to build the state from listed objects.

use std::fmt::Write as _;
use std::path::Path;

use anyhow::Context;

use super::in_a_child;
use super::workload::Workload;
use crate::{cli, say};

const NODES: [usize; 3] = [1_000, 10_000, 100_000];
/// Workload of the table by number of pods.
const SIZES: &str = "basic-million";
/// Its nodes and pods.
const GRID: [(usize, usize); 6] = [
    (1_000, 1_000),
    (1_000, 10_000),
    (10_000, 10_000),
    (10_000, 100_000),
    (100_000, 100_000),
    (100_000, 1_000_000),
];
const COLOURS: [&str; 7] = ["#1f77b4", "#d62728", "#2ca02c", "#9467bd", "#ff7f0e", "#17becf", "#8c564b"];
const LEFT: f64 = 60.0;
const TOP: f64 = 40.0;
const WIDTH: f64 = 460.0;
const HEIGHT: f64 = 280.0;
/// Microseconds at the bottom and the top of the plot, as powers of ten.
const RANGE: (f64, f64) = (-1.0, 3.0);

/// Median microseconds by number of nodes.
struct Line {
    name: String,
    medians: Vec<f64>,
}

/// Measures all workloads that have a curve, prints the table (Markdown) and writes the plot (SVG).
pub fn run(workloads: &[Workload], args: &cli::BenchPlacement, path: &Path) -> anyhow::Result<()> {
    say::line("| workload | pods | 1,000 nodes | 10,000 nodes | 100,000 nodes |");
    say::line("|---|---|---|---|---|");
    let mut lines = Vec::new();
    for w in workloads.iter().filter(|w| w.curve > 0) {
        let mut line = Line { name: w.name.clone(), medians: Vec::new() };
        let mut cells = String::new();
        for nodes in NODES {
            let rows = in_a_child(&w.name, args, (Some(nodes), Some(w.curve)))?;
            let more = &rows.first().context("no figures")?.more;
            let figure = |key: &str| more.get(key).and_then(serde_json::Value::as_f64).unwrap_or(f64::NAN);
            let _ = write!(cells, " {:.2} µs (p99 {:.1} µs) |", figure("p50us"), figure("p99us"));
            line.medians.push(figure("p50us"));
        }
        say::line(&format!("| {} | {} |{cells}", w.name, w.curve));
        lines.push(line);
    }
    std::fs::write(path, svg(&lines)).with_context(|| format!("writing {}", path.display()))?;
    if workloads.iter().any(|w| w.name == SIZES) {
        sizes(args)?;
    }
    Ok(())
}

/// Prints a table (Markdown) of one workload by numbers of nodes and pods. Memory is the growth of resident memory while
/// nodes and pods were taken in and pods were bound, with what the allocator holds back.
fn sizes(args: &cli::BenchPlacement) -> anyhow::Result<()> {
    say::line("");
    say::line(
        "| nodes | pods | p50 / p99 µs | longest step ms | bytes per node | bytes per pod, waiting / bound | \
         nodes and pods taken in, s |",
    );
    say::line("|---|---|---|---|---|---|---|");
    for (nodes, pods) in GRID {
        let rows = in_a_child(SIZES, args, (Some(nodes), Some(pods)))?;
        let more = &rows.first().context("no figures")?.more;
        let figure = |key: &str| more.get(key).and_then(serde_json::Value::as_f64).unwrap_or(f64::NAN);
        say::line(&format!(
            "| {nodes} | {pods} | {:.1} / {:.1} | {:.1} | {:.0} | {:.0} / {:.0} | {:.2}, {:.2} |",
            figure("p50us"),
            figure("p99us"),
            figure("longestStepMs"),
            figure("bytesPerNode"),
            figure("bytesPerWaitingPod"),
            figure("bytesPerBoundPod"),
            figure("handleNodesSeconds"),
            figure("handleSeconds"),
        ));
    }
    Ok(())
}

fn x(nodes: f64) -> f64 {
    LEFT + WIDTH * (nodes.log10() - 3.0) / 2.0
}

fn y(us: f64) -> f64 {
    let part = (us.max(1e-3).log10() - RANGE.0) / (RANGE.1 - RANGE.0);
    TOP + HEIGHT * (1.0 - part.clamp(0.0, 1.0))
}

fn svg(lines: &[Line]) -> String {
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {} {}\" font-family=\"ui-monospace, monospace\" \
         font-size=\"12\">\n<rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n\
         <text x=\"10\" y=\"20\" fill=\"#333\">Median time of one decision, by number of nodes</text>\n",
        LEFT + WIDTH + 180.0,
        TOP + HEIGHT + 40.0
    );
    for (value, label) in
        [(0.1, "0.1 µs"), (1.0, "1 µs"), (10.0, "10 µs"), (100.0, "100 µs"), (1000.0, "1 ms")]
    {
        let _ = writeln!(
            out,
            "<line x1=\"{LEFT}\" x2=\"{1}\" y1=\"{0:.1}\" y2=\"{0:.1}\" stroke=\"#ddd\"/>\
             <text x=\"{2}\" y=\"{3:.1}\" fill=\"#777\" text-anchor=\"end\">{label}</text>",
            y(value),
            LEFT + WIDTH,
            LEFT - 6.0,
            y(value) + 4.0
        );
    }
    for (nodes, label) in [(1e3, "1,000"), (1e4, "10,000"), (1e5, "100,000")] {
        let _ = writeln!(
            out,
            "<text x=\"{:.1}\" y=\"{}\" fill=\"#777\" text-anchor=\"middle\">{label}</text>",
            x(nodes),
            TOP + HEIGHT + 20.0
        );
    }
    for (i, line) in lines.iter().enumerate() {
        let colour = COLOURS[i % COLOURS.len()];
        let mut points = String::new();
        for (nodes, us) in NODES.iter().zip(&line.medians) {
            let (px, py) = (x(*nodes as f64), y(*us));
            let _ = write!(points, "{px:.1},{py:.1} ");
            let _ = writeln!(out, "<circle cx=\"{px:.1}\" cy=\"{py:.1}\" r=\"3\" fill=\"{colour}\"/>");
        }
        let _ = writeln!(
            out,
            "<polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\"/>\
             <rect x=\"{1}\" y=\"{2}\" width=\"12\" height=\"3\" fill=\"{colour}\"/>\
             <text x=\"{3}\" y=\"{4}\" fill=\"#333\">{5}</text>",
            points.trim_end(),
            LEFT + WIDTH + 20.0,
            TOP + 18.0 * i as f64,
            LEFT + WIDTH + 38.0,
            TOP + 18.0 * i as f64 + 6.0,
            line.name
        );
    }
    out.push_str("</svg>\n");
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_plot_holds_every_line() {
        let line = |name: &str| Line { name: name.into(), medians: vec![1.0, 2.0, 4.0] };
        let svg = svg(&[line("a"), line("b")]);
        assert_eq!(svg.matches("<polyline").count(), 2);
        assert_eq!(svg.matches("<circle").count(), 6);
        assert!(y(1.0) > y(10.0) && x(1e4) > x(1e3));
    }
}

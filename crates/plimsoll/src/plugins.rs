//! `plimsoll plugins`: which plugins run where, and whether a file can be used, without a cluster.

use anyhow::{Context, bail};
use plimsoll_scheduler::framework::{ExtensionPoint, Profile, Registration, Registry};
use serde::Serialize;

use crate::cli::{CheckPlugins, Format, ListPlugins, PluginStatus, Plugins};
use crate::configure::{self, File};
use crate::say;

/// What is printed where a plugin has no value in a column, as kubectl does.
const NONE: &str = "<none>";

/// A plugin of a profile, or one that no profile enables.
#[derive(Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
struct Row {
    #[serde(skip_serializing_if = "Option::is_none")]
    scheduler_name: Option<String>,
    name: String,
    /// At Score and PlacementScore.
    #[serde(skip_serializing_if = "Option::is_none")]
    weight: Option<i64>,
    extension_points: Vec<&'static str>,
}

/// Runs one of the subcommands.
///
/// # Errors
/// When a file can't be read or is not valid.
pub fn run(what: &Plugins) -> anyhow::Result<()> {
    match what {
        Plugins::List(args) => list(args),
        Plugins::Check(args) => check(args),
        Plugins::Status(args) => status(args),
        Plugins::Bench(args) => crate::plugin_bench::run(args),
    }
}

fn list(args: &ListPlugins) -> anyhow::Result<()> {
    let (registry, config) =
        configure::scheduler(args.scheduler_config.as_deref(), &args.scheduler_feature_gates)?;
    let mut rows: Vec<Row> = config.profiles.iter().flat_map(rows_of).collect();
    rows.extend(not_enabled(&registry, &config.profiles));
    match args.output {
        Format::Text => say::line(&table(&rows)),
        Format::Json => say::line(&serde_json::to_string(&rows)?),
        Format::Yaml => say::line(serde_saphyr::to_string(&rows)?.trim_end()),
    }
    Ok(())
}

/// The plugins of a profile, by their first extension point and their order there.
fn rows_of(profile: &Profile) -> Vec<Row> {
    let scores = [ExtensionPoint::Score, ExtensionPoint::PlacementScore];
    let mut rows: Vec<Row> = Vec::new();
    for (point, field) in ExtensionPoint::ALL {
        for (name, weight) in profile.plugins.enabled_at(point) {
            let weight = scores.contains(&point).then_some(weight);
            match rows.iter_mut().find(|row| row.name == name) {
                Some(row) => {
                    row.extension_points.push(field);
                    row.weight = row.weight.or(weight);
                }
                None => rows.push(Row {
                    scheduler_name: Some(profile.scheduler_name.clone()),
                    name: name.to_owned(),
                    weight,
                    extension_points: vec![field],
                }),
            }
        }
    }
    rows
}

/// Plugins that a profile could enable.
fn not_enabled(registry: &Registry, profiles: &[Profile]) -> Vec<Row> {
    let is_enabled = |name: &str| {
        let instance = |other: &str| other.strip_prefix(name).is_some_and(|rest| rest.starts_with('/'));
        profiles.iter().any(|p| p.plugins.names().any(|other| other == name || instance(other)))
    };
    let plugins = registry.names().filter(|name| !is_enabled(name)).filter_map(|name| registry.get(name));
    let points = |plugin: &Registration| {
        let runs = |(point, _): &(ExtensionPoint, _)| plugin.points().contains(point);
        ExtensionPoint::ALL.into_iter().filter(runs).map(|(_, field)| field).collect()
    };
    plugins
        .map(|plugin| Row {
            scheduler_name: None,
            name: plugin.name().to_owned(),
            weight: None,
            extension_points: points(&plugin),
        })
        .collect()
}

/// Columns as kubectl aligns them: three spaces between, the last one as long as it is.
fn table(rows: &[Row]) -> String {
    let none = || NONE.to_owned();
    let mut lines = vec![["SCHEDULER", "PLUGIN", "WEIGHT", "EXTENSION POINTS"].map(str::to_owned)];
    lines.extend(rows.iter().map(|row| {
        let scheduler = row.scheduler_name.clone().unwrap_or_else(none);
        let weight = row.weight.map_or_else(none, |w| w.to_string());
        [scheduler, row.name.clone(), weight, row.extension_points.join(",")]
    }));
    let width = |column: usize| lines.iter().map(|line| line[column].len()).max().unwrap_or_default() + 3;
    let (a, b, c) = (width(0), width(1), width(2));
    let text = lines
        .iter()
        .map(|[scheduler, name, weight, points]| format!("{scheduler:a$}{name:b$}{weight:c$}{points}"));
    text.collect::<Vec<_>>().join("\n")
}

/// What a check says to programs.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Verdict {
    file: String,
    valid: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    kind: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    plugins: Vec<Row>,
}

/// What a guest in WebAssembly is started with.
fn guest_config(args: &CheckPlugins) -> anyhow::Result<String> {
    let Some(path) = &args.guest_config else { return Ok(String::new()) };
    std::fs::read_to_string(path).with_context(|| format!("--guest-config {}", path.display()))
}

/// Whether the files that a running process follows are what runs there.
fn status(args: &PluginStatus) -> anyhow::Result<()> {
    let url = format!("{}/plugins", args.server.trim_end_matches('/'));
    let read = crate::fetch::read(&url).map_err(|why| anyhow::anyhow!("{url}: {why}"))?;
    let status: serde_json::Value =
        serde_json::from_slice(&read).with_context(|| format!("{url}: no answer of plimsoll"))?;
    match args.output {
        Format::Json => say::line(&status.to_string()),
        Format::Yaml => say::line(serde_saphyr::to_string(&status)?.trim_end()),
        Format::Text => {
            let count = |result: &str| status["reloads"][result].as_u64().unwrap_or_default();
            say::line(&format!("reloads: {} succeeded, {} failed", count("success"), count("error")));
            match status["problem"].as_str() {
                None => say::line("plugins: as in the files"),
                Some(why) => say::line(&format!("plugins: not as in the files, those before go on: {why}")),
            }
        }
    }
    Ok(())
}

fn check(args: &CheckPlugins) -> anyhow::Result<()> {
    let named = args.file.display().to_string();
    let bytes = std::fs::read(&args.file).with_context(|| named.clone())?;
    let checked = configure::check(&bytes, &args.scheduler_feature_gates, &guest_config(args)?);
    let (kind, plugins) = match &checked {
        Ok(File::Scheduler(config)) => {
            (Some("KubeSchedulerConfiguration"), config.profiles.iter().flat_map(rows_of).collect())
        }
        Ok(File::Queueing) => (Some("Configuration"), Vec::new()),
        Ok(File::Guest(points)) => {
            let row = Row {
                scheduler_name: None,
                name: named.clone(),
                weight: None,
                extension_points: points.clone(),
            };
            (Some("WebAssembly"), vec![row])
        }
        Err(_) => (None, Vec::new()),
    };
    let error = checked.err().map(|e| format!("{e:#}"));
    if args.output == Format::Text {
        let Some(kind) = kind else { bail!("{named}: {}", error.unwrap_or_default()) };
        let plugins = if plugins.is_empty() { String::new() } else { format!("\n{}", table(&plugins)) };
        say::line(&format!("{named}: valid ({kind}){plugins}"));
        return Ok(());
    }
    let valid = error.is_none();
    let verdict = Verdict { file: named.clone(), valid, kind, error, plugins };
    match args.output {
        Format::Yaml => say::line(serde_saphyr::to_string(&verdict)?.trim_end()),
        Format::Json | Format::Text => say::line(&serde_json::to_string(&verdict)?),
    }
    if valid { Ok(()) } else { bail!("{named} is not valid") }
}

//! Output as kubectl's printers make it.

use anyhow::bail;
use jiff::Timestamp;
use plimsoll_api::json;
use plimsoll_apimachinery::table::age::human_duration;
use serde_json::Value;

use crate::cli::{DryRun, QueueFormat};
use crate::say;

/// Least width of a column, and the space after its longest cell (kubectl's `GetNewTabWriter`).
const WIDTH: (usize, usize) = (6, 3);

/// Lines of a table. The last column is as wide as its cells.
pub fn table(headers: &[&str], rows: &[Vec<String>]) -> String {
    let headers: Vec<String> = headers.iter().map(|h| h.to_uppercase()).collect();
    let lines = || std::iter::once(&headers).chain(rows);
    let length = |text: &String| text.chars().count();
    let width = |i: usize| {
        let longest = lines().filter_map(|line| line.get(i).map(length)).max().unwrap_or(0);
        (longest + WIDTH.1).max(WIDTH.0)
    };
    let widths: Vec<usize> = (0..headers.len()).map(width).collect();
    let line = |cells: &Vec<String>| {
        let last = cells.len().saturating_sub(1);
        let cell = |(i, cell): (usize, &String)| {
            let space = if i == last { 0 } else { widths[i] - length(cell) };
            format!("{cell}{}", " ".repeat(space))
        };
        cells.iter().enumerate().map(cell).collect::<String>()
    };
    lines().map(line).collect::<Vec<_>>().join("\n")
}

/// Time since a timestamp, in kubectl's words.
pub fn age(timestamp: &Value) -> String {
    match timestamp.as_str().and_then(|t| t.parse::<Timestamp>().ok()) {
        Some(then) => human_duration(Timestamp::now().duration_since(then).as_secs()),
        None => "<unknown>".to_owned(),
    }
}

/// `clusterqueue.kueue.x-k8s.io/name`, as kubectl names objects.
pub fn name(object: &Value) -> String {
    let kind = json::text(object, &["kind"]).to_lowercase();
    let group = json::text(object, &["apiVersion"]).split_once('/').map_or("", |(group, _)| group);
    let kind = if group.is_empty() { kind } else { format!("{kind}.{group}") };
    format!("{kind}/{}", json::name(object))
}

/// Prints an object, or what was done with it.
///
/// # Errors
/// There is no such format of an object.
pub fn object(
    object: &Value,
    done: &str,
    (dry_run, format): (DryRun, Option<QueueFormat>),
) -> anyhow::Result<()> {
    let suffix = match dry_run {
        DryRun::None => "",
        DryRun::Server => " (server dry run)",
        DryRun::Client => " (client dry run)",
    };
    let done = format!("{done}{suffix}");
    match format {
        None if done.is_empty() => say::line(&name(object)),
        None => say::line(&format!("{} {done}", name(object))),
        Some(format) => one(object, format)?,
    }
    Ok(())
}

fn one(object: &Value, format: QueueFormat) -> anyhow::Result<()> {
    match format {
        QueueFormat::Json => say::line(&serde_json::to_string_pretty(object)?),
        QueueFormat::Yaml => say::line(serde_saphyr::to_string(object)?.trim_end()),
        QueueFormat::Name => say::line(&name(object)),
        QueueFormat::Wide => bail!(
            "unable to match a printer suitable for the output format \"wide\", allowed formats are: json,name,yaml"
        ),
    }
    Ok(())
}

/// Prints a list in a format; the list of API server's is complete but for the kinds of its items.
///
/// # Errors
/// As [`object`].
pub fn list(list: &Value, format: QueueFormat) -> anyhow::Result<()> {
    let mut list = list.clone();
    let kind = json::text(&list, &["kind"]).trim_end_matches("List").to_owned();
    let version = list["apiVersion"].clone();
    for item in list["items"].as_array_mut().into_iter().flatten() {
        item["kind"] = kind.clone().into();
        item["apiVersion"] = version.clone();
    }
    match format {
        QueueFormat::Name => {
            json::list(&list, &["items"]).iter().for_each(|item| say::line(&name(item)));
            Ok(())
        }
        format => one(&list, format),
    }
}

/// That there is nothing to list.
pub fn nothing(namespace: Option<&str>) {
    match namespace {
        Some(namespace) => say::error(&format!("No resources found in {namespace} namespace.")),
        None => say::error("No resources found"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn tables_are_kubectls() {
        let row = |cells: [&str; 3]| cells.map(str::to_owned).to_vec();
        let text = table(
            &["Name", "Position in Queue", "Age"],
            &[row(["a", "", "5m"]), row(["longer-name", "12", "3d"])],
        );
        let want = "NAME          POSITION IN QUEUE   AGE\n\
                    a                                 5m\n\
                    longer-name   12                  3d";
        assert_eq!(text, want);
    }

    #[test]
    fn names_have_kind_and_group() {
        let queue = json!({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ClusterQueue", "metadata": {"name": "a"}});
        assert_eq!(name(&queue), "clusterqueue.kueue.x-k8s.io/a");
        assert_eq!(name(&json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}})), "pod/p");
    }
}

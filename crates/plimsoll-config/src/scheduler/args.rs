//! Arguments of plugins: section `pluginConfig` (`pkg/scheduler/apis/config/types_pluginargs.go`). The registration of a
//! plugin decodes them.

use super::validate;
use super::wire::PluginConfig;
use crate::decode::fields::decode_args;
use plimsoll_scheduler::framework::{Args, Registry};
use serde_json::{Map, Value};

/// Reads `pluginConfig`; what is wrong goes to `errors`.
pub(super) fn read(
    list: Vec<PluginConfig>,
    registry: &Registry,
    path: &str,
    errors: &mut Vec<String>,
) -> Args {
    let mut args = Args::default();
    let mut seen: Vec<String> = Vec::new();
    for (i, config) in list.into_iter().enumerate() {
        let name = config.name.unwrap_or_default();
        let path = format!("{path}.pluginConfig[{i}]");
        if seen.contains(&name) {
            errors.push(format!("{path}: Duplicate value: {name:?}"));
        }
        let value = config.args.filter(|v| !v.is_null()).unwrap_or_else(|| Value::Object(Map::new()));
        let at = format!("{path}.args");
        match registry.get(&name).map(|plugin| decode_args(&plugin, &value, &at, &mut args)) {
            Some(Some(Ok(()))) => {}
            Some(Some(Err(texts))) => errors.extend(texts),
            Some(None) => errors.push(format!("{at}: plugin {name:?} takes no arguments")),
            None if validate::is_removed(&name) => {
                errors.push(format!("{path}: {}", validate::removed(&name)));
            }
            None => errors.push(format!("{path}.name: {}", super::no_plugin(&name, registry))),
        }
        seen.push(name);
    }
    args
}

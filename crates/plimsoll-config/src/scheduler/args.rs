//! Arguments of plugins: section `pluginConfig` (`pkg/scheduler/apis/config/types_pluginargs.go`). The registration of a
//! plugin decodes them.

use super::validate;
use super::wire::PluginConfig;
use crate::decode::fields::Reader;
use plimsoll_scheduler::framework::{Args, ArgsError, Registration, Registry};
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
        match registry.get(&name).map(|plugin| decode(&plugin, &value, &at, &mut args)) {
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

/// Decodes the arguments of one plugin and adds them to those of a profile; `None`: it takes none. Values are checked where
/// all of them could be decoded.
pub(super) fn decode(
    plugin: &Registration,
    value: &Value,
    path: &str,
    args: &mut Args,
) -> Option<Result<(), Vec<String>>> {
    let mut fields = Reader::new(value);
    let checked = plugin.decode_args(&mut fields, args)?;
    let broken = fields.finish(path);
    if !broken.is_empty() {
        return Some(Err(broken));
    }
    let text = |error: &ArgsError| match error.field.as_str() {
        "" => format!("{path}: {}", error.message),
        field => format!("{path}.{field}: {}", error.message),
    };
    Some(checked.map_err(|errors| errors.iter().map(text).collect()))
}

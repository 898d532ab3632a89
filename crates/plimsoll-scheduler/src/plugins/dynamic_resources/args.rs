//! `DynamicResourcesArgs` (upstream `ValidateDynamicResourcesArgs` in
//! `apis/config/validation/validation_pluginargs.go`).

use crate::args::{ArgsError, Fields, PluginArgs, valid};
use plimsoll_state::time::Duration;

/// Arguments of DynamicResources. Its timeouts bound the search for devices and the wait for drivers; a search here ends after a
/// number of steps, because the scheduler has no clock.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct DynamicResourcesArgs;

impl PluginArgs for DynamicResourcesArgs {
    fn decode(fields: &mut dyn Fields) -> Result<Self, Vec<ArgsError>> {
        let timeouts = [
            ("filterTimeout", fields.string("filterTimeout"), Duration::ZERO, "must be zero or positive"),
            (
                "bindingTimeout",
                fields.string("bindingTimeout"),
                Duration::from_seconds(1),
                "must be at least 1 second",
            ),
        ];
        let mut errors = Vec::new();
        for (field, text, least, why) in timeouts {
            let Some(text) = text else { continue };
            let why = match Duration::parse(&text) {
                Some(timeout) if timeout >= least => continue,
                Some(_) => why,
                None => "must be a duration such as 90s, 5m or 1h30m",
            };
            errors.push(ArgsError::new(field, format!("Invalid value: {text:?}: {why}")));
        }
        valid(Self, errors)
    }
}

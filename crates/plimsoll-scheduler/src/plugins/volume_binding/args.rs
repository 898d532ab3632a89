//! `VolumeBindingArgs` (upstream `ValidateVolumeBindingArgs` in `apis/config/validation/validation_pluginargs.go`).

use crate::args::{ArgsError, Fields, PluginArgs, valid};

/// Arguments of VolumeBinding.
#[derive(Clone, Copy, Debug)]
pub(crate) struct VolumeBindingArgs {
    /// Seconds to wait for volumes to be bound.
    pub bind_timeout_seconds: i64,
}

impl Default for VolumeBindingArgs {
    fn default() -> Self {
        Self { bind_timeout_seconds: 600 }
    }
}

impl PluginArgs for VolumeBindingArgs {
    fn decode(fields: &mut dyn Fields) -> Result<Self, Vec<ArgsError>> {
        let seconds = fields.int64("bindTimeoutSeconds");
        let seconds = seconds.unwrap_or(Self::default().bind_timeout_seconds);
        let shape = fields.list("shape", |fields| {
            fields.int32("utilization");
            fields.int32("score");
        });
        let mut errors = Vec::new();
        if seconds < 0 {
            errors.push(ArgsError::new(
                "bindTimeoutSeconds",
                format!(
                    "Invalid value: {seconds}: invalid BindTimeoutSeconds, should not be a negative value"
                ),
            ));
        }
        if shape.is_some() {
            errors.push(ArgsError::new(
                "shape",
                "Invalid value: unexpected field `shape`, remove it or turn on the feature gate StorageCapacityScoring",
            ));
        }
        valid(Self { bind_timeout_seconds: seconds }, errors)
    }
}

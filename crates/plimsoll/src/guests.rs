//! Plugins in WebAssembly of configuration files, in builds with a host for them; in others they are refused.

pub use host::{Modules, check, events, files, metrics, policies, register};

#[cfg(feature = "wasm")]
mod host {
    use std::path::PathBuf;
    use std::sync::Arc;

    use anyhow::anyhow;
    use plimsoll_api::event::{EventRecord, ObjectReference};
    use plimsoll_queueing::{MetricFamily, MetricKind, MetricSample, MetricValue, WorkloadPolicy};
    use plimsoll_scheduler::framework::ArgsError;
    pub use plimsoll_wasm::Modules;
    use serde_json::Value;

    use crate::fetch;

    /// Registers the plugins of a configuration of kube-scheduler.
    pub fn register(
        registry: &mut plimsoll_scheduler::Registry,
        config: &Value,
        modules: &Modules,
    ) -> anyhow::Result<()> {
        plimsoll_wasm::register(registry, config, modules, fetch::read);
        Ok(())
    }

    /// The rules about workloads of a configuration of Kueue that are plugins.
    pub fn policies(
        section: &Value,
        modules: &Modules,
    ) -> Result<Vec<Arc<dyn WorkloadPolicy>>, Vec<ArgsError>> {
        plimsoll_wasm::policies(section, modules, fetch::read)
    }

    /// How often guests failed.
    pub fn metrics(modules: &Modules) -> Vec<MetricFamily> {
        let sample = |(plugin, cause, n): (String, &'static str, u64)| {
            let labels = vec![("plugin", plugin), ("cause", cause.to_owned())];
            MetricSample::new(labels, MetricValue::Number(n as f64))
        };
        vec![MetricFamily {
            name: "plimsoll_guest_failures_total",
            help: "Calls of guests that failed: after too many instructions (limit), or for another reason (trap)",
            kind: MetricKind::Counter,
            samples: modules.failures().counts().into_iter().map(sample).collect(),
        }]
    }

    /// What guests recorded since the last time.
    pub fn events(modules: &Modules) -> Vec<EventRecord> {
        let record = |event: plimsoll_wasm::GuestEvent| EventRecord {
            regarding: ObjectReference {
                api_version: event.regarding.api_version,
                kind: event.regarding.kind,
                namespace: event.regarding.namespace,
                name: event.regarding.name,
                uid: event.regarding.uid,
                resource_version: event.regarding.resource_version,
                ..ObjectReference::default()
            },
            warning: event.eventtype == "Warning",
            reason: event.reason,
            action: event.action,
            message: event.note,
            reporting_controller: "default-scheduler".into(),
            reporting_instance: String::new(),
        };
        modules.events().take().into_iter().map(record).collect()
    }

    /// The files that the plugins of a configuration come from.
    pub fn files(config: &Value) -> Vec<PathBuf> {
        plimsoll_wasm::files(config).into_iter().map(PathBuf::from).collect()
    }

    /// At which points a module does something.
    pub fn check(bytes: &[u8], guest_config: &str) -> anyhow::Result<Vec<&'static str>> {
        plimsoll_wasm::check(bytes, guest_config).map_err(|e| anyhow!(e))
    }
}

#[cfg(not(feature = "wasm"))]
mod host {
    use std::path::PathBuf;
    use std::sync::Arc;

    use anyhow::bail;
    use plimsoll_api::event::EventRecord;
    use plimsoll_queueing::{MetricFamily, WorkloadPolicy};
    use plimsoll_scheduler::framework::ArgsError;
    use serde_json::Value;

    const NO_HOST: &str = "this build has no host for plugins in WebAssembly: build it with --features wasm";

    /// There are none.
    #[derive(Clone, Default)]
    pub struct Modules {}

    /// Refuses plugins of a configuration of kube-scheduler.
    pub fn register(_: &mut plimsoll_scheduler::Registry, config: &Value, _: &Modules) -> anyhow::Result<()> {
        let profiles = config["profiles"].as_array().map_or(&[][..], Vec::as_slice);
        for (i, profile) in profiles.iter().enumerate() {
            let plugins = profile["pluginConfig"].as_array().map_or(&[][..], Vec::as_slice);
            if let Some(j) = plugins.iter().position(|plugin| plugin["args"]["guestURL"].is_string()) {
                bail!("profiles[{i}].pluginConfig[{j}].args.guestURL: Forbidden: {NO_HOST}");
            }
        }
        Ok(())
    }

    /// Refuses plugins of a configuration of Kueue.
    pub fn policies(section: &Value, _: &Modules) -> Result<Vec<Arc<dyn WorkloadPolicy>>, Vec<ArgsError>> {
        match section["workloads"]["guests"].as_array() {
            Some(guests) if !guests.is_empty() => {
                Err(vec![ArgsError::new("workloads.guests", format!("Forbidden: {NO_HOST}"))])
            }
            _ => Ok(Vec::new()),
        }
    }

    /// There are none.
    pub fn metrics(_: &Modules) -> Vec<MetricFamily> {
        Vec::new()
    }

    /// There are none.
    pub fn events(_: &Modules) -> Vec<EventRecord> {
        Vec::new()
    }

    /// There are none.
    pub fn files(_: &Value) -> Vec<PathBuf> {
        Vec::new()
    }

    /// Refuses a module.
    pub fn check(_: &[u8], _: &str) -> anyhow::Result<Vec<&'static str>> {
        bail!("{NO_HOST}")
    }
}

//! Plugins with a guest in a scheduler configuration: `pluginConfig` with a `guestURL` (`scheduler/plugin/config.go`,
//! `scheduler/cmd/scheduler/config.go`).

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use plimsoll_scheduler::framework::{ArgsError, Registration, Registry};
use serde::Deserialize;
use serde_json::Value;

use crate::guest::{Guest, Settings};
use crate::plugin::{GuestPlugin, points};

/// Reads the file at a path.
pub type ReadFile = dyn Fn(&str) -> Result<Vec<u8>, String> + Send + Sync;

/// `PluginConfig`.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct Args {
    #[serde(rename = "guestURL")]
    guest_url: String,
    guest_config: String,
    log_severity: i32,
    #[serde(alias = "Args")]
    args: Vec<String>,
}

/// The names of the plugins of a configuration that have a `guestURL`, each once.
pub fn names(config: &Value) -> Vec<String> {
    let lists = |value: &Value, field: &str| value[field].as_array().cloned().unwrap_or_default();
    let mut out: Vec<String> = Vec::new();
    for plugin in lists(config, "profiles").iter().flat_map(|profile| lists(profile, "pluginConfig")) {
        let name = plugin["name"].as_str().unwrap_or_default();
        if plugin["args"]["guestURL"].is_string() && !name.is_empty() && !out.iter().any(|n| n == name) {
            out.push(name.to_owned());
        }
    }
    out
}

/// Registers the plugins of a configuration that have a `guestURL`. Names that the registry has already stay as they are.
/// Guests are loaded when the configuration is read.
pub fn register(
    registry: &mut Registry,
    config: &Value,
    read: impl Fn(&str) -> Result<Vec<u8>, String> + Send + Sync + 'static,
) {
    let loader = Arc::new(Loader { read: Box::new(read), guests: Mutex::default() });
    for name in names(config) {
        // A name that is taken is a plugin without a guest, which refuses the argument.
        let _ = registry.register(registration(&name, &loader));
    }
}

struct Loader {
    read: Box<ReadFile>,
    /// By URL, compiled.
    guests: Mutex<BTreeMap<String, Arc<Guest>>>,
}

impl Loader {
    fn module(&self, url: &str) -> Result<Arc<Guest>, String> {
        let mut guests = self.guests.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(guest) = guests.get(url) {
            return Ok(Arc::clone(guest));
        }
        let failed = |why: String| format!("wasm: error reading guestURL {url}: {why}");
        let bytes = match url.split_once(':') {
            None => return Err(failed(format!("invalid URL: {url}"))),
            Some(("http" | "https", _)) => {
                return Err(failed(
                    "not supported by Plimsoll: download the guest and name it with file://".to_owned(),
                ));
            }
            Some(("file", path)) => {
                let path = path.strip_prefix("//").ok_or_else(|| failed(format!("invalid URL: {url}")))?;
                (self.read)(path).map_err(failed)?
            }
            Some((scheme, _)) => return Err(failed(format!("unsupported URL scheme: {scheme}"))),
        };
        let guest = Arc::new(Guest::new(&bytes, Settings::default())?);
        guests.insert(url.to_owned(), Arc::clone(&guest));
        Ok(guest)
    }

    fn load(&self, name: &str, text: &str) -> Result<Guest, ArgsError> {
        let args: Args =
            serde_json::from_str(text).map_err(|e| ArgsError::new("", format!("Invalid value: {e}")))?;
        let wrong = |why: String| ArgsError::new("guestURL", format!("Invalid value: {why}"));
        if args.guest_url.is_empty() {
            return Err(ArgsError::new("guestURL", "Required value: wasm: guestURL is required"));
        }
        if !(0..=3).contains(&args.log_severity) {
            let text = "must be 0 (info), 1 (warning), 2 (error) or 3 (fatal)";
            return Err(ArgsError::new(
                "logSeverity",
                format!("Invalid value: {}: {text}", args.log_severity),
            ));
        }
        let guest = self.module(&args.guest_url).map_err(wrong)?;
        Ok(guest.with(Settings {
            name: name.into(),
            config: args.guest_config.into(),
            severity: args.log_severity,
            args: args.args.into(),
        }))
    }
}

fn registration(name: &str, loader: &Arc<Loader>) -> Registration {
    let load = {
        let (name, loader) = (name.to_owned(), Arc::clone(loader));
        move |text: &str| loader.load(&name, text)
    };
    let (check, points_of) = (load.clone(), load.clone());
    Registration::new(name, &points(None), move |args, handle| {
        // The arguments were checked when the configuration was read.
        let guest = args.of(handle.name()).and_then(|text| load(text).ok());
        Box::new(GuestPlugin::new(guest, handle.plugin()))
    })
    .with_args(move |text| {
        let guest = check(text).map_err(|error| vec![error])?;
        // The main function may refuse `guestConfig`.
        let started = guest.instantiate(0).map(drop);
        started.map_err(|why| vec![ArgsError::new("guestURL", format!("Invalid value: {why}"))])
    })
    .with_points_of(move |text| points_of(text).map_or_else(|_| Vec::new(), |guest| points(Some(&guest))))
}

//! Plugins with a guest in a scheduler configuration: `pluginConfig` with a `guestURL` (`scheduler/plugin/config.go`,
//! `scheduler/cmd/scheduler/config.go`).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};

use plimsoll_plugin::Manifest;
use plimsoll_queueing::WorkloadPolicy;
use plimsoll_scheduler::framework::{ArgsError, ExtensionPoint, Registration, Registry};
use serde::Deserialize;
use serde_json::Value;

use crate::events::Events;
use crate::failures::Failures;
use crate::fast::{self, Backend as _, FastGuest, FastPlugin, GuestPolicy, MARKER, Wasm};
use crate::guest::{Guest, Settings, compile};
use crate::plugin::{GuestPlugin, points};

/// Reads what is at an absolute path, or at an `http://` or `https://` URL.
pub type ReadFile = dyn Fn(&str) -> Result<Vec<u8>, String> + Send + Sync;

/// `PluginConfig`, with what it lacks upstream: `checksum` and `configFile`.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct Args {
    #[serde(rename = "guestURL")]
    guest_url: String,
    /// `sha256:` and 64 hexadecimal digits.
    checksum: String,
    guest_config: String,
    /// Absolute path of a file with `guestConfig`.
    config_file: String,
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

/// The files that the guests of a configuration come from, kube-scheduler's or Kueue's, to watch them.
pub fn files(config: &Value) -> Vec<String> {
    let lists = |value: &Value, field: &str| value[field].as_array().cloned().unwrap_or_default();
    let plugins = lists(config, "profiles").into_iter().flat_map(|profile| lists(&profile, "pluginConfig"));
    let mut all: Vec<Value> = plugins.map(|plugin| plugin["args"].clone()).collect();
    all.extend(lists(&config["plimsoll"]["workloads"], "guests"));
    let urls = all.iter().filter_map(|args| args["guestURL"].as_str()?.strip_prefix("file://"));
    let configs = all.iter().filter_map(|args| args["configFile"].as_str());
    let mut out: Vec<String> = urls.chain(configs).map(str::to_owned).collect();
    out.sort_unstable();
    out.dedup();
    out
}

/// Compiled modules by the digest of their bytes: kept from one reading of a configuration to the next; cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Modules {
    compiled: Arc<Mutex<BTreeMap<Digest, Compiled>>>,
    failures: Failures,
    events: Events,
}

/// Most modules that are kept.
const MAX_MODULES: usize = 32;

type Digest = [u8; 32];

/// A module of one of the two interfaces.
#[derive(Clone, Debug)]
enum Compiled {
    /// kube-scheduler-wasm-extension's.
    Compatible(Arc<Guest>),
    /// Plimsoll's own.
    Fast(Arc<FastGuest>),
}

impl Modules {
    /// How often the guests of these modules failed.
    pub fn failures(&self) -> &Failures {
        &self.failures
    }

    /// The events that the guests of these modules recorded.
    pub fn events(&self) -> &Events {
        &self.events
    }

    fn of(&self, bytes: &[u8]) -> Result<Compiled, String> {
        let digest = digest(bytes);
        if let Some(known) = self.compiled.lock().unwrap_or_else(PoisonError::into_inner).get(&digest) {
            return Ok(known.clone());
        }
        let (engine, module) = compile(bytes)?;
        let compiled = match module.get_export(MARKER) {
            Some(_) => Compiled::Fast(Arc::new(FastGuest::of_module(&engine, &module)?)),
            None => Compiled::Compatible(Arc::new(Guest::of_module(&engine, &module, Settings::default())?)),
        };
        let mut modules = self.compiled.lock().unwrap_or_else(PoisonError::into_inner);
        if modules.len() >= MAX_MODULES {
            modules.clear();
        }
        modules.insert(digest, compiled.clone());
        Ok(compiled)
    }
}

fn digest(bytes: &[u8]) -> Digest {
    use sha2::Digest as _;
    sha2::Sha256::digest(bytes).into()
}

/// The points of a module of either interface, which is started with this configuration to find out: extension points in the
/// words of `KubeSchedulerConfiguration`, then what it does for workloads.
///
/// # Errors
/// What is wrong with the module.
pub fn check(bytes: &[u8], config: &str) -> Result<Vec<&'static str>, String> {
    let named = |points: &[ExtensionPoint]| -> Vec<&'static str> {
        ExtensionPoint::ALL.iter().filter(|(p, _)| points.contains(p)).map(|(_, name)| *name).collect()
    };
    match Modules::default().of(bytes)? {
        Compiled::Compatible(guest) => {
            let settings = Settings { config: config.into(), ..Settings::default() };
            guest.with(settings).instantiate(0).map(|_| named(&points(Some(&guest))))
        }
        Compiled::Fast(guest) => {
            let made = Wasm::new((*guest).clone(), config)?;
            let mut all = named(&fast::points(made.manifest()));
            all.extend(fast::policy_points(made.manifest()));
            Ok(all)
        }
    }
}

/// Registers the plugins of a configuration that have a `guestURL`. Names that the registry has already stay as they are.
/// Guests are loaded when the configuration is read.
pub fn register(
    registry: &mut Registry,
    config: &Value,
    modules: &Modules,
    read: impl Fn(&str) -> Result<Vec<u8>, String> + Send + Sync + 'static,
) {
    let modules = modules.clone();
    let loader = Arc::new(Loader { read: Box::new(read), modules, files: Mutex::default() });
    for name in names(config) {
        // A name that is taken is a plugin without a guest, which refuses the argument.
        let _ = registry.register(registration(&name, &loader));
    }
}

/// The guests under `workloads.guests` of the section `plimsoll` of Kueue's configuration, as rules about workloads.
///
/// # Errors
/// All that is wrong, by field below the section.
pub fn policies(
    section: &Value,
    modules: &Modules,
    read: impl Fn(&str) -> Result<Vec<u8>, String> + Send + Sync + 'static,
) -> Result<Vec<Arc<dyn WorkloadPolicy>>, Vec<ArgsError>> {
    let loader = Loader { read: Box::new(read), modules: modules.clone(), files: Mutex::default() };
    let guests = match &section["workloads"]["guests"] {
        Value::Null => return Ok(Vec::new()),
        Value::Array(guests) => guests,
        _ => return Err(vec![ArgsError::new("workloads.guests", "Invalid value: must be a list")]),
    };
    let (mut out, mut errors): (Vec<Arc<dyn WorkloadPolicy>>, _) = (Vec::new(), Vec::new());
    let mut names = BTreeSet::new();
    for (i, guest) in guests.iter().enumerate() {
        let one = match guest["name"].as_str() {
            None | Some("") => Err(ArgsError::new("name", "Required value: the plugin's name")),
            Some(name) if !names.insert(name) => {
                Err(ArgsError::new("name", format!("Duplicate value: {name:?}")))
            }
            Some(name) => policy(&loader, name, guest),
        };
        match one {
            Ok(policy) => out.push(Arc::new(policy)),
            Err(e) => {
                let field = if e.field.is_empty() { String::new() } else { format!(".{}", e.field) };
                errors.push(ArgsError::new(format!("workloads.guests[{i}]{field}"), e.message));
            }
        }
    }
    if errors.is_empty() { Ok(out) } else { Err(errors) }
}

fn policy(loader: &Loader, name: &str, guest: &Value) -> Result<GuestPolicy, ArgsError> {
    let mut args = guest.clone();
    args.as_object_mut().map(|fields| fields.remove("name"));
    let wrong = |why: &str| Err(ArgsError::new("guestURL", format!("Invalid value: {why}")));
    match loader.load(name, &args.to_string())? {
        Loaded::Compatible(_) => wrong(
            "a guest of kube-scheduler-wasm-extension, whose interface has no functions for workloads: \
             use a guest of plimsoll-plugin",
        ),
        Loaded::Fast(guest, config) => match Wasm::new((*guest).clone(), &config) {
            Err(why) => wrong(&why),
            Ok(made) if fast::policy_points(made.manifest()).is_empty() => {
                wrong("its manifest names none of workload, flavor, victim")
            }
            Ok(made) => {
                let made = made.counted_in(name, loader.modules.failures.clone());
                Ok(GuestPolicy::new(Box::new(made), name))
            }
        },
    }
}

/// Reads each file once: what was checked is what runs.
struct Loader {
    read: Box<ReadFile>,
    modules: Modules,
    files: Mutex<BTreeMap<String, Arc<[u8]>>>,
}

/// A guest with its configuration.
enum Loaded {
    Compatible(Box<Guest>),
    Fast(Arc<FastGuest>, String),
}

impl Loader {
    fn file(&self, path: &str) -> Result<Arc<[u8]>, String> {
        let mut files = self.files.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(bytes) = files.get(path) {
            return Ok(Arc::clone(bytes));
        }
        let bytes: Arc<[u8]> = (self.read)(path)?.into();
        files.insert(path.to_owned(), Arc::clone(&bytes));
        Ok(bytes)
    }

    fn module(&self, url: &str, checksum: Option<Digest>) -> Result<Compiled, String> {
        let failed = |why: String| format!("wasm: error reading guestURL {url}: {why}");
        let bytes = match url.split_once(':') {
            None => return Err(failed(format!("invalid URL: {url}"))),
            Some(("http", _)) if checksum.is_none() => {
                return Err(failed(
                    "http:// needs a checksum: anybody on the way can change what comes".to_owned(),
                ));
            }
            Some(("http" | "https", _)) => self.file(url).map_err(failed)?,
            Some(("file", path)) => {
                let path = path.strip_prefix("//").ok_or_else(|| failed(format!("invalid URL: {url}")))?;
                self.file(path).map_err(failed)?
            }
            Some((scheme, _)) => return Err(failed(format!("unsupported URL scheme: {scheme}"))),
        };
        let found = digest(&bytes);
        if checksum.is_some_and(|want| want != found) {
            let hex: String = found.iter().map(|byte| format!("{byte:02x}")).collect();
            return Err(failed(format!("its checksum is sha256:{hex}")));
        }
        self.modules.of(&bytes)
    }

    fn load(&self, name: &str, text: &str) -> Result<Loaded, ArgsError> {
        let args: Args =
            serde_json::from_str(text).map_err(|e| ArgsError::new("", format!("Invalid value: {e}")))?;
        let wrong = |field: &str, why: String| ArgsError::new(field, format!("Invalid value: {why}"));
        if args.guest_url.is_empty() {
            return Err(ArgsError::new("guestURL", "Required value: wasm: guestURL is required"));
        }
        if !(0..=3).contains(&args.log_severity) {
            let text = "must be 0 (info), 1 (warning), 2 (error) or 3 (fatal)";
            return Err(wrong("logSeverity", format!("{}: {text}", args.log_severity)));
        }
        let checksum = match args.checksum.as_str() {
            "" => None,
            text => Some(checksum(text).ok_or_else(|| {
                wrong("checksum", format!("{text:?}: must be sha256: and 64 hexadecimal digits"))
            })?),
        };
        let config = match args.config_file.as_str() {
            "" => args.guest_config,
            _ if !args.guest_config.is_empty() => {
                return Err(wrong("configFile", "must not be set beside guestConfig".to_owned()));
            }
            path if !path.starts_with('/') => {
                return Err(wrong("configFile", format!("{path:?}: must be an absolute path")));
            }
            path => {
                let read = self.file(path).map_err(|why| wrong("configFile", format!("{path}: {why}")))?;
                String::from_utf8(read.to_vec())
                    .map_err(|_| wrong("configFile", format!("{path}: no text")))?
            }
        };
        match self.module(&args.guest_url, checksum).map_err(|why| wrong("guestURL", why))? {
            Compiled::Compatible(guest) => Ok(Loaded::Compatible(Box::new(guest.with(Settings {
                name: name.into(),
                config: config.into(),
                severity: args.log_severity,
                args: args.args.into(),
            })))),
            Compiled::Fast(_) if !args.args.is_empty() => {
                Err(wrong("args", "this guest has no main function: use guestConfig".to_owned()))
            }
            Compiled::Fast(guest) => Ok(Loaded::Fast(guest, config)),
        }
    }
}

/// Refuses a plugin that has nothing to say about pods.
fn at_some_point(manifest: &Manifest) -> Result<(), String> {
    match fast::points(manifest).is_empty() {
        true => Err("its manifest names no extension point: rules about workloads belong to plimsoll.workloads.guests \
                     in Kueue's configuration"
            .to_owned()),
        false => Ok(()),
    }
}

/// `sha256:` and 64 hexadecimal digits.
fn checksum(text: &str) -> Option<Digest> {
    let hex = text.strip_prefix("sha256:").filter(|hex| hex.len() == 64 && hex.is_ascii())?;
    let mut out = Digest::default();
    for (byte, digits) in out.iter_mut().zip(hex.as_bytes().chunks(2)) {
        *byte = u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?;
    }
    Some(out)
}

fn registration(name: &str, loader: &Arc<Loader>) -> Registration {
    let load = {
        let (name, loader) = (name.to_owned(), Arc::clone(loader));
        move |text: &str| loader.load(&name, text)
    };
    let (check, points_of) = (load.clone(), load.clone());
    let (failures, events) = (loader.modules.failures.clone(), loader.modules.events.clone());
    Registration::new(name, &points(None), move |args, handle| {
        // The arguments were checked when the configuration was read.
        let loaded = args.of(handle.name()).and_then(|text| load(text).ok());
        let backend = |guest: &Arc<FastGuest>, config: &str| {
            let wasm = Wasm::new((**guest).clone(), config).ok()?;
            Some(wasm.counted_in(handle.name(), failures.clone()))
        };
        match loaded {
            Some(Loaded::Fast(guest, config)) => match backend(&guest, &config) {
                Some(wasm) => Box::new(FastPlugin::new(Box::new(wasm), handle.plugin(), handle.name())),
                None => Box::new(GuestPlugin::new(None, handle.plugin())),
            },
            Some(Loaded::Compatible(guest)) => {
                let told = (failures.clone(), events.clone());
                Box::new(GuestPlugin::new(Some((*guest, told)), handle.plugin()))
            }
            None => Box::new(GuestPlugin::new(None, handle.plugin())),
        }
    })
    .with_args(move |text| {
        // The guest may refuse its configuration.
        let (field, started) = match check(text).map_err(|error| vec![error])? {
            Loaded::Compatible(guest) => ("guestURL", guest.instantiate(0).map(drop)),
            Loaded::Fast(guest, config) => {
                let made = Wasm::new((*guest).clone(), &config);
                ("guestURL", made.and_then(|made| at_some_point(made.manifest())))
            }
        };
        started.map_err(|why| vec![ArgsError::new(field, format!("Invalid value: {why}"))])
    })
    .with_points_of(move |text| match points_of(text) {
        Ok(Loaded::Compatible(guest)) => points(Some(&guest)),
        Ok(Loaded::Fast(guest, config)) => Wasm::new((*guest).clone(), &config)
            .map_or_else(|_| Vec::new(), |made| fast::points(made.manifest())),
        Err(_) => Vec::new(),
    })
}

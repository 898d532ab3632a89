//! Arguments of plugins: section `pluginConfig` of a profile (upstream `pkg/scheduler/apis/config/types_pluginargs.go`).
//!
//! A plugin's arguments are a type of its own that implements [`PluginArgs`]; its registration carries how they are
//! decoded. The reader of the configuration file gives their fields ([`Fields`]), so that the scheduler knows no file format.

use std::any::Any;
use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::Arc;

/// Version of kube-scheduler's configuration, in which arguments are written.
const VERSION: &str = "kubescheduler.config.k8s.io/v1";

/// What is wrong with one of a plugin's arguments.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {message}")]
pub struct ArgsError {
    /// Path of the argument below `pluginConfig[].args`; empty: the arguments as a whole.
    pub field: String,
    /// What is wrong with it.
    pub message: String,
}

impl ArgsError {
    /// An error of the argument at a path.
    pub fn new(field: impl Into<String>, message: impl Into<String>) -> Self {
        Self { field: field.into(), message: message.into() }
    }

    /// apimachinery's `field.NotSupported`.
    pub fn not_supported(field: impl Into<String>, value: &str, supported: &[&str]) -> Self {
        let quoted: Vec<String> = supported.iter().map(|s| format!("{s:?}")).collect();
        Self::new(field, format!("Unsupported value: {value:?}: supported values: {}", quoted.join(", ")))
    }

    /// An error where a number is not within bounds, which are part of the range.
    pub fn out_of_range(field: &str, value: i64, (low, high): (i64, i64)) -> Option<Self> {
        let is_in = (low..=high).contains(&value);
        (!is_in)
            .then(|| Self::new(field, format!("Invalid value: {value}: not in valid range [{low}, {high}]")))
    }
}

/// The fields of an object of `pluginConfig[].args`, read strictly. `None` stands for a field that is absent or `null`, and
/// for a value of another type, which the reader reports itself. It reports fields that were not asked for as unknown: ask for
/// all fields before checking any.
pub trait Fields {
    /// A boolean.
    fn boolean(&mut self, field: &'static str) -> Option<bool>;
    /// A whole number of 32 bits.
    fn int32(&mut self, field: &'static str) -> Option<i32>;
    /// A whole number of 64 bits.
    fn int64(&mut self, field: &'static str) -> Option<i64>;
    /// A string.
    fn string(&mut self, field: &'static str) -> Option<String>;
    /// A list of strings.
    fn strings(&mut self, field: &'static str) -> Option<Vec<String>>;
    /// An object with strings as its values.
    fn string_map(&mut self, field: &'static str) -> Option<BTreeMap<String, String>>;
    /// Calls `read` with the fields of an object, unless the field is absent.
    fn each_object(&mut self, field: &'static str, read: &mut dyn FnMut(&mut dyn Fields));
    /// Calls `read` with the fields of each object of a list; `false` where the field is absent.
    fn each_item(&mut self, field: &'static str, read: &mut dyn FnMut(&mut dyn Fields)) -> bool;
    /// The whole object as JSON; all its fields count as known.
    fn json(&mut self) -> String;
}

impl dyn Fields + '_ {
    /// An object.
    pub fn object<T>(
        &mut self,
        field: &'static str,
        mut read: impl FnMut(&mut dyn Fields) -> T,
    ) -> Option<T> {
        let mut found = None;
        self.each_object(field, &mut |fields| found = Some(read(fields)));
        found
    }

    /// A list of objects.
    pub fn list<T>(
        &mut self,
        field: &'static str,
        mut read: impl FnMut(&mut dyn Fields) -> T,
    ) -> Option<Vec<T>> {
        let mut found = Vec::new();
        self.each_item(field, &mut |fields| found.push(read(fields))).then_some(found)
    }
}

/// Arguments of a plugin. `Default` are those of a profile that has none.
pub trait PluginArgs: Any + Debug + Default + Send + Sync {
    /// Decodes, defaults and validates them.
    ///
    /// # Errors
    /// All values that are refused, in upstream's words.
    fn decode(fields: &mut dyn Fields) -> Result<Self, Vec<ArgsError>>;
}

/// `value`, unless there are errors.
///
/// # Errors
/// The errors.
pub(crate) fn valid<T>(value: T, errors: Vec<ArgsError>) -> Result<T, Vec<ArgsError>> {
    if errors.is_empty() { Ok(value) } else { Err(errors) }
}

/// Decoded arguments of any plugin.
trait Stored: Any + Debug + Send + Sync {}

impl<T: Any + Debug + Send + Sync> Stored for T {}

/// Arguments that their plugin reads itself.
#[derive(Debug)]
struct Json(String);

/// Arguments of all plugins of a profile, by the name of the plugin.
#[derive(Clone, Debug, Default)]
pub struct Args(BTreeMap<String, Arc<dyn Stored>>);

impl Args {
    /// The arguments of a plugin whose registration has arguments of this type; the defaults where the profile has none.
    pub fn get<A: PluginArgs>(&self, plugin: &str) -> Arc<A> {
        let stored = self.0.get(plugin).map(|stored| Arc::clone(stored) as Arc<dyn Any + Send + Sync>);
        stored.and_then(|stored| stored.downcast().ok()).unwrap_or_default()
    }

    /// Sets the arguments of a plugin.
    pub fn set<A: PluginArgs>(&mut self, plugin: &str, args: A) {
        self.0.insert(plugin.to_owned(), Arc::new(args));
    }

    /// The JSON text of the arguments of a plugin that reads them itself; `None`: the profile has none.
    pub fn of(&self, plugin: &str) -> Option<&str> {
        let stored: &dyn Any = self.0.get(plugin)?.as_ref();
        stored.downcast_ref().map(|Json(text)| text.as_str())
    }

    /// Sets the arguments of a plugin that reads them itself.
    pub fn set_json(&mut self, plugin: &str, text: String) {
        self.0.insert(plugin.to_owned(), Arc::new(Json(text)));
    }
}

/// How a plugin's arguments are decoded.
#[derive(Clone)]
pub(crate) enum DecodeArgs {
    /// As a type: adds the arguments of the plugin of this name to those of a profile.
    Typed(DecodeTyped),
    /// As JSON, checked by the plugin.
    Json(Arc<CheckJson>),
}

/// Decodes the arguments of the plugin of a name.
type DecodeTyped = fn(&str, &mut dyn Fields, &mut Args) -> Result<(), Vec<ArgsError>>;

/// Checks the JSON text of arguments.
pub(crate) type CheckJson = dyn Fn(&str) -> Result<(), Vec<ArgsError>> + Send + Sync;

impl DecodeArgs {
    /// Decodes as a type.
    pub(crate) fn typed<A: PluginArgs>() -> Self {
        Self::Typed(decode_typed::<A>)
    }

    /// Decodes the arguments of the plugin of a name and adds them to those of a profile.
    pub(crate) fn decode(
        &self,
        plugin: &str,
        fields: &mut dyn Fields,
        args: &mut Args,
    ) -> Result<(), Vec<ArgsError>> {
        match self {
            Self::Typed(decode) => decode(plugin, fields, args),
            Self::Json(check) => {
                let text = fields.json();
                check(&text)?;
                args.set_json(plugin, text);
                Ok(())
            }
        }
    }
}

/// Decodes arguments of a type, which may name their kind and version (`runtime.RawExtension`).
fn decode_typed<A: PluginArgs>(
    plugin: &str,
    fields: &mut dyn Fields,
    args: &mut Args,
) -> Result<(), Vec<ArgsError>> {
    let (version, kind) = (fields.string("apiVersion"), fields.string("kind"));
    let decoded = A::decode(fields);
    let mut errors = Vec::new();
    let want = format!("{plugin}Args");
    if let Some(kind) = kind.filter(|kind| *kind != want) {
        errors.push(ArgsError::new("", format!("Invalid value: {kind:?}: has to match plugin name")));
    }
    if let Some(version) = version.filter(|version| version != VERSION) {
        errors.push(ArgsError::new("", format!("no kind {want:?} is registered for version {version:?}")));
    }
    match decoded {
        Ok(decoded) => {
            args.set(plugin, decoded);
            valid((), errors)
        }
        Err(more) => {
            errors.extend(more);
            Err(errors)
        }
    }
}

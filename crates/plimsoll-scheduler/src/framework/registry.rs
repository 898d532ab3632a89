//! Registry of plugins by name, as upstream's `pkg/scheduler/framework/runtime/registry.go`.
//!
//! A profile is checked against a registry: which names there are, and at which extension points each of them can run.
//! [`Registry::in_tree`] has kube-scheduler's own plugins; an embedder adds others with [`Registry::register`].

use super::gates::{FeatureGates, TOPOLOGY_AWARE_WORKLOAD_SCHEDULING};
use super::{ExtensionPoint, Plugin, PluginId};
use crate::args::{Args, ArgsError, DecodeArgs, Fields, PluginArgs};
use plimsoll_state::intern::{Interner, Sym};
use std::fmt;
use std::sync::Arc;

/// What the framework offers to the plugins that it makes (framework `Handle`).
#[derive(Debug)]
pub struct Handle<'a> {
    plugin: PluginId,
    name: &'a str,
    strings: &'a mut Interner,
}

impl<'a> Handle<'a> {
    pub(crate) fn new(plugin: PluginId, name: &'a str, strings: &'a mut Interner) -> Self {
        Self { plugin, name, strings }
    }

    /// The name of the plugin that is being made, of an instance `PLUGIN/INSTANCE`.
    pub fn name(&self) -> &'a str {
        self.name
    }

    /// The number of the plugin that is being made.
    pub fn plugin(&self) -> PluginId {
        self.plugin
    }

    /// The interned form of a string; it is valid as long as the scheduler.
    pub fn intern(&mut self, text: &str) -> Sym {
        self.strings.intern(text)
    }

    pub(crate) fn strings(&mut self) -> &mut Interner {
        self.strings
    }
}

/// Makes a plugin for a profile with these arguments (`PluginFactory`). The arguments have been decoded and checked
/// before ([`Registration::decode_args`]), so that a factory can't fail.
pub type PluginFactory = dyn Fn(&Args, &mut Handle<'_>) -> Box<dyn Plugin> + Send + Sync;

/// The extension points at which a plugin runs with this JSON text of arguments.
type PointsOf = dyn Fn(&str) -> Vec<ExtensionPoint> + Send + Sync;

/// How a plugin is among the defaults of multiPoint.
#[derive(Clone, Copy, Debug)]
struct OnByDefault {
    weight: i32,
    /// The feature gate that has to be on.
    gate: Option<&'static str>,
}

/// A plugin that profiles can name: what the configuration and the framework know of it.
#[derive(Clone)]
pub struct Registration {
    name: Arc<str>,
    points: Arc<[ExtensionPoint]>,
    has_instances: bool,
    default: Option<OnByDefault>,
    schedules_pod_groups: bool,
    decode_args: Option<DecodeArgs>,
    points_of: Option<Arc<PointsOf>>,
    factory: Arc<PluginFactory>,
}

impl fmt::Debug for Registration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Registration").field("name", &self.name).field("points", &self.points).finish()
    }
}

impl PartialEq for Registration {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name && self.points == other.points
    }
}

impl Eq for Registration {}

impl Registration {
    /// A plugin of this name that runs at these extension points, and is made by `factory` once per profile.
    pub fn new(
        name: &str,
        points: &[ExtensionPoint],
        factory: impl Fn(&Args, &mut Handle<'_>) -> Box<dyn Plugin> + Send + Sync + 'static,
    ) -> Self {
        Self {
            name: name.into(),
            points: points.into(),
            has_instances: false,
            default: None,
            schedules_pod_groups: false,
            decode_args: None,
            points_of: None,
            factory: Arc::new(factory),
        }
    }

    /// The same plugin with any number of instances: a profile names them `PLUGIN/INSTANCE`, and each has its own
    /// arguments. The factory finds the name in [`Handle::name`].
    #[must_use]
    pub fn with_instances(mut self) -> Self {
        self.has_instances = true;
        self
    }

    /// The same plugin, whose arguments say at which of its extension points it runs.
    #[must_use]
    pub fn with_points_of(
        mut self,
        points: impl Fn(&str) -> Vec<ExtensionPoint> + Send + Sync + 'static,
    ) -> Self {
        self.points_of = Some(Arc::new(points));
        self
    }

    /// A plugin with arguments of a type: they are decoded when a configuration is read.
    pub fn with_args_of<A: PluginArgs>(
        name: &str,
        points: &[ExtensionPoint],
        factory: impl Fn(&A, &mut Handle<'_>) -> Box<dyn Plugin> + Send + Sync + 'static,
    ) -> Self {
        let make = move |args: &Args, handle: &mut Handle<'_>| factory(&args.get(handle.name()), handle);
        Self { decode_args: Some(DecodeArgs::typed::<A>()), ..Self::new(name, points, make) }
    }

    /// The same plugin, which reads its arguments itself: their JSON text is checked when a configuration is read, and the
    /// factory finds it in [`Args::of`]. Without this, a configuration that has arguments for the plugin is refused.
    #[must_use]
    pub fn with_args(
        mut self,
        check: impl Fn(&str) -> Result<(), Vec<ArgsError>> + Send + Sync + 'static,
    ) -> Self {
        self.decode_args = Some(DecodeArgs::Json(Arc::new(check)));
        self
    }

    /// The same plugin, on by default: it is in the multiPoint set of every profile that doesn't disable it, in the order
    /// of registration. The weight counts at Score and PlacementScore; 0 is read as 1.
    #[must_use]
    pub fn by_default(mut self, weight: i32) -> Self {
        self.default = Some(OnByDefault { weight, gate: None });
        self
    }

    /// The same plugin, on by default while a feature gate of kube-scheduler is (upstream `applyFeatureGates`).
    #[must_use]
    pub fn by_default_behind(mut self, gate: &'static str, weight: i32) -> Self {
        self.default = Some(OnByDefault { weight, gate: Some(gate) });
        self
    }

    /// The same plugin, with which the pods of a PodGroup are scheduled in one cycle (KEP-4671, gate GenericWorkload).
    #[must_use]
    pub fn schedules_pod_groups(mut self) -> Self {
        self.schedules_pod_groups = true;
        self
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The extension points at which it can run.
    pub fn points(&self) -> &[ExtensionPoint] {
        &self.points
    }

    /// Its weight where it is on by default; `None`: profiles have to name it.
    pub fn default_weight(&self, gates: &FeatureGates) -> Option<i32> {
        let default = self.default.filter(|default| default.gate.is_none_or(|gate| gates.enabled(gate)));
        default.map(|default| default.weight)
    }

    /// The feature gate that turns it on by default.
    pub fn feature_gate(&self) -> Option<&'static str> {
        self.default?.gate
    }

    /// Whether the pods of a PodGroup are scheduled in one cycle with it.
    pub(crate) fn has_pod_group_cycle(&self) -> bool {
        self.schedules_pod_groups
    }

    /// Decodes its arguments and adds them to those of a profile; `None`: it takes none.
    pub fn decode_args(
        &self,
        fields: &mut dyn Fields,
        args: &mut Args,
    ) -> Option<Result<(), Vec<ArgsError>>> {
        self.decode_args.as_ref().map(|decode| decode.decode(&self.name, fields, args))
    }

    /// Checks the JSON text of its arguments; `None`: it doesn't read them itself.
    pub fn check_args(&self, text: &str) -> Option<Result<(), Vec<ArgsError>>> {
        match self.decode_args.as_ref()? {
            DecodeArgs::Json(check) => Some(check(text)),
            DecodeArgs::Typed(_) => None,
        }
    }

    /// Whether the plugin runs at an extension point with these arguments, which have been checked.
    pub fn runs_at(&self, point: ExtensionPoint, args: &Args) -> bool {
        match (&self.points_of, args.of(&self.name)) {
            (Some(points_of), Some(text)) => points_of(text).contains(&point),
            _ => self.points.contains(&point),
        }
    }

    /// The instance of this name, of the form `PLUGIN/INSTANCE`.
    fn instance(&self, name: &str) -> Option<Self> {
        let instance = name.strip_prefix(&*self.name)?.strip_prefix('/')?;
        let is_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
        (self.has_instances && !instance.is_empty() && instance.chars().all(is_name))
            .then(|| Self { name: name.into(), ..self.clone() })
    }

    pub(crate) fn shared_name(&self) -> &Arc<str> {
        &self.name
    }

    pub(crate) fn make(&self, args: &Args, handle: &mut Handle<'_>) -> Box<dyn Plugin> {
        (self.factory)(args, handle)
    }
}

/// Why a plugin can't be registered.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct RegistryError(String);

/// Plugins by name, in the order of their registration.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Registry(Vec<Arc<Registration>>);

impl Registry {
    /// A registry of these plugins, whose names differ.
    pub(crate) fn of(plugins: Vec<Registration>) -> Self {
        Self(plugins.into_iter().map(Arc::new).collect())
    }

    /// Adds a plugin.
    ///
    /// # Errors
    /// When there is a plugin of this name already, or the name is reserved for the framework.
    pub fn register(&mut self, plugin: Registration) -> Result<(), RegistryError> {
        let name = plugin.name();
        if name.is_empty() || name == "*" || name == EXTENDERS || name.contains('/') {
            return Err(RegistryError(format!("a plugin can't be named {name:?}")));
        }
        if self.get(name).is_some() {
            return Err(RegistryError(format!("a plugin named {name} already exists")));
        }
        self.0.push(Arc::new(plugin));
        Ok(())
    }

    /// Takes a plugin out.
    ///
    /// # Errors
    /// When there is none of this name.
    pub fn unregister(&mut self, name: &str) -> Result<(), RegistryError> {
        let before = self.0.len();
        self.0.retain(|p| p.name() != name);
        if self.0.len() == before {
            return Err(RegistryError(format!("no plugin named {name} exists")));
        }
        Ok(())
    }

    /// The plugin of this name, or the instance of a plugin that has them.
    pub fn get(&self, name: &str) -> Option<Arc<Registration>> {
        let plugin = self.0.iter().find(|p| p.name() == name).cloned();
        plugin.or_else(|| self.0.iter().find_map(|p| p.instance(name)).map(Arc::new))
    }

    /// All plugins, in the order of registration.
    pub(crate) fn plugins(&self) -> impl Iterator<Item = &Arc<Registration>> {
        self.0.iter()
    }

    /// The feature gates that change which plugins run.
    pub fn feature_gates(&self) -> impl Iterator<Item = &'static str> {
        self.0.iter().filter_map(|p| p.feature_gate()).chain([TOPOLOGY_AWARE_WORKLOAD_SCHEDULING])
    }

    /// All names, in the order of registration.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|p| p.name())
    }
}

/// Name under which HTTP extenders reject; no profile can name it.
pub(crate) const EXTENDERS: &str = "Extender";

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug)]
    struct Nothing;

    impl Plugin for Nothing {}

    #[test]
    fn names_are_unique_and_some_are_reserved() {
        let make = |name: &str| Registration::new(name, &[], |_, _| Box::new(Nothing) as Box<dyn Plugin>);
        let mut registry = Registry::in_tree();
        assert_eq!(registry.names().count(), 23);
        assert_eq!(registry.register(make("Mine")), Ok(()));
        for (name, want) in [
            ("Mine", "a plugin named Mine already exists"),
            ("NodeName", "a plugin named NodeName already exists"),
            ("Extender", "a plugin can't be named \"Extender\""),
        ] {
            assert_eq!(registry.register(make(name)).expect_err(want).to_string(), want);
        }
        assert!(registry.get("Mine/one").is_none(), "it has no instances");
        assert_eq!(registry.register(make("Many").with_instances()), Ok(()));
        let names = ["Many/one", "Many/two.three", "Many", "Many/", "Many/a b", "Manyone"];
        let found = names.map(|n| registry.get(n).map(|p| p.name().to_owned()));
        assert_eq!(
            found,
            [Some(names[0].to_owned()), Some(names[1].to_owned()), Some("Many".to_owned()), None, None, None]
        );
        assert_eq!(registry.unregister("Mine"), Ok(()));
        assert_eq!(registry.unregister("Mine").expect_err("gone").to_string(), "no plugin named Mine exists");
    }
}

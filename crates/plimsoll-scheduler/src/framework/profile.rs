//! Profiles: which plugins run at which point, in which order, with which weight
//! (upstream `apis/config/v1/default_plugins.go` and `framework/runtime/framework.go`).

use super::{ExtensionPoint, FeatureGates, Registration, Registry};
use std::sync::Arc;

/// A plugin and its weight; weight 0 is read as 1.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PluginRef {
    /// Name.
    pub name: String,
    /// Weight, for scores only.
    pub weight: i32,
}

/// What a user wrote for one point.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UserSet {
    /// Plugins to run.
    pub enabled: Vec<PluginRef>,
    /// Names not to run; `*` for all defaults.
    pub disabled: Vec<String>,
}

/// What a user wrote for all points.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UserPlugins {
    /// Every point a plugin implements.
    pub multi_point: UserSet,
    /// Single points, by upstream's field name.
    pub points: Vec<(String, UserSet)>,
}

/// Why a set of plugins can't be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ProfileError(pub String);

/// Plugins by point, expanded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PluginSet {
    points: Vec<Vec<Enabled>>,
}

/// A plugin at a point, with its weight.
pub(crate) type Enabled = (Arc<Registration>, i64);

fn fail<T>(text: String) -> Result<T, ProfileError> {
    Err(ProfileError(text))
}

/// Plugins with the weights of multiPoint, 0 where none is given.
type Multi = Vec<(Arc<Registration>, i32)>;

/// The user's multiPoint set merged with the defaults (upstream `getDefaultPlugins` and `mergePluginSet`).
fn merge(registry: &Registry, user: &UserSet, gates: &FeatureGates) -> Result<Multi, ProfileError> {
    let mut out = Multi::new();
    let mut replaced = vec![false; user.enabled.len()];
    if !user.disabled.iter().any(|n| n == "*") {
        for plugin in registry.plugins() {
            let (name, plugin) = (plugin.name(), Arc::clone(plugin));
            let Some(weight) = plugin.default_weight(gates) else { continue };
            if user.disabled.iter().any(|n| n == name) {
                continue;
            }
            match user.enabled.iter().position(|p| p.name == name) {
                Some(at) => {
                    replaced[at] = true;
                    out.push((plugin, user.enabled[at].weight));
                }
                None => out.push((plugin, weight)),
            }
        }
    }
    for (p, done) in user.enabled.iter().zip(&replaced) {
        if *done {
            continue;
        }
        out.push((known(registry, &p.name)?, p.weight));
    }
    Ok(out)
}

fn known(registry: &Registry, name: &str) -> Result<Arc<Registration>, ProfileError> {
    match registry.get(name) {
        Some(plugin) => Ok(plugin),
        None => fail(format!("plugin {name:?} does not exist")),
    }
}

impl PluginSet {
    /// Expands what a user wrote into plugins by point.
    ///
    /// # Errors
    /// For plugins that the registry does not have, plugins that don't implement a point, and plugins enabled twice at a
    /// point.
    pub fn new(registry: &Registry, user: &UserPlugins, gates: &FeatureGates) -> Result<Self, ProfileError> {
        let multi = merge(registry, &user.multi_point, gates)?;
        let empty = UserSet::default();
        let mut points = Vec::new();
        for (point, field) in ExtensionPoint::ALL {
            let set = user.points.iter().find(|(n, _)| n == field).map_or(&empty, |(_, s)| s);
            let plugins = expand(registry, point, &multi, set)?;
            points.push(if gates.runs(point) { plugins } else { Vec::new() });
        }
        let set = Self { points };
        match set.at(ExtensionPoint::QueueSort).len() {
            1 => {}
            0 => return fail("no queue sort plugin is enabled".to_owned()),
            _ => return fail("only one queue sort plugin can be enabled".to_owned()),
        }
        if set.at(ExtensionPoint::Bind).is_empty() {
            return fail("at least one bind plugin is needed".to_owned());
        }
        if set.at(ExtensionPoint::PlacementGenerate).len() > 1 {
            return fail("at most one placement generate plugin is allowed".to_owned());
        }
        Ok(set)
    }

    /// Takes plugins off the points at which they don't run with these arguments ([`Registration::with_points_of`]).
    pub fn restrict(&mut self, args: &crate::args::Args) {
        for (plugins, (point, _)) in self.points.iter_mut().zip(ExtensionPoint::ALL) {
            plugins.retain(|(plugin, _)| plugin.runs_at(point, args));
        }
    }

    /// The names of all plugins, each once.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.all().into_iter().map(|p| p.name())
    }

    /// The plugins at a point in their order, with their weights, which count at Score and PlacementScore.
    pub fn enabled_at(&self, point: ExtensionPoint) -> impl Iterator<Item = (&str, i64)> {
        self.at(point).iter().map(|(plugin, weight)| (plugin.name(), *weight))
    }

    /// The plugins at a point.
    pub(crate) fn at(&self, point: ExtensionPoint) -> &[Enabled] {
        self.points.get(point as usize).map_or(&[], |v| v)
    }

    /// All plugins, each once, by their first appearance.
    pub(crate) fn all(&self) -> Vec<&Arc<Registration>> {
        let mut out: Vec<&Arc<Registration>> = Vec::new();
        for (plugin, _) in self.points.iter().flatten() {
            if !out.iter().any(|p| p.name() == plugin.name()) {
                out.push(plugin);
            }
        }
        out
    }

    /// Whether any plugin is enabled at a point.
    pub fn any(&self, point: ExtensionPoint) -> bool {
        !self.at(point).is_empty()
    }

    /// Whether the pods of a PodGroup are scheduled in one cycle (KEP-4671).
    pub fn schedules_pod_groups(&self) -> bool {
        self.any(ExtensionPoint::PlacementGenerate) || self.all().into_iter().any(|p| p.has_pod_group_cycle())
    }

    /// Whether the plugin of this name is enabled at a point.
    pub fn enabled(&self, point: ExtensionPoint, plugin: &str) -> bool {
        self.at(point).iter().any(|(p, _)| p.name() == plugin)
    }
}

/// multiPoint expansion of one point (upstream `expandMultiPointPlugins`).
fn expand(
    registry: &Registry,
    point: ExtensionPoint,
    multi: &Multi,
    set: &UserSet,
) -> Result<Vec<Enabled>, ProfileError> {
    let weight = |w: i32| i64::from(if w == 0 { 1 } else { w });
    let twice =
        |name: &str| fail(format!("plugin {name:?} already registered as {:?}", format!("{point:?}")));
    let is_in = |list: &[Enabled], name: &str| list.iter().any(|(p, _)| p.name() == name);
    let mut own: Vec<Enabled> = Vec::new();
    for p in &set.enabled {
        let plugin = known(registry, &p.name)?;
        if !plugin.points().contains(&point) {
            return fail(format!("plugin {:?} does not extend {point:?} plugin", p.name));
        }
        if is_in(&own, &p.name) {
            return twice(&p.name);
        }
        own.push((plugin, weight(p.weight)));
    }
    let all_off = set.disabled.iter().any(|n| n == "*");
    let in_multi = |plugin: &Registration| multi.iter().any(|(m, _)| m.name() == plugin.name());
    let mut out: Vec<Enabled> = own.iter().filter(|(p, _)| in_multi(p)).cloned().collect();
    let mut seen: Vec<Enabled> = Vec::new();
    for (plugin, w) in multi {
        let name = plugin.name();
        if !plugin.points().contains(&point) || all_off || set.disabled.iter().any(|n| n == name) {
            continue;
        }
        if is_in(&own, name) {
            continue;
        }
        if is_in(&seen, name) {
            return twice(name);
        }
        seen.push((Arc::clone(plugin), weight(*w)));
    }
    out.extend(seen);
    out.extend(own.into_iter().filter(|(p, _)| !in_multi(p)));
    Ok(out)
}

/// A profile: a name and what its plugins do.
#[derive(Clone, Debug)]
pub struct Profile {
    /// `schedulerName` of the pods it places.
    pub scheduler_name: String,
    /// Plugins by point.
    pub plugins: PluginSet,
    /// Arguments of the plugins.
    pub args: crate::args::Args,
    /// `percentageOfNodesToScore`; 0: all nodes.
    pub percentage_of_nodes_to_score: u8,
}

impl Default for PluginSet {
    fn default() -> Self {
        // The default list is valid: shown by the test below.
        Self::new(&Registry::in_tree(), &UserPlugins::default(), &FeatureGates::default())
            .unwrap_or_else(|_| Self { points: Vec::new() })
    }
}

impl Default for Profile {
    fn default() -> Self {
        Self {
            scheduler_name: "default-scheduler".to_owned(),
            plugins: PluginSet::default(),
            args: crate::args::Args::default(),
            percentage_of_nodes_to_score: 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn made(user: &UserPlugins) -> Result<PluginSet, ProfileError> {
        PluginSet::new(&Registry::in_tree(), user, &FeatureGates::default())
    }

    fn user(multi: UserSet, points: &[(&str, UserSet)]) -> UserPlugins {
        UserPlugins {
            multi_point: multi,
            points: points.iter().map(|(n, s)| ((*n).to_owned(), s.clone())).collect(),
        }
    }

    fn set(enabled: &[(&str, i32)], disabled: &[&str]) -> UserSet {
        UserSet {
            enabled: enabled.iter().map(|(n, w)| PluginRef { name: (*n).to_owned(), weight: *w }).collect(),
            disabled: disabled.iter().map(|n| (*n).to_owned()).collect(),
        }
    }

    fn names(s: &PluginSet, p: ExtensionPoint) -> Vec<(&str, i64)> {
        s.at(p).iter().map(|(p, w)| (p.name(), *w)).collect()
    }

    #[test]
    fn the_default_list_is_valid_and_weighted() {
        let s = made(&UserPlugins::default()).expect("valid");
        assert_eq!(s, PluginSet::default());
        assert_eq!(names(&s, ExtensionPoint::Score)[0], ("TaintToleration", 3));
        assert_eq!(s.at(ExtensionPoint::Filter).len(), 14);
    }

    /// The table of upstream's `getDefaultPlugins`: the order is that of the calls.
    #[test]
    fn the_defaults_are_upstreams() {
        let defaults = |gates: &[&'static str]| {
            let gates = gates.iter().copied().collect();
            let multi = merge(&Registry::in_tree(), &UserSet::default(), &gates).expect("valid");
            multi.iter().map(|(p, w)| (p.name().to_owned(), *w)).collect::<Vec<_>>()
        };
        let mut want = vec![
            ("SchedulingGates", 0),
            ("PrioritySort", 0),
            ("NodeUnschedulable", 0),
            ("NodeName", 0),
            ("TaintToleration", 3),
            ("NodeAffinity", 2),
            ("NodePorts", 0),
            ("NodeResourcesFit", 1),
            ("VolumeRestrictions", 0),
            ("NodeVolumeLimits", 0),
            ("VolumeBinding", 0),
            ("VolumeZone", 0),
            ("PodTopologySpread", 2),
            ("InterPodAffinity", 2),
            ("DynamicResources", 2),
            ("DefaultPreemption", 0),
            ("NodeResourcesBalancedAllocation", 1),
            ("ImageLocality", 1),
            ("DefaultBinder", 0),
            ("NodeDeclaredFeatures", 0),
        ];
        let named =
            |list: &[(&str, i32)]| list.iter().map(|(n, w)| ((*n).to_owned(), *w)).collect::<Vec<_>>();
        assert_eq!(defaults(&[]), named(&want));
        want.push(("GangScheduling", 0));
        assert_eq!(defaults(&["GangScheduling"]), named(&want));
        want.extend([("TopologyPlacementGenerator", 0), ("PodGroupPodsCount", 1)]);
        assert_eq!(defaults(&["GangScheduling", "TopologyAwareWorkloadScheduling"]), named(&want));
    }

    #[test]
    fn expansion_orders_overrides_first_and_extras_last() {
        let s = made(&user(
            set(&[], &["NodePorts"]),
            &[("filter", set(&[("NodePorts", 0), ("NodeAffinity", 0)], &["NodeName"]))],
        ))
        .expect("valid");
        let filter = names(&s, ExtensionPoint::Filter);
        assert_eq!(filter[0].0, "NodeAffinity");
        assert_eq!(filter.last().expect("not empty").0, "NodePorts");
        assert!(!filter.iter().any(|(n, _)| *n == "NodeName"));
        assert!(!names(&s, ExtensionPoint::PreFilter).iter().any(|(n, _)| *n == "NodePorts"));
    }

    #[test]
    fn placement_plugins_run_behind_their_gate() {
        let points = [ExtensionPoint::PlacementGenerate, ExtensionPoint::PlacementScore];
        let named = user(
            set(&[("TopologyPlacementGenerator", 0)], &[]),
            &[("placementScore", set(&[("PodGroupPodsCount", 3)], &[]))],
        );
        let off = made(&named).expect("valid");
        assert_eq!(points.map(|p| off.any(p)), [false, false]);
        let gates = FeatureGates::from_iter(["TopologyAwareWorkloadScheduling"]);
        let at = |user: &UserPlugins| {
            let on = PluginSet::new(&Registry::in_tree(), user, &gates).expect("valid");
            points.map(|p| names(&on, p).into_iter().map(|(n, w)| (n.to_owned(), w)).collect::<Vec<_>>())
        };
        let want = |weight| {
            [
                vec![("TopologyPlacementGenerator".to_owned(), 1)],
                vec![("PodGroupPodsCount".to_owned(), weight)],
            ]
        };
        assert_eq!((at(&UserPlugins::default()), at(&named)), (want(1), want(3)));
    }

    #[test]
    fn bad_sets_are_refused() {
        let cases = [
            (user(set(&[("Nope", 0)], &[]), &[]), "plugin \"Nope\" does not exist"),
            (user(set(&[], &["*"]), &[]), "no queue sort plugin is enabled"),
            (
                user(UserSet::default(), &[("score", set(&[("NodeName", 1)], &[]))]),
                "plugin \"NodeName\" does not extend Score plugin",
            ),
            (
                user(
                    UserSet::default(),
                    &[("score", set(&[("ImageLocality", 1), ("ImageLocality", 2)], &[]))],
                ),
                "plugin \"ImageLocality\" already registered as \"Score\"",
            ),
        ];
        for (plugins, want) in cases {
            assert_eq!(made(&plugins).expect_err(want).to_string(), want);
        }
    }
}

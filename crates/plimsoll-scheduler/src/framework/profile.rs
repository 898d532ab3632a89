//! Profiles: which plugins run at which point, in which order, with which weight (spec section 1.3).

use super::PluginId;
use PluginId as P;

/// Extension points at which plugins can be switched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Point {
    PreEnqueue,
    QueueSort,
    PreFilter,
    Filter,
    PostFilter,
    PreScore,
    Score,
    Reserve,
    Permit,
    PreBind,
    Bind,
    PostBind,
}

const POINTS: [(Point, &str); 12] = [
    (Point::PreEnqueue, "preEnqueue"),
    (Point::QueueSort, "queueSort"),
    (Point::PreFilter, "preFilter"),
    (Point::Filter, "filter"),
    (Point::PostFilter, "postFilter"),
    (Point::PreScore, "preScore"),
    (Point::Score, "score"),
    (Point::Reserve, "reserve"),
    (Point::Permit, "permit"),
    (Point::PreBind, "preBind"),
    (Point::Bind, "bind"),
    (Point::PostBind, "postBind"),
];

/// The points a plugin implements.
const fn implements(plugin: PluginId) -> &'static [Point] {
    use Point::{
        Bind, Filter, Permit, PostFilter, PreBind, PreEnqueue, PreFilter, PreScore, QueueSort, Reserve, Score,
    };
    match plugin {
        P::SchedulingGates => &[PreEnqueue],
        P::PrioritySort => &[QueueSort],
        P::NodeUnschedulable | P::NodeName => &[Filter],
        P::TaintToleration => &[Filter, PreScore, Score],
        P::NodeAffinity | P::NodeResourcesFit | P::PodTopologySpread | P::InterPodAffinity => {
            &[PreFilter, Filter, PreScore, Score]
        }
        P::NodePorts
        | P::VolumeRestrictions
        | P::NodeVolumeLimits
        | P::VolumeZone
        | P::NodeDeclaredFeatures => &[PreFilter, Filter],
        P::VolumeBinding => &[PreFilter, Filter, Reserve, PreBind],
        P::DynamicResources => &[PreEnqueue, PreFilter, Filter, PostFilter, Score, Reserve, PreBind],
        P::DefaultPreemption => &[PreEnqueue, PostFilter],
        P::NodeResourcesBalancedAllocation => &[PreScore, Score],
        P::ImageLocality => &[Score],
        P::DefaultBinder => &[Bind],
        P::GangScheduling => &[PreEnqueue, Permit],
        P::Extender => &[],
        #[cfg(test)]
        P::TestFirst | P::TestSecond => &[Reserve, Permit],
    }
}

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
    points: Vec<Vec<(PluginId, i64)>>,
}

/// The default multiPoint list with weights (spec section 1.3).
const DEFAULTS: [(PluginId, i32); 20] = [
    (P::SchedulingGates, 0),
    (P::PrioritySort, 0),
    (P::NodeUnschedulable, 0),
    (P::NodeName, 0),
    (P::TaintToleration, 3),
    (P::NodeAffinity, 2),
    (P::NodePorts, 0),
    (P::NodeResourcesFit, 1),
    (P::VolumeRestrictions, 0),
    (P::NodeVolumeLimits, 0),
    (P::VolumeBinding, 0),
    (P::VolumeZone, 0),
    (P::PodTopologySpread, 2),
    (P::InterPodAffinity, 2),
    (P::DynamicResources, 2),
    (P::DefaultPreemption, 0),
    (P::NodeResourcesBalancedAllocation, 1),
    (P::ImageLocality, 1),
    (P::DefaultBinder, 0),
    (P::NodeDeclaredFeatures, 0),
];

fn fail<T>(text: String) -> Result<T, ProfileError> {
    Err(ProfileError(text))
}

/// The user's multiPoint set merged with the defaults.
fn merge(user: &UserSet, gang_scheduling: bool) -> Result<Vec<(PluginId, i32)>, ProfileError> {
    let gated = gang_scheduling.then_some((P::GangScheduling, 0));
    let mut out: Vec<(PluginId, i32)> = Vec::new();
    let mut replaced = vec![false; user.enabled.len()];
    if !user.disabled.iter().any(|n| n == "*") {
        for (id, weight) in DEFAULTS.into_iter().chain(gated) {
            if user.disabled.iter().any(|n| n == id.name()) {
                continue;
            }
            match user.enabled.iter().position(|p| p.name == id.name()) {
                Some(at) => {
                    replaced[at] = true;
                    out.push((id, user.enabled[at].weight));
                }
                None => out.push((id, weight)),
            }
        }
    }
    for (p, done) in user.enabled.iter().zip(&replaced) {
        if *done {
            continue;
        }
        out.push((known(&p.name)?, p.weight));
    }
    Ok(out)
}

fn known(name: &str) -> Result<PluginId, ProfileError> {
    match PluginId::by_name(name) {
        Some(id) if id != P::Extender => Ok(id),
        _ => fail(format!("plugin {name:?} does not exist")),
    }
}

impl PluginSet {
    /// Expands what a user wrote into plugins by point.
    ///
    /// # Errors
    /// For unknown plugins, plugins that don't implement a point, and plugins enabled twice at a point.
    pub fn new(user: &UserPlugins) -> Result<Self, ProfileError> {
        Self::with_gates(user, false)
    }

    /// The same, with GangScheduling among the defaults where its feature gate is on.
    ///
    /// # Errors
    /// As [`PluginSet::new`].
    pub fn with_gates(user: &UserPlugins, gang_scheduling: bool) -> Result<Self, ProfileError> {
        let multi = merge(&user.multi_point, gang_scheduling)?;
        let empty = UserSet::default();
        let mut points = Vec::new();
        for (point, field) in POINTS {
            let set = user.points.iter().find(|(n, _)| n == field).map_or(&empty, |(_, s)| s);
            points.push(expand(point, &multi, set)?);
        }
        let set = Self { points };
        match set.at(Point::QueueSort).len() {
            1 => {}
            0 => return fail("no queue sort plugin is enabled".to_owned()),
            _ => return fail("only one queue sort plugin can be enabled".to_owned()),
        }
        if set.at(Point::Bind).is_empty() {
            return fail("at least one bind plugin is needed".to_owned());
        }
        Ok(set)
    }

    /// The plugins at a point.
    pub(crate) fn at(&self, point: Point) -> &[(PluginId, i64)] {
        self.points.get(point as usize).map_or(&[], |v| v)
    }

    /// Whether the plugin is enabled at the point of this name, as in the configuration file.
    pub fn enabled(&self, point: &str, plugin: PluginId) -> bool {
        POINTS
            .iter()
            .find(|(_, n)| *n == point)
            .is_some_and(|(p, _)| self.at(*p).iter().any(|(id, _)| *id == plugin))
    }
}

/// multiPoint expansion of one point (framework runtime `expandMultiPointPlugins`).
fn expand(
    point: Point,
    multi: &[(PluginId, i32)],
    set: &UserSet,
) -> Result<Vec<(PluginId, i64)>, ProfileError> {
    let weight = |w: i32| i64::from(if w == 0 { 1 } else { w });
    let mut own: Vec<(PluginId, i64)> = Vec::new();
    for p in &set.enabled {
        let id = known(&p.name)?;
        if !implements(id).contains(&point) {
            return fail(format!("plugin {:?} does not extend {point:?} plugin", p.name));
        }
        if own.iter().any(|(o, _)| *o == id) {
            return fail(format!("plugin {:?} already registered as {:?}", p.name, format!("{point:?}")));
        }
        own.push((id, weight(p.weight)));
    }
    let all_off = set.disabled.iter().any(|n| n == "*");
    let in_multi = |id: PluginId| multi.iter().any(|(m, _)| *m == id);
    let mut out: Vec<(PluginId, i64)> = own.iter().copied().filter(|(id, _)| in_multi(*id)).collect();
    let mut seen: Vec<PluginId> = Vec::new();
    for (id, w) in multi {
        if !implements(*id).contains(&point) || all_off || set.disabled.iter().any(|n| n == id.name()) {
            continue;
        }
        if own.iter().any(|(o, _)| o == id) {
            continue;
        }
        if seen.contains(id) {
            return fail(format!("plugin {:?} already registered as {:?}", id.name(), format!("{point:?}")));
        }
        seen.push(*id);
        out.push((*id, weight(*w)));
    }
    out.extend(own.into_iter().filter(|(id, _)| !in_multi(*id)));
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
    /// `percentageOfNodesToScore`; 0 looks at all nodes.
    pub percentage_of_nodes_to_score: u8,
}

impl Default for PluginSet {
    fn default() -> Self {
        // The default list is valid: shown by the test below.
        Self::new(&UserPlugins::default()).unwrap_or_else(|_| Self { points: Vec::new() })
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

    fn names(s: &PluginSet, p: Point) -> Vec<(&'static str, i64)> {
        s.at(p).iter().map(|(id, w)| (id.name(), *w)).collect()
    }

    #[test]
    fn the_default_list_is_valid_and_weighted() {
        let s = PluginSet::new(&UserPlugins::default()).expect("valid");
        assert_eq!(s, PluginSet::default());
        assert_eq!(names(&s, Point::Score)[0], ("TaintToleration", 3));
        assert_eq!(s.at(Point::Filter).len(), 14);
    }

    #[test]
    fn expansion_orders_overrides_first_and_extras_last() {
        let s = PluginSet::new(&user(
            set(&[], &["NodePorts"]),
            &[("filter", set(&[("NodePorts", 0), ("NodeAffinity", 0)], &["NodeName"]))],
        ))
        .expect("valid");
        let filter = names(&s, Point::Filter);
        assert_eq!(filter[0].0, "NodeAffinity");
        assert_eq!(filter.last().expect("not empty").0, "NodePorts");
        assert!(!filter.iter().any(|(n, _)| *n == "NodeName"));
        assert!(!names(&s, Point::PreFilter).iter().any(|(n, _)| *n == "NodePorts"));
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
            assert_eq!(PluginSet::new(&plugins).expect_err(want).to_string(), want);
        }
    }
}

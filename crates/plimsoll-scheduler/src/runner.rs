//! A profile with its plugins made, and their points after Score (upstream `framework/runtime/framework.go`).

use super::PreBindWork;
use super::cluster::{Cluster, PodId};
use super::extender::{self, Extender};
use super::framework::{
    AssumedPod, Code, Counts, ExtensionPoint, Handle, Incoming, PermitResult, Plugin, PluginId, PluginNames,
    PreBindResult, Profile, Registration, RemoteCall, Status, WaitingPods,
};
use super::metrics::{Meter, Point};
use plimsoll_state::collect::InsertEach as _;
use plimsoll_state::intern::{Interner, Sym};
use plimsoll_state::time::Duration;
use smallvec::SmallVec;
use std::collections::BTreeSet;
use std::sync::Arc;

/// A plugin of a profile, with its number.
#[derive(Debug)]
pub(crate) struct Made {
    pub id: PluginId,
    pub plugin: Arc<dyn Plugin>,
}

/// A profile with its plugins made.
#[derive(Debug)]
pub(crate) struct Runner {
    pub profile: Profile,
    pub name: Sym,
    pub names: Arc<PluginNames>,
    pub plugins: Vec<Made>,
    /// Positions in `plugins` by number of the plugin.
    by_id: Vec<Option<usize>>,
    pre_enqueue: Vec<usize>,
    queue_sort: Vec<usize>,
    pub pre_filter: Vec<usize>,
    /// Plugins at Filter that are not at PreFilter: they make their state, but restrict no nodes.
    pub filter_only: Vec<usize>,
    pub filter: Vec<usize>,
    pub post_filter: Vec<usize>,
    pub score: Vec<(usize, i64)>,
    /// Plugins at Score that are not at PreScore: they skip no pod.
    pub score_only: Vec<usize>,
    reserve: Vec<usize>,
    permit: Vec<usize>,
    pre_bind: Vec<usize>,
    /// Plugins that answer outside of the process, in the order of their calls.
    remote: Vec<usize>,
    /// Extenders first, as upstream's `extendersBinding`.
    pub bind: Vec<usize>,
    post_bind: Vec<usize>,
    /// At most one.
    pub placement_generate: Option<usize>,
    pub placement_score: Vec<(usize, i64)>,
    /// Whether the pods of a PodGroup are scheduled in one cycle.
    pub schedules_pod_groups: bool,
}

impl Runner {
    /// The profiles with their plugins; a plugin has the same number in all of them, and the one that it had `before`.
    pub fn all(
        profiles: &[Profile],
        extenders: &[Extender],
        strings: &mut Interner,
        before: Option<&PluginNames>,
    ) -> Vec<Self> {
        let number = |(number, extender)| extender::registration(number, extender);
        let extenders: Vec<Registration> = extenders.iter().enumerate().map(number).collect();
        let mut names = before.cloned().unwrap_or_default();
        let in_profiles = profiles.iter().flat_map(|p| p.plugins.all());
        in_profiles.map(|plugin| &**plugin).chain(&extenders).for_each(|plugin| {
            names.add(plugin.shared_name());
        });
        let names = Arc::new(names);
        profiles.iter().map(|p| Self::new(p.clone(), &names, &extenders, strings)).collect()
    }

    /// Whether any of the plugins reads whole objects.
    pub fn read_objects(runners: &[Self]) -> bool {
        runners.iter().flat_map(|runner| &runner.plugins).any(|made| made.plugin.reads_objects())
    }

    /// Keys of the annotations of nodes that the plugins read.
    pub fn node_annotations(runners: &[Self]) -> BTreeSet<String> {
        let plugins = runners.iter().flat_map(|runner| &runner.plugins);
        plugins.flat_map(|made| made.plugin.reads_node_annotations()).cloned().insert_each()
    }

    fn new(
        profile: Profile,
        names: &Arc<PluginNames>,
        extenders: &[Registration],
        strings: &mut Interner,
    ) -> Self {
        let mut plugins: Vec<Made> = Vec::new();
        let mut by_id = vec![None; names.len()];
        let in_profile = profile.plugins.all();
        for plugin in in_profile.into_iter().map(|plugin| &**plugin).chain(extenders) {
            let Some(id) = names.get(plugin.name()) else { continue };
            by_id[id.index()].get_or_insert(plugins.len());
            let handle = &mut Handle::new(id, plugin.name(), strings);
            plugins.push(Made { id, plugin: plugin.make(&profile.args, handle).into() });
        }
        let remote: Vec<usize> = (plugins.len() - extenders.len()..plugins.len()).collect();
        let at = |point: ExtensionPoint| -> Vec<(usize, i64)> {
            let position = |name: &str| by_id.get(names.get(name)?.index()).copied().flatten();
            profile.plugins.at(point).iter().filter_map(|(p, w)| Some((position(p.name())?, *w))).collect()
        };
        let indices = |point: ExtensionPoint| at(point).into_iter().map(|(i, _)| i).collect::<Vec<_>>();
        let (pre_filter, filter) = (indices(ExtensionPoint::PreFilter), indices(ExtensionPoint::Filter));
        let mut bind = remote.clone();
        bind.extend(indices(ExtensionPoint::Bind));
        Self {
            name: strings.intern(&profile.scheduler_name),
            names: Arc::clone(names),
            pre_enqueue: indices(ExtensionPoint::PreEnqueue),
            queue_sort: indices(ExtensionPoint::QueueSort),
            filter_only: apart(&pre_filter, filter.clone()),
            pre_filter: pre_filter_order(pre_filter, filter.clone()),
            filter,
            post_filter: indices(ExtensionPoint::PostFilter),
            score: at(ExtensionPoint::Score),
            score_only: apart(&indices(ExtensionPoint::PreScore), indices(ExtensionPoint::Score)),
            reserve: indices(ExtensionPoint::Reserve),
            permit: indices(ExtensionPoint::Permit),
            pre_bind: indices(ExtensionPoint::PreBind),
            bind,
            remote,
            post_bind: indices(ExtensionPoint::PostBind),
            placement_generate: indices(ExtensionPoint::PlacementGenerate).first().copied(),
            placement_score: at(ExtensionPoint::PlacementScore),
            schedules_pod_groups: profile.plugins.schedules_pod_groups(),
            plugins,
            by_id,
            profile,
        }
    }

    /// The plugin at a position.
    pub fn at(&self, position: usize) -> &Made {
        &self.plugins[position]
    }

    /// Whether there are plugins that answer outside of the process.
    pub fn has_remote(&self) -> bool {
        !self.remote.is_empty()
    }

    /// The plugins that answer outside of the process for a pod at an extension point, in order.
    pub fn remote(
        &self,
        point: ExtensionPoint,
        cluster: &Cluster,
        pod: PodId,
    ) -> impl Iterator<Item = (PluginId, RemoteCall)> {
        let made = self.remote.iter().map(|i| &self.plugins[*i]);
        made.filter_map(move |made| Some((made.id, made.plugin.remote(point, cluster, pod)?)))
    }

    /// The plugin that sorts the active queue.
    pub fn queue_sort(&self) -> Option<Arc<dyn Plugin>> {
        self.queue_sort.first().map(|i| Arc::clone(&self.plugins[*i].plugin))
    }

    /// Text of an attempt that a failing plugin ended (`running Filter plugin "NodeName": …`).
    pub fn error_text(&self, cluster: &Cluster, status: &Status, point: &str) -> String {
        let plugin = status.plugin.map_or("", |p| self.names.of(p));
        format!("running {point} plugin {plugin:?}: {}", status.message(&cluster.strings))
    }

    /// Runs Reserve (upstream `RunReservePluginsReserve`): the plugins that put something into `work`.
    ///
    /// # Errors
    /// The first status that is no success.
    pub fn run_reserve_plugins(
        &self,
        meter: &impl Meter,
        pod: &AssumedPod<'_>,
        work: &mut PreBindWork,
    ) -> Result<SmallVec<[PluginId; 2]>, Status> {
        let mut writers = SmallVec::new();
        let mut writes = work.writes();
        for made in self.reserve.iter().map(|i| &self.plugins[*i]) {
            let run = || made.plugin.reserve(pod, work);
            let status = meter.plugin(Point::Reserve, made.id, run, |s| s.code);
            if !status.is_success() {
                return Err(status.by(made.id));
            }
            if work.writes() > writes {
                writes = work.writes();
                writers.push(made.id);
            }
        }
        Ok(writers)
    }

    /// What the plugins at Reserve would give to a pod that does not exist yet.
    pub fn hold(&self, pod: &AssumedPod<'_>) -> PreBindWork {
        let mut work = PreBindWork::default();
        self.reserve.iter().for_each(|i| self.plugins[*i].plugin.hold(pod, &mut work));
        work
    }

    /// Runs Unreserve (upstream `RunReservePluginsUnreserve`): all plugins, the last one first.
    pub fn run_unreserve_plugins(&self, meter: &impl Meter, pod: &AssumedPod<'_>, waiting: &mut WaitingPods) {
        for made in self.reserve.iter().rev().map(|i| &self.plugins[*i]) {
            let run = || made.plugin.unreserve(pod, waiting);
            meter.plugin(Point::Unreserve, made.id, run, |()| Code::Success);
        }
    }

    /// Runs PostBind (upstream `RunPostBindPlugins`).
    pub fn run_post_bind_plugins(&self, meter: &impl Meter, pod: &AssumedPod<'_>) {
        let all = || {
            for made in self.post_bind.iter().map(|i| &self.plugins[*i]) {
                let run = || made.plugin.post_bind(pod);
                meter.plugin(Point::PostBind, made.id, run, |()| Code::Success);
            }
        };
        meter.point(Point::PostBind, all, |()| Code::Success);
    }

    /// Runs PreBind (upstream `RunPreBindPlugins`): the first plugin that wants the pod to wait or rejects it.
    pub fn run_pre_bind_plugins(
        &self,
        meter: &impl Meter,
        pod: &AssumedPod<'_>,
        work: &PreBindWork,
    ) -> Option<(PluginId, PreBindResult)> {
        let began = meter.read();
        let mut plugins = self.pre_bind.iter().map(|i| &self.plugins[*i]);
        let held = plugins.find_map(|made| {
            let began = meter.read();
            let result = made.plugin.pre_bind(pod, work);
            if meter.measures()
                && let Some(code) = pre_bind_code(&result)
            {
                meter.plugin_ran(Point::PreBind, made.id, code, began);
            }
            match result {
                PreBindResult::Success => None,
                held @ (PreBindResult::Wait { .. } | PreBindResult::Reject(_)) => Some((made.id, held)),
            }
        });
        if meter.measures()
            && let Some(code) = held.as_ref().map_or(Some(Code::Success), |(_, held)| pre_bind_code(held))
        {
            meter.point_took(Point::PreBind, code, meter.read().saturating_sub(began));
        }
        held
    }

    /// Permit: the plugins that want the pod to wait, or the first rejection.
    ///
    /// # Errors
    /// The status of the plugin that rejects the pod or fails.
    pub fn permit(
        &self,
        meter: &impl Meter,
        pod: &AssumedPod<'_>,
        waiting: &mut WaitingPods,
    ) -> Result<Vec<(PluginId, Duration)>, Status> {
        let mut holds = Vec::new();
        for made in self.permit.iter().map(|i| &self.plugins[*i]) {
            let run = || made.plugin.permit(pod, waiting);
            let code = |result: &PermitResult| match result {
                PermitResult::Allow => Code::Success,
                PermitResult::Wait(_) => Code::Wait,
                PermitResult::Reject(status) => status.code,
            };
            match meter.plugin(Point::Permit, made.id, run, code) {
                PermitResult::Allow => {}
                PermitResult::Wait(timeout) => holds.push((made.id, timeout)),
                PermitResult::Reject(status) => return Err(status.by(made.id)),
            }
        }
        Ok(holds)
    }

    /// Lets the plugins of Permit look at the pods that wait again.
    pub fn review(&self, cluster: &Cluster, waiting: &mut WaitingPods) {
        for i in &self.permit {
            self.plugins[*i].plugin.review(cluster, waiting);
        }
    }

    /// Whether any plugin scores.
    pub fn scores(&self) -> bool {
        !self.score.is_empty()
    }

    /// The plugin of this id, if the profile uses it.
    pub fn plugin(&self, id: PluginId) -> Option<&dyn Plugin> {
        self.by_id.get(id.index()).copied().flatten().map(|i| &*self.plugins[i].plugin)
    }

    /// On what the results for the pod depend.
    pub fn reach(&self, cluster: &Cluster, pod: &Incoming) -> Reach {
        let mut reach = Reach::Node;
        for plugin in self.plugins.iter().map(|p| &p.plugin) {
            if plugin.is_local(cluster, pod) {
                if reach == Reach::Node && plugin.reads_pod_labels() {
                    reach = Reach::Labels;
                }
                continue;
            }
            if !plugin.is_counted() {
                return Reach::Cluster;
            }
            reach = Reach::Domains;
        }
        reach
    }

    /// The same where nodes are seen without the pods of workloads: what each node by itself decides; `None`: more than that does.
    pub fn reach_alone(&self, cluster: &Cluster, pod: &Incoming) -> Option<Reach> {
        if cluster.to_come.contains_key(&pod.id) || self.plugins.iter().any(|p| p.plugin.follows_changes()) {
            return None;
        }
        Some(self.reach(cluster, pod)).filter(|reach| matches!(reach, Reach::Node | Reach::Labels))
    }

    /// For how many plugins pods elsewhere matter.
    pub fn layers_of(&self, cluster: &Cluster, pod: &Incoming) -> usize {
        self.plugins.iter().filter(|p| !p.plugin.is_local(cluster, pod)).count()
    }

    /// Empty counters of the plugins for which pods elsewhere matter, in filter order; `None`: one can't count.
    pub fn layers(&self, cluster: &Cluster, pod: &Incoming) -> Option<Vec<Layer>> {
        let mut out = Vec::new();
        for (i, Made { id, plugin }) in self.plugins.iter().enumerate() {
            if plugin.is_local(cluster, pod) {
                continue;
            }
            let weight = self.score.iter().find(|(s, _)| *s == i).map(|(_, w)| *w);
            let filters = self.filter.contains(&i);
            let counts = plugin.counts(cluster, pod)?;
            out.push(Layer { plugin: i, id: *id, counts, filters, weight, width: 0 });
        }
        out.sort_by_key(|l| self.filter.iter().position(|i| *i == l.plugin));
        Some(out)
    }

    /// PreEnqueue: the first plugin that keeps the pod out.
    pub fn pre_enqueue(&self, meter: &impl Meter, cluster: &Cluster, pod: PodId) -> Option<Status> {
        let code = |status: &Option<Status>| status.as_ref().map_or(Code::Success, |s| s.code);
        let run = |made: &Made| {
            let run = || made.plugin.pre_enqueue(cluster, pod);
            Some(meter.plugin(Point::PreEnqueue, made.id, run, code)?.by(made.id))
        };
        let all = || self.pre_enqueue.iter().map(|i| &self.plugins[*i]).find_map(run);
        meter.point(Point::PreEnqueue, all, code)
    }
}

/// The code of PreBind; `None`: the pod waits, and the run that ends its waiting counts, as upstream's only one.
const fn pre_bind_code(result: &PreBindResult) -> Option<Code> {
    match result {
        PreBindResult::Success => Some(Code::Success),
        PreBindResult::Wait { .. } => None,
        PreBindResult::Reject(status) => Some(status.code),
    }
}

/// On what verdicts and scores depend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reach {
    /// On the node alone.
    Node,
    /// On the labels and the namespace of the pod, too.
    Labels,
    /// On counts by topology domain, too.
    Domains,
    /// On anything.
    Cluster,
}

/// Counters of a plugin, and what they are for.
#[derive(Debug)]
pub(crate) struct Layer {
    /// Position of the plugin in the profile.
    pub plugin: usize,
    /// Its number.
    pub id: PluginId,
    pub counts: Box<dyn Counts>,
    /// Whether the plugin filters in this profile.
    pub filters: bool,
    /// Its weight, if it scores.
    pub weight: Option<i64>,
    /// How many coordinates it has.
    pub width: usize,
}

/// Plugins that only filter make their state first; their order among themselves does not matter.
fn pre_filter_order(pre_filter: Vec<usize>, filter: Vec<usize>) -> Vec<usize> {
    let mut out = apart(&pre_filter, filter);
    out.extend(pre_filter);
    out
}

/// Plugins of a point that are not at the one before it, which may skip a pod.
fn apart(before: &[usize], point: Vec<usize>) -> Vec<usize> {
    point.into_iter().filter(|i| !before.contains(i)).collect()
}

//! Pod specs, parsed once for all pods that share them.

use super::amounts::{self, Amounts, DEFAULT_MEMORY, DEFAULT_MILLI_CPU, Usage};
use super::labels::{Labels, NodeSelector, NodeTerm, Selector};
use super::ports::{self, HostPort};
use plimsoll_state::cast::signed;
use plimsoll_state::intern::{Interner, Map, Marks, Sym};
use plimsoll_state::model::requests::{PodResourcesOptions, pod_requests};
use plimsoll_state::model::{
    self, PodSpec, TaintEffect, TolerationOperator, UnsatisfiableAction, VolumeSource,
};
use std::sync::Arc;

/// A toleration over interned strings.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Toleration {
    key: Sym,
    exists: bool,
    value: Sym,
    effect: Option<TaintEffect>,
}

/// A taint over interned strings.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Taint {
    /// Key.
    pub key: Sym,
    /// Value.
    pub value: Sym,
    /// Effect.
    pub effect: TaintEffect,
}

impl Toleration {
    fn new(t: &model::Toleration, strings: &mut Interner) -> Self {
        Self {
            key: strings.intern(&t.key),
            exists: t.operator == TolerationOperator::Exists,
            value: strings.intern(&t.value),
            effect: t.effect,
        }
    }

    /// Whether it tolerates the taint (core/v1 `ToleratesTaint`).
    pub fn tolerates(&self, taint: &Taint) -> bool {
        self.effect.is_none_or(|e| e == taint.effect)
            && (self.key == Sym::EMPTY || self.key == taint.key)
            && (self.exists || self.value == taint.value)
    }

    /// Whether it can tolerate taints of the effect `PreferNoSchedule`.
    pub fn is_soft(&self) -> bool {
        self.effect.is_none_or(|e| e == TaintEffect::PreferNoSchedule)
    }
}

impl Taint {
    /// Marks what it holds.
    pub fn mark(&self, marks: &mut Marks) {
        let Self { key, value, effect: _ } = self;
        marks.all([key, value]);
    }
}

/// A term of affinity between pods.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Term {
    /// Selects the other pods; `None` matches none.
    pub selector: Option<Selector>,
    /// Whether the namespace of the pod that has the term counts (neither names nor selector given).
    pub own_namespace: bool,
    /// Namespaces by name.
    pub namespaces: Box<[Sym]>,
    /// Namespaces by label.
    pub namespace_selector: Option<Selector>,
    /// Topology key.
    pub key: Sym,
    /// Weight of a preferred term; 0 for required ones.
    pub weight: i64,
}

impl Term {
    fn new(t: &model::PodAffinityTerm, weight: i32, strings: &mut Interner) -> Self {
        Self {
            selector: t.selector.as_ref().map(|s| Selector::new(s, strings)),
            own_namespace: t.namespaces.is_empty() && t.namespace_selector.is_none(),
            namespaces: t.namespaces.iter().map(|n| strings.intern(n)).collect(),
            namespace_selector: t.namespace_selector.as_ref().map(|s| Selector::new(s, strings)),
            key: strings.intern(&t.topology_key),
            weight: i64::from(weight),
        }
    }
}

/// Required and preferred terms.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Terms {
    /// All must hold.
    pub required: Box<[Term]>,
    /// Better if they hold.
    pub preferred: Box<[Term]>,
}

impl Terms {
    fn new(a: Option<&model::PodAffinity>, strings: &mut Interner) -> Self {
        let Some(a) = a else { return Self::default() };
        Self {
            required: a.required.iter().map(|t| Term::new(t, 0, strings)).collect(),
            preferred: a.preferred.iter().map(|t| Term::new(&t.term, t.weight, strings)).collect(),
        }
    }

    /// Whether there is no term.
    pub fn is_empty(&self) -> bool {
        self.required.is_empty() && self.preferred.is_empty()
    }
}

/// A spread constraint.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Spread {
    /// Largest allowed difference.
    pub max_skew: i64,
    /// Topology key.
    pub key: Sym,
    /// `DoNotSchedule`.
    pub hard: bool,
    /// Selects the pods that are counted; `None` matches none.
    pub selector: Option<Selector>,
    /// At least 1.
    pub min_domains: i64,
    /// Leave out nodes that don't match the pod's node affinity.
    pub honor_affinity: bool,
    /// Leave out nodes with untolerated taints.
    pub honor_taints: bool,
    /// Labels of the pod that are added to the selector.
    pub label_keys: Box<[Sym]>,
}

impl Spread {
    /// Interns a constraint.
    pub fn new(c: &model::SpreadConstraint, strings: &mut Interner) -> Self {
        Self {
            max_skew: i64::from(c.max_skew),
            key: strings.intern(&c.topology_key),
            hard: c.when_unsatisfiable == UnsatisfiableAction::DoNotSchedule,
            selector: c.selector.as_ref().map(|s| Selector::new(s, strings)),
            min_domains: i64::from(c.min_domains.unwrap_or(1)),
            honor_affinity: c.honor_node_affinity,
            honor_taints: c.honor_node_taints,
            label_keys: c.match_label_keys.iter().map(|k| strings.intern(k)).collect(),
        }
    }
}

/// A weighted preference for nodes.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct PreferredNode {
    /// Weight.
    pub weight: i64,
    /// What is preferred.
    pub term: NodeTerm,
}

/// Interns preferences for nodes.
pub fn preferred_nodes(
    list: &[model::PreferredSchedulingTerm],
    strings: &mut Interner,
) -> Box<[PreferredNode]> {
    list.iter()
        .map(|p| PreferredNode { weight: i64::from(p.weight), term: NodeTerm::new(&p.term, strings) })
        .collect()
}

/// A pod spec, ready for use.
#[derive(Clone, Debug)]
pub struct Spec {
    /// The spec it was made from, without node name and gates. What [`Shapes::selecting`](super::Shapes::selecting) adds is in
    /// `node_selector` alone.
    pub source: Arc<PodSpec>,
    /// Profile.
    pub scheduler: Sym,
    /// Priority.
    pub priority: i32,
    /// `preemptionPolicy: Never`.
    pub never_preempts: bool,
    /// What the filters count.
    pub requests: Amounts,
    /// What the score of NodeResourcesFit counts: cpu and memory with defaults, no pod-level requests.
    pub scored: Amounts,
    /// What the pod occupies on a node while its status says nothing else.
    pub usage: Usage,
    /// Host ports.
    pub ports: Box<[HostPort]>,
    /// Labels a node must have.
    pub node_selector: Box<[(Sym, Sym)]>,
    /// Required affinity to nodes.
    pub node_required: Option<NodeSelector>,
    /// Preferred nodes.
    pub node_preferred: Box<[PreferredNode]>,
    /// Tolerations.
    pub tolerations: Box<[Toleration]>,
    /// Affinity to pods.
    pub affinity: Terms,
    /// Anti-affinity to pods.
    pub anti_affinity: Terms,
    /// Spread constraints.
    pub spread: Box<[Spread]>,
    /// Images of init and app containers, then of image volumes, with normalised names.
    pub images: Box<[Sym]>,
    /// How many of `images` are those of containers.
    pub container_images: usize,
    /// Node features the pod needs.
    pub features: Box<[&'static str]>,
}

impl Spec {
    /// Parses a spec.
    pub fn new(source: PodSpec, strings: &mut Interner) -> Self {
        let requests = pod_requests(&source, &PodResourcesOptions::default());
        let options = PodResourcesOptions {
            skip_pod_level: true,
            missing_cpu: Some(DEFAULT_MILLI_CPU),
            missing_memory: Some(DEFAULT_MEMORY),
            ..PodResourcesOptions::default()
        };
        let scored = pod_requests(&source, &options);
        let affinity = &source.affinity;
        let node = affinity.node.as_ref();
        let (images, container_images) = images(&source, strings);
        Self {
            scheduler: strings.intern(&source.scheduler_name),
            priority: source.priority,
            never_preempts: source.preemption_policy == model::PreemptionPolicy::Never,
            requests: Amounts::of_pod(&requests, strings),
            scored: Amounts::of_pod(&scored, strings),
            usage: amounts::usage(&source, None, strings),
            ports: ports::host_ports(&source, strings),
            node_selector: source
                .node_selector
                .iter()
                .map(|(k, v)| (strings.intern(k), strings.intern(v)))
                .collect(),
            node_required: node.and_then(|n| n.required.as_ref()).map(|r| NodeSelector::new(r, strings)),
            node_preferred: node.map_or_else(Box::default, |n| preferred_nodes(&n.preferred, strings)),
            tolerations: source.tolerations.iter().map(|t| Toleration::new(t, strings)).collect(),
            affinity: Terms::new(affinity.pod.as_ref(), strings),
            anti_affinity: Terms::new(affinity.anti.as_ref(), strings),
            spread: source.spread.iter().map(|c| Spread::new(c, strings)).collect(),
            images,
            container_images,
            features: super::features::required(&source),
            source: Arc::new(source),
        }
    }

    /// Whether pods elsewhere matter to the pod.
    pub fn depends_on_pods(&self) -> bool {
        let affinity = &self.source.affinity;
        affinity.pod.is_some() || affinity.anti.is_some() || !self.spread.is_empty()
    }

    /// Whether any toleration tolerates the taint.
    pub fn tolerates(&self, taint: &Taint) -> bool {
        self.tolerations.iter().any(|t| t.tolerates(taint))
    }

    /// Whether node selector and required node affinity accept a node.
    pub fn selects_node(&self, name: Sym, labels: &Labels, strings: &Interner) -> bool {
        labels.has_all(&self.node_selector)
            && self.node_required.as_ref().is_none_or(|r| r.matches(name, labels, strings))
    }
}

impl Toleration {
    fn mark(&self, marks: &mut Marks) {
        let Self { key, exists: _, value, effect: _ } = self;
        marks.all([key, value]);
    }
}

impl Terms {
    fn mark(&self, marks: &mut Marks) {
        for term in self.required.iter().chain(&self.preferred) {
            let Term { selector, own_namespace: _, namespaces, namespace_selector, key, weight: _ } = term;
            selector.iter().chain(namespace_selector).for_each(|s| s.mark(marks));
            marks.all(namespaces);
            marks.mark(*key);
        }
    }
}

impl Spread {
    fn mark(&self, marks: &mut Marks) {
        let Self {
            max_skew: _,
            key,
            hard: _,
            selector,
            min_domains: _,
            honor_affinity: _,
            honor_taints: _,
            label_keys,
        } = self;
        marks.mark(*key);
        marks.all(label_keys);
        selector.iter().for_each(|s| s.mark(marks));
    }
}

impl Spec {
    /// Marks what it holds.
    pub fn mark(&self, marks: &mut Marks) {
        let Self {
            source: _,
            scheduler,
            priority: _,
            never_preempts: _,
            requests,
            scored,
            usage,
            ports,
            node_selector,
            node_required,
            node_preferred,
            tolerations,
            affinity,
            anti_affinity,
            spread,
            images,
            container_images: _,
            features: _,
        } = self;
        marks.mark(*scheduler);
        [requests, scored].into_iter().for_each(|a| a.mark(marks));
        usage.mark(marks);
        ports.iter().for_each(|p| marks.mark(p.ip));
        marks.pairs(node_selector);
        node_required.iter().for_each(|r| r.mark(marks));
        node_preferred.iter().for_each(|p| p.term.mark(marks));
        tolerations.iter().for_each(|t| t.mark(marks));
        affinity.mark(marks);
        anti_affinity.mark(marks);
        spread.iter().for_each(|s| s.mark(marks));
        marks.all(images);
    }
}

/// Image names with `:latest` where there is neither tag nor digest (upstream `normalizedImageName` in `plugins/imagelocality/image_locality.go`).
pub fn normalized_image(name: &str) -> std::borrow::Cow<'_, str> {
    if name.rfind(':').map_or(-1, signed) <= name.rfind('/').map_or(-1, signed) {
        format!("{name}:latest").into()
    } else {
        name.into()
    }
}

fn images(spec: &PodSpec, strings: &mut Interner) -> (Box<[Sym]>, usize) {
    let containers = spec.init_containers.iter().chain(&spec.containers);
    let mut out: Vec<Sym> = containers.map(|c| strings.intern(&normalized_image(&c.image))).collect();
    let of_containers = out.len();
    for v in &spec.volumes {
        if let VolumeSource::Image { reference } = &v.source {
            out.push(strings.intern(&normalized_image(reference)));
        }
    }
    (out.into(), of_containers)
}

/// Labels by namespace name.
pub type NamespaceLabels = Map<Sym, Labels>;

//! Verdicts (spec section 2.1).

use plimsoll_state::intern::{Interner, Sym};
use smallvec::SmallVec;
use std::sync::Arc;

/// What a plugin says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Code {
    /// Go on.
    Success,
    /// Internal failure.
    Error,
    /// Rejected; preemption may help.
    Unschedulable,
    /// Rejected; removing pods can't help.
    Unresolvable,
    /// Permit only: hold the pod.
    Wait,
    /// The plugin has nothing to say.
    Skip,
    /// Rejected, waiting for an external component.
    Pending,
}

impl Code {
    /// Whether the pod or node is rejected.
    pub const fn is_rejected(self) -> bool {
        matches!(self, Self::Unschedulable | Self::Unresolvable | Self::Pending)
    }

    /// Upstream's name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Success => "Success",
            Self::Error => "Error",
            Self::Unschedulable => "Unschedulable",
            Self::Unresolvable => "UnschedulableAndUnresolvable",
            Self::Wait => "Wait",
            Self::Skip => "Skip",
            Self::Pending => "Pending",
        }
    }
}

macro_rules! plugins {
    ($($(#[$meta:meta])* $name:ident),+ $(,)?) => {
        /// The plugins, in the order of upstream's default list.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[expect(missing_docs, reason = "the names are upstream's and speak for themselves")]
        pub enum PluginId { $($(#[$meta])* $name),+ }

        impl PluginId {
            /// All plugins, and the name under which extenders reject.
            pub const ALL: &[Self] = &[$($(#[$meta])* Self::$name),+];

            /// Upstream's name.
            pub const fn name(self) -> &'static str {
                match self { $($(#[$meta])* Self::$name => stringify!($name)),+ }
            }

            /// The plugin of this name.
            pub fn by_name(name: &str) -> Option<Self> {
                match name { $($(#[$meta])* stringify!($name) => Some(Self::$name),)+ _ => None }
            }
        }
    };
}

plugins!(
    SchedulingGates,
    PrioritySort,
    NodeUnschedulable,
    NodeName,
    TaintToleration,
    NodeAffinity,
    NodePorts,
    NodeResourcesFit,
    VolumeRestrictions,
    NodeVolumeLimits,
    VolumeBinding,
    VolumeZone,
    PodTopologySpread,
    InterPodAffinity,
    DynamicResources,
    DefaultPreemption,
    NodeResourcesBalancedAllocation,
    ImageLocality,
    DefaultBinder,
    NodeDeclaredFeatures,
    GangScheduling,
    Extender,
    #[cfg(test)]
    TestFirst,
    #[cfg(test)]
    TestSecond,
);

/// One reason, rendered only when somebody reads it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Reason {
    /// A fixed text.
    Text(&'static str),
    /// A text with `{}` for each name.
    With(&'static str, [Sym; 2]),
    /// Any other text.
    Owned(Arc<str>),
}

impl Reason {
    /// The text.
    pub fn render(&self, strings: &Interner) -> String {
        match self {
            Self::Text(t) => (*t).to_owned(),
            Self::With(template, names) => {
                let mut out = String::new();
                let mut names = names.iter();
                for (i, part) in template.split("{}").enumerate() {
                    if i > 0
                        && let Some(name) = names.next()
                    {
                        out.push_str(strings.text(*name));
                    }
                    out.push_str(part);
                }
                out
            }
            Self::Owned(t) => t.to_string(),
        }
    }
}

/// A verdict with its reasons.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Status {
    /// What it says.
    pub code: Code,
    /// Who says it; `None`: the framework itself.
    pub plugin: Option<PluginId>,
    /// Why.
    pub reasons: SmallVec<[Reason; 1]>,
}

impl Status {
    /// Go on.
    pub fn success() -> Self {
        Self { code: Code::Success, plugin: None, reasons: SmallVec::new() }
    }

    /// A verdict with one reason.
    pub fn new(code: Code, plugin: PluginId, reason: Reason) -> Self {
        Self { code, plugin: Some(plugin), reasons: SmallVec::from_buf([reason]) }
    }

    /// `Unschedulable` with a fixed text.
    pub fn unschedulable(plugin: PluginId, text: &'static str) -> Self {
        Self::new(Code::Unschedulable, plugin, Reason::Text(text))
    }

    /// `UnschedulableAndUnresolvable` with a fixed text.
    pub fn unresolvable(plugin: PluginId, text: &'static str) -> Self {
        Self::new(Code::Unresolvable, plugin, Reason::Text(text))
    }

    /// An internal failure.
    pub fn error(plugin: PluginId, text: &str) -> Self {
        Self::new(Code::Error, plugin, Reason::Owned(text.into()))
    }

    /// Whether it says go on.
    pub fn is_success(&self) -> bool {
        self.code == Code::Success
    }

    /// The reasons as texts, sorted.
    pub fn texts(&self, strings: &Interner) -> Vec<String> {
        let mut out: Vec<String> = self.reasons.iter().map(|r| r.render(strings)).collect();
        out.sort_unstable();
        out
    }

    /// The reasons joined as upstream's `Status.Message`.
    pub fn message(&self, strings: &Interner) -> String {
        let all: Vec<String> = self.reasons.iter().map(|r| r.render(strings)).collect();
        all.join(", ")
    }
}

//! Status: the result of a plugin for a pod or a node (upstream
//! `staging/src/k8s.io/kube-scheduler/framework/interface.go`).

use super::PluginId;
use plimsoll_state::intern::{Interner, Sym};
use smallvec::SmallVec;
use std::sync::Arc;

/// Code of a status.
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
    /// The plugin is skipped for the pod.
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

/// One reason, rendered only when it is reported.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Reason {
    /// A fixed text.
    Text(&'static str),
    /// A text with `{}` for each name.
    With(&'static str, [Sym; 2]),
    /// Any other text.
    Owned(Arc<str>),
}

impl From<&'static str> for Reason {
    fn from(text: &'static str) -> Self {
        Self::Text(text)
    }
}

impl From<String> for Reason {
    fn from(text: String) -> Self {
        Self::Owned(text.into())
    }
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
    /// Its code.
    pub code: Code,
    /// The plugin, set by the framework as upstream does (`Status.SetPlugin`); `None`: the framework itself.
    pub(crate) plugin: Option<PluginId>,
    /// Why.
    pub reasons: SmallVec<[Reason; 1]>,
}

impl Status {
    /// Go on.
    pub fn success() -> Self {
        Self { code: Code::Success, plugin: None, reasons: SmallVec::new() }
    }

    /// A verdict with one reason.
    pub fn new(code: Code, reason: impl Into<Reason>) -> Self {
        Self { code, plugin: None, reasons: SmallVec::from_buf([reason.into()]) }
    }

    /// `Unschedulable`: the pod can't run there, and preemption may help.
    pub fn unschedulable(reason: impl Into<Reason>) -> Self {
        Self::new(Code::Unschedulable, reason)
    }

    /// `UnschedulableAndUnresolvable`: the pod can't run there, and removing pods can't help.
    pub fn unresolvable(reason: impl Into<Reason>) -> Self {
        Self::new(Code::Unresolvable, reason)
    }

    /// `Error`: an internal failure.
    pub fn error(reason: impl Into<Reason>) -> Self {
        Self::new(Code::Error, reason)
    }

    /// The same status with the plugin that returned it; success stays without one.
    #[must_use]
    pub(crate) fn by(mut self, plugin: PluginId) -> Self {
        if !self.is_success() {
            self.plugin = Some(plugin);
        }
        self
    }

    /// Whether the code is Success.
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

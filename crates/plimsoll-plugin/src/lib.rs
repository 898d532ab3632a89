//! SDK for scheduler plugins in WebAssembly with Plimsoll's columnar interface (`docs/plugins.md`, `wit/plugin.wit`).
//!
//! A plugin is a type that implements [`Plugin`]. Its [`Manifest`] says what it reads. The host keeps that of all nodes in
//! columns, asks for many nodes in one call, and keeps the results until something changes that the plugin reads. A plugin
//! keeps no state: what pods hold is counted by the host ([`Plugin::charges`]).
//!
//! ```
//! use plimsoll_plugin::{Kit, Manifest, Nodes, Plugin, Pod};
//!
//! /// Prefers nodes that draw little power.
//! struct Watts;
//!
//! impl Plugin for Watts {
//!     fn configure(_: &str) -> Result<Self, String> {
//!         Ok(Self)
//!     }
//!
//!     fn manifest(&self) -> Manifest {
//!         Manifest::new().scores().node_number("watts")
//!     }
//!
//!     fn score(&self, _: &Pod, nodes: &Nodes<'_>, node: usize) -> i64 {
//!         nodes.number(0, node).map_or(0, |watts| 100 - watts / 10)
//!     }
//! }
//!
//! let mut kit = Kit::<Watts>::new("").unwrap();
//! kit.node("hot", &[], &[("watts", "400")]);
//! kit.node("cool", &[], &[("watts", "200")]);
//! assert_eq!(kit.scores(&kit.pod()), [("hot".to_owned(), 60), ("cool".to_owned(), 80)]);
//! ```
//!
//! `export!(Watts)` makes a guest of it: `cargo build --release --target wasm32-unknown-unknown` of a crate with
//! `crate-type = ["cdylib"]`.

#[cfg(target_arch = "wasm32")]
#[doc(hidden)]
pub mod guest;
#[cfg(not(target_arch = "wasm32"))]
mod kit;
mod manifest;
mod pod;
#[cfg(not(target_arch = "wasm32"))]
mod table;
mod workload;

#[cfg(not(target_arch = "wasm32"))]
pub use kit::{Kit, KitPod, Placed};
pub use manifest::{Manifest, Normalization};
pub use pod::{Charge, Pod, PodReader, encode_charges};
#[cfg(not(target_arch = "wasm32"))]
pub use table::Table;
pub use workload::{Flavor, PodSet, Ruling, Workload, decode_flavors, encode_flavors};

/// Why a pod is not scheduled, or not yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Rejection {
    /// The plugin failed: the attempt ends with an error.
    Error(String),
    /// Pods that leave may help.
    Unschedulable(String),
    /// Pods that leave can't help.
    Unresolvable(String),
}

impl Rejection {
    /// Upstream's code of the status.
    pub const fn code(&self) -> i32 {
        match self {
            Self::Error(_) => 1,
            Self::Unschedulable(_) => 2,
            Self::Unresolvable(_) => 3,
        }
    }

    /// The reason.
    pub fn reason(&self) -> &str {
        match self {
            Self::Error(text) | Self::Unschedulable(text) | Self::Unresolvable(text) => text,
        }
    }
}

/// Outcome of Permit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Permit {
    /// The pod may be bound.
    Allow,
    /// The pod waits on its node for at most so many milliseconds. The host asks again when pods come or leave.
    Wait(u32),
    /// The pod is not to run there.
    Reject(Rejection),
}

/// A scheduler plugin. The host calls only what the manifest names.
///
/// The result of each function depends on its arguments and on the configuration, on nothing else: results are kept.
pub trait Plugin: Sized {
    /// Reads `config` of the plugin's arguments.
    ///
    /// # Errors
    /// What is wrong with it, for the user.
    fn configure(text: &str) -> Result<Self, String>;

    /// What the plugin does and reads. Asked once.
    fn manifest(&self) -> Manifest;

    /// What a pod holds from Reserve on, by key, until it is gone. The host counts all pods that have a node. The name and
    /// the node of the pod are not known here.
    fn charges(&self, _pod: &Pod) -> Vec<Charge> {
        Vec::new()
    }

    /// PreFilter: whether the pod can run on any node, as far as the pod itself and the counters go.
    ///
    /// # Errors
    /// Why it can't.
    fn pre_filter(&self, _pod: &Pod) -> Result<(), Rejection> {
        Ok(())
    }

    /// Filter: `None` lets the pod run on the node; otherwise the number of one of [`Manifest::reasons`].
    fn filter(&self, _pod: &Pod, _nodes: &Nodes<'_>, _node: usize) -> Option<u8> {
        None
    }

    /// Score: more is better; 0 to 100, unless the manifest normalizes.
    fn score(&self, _pod: &Pod, _nodes: &Nodes<'_>, _node: usize) -> i64 {
        0
    }

    /// Reserve: the pod has a node ([`Pod::node`]) and is counted.
    ///
    /// # Errors
    /// Why the pod is taken off the node again.
    fn reserve(&self, _pod: &Pod) -> Result<(), Rejection> {
        Ok(())
    }

    /// Permit: whether the pod may be bound now.
    fn permit(&self, _pod: &Pod) -> Permit {
        Permit::Allow
    }

    /// PostBind: the pod is bound.
    fn post_bind(&self, _pod: &Pod) {}

    /// Whether a workload that waits for quota may be admitted, and when it is its turn. Asked when the workload changes.
    fn rule(&self, _workload: &Workload) -> Ruling {
        Ruling::default()
    }

    /// Flavors of a higher score are tried first for a workload, then those that come first in the ClusterQueue. Asked when the
    /// workload or a flavor changes.
    fn score_flavor(&self, _workload: &Workload, _flavor: &Flavor) -> i32 {
        0
    }

    /// Among candidates for preemption of Kueue's policies those of a lower number are preempted first, whatever their
    /// priority. Asked when the workload gets quota.
    fn victim_order(&self, _workload: &Workload) -> i32 {
        0
    }
}

/// The nodes, in columns in the order of the manifest.
#[derive(Clone, Copy, Debug, Default)]
pub struct Nodes<'a> {
    /// Allocatable amounts of resources.
    pub allocatable: &'a [&'a [i64]],
    /// What the pods on a node request, of the same resources.
    pub requested: &'a [&'a [i64]],
    /// Labels as numbers; [`Nodes::NONE`] where there is none.
    pub numbers: &'a [&'a [i64]],
    /// Labels as codes of a dictionary, 0 where there is none.
    pub labels: &'a [&'a [u32]],
    /// Codes of all taints of a node: `key=value:Effect` with commas between, in order.
    pub taints: &'a [u32],
    /// Annotations as codes, 0 where there is none.
    pub annotations: &'a [&'a [u32]],
    /// Annotations as numbers; [`Nodes::NONE`] where there is none.
    pub annotation_numbers: &'a [&'a [i64]],
    /// The texts of codes.
    pub texts: Texts<'a>,
}

/// The dictionary of codes.
#[derive(Clone, Copy, Debug, Default)]
pub enum Texts<'a> {
    /// Texts by code, from 1 on.
    List(&'a [String]),
    /// The host has them.
    #[default]
    Host,
}

impl Nodes<'_> {
    /// In a column of numbers: the node has no such label or annotation, or its value is no integer.
    pub const NONE: i64 = i64::MIN;

    /// The number in a label of a node.
    pub fn number(&self, column: usize, node: usize) -> Option<i64> {
        Some(self.numbers[column][node]).filter(|n| *n != Self::NONE)
    }

    /// The number in an annotation of a node.
    pub fn annotation_number(&self, column: usize, node: usize) -> Option<i64> {
        Some(self.annotation_numbers[column][node]).filter(|n| *n != Self::NONE)
    }

    /// The text of a code; `None` for 0.
    pub fn text(&self, code: u32) -> Option<String> {
        match self.texts {
            Texts::List(texts) => texts.get(code.checked_sub(1)? as usize).cloned(),
            #[cfg(target_arch = "wasm32")]
            Texts::Host => guest::text(code),
            #[cfg(not(target_arch = "wasm32"))]
            Texts::Host => None,
        }
    }
}

/// Makes a guest of a plugin: the functions that the host calls. Elsewhere than on wasm32 it makes nothing.
#[cfg(target_arch = "wasm32")]
#[macro_export]
macro_rules! export {
    ($plugin:ty) => {
        thread_local! {
            static GUEST: $crate::guest::Guest<$plugin> = Default::default();
        }

        #[unsafe(no_mangle)]
        extern "C" fn plimsoll_plugin_v1() {}

        #[unsafe(no_mangle)]
        extern "C" fn alloc(len: u32) -> u32 {
            $crate::guest::alloc(len)
        }

        #[unsafe(no_mangle)]
        extern "C" fn configure(at: u32, len: u32) -> i32 {
            GUEST.with(|guest| guest.configure(at, len))
        }

        #[unsafe(no_mangle)]
        extern "C" fn manifest() -> u64 {
            GUEST.with(|guest| guest.manifest())
        }

        #[unsafe(no_mangle)]
        extern "C" fn columns(at: u32, rows: u32) {
            GUEST.with(|guest| guest.columns(at, rows))
        }

        #[unsafe(no_mangle)]
        extern "C" fn charges(at: u32, len: u32) -> u64 {
            GUEST.with(|guest| guest.charges(at, len))
        }

        #[unsafe(no_mangle)]
        extern "C" fn pre_filter(at: u32, len: u32) -> i32 {
            GUEST.with(|guest| guest.pre_filter(at, len))
        }

        #[unsafe(no_mangle)]
        extern "C" fn filter(rows: u32, n: u32, out: u32) -> i32 {
            GUEST.with(|guest| guest.filter(rows, n, out))
        }

        #[unsafe(no_mangle)]
        extern "C" fn score(rows: u32, n: u32, out: u32) -> i32 {
            GUEST.with(|guest| guest.score(rows, n, out))
        }

        #[unsafe(no_mangle)]
        extern "C" fn reserve(at: u32, len: u32) -> i32 {
            GUEST.with(|guest| guest.reserve(at, len))
        }

        #[unsafe(no_mangle)]
        extern "C" fn permit(at: u32, len: u32) -> u64 {
            GUEST.with(|guest| guest.permit(at, len))
        }

        #[unsafe(no_mangle)]
        extern "C" fn post_bind(at: u32, len: u32) {
            GUEST.with(|guest| guest.post_bind(at, len))
        }

        #[unsafe(no_mangle)]
        extern "C" fn workload(at: u32, len: u32) -> u64 {
            GUEST.with(|guest| guest.workload(at, len))
        }

        #[unsafe(no_mangle)]
        extern "C" fn flavor(at: u32, len: u32) -> u64 {
            GUEST.with(|guest| guest.flavor(at, len))
        }

        #[unsafe(no_mangle)]
        extern "C" fn victim(at: u32, len: u32) -> i32 {
            GUEST.with(|guest| guest.victim(at, len))
        }
    };
}

/// Makes a guest of a plugin: the functions that the host calls. Elsewhere than on wasm32 it makes nothing.
#[cfg(not(target_arch = "wasm32"))]
#[macro_export]
macro_rules! export {
    ($plugin:ty) => {};
}

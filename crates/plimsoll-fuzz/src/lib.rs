//! Fuzz targets: what is read from users and the network must never panic or run away, whatever it is.
//!
//! Each target is a plain function in [`TARGETS`]. `tests/bounded.rs` runs them all for a bounded number of mutated
//! seeds on stable Rust; `fuzz/` at the top of the repository wraps the same functions for cargo-fuzz.

mod cursor;
mod mutate;
mod seeds;
mod targets;

pub use cursor::Cursor;
pub use mutate::Mutator;

/// Longest input of a target, in bytes; longer ones are cut.
pub const MAX_INPUT: usize = 64 * 1024;

/// A function that takes any bytes, with inputs to start from.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// Name, also of the wrapper in `fuzz/fuzz_targets`.
    pub name: &'static str,
    /// Runs the code under test; panics when it is wrong.
    pub run: fn(&[u8]),
    /// Inputs to start from.
    pub seeds: fn() -> Vec<Vec<u8>>,
    /// How much longer than reading a quantity one run takes; the bounded run divides its iterations by it.
    pub cost: u32,
}

/// All targets.
pub const TARGETS: &[Target] = &[
    Target { name: "scheduler_config", run: targets::config::scheduler, seeds: seeds::scheduler, cost: 10 },
    Target { name: "kueue_config", run: targets::config::kueue, seeds: seeds::kueue, cost: 10 },
    Target { name: "quantity", run: targets::text::quantity, seeds: seeds::quantities, cost: 1 },
    Target { name: "label_selector", run: targets::text::labels, seeds: seeds::label_selectors, cost: 1 },
    Target { name: "field_selector", run: targets::text::fields, seeds: seeds::field_selectors, cost: 1 },
    Target { name: "node_selector", run: targets::text::nodes, seeds: seeds::node_selectors, cost: 2 },
    Target { name: "object", run: targets::object::placement, seeds: seeds::placement_objects, cost: 5 },
    Target { name: "kueue_object", run: targets::object::queueing, seeds: seeds::queueing_objects, cost: 5 },
    Target { name: "snapshot", run: targets::snapshot::placement, seeds: seeds::snapshots, cost: 100 },
    Target { name: "admission", run: targets::snapshot::admission, seeds: seeds::admissions, cost: 100 },
    Target { name: "body", run: targets::api::body, seeds: seeds::bodies, cost: 10 },
    Target { name: "protobuf", run: targets::api::protobuf, seeds: seeds::messages, cost: 5 },
    Target { name: "patch", run: targets::api::patches, seeds: seeds::patches, cost: 5 },
    Target { name: "apply", run: targets::api::applied, seeds: seeds::configurations, cost: 10 },
    Target { name: "expression", run: targets::api::expression, seeds: seeds::expressions, cost: 10 },
    Target { name: "continue_token", run: targets::text::token, seeds: seeds::tokens, cost: 2 },
    Target { name: "guest_module", run: targets::guests::module, seeds: seeds::modules, cost: 20 },
    Target { name: "guest_calls", run: targets::guests::calls, seeds: seeds::noise, cost: 20 },
    Target { name: "engine", run: targets::engine::run, seeds: seeds::noise, cost: 50 },
];

/// The target of this name.
pub fn target(name: &str) -> Option<&'static Target> {
    TARGETS.iter().find(|t| t.name == name)
}

//! Deterministic simulation: the engine, unchanged, with everything around it in virtual time, seeded and
//! single-threaded.
//!
//! - [`scenario`]: what a run is made of, as data, and scenarios from seeds.
//! - [`api`]: a model of the Kubernetes API; [`network`] what goes wrong on the way to it.
//! - [`process`]: the asynchronous shell of `plimsoll run` around the product's own code; it can end at any step.
//! - [`users`]: who works with the cluster; [`cluster`]: the controllers and kubelets it has anyway.
//! - [`check`]: what must hold after every step, recounted from the objects.
//! - [`measure`]: what jobs got of the nodes, and when.
//! - [`world`] plays them; [`run`](run::run) runs a scenario and [`shrink`](shrink::shrink) makes one that fails short.
//!
//! The same scenario gives the same run, byte for byte.

pub mod agenda;
pub mod api;
pub mod check;
pub mod cluster;
pub mod dice;
pub mod measure;
pub mod network;
pub mod outcome;
pub mod process;
pub mod run;
pub mod scenario;
pub mod shrink;
pub mod users;
pub mod world;

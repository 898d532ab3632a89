//! The controllers on a real server, without a network: objects go in, and what becomes of them is checked.

#![allow(clippy::unwrap_used, clippy::panic)]

mod cronjobs;
mod deletion;
mod deployments;
mod events;
mod harness;
mod jobs;
mod quotas;
mod support;
mod volumes;
mod workloads;

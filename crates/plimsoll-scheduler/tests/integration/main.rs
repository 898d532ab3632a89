//! Plugins from outside the crate.

mod foreign_lifecycle;
mod foreign_plugin;
mod reload;

//! The program as its users have it, one module for each subject. A single executable: each more of them links the whole
//! program once more. What is tested runs in processes of its own.

mod common;

mod configuration;
mod deploy;
mod describe;
mod expressions;
mod extenders;
mod failure_recovery;
mod faults;
mod guests;
mod import;
mod install;
mod job_kinds;
mod kueue_manager;
mod kueue_site;
mod logging;
mod monitoring;
mod multikueue;
mod multikueue_elastic;
mod multikueue_three;
mod multikueue_versions;
mod old_versions;
mod plugins;
mod queue;
mod quickstart;
mod quota_loans;
mod real_apiserver;
mod real_cluster;
mod recovery;
mod reload;
mod run;
mod run_stop;
mod run_windows;
mod scenarios;
mod shards;
mod simulated;
mod soak;
mod supervision;
mod uninstall;
mod up_data;
mod up_roles;
mod visibility;

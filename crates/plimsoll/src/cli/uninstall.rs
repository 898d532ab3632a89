//! Arguments of `plimsoll uninstall`.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use super::parse::duration;

/// `plimsoll uninstall`.
#[derive(Debug, Args)]
#[command(after_help = "\
Uninstall, and show first what that changes:
  plimsoll uninstall --dry-run
  plimsoll uninstall

Then delete the namespace, with the Secrets in it:
  kubectl delete namespace plimsoll-system")]
pub struct Uninstall {
    /// Kubeconfig of the cluster [default: as kubectl].
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// Context in the kubeconfig.
    #[arg(long)]
    pub context: Option<String>,
    /// Namespace that Plimsoll is installed in.
    #[arg(long, default_value = plimsoll_api::webhooks::NAMESPACE, value_name = "NAME")]
    pub namespace: String,
    /// Maximum time to wait until Plimsoll's pods have ended.
    #[arg(long, default_value = "2m", value_name = "DURATION", value_parser = duration)]
    pub timeout: Duration,
    /// Print what would be deleted and released, and change nothing.
    #[arg(long)]
    pub dry_run: bool,
}

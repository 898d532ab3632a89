//! Metrics and health of this process.

use plimsoll_client::Supervisor;
use plimsoll_runtime::metrics::{self, HealthState};
use tokio_util::sync::CancellationToken;

use crate::{cli, listen};

/// Serves them, if that was asked for; gives the URL.
pub async fn start(
    address: cli::Bind,
    health_state: &HealthState,
    supervisor: &Supervisor,
    stop: &CancellationToken,
) -> anyhow::Result<Option<String>> {
    let Some(address) = address else { return Ok(None) };
    let listener = listen::listen(address, "--metrics-bind-address").await?;
    let url = format!("http://{}", listen::reachable(listener.local_addr()?));
    supervisor
        .spawn_vital("the metrics server", metrics::serve(listener, health_state.clone(), stop.clone()));
    Ok(Some(url))
}

//! Configurations of clients, from kubeconfigs and service accounts.

use kube::Config;
use kube::config::{Cluster, KubeConfigOptions, Kubeconfig, KubeconfigError};

/// The configuration of a context of a kubeconfig. Where its cluster has no `proxy-url`, kube takes the proxy of the environment,
/// whatever `NO_PROXY` says; connections look there themselves.
///
/// # Errors
/// When the kubeconfig can't be used.
pub async fn from_kubeconfig(
    file: Kubeconfig,
    options: &KubeConfigOptions,
) -> Result<Config, KubeconfigError> {
    let url = cluster(&file, options).and_then(|cluster| cluster.proxy_url.as_deref());
    let has_proxy = url.is_some_and(|url| !url.is_empty());
    let mut config = Config::from_custom_kubeconfig(file, options).await?;
    if !has_proxy {
        config.proxy_url = None;
    }
    Ok(config)
}

/// The configuration of a context of the user's kubeconfig; where there is none, that of the pod's service account.
///
/// # Errors
/// Why the kubeconfig can't be used, where there is no service account either.
pub async fn infer(options: &KubeConfigOptions) -> Result<Config, KubeconfigError> {
    let read = match Kubeconfig::read() {
        Ok(file) => from_kubeconfig(file, options).await,
        Err(e) => Err(e),
    };
    read.or_else(|e| Config::incluster().map_err(|_| e))
}

fn cluster<'a>(file: &'a Kubeconfig, options: &KubeConfigOptions) -> Option<&'a Cluster> {
    let context = options.context.as_ref().or(file.current_context.as_ref())?;
    let context = file.contexts.iter().find(|named| named.name == *context)?.context.as_ref()?;
    let name = options.cluster.as_ref().unwrap_or(&context.cluster);
    file.clusters.iter().find(|named| named.name == *name)?.cluster.as_ref()
}

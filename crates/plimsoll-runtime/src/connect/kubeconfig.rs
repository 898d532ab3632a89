//! Configurations of clients, from kubeconfigs and service accounts.

use std::path::PathBuf;

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
    let cluster = cluster(&file, options);
    let url = cluster.and_then(|cluster| cluster.proxy_url.as_deref());
    let has_proxy = url.is_some_and(|url| !url.is_empty());
    let in_file = cluster.filter(|cluster| cluster.certificate_authority_data.is_none());
    let authority = in_file.and_then(|cluster| cluster.certificate_authority.clone());
    let mut config = Config::from_custom_kubeconfig(file, options).await?;
    if !has_proxy {
        config.proxy_url = None;
    }
    // kube reads the file again, as client-go does.
    config.root_cert_file = authority.map(PathBuf::from);
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

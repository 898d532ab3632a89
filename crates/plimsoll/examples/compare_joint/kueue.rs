//! Kueue's manager and kube-scheduler on this machine: definitions and webhooks of Kueue's manifests, with the webhooks at a
//! port of the loopback instead of a Service.

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use plimsoll_api::json;
use plimsoll_api::resource::{NAMESPACES, Resource};
use plimsoll_apiserver::http::tls::Credentials;
use plimsoll_client::rest::Api;
use serde_json::{Value, json};

use super::starting::{REQUESTS_PER_SECOND, Starting, create, free_port, pods_ready};

const DEFINITIONS: Resource = Resource {
    api_version: "apiextensions.k8s.io/v1",
    plural: "customresourcedefinitions",
    kind: "CustomResourceDefinition",
};
const MUTATING: Resource = Resource {
    api_version: "admissionregistration.k8s.io/v1",
    plural: "mutatingwebhookconfigurations",
    kind: "MutatingWebhookConfiguration",
};
const VALIDATING: Resource = Resource {
    api_version: "admissionregistration.k8s.io/v1",
    plural: "validatingwebhookconfigurations",
    kind: "ValidatingWebhookConfiguration",
};

/// Webhooks that the manager serves with the integration of Jobs alone, without the letter that says which kind they are.
const WEBHOOKS: [&str; 9] = [
    "admissioncheck",
    "clusterqueue",
    "cohort",
    "job",
    "localqueue",
    "resourceflavor",
    "topology",
    "workload",
    "workloadpriorityclass",
];

/// Where the manager reads the certificate of its metrics when it does not make its own; no flag names another place
/// (Kueue, `cmd/kueue/main.go`).
const METRICS_CERTIFICATES: &str = "/etc/kueue/metrics/certs";

/// Starts both, and waits until the manager's webhooks are served.
///
/// # Errors
/// A program ends, or can't be prepared.
pub async fn start(starting: &mut Starting<'_>, api: &Api) -> anyhow::Result<()> {
    let (Some(peers), Some(manifests)) = (&starting.options.peers, &starting.options.kueue_manifests) else {
        anyhow::bail!("no --peers or no --kueue-manifests");
    };
    let (peers, manifests) = (peers.clone(), manifests.clone());
    let port = free_port()?;
    let (certificates, authority) = certificates(starting.dir)?;
    install(api, &manifests, port, &authority).await?;
    let configuration = configuration(port, &certificates, starting.options.speed)?;
    let file = starting.dir.join("config.yaml");
    std::fs::write(&file, configuration.to_string())?;
    let args =
        ["--config".into(), file.display().to_string(), "--feature-gates=VisibilityOnDemand=false".into()];
    starting.spawn("kueue-manager", &peers.join("kueue-manager"), &args)?;
    let kubeconfig = starting.kubeconfig.display();
    let args = [
        format!("--kubeconfig={kubeconfig}"),
        format!("--authentication-kubeconfig={kubeconfig}"),
        format!("--authorization-kubeconfig={kubeconfig}"),
        "--leader-elect=false".into(),
        "--bind-address=127.0.0.1".into(),
        format!("--secure-port={}", free_port()?),
        format!("--kube-api-qps={REQUESTS_PER_SECOND}"),
        format!("--kube-api-burst={}", 2 * REQUESTS_PER_SECOND),
    ];
    starting.spawn("kube-scheduler", &peers.join("kube-scheduler"), &args)?;
    let served = async |s: &Starting<'_>| s.said("kueue-manager").contains("Serving webhook server");
    starting.until("webhooks of kueue-manager", served).await
}

/// A certificate for the loopback: its directory, and the authority's.
fn certificates(dir: &Path) -> anyhow::Result<(PathBuf, String)> {
    let pki = dir.join("pki");
    Credentials::load_or_create(&pki, &[])?;
    let (certificate, key) = (pki.join("server.crt"), pki.join("server.key"));
    let copy = |to: &Path| -> anyhow::Result<()> {
        let made = std::fs::create_dir_all(to).and_then(|()| {
            std::fs::copy(&certificate, to.join("tls.crt"))?;
            std::fs::copy(&key, to.join("tls.key"))
        });
        made.map(drop).with_context(|| format!("a certificate in {}", to.display()))
    };
    copy(&pki)?;
    let metrics = Path::new(METRICS_CERTIFICATES);
    if !metrics.join("tls.crt").exists() {
        copy(metrics)?;
    }
    Ok((pki.clone(), std::fs::read_to_string(pki.join("ca.crt"))?))
}

/// Base64, as `caBundle` wants it.
fn base64(bytes: &[u8]) -> String {
    use base64::Engine as _;
    base64::engine::general_purpose::STANDARD.encode(bytes)
}

/// Points a webhook to the loopback.
fn at_port(client: &mut Value, port: u16, authority: &str) {
    let path = json::text(client, &["service", "path"]);
    let path = if path.is_empty() { "/" } else { path };
    *client =
        json!({"url": format!("https://127.0.0.1:{port}{path}"), "caBundle": base64(authority.as_bytes())});
}

/// Whether the manager serves a webhook, such as `mjob.kb.io`.
fn is_served(webhook: &Value) -> bool {
    let name = json::text(webhook, &["name"]).split('.').next().unwrap_or_default();
    name.get(1..).is_some_and(|name| WEBHOOKS.contains(&name))
}

/// A manifest as it is created here; `None` for what is not needed: the manager runs as administrator, outside of the cluster.
fn here(mut object: Value, port: u16, authority: &str) -> Option<(Resource, Value)> {
    match json::text(&object, &["kind"]) {
        "Namespace" => Some((NAMESPACES, object)),
        "CustomResourceDefinition" => {
            let webhook = &mut object["spec"]["conversion"]["webhook"]["clientConfig"];
            if webhook.is_object() {
                at_port(webhook, port, authority);
            } else if let Some(spec) = object["spec"].as_object_mut() {
                spec.remove("conversion");
            }
            Some((DEFINITIONS, object))
        }
        kind @ ("MutatingWebhookConfiguration" | "ValidatingWebhookConfiguration") => {
            let resource = if kind == MUTATING.kind { MUTATING } else { VALIDATING };
            if let Some(webhooks) = object["webhooks"].as_array_mut() {
                webhooks.retain(is_served);
                webhooks.iter_mut().for_each(|w| at_port(&mut w["clientConfig"], port, authority));
            }
            Some((resource, object))
        }
        _ => None,
    }
}

/// Creates Kueue's namespace, definitions and webhooks. The server has Kueue's kinds already: their definitions are replaced.
async fn install(api: &Api, manifests: &Path, port: u16, authority: &str) -> anyhow::Result<()> {
    let text = std::fs::read_to_string(manifests).with_context(|| manifests.display().to_string())?;
    let all = serde_saphyr::from_multiple::<Value>(&text).with_context(|| manifests.display().to_string())?;
    let mut definitions = Vec::new();
    for (resource, mut object) in all.into_iter().filter_map(|o| here(o, port, authority)) {
        let name = json::name(&object).to_owned();
        if let Some(there) = api.find(resource, "", &name).await? {
            object["metadata"]["resourceVersion"] = there["metadata"]["resourceVersion"].clone();
            api.replace(resource, &object).await.with_context(|| name.clone())?;
        } else {
            create(api, resource, &object).await?;
        }
        if resource == DEFINITIONS {
            definitions.push(name);
        }
    }
    for name in definitions {
        while !json::is_true(&api.get(DEFINITIONS, "", &name).await?, "Established") {
            tokio::time::sleep(std::time::Duration::from_millis(100)).await;
        }
    }
    Ok(())
}

fn configuration(port: u16, certificates: &Path, speed: f64) -> anyhow::Result<Value> {
    let address = || Ok::<_, anyhow::Error>(format!("127.0.0.1:{}", free_port()?));
    Ok(json!({
        "apiVersion": "config.kueue.x-k8s.io/v1beta2", "kind": "Configuration", "namespace": "kueue-system",
        "health": {"healthProbeBindAddress": address()?}, "metrics": {"bindAddress": address()?},
        "webhook": {"port": port, "host": "127.0.0.1", "certDir": certificates.display().to_string()},
        "leaderElection": {"leaderElect": false}, "internalCertManagement": {"enable": false},
        // As in the manifests.
        "controller": {"groupKindConcurrency": {
            "Job.batch": 5, "Pod": 5, "Workload.kueue.x-k8s.io": 10, "LocalQueue.kueue.x-k8s.io": 5,
            "Cohort.kueue.x-k8s.io": 1, "ClusterQueue.kueue.x-k8s.io": 5, "ResourceFlavor.kueue.x-k8s.io": 1,
        }},
        "clientConnection": {"qps": REQUESTS_PER_SECOND, "burst": 2 * REQUESTS_PER_SECOND},
        "integrations": {"frameworks": ["batch/job"]},
        "waitForPodsReady": pods_ready(speed),
    }))
}

//! Calls of HTTP extenders (kube-scheduler's `HTTPExtender`, protocol `kube-scheduler/extender/v1`).
//!
//! Bodies use Go's field names as keys; answers are read without regard to case, as Go does.

use std::sync::Arc;
use std::time::Duration;

use kube::Client;
use kube::config::{KubeConfigOptions, Kubeconfig};
use plimsoll_api::json as get;
use plimsoll_scheduler::{Extender, ExtenderAnswer, ExtenderCall, ExtenderVictims, PodRef};
use serde_json::{Map, Value, json};
use tokio::sync::OnceCell;

use crate::api::{Api, NODES, PODS};
use crate::connect;

/// The extenders of a configuration, each with its connection.
#[derive(Clone, Debug, Default)]
pub struct Extenders {
    list: Arc<Vec<Remote>>,
}

struct Remote {
    settings: Extender,
    client: OnceCell<Client>,
}

impl std::fmt::Debug for Remote {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Remote").field("settings", &self.settings).finish_non_exhaustive()
    }
}

type Answer = Result<ExtenderAnswer, String>;

impl Extenders {
    /// Without connections yet.
    pub fn new(list: &[Extender]) -> Self {
        let remote = |e: &Extender| Remote { settings: e.clone(), client: OnceCell::new() };
        Self { list: Arc::new(list.iter().map(remote).collect()) }
    }

    /// Asks an extender; objects it wants to see are read from `api`.
    ///
    /// # Errors
    /// What the extender said, or why it could not be asked, in the words of events.
    pub async fn ask(&self, api: &Api, extender: usize, pod: &PodRef, what: &ExtenderCall) -> Answer {
        let Some(remote) = self.list.get(extender) else { return Err("no such extender".to_owned()) };
        match what {
            ExtenderCall::Filter(nodes) => remote.filter(api, pod, nodes).await,
            ExtenderCall::Prioritize(nodes) => remote.prioritize(api, pod, nodes).await,
            ExtenderCall::Preempt(plans) => remote.preempt(api, pod, plans).await,
            ExtenderCall::Bind(node) => remote.bind(pod, node).await,
        }
    }
}

/// A field by its Go name.
fn field<'a>(object: &'a Map<String, Value>, name: &str) -> Option<&'a Value> {
    let found = object
        .get(name)
        .or_else(|| object.iter().find(|(k, _)| k.eq_ignore_ascii_case(name)).map(|(_, value)| value));
    found.filter(|v| !v.is_null())
}

fn texts(value: Option<&Value>) -> Vec<(String, String)> {
    let map = value.and_then(Value::as_object).into_iter().flatten();
    map.map(|(k, v)| (k.clone(), v.as_str().unwrap_or_default().to_owned())).collect()
}

/// The error that an answer carries.
fn refused(answer: &Map<String, Value>) -> Result<(), String> {
    match field(answer, "Error").and_then(Value::as_str) {
        Some(text) if !text.is_empty() => Err(text.to_owned()),
        _ => Ok(()),
    }
}

impl Remote {
    /// The settings as a kubeconfig: kube knows how to make a connection from that.
    fn kubeconfig(&self) -> Value {
        let (e, tls) = (&self.settings, &self.settings.tls);
        let [cert_file, key_file, ca_file] = &tls.files;
        let [cert, key, ca] = &tls.data;
        let no_authority = ca.is_empty() && ca_file.is_empty();
        let insecure = tls.insecure || (e.enable_https && no_authority);
        let some = |text: &String| (!text.is_empty()).then(|| text.clone());
        json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "extender",
            "contexts": [{"name": "extender", "context": {"cluster": "extender", "user": "extender"}}],
            "clusters": [{"name": "extender", "cluster": {
                "server": e.url_prefix.trim_end_matches('/'),
                "insecure-skip-tls-verify": insecure,
                "tls-server-name": some(&tls.server_name),
                "certificate-authority": some(ca_file), "certificate-authority-data": some(ca),
            }}],
            "users": [{"name": "extender", "user": {
                "client-certificate": some(cert_file), "client-certificate-data": some(cert),
                "client-key": some(key_file), "client-key-data": some(key),
            }}],
        })
    }

    async fn connect(&self) -> Result<Client, String> {
        let file: Kubeconfig = serde_json::from_value(self.kubeconfig()).map_err(|e| e.to_string())?;
        let config = connect::from_kubeconfig(file, &KubeConfigOptions::default()).await;
        connect::client(config.map_err(|e| e.to_string())?).map_err(|e| e.to_string())
    }

    /// POST to a verb; anything but success is an error.
    async fn send(&self, verb: &str, body: &Value) -> Result<Value, String> {
        let url = format!("{}/{verb}", self.settings.url_prefix.trim_end_matches('/'));
        let request = http::Request::post(format!("/{verb}"))
            .header(http::header::CONTENT_TYPE, "application/json")
            .body(body.to_string().into_bytes())
            .map_err(|e| e.to_string())?;
        let timeout = Duration::from_nanos(u64::try_from(self.settings.timeout.0).unwrap_or(0));
        let sent = async {
            let client = self.client.get_or_try_init(|| self.connect()).await?;
            client.request_text(request).await.map_err(|e| match e {
                kube::Error::Api(status) => {
                    format!("failed {verb} with extender at URL {url}, code {}", status.code)
                }
                other => format!("Post {url:?}: {other}"),
            })
        };
        let text = match tokio::time::timeout(timeout, sent).await {
            Ok(text) => text?,
            Err(_) => return Err(format!("Post {url:?}: context deadline exceeded")),
        };
        serde_json::from_str(&text).map_err(|e| e.to_string())
    }

    async fn send_for_object(&self, verb: &str, body: &Value) -> Result<Map<String, Value>, String> {
        match self.send(verb, body).await? {
            Value::Object(map) => Ok(map),
            _ => Err(format!("the answer to {verb} is no object")),
        }
    }

    /// `ExtenderArgs`.
    async fn arguments(&self, api: &Api, pod: &PodRef, nodes: &[String]) -> Result<Value, String> {
        let object = api.get(PODS, &pod.namespace, &pod.name).await.map_err(|e| e.to_string())?;
        if self.settings.node_cache_capable {
            return Ok(json!({"Pod": object, "Nodes": null, "NodeNames": nodes}));
        }
        let wanted: std::collections::HashSet<&str> = nodes.iter().map(String::as_str).collect();
        let mut list = api.get_path(&NODES.collection("")).await.map_err(|e| e.to_string())?;
        if let Some(items) = list.get_mut("items").and_then(Value::as_array_mut) {
            items.retain(|n| wanted.contains(get::name(n)));
        }
        Ok(json!({"Pod": object, "Nodes": list, "NodeNames": null}))
    }

    async fn filter(&self, api: &Api, pod: &PodRef, nodes: &[String]) -> Answer {
        let args = self.arguments(api, pod, nodes).await?;
        let answer = self.send_for_object(&self.settings.filter_verb, &args).await?;
        refused(&answer)?;
        let names = field(&answer, "NodeNames").and_then(Value::as_array);
        let items = field(&answer, "Nodes").and_then(|n| n.get("items")).and_then(Value::as_array);
        let nodes = match names.filter(|_| self.settings.node_cache_capable) {
            Some(names) => names.iter().filter_map(|n| n.as_str().map(str::to_owned)).collect(),
            None => items.into_iter().flatten().map(|n| get::name(n).to_owned()).collect(),
        };
        Ok(ExtenderAnswer::Filter {
            nodes,
            failed: texts(field(&answer, "FailedNodes")),
            unresolvable: texts(field(&answer, "FailedAndUnresolvableNodes")),
        })
    }

    async fn prioritize(&self, api: &Api, pod: &PodRef, nodes: &[String]) -> Answer {
        let args = self.arguments(api, pod, nodes).await?;
        let answer = self.send(&self.settings.prioritize_verb, &args).await?;
        let one = |row: &Value| {
            let row = row.as_object()?;
            let score = field(row, "Score").and_then(Value::as_i64).unwrap_or(0);
            Some((field(row, "Host")?.as_str()?.to_owned(), score))
        };
        Ok(ExtenderAnswer::Prioritize(answer.as_array().into_iter().flatten().filter_map(one).collect()))
    }

    /// `ExtenderPreemptionArgs`.
    async fn preempt(&self, api: &Api, pod: &PodRef, plans: &[ExtenderVictims]) -> Answer {
        let object = api.get(PODS, &pod.namespace, &pod.name).await.map_err(|e| e.to_string())?;
        let meta = self.settings.node_cache_capable;
        let mut victims = Map::new();
        for plan in plans {
            let mut pods = Vec::new();
            for victim in &plan.pods {
                pods.push(if meta {
                    json!({"UID": victim.uid})
                } else {
                    let found = api.get(PODS, &victim.namespace, &victim.name).await;
                    found.map_err(|e| e.to_string())?
                });
            }
            let row = json!({"Pods": pods, "NumPDBViolations": plan.violations});
            victims.insert(plan.node.clone(), row);
        }
        let (full, short) = if meta { (Value::Null, victims.into()) } else { (victims.into(), Value::Null) };
        let args = json!({"Pod": object, "NodeNameToVictims": full, "NodeNameToMetaVictims": short});
        let answer = self.send_for_object(&self.settings.preempt_verb, &args).await?;
        let rows = field(&answer, "NodeNameToMetaVictims").and_then(Value::as_object);
        let one = |(node, row): (&String, &Value)| {
            let empty = Map::new();
            let row = row.as_object().unwrap_or(&empty);
            let pods = field(row, "Pods").and_then(Value::as_array).into_iter().flatten();
            let uid = |p: &Value| field(p.as_object()?, "UID")?.as_str().map(str::to_owned);
            let violations = field(row, "NumPDBViolations").and_then(Value::as_i64).unwrap_or(0);
            (node.clone(), pods.filter_map(uid).collect(), violations)
        };
        Ok(ExtenderAnswer::Preempt(rows.into_iter().flatten().map(one).collect()))
    }

    async fn bind(&self, pod: &PodRef, node: &str) -> Answer {
        let args =
            json!({"PodName": pod.name, "PodNamespace": pod.namespace, "PodUID": pod.uid, "Node": node});
        let answer = self.send_for_object(&self.settings.bind_verb, &args).await?;
        refused(&answer)?;
        Ok(ExtenderAnswer::Bound)
    }
}

//! ClusterProfiles (KEP-4322) as kubeconfigs of worker clusters, by the exec plugins of the configuration (KEP-5339; gate
//! `MultiKueueClusterProfile`; upstream's `cluster-inventory-api/pkg/access`, `BuildConfigFromCP`).
//!
//! A plugin runs beside the look at clusters, so that one that hangs holds up no other cluster. What it answers is a kubeconfig
//! like that of a Secret: while it stays the same, the connection stands.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use plimsoll_api::kueue::AccessProvider;
use plimsoll_api::{json, timestamp};
use plimsoll_client::discovery::Groups;
use plimsoll_client::optional;
use plimsoll_client::reflector::{Delta, Reflector};
use serde_json::{Value, json};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::api::{Api, Resource};
use crate::clock;
use crate::connect::exec::{PATIENCE, Plugin};

/// ClusterProfiles.
const CLUSTER_PROFILES: Resource = Resource {
    api_version: "multicluster.x-k8s.io/v1alpha1",
    plural: "clusterprofiles",
    kind: "ClusterProfile",
};
const BAD: &str = "BadClusterProfile";
/// How long before the end of its credentials a plugin is asked for new ones.
const AHEAD: Duration = Duration::from_secs(60);
/// When a plugin is asked again whose credentials say nothing of their end, and one that failed.
const AGAIN: (Duration, Duration) = (Duration::from_secs(5 * 60), Duration::from_secs(30));

/// A kubeconfig, or reason and message of why there is none.
pub type Loaded = Result<Vec<u8>, (&'static str, String)>;

#[derive(Debug, Default)]
struct Seen {
    listed: bool,
    by_name: BTreeMap<String, Value>,
    access: BTreeMap<String, Access>,
}

/// What a plugin has answered for a ClusterProfile.
#[derive(Debug)]
struct Access {
    /// Plugin and cluster that it was asked about.
    input: Input,
    asks: bool,
    /// When it is asked again.
    next: Instant,
    answer: Option<Loaded>,
}

#[derive(Clone, Debug, PartialEq)]
struct Input {
    provider: AccessProvider,
    cluster: Value,
}

/// Last seen ClusterProfiles; cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Profiles {
    seen: Arc<Mutex<Seen>>,
}

impl Profiles {
    fn with<T>(&self, f: impl FnOnce(&mut Seen) -> T) -> T {
        f(&mut self.seen.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// The kubeconfig of a ClusterProfile; `None`: it is not known yet, and `changed` tells when it is.
    pub fn kubeconfig(
        &self,
        name: &str,
        providers: &[AccessProvider],
        changed: &Arc<Notify>,
    ) -> Option<Loaded> {
        let (input, answer) = self.with(|seen| {
            if !seen.listed {
                return None;
            }
            let Some(profile) = seen.by_name.get(name) else {
                seen.access.remove(name);
                let problem = format!("ClusterProfile.multicluster.x-k8s.io {name:?} not found");
                return Some((None, Some(Err((BAD, problem)))));
            };
            let input = match input(name, profile, providers) {
                Ok(input) => input,
                Err(problem) => return Some((None, Some(Err((BAD, problem))))),
            };
            let now = Instant::now();
            let known = seen.access.get_mut(name).filter(|known| known.input == input);
            let Some(known) = known else {
                let access = Access { input: input.clone(), asks: true, next: now, answer: None };
                seen.access.insert(name.to_owned(), access);
                return Some((Some(input), None));
            };
            let ask = !known.asks && known.next <= now;
            known.asks |= ask;
            Some((ask.then_some(input), known.answer.clone()))
        })?;
        if let Some(input) = input {
            self.ask(name.to_owned(), input, Arc::clone(changed));
        }
        answer
    }

    /// Runs a plugin, and keeps its answer. What it has answered before holds while it fails.
    fn ask(&self, name: String, input: Input, changed: Arc<Notify>) {
        let profiles = self.clone();
        tokio::task::spawn_blocking(move || {
            let credential = run(&input.provider, &input.cluster, PATIENCE);
            profiles.with(|seen| {
                let Some(known) = seen.access.get_mut(&name).filter(|known| known.input == input) else {
                    return;
                };
                known.asks = false;
                match credential {
                    Ok(credential) => {
                        known.next = Instant::now() + lasts(&credential["status"]);
                        known.answer = Some(Ok(kubeconfig(&input.cluster, &credential["status"])));
                    }
                    Err(problem) => {
                        tracing::warn!(profile = name, problem, "no credentials of a worker cluster");
                        known.next = Instant::now() + AGAIN.1;
                        if !matches!(known.answer, Some(Ok(_))) {
                            known.answer = Some(Err(("ClientConnectionFailed", problem)));
                        }
                    }
                }
            });
            changed.notify_one();
        });
    }

    /// Follows the ClusterProfiles of a namespace while they are served, until stopped.
    pub async fn follow(self, api: Api, namespace: String, changed: Arc<Notify>, stop: CancellationToken) {
        const VERSIONS: &[Resource] = &[CLUSTER_PROFILES];
        let groups = Groups::new(api.clone());
        let reflector = Reflector { namespace, required: false, ..Reflector::new(api, CLUSTER_PROFILES) };
        optional::run(reflector, VERSIONS, groups, stop, Sink { profiles: self, changed }).await;
    }
}

struct Sink {
    profiles: Profiles,
    changed: Arc<Notify>,
}

impl optional::Sink for Sink {
    fn served(&mut self, _: Option<Resource>) {}

    fn delta(&mut self, _: Resource, delta: Delta<'_>) {
        self.profiles.with(|seen| match delta {
            Delta::Upsert { meta, bytes } => {
                let profile = serde_json::from_slice(bytes).unwrap_or_default();
                seen.by_name.insert(meta.name.to_string(), profile);
            }
            Delta::Delete { name, .. } => drop(seen.by_name.remove(name)),
            Delta::Synced { .. } => seen.listed = true,
            Delta::Absent => seen.by_name.clear(),
        });
        self.changed.notify_one();
    }
}

/// The first plugin of the configuration that a ClusterProfile names, and the cluster as that is told about it.
fn input(name: &str, profile: &Value, providers: &[AccessProvider]) -> Result<Input, String> {
    if providers.is_empty() {
        return Err("no access provider configured".to_owned());
    }
    // The deprecated field comes last.
    let fields = ["accessProviders", "credentialProviders"];
    let named = |provider: &AccessProvider| {
        let mut all = fields.iter().flat_map(|field| json::list(profile, &["status", field]));
        all.find(|own| own["name"] == provider.name.as_str()).map(|own| own["cluster"].clone())
    };
    let found = providers.iter().find_map(|provider| Some((provider.clone(), named(provider)?)));
    let (provider, cluster) =
        found.ok_or_else(|| format!("no matching cluster accessor found for cluster profile {name:?}"))?;
    Ok(Input { provider, cluster })
}

/// Runs a plugin, which has so much time; its ExecCredential.
fn run(provider: &AccessProvider, cluster: &Value, patience: Duration) -> Result<Value, String> {
    let plugin = Plugin {
        command: &provider.command,
        args: &provider.args,
        env: provider.env.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect(),
        api_version: &provider.api_version,
        install_hint: &provider.install_hint,
        cluster: provider.provide_cluster_info.then(|| told(cluster)),
        interactive: false,
    };
    plugin.run(patience)
}

/// `spec.cluster` of an ExecCredential.
fn told(cluster: &Value) -> Value {
    let mut told = part(cluster);
    let extensions = json::list(cluster, &["extensions"]);
    if let Some(own) = extensions.iter().find(|e| e["name"] == "client.authentication.k8s.io/exec") {
        told["config"] = own["extension"].clone();
    }
    told
}

/// What is used of a cluster: whatever else a ClusterProfile says, certificates are verified.
fn part(cluster: &Value) -> Value {
    let fields = ["server", "certificate-authority-data", "proxy-url"];
    let named = fields.into_iter().filter(|field| cluster[*field].as_str().is_some_and(|s| !s.is_empty()));
    named.map(|field| (field.to_owned(), cluster[field].clone())).collect::<serde_json::Map<_, _>>().into()
}

fn kubeconfig(cluster: &Value, status: &Value) -> Vec<u8> {
    let mut user = json!({});
    if let Some(token) = status["token"].as_str() {
        user["token"] = json!(token);
    }
    for (from, to) in
        [("clientCertificateData", "client-certificate-data"), ("clientKeyData", "client-key-data")]
    {
        if let Some(pem) = status[from].as_str() {
            user[to] = json!(BASE64_STANDARD.encode(pem));
        }
    }
    let file = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "profile",
        "clusters": [{"name": "profile", "cluster": part(cluster)}],
        "users": [{"name": "profile", "user": user}],
        "contexts": [{"name": "profile", "context": {"cluster": "profile", "user": "profile"}}],
    });
    file.to_string().into_bytes()
}

/// When a plugin is asked again.
fn lasts(status: &Value) -> Duration {
    let Some(end) = timestamp::parse(json::text(status, &["expirationTimestamp"])) else { return AGAIN.0 };
    let left = u64::try_from(end.since(clock::now()).0).unwrap_or(0);
    Duration::from_nanos(left).saturating_sub(AHEAD).clamp(AGAIN.1, AGAIN.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn provider(command: &str, script: &str) -> AccessProvider {
        AccessProvider {
            name: "own".to_owned(),
            command: command.to_owned(),
            args: vec!["-c".to_owned(), script.to_owned()],
            env: vec![("OWN".to_owned(), "mine".to_owned())],
            api_version: "client.authentication.k8s.io/v1".to_owned(),
            provide_cluster_info: true,
            ..AccessProvider::default()
        }
    }

    #[test]
    fn the_first_plugin_of_the_configuration_that_is_named_counts() {
        let of = |name: &str, server: &str| json!({"name": name, "cluster": {"server": server}});
        let profile = json!({"status": {"accessProviders": [of("b", "1"), of("c", "2")],
                                        "credentialProviders": [of("b", "3"), of("d", "4")]}});
        let found = |names: &[&str]| {
            let all: Vec<AccessProvider> = names
                .iter()
                .map(|name| AccessProvider { name: (*name).to_owned(), ..AccessProvider::default() })
                .collect();
            input("p", &profile, &all).map(|i| json::text(&i.cluster, &["server"]).to_owned())
        };
        assert_eq!(found(&["a", "c", "b"]), Ok("2".to_owned()));
        assert_eq!(found(&["b"]), Ok("1".to_owned()));
        assert_eq!(found(&["d"]), Ok("4".to_owned()));
        assert_eq!(
            found(&["a"]),
            Err("no matching cluster accessor found for cluster profile \"p\"".to_owned())
        );
        assert_eq!(found(&[]), Err("no access provider configured".to_owned()));
    }

    #[test]
    fn a_plugin_is_told_of_the_cluster_and_gives_a_kubeconfig() {
        let cluster = json!({"server": "https://w:6443", "certificate-authority-data": "Q0E=",
            "insecure-skip-tls-verify": true,
            "extensions": [{"name": "client.authentication.k8s.io/exec", "extension": {"audience": "x"}}]});
        // The token is what it was told, without quotes.
        let script =
            r#"echo "{\"status\": {\"token\": \"$OWN $(echo "$KUBERNETES_EXEC_INFO" | tr -d '"')\"}}""#;
        let answer = run(&provider("sh", script), &cluster, PATIENCE).unwrap();
        let token = json::text(&answer, &["status", "token"]);
        for part in [
            "mine ",
            "interactive:false",
            "server:https://w:6443",
            "config:{audience:x}",
            "kind:ExecCredential",
        ] {
            assert!(token.contains(part), "{part} not in {token}");
        }
        let file: Value = serde_json::from_slice(&kubeconfig(&cluster, &answer["status"])).unwrap();
        assert_eq!(file["users"][0]["user"]["token"], token);
        assert_eq!(
            file["clusters"][0]["cluster"],
            json!({"server": "https://w:6443", "certificate-authority-data": "Q0E="})
        );
    }

    #[test]
    fn a_plugin_that_gives_nothing_is_reported() {
        for (command, script, want) in [
            ("sh", "exit 3", "exit status: 3"),
            ("sh", "echo {}", "neither a token nor a certificate"),
            ("sh", "echo no", "expected ident"),
            ("/no/such/program", "", "No such file"),
        ] {
            let problem = run(&provider(command, script), &Value::Null, PATIENCE).unwrap_err();
            assert!(problem.contains(want), "{problem}");
        }
    }

    #[test]
    fn a_process_that_a_plugin_leaves_behind_is_not_waited_for() {
        let began = Instant::now();
        let script = "sleep 20 & echo '{\"status\": {\"token\": \"t\"}}'";
        let problem = run(&provider("sh", script), &Value::Null, Duration::from_secs(1)).unwrap_err();
        assert!(problem.contains("its output does not end"), "{problem}");
        assert!(began.elapsed() < Duration::from_secs(15));
    }

    #[test]
    fn credentials_are_renewed_before_their_end() {
        let after = |seconds: i64| {
            let end = clock::now().plus(plimsoll_state::Duration::from_seconds(seconds));
            lasts(&json!({"expirationTimestamp": timestamp::text(end)})).as_secs()
        };
        assert_eq!(lasts(&json!({})), AGAIN.0);
        assert!((118..=120).contains(&after(180)));
        assert_eq!((after(10), after(100_000)), (AGAIN.1.as_secs(), AGAIN.0.as_secs()));
    }
}

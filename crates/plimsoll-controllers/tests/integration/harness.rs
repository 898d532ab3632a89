//! A server with its controllers in fast time and a kubelet that runs whatever is there.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use plimsoll_apiserver::inprocess::ServerClient;
use plimsoll_apiserver::store::{Store, Watch};
use plimsoll_apiserver::{Server, ServerConfig};
use plimsoll_client::{Client, Clock, Deletion, Propagation, Resource, Target, modify, resources};
use plimsoll_controllers::{Controllers, Options};
use serde_json::{Value, json};

/// How much faster than the wall clock the tests run.
pub const SPEED: f64 = 50.0;
/// Real time after which something that doesn't happen won't.
const PATIENCE: Duration = Duration::from_secs(20);

/// The server, its controllers and the clock that they share.
pub struct Harness {
    pub client: Arc<dyn Client>,
    pub store: Store,
    controllers: Controllers,
    kubelet: tokio::task::JoinHandle<()>,
}

impl Harness {
    pub async fn new() -> Self {
        Self::with(Clock::scaled(SPEED), None).await
    }

    pub async fn with(clock: Clock, data: Option<PathBuf>) -> Self {
        Self::with_events_for(plimsoll_controllers::event_ttl::DEFAULT_TTL, clock, data).await
    }

    pub async fn with_events_for(event_ttl: Duration, clock: Clock, data: Option<PathBuf>) -> Self {
        let config = ServerConfig { clock: clock.clone(), data, ..ServerConfig::default() };
        let server = Server::new(config).await.unwrap();
        let store = server.store().clone();
        let client: Arc<dyn Client> = Arc::new(ServerClient::new(server));
        let mut options = Options { event_ttl, ..Options::default() };
        options.namespaces.root_ca = Some("PEM".to_owned());
        options.namespaces.service_account = true;
        let controllers = Controllers::start(&client, &clock, options);
        let (_, pods) = store.list_and_watch(&"/pods".into(), None);
        let kubelet = tokio::spawn(kubelet(Arc::clone(&client), clock, pods));
        Self { client, store, controllers, kubelet }
    }

    pub async fn stop(self) {
        self.controllers.stop().await;
        self.kubelet.abort();
    }

    pub async fn create(&self, resource: &Resource, namespace: &str, object: Value) -> Value {
        self.client.create(Target::create(resource, namespace), object).await.unwrap()
    }

    pub fn get(&self, resource: &Resource, namespace: &str, name: &str) -> Option<Value> {
        self.store.get(&resource.key(namespace, name)).map(|r| r.value().unwrap())
    }

    pub fn list(&self, resource: &Resource, namespace: &str) -> Vec<Value> {
        let list = self.store.list(&resource.storage, Some(namespace));
        list.iter().map(|r| r.value().unwrap()).collect()
    }

    pub async fn delete(&self, resource: &Resource, namespace: &str, name: &str, propagation: Propagation) {
        let deletion = Deletion::default().with(propagation);
        self.client.delete(Target::object(resource, namespace, name), deletion).await.unwrap();
    }

    pub async fn change(
        &self,
        resource: &Resource,
        namespace: &str,
        name: &str,
        change: impl FnMut(&mut Value) -> bool + Send,
    ) {
        let object = self.get(resource, namespace, name).unwrap();
        let uid = object["metadata"]["uid"].as_str().unwrap();
        modify(&*self.client, Target::object(resource, namespace, name), uid, change).await.unwrap();
    }

    /// Waits until a condition holds.
    pub async fn until(&self, what: &str, condition: impl Fn(&Self) -> bool) {
        let deadline = Instant::now() + PATIENCE;
        while !condition(self) {
            if Instant::now() > deadline {
                let dump: Vec<_> = ["/pods", "batch/jobs", "batch/cronjobs", "/namespaces"]
                    .iter()
                    .flat_map(|r| {
                        self.store.list(r, None).iter().map(|r| r.value().unwrap()).collect::<Vec<_>>()
                    })
                    .map(|mut o| {
                        o["metadata"]["managedFields"] = Value::Null;
                        o.to_string()
                    })
                    .collect();
                panic!("{what} didn't happen\n{}", dump.join("\n"));
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    pub fn job(&self, name: &str) -> Value {
        self.get(&resources::JOBS, "default", name).unwrap_or_default()
    }

    pub fn reasons(&self, name: &str) -> Vec<String> {
        let events = self.list(&resources::EVENTS, "default");
        let mine = events.iter().filter(|e| e["involvedObject"]["name"] == name);
        mine.map(|e| e["reason"].as_str().unwrap().to_owned()).collect()
    }
}

/// Runs pods: those with the annotation `exit` end with that code at once; others run on. Deleted pods go.
async fn kubelet(client: Arc<dyn Client>, clock: Clock, mut watch: Watch) {
    while let Ok(change) = watch.next().await {
        let Some(record) = client.reader().get(&change.record.key) else { continue };
        let pod = record.value().unwrap();
        let (meta, phase) = (&pod["metadata"], pod["status"]["phase"].as_str().unwrap_or_default());
        let key = record.key();
        let target = Target::object(&resources::PODS, &key.namespace, &key.name);
        if !meta["deletionTimestamp"].is_null() {
            if meta["deletionGracePeriodSeconds"] != 0 {
                let deletion = Deletion { grace_seconds: Some(0), ..Deletion::of_uid(record.uid()) };
                let _ = client.delete(target, deletion).await;
            }
            continue;
        }
        if phase != "Pending" {
            continue;
        }
        let now = clock.now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
        let exit = meta["annotations"]["exit"].as_str().map(str::to_owned);
        let _ = modify(&*client, target.part("status"), record.uid(), |pod| {
            let status = &mut pod["status"];
            match &exit {
                None => {
                    status["phase"] = json!("Running");
                    status["conditions"] = json!([{"type": "Ready", "status": "True", "lastTransitionTime": now}]);
                }
                Some(code) => {
                    status["phase"] = json!(if code == "0" { "Succeeded" } else { "Failed" });
                    let code: i64 = code.parse().unwrap();
                    let ended = json!({"terminated": {"exitCode": code, "startedAt": now, "finishedAt": now}});
                    status["containerStatuses"] = json!([{
                        "name": "c", "image": "x", "imageID": "", "ready": false, "restartCount": 0, "state": ended,
                    }]);
                }
            }
            true
        })
        .await;
    }
}

/// A Job whose pods end with an exit code, or run on.
pub fn job(name: &str, exit: Option<&str>, spec: &Value) -> Value {
    let mut job = json!({
        "apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name},
        "spec": {"template": {
            "metadata": {},
            "spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "x"}]},
        }},
    });
    if let Some(exit) = exit {
        job["spec"]["template"]["metadata"]["annotations"] = json!({"exit": exit});
    }
    for (key, value) in spec.as_object().unwrap() {
        job["spec"][key] = value.clone();
    }
    job
}

pub fn is_true(object: &Value, condition: &str) -> bool {
    let conditions = object["status"]["conditions"].as_array();
    conditions.into_iter().flatten().any(|c| c["type"] == condition && c["status"] == "True")
}

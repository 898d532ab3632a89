//! The log, through the program: what operators of Kueue and kube-scheduler look for, and what is refused.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::time::Duration;

use crate::common::{Up, binary, job, pod, process, queue};
use bytes::Bytes;
use http_body_util::{BodyExt, StreamBody};
use plimsoll_api::json;
use plimsoll_runtime::api::WORKLOADS;
use serde_json::{Value, json};

const JSON: [&str; 4] = ["--log", "info", "--log-format", "json"];

/// Lines of the log until now; the last one may be incomplete.
fn log(up: &Up) -> Vec<Value> {
    let text = std::fs::read_to_string(up.dir.join("log")).unwrap();
    let whole = text.rfind('\n').map_or("", |end| &text[..end]);
    whole.lines().map(|l| serde_json::from_str(l).unwrap_or_else(|e| panic!("{e}: {l}"))).collect()
}

/// Waits for a line with these fields, and gives it.
async fn line(up: &Up, fields: &Value) -> Value {
    let mut found = Value::Null;
    up.until_shown(&format!("a line with {fields}"), async |up| {
        let lines = log(up);
        let wanted = fields.as_object().unwrap();
        match lines.iter().find(|l| wanted.iter().all(|(k, v)| l[k] == *v)) {
            Some(l) => found = l.clone(),
            None => return Err(lines.iter().map(|l| format!("{l}\n")).collect()),
        }
        Ok(())
    })
    .await;
    found
}

async fn workload_of(up: &Up, job: &str) -> String {
    let name = up
        .until("the job has a workload", async |up| {
            let all = up.list(WORKLOADS).await;
            all.iter().map(|w| json::name(w).to_owned()).find(|n| n.starts_with(&format!("job-{job}-")))
        })
        .await;
    format!("team/{name}")
}

#[tokio::test]
async fn decisions_are_logged_with_upstreams_messages_and_fields() {
    let up = Up::start(&[&JSON[..], &["--speed", "100", "--nodes", "1"]].concat()).await;
    let start = line(&up, &json!({"message": "Starting plimsoll"})).await;
    assert_eq!(
        (&start["level"], &start["command"], &start["target"]),
        (&json!("INFO"), &json!("up"), &json!("plimsoll::logging"))
    );
    assert!(start["timestamp"].as_str().is_some_and(|t| t.parse::<jiff::Timestamp>().is_ok()), "{start}");
    let used = line(&up, &json!({"message": "Using configuration"})).await;
    assert_eq!((&used["profiles"], &used["config"]), (&json!("default-scheduler"), &json!("none")));
    line(&up, &json!({"message": "Ready", "nodes": 1})).await;

    let preempting =
        queue(2).replace("spec:\n", "spec:\n  preemption: {withinClusterQueue: LowerPriority}\n");
    up.apply(&preempting).await;
    up.apply(
        "apiVersion: kueue.x-k8s.io/v1beta2\nkind: WorkloadPriorityClass\nmetadata: {name: high}\nvalue: 10\n",
    )
    .await;
    let queued = json!({"kueue.x-k8s.io/queue-name": "main"});
    up.create(&job("low", &queued, 2, 100_000)).await.unwrap();
    let low = workload_of(&up, "low").await;
    let admitted = line(
        &up,
        &json!({"message": "Workload successfully admitted and assigned flavors", "workload": low}),
    )
    .await;
    let want = json!({"clusterQueue": "cq", "assignments": "main: cpu=any x2", "admitted": true});
    assert!(want.as_object().unwrap().iter().all(|(k, v)| admitted[k] == *v), "{admitted}");
    assert!(admitted["waitSeconds"].is_i64() && admitted["span"]["workload"] == low.as_str(), "{admitted}");
    line(&up, &json!({"message": "Job reconciled", "job": "team/low", "reason": "Started"})).await;
    let bound = line(&up, &json!({"message": "Successfully bound pod to node", "node": "node-0"})).await;
    assert!(bound["pod"].as_str().is_some_and(|p| p.starts_with("team/low-")), "{bound}");

    let mut labels = queued.clone();
    labels["kueue.x-k8s.io/priority-class"] = json!("high");
    up.create(&job("high", &labels, 1, 100_000)).await.unwrap();
    let high = workload_of(&up, "high").await;
    line(&up, &json!({"message": "Preempted", "preemptingWorkload": high, "targetWorkload": low})).await;
    let evicted =
        line(&up, &json!({"message": "Workload evicted", "workload": low, "reason": "Preempted"})).await;
    assert!(
        evicted["detail"].as_str().is_some_and(|d| d.contains("Preempted to accommodate a workload")),
        "{evicted}"
    );
    line(&up, &json!({"message": "Workload successfully admitted and assigned flavors", "workload": high}))
        .await;
    let again = line(&up, &json!({"message": "Workload re-queued", "workload": low})).await;
    let why = again["requeueReason"].as_str().or(again["reason"].as_str());
    assert!(why.is_some_and(|r| !r.is_empty()), "{again}");

    let mut large = pod("large", &json!({}), 1);
    large["spec"]["containers"][0]["resources"]["requests"]["cpu"] = json!("1000");
    large["metadata"]["namespace"] = json!("default");
    up.create(&large).await.unwrap();
    let why =
        line(&up, &json!({"message": "Unable to schedule pod; no fit; waiting", "pod": "default/large"}))
            .await;
    assert!(why["err"].as_str().is_some_and(|m| m.starts_with("0/1 nodes are available")), "{why}");
    // What the kubelets say of containers is not about jobs.
    assert!(!log(&up).iter().any(|l| l["message"] == "Job reconciled" && l["kind"] == "Pod"));
    // Libraries don't speak below warnings.
    let foreign = log(&up).into_iter().find(|l| !l["target"].as_str().unwrap().starts_with("plimsoll"));
    assert_eq!(foreign, None);
}

/// A client of the server that `up` runs, changed.
async fn client(up: &Up, change: impl FnOnce(&mut kube::Config)) -> kube::Client {
    let file = kube::config::Kubeconfig::read_from(&up.kubeconfig).unwrap();
    let mut config = kube::Config::from_custom_kubeconfig(file, &Default::default()).await.unwrap();
    change(&mut config);
    kube::Client::try_from(config).unwrap()
}

/// Creates an object with a body that takes longer than the threshold; the request's audit-id.
async fn create_slowly(up: &Up, path: &str, body: String) -> String {
    use rustls::pki_types::{CertificateDer, ServerName};
    let file = kube::config::Kubeconfig::read_from(&up.kubeconfig).unwrap();
    let user = serde_json::to_value(&file).unwrap()["users"][0]["user"].clone();
    let config = kube::Config::from_custom_kubeconfig(file, &Default::default()).await.unwrap();
    let mut roots = rustls::RootCertStore::empty();
    for root in config.root_cert.unwrap() {
        roots.add(CertificateDer::from(root)).unwrap();
    }
    let provider = std::sync::Arc::new(rustls::crypto::ring::default_provider());
    let tls = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let stream =
        tokio::net::TcpStream::connect(config.cluster_url.authority().unwrap().as_str()).await.unwrap();
    let stream = tokio_rustls::TlsConnector::from(std::sync::Arc::new(tls))
        .connect(ServerName::try_from("localhost").unwrap(), stream)
        .await
        .unwrap();
    let io = hyper_util::rt::TokioIo::new(stream);
    let (mut sender, connection) = hyper::client::conn::http1::handshake(io).await.unwrap();
    tokio::spawn(connection);
    let parts = futures::stream::unfold(Some(body), |left| async move {
        let text = left?;
        tokio::time::sleep(Duration::from_millis(600)).await;
        Some((Ok::<_, std::io::Error>(hyper::body::Frame::data(Bytes::from(text))), None))
    });
    let request = http::Request::post(path)
        .header("host", "localhost")
        .header("authorization", format!("Bearer {}", user["token"].as_str().unwrap()))
        .header("content-type", "application/json")
        .header("user-agent", "slow-client/1")
        .body(StreamBody::new(Box::pin(parts)))
        .unwrap();
    let answer = sender.send_request(request).await.unwrap();
    assert_eq!(answer.status(), 201);
    answer.headers()["audit-id"].to_str().unwrap().to_owned()
}

#[tokio::test]
async fn slow_and_refused_requests_are_logged_with_their_ids() {
    let up = Up::start(&[&JSON[..], &["--no-scheduler", "--nodes", "0"]].concat()).await;
    let admin = client(&up, |_| {}).await;
    let body = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "slow"}}).to_string();
    let id = create_slowly(&up, "/api/v1/namespaces/default/configmaps", body).await;
    let slow = line(&up, &json!({"message": "Slow request", "audit-ID": id})).await;
    let want = json!({"verb": "POST", "URI": "/api/v1/namespaces/default/configmaps", "userAgent": "slow-client/1",
                      "resp": 201, "srcIP": "127.0.0.1", "level": "INFO"});
    assert!(want.as_object().unwrap().iter().all(|(k, v)| slow[k] == *v), "{slow}");

    let nobody =
        http::Request::get("/api/v1/pods").header("impersonate-user", "nobody").body(Vec::new()).unwrap();
    assert!(admin.request_text(nobody).await.is_err());
    let refused = line(&up, &json!({"message": "Forbidden", "URI": "/api/v1/pods", "verb": "list"})).await;
    assert!(refused["reason"].as_str().is_some_and(|r| r.contains("\"nobody\" cannot list")), "{refused}");
    assert!(refused["span"]["audit-ID"].as_str().is_some_and(|id| id.len() == 36), "{refused}");

    let stranger = client(&up, |config| {
        config.auth_info = Default::default();
        config.auth_info.token = Some("wrong".to_owned().into());
    })
    .await;
    assert!(stranger.apiserver_version().await.is_err());
    let unknown = line(&up, &json!({"message": "Unable to authenticate the request"})).await;
    assert_eq!(unknown["level"], "WARN", "{unknown}");
}

#[tokio::test]
async fn text_has_no_colours_outside_a_terminal() {
    let mut up = Up::start(&["--log", "info", "--log-format", "text", "--nodes", "0"]).await;
    assert_eq!(up.interrupt(), Some(0));
    let text = std::fs::read_to_string(up.dir.join("log")).unwrap();
    assert!(text.contains(" INFO ") && text.contains("Starting plimsoll command=\"up\""), "{text}");
    assert!(text.contains("Stopping: asked to by a signal"), "{text}");
    assert!(!text.contains('\u{1b}'), "{text:?}");
}

#[tokio::test]
async fn leader_changes_are_logged() {
    let up = Up::start(&["--no-scheduler", "--nodes", "0"]).await;
    let (kubeconfig, out) = (up.kubeconfig.to_str().unwrap(), up.dir.join("run"));
    let mut run = binary()
        .args(["run", "--kubeconfig", kubeconfig, "--metrics-bind-address", "0", "--log", "info"])
        .stdout(std::process::Stdio::null())
        .stderr(std::fs::File::create(&out).unwrap())
        .spawn()
        .unwrap();
    let lease = "lease=\"kube-system/plimsoll\"";
    let wanted = async |message: &str| {
        up.until_shown(message, async |_| {
            let text = std::fs::read_to_string(&out).unwrap();
            let found = text.lines().any(|l| l.contains(&format!("{message} {lease} identity=")));
            if found { Ok(()) } else { Err(text) }
        })
        .await;
    };
    wanted("Attempting to acquire leader lease").await;
    wanted("Successfully acquired lease").await;
    process::signal(&run, "TERM");
    assert_eq!(process::ended(&mut run), Some(0));
    wanted("Released leader lease").await;
}

#[test]
fn a_bad_filter_is_refused_with_the_valid_forms() {
    for (args, env, want) in [
        (
            &["--log", "inof"][..],
            None,
            "invalid value 'inof' for '--log <FILTER>': unknown level \"inof\" (did you mean \"info\"?); write a level (off, error, warn, info, debug, trace)",
        ),
        (
            &[][..],
            Some("hyper=loud"),
            "invalid value 'hyper=loud' for '--log <FILTER>': unknown level \"loud\"",
        ),
        (&["--log-format", "xml"][..], None, "invalid value 'xml' for '--log-format <FORMAT>'"),
    ] {
        let mut command = binary();
        command.arg("version").args(args);
        if let Some(filter) = env {
            command.env("PLIMSOLL_LOG", filter);
        }
        let output = command.output().unwrap();
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{stderr}");
        assert!(stderr.contains(want), "{stderr}");
    }
}

/// A collector on this machine: every request's body, in order.
async fn collector() -> (String, tokio::sync::mpsc::UnboundedReceiver<Value>) {
    use hyper::service::service_fn;
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let (tx, rx) = tokio::sync::mpsc::unbounded_channel();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let tx = tx.clone();
            let service = service_fn(move |request: http::Request<hyper::body::Incoming>| {
                let tx = tx.clone();
                async move {
                    assert_eq!((request.method().as_str(), request.uri().path()), ("POST", "/v1/traces"));
                    assert_eq!(request.headers()["content-type"], "application/json");
                    let body = request.into_body().collect().await?.to_bytes();
                    let _ = tx.send(serde_json::from_slice(&body).unwrap());
                    Ok::<_, hyper::Error>(http::Response::new(http_body_util::Full::new(Bytes::from("{}"))))
                }
            });
            let io = hyper_util::rt::TokioIo::new(stream);
            tokio::spawn(hyper::server::conn::http1::Builder::new().serve_connection(io, service));
        }
    });
    (url, rx)
}

#[tokio::test(flavor = "multi_thread")]
async fn an_admission_is_one_trace_of_its_steps() {
    let (url, mut requests) = collector().await;
    let mut up = Up::start(&["--tracing-endpoint", &url, "--speed", "100", "--nodes", "1"]).await;
    up.apply(&queue(4)).await;
    up.create(&job("traced", &json!({"kueue.x-k8s.io/queue-name": "main"}), 2, 1)).await.unwrap();
    up.until("the job is complete", async |up| {
        json::is_true(&up.get(plimsoll_runtime::api::JOBS, "team", "traced").await, "Complete").then_some(())
    })
    .await;
    let workloads = up.list(WORKLOADS).await;
    let uid = json::uid(&workloads[0]).replace('-', "");
    // What has not been sent is sent at the end.
    assert_eq!(up.interrupt(), Some(0));
    let mut spans = Vec::new();
    while let Ok(body) = requests.try_recv() {
        let resource = &body["resourceSpans"][0];
        assert_eq!(resource["resource"]["attributes"][0]["value"]["stringValue"], "plimsoll");
        spans.extend(json::list(&resource["scopeSpans"][0], &["spans"]).to_vec());
    }
    assert!(spans.iter().all(|s| s["traceId"] == uid.as_str()), "{spans:#?}");
    let mut names: Vec<&str> = spans.iter().map(|s| s["name"].as_str().unwrap()).collect();
    names.sort_unstable();
    let want = [
        "bind pod",
        "bind pod",
        "create workload",
        "job seen",
        "start job",
        "wait for admission",
        "write admission",
    ];
    assert_eq!(names, want);
    let root = spans.iter().find(|s| s["name"] == "job seen").unwrap();
    for span in &spans {
        let at = |field: &str| span[field].as_str().unwrap().parse::<u64>().unwrap();
        assert!(at("startTimeUnixNano") <= at("endTimeUnixNano"), "{span}");
        assert_eq!(span["spanId"].as_str().map(str::len), Some(16));
        let parent = if span == root { &json!("") } else { &root["spanId"] };
        assert_eq!(&span["parentSpanId"], parent, "{span}");
    }
}

#[test]
fn an_endpoint_that_can_not_be_used_is_refused() {
    let output = binary().args(["version", "--tracing-endpoint", "https://collector:4318"]).output().unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    assert!(stderr.contains("--tracing-endpoint https://collector:4318: https is not supported"), "{stderr}");
}

//! HTTP extenders against a real HTTP server: it sees what upstream's would see, and its answers decide.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

use crate::common::{Up, condition};
use plimsoll_api::json;
use plimsoll_runtime::api::PODS;
use serde_json::{Value, json};

type Seen = Arc<Mutex<Vec<(String, Value)>>>;

/// Answers of the extender: `node-1` and `node-2` pass, and `node-2` is best by far; pods named `never` pass nowhere.
fn answer(path: &str, body: &Value) -> Value {
    let never = body["Pod"]["metadata"]["name"] == "never";
    match path {
        "/filter" if never => json!({
            "NodeNames": [],
            "FailedNodes": {"node-0": "no", "node-1": "no", "node-2": "no", "node-3": "no"},
        }),
        "/filter" => json!({
            "NodeNames": ["node-1", "node-2"],
            "FailedNodes": {"node-0": "too small", "node-3": "too small"},
        }),
        _ => json!([{"Host": "node-1", "Score": 0}, {"Host": "node-2", "Score": 10}]),
    }
}

fn serve(stream: TcpStream, seen: &Seen) -> std::io::Result<()> {
    let mut reader = BufReader::new(stream.try_clone()?);
    let mut writer = stream;
    loop {
        let (mut head, mut length) = (String::new(), 0);
        if reader.read_line(&mut head)? == 0 {
            return Ok(());
        }
        let path = head.split_whitespace().nth(1).unwrap_or_default().to_owned();
        loop {
            let mut line = String::new();
            reader.read_line(&mut line)?;
            if line.trim().is_empty() {
                break;
            }
            if let Some((name, value)) = line.split_once(':')
                && name.eq_ignore_ascii_case("content-length")
            {
                length = value.trim().parse().unwrap_or(0);
            }
        }
        let mut body = vec![0; length];
        reader.read_exact(&mut body)?;
        let body: Value = serde_json::from_slice(&body).unwrap_or_default();
        let text = answer(&path, &body).to_string();
        seen.lock().unwrap().push((path, body));
        let head = "HTTP/1.1 200 OK\r\nContent-Type: application/json";
        write!(writer, "{head}\r\nContent-Length: {}\r\n\r\n{text}", text.len())?;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_extender_filters_and_prioritizes() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let seen = Seen::default();
    let log = Arc::clone(&seen);
    std::thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let log = Arc::clone(&log);
            std::thread::spawn(move || serve(stream, &log));
        }
    });
    let dir = crate::common::directory();
    let config = dir.join("scheduler");
    let extender = json!({
        "urlPrefix": format!("http://{address}"), "filterVerb": "filter", "prioritizeVerb": "prioritize",
        "weight": 100, "nodeCacheCapable": true, "enableHTTPS": false,
    });
    let file = json!({
        "apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration",
        "extenders": [extender],
    });
    std::fs::write(&config, file.to_string()).unwrap();
    let config = config.to_string_lossy().into_owned();
    let up = Up::start_in(dir, &["--speed", "10", "--scheduler-config", &config]).await;
    for name in ["one", "never"] {
        let pod = json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "default"},
            "spec": {"containers": [{"name": "c", "image": "i", "command": ["sleep", "600"]}]},
        });
        up.create(&pod).await.unwrap();
    }
    up.until("the extender's choice", async |up| {
        let pod = up.get(PODS, "default", "one").await;
        (json::text(&pod, &["spec", "nodeName"]) == "node-2").then_some(())
    })
    .await;
    up.until("its refusal", async |up| {
        let pod = up.get(PODS, "default", "never").await;
        let (_, reason, message) = condition(&pod, "PodScheduled");
        (reason == "Unschedulable" && message.starts_with("0/4 nodes are available: 4 no.")).then_some(())
    })
    .await;
    let seen = seen.lock().unwrap();
    let paths: Vec<&str> = seen.iter().map(|(p, _)| p.as_str()).collect();
    assert!(paths.contains(&"/filter") && paths.contains(&"/prioritize"), "{paths:?}");
    let (_, first) = &seen[0];
    assert!(first["Nodes"].is_null(), "a caching extender gets names: {first}");
    assert_eq!(first["NodeNames"].as_array().map(Vec::len), Some(4), "{first}");
}

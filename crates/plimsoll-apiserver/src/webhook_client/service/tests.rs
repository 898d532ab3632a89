use serde_json::{Value, json};

use super::resolve;
use crate::store::{Expected, Key, Store, Write};

async fn put(store: &Store, resource: &str, name: &str, object: &Value) {
    let write = Write::put(Key::new(resource, "a", name), Expected::Anything, object).unwrap();
    store.commit(write).await.unwrap();
}

async fn with_service(spec: &Value) -> Store {
    let store = Store::in_memory();
    put(&store, "/services", "s", &json!({"metadata": {"name": "s", "namespace": "a"}, "spec": spec})).await;
    store
}

async fn slice(store: &Store, name: &str, kind: &str, endpoints: &Value) {
    let labels = json!({"kubernetes.io/service-name": "s"});
    let object = json!({"metadata": {"name": name, "namespace": "a", "labels": labels}, "addressType": kind,
        "endpoints": endpoints, "ports": [{"name": "other", "port": 1}, {"name": "https", "port": 9443}]});
    put(store, "discovery.k8s.io/endpointslices", name, &object).await;
}

fn at(store: &Store, port: &Value) -> Result<(String, u16), String> {
    resolve(store, &json!({"namespace": "a", "name": "s", "port": port})).map_err(|e| e.to_string())
}

fn ports() -> Value {
    json!({"type": "ClusterIP", "ports": [{"name": "https", "port": 443}]})
}

#[tokio::test]
async fn a_ready_endpoint_of_the_port() {
    let store = with_service(&ports()).await;
    assert_eq!(at(&store, &Value::Null), Err("no endpoints available for service \"s\"".to_owned()));
    assert_eq!(at(&store, &json!(80)), Err("no service port 80 found for service \"s\"".to_owned()));
    let subsets = json!([{"addresses": [{"ip": "10.0.0.9"}], "ports": [{"name": "https", "port": 8443}]}]);
    let endpoints = json!({"metadata": {"name": "s", "namespace": "a"}, "subsets": subsets});
    put(&store, "/endpoints", "s", &endpoints).await;
    assert_eq!(at(&store, &Value::Null), Ok(("10.0.0.9".to_owned(), 8443)));
    let all = json!([
        {"addresses": ["10.0.0.1"], "conditions": {"ready": false}},
        {"addresses": ["10.0.0.2"]},
    ]);
    slice(&store, "one", "IPv4", &all).await;
    assert_eq!(at(&store, &Value::Null), Ok(("10.0.0.2".to_owned(), 9443)));
    let missing = resolve(&store, &json!({"namespace": "a", "name": "t"}));
    assert_eq!(missing.unwrap_err().to_string(), "service \"t\" not found");
}

/// Objects that the store has from before endpoints were checked.
#[tokio::test]
async fn nobody_makes_the_server_call_itself() {
    let none = Err("no endpoints available for service \"s\"".to_owned());
    for (kind, address) in [
        ("IPv4", "127.0.0.1"),
        ("IPv4", "127.00.0.1"),
        ("IPv4", "0.0.0.0"),
        ("IPv4", "169.254.169.254"),
        ("IPv6", "::1"),
        ("IPv6", "::ffff:127.0.0.1"),
        ("FQDN", "localhost"),
        ("FQDN", "localhost.localdomain"),
    ] {
        let store = with_service(&ports()).await;
        slice(&store, "one", kind, &json!([{"addresses": [address]}])).await;
        let subsets = json!([{"addresses": [{"ip": address}], "ports": [{"name": "https", "port": 8443}]}]);
        let endpoints = json!({"metadata": {"name": "s", "namespace": "a"}, "subsets": subsets});
        put(&store, "/endpoints", "s", &endpoints).await;
        assert_eq!(at(&store, &Value::Null), none, "{kind} {address}");
        slice(&store, "one", kind, &json!([{"addresses": [address]}, {"addresses": ["10.0.0.2"]}])).await;
        assert_eq!(at(&store, &Value::Null), Ok(("10.0.0.2".to_owned(), 9443)), "{kind} {address}");
    }
}

#[tokio::test]
async fn an_external_name_is_called_by_its_name() {
    let store = with_service(&json!({"type": "ExternalName", "externalName": "hooks.example.com"})).await;
    assert_eq!(at(&store, &Value::Null), Ok(("hooks.example.com".to_owned(), 443)));
    assert_eq!(at(&store, &json!(9443)), Ok(("hooks.example.com".to_owned(), 9443)));
    assert_eq!(at(&store, &json!(70_000)), Err("invalid port 70000".to_owned()));
}

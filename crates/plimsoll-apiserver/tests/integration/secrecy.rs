//! Formatting a value for a log shows no credentials and no Secrets.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::fmt::Debug;

use plimsoll_apiserver::auth::{AuthConfig, User};
use plimsoll_apiserver::http::tls::Credentials;
use plimsoll_apiserver::store::{Encoded, Expected, Key, Store, StoreError, Write};
use serde_json::json;

const SECRET: &str = "c2VjcmV0LW9mLXRoZS1zdG9yZQ==";
const TOKEN: &str = "token-of-the-administrator";

fn shown(value: &impl Debug) -> String {
    format!("{value:?} {value:#?}")
}

/// As text, and as `Debug` shows bytes that were not meant as text.
fn is_in(secret: &str, shown: &str) -> bool {
    let numbers: Vec<String> = secret.bytes().map(|b| b.to_string()).collect();
    shown.contains(secret) || shown.replace(['\n', ' '], "").contains(&numbers.join(","))
}

#[tokio::test]
async fn debug_output_holds_no_secrets() {
    let credentials = Credentials::generate(&[]).unwrap();
    let auth = AuthConfig { tokens: vec![(TOKEN.into(), User::admin())], ..AuthConfig::default() };
    let mut all = vec![("Credentials", shown(&credentials)), ("AuthConfig", shown(&auth))];
    let object = json!({"kind": "Secret", "metadata": {"name": "s"}, "data": {"key": SECRET}});
    let key = || Key::new("/secrets", "default", "s");
    let write = || Write::put(key(), Expected::Absent, &object).unwrap();
    all.push(("Encoded", shown(&Encoded::new(&object).unwrap())));
    all.push(("Write", shown(&write())));
    let store = Store::in_memory();
    let resource = "/secrets".into();
    let mut watch = store.watch(&resource, None, 1).unwrap();
    let record = store.commit(write()).await.unwrap();
    all.push(("Record", shown(&record)));
    all.push(("Change", shown(&watch.next().await.unwrap())));
    let error = store.commit(write()).await.unwrap_err();
    assert!(matches!(error, StoreError::AlreadyExists { .. }));
    all.push(("StoreError", shown(&error)));
    all.push(("Store", shown(&store)));
    for (name, shown) in &all {
        for secret in [SECRET, TOKEN, &credentials.token] {
            assert!(!is_in(secret, shown), "{name}: {shown}");
        }
        assert!(!shown.contains("PRIVATE KEY"), "{name}: {shown}");
    }
    // What tells values apart is still there.
    let of = |name: &str| all.iter().find(|(n, _)| *n == name).unwrap().1.as_str();
    assert!(of("AuthConfig").contains("admin") && of("Record").contains("/secrets"));
    // The check finds what it looks for.
    assert!(is_in(SECRET, &shown(&bytes_of(&object))) && is_in(TOKEN, &shown(&TOKEN)));
}

fn bytes_of(object: &serde_json::Value) -> Vec<u8> {
    object.to_string().into_bytes()
}

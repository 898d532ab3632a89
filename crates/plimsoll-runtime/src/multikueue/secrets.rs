//! The Secrets with kubeconfigs. They are followed from the first MultiKueueCluster on that names one, so that a cluster without
//! workers needs no right to read Secrets.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use plimsoll_api::resource::SECRETS;
use plimsoll_client::reflector::{Delta, Reflector};
use serde_json::Value;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::api::Api;

/// The key of a Secret (`MultiKueueConfigSecretKey`).
const KEY: &str = "kubeconfig";

#[derive(Debug, Default)]
struct Seen {
    listed: bool,
    /// The kubeconfig of each Secret; `None`: it has none.
    by_name: BTreeMap<String, Option<Vec<u8>>>,
}

/// Last seen Secrets; cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Secrets {
    seen: Arc<Mutex<Seen>>,
}

impl Secrets {
    fn with<T>(&self, f: impl FnOnce(&mut Seen) -> T) -> T {
        f(&mut self.seen.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// The kubeconfig in a Secret; `None`: they have not been listed yet.
    pub fn kubeconfig(&self, name: &str) -> Option<Result<Vec<u8>, String>> {
        self.with(|seen| {
            if !seen.listed {
                return None;
            }
            Some(match seen.by_name.get(name) {
                None => Err(format!("Secret {name:?} not found")),
                Some(None) => Err(format!("key {KEY:?} not found in secret {name:?}")),
                Some(Some(bytes)) => Ok(bytes.clone()),
            })
        })
    }

    /// Follows the Secrets of a namespace until stopped.
    pub async fn follow(self, api: Api, namespace: String, changed: Arc<Notify>, stop: CancellationToken) {
        let reflector = Reflector { namespace, ..Reflector::new(api, SECRETS) };
        let sink = |delta: Delta<'_>| {
            self.with(|seen| match delta {
                Delta::Upsert { meta, bytes } => {
                    seen.by_name.insert(meta.name.to_string(), kubeconfig(bytes));
                }
                Delta::Delete { name, .. } => drop(seen.by_name.remove(name)),
                Delta::Synced { .. } => seen.listed = true,
                Delta::Absent => {}
            });
            changed.notify_one();
        };
        reflector.run(stop, sink).await;
    }
}

fn kubeconfig(secret: &[u8]) -> Option<Vec<u8>> {
    let secret: Value = serde_json::from_slice(secret).ok()?;
    BASE64_STANDARD.decode(secret["data"][KEY].as_str()?).ok()
}

//! Groups that another part of this process serves.

use std::sync::Arc;

use super::openapi;
use super::served::{Backend, LocalApi, Served};
use crate::server::Server;

/// Priority of a group in discovery, and of its versions: those of Kueue's APIServices.
const PRIORITY: i64 = 100;

impl Server {
    /// Serves a group that another part of this process answers for, from now on, with an APIService for each version. An
    /// APIService that names another server stays, and goes first.
    pub async fn add_api(self: &Arc<Self>, api: Arc<dyn LocalApi>) {
        for version in api.versions() {
            let mut served = Served {
                group: api.group().to_owned(),
                version: (*version).to_owned(),
                backend: Backend::Local(Arc::clone(&api)),
                group_priority: PRIORITY,
                version_priority: PRIORITY,
                resources: Some(api.resources(version)),
                documents: None,
            };
            served.documents = openapi::read(self.store(), &served).await.ok().map(Arc::new);
            self.aggregation().set_local(served);
            crate::custom::register_service(self, api.group(), version, (PRIORITY, PRIORITY)).await;
        }
    }
}

//! Whether the cluster serves a resource, according to its discovery documents.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use plimsoll_api::json;
use plimsoll_api::request::Error;
use plimsoll_api::resource::Resource;
use serde_json::Value;
use tokio::sync::Mutex;
use tokio::time::Instant;

use crate::rest::Api;

/// How long the list of groups is used before it is read again: as many followers as there are kinds of jobs ask for it.
const FRESH: Duration = Duration::from_secs(1);

/// Whether a resource is served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Served {
    /// In this version.
    In(Resource),
    /// We have no right to list it.
    Forbidden,
    /// In no version.
    No,
}

/// The groups and versions that a cluster serves, read at most once a second; cheap to clone.
#[derive(Clone, Debug)]
pub struct Groups {
    api: Api,
    last: Arc<Mutex<Option<Read>>>,
}

/// When the list was read, and what was in it.
type Read = (Instant, BTreeSet<String>);

impl Groups {
    /// Those of the cluster behind `api`.
    pub fn new(api: Api) -> Self {
        Self { api, last: Arc::default() }
    }

    /// The first of these versions of a resource that is served and may be listed.
    ///
    /// # Errors
    /// When discovery could not be read: then nothing is known.
    pub async fn served(&self, versions: &[Resource]) -> Result<Served, Error> {
        let mut outcome = Served::No;
        for resource in versions {
            if !self.has(resource.api_version).await? {
                continue;
            }
            match self.api.get_text(&format!("{}?limit=1", resource.collection(""))).await {
                Ok(_) => return Ok(Served::In(*resource)),
                Err(e) if e.code() == 403 => outcome = Served::Forbidden,
                Err(e) if e.is_not_found() => {
                    if !lacks(&self.api, *resource).await? {
                        return Err(e);
                    }
                }
                Err(e) => return Err(e),
            }
        }
        Ok(outcome)
    }

    async fn has(&self, group_version: &str) -> Result<bool, Error> {
        let mut last = self.last.lock().await;
        if let Some((_, groups)) = last.as_ref().filter(|(read, _)| read.elapsed() < FRESH) {
            return Ok(groups.contains(group_version));
        }
        let groups = versions(&self.api).await?;
        let has = groups.contains(group_version);
        *last = Some((Instant::now(), groups));
        Ok(has)
    }
}

/// Group and version of everything that is served outside of the core group.
async fn versions(api: &Api) -> Result<BTreeSet<String>, Error> {
    let list = api.get_path("/apis").await?;
    expect(&list, "APIGroupList")?;
    let versions = json::list(&list, &["groups"]).iter().flat_map(|g| json::list(g, &["versions"]));
    Ok(versions.map(|v| json::text(v, &["groupVersion"]).to_owned()).collect())
}

/// Whether discovery says that the cluster does not serve `resource`. A 404 alone does not say so: a proxy may answer
/// it for any path, so the list of groups has to be readable and without the group and version.
///
/// # Errors
/// When discovery could not be read: then nothing is known.
pub async fn lacks(api: &Api, resource: Resource) -> Result<bool, Error> {
    let core = resource.group().is_empty();
    let root = if core { "/api/" } else { "/apis/" };
    match api.get_path(&format!("{root}{}", resource.api_version)).await {
        Ok(list) => {
            expect(&list, "APIResourceList")?;
            let resources = json::list(&list, &["resources"]);
            Ok(!resources.iter().any(|r| r["name"] == resource.plural))
        }
        // There is no cluster without the core group.
        Err(e) if e.is_not_found() && !core => Ok(!versions(api).await?.contains(resource.api_version)),
        Err(e) => Err(e),
    }
}

/// The plural of the resource of a kind in a group and version (`batch/v1`); `None`: the cluster does not serve it.
///
/// # Errors
/// When discovery could not be read: then nothing is known.
pub async fn plural_of(api: &Api, group_version: &str, kind: &str) -> Result<Option<String>, Error> {
    let list = match api.get_path(&format!("/apis/{group_version}")).await {
        Ok(list) => list,
        Err(e) if e.is_not_found() => return Ok(None),
        Err(e) => return Err(e),
    };
    let plurals = json::list(&list, &["resources"]).iter().filter(|resource| resource["kind"] == kind);
    // Subresources have the kind of what they are part of, or of their body.
    Ok(plurals
        .map(|resource| json::text(resource, &["name"]))
        .find(|name| !name.contains('/'))
        .map(str::to_owned))
}

fn expect(document: &Value, kind: &str) -> Result<(), Error> {
    match document["kind"] == kind {
        true => Ok(()),
        false => Err(Error::Malformed(format!("discovery is no {kind}"))),
    }
}

//! Whether the cluster serves a resource, according to its discovery documents.

use plimsoll_api::json;
use serde_json::Value;

use crate::api::{Api, Error, Resource};

/// Whether discovery says that the cluster does not serve `resource`. A 404 alone does not say so: a proxy may answer
/// it for any path, so the list of groups has to be readable and without the group and version.
///
/// # Errors
/// When discovery could not be read: then nothing is known.
pub(crate) async fn lacks(api: &Api, resource: Resource) -> Result<bool, Error> {
    let core = resource.group().is_empty();
    let root = if core { "/api/" } else { "/apis/" };
    match api.get_path(&format!("{root}{}", resource.api_version)).await {
        Ok(list) => {
            expect(&list, "APIResourceList")?;
            let resources = json::list(&list, &["resources"]);
            Ok(!resources.iter().any(|r| r["name"] == resource.plural))
        }
        // There is no cluster without the core group.
        Err(e) if e.is_not_found() && !core => {
            let groups = api.get_path("/apis").await?;
            expect(&groups, "APIGroupList")?;
            let groups = json::list(&groups, &["groups"]).iter();
            let mut versions = groups.flat_map(|g| json::list(g, &["versions"]));
            Ok(!versions.any(|v| v["groupVersion"] == resource.api_version))
        }
        Err(e) => Err(e),
    }
}

fn expect(document: &Value, kind: &str) -> Result<(), Error> {
    match document["kind"] == kind {
        true => Ok(()),
        false => Err(Error::Malformed(format!("discovery is no {kind}"))),
    }
}

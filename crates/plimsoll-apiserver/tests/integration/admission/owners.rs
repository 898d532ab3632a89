//! OwnerReferencesPermissionEnforcement.

use super::*;

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

fn map(name: &str, owners: Value) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "ownerReferences": owners}})
}

fn owner(api_version: &str, kind: &str, blocks: bool) -> Value {
    json!([{"apiVersion": api_version, "kind": kind, "name": "o", "uid": format!("{kind}-{blocks}"), "blockOwnerDeletion": blocks}])
}

#[tokio::test]
async fn owners_are_set_by_users_who_could_delete() {
    let api = server(Some(Plugin::OwnerReferencesPermissionEnforcement)).await;
    let rule = |resource: &str, verbs: &[&str]| json!({"apiGroups": ["", "apps"], "resources": [resource], "verbs": verbs});
    let writes = rule("configmaps", &["create", "update", "patch"]);
    grant(&api, "User", "writer", json!([writes])).await;
    let deletes = rule("configmaps", &["delete"]);
    grant(&api, "User", "deleter", json!([writes, deletes])).await;
    let finalizes = rule("deployments/finalizers", &["update"]);
    grant(&api, "User", "finalizer", json!([writes, deletes, finalizes])).await;
    grant(
        &api,
        "User",
        "anything",
        json!([writes, deletes,
        {"apiGroups": ["*"], "resources": ["*/finalizers"], "verbs": ["update"]}]),
    )
    .await;
    let (writer, deleter) = (api.as_user("writer"), api.as_user("deleter"));
    let (finalizer, anything) = (api.as_user("finalizer"), api.as_user("anything"));
    let free = owner("apps/v1", "Deployment", false);
    let blocking = owner("apps/v1", "Deployment", true);
    let unknown = owner("e.io/v1", "Odd", true);
    // Whoever creates an object may give it an owner.
    created(&writer, MAPS, &map("m", free.clone())).await;
    let refused = |why: &str| (403, format!("configmaps \"m\" is forbidden: {why}"));
    let one = format!("{MAPS}/m");
    let set = |owners: &Value| json!({"metadata": {"ownerReferences": owners}});
    let delete = refused("cannot set an ownerRef on a resource you can't delete: , <nil>");
    assert_eq!(answer(&writer, "PATCH", &one, &set(&json!([]))).await, delete);
    assert_eq!(answer(&writer, "PATCH", &one, &json!({"data": {"a": "b"}})).await.0, 200);
    assert_eq!(answer(&deleter, "PATCH", &one, &set(&json!([]))).await.0, 200);
    let finalize = "cannot set blockOwnerDeletion if an ownerReference refers to a resource you can't set finalizers on: , <nil>";
    assert_eq!(answer(&deleter, "PATCH", &one, &set(&blocking)).await, refused(finalize));
    let mapping = "cannot set blockOwnerDeletion in this case because cannot find RESTMapping for APIVersion e.io/v1 Kind \
                   Odd: no matches for kind \"Odd\" in version \"e.io/v1\"";
    assert_eq!(answer(&finalizer, "PATCH", &one, &set(&unknown)).await, refused(mapping));
    assert_eq!(answer(&finalizer, "PATCH", &one, &set(&blocking)).await.0, 200);
    // One that held up the deletion before may go on.
    let mut both = blocking.as_array().unwrap().clone();
    both.extend(free.as_array().unwrap().iter().cloned());
    assert_eq!(answer(&deleter, "PATCH", &one, &set(&json!(both))).await.0, 200);
    assert_eq!(answer(&anything, "PATCH", &one, &set(&unknown)).await.0, 200);
    assert_eq!(
        answer(&writer, "POST", MAPS, &map("n", blocking)).await,
        (403, format!("configmaps \"n\" is forbidden: {finalize}"))
    );
}

#[tokio::test]
async fn owners_are_free_unless_that_is_switched_on() {
    let api = server(None).await;
    let rules = json!([{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["create"]}]);
    grant(&api, "User", "writer", rules).await;
    created(&api.as_user("writer"), MAPS, &map("m", owner("apps/v1", "Deployment", true))).await;
}

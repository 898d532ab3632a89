use super::*;

fn named(name: &str) -> Value {
    json!({"metadata": {"namespace": "n", "name": name}})
}

fn at(name: &str) -> Name {
    ("n".into(), name.into())
}

#[test]
fn preconditions_finalizers_and_uids_hold() {
    let mut api = Api::default();
    let now = Time::from_seconds(1);
    let mut object = named("w");
    object["metadata"]["finalizers"] = json!(["f"]);
    let made = api.handle(Request::Create(Kind::Workload, object.clone()), now).unwrap();
    assert_eq!(api.handle(Request::Create(Kind::Workload, object.clone()), now).unwrap_err().code, 409);
    let patch = |body: Value, status: bool| {
        let (kind, name, style) = (Kind::Workload, at("w"), Style::Merge);
        Request::Patch { kind, name, status, style, body }
    };
    let stale = json!({"metadata": {"resourceVersion": "77"}, "status": {"a": 1}});
    assert_eq!(api.handle(patch(stale, true), now).unwrap_err().code, 409);
    let written = api.handle(patch(json!({"status": {"a": 1}}), true), now).unwrap();
    assert!(version(&written) > version(&made));
    let same = api.handle(patch(json!({"status": {"a": 1}}), true), now).unwrap();
    assert_eq!(version(&same), version(&written), "a patch without effect is no write");
    let (name, uid) = (at("w"), String::new());
    api.handle(Request::Delete { kind: Kind::Workload, name, uid, grace: None }, now).unwrap();
    assert!(deleting(api.get(Kind::Workload, "n", "w").unwrap()));
    api.handle(patch(json!({"metadata": {"finalizers": null}}), false), now).unwrap();
    assert!(api.get(Kind::Workload, "n", "w").is_none());
    let again = api.handle(Request::Create(Kind::Workload, object), now).unwrap();
    assert_ne!(super::uid(&again), super::uid(&made));
    assert_eq!(api.log(Kind::Workload).len(), 5);
}

#[test]
fn pods_are_bound_once_and_go_when_their_kubelet_lets_them() {
    let mut api = Api::default();
    let now = Time::from_seconds(1);
    let pod = api.handle(Request::Create(Kind::Pod, named("p")), now).unwrap();
    let bind = |node: &str| Request::Bind { name: at("p"), uid: super::uid(&pod).into(), node: node.into() };
    api.handle(bind("a"), now).unwrap();
    assert_eq!(api.handle(bind("b"), now).unwrap_err().code, 409);
    let delete = |grace| {
        let (kind, name, uid) = (Kind::Pod, at("p"), super::uid(&pod).to_owned());
        Request::Delete { kind, name, uid, grace }
    };
    api.handle(delete(None), now).unwrap();
    assert!(deleting(api.get(Kind::Pod, "n", "p").unwrap()));
    api.handle(delete(Some(0)), now).unwrap();
    assert_eq!(api.handle(delete(Some(0)), now).unwrap_err().code, 404);
}

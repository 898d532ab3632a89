#![allow(clippy::needless_pass_by_value)] // Tables read better without references.

use super::*;
use serde::Deserialize;

fn service(spec: Value) -> Service {
    let object = json!({"metadata": {"name": "web", "namespace": "d", "uid": "s", "labels": {"a": "b"}}, "spec": spec});
    Service::deserialize(object).unwrap()
}

fn pod(n: usize, more: Value) -> Value {
    let mut pod = json!({
        "metadata": {"name": format!("p{n}"), "namespace": "d", "uid": format!("u{n}")},
        "spec": {"nodeName": "n0", "containers": [{"ports": [{"name": "http", "containerPort": 8080}]}]},
        "status": {"phase": "Running", "podIP": format!("10.0.{}.{}", n / 250, n % 250),
            "conditions": [{"type": "Ready", "status": "True"}]},
    });
    for (part, fields) in more.as_object().unwrap() {
        for (key, value) in fields.as_object().unwrap() {
            pod[part][key] = value.clone();
        }
    }
    pod
}

fn members_of(service: &Service, pods: &[Value]) -> Vec<Member> {
    pods.iter().filter_map(|p| members::member(service, p)).collect()
}

/// `ShouldPodBeInEndpoints`, `podToEndpoint`, `FindPort`.
#[test]
fn who_is_behind_a_service() {
    let svc = service(json!({"selector": {"app": "web"}, "ports": [{"port": 80, "targetPort": "http"}]}));
    let unready = json!([{"type": "Ready", "status": "False"}]);
    let leaving = "2026-01-01T00:00:00Z";
    // More of the pod; ready, serving, terminating, or not at all.
    let table = [
        (json!({}), Some((true, true, false))),
        (json!({"status": {"conditions": unready}}), Some((false, false, false))),
        (json!({"metadata": {"deletionTimestamp": leaving}}), Some((false, true, true))),
        (json!({"status": {"podIP": ""}}), None),
        (json!({"status": {"phase": "Succeeded"}}), None),
        (json!({"status": {"phase": "Failed"}}), None),
    ];
    for (more, want) in table {
        let got = members_of(&svc, &[pod(1, more.clone())]);
        assert_eq!(got.first().map(|m| (m.ready, m.serving, m.terminating)), want, "{more}");
    }
    // podIP and podIPs, and the address.
    let table: [(&str, &[&str], Option<&str>); 8] = [
        ("10.0.0.1", &[], Some("10.0.0.1")),
        ("10.0.0.1", &["10.0.0.1", "fd00::1"], Some("10.0.0.1")),
        ("fd00::1", &["fd00::1", "10.0.0.1"], Some("10.0.0.1")),
        ("fd00::1", &["fd00::1"], None),
        ("127.0.0.1", &["127.0.0.1"], None),
        ("169.254.1.1", &[], None),
        ("0.0.0.0", &[], None),
        ("nonsense", &[], None),
    ];
    for (ip, ips, want) in table {
        let ips: Vec<Value> = ips.iter().map(|ip| json!({"ip": ip})).collect();
        let got = members_of(&svc, &[pod(1, json!({"status": {"podIP": ip, "podIPs": ips}}))]);
        assert_eq!(got.first().map(|m| m.ip.as_str()), want, "{ip} {ips:?}");
    }
    let ports = |ports: Value, pod: &Value| {
        let svc = service(json!({"selector": {"app": "web"}, "ports": ports}));
        json!(members_of(&svc, std::slice::from_ref(pod))[0].ports)
    };
    let one = pod(1, json!({}));
    assert_eq!(
        ports(json!([{"port": 80, "targetPort": "http"}]), &one),
        json!([{"name": "", "port": 8080, "protocol": "TCP"}])
    );
    assert_eq!(
        ports(json!([{"name": "x", "port": 80, "targetPort": 81, "protocol": "UDP"}]), &one),
        json!([{"name": "x", "port": 81, "protocol": "UDP"}])
    );
    assert_eq!(ports(json!([{"port": 80, "targetPort": "none"}]), &one), json!([]));
    let udp = json!([{"port": 80, "targetPort": "http", "protocol": "UDP"}]);
    assert_eq!(ports(udp, &one), json!([]));
    let sidecar = pod(
        1,
        json!({"spec": {"containers": [], "initContainers": [
        {"ports": [{"name": "http", "containerPort": 1}]},
        {"restartPolicy": "Always", "ports": [{"name": "http", "containerPort": 2}]}]}}),
    );
    assert_eq!(
        ports(json!([{"port": 80, "targetPort": "http"}]), &sidecar),
        json!([{"name": "", "port": 2, "protocol": "TCP"}])
    );
}

fn applied(existing: &[Arc<Slice>], plan: slices::Plan) -> Vec<Arc<Slice>> {
    let mut all: Vec<Option<Slice>> = existing.iter().map(|s| Some(Slice::clone(s))).collect();
    for (i, content) in plan.update {
        let slice = all[i].as_mut().unwrap();
        (slice.endpoints, slice.ports) = (content.endpoints, content.ports);
    }
    for i in plan.delete {
        all[i] = None;
    }
    let made = plan.create.into_iter().map(|c| Slice {
        address_type: slices::ADDRESS_TYPE.to_owned(),
        endpoints: c.endpoints,
        ports: c.ports,
        ..Slice::default()
    });
    all.into_iter().flatten().chain(made).map(Arc::new).collect()
}

/// `reconciler`: 100 in a slice, pods stay where they are, one empty slice for nobody, nothing to do twice.
#[test]
fn slices_hold_a_hundred_and_change_little() {
    let svc = service(json!({"selector": {"app": "web"}, "ports": [{"port": 80, "targetPort": "http"}]}));
    let mut world: Vec<Arc<Slice>> = Vec::new();
    let sizes = |world: &[Arc<Slice>]| world.iter().map(|s| s.endpoints.len()).collect::<Vec<_>>();
    let all: Vec<Value> = (0..250).map(|n| pod(n, json!({}))).collect();
    // Who is there; sizes afterwards; slices that are written.
    let table: [(Vec<Value>, &[usize], usize); 6] = [
        (vec![], &[0], 1),
        (all[..1].to_vec(), &[1], 1),
        (all.clone(), &[100, 100, 50], 3),
        ([&all[..99], &all[100..]].concat(), &[100, 100, 49], 1),
        (all[..10].to_vec(), &[4, 4, 2], 3),
        (vec![], &[0], 3),
    ];
    for (pods, want, writes) in table {
        let members = members_of(&svc, &pods);
        let plan = slices::plan(&members, &world);
        let touched = plan.create.len() + plan.update.len() + plan.delete.len();
        assert!(touched <= writes, "{touched} for {want:?}");
        world = applied(&world, plan);
        let mut got = sizes(&world);
        got.sort_by(|a, b| b.cmp(a));
        assert_eq!(got.iter().sum::<usize>(), want.iter().sum::<usize>());
        assert_eq!(got.len(), want.len(), "{got:?}");
        assert_eq!(slices::plan(&members, &world), slices::Plan::default(), "nothing is left to do");
    }
    // A slice of another type is no use, whatever it holds.
    let members = members_of(&svc, &all[..1]);
    let mut other = Slice::clone(&applied(&[], slices::plan(&members, &[]))[0]);
    other.address_type = "IPv6".to_owned();
    let plan = slices::plan(&members, &[Arc::new(other)]);
    assert_eq!((plan.create.len(), plan.update.len(), plan.delete), (1, 0, vec![0]));
    // Pods that have the named port elsewhere are in a slice of their own.
    let other = pod(9, json!({"spec": {"containers": [{"ports": [{"name": "http", "containerPort": 9}]}]}}));
    let members = members_of(&svc, &[pod(1, json!({})), other]);
    let plan = slices::plan(&members, &[]);
    assert_eq!(
        plan.create.iter().map(|c| c.ports[0]["port"].clone()).collect::<Vec<_>>(),
        [json!(8080), json!(9)]
    );
}

/// Pods of three kinds, and how many addresses of each subset are listed: ready, not ready.
type Sharing = ((usize, usize, usize), &'static [(usize, usize)]);

/// `RepackSubsets`, `addEndpointSubset`, `truncateEndpoints`.
#[test]
fn endpoints_list_ready_and_other_addresses() {
    let ports = json!([{"name": "http", "port": 80, "targetPort": "http"}, {"name": "m", "port": 9, "targetPort": 9}]);
    let svc = service(json!({"selector": {"app": "web"}, "ports": ports}));
    let unready = json!({"status": {"conditions": []}});
    let leaving = json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}});
    let elsewhere = json!({"spec": {"containers": []}});
    let pods = [pod(1, json!({})), pod(2, unready), pod(3, leaving), pod(4, elsewhere)];
    let (subsets, truncated) = subsets::subsets(&svc, &members_of(&svc, &pods));
    let ips = |list: &Value| -> Vec<String> {
        list.as_array().into_iter().flatten().map(|a| a["ip"].as_str().unwrap().to_owned()).collect()
    };
    assert!(!truncated);
    let seen: Vec<_> = subsets
        .iter()
        .map(|s| (ips(&s["addresses"]), ips(&s["notReadyAddresses"]), s["ports"][0]["port"].clone()))
        .collect();
    let text = |list: &[&str]| list.iter().map(|s| (*s).to_owned()).collect::<Vec<_>>();
    assert_eq!(
        seen,
        [
            (text(&["10.0.0.1"]), text(&["10.0.0.2"]), json!(8080)),
            (text(&["10.0.0.1", "10.0.0.4"]), text(&["10.0.0.2"]), json!(9)),
        ]
    );
    let many: Vec<Value> = (0..1001).map(|n| pod(n, json!({}))).collect();
    let one = service(json!({"selector": {"app": "web"}, "ports": [{"port": 80, "targetPort": 80}]}));
    let (subsets, truncated) = subsets::subsets(&one, &members_of(&one, &many));
    assert!(truncated && ips(&subsets[0]["addresses"]).len() == 1000);
    // Ready addresses of all subsets come first, each subset has its share, and one with nothing is left out.
    let two = service(json!({"selector": {"app": "web"}, "ports": ports}));
    let mixed = |n: usize, ready: bool, named: bool| {
        let mut more = json!({"spec": {}, "status": {}});
        if !ready {
            more["status"]["conditions"] = json!([]);
        }
        if !named {
            more["spec"]["containers"] = json!([]);
        }
        pod(n, more)
    };
    // Pods in numbers: ready with both ports, ready with one, not ready with both; addresses by subset, (ready, not).
    let table: [Sharing; 6] = [
        ((300, 0, 100), &[(300, 100)]),
        ((1001, 0, 0), &[(1000, 0)]),
        ((600, 0, 600), &[(600, 400)]),
        ((400, 100, 300), &[(500, 50), (400, 50)]),
        ((400, 1200, 0), &[(200, 0), (800, 0)]),
        ((0, 1001, 5), &[(1000, 0)]),
    ];
    for ((both, one, unready), want) in table {
        let kinds = [(both, true, true), (one, true, false), (unready, false, true)];
        let all = kinds.into_iter().flat_map(|(n, ready, named)| std::iter::repeat_n((ready, named), n));
        let all: Vec<Value> = all.enumerate().map(|(n, (ready, named))| mixed(n, ready, named)).collect();
        let (subsets, truncated) = subsets::subsets(&two, &members_of(&two, &all));
        let seen: Vec<_> = subsets
            .iter()
            .map(|s| (ips(&s["addresses"]).len(), ips(&s["notReadyAddresses"]).len()))
            .collect();
        assert_eq!(seen, want, "{both} {one} {unready}");
        let total = if one == 0 { both + unready } else { 2 * (both + unready) + one };
        assert_eq!(truncated, total > 1000, "{both} {one} {unready}");
    }
    // A headless Service needs no ports; its pods have names.
    let headless = service(json!({"selector": {"app": "web"}, "clusterIP": "None"}));
    let named = pod(1, json!({"spec": {"hostname": "db-0", "subdomain": "web"}}));
    let (subsets, _) = subsets::subsets(&headless, &members_of(&headless, &[named]));
    assert_eq!(subsets[0]["addresses"][0]["hostname"], "db-0");
    assert!(subsets[0]["ports"].is_null());
    assert_eq!(subsets::labels(&headless)["service.kubernetes.io/headless"], "");
}

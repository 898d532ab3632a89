//! The rows of Kueue's `pkg/controller/concurrentadmission/controller_test.go`, and what differs from it.

use std::time::Duration;

use plimsoll_api::conditions::set_status_condition;
use plimsoll_api::kueue::{WorkloadNames, variants};
use plimsoll_api::{json, timestamp};
use plimsoll_state::Time;
use serde_json::{Value, json};

use super::{affected, flavor_of, plan};
use crate::Config;
use crate::key::Key;
use crate::plan::Write;
use crate::store::Kind;
use crate::testing::Fixture;

const NOW: Time = Time::from_seconds(1_700_000_000);

/// Objects, and a miniature of what carries out plans.
struct World {
    fixture: Fixture,
    version: u64,
    events: Vec<String>,
    requeue: Option<Duration>,
}

fn condition(wl: &mut Value, kind: &str, status: bool, reason: &str) {
    let message = format!("{kind} by test");
    if let Some(conditions) = set_status_condition(wl, kind, status, reason, &message, NOW) {
        json::set(wl, &["status", "conditions"], Value::Array(conditions));
    }
}

/// A workload with these words about its state.
fn workload(name: &str, words: &str) -> Value {
    let mut wl = json!({
        "metadata": {"namespace": "default", "name": name, "uid": format!("uid-{name}"), "labels": {"a": "b"}},
        "spec": {"queueName": "lq", "podSets": [{"name": "main", "count": 1}]},
    });
    for word in words.split_whitespace() {
        let (word, value) = word.split_once(':').unwrap_or((word, ""));
        match word {
            "admitted" | "reserved" => {
                let assigned = json!([{"name": "main", "flavors": {"cpu": value}, "count": 1}]);
                wl["status"]["admission"] = json!({"clusterQueue": "cq", "podSetAssignments": assigned});
                condition(&mut wl, "QuotaReserved", true, "QuotaReserved");
                if word == "admitted" {
                    condition(&mut wl, "Admitted", true, "Admitted");
                }
            }
            "evicted" => condition(&mut wl, "Evicted", true, value),
            "finished" => condition(&mut wl, "Finished", true, "Succeeded"),
            "blocked" => condition(&mut wl, "BlockedOnPreemptionGates", true, "PreemptionGated"),
            "evaluated" => condition(&mut wl, "QuotaReserved", false, "Pending"),
            "ready" => condition(&mut wl, "PodsReady", true, "Started"),
            "unready" => condition(&mut wl, "PodsReady", false, "WaitForStart"),
            "inactive" => wl["spec"]["active"] = json!(false),
            "open" => {
                let ago: i64 = value.parse().unwrap_or(0);
                let at = timestamp::text(Time::from_seconds(NOW.seconds() - ago));
                let gate =
                    json!({"name": variants::PREEMPTION_GATE, "position": "Open", "lastTransitionTime": at});
                wl["status"]["preemptionGates"] = json!([gate]);
            }
            other => panic!("{other}"),
        }
    }
    wl
}

/// The words about a workload's state, in a fixed order.
fn words(wl: &Value) -> String {
    let mut out = Vec::new();
    let flavor = &wl["status"]["admission"]["podSetAssignments"][0]["flavors"]["cpu"];
    let reason =
        |kind: &str| json::text(json::condition(wl, kind).unwrap_or(&Value::Null), &["reason"]).to_owned();
    if json::is_true(wl, "QuotaReserved") {
        let word = if json::is_true(wl, "Admitted") { "admitted" } else { "reserved" };
        out.push(format!("{word}:{}", flavor.as_str().unwrap_or_default()));
    }
    if json::is_true(wl, "Evicted") {
        out.push(format!("evicted:{}", reason("Evicted")));
    }
    for (kind, yes, no) in [("Finished", "finished", ""), ("PodsReady", "ready", "unready")] {
        match json::condition(wl, kind) {
            Some(c) if c["status"] == "True" => out.push(yes.to_owned()),
            Some(_) => out.push(no.to_owned()),
            None => {}
        }
    }
    if wl["spec"]["active"] == false {
        out.push("inactive".to_owned());
    }
    if wl["status"]["preemptionGates"][0]["position"] == "Open" {
        out.push("open".to_owned());
    }
    out.join(" ")
}

fn cluster_queue(flavors: &str, policy: &Value) -> Value {
    let flavors: Vec<Value> = flavors.split_whitespace().map(|f| json!({"name": f})).collect();
    json!({"metadata": {"name": "cq"}, "spec": {
        "resourceGroups": [{"coveredResources": ["cpu"], "flavors": flavors}],
        "concurrentAdmissionPolicy": policy}})
}

fn policy(text: &str) -> Value {
    match text.split_once('=') {
        Some((_, last)) => {
            json!({"migration": {"mode": "TryPreferredFlavors", "constraints": {"lastAcceptableFlavorName": last}}})
        }
        None if text == "retain" => json!({"migration": {"mode": "RetainFirstAdmission"}}),
        None => json!({"migration": {"mode": "TryPreferredFlavors"}}),
    }
}

impl World {
    #[allow(clippy::needless_pass_by_value, reason = "made for the call")]
    fn new(flavors: &str, policy: Value) -> Self {
        let config = Config { concurrent_admission: true, ..Config::default() };
        let mut fixture = Fixture::with_config(config);
        let lq = json!({"metadata": {"namespace": "default", "name": "lq"}, "spec": {"clusterQueue": "cq"}});
        fixture.put(Kind::LocalQueue, lq);
        fixture.put(Kind::ClusterQueue, cluster_queue(flavors, &policy));
        Self { fixture, version: 1, events: Vec::new(), requeue: None }
    }

    fn put(&mut self, mut wl: Value) {
        self.version += 1;
        wl["metadata"]["resourceVersion"] = json!(self.version.to_string());
        self.fixture.put(Kind::Workload, wl);
    }

    fn parent(&mut self, words: &str) {
        let mut wl = workload("wl-12345", words);
        wl["metadata"]["labels"][variants::PARENT] = json!("true");
        self.put(wl);
    }

    fn variant(&mut self, flavor: &str, words: &str) {
        let mut wl = workload(&format!("wl-variant-{flavor}"), words);
        wl["metadata"]["annotations"][variants::ALLOWED_FLAVORS] = json!(flavor);
        wl["metadata"]["ownerReferences"] = json!([{"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Workload",
            "name": "wl-12345", "uid": "uid-wl-12345", "controller": true}]);
        self.put(wl);
    }

    fn get(&self, name: &str) -> Option<Value> {
        self.fixture.get(Kind::Workload, "default", name).map(|w| (*w).clone())
    }

    /// Plans and carries out until nothing is left to do.
    fn run(&mut self) {
        for _ in 0..20 {
            let plan = plan("default", "wl-12345", self.fixture.env(NOW));
            let mut changed = false;
            for write in plan {
                changed |= self.carry_out(write);
            }
            if !changed {
                return;
            }
        }
        panic!("no end");
    }

    fn carry_out(&mut self, write: Write) -> bool {
        match write {
            Write::Create(_, mut object) => {
                object["metadata"]["uid"] = json!(format!("uid-{}", json::name(&object)));
                self.put(object);
            }
            Write::Patch { name, body, .. } => {
                let mut wl = self.get(&name).unwrap();
                merge(&mut wl, &body);
                self.put(wl);
            }
            Write::Delete { name, uid, .. } => {
                self.fixture.remove(Kind::Workload, "default", &name, &uid);
            }
            // What the engine writes then.
            Write::WorkloadStopped { name, .. } => {
                let mut wl = self.get(&name).unwrap();
                condition(&mut wl, "QuotaReserved", false, "Pending");
                condition(&mut wl, "Admitted", false, "NoReservation");
                wl["status"]["admission"] = Value::Null;
                self.put(wl);
            }
            Write::Event(e) => {
                self.events.push(format!("{}: {}: {}", e.regarding.name, e.reason, e.message));
                return false;
            }
            Write::RequeueAfter(after) => {
                self.requeue = Some(after);
                return false;
            }
            other => panic!("{other:?}"),
        }
        true
    }

    /// The words about the parent, and about its variants by flavor.
    fn state(&self) -> (String, Vec<(String, String)>) {
        let parent = self.get("wl-12345").unwrap();
        let mut variants: Vec<_> =
            self.fixture.owned_by("uid-wl-12345").map(|v| (flavor_of(&v), words(&v))).collect();
        variants.sort();
        (words(&parent), variants)
    }
}

fn merge(into: &mut Value, patch: &Value) {
    let Value::Object(patch) = patch else { return *into = patch.clone() };
    for (key, value) in patch {
        if value.is_null() {
            json::remove(into, &[key]);
        } else {
            merge(&mut into[key.as_str()], value);
        }
    }
}

/// What Kueue calls the row; flavors and policy of the ClusterQueue; the parent; its variants, before and after; the parent
/// afterwards; events; seconds until the next look.
struct Row(
    &'static str,
    (&'static str, &'static str),
    &'static str,
    &'static [(&'static str, &'static str, Option<&'static str>)],
    &'static str,
    &'static [&'static str],
    Option<u64>,
);

const THREE: &str = "reservation on-demand spot";

#[rustfmt::skip]
#[allow(clippy::too_many_lines, reason = "a table")]
fn rows() -> Vec<Row> {
    vec![
        Row("flavor removed from ClusterQueue; variant is deleted", ("on-demand spot", "try"), "",
            &[("on-demand", "", Some("")), ("spot", "", Some("")), ("stale", "", None)], "",
            &["wl-12345: DeletedVariant: Variant Workload \"default/wl-variant-stale\" deleted; flavor \"stale\" no longer in ClusterQueue"], None),
        Row("admitted variant's flavor removed; variant deleted and parent evicted", ("spot", "try"), "admitted:on-demand",
            &[("on-demand", "admitted:on-demand", None), ("spot", "", Some(""))], "admitted:on-demand evicted:ConcurrentAdmission",
            &["wl-12345: DeletedVariant: Variant Workload \"default/wl-variant-on-demand\" deleted; flavor \"on-demand\" no longer in ClusterQueue"], None),
        Row("deleting the variant holding the open preemption gate opens the next one's gate", ("spot", "try"), "",
            &[("on-demand", "blocked open", None), ("spot", "blocked", Some("open"))], "",
            &["wl-12345: DeletedVariant: Variant Workload \"default/wl-variant-on-demand\" deleted; flavor \"on-demand\" no longer in ClusterQueue",
              "wl-variant-spot: PreemptionUngatedVariant: Opened preemption gate for variant workload \"default/wl-variant-spot\""], Some(300)),
        Row("ungates the next-preferred variant once the open gate's preemption timeout elapses", ("on-demand spot", "try"), "",
            &[("on-demand", "blocked open:300", Some("open")), ("spot", "blocked", Some("open"))], "",
            &["wl-variant-spot: PreemptionUngatedVariant: Opened preemption gate for variant workload \"default/wl-variant-spot\""], Some(300)),
        Row("blocked variant has its preemption gate opened; non-blocked variant stays closed", ("on-demand spot", "try"), "",
            &[("on-demand", "blocked", Some("open")), ("spot", "", Some(""))], "",
            &["wl-variant-on-demand: PreemptionUngatedVariant: Opened preemption gate for variant workload \"default/wl-variant-on-demand\""], Some(300)),
        Row("no variant requires preemption; no gate is opened", ("on-demand spot", "try"), "",
            &[("on-demand", "", Some("")), ("spot", "", Some(""))], "", &[], None),
        Row("waits for a more-preferred variant to be evaluated before ungating a lower-preference variant", ("on-demand spot", "try"), "",
            &[("on-demand", "", Some("")), ("spot", "blocked", Some(""))], "", &[], None),
        Row("skips a preferred variant with an existing quota reservation condition", ("on-demand spot", "try"), "",
            &[("on-demand", "evaluated", Some("")), ("spot", "blocked", Some("open"))], "",
            &["wl-variant-spot: PreemptionUngatedVariant: Opened preemption gate for variant workload \"default/wl-variant-spot\""], Some(300)),
        Row("a recently opened gate defers ungating the next variant until the timeout", ("on-demand spot", "try"), "",
            &[("on-demand", "open:60", Some("open")), ("spot", "blocked", Some(""))], "", &[], Some(240)),
        Row("the latest open-gate time among variants determines the wait", (THREE, "try"), "",
            &[("on-demand", "open:60", Some("open")), ("reservation", "open:240", Some("open")), ("spot", "blocked", Some(""))], "", &[], Some(240)),
        Row("admitted variant syncs admission to parent", ("on-demand spot", "try"), "",
            &[("on-demand", "", Some("")), ("spot", "admitted:spot", Some("admitted:spot"))], "admitted:spot", &[], None),
        Row("no variant admitted; parent admitted; evict parent", ("on-demand spot", "try"), "admitted:spot",
            &[("on-demand", "", Some("")), ("spot", "", Some(""))], "admitted:spot evicted:ConcurrentAdmission", &[], None),
        Row("admitted variant evicted; parent has quota; evict parent and wait", ("on-demand spot", "try"), "admitted:spot",
            &[("on-demand", "inactive", Some("inactive")), ("spot", "admitted:spot evicted:Preempted", Some("admitted:spot evicted:Preempted"))],
            "admitted:spot evicted:VariantEvicted", &[], None),
        Row("admitted variant evicted; parent has no quota reservation; clear variant reservation", ("on-demand spot", "try"), "",
            &[("on-demand", "inactive", Some("")), ("spot", "admitted:spot evicted:Preempted", Some("evicted:Preempted"))], "",
            &["wl-variant-on-demand: ActivatedVariant: Variant Workload activated due to no other Variant being admitted"], None),
        Row("with minTargetFlavor=reservation, variant admitted on spot, deactivate on-demand", (THREE, "last=reservation"), "",
            &[("on-demand", "", Some("inactive")), ("reservation", "", Some("")), ("spot", "admitted:spot", Some("admitted:spot"))], "admitted:spot",
            &["wl-variant-on-demand: DeactivatedVariant: Variant Workload deactivated due to being below lastAcceptableFlavor: \"reservation\" and another Variant admitted \"default/wl-variant-spot\""], None),
        Row("with minTargetFlavor=reservation, variant admitted on on-demand, deactivate spot", (THREE, "last=reservation"), "",
            &[("on-demand", "admitted:on-demand", Some("admitted:on-demand")), ("reservation", "", Some("")), ("spot", "", Some("inactive"))], "admitted:on-demand",
            &["wl-variant-spot: DeactivatedVariant: Variant Workload deactivated due to being below lastAcceptableFlavor: \"reservation\" and another Variant admitted \"default/wl-variant-on-demand\""], None),
        Row("without minTargetFlavor, variant admitted on spot, nothing deactivated", (THREE, "try"), "",
            &[("on-demand", "", Some("")), ("reservation", "", Some("")), ("spot", "admitted:spot", Some("admitted:spot"))], "admitted:spot", &[], None),
        Row("without minTargetFlavor, variant admitted on reservation, deactivate spot and on-demand", (THREE, "try"), "",
            &[("on-demand", "", Some("inactive")), ("reservation", "admitted:reservation", Some("admitted:reservation")), ("spot", "", Some("inactive"))],
            "admitted:reservation",
            &["wl-variant-on-demand: DeactivatedVariant: Variant Workload deactivated due to being lower priority than admitted Variant \"default/wl-variant-reservation\"",
              "wl-variant-spot: DeactivatedVariant: Variant Workload deactivated due to being lower priority than admitted Variant \"default/wl-variant-reservation\""], None),
        Row("RetainFirstAdmission, variant admitted on spot, deactivate reservation and on-demand", (THREE, "retain"), "",
            &[("on-demand", "", Some("inactive")), ("reservation", "", Some("inactive")), ("spot", "admitted:spot", Some("admitted:spot"))], "admitted:spot",
            &["wl-variant-reservation: DeactivatedVariant: Variant Workload deactivated due to RetainFirstAdmission: another Variant \"default/wl-variant-spot\" is admitted",
              "wl-variant-on-demand: DeactivatedVariant: Variant Workload deactivated due to RetainFirstAdmission: another Variant \"default/wl-variant-spot\" is admitted"], None),
        Row("parent marked finished, mark all variants finished", ("on-demand spot", "try"), "finished",
            &[("on-demand", "", Some("finished")), ("spot", "", Some("finished"))], "finished", &[], None),
        Row("parent is not active, propagating deactivation to all variants", ("on-demand spot", "try"), "inactive",
            &[("on-demand", "", Some("inactive")), ("spot", "", Some("inactive"))], "inactive",
            &["wl-variant-on-demand: DeactivatedVariant: Variant Workload deactivated due to Parent Workload \"default/wl-12345\" not active",
              "wl-variant-spot: DeactivatedVariant: Variant Workload deactivated due to Parent Workload \"default/wl-12345\" not active"], None),
        Row("parent changes WaitForPodsReady from False to True, syncs to admitted variant", ("on-demand spot", "try"), "admitted:spot ready",
            &[("on-demand", "", Some("")), ("spot", "admitted:spot unready", Some("admitted:spot ready"))], "admitted:spot ready", &[], None),
        Row("parent not admitted, variant admitted, syncs to variant and admits parent", ("on-demand spot", "try"), "unready",
            &[("on-demand", "", Some("")), ("spot", "admitted:spot ready", Some("admitted:spot unready"))], "admitted:spot unready", &[], None),
        // From here on Kueue does otherwise.
        Row("a variant that the job does not run as is evicted; it is cleared and the parent runs on", (THREE, "retain"), "admitted:spot",
            &[("on-demand", "inactive", Some("inactive")), ("reservation", "reserved:reservation evicted:Deactivated inactive", Some("evicted:Deactivated inactive")),
              ("spot", "admitted:spot", Some("admitted:spot"))], "admitted:spot", &[], None),
        Row("two variants are admitted; the job moves to the better one, whose sibling stays charged until it has stopped", ("reservation spot", "try"), "admitted:spot",
            &[("reservation", "admitted:reservation", Some("admitted:reservation")), ("spot", "admitted:spot", Some("admitted:spot"))],
            "admitted:spot evicted:VariantEvicted", &[], None),
        Row("two variants are admitted; the job has stopped", ("reservation spot", "try"), "evicted:VariantEvicted",
            &[("reservation", "admitted:reservation", Some("admitted:reservation")), ("spot", "admitted:spot", Some("admitted:spot inactive"))],
            "admitted:reservation",
            &["wl-variant-spot: DeactivatedVariant: Variant Workload deactivated due to being lower priority than admitted Variant \"default/wl-variant-reservation\""], None),
        Row("two variants are admitted; the first admission is retained", ("reservation spot", "retain"), "admitted:spot",
            &[("reservation", "admitted:reservation", Some("admitted:reservation inactive")), ("spot", "admitted:spot", Some("admitted:spot"))],
            "admitted:spot",
            &["wl-variant-reservation: DeactivatedVariant: Variant Workload deactivated due to RetainFirstAdmission: another Variant \"default/wl-variant-spot\" is admitted"], None),
        Row("the parent runs with a flavor for which no variant is admitted", ("reservation spot", "retain"), "admitted:spot",
            &[("reservation", "admitted:reservation", Some("admitted:reservation")), ("spot", "inactive", Some("inactive"))],
            "admitted:spot evicted:ConcurrentAdmission", &[], None),
        Row("all variants were rejected; so is the parent, and they may be activated with it", ("reservation spot", "try"), "",
            &[("reservation", "inactive evicted:DeactivatedDueToAdmissionCheck", Some("evicted:Deactivated inactive")),
              ("spot", "inactive evicted:DeactivatedDueToAdmissionCheck", Some("evicted:Deactivated inactive"))],
            "inactive", &["wl-12345: AdmissionCheckRejected: Deactivated due to admission checks that rejected all variants"], None),
        Row("a variant that a check has rejected stays inactive", ("reservation spot", "try"), "",
            &[("reservation", "inactive evicted:DeactivatedDueToAdmissionCheck", Some("evicted:DeactivatedDueToAdmissionCheck inactive")), ("spot", "inactive", Some(""))],
            "", &["wl-variant-spot: ActivatedVariant: Variant Workload activated due to no other Variant being admitted"], None),
        Row("an inactive parent is not admitted", ("spot", "try"), "inactive", &[("spot", "admitted:spot inactive", Some("admitted:spot inactive"))], "inactive", &[], None),
        Row("a finished parent gets no variants", ("reservation spot", "try"), "finished", &[], "finished", &[], None),
    ]
}

#[test]
fn families_are_reconciled() {
    for Row(name, (flavors, text), parent, variants, want, events, requeue) in rows() {
        let mut world = World::new(flavors, policy(text));
        world.parent(parent);
        variants.iter().for_each(|(flavor, words, _)| world.variant(flavor, words));
        world.run();
        let wanted: Vec<_> = variants
            .iter()
            .filter_map(|(flavor, _, after)| Some(((*flavor).to_owned(), (*after)?.to_owned())))
            .collect();
        assert_eq!(world.state(), (want.to_owned(), wanted), "{name}");
        assert_eq!(world.events, events, "{name}");
        assert_eq!(world.requeue, requeue.map(Duration::from_secs), "{name}");
    }
}

#[test]
fn variants_are_made_of_their_parent() {
    let mut world = World::new("on-demand spot", policy("try"));
    let mut parent = workload("wl-12345", "");
    parent["metadata"]["labels"][variants::PARENT] = json!("true");
    parent["metadata"]["annotations"] = json!({"c": "d"});
    parent["spec"]["preemptionGates"] = json!([{"name": "other"}]);
    world.put(parent);
    world.variant("spot", "");
    world.run();
    let of = ("Workload", "kueue.x-k8s.io", "wl-12345", "uid-wl-12345");
    let name = WorkloadNames::Long.variant(of, "on-demand");
    assert_eq!(
        world.events,
        [format!("wl-12345: CreatedVariant: Variant Workload \"default/{name}\" created")]
    );
    let made = world.get(&name).unwrap();
    assert!(name.starts_with("wl-variant-on-demand-"), "{name}");
    assert_eq!(made["metadata"]["labels"], json!({"a": "b"}));
    assert_eq!(made["metadata"]["annotations"], json!({"c": "d", variants::ALLOWED_FLAVORS: "on-demand"}));
    assert_eq!(made["metadata"]["ownerReferences"][0]["uid"], "uid-wl-12345");
    assert_eq!(
        made["spec"]["preemptionGates"],
        json!([{"name": "other"}, {"name": variants::PREEMPTION_GATE}])
    );
    assert_eq!(made["spec"]["podSets"], json!([{"name": "main", "count": 1}]));
    assert_eq!(made["status"], Value::Null);
}

#[test]
fn variants_follow_what_changes_in_their_parent_while_they_wait() {
    for (state, follows) in [("", true), ("admitted:spot", false)] {
        let mut world = World::new("spot", policy("try"));
        let lq =
            json!({"metadata": {"namespace": "default", "name": "other"}, "spec": {"clusterQueue": "cq"}});
        world.fixture.put(Kind::LocalQueue, lq);
        let mut parent = workload("wl-12345", "");
        parent["metadata"]["labels"][variants::PARENT] = json!("true");
        parent["spec"]["queueName"] = json!("other");
        parent["spec"]["priority"] = json!(7);
        world.put(parent);
        world.variant("spot", state);
        let mut variant = world.get("wl-variant-spot").unwrap();
        variant["metadata"]["annotations"][crate::names::GATED_BY] = json!("a.io/x");
        world.put(variant);
        world.run();
        let variant = world.get("wl-variant-spot").unwrap();
        assert_eq!(variant["spec"]["queueName"] == "other", follows, "{state}");
        assert_eq!(variant["spec"]["priority"] == 7, follows, "{state}");
        assert_eq!(json::annotation(&variant, crate::names::GATED_BY).is_none(), follows, "{state}");
    }
}

/// The names in Kueue's test, whose parents have neither kind nor UID.
#[test]
fn variants_have_kueues_names() {
    let name = |parent: &str, flavor: &str| WorkloadNames::Long.variant(("", "", parent, ""), flavor);
    assert_eq!(name("wl-12345", "spot"), "wl-variant-spot-a2342");
    assert_eq!(name("wl-12345", "on-demand"), "wl-variant-on-demand-480a3");
    assert!(name("w", "spot").starts_with("w-variant-spot-"), "Kueue panics");
}

/// The admission of the parent says what that of its variant does, and ends an eviction.
#[test]
fn a_parent_has_the_admission_of_its_variant() {
    let mut world = World::new("spot", policy("try"));
    world.parent("evicted:VariantEvicted");
    world.variant("spot", "admitted:spot");
    world.run();
    let parent = world.get("wl-12345").unwrap();
    assert_eq!(parent["status"]["admission"], world.get("wl-variant-spot").unwrap()["status"]["admission"]);
    let text = |kind: &str| {
        let c = json::condition(&parent, kind).unwrap();
        [&c["status"], &c["reason"], &c["message"]].map(|v| v.as_str().unwrap().to_owned()).join("|")
    };
    assert_eq!(text("QuotaReserved"), "True|QuotaReserved|Quota reserved in ClusterQueue cq");
    assert_eq!(text("Admitted"), "True|Admitted|The variant wl-variant-spot is admitted");
    assert_eq!(text("Evicted"), "False|QuotaReserved|Previously: Evicted by test");
}

/// A client with server-side apply that does not own the admission releases quota by the condition alone, and the webhook lets no
/// admission become another one.
#[test]
fn an_admission_that_another_client_left_is_removed_before_the_next_one() {
    let mut world = World::new("reservation spot", policy("try"));
    let mut parent = workload("wl-12345", "admitted:spot evicted:VariantEvicted");
    parent["metadata"]["labels"][variants::PARENT] = json!("true");
    condition(&mut parent, "QuotaReserved", false, "Pending");
    condition(&mut parent, "Admitted", false, "NoReservation");
    world.put(parent);
    world.variant("reservation", "admitted:reservation");
    world.variant("spot", "inactive");
    let plan = plan("default", "wl-12345", world.fixture.env(NOW));
    let [Write::Patch { body, .. }] = plan.as_slice() else { panic!("{plan:?}") };
    assert_eq!(body["status"], json!({"admission": null}));
    world.run();
    assert_eq!(world.state().0, "admitted:reservation");
}

/// Without its queue nothing is created or deactivated, but a job whose variant is evicted stops.
#[test]
fn evictions_are_followed_without_a_queue() {
    let mut world = World::new("reservation spot", policy("try"));
    world.fixture.remove(Kind::LocalQueue, "default", "lq", "");
    world.parent("admitted:spot");
    world.variant("spot", "admitted:spot evicted:Preempted");
    world.run();
    let variants = vec![("spot".to_owned(), "admitted:spot evicted:Preempted".to_owned())];
    assert_eq!(world.state(), ("admitted:spot evicted:VariantEvicted".to_owned(), variants));
    world.variant("spot", "admitted:spot");
    world.parent("admitted:spot");
    world.run();
    assert_eq!(world.state().0, "admitted:spot");
}

#[test]
fn workloads_become_parents_where_the_queue_has_a_policy() {
    let marked = |world: &mut World, words: &str| {
        world.put(workload("wl-12345", words));
        world.run();
        json::label(&world.get("wl-12345").unwrap(), variants::PARENT) == "true"
    };
    assert!(marked(&mut World::new("spot", policy("try")), ""));
    assert!(!marked(&mut World::new("spot", Value::Null), ""));
    assert!(!marked(&mut World::new("spot", policy("try")), "admitted:spot"), "goes on as it is");
    assert!(!marked(&mut World::new("spot", policy("try")), "finished"));
    let mut off = World::new("spot", policy("try"));
    off.fixture.config.concurrent_admission = false;
    assert!(!marked(&mut off, ""));
    off.parent("");
    off.run();
    assert_eq!(off.state().1, []);
}

/// Kueue's `TestParentsForClusterQueue` and `TestClusterQueueFlavorsChanged`.
#[test]
fn a_queue_concerns_parents_whose_variants_are_not_those_of_its_flavors() {
    let mut world = World::new("on-demand spot", policy("try"));
    world.parent("");
    world.variant("spot", "");
    world.put(workload("other", ""));
    let mut elsewhere = workload("elsewhere", "");
    elsewhere["spec"]["queueName"] = json!("none");
    world.put(elsewhere);
    let key = |name: &str| Key::Variants("default".to_owned(), name.to_owned());
    let of = |world: &World, flavors: &str| {
        affected(&world.fixture, Kind::ClusterQueue, &cluster_queue(flavors, &policy("try")))
    };
    assert_eq!(of(&world, "on-demand spot"), [key("other"), key("wl-12345")]);
    assert_eq!(of(&world, "spot"), [key("other")], "as they are");
    let none = cluster_queue("on-demand spot", &Value::Null);
    assert_eq!(affected(&world.fixture, Kind::ClusterQueue, &none), []);
    let variant = world.get("wl-variant-spot").unwrap();
    assert_eq!(affected(&world.fixture, Kind::Workload, &variant), [key("wl-12345")]);
    let lq = world.fixture.get(Kind::LocalQueue, "default", "lq").unwrap();
    assert_eq!(affected(&world.fixture, Kind::LocalQueue, &lq), [key("other"), key("wl-12345")]);
}

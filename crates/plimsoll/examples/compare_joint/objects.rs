//! The simulator's objects as a real API server takes them.

use plimsoll_api::resource::{
    CLUSTER_QUEUES, COHORTS, FLAVORS, JOBS, LOCAL_QUEUES, NAMESPACES, NODES, Resource, TOPOLOGIES,
    WORKLOAD_PRIORITY_CLASSES,
};
use plimsoll_sim::scenario::{JobSpec, NodeSpec, Scenario, Stop, objects};
use serde_json::{Value, json};

/// The namespace of Jobs and LocalQueues.
pub use plimsoll_sim::scenario::objects::NAMESPACE;

/// Level of the topology.
const HOST: &str = "kubernetes.io/hostname";
/// Failed attempts that a Job may have: the simulator's Job controller replaces pods without limit.
const BACKOFF_LIMIT: u32 = 1_000_000;

/// An object with its kind.
fn typed(resource: Resource, mut object: Value) -> (Resource, Value) {
    object["apiVersion"] = resource.api_version.into();
    object["kind"] = resource.kind.into();
    (resource, object)
}

/// Queues, flavors and what belongs to them, in the order of creation; `topology`: flavors have one.
pub fn queues(scenario: &Scenario, topology: bool) -> Vec<(Resource, Value)> {
    let plan = &scenario.plan;
    let mut all = vec![typed(NAMESPACES, objects::namespace(true))];
    if topology {
        let spec = json!({"levels": [{"nodeLabel": HOST}]});
        all.push(typed(TOPOLOGIES, json!({"metadata": {"name": "t"}, "spec": spec})));
    }
    for flavor in 0..objects::FLAVORS.len() {
        let mut flavor = objects::flavor(flavor, &scenario.settings);
        if topology {
            flavor["spec"]["topologyName"] = "t".into();
        }
        all.push(typed(FLAVORS, flavor));
    }
    for class in 0..5 {
        let class = objects::priority_class(class, objects::planned_value(class));
        all.push(typed(WORKLOAD_PRIORITY_CLASSES, class));
    }
    let cohorts = plan.cohorts.iter().enumerate();
    all.extend(cohorts.map(|(i, c)| typed(COHORTS, objects::cohort(i, c))));
    for (i, queue) in plan.queues.iter().enumerate() {
        all.push(typed(CLUSTER_QUEUES, objects::cluster_queue(i, queue, Stop::None)));
        all.push(typed(LOCAL_QUEUES, objects::local_queue(i, Stop::None)));
    }
    all
}

/// A node without conditions: `plimsoll up` adds those.
pub fn node(number: usize, spec: &NodeSpec) -> Value {
    let (_, mut node) = typed(NODES, objects::node(number, spec, plimsoll_state::Time(0)));
    if let Some(node) = node.as_object_mut() {
        node.remove("spec");
    }
    if let Some(status) = node["status"].as_object_mut() {
        status.remove("conditions");
    }
    node
}

/// A suspended Job whose pods run until they are ended from outside. A node that fails costs no back-off, and failed pods are
/// replaced when they are gone, as in the simulator.
pub fn job(number: usize, spec: &JobSpec, scenario: &Scenario, topology: bool) -> Value {
    let (_, mut job) = typed(JOBS, objects::batch_job(number, spec, &scenario.settings));
    let disrupted = json!([{"type": "DisruptionTarget", "status": "True"}]);
    let own = &mut job["spec"];
    own["suspend"] = true.into();
    own["backoffLimit"] = BACKOFF_LIMIT.into();
    own["podFailurePolicy"] = json!({"rules": [{"action": "Ignore", "onPodConditions": disrupted}]});
    let annotations = match topology {
        true => json!({"kueue.x-k8s.io/podset-unconstrained-topology": "true"}),
        false => json!({}),
    };
    own["template"]["metadata"] = json!({ "annotations": annotations });
    let pod = &mut own["template"]["spec"];
    pod["terminationGracePeriodSeconds"] = 1.into();
    pod["containers"][0]["image"] = "pause".into();
    pod["containers"][0]["args"] = json!(["pause"]);
    job
}

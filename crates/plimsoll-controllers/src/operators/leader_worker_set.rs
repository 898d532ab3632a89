//! LeaderWorkerSets (lws.sigs.k8s.io): each group is a role of a leader and one of its workers.

use plimsoll_api::json;
use plimsoll_client::Resource;
use serde_json::{Value, json};

use super::Operator;
use super::plan::{Role, State, Wanted};

/// LeaderWorkerSets.
pub(super) const LEADER_WORKER_SET: Operator = Operator {
    choice: "lws",
    resource: Resource::builtin(
        "leaderworkerset.x-k8s.io",
        "v1",
        "leaderworkersets",
        "leaderworkerset.x-k8s.io/leaderworkersets",
    ),
    kind: "LeaderWorkerSet",
    short_names: &["lws"],
    reads: None,
    defaults: &[],
    suspend: &[],
    roles,
    status,
    ended: |_| false,
};

fn roles(set: &Value) -> Vec<Role> {
    let (name, template) = (json::name(set), &set["spec"]["leaderWorkerTemplate"]);
    let size = json::int(template, &["size"]).unwrap_or(1);
    let workers = &template["workerTemplate"];
    let leaders = template.get("leaderTemplate").filter(|t| t.is_object()).unwrap_or(workers);
    let mut roles = Vec::new();
    for group in 0..json::int(set, &["spec", "replicas"]).unwrap_or(1) {
        let leader = format!("{name}-{group}");
        let pod = |index: i64| {
            let mut annotations = vec![("leaderworkerset.sigs.k8s.io/size", size.to_string())];
            let worker = index > 0;
            if worker {
                annotations.push(("leaderworkerset.sigs.k8s.io/leader-name", leader.clone()));
            }
            Wanted {
                name: if worker { format!("{leader}-{index}") } else { leader.clone() },
                labels: vec![
                    ("leaderworkerset.sigs.k8s.io/name", name.to_owned()),
                    ("leaderworkerset.sigs.k8s.io/group-index", group.to_string()),
                    ("leaderworkerset.sigs.k8s.io/worker-index", index.to_string()),
                ],
                annotations,
            }
        };
        let role = |template: &Value, pods: Vec<Wanted>| Role {
            name: leader.clone(),
            template: template.clone(),
            restart_policy: None,
            pods,
        };
        roles.push(role(leaders, vec![pod(0)]));
        roles.push(role(workers, (1..size).map(pod).collect()));
    }
    roles
}

fn status(state: &State<'_>) -> Value {
    let groups: Vec<bool> = state.roles.chunks(2).map(|g| g.iter().all(|(_, c)| c.is_ready())).collect();
    let made = state.roles.chunks(2).filter(|g| g.iter().any(|(_, c)| c.active > 0)).count();
    let ready = groups.iter().filter(|ready| **ready).count();
    let available = ready == groups.len();
    let conditions = state.conditions(&[
        ("Available", available, "AllGroupsReady", "All replicas are ready"),
        ("Progressing", !available, "GroupsProgressing", "Replicas are progressing"),
    ]);
    json!({"replicas": made, "readyReplicas": ready, "updatedReplicas": made, "conditions": conditions})
}

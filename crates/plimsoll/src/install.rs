//! `plimsoll install`: the manifests of `deploy/`, changed as its flags ask.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use plimsoll_api::webhooks::{NAMESPACE, configurations, service_client};
use plimsoll_api::{json, roles, shards};
use plimsoll_apimachinery::crd::definitions_to_install;
use plimsoll_runtime::Roles;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::cli::{FailurePolicy, Files, Install, Manifests};
use crate::{configure, say};

const NAMESPACES: &str = include_str!("../../../deploy/namespace.yaml");
const RBAC: &str = include_str!("../../../deploy/rbac.yaml");
const SERVICES: &str = include_str!("../../../deploy/service.yaml");
const DEPLOYMENT: &str = include_str!("../../../deploy/deployment.yaml");
const API_SERVICES: &str = include_str!("../../../deploy/apiservices.yaml");
const BUDGET: &str = include_str!("../../../deploy/poddisruptionbudget.yaml");
const SHARDS: &str = include_str!("../../../deploy/shards.yaml");

/// ConfigMap with the configuration files, and where it is mounted. Kueue's file has the name that Kueue's manifests give it.
const CONFIG_MAP: &str = "plimsoll-manager-config";
const MOUNT: &str = "/etc/plimsoll";
const KUEUE_FILE: &str = "controller_manager_config.yaml";
const SCHEDULER_FILE: &str = "scheduler_config.yaml";
/// Annotation of pods with a hash of the configuration files, so that a change of them starts new pods.
const HASH: &str = "plimsoll.dev/config-hash";
/// Service of the visibility API.
const VISIBILITY: &str = "plimsoll-visibility-server";
/// Label that tells the Deployments of named nodes apart.
const INSTANCE: &str = "app.kubernetes.io/instance";

/// Prints the manifests.
///
/// # Errors
/// When a configuration file can't be read or asks for what is not there, or a name is no name.
pub fn run(args: &Install) -> Result<()> {
    let objects = objects(args)?;
    match args.output {
        Manifests::Json => {
            say::line(&json!({"apiVersion": "v1", "kind": "List", "items": objects}).to_string());
        }
        Manifests::Yaml => {
            let documents: Vec<String> =
                objects.iter().map(serde_saphyr::to_string).collect::<Result<_, _>>()?;
            say::line(documents.join("---\n").trim_end());
        }
    }
    if args.node.is_empty() && asked(args).placement {
        say::error(
            "warning: if all pods of Plimsoll are deleted at once, only another scheduler can place new ones: \
             name nodes with --node where there is no other",
        );
    }
    Ok(())
}

/// The roles that the flags ask for; both without any, as in `plimsoll run`.
fn asked(args: &Install) -> Roles {
    let both = args.queueing == args.placement;
    Roles { queueing: both || args.queueing, placement: both || args.placement }
}

/// The objects, in the order in which they are applied.
fn objects(args: &Install) -> Result<Vec<Value>> {
    named("--namespace", &args.namespace, 63, false)?;
    for node in &args.node {
        named("--node", node, 253, true)?;
    }
    ensure!(!args.image.trim().is_empty(), "--image: must not be empty");
    let roles = asked(args);
    check_shards(args, roles)?;
    let files = files(args, roles)?;
    let client = |path: &str| service_client(&args.namespace, path);
    let mut all = documents(NAMESPACES)?;
    if roles.queueing {
        all.extend(definitions_to_install(client));
    }
    all.extend(documents(RBAC)?);
    if !args.shards.is_empty() {
        all.extend(rights_of_shards(args)?);
    }
    all.extend(roles::objects());
    all.extend(config_map(&files));
    if roles.queueing {
        all.extend(documents(SERVICES)?);
        all.extend(documents(API_SERVICES)?);
    }
    if !args.shards.is_empty() {
        all.retain(|object| object["kind"] != "APIService" && json::name(object) != VISIBILITY);
    }
    let deployment = deployment(args, roles, &files)?;
    let has_budget = args.node.len() > 1 || args.node.is_empty() && args.replicas > 1;
    let budget = if has_budget { documents(BUDGET)? } else { Vec::new() };
    for leader in each_leader(args, &deployment, &budget) {
        all.extend(leader);
    }
    all.iter_mut().for_each(|object| move_to(&args.namespace, object));
    if roles.queueing {
        let mut webhooks = configurations(client, &args.namespace);
        webhooks.iter_mut().for_each(|c| fail_as(args.failure_policy, c));
        all.extend(webhooks);
    }
    Ok(all)
}

/// All objects that an installation in this namespace may have, but for Deployments of named nodes, and those of shards with
/// their PodDisruptionBudgets.
///
/// # Errors
/// When the namespace is no name.
pub fn everything(namespace: &str) -> Result<Vec<Value>> {
    let args = Install {
        namespace: namespace.to_owned(),
        image: "plimsoll".to_owned(),
        replicas: 2,
        node: Vec::new(),
        shards: Vec::new(),
        queueing: false,
        placement: false,
        failure_policy: FailurePolicy::Fail,
        frameworks: vec!["batch/job".to_owned()],
        config: None,
        scheduler_config: None,
        output: Manifests::Json,
    };
    let mut all = objects(&args)?;
    all.extend(documents(SHARDS)?.into_iter().map(|mut object| {
        move_to(namespace, &mut object);
        object
    }));
    Ok(all)
}

fn documents(text: &str) -> Result<Vec<Value>> {
    let all: Vec<Value> = serde_saphyr::from_multiple(text).context("a manifest of this program")?;
    Ok(all.into_iter().filter(|d| !d.is_null()).collect())
}

/// Checks the name of an object: a DNS label, or several of them with dots between (RFC 1123).
fn named(flag: &str, name: &str, longest: usize, dots: bool) -> Result<()> {
    let label = |part: &str| {
        let inner = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        !part.is_empty() && part.chars().all(inner) && !part.starts_with('-') && !part.ends_with('-')
    };
    let valid = if dots { name.split('.').all(label) } else { label(name) };
    ensure!(
        valid && name.len() <= longest,
        "{flag}: Invalid value: {name:?}: must consist of lower case alphanumeric characters or '-', start and end with \
         an alphanumeric character, and have at most {longest} characters"
    );
    Ok(())
}

/// Configuration files to install, by name, with the flag that names each to `plimsoll run`.
type Configured = Vec<(&'static str, &'static str, String)>;

/// Reads the files, refusing what `plimsoll run` would refuse.
fn files(args: &Install, roles: Roles) -> Result<Configured> {
    let given = Files {
        config: args.config.clone(),
        scheduler_config: args.scheduler_config.clone(),
        ..Files::default()
    };
    configure::settings(&given, roles)?;
    let read = |path: &Path| std::fs::read_to_string(path).with_context(|| path.display().to_string());
    let mut all = Vec::new();
    if !args.frameworks.is_empty() {
        let config = json!({"apiVersion": "config.kueue.x-k8s.io/v1beta2", "kind": "Configuration",
            "integrations": {"frameworks": args.frameworks}});
        let text = serde_saphyr::to_string(&config)?;
        configure::check(text.as_bytes(), "", "").context("--frameworks")?;
        all.push((KUEUE_FILE, "--config", text));
    }
    if let Some(path) = &args.config {
        all.push((KUEUE_FILE, "--config", read(path)?));
    }
    if let Some(path) = &args.scheduler_config {
        all.push((SCHEDULER_FILE, "--scheduler-config", read(path)?));
    }
    Ok(all)
}

fn config_map(files: &Configured) -> Option<Value> {
    if files.is_empty() {
        return None;
    }
    let data: serde_json::Map<String, Value> =
        files.iter().map(|(name, _, text)| ((*name).to_owned(), text.clone().into())).collect();
    let metadata = json!({"name": CONFIG_MAP, "namespace": NAMESPACE});
    Some(json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}))
}

/// Refuses shards that can't be installed.
fn check_shards(args: &Install, roles: Roles) -> Result<()> {
    let all: BTreeSet<&String> = args.shards.iter().collect();
    ensure!(all.len() == args.shards.len(), "--shards: each shard is named once");
    if !args.shards.is_empty() {
        ensure!(roles.queueing, "--shards: shards are made of queues, too; leave out --placement");
        let found = args.shards.iter().any(|name| name == shards::DEFAULT);
        ensure!(found, "--shards: one must be `default`, which does what is about the whole cluster");
    }
    Ok(())
}

/// What processes of shards may do besides what all may do.
fn rights_of_shards(args: &Install) -> Result<Vec<Value>> {
    let mut all = documents(SHARDS)?;
    for role in all.iter_mut().filter(|object| object["kind"] == "Role") {
        let leases: Vec<String> = args.shards.iter().map(|name| name_of_shard(name)).collect();
        role["rules"][0]["resourceNames"] = leases.into();
    }
    Ok(all)
}

/// Name of the Lease of a shard, and of its Deployment.
fn name_of_shard(shard: &str) -> String {
    format!("plimsoll-{shard}")
}

/// The objects of each leader: of the whole cluster, or of each shard.
fn each_leader(args: &Install, deployment: &Value, budget: &[Value]) -> Vec<Vec<Value>> {
    let on_nodes = |one: Value| match args.node.is_empty() {
        true => vec![one],
        false => args.node.iter().enumerate().map(|(i, node)| on_node(&one, i, node)).collect(),
    };
    if args.shards.is_empty() {
        return vec![[on_nodes(deployment.clone()), budget.to_vec()].concat()];
    }
    let leader = |shard: &String| {
        let budget = budget.iter().cloned().map(|budget| of_shard(budget, shard)).collect();
        [on_nodes(of_shard(deployment.clone(), shard)), budget].concat()
    };
    args.shards.iter().map(leader).collect()
}

/// The Deployment or PodDisruptionBudget of a shard, whose pods have its label.
fn of_shard(mut object: Value, shard: &str) -> Value {
    object["metadata"]["name"] = name_of_shard(shard).into();
    object["spec"]["selector"]["matchLabels"][shards::LABEL] = shard.into();
    if object["kind"] != "Deployment" {
        return object;
    }
    let template = &mut object["spec"]["template"];
    template["metadata"]["labels"][shards::LABEL] = shard.into();
    let apart = "/spec/affinity/podAntiAffinity/preferredDuringSchedulingIgnoredDuringExecution/0/podAffinityTerm/labelSelector/matchLabels";
    if let Some(labels) = template.pointer_mut(apart) {
        labels[shards::LABEL] = shard.into();
    }
    let container = &mut template["spec"]["containers"][0];
    let mut command = json::list(container, &["command"]).to_vec();
    command.retain(|arg| !arg.as_str().is_some_and(|a| a.starts_with("--visibility-")));
    command.push(format!("--shard={shard}").into());
    container["command"] = command.into();
    let ports = json::list(container, &["ports"]).iter().filter(|p| p["name"] != "visibility");
    container["ports"] = ports.cloned().collect();
    object
}

/// The Deployment of a leader, wherever its pods are.
fn deployment(args: &Install, roles: Roles, files: &Configured) -> Result<Value> {
    let [mut one] = <[Value; 1]>::try_from(documents(DEPLOYMENT)?)
        .map_err(|_| anyhow::anyhow!("a manifest of this program: one Deployment is expected"))?;
    one["spec"]["replicas"] = args.replicas.into();
    let template = &mut one["spec"]["template"];
    if !files.is_empty() {
        template["metadata"]["annotations"] = json!({HASH: hash(files)});
        template["spec"]["volumes"] = json!([{"name": "config", "configMap": {"name": CONFIG_MAP}}]);
    }
    let container = &mut template["spec"]["containers"][0];
    container["image"] = args.image.as_str().into();
    container["command"] = command(container, roles, files);
    if !files.is_empty() {
        container["volumeMounts"] = json!([{"name": "config", "mountPath": MOUNT, "readOnly": true}]);
    }
    if !roles.queueing {
        let ports = json::list(container, &["ports"]).iter().filter(|p| p["name"] == "metrics");
        container["ports"] = ports.cloned().collect();
    }
    Ok(one)
}

/// SHA-256 of the files with their names, as the Helm chart computes it (`deploy/chart/templates/_helpers.tpl`).
fn hash(files: &Configured) -> String {
    let mut hasher = Sha256::new();
    for (name, _, text) in files {
        hasher.update(format!("{name}\n{text}\n"));
    }
    hasher.finalize().iter().fold(String::new(), |mut hex, byte| {
        let _ = write!(hex, "{byte:02x}");
        hex
    })
}

/// What the container runs.
fn command(container: &Value, roles: Roles, files: &Configured) -> Value {
    let mut command = json::list(container, &["command"]).to_vec();
    match (roles.queueing, roles.placement) {
        (true, false) => command.push("--queueing".into()),
        (false, true) => {
            let serves = |arg: &str| {
                ["--webhook-", "--conversion-", "--visibility-"].iter().any(|p| arg.starts_with(p))
            };
            command.retain(|arg| !arg.as_str().is_some_and(serves));
            command.push("--placement".into());
        }
        _ => {}
    }
    command.extend(files.iter().map(|(name, flag, _)| format!("{flag}={MOUNT}/{name}").into()));
    command.into()
}

/// The Deployment of one node. With its node in the template a pod is not for a scheduler: the kubelet starts it as soon as
/// the ReplicaSet controller has made it. So a cluster in which all replicas have died comes back by itself.
fn on_node(deployment: &Value, index: usize, node: &str) -> Value {
    let mut own = deployment.clone();
    let name = format!("{}-{index}", json::name(deployment));
    own["metadata"]["name"] = name.as_str().into();
    own["spec"]["replicas"] = 1.into();
    own["spec"]["selector"]["matchLabels"][INSTANCE] = name.as_str().into();
    let template = &mut own["spec"]["template"];
    template["metadata"]["labels"][INSTANCE] = name.into();
    let spec = &mut template["spec"];
    spec["nodeName"] = node.into();
    if let Some(spec) = spec.as_object_mut() {
        spec.remove("affinity");
    }
    // As static pods have it: no taint of the node keeps the scheduler away.
    spec["tolerations"] = json!([{"operator": "Exists"}]);
    own
}

/// Moves an object into a namespace.
fn move_to(namespace: &str, object: &mut Value) {
    if object["kind"] == "Namespace" {
        object["metadata"]["name"] = namespace.into();
    }
    let subjects = object.get_mut("subjects").and_then(Value::as_array_mut).into_iter().flatten();
    for subject in subjects.filter(|s| s["namespace"] == NAMESPACE) {
        subject["namespace"] = namespace.into();
    }
    if object["kind"] == "APIService" {
        object["spec"]["service"]["namespace"] = namespace.into();
    }
    if object["metadata"]["namespace"] == NAMESPACE {
        object["metadata"]["namespace"] = namespace.into();
    }
}

fn fail_as(policy: FailurePolicy, configuration: &mut Value) {
    let word = match policy {
        FailurePolicy::Fail => "Fail",
        FailurePolicy::Ignore => "Ignore",
    };
    for webhook in configuration["webhooks"].as_array_mut().into_iter().flatten() {
        webhook["failurePolicy"] = word.into();
    }
}

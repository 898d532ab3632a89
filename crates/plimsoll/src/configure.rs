//! Configuration files: read strictly, and refused as a whole where this build can't do what they ask for.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, anyhow, bail};
use plimsoll_api::kueue::WorkloadNames;
use plimsoll_config as config;
use plimsoll_jobs::config::WebhookGates;
use plimsoll_jobs::integrations::INTEGRATIONS;
use plimsoll_jobs::pod_view::Identifiers;
use plimsoll_jobs::{Config as JobsConfig, CustomKind, multikueue};
use plimsoll_queueing::{LabelSource, Policies, WorkloadPolicy};
use plimsoll_runtime::reload::{Of, Reading, Reload, Source};
use plimsoll_runtime::{Roles, Settings};
use plimsoll_scheduler::framework::ArgsError;
use serde_json::Value;

use crate::cli::Files;
use crate::guests::{self, Modules};

/// Fields of Kueue's file that are about its process, and what does the same here.
const KUEUE_PROCESS: [(&str, &str); 9] = [
    ("webhook", "flags --webhook-port and --webhook-host of plimsoll run"),
    ("leaderElection", "flags --leader-elect… of plimsoll run"),
    ("metrics", "flag --metrics-bind-address; localQueueMetrics and customLabels are honoured"),
    ("health", "flag --metrics-bind-address"),
    ("pprofBindAddress", ""),
    ("controller", ""),
    ("tls", ""),
    ("internalCertManagement", ""),
    ("visibilityServer", "flags --visibility-port and --visibility-host of plimsoll run"),
];

/// The same of kube-scheduler's file.
const SCHEDULER_PROCESS: [(&str, &str); 5] = [
    ("leaderElection", "flags --leader-elect… of plimsoll run"),
    ("parallelism", ""),
    ("enableProfiling", ""),
    ("enableContentionProfiling", ""),
    ("delayCacheUntilActive", ""),
];

/// What Kueue does without a file.
const EMPTY: &str = "apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\n";

/// The settings that the files ask for, defaults where there are none.
///
/// # Errors
/// When a file can't be read, is malformed, or asks for what is not there; nothing has been changed then. With two
/// files, the errors of both are told.
pub fn settings(files: &Files, roles: Roles) -> anyhow::Result<Settings> {
    let mut settings = Settings { roles, joint: !files.no_joint_admission, ..Settings::default() };
    let mut errors = Vec::new();
    let gates =
        config::scheduler::Gates::parse(&files.scheduler_feature_gates).context("--scheduler-feature-gates");
    let gates = gates.unwrap_or_else(|e| {
        errors.push(e);
        config::scheduler::Gates::default()
    });
    match placement(files, &gates) {
        Ok((place, client, plugins)) => {
            (settings.place, settings.placement_client) = (place, client);
            settings.plugins.extend(plugins);
        }
        Err(e) => errors.push(e),
    }
    // Without a file jobs of all kinds are queued, which Kueue has to be told.
    let named = files
        .config
        .as_ref()
        .map_or("the default configuration".to_owned(), |path| format!("--config {}", path.display()));
    let read = files.config.as_deref().map_or_else(|| Ok(EMPTY.to_owned()), text);
    let modules = Modules::default();
    let read = read.and_then(|text| {
        let read = queueing(&text, files.config.is_none(), &modules)?;
        warn_of(&text, &named, &KUEUE_PROCESS);
        Ok((read, text))
    });
    match read.with_context(|| named) {
        Ok(((queueing, jobs, client), text)) => {
            (settings.queueing, settings.jobs, settings.queueing_client) = (queueing, jobs, client);
            settings.plugins.extend(files.config.as_ref().map(|path| follow_rules(path, &text, modules)));
        }
        Err(e) => errors.push(e),
    }
    match errors.len() {
        0 => {
            told(files, &settings);
            Ok(settings)
        }
        1 => Err(errors.remove(0)),
        _ => Err(anyhow!("{}", errors.iter().map(|e| format!("{e:#}")).collect::<Vec<_>>().join("\n"))),
    }
}

/// Logs what the process will do, as kube-scheduler logs its component configuration.
fn told(files: &Files, settings: &Settings) {
    if !tracing::enabled!(tracing::Level::INFO) {
        return;
    }
    let path =
        |file: &Option<std::path::PathBuf>| file.as_ref().map_or("none".into(), |p| p.display().to_string());
    let profiles: Vec<&str> = settings.place.profiles.iter().map(|p| p.scheduler_name.as_str()).collect();
    let (queueing, jobs) = (&settings.queueing, &settings.jobs);
    tracing::info!(
        config = path(&files.config),
        schedulerConfig = path(&files.scheduler_config),
        queueing = settings.roles.queueing,
        placement = settings.roles.placement,
        jointAdmission = settings.joint,
        profiles = profiles.join(","),
        extenders = settings.place.extenders.len(),
        fairSharing = queueing.fair_sharing.is_some(),
        admissionFairSharing = queueing.admission_fair_sharing.is_some(),
        waitForPodsReadySeconds = queueing.wait_for_pods_ready.as_ref().map(|w| w.timeout.seconds()),
        jobs = jobs.has_framework("batch/job"),
        pods = jobs.has_framework("pod"),
        manageJobsWithoutQueueName = jobs.manage_jobs_without_queue_name,
        "Using configuration"
    );
}

type Placement = (plimsoll_scheduler::Config, Option<config::ClientConnection>, Option<Source>);

fn placement(files: &Files, gates: &config::scheduler::Gates) -> anyhow::Result<Placement> {
    let Some(path) = &files.scheduler_config else { return Ok((gates.default_config(), None, None)) };
    let named = format!("--scheduler-config {}", path.display());
    let text = text(path).with_context(|| named.clone())?;
    let modules = Modules::default();
    let (_, place) = with_plugins(&text, gates, &modules).with_context(|| named.clone())?;
    warn_of(&text, &named, &SCHEDULER_PROCESS);
    let source = follow(path, &text, gates, modules);
    Ok((place, config::scheduler::client_connection(&text), Some(source)))
}

/// Reads the file and the files of its plugins again when one of them changes.
fn follow(path: &Path, text: &str, gates: &config::scheduler::Gates, modules: Modules) -> Source {
    let (path, gates, counted) = (path.to_owned(), gates.clone(), modules.clone());
    let source = Source::new(Of::Placement, &watched(&path, text), move || {
        let read = self::text(&path);
        let files = watched(&path, read.as_deref().unwrap_or_default());
        let read = read.and_then(|text| with_plugins(&text, &gates, &modules));
        let named = || format!("--scheduler-config {}", path.display());
        let reload = read.with_context(named).map(|(_, place)| Reload::Profiles(place.profiles));
        Reading { files, reload: reload.map_err(|e| format!("{e:#}")) }
    });
    let recorded = counted.clone();
    source.with_metrics(move || guests::metrics(&counted)).with_events(move || guests::events(&recorded))
}

/// Reads the rules about workloads of Kueue's file again when it changes, or a file of its plugins. What else is in the file
/// takes a restart.
fn follow_rules(path: &Path, text: &str, modules: Modules) -> Source {
    let (path, counted, before) = (path.to_owned(), modules.clone(), beside_rules(text));
    let source = Source::new(Of::Queueing, &watched(&path, text), move || {
        let read = self::text(&path);
        let files = watched(&path, read.as_deref().unwrap_or_default());
        let other = read.as_deref().ok().and_then(beside_rules);
        if other.is_some() && other != before {
            tracing::warn!("--config {}: changes beside plimsoll.workloads take a restart", path.display());
        }
        let read = read.and_then(|text| queueing(&text, false, &modules));
        let named = || format!("--config {}", path.display());
        let reload = read.with_context(named).map(|(queueing, ..)| Reload::Policy(queueing.policy));
        Reading { files, reload: reload.map_err(|e| format!("{e:#}")) }
    });
    source.with_metrics(move || guests::metrics(&counted))
}

/// What a file of Kueue has beside the rules about workloads.
fn beside_rules(text: &str) -> Option<Value> {
    let mut config = config::parse(text).ok()?;
    config.as_object_mut()?.remove("plimsoll");
    Some(config)
}

/// The file, and the files that its plugins come from.
fn watched(path: &Path, text: &str) -> Vec<PathBuf> {
    let plugins = config::parse(text).map(|config| guests::files(&config)).unwrap_or_default();
    std::iter::once(path.to_owned()).chain(plugins).collect()
}

fn with_plugins(text: &str, gates: &config::scheduler::Gates, modules: &Modules) -> anyhow::Result<Plugins> {
    let registry = plugins(text, modules)?;
    let place = config::scheduler::read_with_registry(text, gates, &registry)?;
    Ok((registry, place))
}

type Plugins = (plimsoll_scheduler::Registry, plimsoll_scheduler::Config);

/// What a file of kube-scheduler configures, or the defaults, with the plugins that it can name.
///
/// # Errors
/// When the gates or the file are not valid.
pub fn scheduler(file: Option<&Path>, gates: &str) -> anyhow::Result<Plugins> {
    let gates = config::scheduler::Gates::parse(gates).context("--scheduler-feature-gates")?;
    let Some(path) = file else { return Ok((plimsoll_plugins::registry(), gates.default_config())) };
    let read = text(path).and_then(|text| with_plugins(&text, &gates, &Modules::default()));
    read.with_context(|| format!("--scheduler-config {}", path.display()))
}

/// The default configuration of placement, and the one that a file of kube-scheduler asks for.
///
/// # Errors
/// When the gates or the file are not valid.
pub fn beside_default(
    text: &str,
    gates: &str,
) -> anyhow::Result<(plimsoll_scheduler::Config, plimsoll_scheduler::Config)> {
    let gates = config::scheduler::Gates::parse(gates).context("--scheduler-feature-gates")?;
    let (_, with) = with_plugins(text, &gates, &Modules::default())?;
    Ok((gates.default_config(), with))
}

/// A file that can be used.
pub enum File {
    /// kube-scheduler's.
    Scheduler(Box<plimsoll_scheduler::Config>),
    /// Kueue's.
    Queueing,
    /// A guest in WebAssembly, which runs at these extension points.
    Guest(Vec<&'static str>),
}

/// Checks a file of any of the kinds that configure the engine.
///
/// # Errors
/// When it is of no such kind or not valid.
pub fn check(bytes: &[u8], gates: &str, guest_config: &str) -> anyhow::Result<File> {
    let gates = config::scheduler::Gates::parse(gates).context("--scheduler-feature-gates")?;
    if bytes.starts_with(b"\0asm") {
        return guests::check(bytes, guest_config).map(File::Guest);
    }
    let text = std::str::from_utf8(bytes).context("neither text nor a WebAssembly module")?;
    match config::parse(text)?["kind"].as_str() {
        Some("Configuration") => queueing(text, false, &Modules::default()).map(|_| File::Queueing),
        // Others are refused with the kinds that can be read.
        _ => {
            with_plugins(text, &gates, &Modules::default()).map(|(_, place)| File::Scheduler(Box::new(place)))
        }
    }
}

/// The plugins that the file can name: those with a guest are its own.
fn plugins(text: &str, modules: &Modules) -> anyhow::Result<plimsoll_scheduler::Registry> {
    let mut registry = plimsoll_plugins::registry();
    // What is no YAML is reported when the configuration is read.
    if let Ok(config) = config::parse(text) {
        guests::register(&mut registry, &config, modules)?;
    }
    Ok(registry)
}

/// Warns of fields of a file without effect, and names the flag that has it.
fn warn_of(text: &str, named: &str, fields: &[(&str, &str)]) {
    if let Some(told) = without_effect(text, fields) {
        tracing::warn!("{named}: without effect here: {told}");
    }
}

fn without_effect(text: &str, fields: &[(&str, &str)]) -> Option<String> {
    let names: Vec<&str> = fields.iter().map(|(name, _)| *name).collect();
    let told: Vec<String> = config::present(text, &names)
        .into_iter()
        .map(|name| match fields.iter().find(|(n, _)| *n == name) {
            Some((_, instead)) if !instead.is_empty() => format!("{name} ({instead})"),
            _ => name.to_owned(),
        })
        .collect();
    (!told.is_empty()).then(|| told.join(", "))
}

fn text(path: &Path) -> anyhow::Result<String> {
    Ok(std::fs::read_to_string(path)?)
}

type Queueing = (plimsoll_queueing::Config, JobsConfig, Option<config::ClientConnection>);

/// The rules about workloads of a section `plimsoll`: its expressions, then its guests.
fn policy(section: &Value, modules: &Modules) -> Result<Option<Arc<dyn WorkloadPolicy>>, Vec<ArgsError>> {
    let (expressions, guests) =
        (plimsoll_plugins::workloads::policy(section), guests::policies(section, modules));
    let mut all: Vec<Arc<dyn WorkloadPolicy>> = match (expressions, guests) {
        (Ok(expressions), Ok(guests)) => expressions.into_iter().chain(guests).collect(),
        (expressions, guests) => {
            return Err(expressions.err().into_iter().chain(guests.err()).flatten().collect());
        }
    };
    Ok(match all.len() {
        0 | 1 => all.pop(),
        _ => Some(Arc::new(Policies(all))),
    })
}

/// The section `multiKueue`. Kubeconfigs are Secrets of the namespace that Plimsoll runs in, unless the file names another.
fn dispatching(
    namespace: Option<String>,
    read: config::kueue::MultiKueue,
    gates: &config::kueue::FeatureGates,
) -> multikueue::Settings {
    multikueue::Settings {
        namespace: namespace
            .filter(|n| !n.is_empty())
            .unwrap_or_else(|| plimsoll_api::webhooks::NAMESPACE.to_owned()),
        origin: read.origin,
        worker_lost_timeout: read.worker_lost_timeout,
        gc_interval: read.gc_interval,
        dispatcher: read.dispatcher,
        orchestrates_preemption: gates.is_on("MultiKueueOrchestratedPreemption"),
        validates_paths: gates.is_on("MultiKueueKubeConfigPathValidation"),
        automates_quota: gates.is_on("MultiKueueManagerQuotaAutomation"),
        clears_ttl: gates.is_on("MultiKueueBatchJobClearingTTLSecondsAfterFinishedOnWorkerCluster"),
        access_providers: gates.is_on("MultiKueueClusterProfile").then_some(read.access_providers),
        external_frameworks: read.external_frameworks,
    }
}

fn queueing(text: &str, pods: bool, modules: &Modules) -> anyhow::Result<Queueing> {
    let mut read = config::kueue::read(text, "kueue-system")?;
    read.queueing.watch_nodes = true;
    read.queueing.explain_every = plimsoll_queueing::EXPLAIN_EVERY;
    if let Some(section) = &read.plimsoll {
        read.queueing.policy = policy(section, modules).map_err(|errors| {
            let error = |e: &ArgsError| match e.field.as_str() {
                "" => format!("plimsoll: {}", e.message),
                field => format!("plimsoll.{field}: {}", e.message),
            };
            anyhow!("{}", errors.iter().map(error).collect::<Vec<_>>().join("\n"))
        })?;
    }
    let of_workloads = |annotation: bool| {
        let labels = read.queueing.custom_labels.iter();
        let wanted = labels.filter(move |l| l.source == LabelSource::Workload && l.annotation == annotation);
        wanted.map(|l| l.key.clone())
    };
    let mut labels_to_copy = read.label_keys_to_copy;
    labels_to_copy.extend(of_workloads(false));
    let annotations_to_copy = of_workloads(true).collect();
    let mut jobs = JobsConfig {
        manage_jobs_without_queue_name: read.manage_jobs_without_queue_name,
        managed_jobs_namespace_selector: read.managed_jobs_namespaces,
        frameworks: read.frameworks.into_iter().collect(),
        external_frameworks: read.external_frameworks,
        label_keys_to_copy: labels_to_copy,
        annotation_keys_to_copy: annotations_to_copy,
        wait_for_pods_ready: read.queueing.wait_for_pods_ready.is_some(),
        elastic_jobs: read.queueing.gates.elastic_jobs,
        partial_scale_up: read.queueing.gates.partial_scale_up,
        partial_preemption: read.queueing.gates.partial_preemption,
        priority_boost: read.queueing.gates.priority_boost,
        clean_up_provisioning_requests: read.gates.is_on("CleanupProvisioningRequestsOnEviction"),
        failure_recovery: read.gates.is_on("FailureRecoveryPolicy"),
        concurrent_admission: read.queueing.gates.concurrent_admission,
        quota_release: read.quota_release,
        identifiers: match read.gates.is_on("WorkloadIdentifierAnnotations") {
            true => Identifiers::Annotations,
            false => Identifiers::Labels,
        },
        workload_names: match read.gates.is_on("ShortWorkloadNames") {
            true => WorkloadNames::Short,
            false => WorkloadNames::Long,
        },
        webhook_gates: WebhookGates {
            validates_ray_updates: read.gates.is_on("ValidateRayAndSparkJobUpdates"),
            default_priority_class: read.gates.is_on("WorkloadPriorityClassDefaulting"),
            immutable_group_size: read.gates.is_on("LWSImmutableGroupSize"),
            rejects_invalid_on_flavors: read.gates.is_on("RejectUpdatesToCQWithInvalidOnFlavors"),
        },
        retain_after_finished: read.delete_finished_after,
        retain_after_deactivated: read.delete_deactivated_after,
        multikueue: dispatching(read.namespace, read.multikueue, &read.gates),
    };
    let built_in = |name: &str| INTEGRATIONS.iter().any(|i| i.framework == name);
    // Without their definitions Kueue does not queue such jobs either.
    for name in jobs.frameworks.iter().filter(|n| !built_in(n)) {
        tracing::warn!(framework = name, "jobs of this kind are not queued: there is no integration for it");
    }
    let spark = CustomKind::SPARK_APPLICATION.framework();
    let gate = "SparkApplicationIntegration";
    if jobs.has_framework(spark) && !read.gates.is_on(gate) {
        bail!(
            "integrations.frameworks: {spark} integration is alpha feature. please enable {gate} featuregate"
        );
    }
    if pods {
        let on = INTEGRATIONS.iter().filter(|i| i.framework != spark);
        jobs.frameworks.extend(on.map(|i| i.framework.to_owned()));
    }
    Ok((read.queueing, jobs, read.client))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_about_the_process_are_named() {
        let text = "leaderElection: {leaderElect: true}\nwebhook:\npprofBindAddress: :8083\n";
        let told = without_effect(text, &KUEUE_PROCESS);
        let want = "leaderElection (flags --leader-elect… of plimsoll run), pprofBindAddress";
        assert_eq!(told.as_deref(), Some(want));
        assert_eq!(without_effect(EMPTY, &KUEUE_PROCESS), None);
    }

    #[test]
    fn clients_have_the_limits_of_the_files() {
        let client = |rest: &str| {
            queueing(&format!("{EMPTY}{rest}"), false, &Modules::default())
                .map(|(.., c)| c.map(|c| (c.qps, c.burst)))
        };
        assert_eq!(client("").unwrap(), None);
        assert_eq!(client("clientConnection: {qps: 50}\n").unwrap(), Some((50.0, 500)));
        assert_eq!(client("clientConnection: {burst: 7}\n").unwrap(), Some((300.0, 7)));
        assert_eq!(client("clientConnection: {qps: -1}\n").unwrap(), Some((-1.0, 500)));
        assert!(client("clientConnection: {burst: -1}\n").is_err());
        assert!(client("clientConnection: {qsp: 1}\n").is_err());
        let head = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n";
        let client = |rest: &str| {
            config::scheduler::client_connection(&format!("{head}{rest}")).map(|c| (c.qps, c.burst))
        };
        assert_eq!(client(""), None);
        assert_eq!(client("clientConnection: {burst: 20}\n"), Some((50.0, 20)));
        assert_eq!(client("clientConnection: {qps: 5000, burst: 5000}\n"), Some((5000.0, 5000)));
    }

    #[test]
    fn workloads_get_what_custom_labels_of_metrics_read() {
        let labels = "metrics:\n  customLabels:\n  - {name: kind, sourceKind: Workload, trackedValues: [x]}\n  \
            - {name: note, sourceKind: Workload, sourceAnnotationKey: n, trackedValues: [x]}\n  - {name: team}\n";
        let copied = |gate: bool| {
            let text = format!(
                "{EMPTY}featureGates: {{CustomMetricLabels: {gate}}}\nintegrations: {{labelKeysToCopy: [a]}}\n{labels}"
            );
            let (_, jobs, _) = queueing(&text, false, &Modules::default()).unwrap();
            (jobs.label_keys_to_copy.join(" "), jobs.annotation_keys_to_copy.join(" "))
        };
        assert_eq!(copied(true), ("a kind".to_owned(), "n".to_owned()));
        assert_eq!(copied(false), ("a".to_owned(), String::new()));
    }

    /// Benchmarks measure what users run.
    #[test]
    fn the_usual_configuration_is_that_without_a_file() {
        let (read, ..) = queueing(EMPTY, true, &Modules::default()).unwrap();
        assert_eq!(format!("{read:#?}"), format!("{:#?}", plimsoll_queueing::Config::usual()));
    }

    #[test]
    fn gates_of_integrations_are_honoured() {
        let read = |gates: &str| {
            let text = format!("{EMPTY}featureGates: {{{gates}}}\n");
            let (_, jobs, _) = queueing(&text, false, &Modules::default()).unwrap();
            (jobs.identifiers, jobs.webhook_gates, jobs.workload_names)
        };
        let long = WorkloadNames::Long;
        let defaults = WebhookGates::default();
        assert_eq!(read(""), (Identifiers::Annotations, defaults, long));
        let short = read("ShortWorkloadNames: true");
        assert_eq!(short, (Identifiers::Annotations, defaults, WorkloadNames::Short));
        assert_eq!(read("WorkloadIdentifierAnnotations: false"), (Identifiers::Labels, defaults, long));
        for (gate, on, want) in [
            (
                "ValidateRayAndSparkJobUpdates",
                false,
                WebhookGates { validates_ray_updates: false, ..defaults },
            ),
            (
                "WorkloadPriorityClassDefaulting",
                false,
                WebhookGates { default_priority_class: false, ..defaults },
            ),
            ("LWSImmutableGroupSize", false, WebhookGates { immutable_group_size: false, ..defaults }),
            (
                "RejectUpdatesToCQWithInvalidOnFlavors",
                true,
                WebhookGates { rejects_invalid_on_flavors: true, ..defaults },
            ),
        ] {
            assert_eq!(read(&format!("{gate}: {on}")), (Identifiers::Annotations, want, long));
        }
    }

    #[test]
    fn what_is_not_there_is_refused() {
        for (rest, want) in [
            (
                "integrations:\n  frameworks: [sparkoperator.k8s.io/sparkapplication]\n",
                "please enable SparkApplicationIntegration featuregate",
            ),
            ("waitForPodReady: {}\n", "waitForPodReady"),
        ] {
            let text = format!("{EMPTY}{rest}");
            let error = queueing(&text, false, &Modules::default()).map(drop).map_err(|e| format!("{e:#}"));
            assert!(error.as_ref().is_err_and(|e| e.contains(want)), "{rest}: {error:?}");
        }
    }
}

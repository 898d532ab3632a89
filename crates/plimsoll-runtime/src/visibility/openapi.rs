//! OpenAPI documents of the visibility API: schemas and descriptions as upstream generates them
//! (`apis/visibility/openapi/zz_generated.openapi.go`), and those of Plimsoll's own AdmissionForecast.

use std::sync::LazyLock;

use plimsoll_apimachinery::openapi;
use serde_json::{Map, Value, json};

use super::documents::{FORECAST_KIND, FORECASTS, GROUP, VERSIONS};
use super::{Answer, JSON};

const TITLE: &str = "Plimsoll visibility API";
const META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.";
/// Media types of the binary forms: asked for with an `@`, answered with a dot.
const BINARY: [[&str; 2]; 2] = [
    [
        "application/com.github.proto-openapi.spec.v2.v1.0+protobuf",
        "application/com.github.proto-openapi.spec.v2@v1.0+protobuf",
    ],
    [
        "application/com.github.proto-openapi.spec.v3.v1.0+protobuf",
        "application/com.github.proto-openapi.spec.v3@v1.0+protobuf",
    ],
];

/// A document in both forms.
struct Document {
    json: String,
    binary: Vec<u8>,
}

struct Documents {
    index: Value,
    swagger: Document,
    /// By version.
    versions: Vec<(&'static str, Document)>,
}

static DOCUMENTS: LazyLock<Documents> = LazyLock::new(|| {
    let made: Vec<(&str, Value)> = VERSIONS.iter().map(|version| (*version, document(version))).collect();
    let swagger = openapi::v2_of(TITLE, env!("CARGO_PKG_VERSION"), made.iter().map(|(_, d)| d.clone()));
    let versions: Vec<(&str, Document)> = made
        .iter()
        .map(|(version, d)| (*version, Document { json: d.to_string(), binary: openapi::document_binary(d) }))
        .collect();
    let entry = |(version, document): &(&str, Document)| {
        let hash = openapi::digest(document.json.as_bytes());
        let name = format!("apis/{GROUP}/{version}");
        let url = format!("/openapi/v3/{name}?hash={hash}");
        (name, json!({ "serverRelativeURL": url }))
    };
    let index: Map<String, Value> = versions.iter().map(entry).collect();
    let binary = openapi::v2_binary(&swagger);
    Documents {
        index: json!({ "paths": index }),
        swagger: Document { json: swagger.to_string(), binary },
        versions,
    }
});

/// The answer for `/openapi/…`, the segments after that; `None`: there is no such document.
pub(super) fn answer(segments: &[&str], accept: &str) -> Option<Answer> {
    match segments {
        ["v3"] => Some(Answer::json(200, &DOCUMENTS.index)),
        ["v2"] => Some(DOCUMENTS.swagger.answer(accept, &BINARY[0])),
        ["v3", "apis", GROUP, version] => {
            let (_, document) = DOCUMENTS.versions.iter().find(|(v, _)| v == version)?;
            Some(document.answer(accept, &BINARY[1]))
        }
        _ => None,
    }
}

impl Document {
    /// In the first form of `accept` that there is.
    fn answer(&self, accept: &str, binary: &[&'static str; 2]) -> Answer {
        let mut forms = accept.split(',').map(|c| c.split(';').next().unwrap_or("").trim());
        let is_json = |form: &str| matches!(form, "" | "*/*" | "application/*" | JSON);
        match forms.find(|form| is_json(form) || binary.contains(form)) {
            Some(form) if is_json(form) => {
                Answer { status: 200, content_type: JSON, body: self.json.clone().into() }
            }
            Some(_) => Answer { status: 200, content_type: binary[0], body: self.binary.clone().into() },
            None => Answer { status: 406, content_type: "text/plain; charset=utf-8", body: "".into() },
        }
    }
}

fn name(version: &str, kind: &str) -> String {
    format!("io.k8s.kueue.visibility.{version}.{kind}")
}

fn reference(name: &str) -> Value {
    json!({ "$ref": format!("#/components/schemas/{name}") })
}

fn document(version: &str) -> Value {
    openapi::document_of(TITLE, env!("CARGO_PKG_VERSION"), &paths(version), &schemas(version))
}

fn paths(version: &str) -> Value {
    let parameter = |place: &str, name: &str, kind: &str, text: &str| {
        let mut made = json!({"name": name, "in": place, "description": text,
            "schema": {"type": kind, "uniqueItems": true}});
        if place == "path" {
            made["required"] = json!(true);
        }
        made
    };
    let of = |kind: &str| parameter("path", "name", "string", &format!("name of the {kind}"));
    let namespace = || {
        let text = "object name and auth scope, such as for teams and projects";
        parameter("path", "namespace", "string", text)
    };
    let page = || {
        let offset = "Offset indicates position of the first pending workload that should be fetched, starting from 0. 0 by default";
        let limit = "Limit indicates max number of pending workloads that should be fetched. 1000 by default";
        [parameter("query", "limit", "integer", limit), parameter("query", "offset", "integer", offset)]
    };
    let camel = format!("VisibilityKueueXK8sIo{}", version.replacen('v', "V", 1));
    let operation = |id: &str, action: &str, text: &str, kind: &str, status: &str, meaning: &str| {
        let schema = reference(&name(version, kind));
        json!({"description": text, "operationId": format!("{action}{camel}{id}"), "tags": [camel],
            "x-kubernetes-action": if action == "create" { "post" } else { "get" },
            "x-kubernetes-group-version-kind": {"group": GROUP, "version": version, "kind": kind},
            "responses": {status: {"description": meaning, "content": {JSON: {"schema": schema}}},
                "401": {"description": "Unauthorized"}}})
    };
    let summary = |id: &str, of: &str| {
        let text = format!("read pendingworkloads of the specified {of}");
        operation(id, "read", &text, "PendingWorkloadsSummary", "200", "OK")
    };
    let mut forecast = operation(
        &format!("NamespacedLocalQueue{FORECAST_KIND}"),
        "create",
        "when the posted Workload could start in the specified LocalQueue",
        FORECAST_KIND,
        "201",
        "Created",
    );
    forecast["requestBody"] = json!({"required": true, "content": {JSON: {"schema": {"type": "object", "description": "a Workload"}}}});
    let [limit, offset] = page();
    let base = format!("/apis/{GROUP}/{version}");
    let local = format!("{base}/namespaces/{{namespace}}/localqueues/{{name}}");
    json!({
        (format!("{base}/clusterqueues/{{name}}/pendingworkloads")): {
            "get": summary("ClusterQueuePendingworkloads", "ClusterQueue"), "parameters": [of("ClusterQueue"), limit, offset]},
        (format!("{local}/pendingworkloads")): {
            "get": summary("NamespacedLocalQueuePendingworkloads", "LocalQueue"),
            "parameters": [of("LocalQueue"), namespace(), limit, offset]},
        (format!("{local}/{FORECASTS}")): {"post": forecast, "parameters": [of("LocalQueue"), namespace()]},
    })
}

const KIND_TEXT: &str = "Kind is a string value representing the REST resource this object represents. Servers may infer \
    this from the endpoint the client submits requests to. Cannot be updated. In CamelCase. More info: \
    https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#types-kinds";
const VERSION_TEXT: &str = "APIVersion defines the versioned schema of this representation of an object. Servers should convert \
    recognized schemas to the latest internal value, and may reject unrecognized values. More info: \
    https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#resources";

fn schemas(version: &str) -> Map<String, Value> {
    let metadata = || json!({"default": {}, "allOf": [reference(&format!("{META}ObjectMeta"))]});
    let integer =
        |text: &str| json!({"description": text, "type": "integer", "format": "int32", "default": 0});
    let whole = |kind: &str, text: &str, field: &str, value: Value| {
        json!({"description": text, "type": "object", "required": [field],
            "properties": {
                "kind": {"description": KIND_TEXT, "type": "string"},
                "apiVersion": {"description": VERSION_TEXT, "type": "string"},
                "metadata": metadata(), field: value},
            "x-kubernetes-group-version-kind": [{"group": GROUP, "version": version, "kind": kind}]})
    };
    let workload = json!({
        "description": "PendingWorkload is a user-facing representation of a pending workload that summarizes the relevant \
            information for position in the cluster queue.",
        "type": "object",
        "required": ["priority", "localQueueName", "positionInClusterQueue", "positionInLocalQueue"],
        "properties": {
            "metadata": metadata(),
            "priority": integer("Priority indicates the workload's priority"),
            "localQueueName": {"type": "string", "default": "",
                "description": "LocalQueueName indicates the name of the LocalQueue the workload is submitted to"},
            "positionInClusterQueue":
                integer("PositionInClusterQueue indicates the workload's position in the ClusterQueue, starting from 0"),
            "positionInLocalQueue":
                integer("PositionInLocalQueue indicates the workload's position in the LocalQueue, starting from 0"),
        },
    });
    let items = json!({"type": "array", "items": {"default": {}, "allOf": [reference(&name(version, "PendingWorkload"))]}});
    let summary = whole(
        "PendingWorkloadsSummary",
        "PendingWorkloadsSummary contains a list of pending workloads in the context of the query (within LocalQueue or ClusterQueue).",
        "items",
        items,
    );
    let status = json!({
        "description": "AdmissionForecastStatus is the answer for the workload that was posted.",
        "type": "object",
        "required": ["preemptedWorkloads", "workloadsAhead"],
        "properties": {
            "startTime": {"description": "StartTime is when the workload could start. It is absent if that is not known",
                "allOf": [reference(&format!("{META}Time"))]},
            "preemptedWorkloads": integer("PreemptedWorkloads is the number of workloads that would be preempted"),
            "workloadsAhead": integer("WorkloadsAhead is the number of workloads of the ClusterQueue that come first"),
            "message": {"type": "string", "description": "Message says why no time is known"},
        },
    });
    let text = "AdmissionForecast says when a workload could start.";
    let status_name = format!("{FORECAST_KIND}Status");
    let forecast = whole(
        FORECAST_KIND,
        text,
        "status",
        json!({"default": {}, "allOf": [reference(&name(version, &status_name))]}),
    );
    [
        ("PendingWorkload", workload),
        ("PendingWorkloadsSummary", summary),
        (FORECAST_KIND, forecast),
        (status_name.as_str(), status),
    ]
    .map(|(kind, schema)| (name(version, kind), schema))
    .into_iter()
    .collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn references(value: &Value, out: &mut BTreeSet<String>) {
        match value {
            Value::Object(map) => {
                out.extend(map.get("$ref").and_then(Value::as_str).map(str::to_owned));
                map.values().for_each(|v| references(v, out));
            }
            Value::Array(all) => all.iter().for_each(|v| references(v, out)),
            _ => {}
        }
    }

    fn read(segments: &[&str], accept: &str) -> (&'static str, Value) {
        let answer = answer(segments, accept).unwrap();
        assert_eq!(answer.status, 200);
        (answer.content_type, serde_json::from_slice(&answer.body).unwrap_or_default())
    }

    /// Kueue's e2e test `aggregated_openapi_test.go`: a reference to nothing breaks kubectl for everything.
    #[test]
    fn every_reference_leads_somewhere() {
        let documents =
            [vec!["v2"], vec!["v3", "apis", GROUP, "v1beta1"], vec!["v3", "apis", GROUP, "v1beta2"]];
        for segments in documents {
            let (_, document) = read(&segments, "application/json");
            let mut all = BTreeSet::new();
            references(&document, &mut all);
            assert!(all.len() > 4, "{all:?}");
            for target in all {
                assert!(document.pointer(target.trim_start_matches('#')).is_some(), "{segments:?} {target}");
            }
        }
    }

    /// The fields of answers are those of the schemas.
    #[test]
    fn schemas_have_the_fields_of_answers() {
        let all = schemas("v1beta2");
        let fields = |kind: &str| {
            all[&name("v1beta2", kind)]["properties"]
                .as_object()
                .unwrap()
                .keys()
                .cloned()
                .collect::<BTreeSet<_>>()
        };
        let keys = |v: &Value| v.as_object().unwrap().keys().cloned().collect::<BTreeSet<_>>();
        let workload = plimsoll_queueing::PendingWorkload {
            key: plimsoll_queueing::WorkloadKey { namespace: "n".into(), name: "w".into() },
            uid: "u".into(),
            creation: plimsoll_state::Time::from_seconds(60),
            priority: 7,
            local_queue: "l".into(),
            position_in_cluster_queue: 3,
            position_in_local_queue: 1,
        };
        let item = super::super::documents::item(&workload, &Value::Null);
        assert_eq!(fields("PendingWorkload"), keys(&item));
        assert_eq!(
            fields("PendingWorkloadsSummary"),
            keys(&super::super::documents::summary("v1beta2", &[item]))
        );
        let start = Some(plimsoll_state::Time::from_seconds(60));
        let known =
            plimsoll_queueing::Forecast { start, preempted: 0, ahead: 2, message: "because".to_owned() };
        let forecast = super::super::forecast::document("v1beta2", &known);
        assert_eq!(fields("AdmissionForecast"), keys(&forecast));
        assert_eq!(fields("AdmissionForecastStatus"), keys(&forecast["status"]));
    }

    #[test]
    fn documents_come_in_the_form_that_is_asked_for() {
        let (_, index) = read(&["v3"], "");
        let url =
            index["paths"]["apis/visibility.kueue.x-k8s.io/v1beta2"]["serverRelativeURL"].as_str().unwrap();
        assert!(url.starts_with("/openapi/v3/apis/visibility.kueue.x-k8s.io/v1beta2?hash="), "{url}");
        for (segments, binary) in
            [(vec!["v2"], &BINARY[0]), (vec!["v3", "apis", GROUP, "v1beta2"], &BINARY[1])]
        {
            assert_eq!(read(&segments, &format!("{},application/json;q=0.5", binary[1])).0, binary[0]);
            assert_eq!(read(&segments, &format!("text/x, application/json;q=0.5, {}", binary[1])).0, JSON);
            assert_eq!(answer(&segments, "application/yaml").unwrap().status, 406);
        }
        assert!(answer(&["v3", "apis", GROUP, "v1"], "").is_none());
        assert!(answer(&["v3", "apis", "other", "v1beta2"], "").is_none());
    }
}

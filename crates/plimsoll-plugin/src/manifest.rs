//! What a plugin does and reads.

/// How raw scores become scores.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Normalization {
    /// They are scores already, 0 to 100.
    #[default]
    None,
    /// In proportion to the largest of the feasible nodes.
    Max,
    /// The same, small raw scores being good.
    ReverseMax,
}

/// What a plugin does and reads. Columns are numbered in the order in which they are named.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Manifest {
    /// Extension points, in the words of `KubeSchedulerConfiguration`.
    pub points: Vec<&'static str>,
    /// Whether pods hold something: [`Plugin::charges`](crate::Plugin::charges).
    pub charges: bool,
    /// Resources of pods.
    pub pod_requests: Vec<String>,
    /// Labels of pods.
    pub pod_labels: Vec<String>,
    /// Whether the names of pods are read; then nothing is kept from pod to pod.
    pub pod_name: bool,
    /// Whether the namespaces of pods are read.
    pub pod_namespace: bool,
    /// Resources of nodes: allocatable and requested.
    pub node_resources: Vec<String>,
    /// Labels of nodes, as codes.
    pub node_labels: Vec<String>,
    /// Labels of nodes, as numbers.
    pub node_numbers: Vec<String>,
    /// Whether taints of nodes are read.
    pub node_taints: bool,
    /// Annotations of nodes, as codes.
    pub node_annotations: Vec<String>,
    /// Annotations of nodes, as numbers.
    pub node_annotation_numbers: Vec<String>,
    /// What [`Plugin::filter`](crate::Plugin::filter) answers with, and whether preemption may help.
    pub reasons: Vec<(String, bool)>,
    /// How raw scores become scores.
    pub normalize: Normalization,
    /// Resources of workloads.
    pub workload_requests: Vec<String>,
    /// Node labels of flavors.
    pub flavor_labels: Vec<String>,
}

impl Manifest {
    /// A plugin that does and reads nothing.
    pub fn new() -> Self {
        Self::default()
    }

    fn at(mut self, point: &'static str) -> Self {
        self.points.push(point);
        self
    }

    /// The plugin filters.
    #[must_use]
    pub fn filters(self) -> Self {
        self.at("filter")
    }

    /// The plugin scores.
    #[must_use]
    pub fn scores(self) -> Self {
        self.at("score")
    }

    /// The plugin looks at pods before nodes.
    #[must_use]
    pub fn pre_filters(self) -> Self {
        self.at("preFilter")
    }

    /// The plugin decides once a pod has a node.
    #[must_use]
    pub fn reserves(self) -> Self {
        self.at("reserve")
    }

    /// The plugin decides when a pod may be bound.
    #[must_use]
    pub fn permits(self) -> Self {
        self.at("permit")
    }

    /// The plugin is told when a pod is bound.
    #[must_use]
    pub fn post_binds(self) -> Self {
        self.at("postBind")
    }

    /// The plugin vetoes and orders workloads that wait for quota.
    #[must_use]
    pub fn rules_workloads(self) -> Self {
        self.at("workload")
    }

    /// The plugin scores flavors for workloads that wait for quota.
    #[must_use]
    pub fn scores_flavors(self) -> Self {
        self.at("flavor")
    }

    /// The plugin orders the candidates for preemption.
    #[must_use]
    pub fn orders_victims(self) -> Self {
        self.at("victim")
    }

    /// Reads what the pods of workloads request of a resource.
    #[must_use]
    pub fn workload_request(mut self, resource: impl Into<String>) -> Self {
        self.workload_requests.push(resource.into());
        self
    }

    /// Reads a node label of flavors.
    #[must_use]
    pub fn flavor_label(mut self, key: impl Into<String>) -> Self {
        self.flavor_labels.push(key.into());
        self
    }

    /// Pods hold something.
    #[must_use]
    pub fn charges(self) -> Self {
        Self { charges: true, ..self }
    }

    /// Reads what pods request of a resource.
    #[must_use]
    pub fn pod_request(mut self, resource: impl Into<String>) -> Self {
        self.pod_requests.push(resource.into());
        self
    }

    /// Reads a label of pods.
    #[must_use]
    pub fn pod_label(mut self, key: impl Into<String>) -> Self {
        self.pod_labels.push(key.into());
        self
    }

    /// Reads a resource of nodes.
    #[must_use]
    pub fn node_resource(mut self, resource: impl Into<String>) -> Self {
        self.node_resources.push(resource.into());
        self
    }

    /// Reads a label of nodes.
    #[must_use]
    pub fn node_label(mut self, key: impl Into<String>) -> Self {
        self.node_labels.push(key.into());
        self
    }

    /// Reads a number in a label of nodes.
    #[must_use]
    pub fn node_number(mut self, key: impl Into<String>) -> Self {
        self.node_numbers.push(key.into());
        self
    }

    /// Reads the taints of nodes.
    #[must_use]
    pub fn node_taints(self) -> Self {
        Self { node_taints: true, ..self }
    }

    /// Reads an annotation of nodes.
    #[must_use]
    pub fn node_annotation(mut self, key: impl Into<String>) -> Self {
        self.node_annotations.push(key.into());
        self
    }

    /// Reads a number in an annotation of nodes.
    #[must_use]
    pub fn node_annotation_number(mut self, key: impl Into<String>) -> Self {
        self.node_annotation_numbers.push(key.into());
        self
    }

    /// A reason of Filter. `helps`: whether pods that leave the node may change it.
    #[must_use]
    pub fn reason(mut self, text: impl Into<String>, helps: bool) -> Self {
        self.reasons.push((text.into(), helps));
        self
    }

    /// How raw scores become scores.
    #[must_use]
    pub fn normalize(self, normalize: Normalization) -> Self {
        Self { normalize, ..self }
    }

    /// The manifest as a guest gives it to the host.
    pub fn to_json(&self) -> String {
        let texts = |list: &[String]| list.iter().map(|s| quoted(s)).collect::<Vec<_>>().join(",");
        let points: Vec<String> = self.points.iter().map(|p| quoted(p)).collect();
        let reason = |(text, helps): &(String, bool)| {
            format!("{{\"text\":{},\"preemptionHelps\":{helps}}}", quoted(text))
        };
        let reasons: Vec<String> = self.reasons.iter().map(reason).collect();
        let normalize = match self.normalize {
            Normalization::None => "none",
            Normalization::Max => "max",
            Normalization::ReverseMax => "reverseMax",
        };
        // Hosts from before a field know it as little as what it stands for: it is there only when it is used.
        let more = |field: &str, names: &[String]| match names {
            [] => String::new(),
            names => format!(",\"{field}\":[{}]", texts(names)),
        };
        let one = |field: &str, list: &str, names: &[String]| match names {
            [] => String::new(),
            names => format!(",\"{field}\":{{\"{list}\":[{}]}}", texts(names)),
        };
        format!(
            "{{\"points\":[{}],\"charges\":{},\"pod\":{{\"requests\":[{}],\"labels\":[{}],\"name\":{},\"namespace\":{}}},\
             \"node\":{{\"resources\":[{}],\"labels\":[{}],\"numbers\":[{}],\"taints\":{}{}{}}},\
             \"reasons\":[{}],\"normalize\":\"{normalize}\"{}{}}}",
            points.join(","),
            self.charges,
            texts(&self.pod_requests),
            texts(&self.pod_labels),
            self.pod_name,
            self.pod_namespace,
            texts(&self.node_resources),
            texts(&self.node_labels),
            texts(&self.node_numbers),
            self.node_taints,
            more("annotations", &self.node_annotations),
            more("annotationNumbers", &self.node_annotation_numbers),
            reasons.join(","),
            one("workload", "requests", &self.workload_requests),
            one("flavor", "labels", &self.flavor_labels),
        )
    }
}

/// A string of JSON.
fn quoted(text: &str) -> String {
    let mut out = String::from("\"");
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            c if c < ' ' => out.push_str(&format!("\\u{:04x}", u32::from(c))),
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_manifest_is_json() {
        let manifest = Manifest::new().filters().node_label("a\"b\\\n").reason("full", true);
        assert_eq!(
            manifest.to_json(),
            "{\"points\":[\"filter\"],\"charges\":false,\
             \"pod\":{\"requests\":[],\"labels\":[],\"name\":false,\"namespace\":false},\
             \"node\":{\"resources\":[],\"labels\":[\"a\\\"b\\\\\\u000a\"],\"numbers\":[],\"taints\":false},\
             \"reasons\":[{\"text\":\"full\",\"preemptionHelps\":true}],\"normalize\":\"none\"}"
        );
    }
}

//! Names of objects.

/// The namespace of all jobs.
pub const NAMESPACE: &str = "n";

/// Name of a node.
pub fn node_name(node: usize) -> String {
    format!("node-{node}")
}

/// Name of a job and its workload.
pub fn job_name(job: usize) -> String {
    format!("w{job}")
}

/// What the names of a job's plain pods begin with.
pub fn pod_prefix(job: &str) -> String {
    format!("{job}-p")
}

//! Writes that an API server has counted (`apiserver_request_total`).

use std::collections::BTreeMap;
use std::ops::AddAssign;

/// Writes by resource, with `/status` and the like: `workloads/status`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Writes(pub BTreeMap<String, u64>);

impl Writes {
    /// Reads the text of `/metrics`. Requests that were refused count too: the server had the work.
    pub fn read(metrics: &str) -> Self {
        let mut writes = Self::default();
        for line in metrics.lines().filter_map(|l| l.strip_prefix("apiserver_request_total{")) {
            let Some((labels, value)) = line.rsplit_once("} ") else { continue };
            let label = |name: &str| {
                let at = labels.find(&format!("{name}=\"")).map(|at| &labels[at + name.len() + 2..]);
                at.and_then(|rest| rest.split('"').next()).unwrap_or_default()
            };
            if !matches!(label("verb"), "POST" | "PUT" | "PATCH" | "APPLY" | "DELETE") {
                continue;
            }
            let (resource, sub) = (label(",resource"), label("subresource"));
            let what = if sub.is_empty() { resource.to_owned() } else { format!("{resource}/{sub}") };
            // Large counters are printed as floating point numbers.
            writes.add(&what, value.trim().parse::<f64>().unwrap_or_default() as u64);
        }
        writes
    }

    /// Counts more of them.
    pub fn add(&mut self, what: &str, count: u64) {
        self.0.entry(what.to_owned()).or_default().add_assign(count);
    }

    /// What came since `before`, without those of `others`.
    pub fn since(&self, before: &Self, others: &Self) -> Self {
        let rest = |what: &String| {
            let of = |w: &Self| w.0.get(what).copied().unwrap_or_default();
            of(self).saturating_sub(of(before)).saturating_sub(of(others))
        };
        Self(self.0.keys().map(|what| (what.clone(), rest(what))).filter(|(_, n)| *n > 0).collect())
    }

    /// How many are of resources that `wanted` says.
    pub fn sum(&self, wanted: impl Fn(&str) -> bool) -> u64 {
        self.0.iter().filter(|(what, _)| wanted(what)).map(|(_, n)| n).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writes_are_counted_by_resource() {
        let text = r#"# TYPE apiserver_request_total counter
apiserver_request_total{code="200",component="apiserver",dry_run="",group="kueue.x-k8s.io",resource="workloads",scope="resource",subresource="status",verb="PATCH",version="v1beta2"} 3
apiserver_request_total{code="409",component="apiserver",dry_run="",group="kueue.x-k8s.io",resource="workloads",scope="resource",subresource="status",verb="APPLY",version="v1beta2"} 1.5e+06
apiserver_request_total{code="200",component="apiserver",dry_run="",group="",resource="pods",scope="cluster",subresource="",verb="LIST",version="v1"} 7
apiserver_request_total{code="201",component="apiserver",dry_run="",group="",resource="pods",scope="resource",subresource="",verb="POST",version="v1"} 2
"#;
        let now = Writes::read(text);
        assert_eq!(now.0.get("workloads/status"), Some(&1_500_003));
        assert_eq!(now.0.get("pods"), Some(&2));
        let mut own = Writes::default();
        own.add("pods", 2);
        own.add("workloads/status", 3);
        let theirs = now.since(&Writes::default(), &own);
        assert_eq!(theirs.0.into_iter().collect::<Vec<_>>(), [("workloads/status".to_owned(), 1_500_000)]);
    }
}

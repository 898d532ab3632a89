//! `batch/v1` Jobs (framework `batch/job`, spec section 4.4).

use plimsoll_state::Time;
use serde_json::{Value, json};

use super::{Env, Found, Integration, Write, names, note, patch, podset, workload};
use crate::api::{JOBS, Resource};
use crate::json;

/// Name of the only podset.
const MAIN: &str = "main";

/// A Job.
#[derive(Debug)]
pub struct Job<'a> {
    /// The object.
    pub object: &'a Value,
}

fn number(job: &Value, key: &str) -> Option<i64> {
    json::int(job, &["spec", key])
}

/// Whether a Job is held back. While it is being stopped it counts as running, so that stopping is completed.
pub fn is_suspended(job: &Value) -> bool {
    json::flag(job, &["spec", "suspend"]) && json::annotation(job, names::STOPPING) != Some("true")
}

/// Number of pods that run at once.
pub fn pods_count(job: &Value) -> i64 {
    let parallelism = number(job, "parallelism").unwrap_or(1);
    number(job, "completions").map_or(parallelism, |c| c.min(parallelism))
}

/// `job-min-parallelism`, when it is a positive number.
pub fn min_pods(job: &Value) -> Option<i64> {
    json::annotation(job, names::MIN_PARALLELISM)?.parse::<i64>().ok().filter(|n| *n > 0)
}

/// Whether completions follow parallelism.
pub fn sync_completions(job: &Value) -> bool {
    json::annotation(job, names::SYNC_COMPLETIONS)
        .is_some_and(|v| matches!(v, "1" | "t" | "T" | "true" | "TRUE" | "True"))
}

/// How many indexes below `limit` are in one of these lists, such as `0-2,5`. Higher ones went when an elastic job
/// shrank; what is no list of indexes is left out.
fn indexes_below(lists: &[&str], limit: i64) -> i64 {
    let range = |text: &str| {
        let (first, last) = text.split_once('-').unwrap_or((text, text));
        let (first, last): (i64, i64) = (first.parse().ok()?, last.parse().ok()?);
        (0 <= first && first <= last).then_some((first, last.min(limit.saturating_sub(1))))
    };
    let mut ranges: Vec<(i64, i64)> = lists.iter().flat_map(|l| l.split(',')).filter_map(range).collect();
    ranges.sort_unstable();
    let (mut count, mut next) = (0, 0);
    for (first, last) in ranges {
        let first = first.max(next);
        if first <= last {
            count += last - first + 1;
            next = last + 1;
        }
    }
    count
}

impl Job<'_> {
    fn podsets(&self) -> Vec<Value> {
        let template = &self.object["spec"]["template"];
        let mut podset = json!({"name": MAIN, "count": pods_count(self.object), "template": template});
        if let Some(min) = min_pods(self.object) {
            podset["minCount"] = json!(min);
        }
        let indexed = json::text(self.object, &["spec", "completionMode"]) == "Indexed";
        let label = indexed.then_some("batch.kubernetes.io/job-completion-index");
        if let Some(request) = podset::topology_request(template, label) {
            podset["topologyRequest"] = request;
        }
        vec![podset]
    }

    fn matches(&self, wl: &Value, env: Env<'_>) -> bool {
        let mine = self.podsets();
        let admitted = json::is_true(wl, "Admitted");
        let declared = json::list(wl, &["spec", "podSets"]);
        let Some(mut running) = podset::running(wl, env) else {
            return podset::equivalent(&mine, declared, admitted);
        };
        for p in &mut running {
            // A running Job shows the admitted count; what it would accept is only in the workload.
            if min_pods(self.object).is_none() {
                json::remove(p, &["minCount"]);
            }
        }
        podset::equivalent(&mine, &running, admitted)
            || is_suspended(self.object) && podset::equivalent(&mine, declared, admitted)
    }
}

impl Integration for Job<'_> {
    fn object(&self) -> &Value {
        self.object
    }

    fn resource(&self) -> Resource {
        JOBS
    }

    fn is_suspended(&self) -> bool {
        is_suspended(self.object)
    }

    fn is_stopping(&self) -> bool {
        json::annotation(self.object, names::STOPPING) == Some("true")
    }

    fn is_active(&self) -> bool {
        json::int(self.object, &["status", "active"]).unwrap_or(0) != 0
    }

    fn finished(&self) -> Option<(String, bool)> {
        let end = json::list(self.object, &["status", "conditions"])
            .iter()
            .find(|c| c["status"] == "True" && (c["type"] == "Complete" || c["type"] == "Failed"))?;
        Some((json::text(end, &["message"]).to_owned(), end["type"] == "Complete"))
    }

    fn pods_ready(&self) -> bool {
        let of = |key: &str| json::int(self.object, &["status", key]).unwrap_or(0);
        // Pods that succeeded and still have their finalizer are neither ready nor counted.
        let uncounted = json::list(self.object, &["status", "uncountedTerminatedPods", "succeeded"]).len();
        let uncounted = i64::try_from(uncounted).unwrap_or(i64::MAX);
        of("succeeded").saturating_add(of("ready")).saturating_add(uncounted) >= pods_count(self.object)
    }

    fn reclaimable(&self) -> Option<Vec<(String, i64)>> {
        let parallelism = number(self.object, "parallelism").unwrap_or(1);
        let completions = number(self.object, "completions").unwrap_or(parallelism);
        let ended = if json::text(self.object, &["spec", "completionMode"]) == "Indexed" {
            let of = |key: &str| json::text(self.object, &["status", key]);
            indexes_below(&[of("completedIndexes"), of("failedIndexes")], completions)
        } else {
            json::int(self.object, &["status", "succeeded"]).unwrap_or(0)
        };
        let remaining = completions.saturating_sub(ended).max(0);
        if parallelism <= 1 || ended <= 0 || remaining >= parallelism {
            return Some(Vec::new());
        }
        Some(vec![(MAIN.into(), parallelism - remaining)])
    }

    fn find(&self, env: Env<'_>) -> Found {
        let mut found = Found::default();
        for wl in env.cache.owned_by(json::uid(self.object)) {
            // A finished one stays the job's, whatever has changed since.
            if found.matching.is_none() && (json::is_true(&wl, "Finished") || self.matches(&wl, env)) {
                found.matching = Some(wl);
            } else {
                found.extra.push(wl);
            }
        }
        found
    }

    fn compose(&self, env: Env<'_>) -> Result<(Vec<Write>, Value), Vec<Write>> {
        Ok((Vec::new(), workload::skeleton(self, &self.podsets(), env)))
    }

    fn start(&self, infos: &[podset::Info], message: &str) -> Result<Vec<Write>, String> {
        let [info] = infos else {
            return Err(format!("invalid podset infos: expecting 1 podset, got {}", infos.len()));
        };
        let mut new = self.object.clone();
        json::set(&mut new, &["spec", "suspend"], json!(false));
        if min_pods(self.object).is_some() {
            json::set(&mut new, &["spec", "parallelism"], json!(info.count));
            if sync_completions(self.object) {
                json::set(&mut new, &["spec", "completions"], json!(info.count));
            }
        }
        let mut template = new["spec"]["template"].take();
        podset::inject(&mut template, info).map_err(|e| match e {
            podset::Error::Missing(m) | podset::Error::Conflict(m) => m,
        })?;
        json::set(&mut new, &["spec", "template"], template);
        let mut writes: Vec<Write> = patch(JOBS, self.object, &new).into_iter().collect();
        writes.push(note(JOBS, self.object, false, "Started", message));
        Ok(writes)
    }

    fn stop(&self, workload: Option<&Value>, _reason: &str, message: &str, _now: Time) -> Vec<Write> {
        let job = self.object;
        let stopping = json::annotation(job, names::STOPPING) == Some("true");
        if !json::flag(job, &["spec", "suspend"]) {
            // Marked first, so that an interrupted stop is found and completed.
            let mut new = job.clone();
            json::set(&mut new, &["spec", "suspend"], json!(true));
            json::set(&mut new, &["metadata", "annotations", names::STOPPING], json!("true"));
            let mut writes: Vec<Write> = patch(JOBS, job, &new).into_iter().collect();
            writes.push(note(JOBS, job, false, "Stopped", message));
            return writes;
        }
        // The API server lets a template change only while the job has no start time.
        if json::at(job, &["status", "startTime"]).is_string() && (stopping || workload.is_some()) {
            return vec![super::patch_status(JOBS, job, &json!({"startTime": null}))];
        }
        let mut new = job.clone();
        json::remove(&mut new, &["metadata", "annotations", names::STOPPING]);
        let podset = workload.and_then(|w| json::list(w, &["spec", "podSets"]).first());
        if let Some(podset) = podset {
            let mut template = new["spec"]["template"].take();
            podset::restore(&mut template, podset);
            json::set(&mut new, &["spec", "template"], template);
            if min_pods(job).is_some()
                && let Some(count) = podset["count"].as_i64()
            {
                json::set(&mut new, &["spec", "parallelism"], json!(count));
                if sync_completions(job) {
                    json::set(&mut new, &["spec", "completions"], json!(count));
                }
            }
        }
        patch(JOBS, job, &new).into_iter().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn indexes_are_counted_once_and_below_the_limit() {
        for (lists, limit, want) in [
            (["0-2,5", ""], 10, 4),
            (["0-2,5", "2-3"], 10, 5),
            (["0,2-9", ""], 3, 2),
            (["7", ""], 3, 0),
            (["5-3,x,-1,1-,4", ""], 9, 1),
            (["0-9223372036854775807", "1"], 5, 5),
            (["0-4", ""], 0, 0),
        ] {
            assert_eq!(indexes_below(&lists, limit), want, "{lists:?} {limit}");
        }
    }
}

//! What joint admission tries in a step is put off as a whole where it would look at too many nodes: the next step tries it again, when
//! more of them are ranked. Ranks that a step has made in part are kept until then.

use super::Scheduler;
use super::cluster::Beside;
use super::framework::Incoming;
use super::ranked::Wanted;
use plimsoll_state::cast::index32;
use plimsoll_state::model;
use plimsoll_state::time::Time;

impl Scheduler {
    /// Begins an attempt, which is put off where it would look at more nodes than the step has work left for. What it does from there on
    /// fails and means nothing. The caller undoes all of it and tries it again in the next step.
    pub fn begin_attempt(&mut self) {
        self.ranks.work.may_put_off = true;
        self.ranks.work.ties = self.rng.clone();
    }

    /// Whether the present attempt is put off.
    pub fn attempt_is_put_off(&self) -> bool {
        self.ranks.work.attempt_put_off
    }

    /// Ends an attempt; whether it is put off. Ties are broken then as if it had not been made.
    pub fn end_attempt(&mut self) -> bool {
        let put_off = self.ranks.work.end_attempt();
        if put_off {
            self.rng = self.ranks.work.ties.clone();
        }
        put_off
    }

    /// Ranks all nodes for such pods, as they are and as if the pods of workloads had left, as far as the step has work left for that.
    /// Whether it is done, so that plans for these pods ([`Scheduler::plan_claim`]) don't have to look at all nodes.
    pub fn rank_nodes(&mut self, now: Time, pods: &[(model::Pod, usize)]) -> bool {
        self.set_now(now);
        let within_attempt = std::mem::replace(&mut self.ranks.work.may_put_off, true);
        let done = pods.iter().all(|(pod, _)| self.rank_nodes_for(pod));
        if !within_attempt {
            self.ranks.work.end_attempt();
        }
        done
    }

    fn rank_nodes_for(&mut self, pod: &model::Pod) -> bool {
        if self.cluster.node_count == 0 || self.only_node_of(pod).is_some() {
            return true;
        }
        let Some((id, profile)) = self.placeholder(pod, "", None) else { return true };
        let (cluster, ranks) = (&mut self.cluster, &mut self.ranks);
        let done = self.runners.get(profile).is_none_or(|runner| {
            let incoming = Incoming::new(cluster, id);
            [Beside::All, Beside::Alone].into_iter().all(|beside| {
                let wanted = Wanted { profile: index32(profile), beside, equal_follow: true };
                ranks.prepare(runner, wanted, cluster, &incoming)
            })
        });
        self.cluster.remove_pod(id);
        done
    }

    /// How many nodes the last step has looked at to rank them, and one by one for pods that are not ranked.
    pub fn nodes_looked_at(&self) -> usize {
        self.ranks.work.before
    }

    /// How often the last step has planned where the pods of a claim will be.
    pub fn claims_planned(&self) -> usize {
        self.ranks.work.claims_before
    }

    /// Whether the last step has put something off.
    pub fn is_waiting(&self) -> bool {
        self.ranks.work.is_waiting()
    }
}

//! Makes a failing scenario as short as it gets while it breaks the same rule: delta debugging (Zeller and Hildebrandt,
//! "Simplifying and Isolating Failure-Inducing Input") over the operations, then faults, the plan and times.

use crate::check::Rule;
use crate::run::run;
use crate::scenario::Scenario;

/// The shortest scenario found within `runs` runs that breaks the same rule.
pub fn shrink(scenario: &Scenario, rule: Rule, runs: usize) -> Scenario {
    let mut search = Search { best: scenario.clone(), rule, left: runs };
    while search.left > 0 {
        let before = search.best.clone();
        search.operations();
        search.faults();
        search.plan();
        search.times();
        if search.best == before {
            break;
        }
    }
    search.best
}

struct Search {
    best: Scenario,
    rule: Rule,
    left: usize,
}

impl Search {
    /// Keeps a scenario that still breaks the rule.
    fn try_one(&mut self, scenario: Scenario) -> bool {
        if self.left == 0 || scenario == self.best {
            return false;
        }
        self.left -= 1;
        let fails = run(&scenario).violation.is_some_and(|v| v.rule == self.rule);
        if fails {
            self.best = scenario;
        }
        fails
    }

    /// Drops ever smaller runs of operations.
    fn operations(&mut self) {
        let mut size = self.best.operations.len();
        while size > 0 {
            let mut at = 0;
            while at < self.best.operations.len() {
                let mut next = self.best.clone();
                next.operations.drain(at..(at + size).min(next.operations.len()));
                if !self.try_one(next) {
                    at += size;
                }
            }
            size /= 2;
        }
    }

    /// Leaves out kinds of faults, and the crash.
    fn faults(&mut self) {
        let mut next = self.best.clone();
        next.crash_after = None;
        self.try_one(next);
        for i in 0..self.best.faults.each().len() {
            let mut next = self.best.clone();
            if let Some(rate) = next.faults.each().into_iter().nth(i) {
                *rate = 0;
            }
            self.try_one(next);
        }
    }

    /// Makes the plan and the settings plainer.
    fn plan(&mut self) {
        while !self.best.plan.queues.is_empty() {
            let mut next = self.best.clone();
            next.plan.queues.pop();
            if !self.try_one(next) {
                break;
            }
        }
        let plainer: [fn(&mut Scenario); 12] = [
            |s| s.settings.standby = false,
            |s| s.plan.windows.clear(),
            |s| s.settings.joint = false,
            |s| s.settings.fair_sharing = false,
            |s| s.settings.explain_every = 0,
            |s| s.settings.block_admission = false,
            |s| s.settings.pods_ready = 0,
            |s| s.plan.queues.iter_mut().for_each(|q| q.selects = false),
            |s| s.plan.queues.iter_mut().for_each(|q| q.check = false),
            |s| s.plan.queues.iter_mut().for_each(|q| q.preemption = (0, 0)),
            |s| s.plan.queues.iter_mut().for_each(|q| q.quota.parent = None),
            |s| s.plan.cohorts.clear(),
        ];
        for plain in plainer {
            let mut next = self.best.clone();
            plain(&mut next);
            self.try_one(next);
        }
    }

    /// Lets the calm come early and operations follow each other closely.
    fn times(&mut self) {
        let last = self.best.operations.last().map_or(0, |o| o.at);
        for calm in [last, last + 1_000] {
            let mut next = self.best.clone();
            next.calm = calm;
            if self.try_one(next) {
                break;
            }
        }
        let mut next = self.best.clone();
        for operation in &mut next.operations {
            operation.at = operation.at / 100 * 100;
        }
        self.try_one(next);
    }
}

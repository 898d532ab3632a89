//! Steps of a world after each of which the rules of [`audit`] hold.

use super::audit;
use super::objects::holds;
use super::world::World;
use crate::cond;
use crate::model::{CheckState, Workload};

/// One step; nothing may exceed what it may have by more than before. Whether anything was written.
pub(super) fn step(world: &mut World) -> bool {
    let before = audit::excess(world);
    let wrote = world.step();
    for (what, over) in audit::excess(world) {
        let was = before.get(&what).copied().unwrap_or(0).max(0);
        assert!(over <= was, "{what:?} has {over} too much (before: {was}): {}", audit::dump(world));
    }
    wrote
}

/// Steps until nothing is on its way.
pub(super) fn drain(world: &mut World) {
    for _ in 0..40 {
        let wrote = step(world);
        if !wrote && world.news.is_empty() && world.late.is_empty() {
            return audit::agree(world);
        }
    }
}

/// From now on all goes well: objects are as planned, nothing fails, checks say yes, jobs come to their end. Then
/// every job ends that fits.
pub(super) fn calm(world: &mut World, must_run: &dyn Fn(&Workload) -> bool) {
    world.fates.clear();
    world.restore();
    world.tell_all();
    for count_round in 0..2_000 {
        let mut moved = step(world);
        moved |= world.stop(|| true);
        for w in world.jobs.values().cloned().collect::<Vec<_>>() {
            let s = &w.status;
            let pending = |c: &crate::AdmissionCheckState| c.state != CheckState::Ready;
            if s.is_true(cond::FINISHED) {
            } else if !w.active && !s.is_true(cond::QUOTA_RESERVED) {
                world.change(&w.key, false, |w| w.active = true);
            } else if s.is_true(cond::EVICTED) {
            } else if holds(&w) && s.admission_checks.iter().any(pending) {
                world.change(&w.key, false, |w| {
                    w.status.admission_checks.iter_mut().for_each(|c| c.state = CheckState::Ready);
                });
            } else if s.is_true(cond::ADMITTED) && count_round % 3 == 0 {
                world.finish(&w.key, false);
            }
        }
        if moved || !world.news.is_empty() || !world.late.is_empty() {
            continue;
        }
        let left = |w: &&Workload| must_run(w) && !w.status.is_true(cond::FINISHED);
        if !world.jobs.values().any(|w| left(&w)) {
            return audit::agree(world);
        }
        let wake = world.engine.next_wake();
        let running = world.jobs.values().any(|w| w.status.is_true(cond::ADMITTED) && holds(w));
        assert!(running || wake.is_some(), "nothing wakes them: {}", audit::dump(world));
        world.now = wake.unwrap_or(world.now).max(world.now);
    }
    panic!("never ran: {}", audit::dump(world));
}

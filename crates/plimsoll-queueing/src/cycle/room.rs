//! Preemption that doesn't end: workloads that make room for each other over and over.
//!
//! In Kueue a preemptor owns nothing until it is admitted. A victim that borrows on a lower level or has a
//! smaller share, or a third workload, can take the room that was made for it; or three workloads each preempt
//! the next one, all by the rules (kubernetes-sigs/kueue issues 6861, 12541 and 14543). The first rounds are
//! left to Kueue's rules; then the preemptor goes first, and then it has to wait longer and longer before it may
//! preempt again.

use super::Entry;
use crate::pending::WlId;
use crate::state::Queueing;
use plimsoll_state::time::{Duration, Time};

/// After how many rounds in vain a preemptor goes first.
const PATIENCE: u32 = 2;
/// After how many rounds in short succession it has to wait.
const FREE_ROUNDS: u32 = 6;
/// The longest it has to wait. After twice that long without a round, earlier ones are forgotten.
const LONGEST_WAIT: Duration = Duration::from_seconds(600);
const FORGOTTEN_AFTER: Duration = Duration::from_seconds(1200);

/// How often others were asked to make room for a workload.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Rounds {
    /// Since it was admitted last.
    in_vain: u32,
    /// In short succession.
    recent: u32,
    last: Time,
}

impl Rounds {
    /// Whether others made room in vain often enough that Kueue's rules alone may not end the waiting.
    pub(crate) fn again(self) -> bool {
        self.in_vain >= PATIENCE
    }
}

impl Queueing {
    /// The entries for which others had to make room again and again, and somebody else always took it. Hardly
    /// ever any.
    pub(super) fn in_vain(&self, entries: &[Entry]) -> Vec<usize> {
        let in_vain = |e: &Entry| self.wl(e.id).is_some_and(|w| w.rounds.in_vain > PATIENCE);
        (0..entries.len()).filter(|&i| in_vain(&entries[i])).collect()
    }

    /// Who goes before the one whose turn it is: one of `in_vain` in the same tree.
    pub(super) fn before_turn(
        &self,
        entries: &[Entry],
        left: &[usize],
        in_vain: &[usize],
        turn: usize,
    ) -> usize {
        if in_vain.is_empty() || in_vain.contains(&turn) {
            return turn;
        }
        let root = |i: usize| self.cq(entries[i].cq).node.map(|n| self.tree.root(n));
        let here = root(turn);
        left.iter().copied().find(|i| in_vain.contains(i) && root(*i) == here).unwrap_or(turn)
    }

    /// Others were asked to make room.
    pub(super) fn round(&mut self, id: WlId, now: Time) {
        let Some(wl) = self.wl_mut(id) else { return };
        let rounds = &mut wl.rounds;
        if now.since(rounds.last) > FORGOTTEN_AFTER {
            rounds.recent = 0;
        }
        rounds.in_vain = rounds.in_vain.saturating_add(1);
        rounds.recent = rounds.recent.saturating_add(1);
        rounds.last = now;
    }

    /// It was admitted.
    pub(super) fn round_won(&mut self, id: WlId) {
        if let Some(wl) = self.wl_mut(id) {
            wl.rounds.in_vain = 0;
        }
    }

    /// Whether an entry may not preempt now, after too many rounds. It gets another chance in time.
    pub(super) fn puts_off(&mut self, e: &mut Entry, now: Time) -> bool {
        let Some(rounds) = self.wl(e.id).map(|w| w.rounds) else { return false };
        let Some(excess) = rounds.recent.checked_sub(FREE_ROUNDS) else { return false };
        let wait = LONGEST_WAIT.min(Duration::from_seconds(1 << excess.min(30)));
        let until = rounds.last.plus(wait);
        if until <= now {
            return false;
        }
        self.wake_later.insert((until, e.cq));
        e.message.push_str(&format!(
            ". Preemption is put off: workloads were preempted {} times in short succession for this one, \
             and preempt it or take its place",
            rounds.recent
        ));
        e.reason = "WaitingForQuota";
        e.last = None;
        true
    }
}

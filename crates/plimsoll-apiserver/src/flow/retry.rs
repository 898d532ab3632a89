//! After how many seconds a rejected client should come again: longer, the more are rejected
//! (`dropped_requests_tracker.go`).

use std::collections::VecDeque;

/// Longest wait that is suggested, in seconds.
const LONGEST: u64 = 32;

/// Requests rejected lately.
#[derive(Debug)]
pub struct Rejected {
    after: u64,
    raised: Option<u64>,
    /// Seconds and how many were rejected in each.
    history: VecDeque<(u64, u64)>,
}

impl Default for Rejected {
    fn default() -> Self {
        Self { after: 1, raised: None, history: VecDeque::new() }
    }
}

impl Rejected {
    /// A request is rejected in this second; seconds to wait.
    pub fn note(&mut self, second: u64) -> u64 {
        match self.history.back_mut() {
            Some((last, count)) if *last == second => *count += 1,
            _ => {
                self.revise(second);
                self.history.push_back((second, 1));
            }
        }
        self.after
    }

    fn revise(&mut self, second: u64) {
        let keep = (2 * self.after).min(LONGEST);
        while self.history.front().is_some_and(|(at, _)| second - at > keep) {
            self.history.pop_front();
        }
        let recent = self.history.iter().filter(|(at, _)| second - at <= self.after);
        let rejected: u64 = recent.map(|(_, count)| count).sum();
        let settled = self.raised.is_none_or(|at| second - at >= self.after);
        if settled && rejected >= 3 * self.after {
            self.after = (2 * self.after).min(LONGEST);
            self.raised = Some(second);
        } else if rejected < self.after && self.after > 1 {
            self.after -= 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_wait_grows_while_many_are_rejected_and_shrinks_again() {
        let mut rejected = Rejected::default();
        assert_eq!((0..100).map(|_| rejected.note(0)).max(), Some(1));
        let mut longest = 0;
        for second in 1..200 {
            longest = (0..100).map(|_| rejected.note(second)).max().unwrap();
        }
        assert_eq!(longest, 32);
        assert_eq!((0..40).map(|n| rejected.note(300 + 100 * n)).last(), Some(1));
    }
}

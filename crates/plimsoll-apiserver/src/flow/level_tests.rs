//! Fairness, order and sums of a level's queues.

use proptest::prelude::*;

use super::level::{Level, Nanos, Place, Queuing, Reason, Ticket};

const MS: Nanos = 1_000_000;
const QUEUING: Queuing = Queuing { queues: 16, hand: 4, length: 10 };

#[test]
fn seats_are_limited_and_queues_are_bounded() {
    let mut level: Level<u32> = Level::new(2, Some(Queuing { queues: 1, hand: 1, length: 2 }), 0);
    let first = level.try_start(0, 7, 1).unwrap();
    let _second = level.try_start(0, 7, 1).unwrap();
    assert_eq!(level.try_start(0, 7, 1), None);
    for n in 0..2 {
        let (_, dispatched) = level.wait(0, 7, 1, n).unwrap();
        assert!(dispatched.is_empty());
    }
    assert_eq!(level.wait(0, 7, 1, 9).unwrap_err(), Reason::QueueFull);
    assert_eq!(level.finish(first, MS).into_iter().map(|(w, _)| w).collect::<Vec<_>>(), [0]);
    level.check();

    let mut level: Level<u32> = Level::new(1, None, 0);
    let only = level.try_start(0, 7, 1).unwrap();
    assert_eq!(level.try_start(0, 7, 1), None);
    assert_eq!(level.wait(0, 7, 1, 9).unwrap_err(), Reason::ConcurrencyLimit);
    level.finish(only, MS);
    assert!(level.is_idle() && level.try_start(MS, 7, 1).is_some());
}

#[test]
fn a_request_wider_than_the_level_is_served_alone() {
    let mut level: Level<u32> = Level::new(4, Some(QUEUING), 0);
    let narrow = level.try_start(0, 1, 1).unwrap();
    let (_, none) = level.wait(0, 2, 10, 2).unwrap();
    assert!(none.is_empty());
    let wide = level.finish(narrow, MS);
    assert_eq!(wide.len(), 1);
    assert_eq!(level.try_start(MS, 3, 1), None);
    level.finish(wide[0].1, 2 * MS);
    assert!(level.is_idle());
}

/// Serves from a backlog for a while; how many requests of each flow were served.
fn serve(level: &mut Level<usize>, flows: usize, until: Nanos, took: impl Fn(usize) -> Nanos) -> Vec<u32> {
    let mut served = vec![0; flows];
    let mut running: Vec<(Nanos, usize, Ticket)> = Vec::new();
    let hash = |flow: usize| (flow as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mut now = 0;
    while now < until {
        for flow in 0..flows {
            // Each flow always has more to ask for; the first ten times as much.
            for _ in 0..if flow == 0 { 10 } else { 1 } {
                if let Ok((_, more)) = level.wait(now, hash(flow), 1, flow) {
                    running.extend(more.into_iter().map(|(w, t)| (now + took(w), w, t)));
                }
            }
        }
        running.sort_by_key(|(end, ..)| std::cmp::Reverse(*end));
        let Some((end, flow, ticket)) = running.pop() else { break };
        now = end;
        served[flow] += 1;
        running.extend(level.finish(ticket, now).into_iter().map(|(w, t)| (now + took(w), w, t)));
        level.check();
    }
    served
}

#[test]
fn a_flow_that_floods_its_queues_leaves_others_their_share() {
    let mut level = Level::new(4, Some(Queuing { queues: 64, hand: 6, length: 50 }), 0);
    let served = serve(&mut level, 2, 4_000 * MS, |_| 10 * MS);
    // The other flow always finds a queue of its hand that is its own. It asks for one at a time.
    assert!(served[1] * 3 >= served[0], "{served:?}");
}

#[test]
fn seats_times_time_is_shared_rather_than_requests() {
    // One queue for each flow: a hand of one, and flows that fall into different ones.
    let mut level = Level::new(2, Some(Queuing { queues: 2, hand: 1, length: 50 }), 0);
    let took = |flow: usize| if flow == 0 { 40 * MS } else { 10 * MS };
    let served = serve(&mut level, 2, 20_000 * MS, took);
    let ratio = f64::from(served[1]) / f64::from(served[0].max(1));
    assert!((3.0..5.0).contains(&ratio), "{served:?}");
}

#[test]
fn demand_is_what_was_in_use_and_wanted() {
    let mut level: Level<u32> = Level::new(2, Some(QUEUING), 0);
    let one = level.try_start(0, 1, 2).unwrap();
    let (_, _) = level.wait(0, 2, 2, 1).unwrap();
    let dispatched = level.finish(one, 500 * MS);
    assert_eq!(dispatched.len(), 1);
    let demand = level.take_demand(1000 * MS);
    assert_eq!(demand.high, 4);
    assert!((demand.average - 3.0).abs() < 1e-9 && (demand.deviation - 1.0).abs() < 1e-9, "{demand:?}");
    let next = level.take_demand(2000 * MS);
    assert!(next.high == 2 && (next.average - 2.0).abs() < 1e-9, "{next:?}");
}

#[derive(Clone, Debug)]
enum Step {
    Ask { flow: u64, seats: usize },
    Finish(usize),
    Cancel(usize),
    Configure { limit: usize, queues: usize },
    Pass(u64),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        6 => (0_u64..12, 1_usize..5).prop_map(|(flow, seats)| Step::Ask { flow, seats }),
        4 => (0_usize..100).prop_map(Step::Finish),
        2 => (0_usize..100).prop_map(Step::Cancel),
        1 => (1_usize..8, 1_usize..9).prop_map(|(limit, queues)| Step::Configure { limit, queues }),
        3 => (0_u64..20).prop_map(Step::Pass),
    ];
    prop::collection::vec(step, 1..300)
}

proptest! {
    /// Sums hold after every step, no seat stays free that could be used, and all who wait are served in the end.
    #[test]
    fn nobody_is_lost(steps in steps()) {
        let queuing = |queues: usize| Some(Queuing { queues, hand: queues.min(3), length: 4 });
        let mut level: Level<u64> = Level::new(3, queuing(8), 0);
        let (mut now, mut next) = (0, 0_u64);
        let mut running: Vec<(u64, Ticket)> = Vec::new();
        let mut waiting: Vec<(u64, Place)> = Vec::new();
        let mut shrunk = false;
        for step in steps {
            let dispatched = match step {
                Step::Ask { flow, seats } => {
                    next += 1;
                    let hash = flow.wrapping_mul(0x9e37_79b9_7f4a_7c15);
                    match level.try_start(now, hash, seats) {
                        Some(ticket) => {
                            running.push((next, ticket));
                            Vec::new()
                        }
                        None => match level.wait(now, hash, seats, next) {
                            Ok((place, dispatched)) => {
                                waiting.push((next, place));
                                dispatched
                            }
                            Err(_) => Vec::new(),
                        },
                    }
                }
                Step::Finish(n) if !running.is_empty() => {
                    let (_, ticket) = running.swap_remove(n % running.len());
                    level.finish(ticket, now)
                }
                Step::Cancel(n) if !waiting.is_empty() => {
                    let (_, place) = waiting.swap_remove(n % waiting.len());
                    let (waited, dispatched) = level.cancel(place, now);
                    prop_assert!(waited);
                    dispatched
                }
                Step::Configure { limit, queues } => {
                    shrunk |= limit < level.limit();
                    level.configure(limit, queuing(queues), now)
                }
                Step::Pass(ms) => {
                    now += ms * MS;
                    Vec::new()
                }
                _ => Vec::new(),
            };
            for (who, ticket) in dispatched {
                waiting.retain(|(w, _)| *w != who);
                running.push((who, ticket));
            }
            if !shrunk {
                level.check();
            }
            let (wait, run, _) = level.counts();
            prop_assert_eq!((wait, run), (waiting.len(), running.len()));
        }
        while let Some((_, ticket)) = running.pop() {
            now += MS;
            for (who, ticket) in level.finish(ticket, now) {
                waiting.retain(|(w, _)| *w != who);
                running.push((who, ticket));
            }
        }
        prop_assert!(waiting.is_empty(), "{:?}", waiting);
        prop_assert!(level.is_idle());
    }
}

use super::*;

fn queue() -> Queue {
    Queue::new(
        Backoff::default(),
        Duration::from_seconds(300),
        8,
        Some(Arc::new(crate::plugins::PrioritySort)),
    )
}

fn add(q: &mut Queue, n: u32, priority: i32, at: i64) -> PodId {
    let id = PodId(n);
    q.insert(id, priority, 0, Time::from_seconds(at));
    q.enter(id, Stage::Active);
    id
}

#[test]
fn higher_priority_first_then_earlier() {
    let mut q = queue();
    let a = add(&mut q, 0, 0, 1);
    let b = add(&mut q, 1, 5, 2);
    let c = add(&mut q, 2, 0, 0);
    assert_eq!([q.pop(), q.pop(), q.pop(), q.pop()], [Some(b), Some(c), Some(a), None]);
    q.check();
}

#[test]
fn priority_changes_reorder() {
    let mut q = queue();
    let a = add(&mut q, 0, 0, 1);
    let b = add(&mut q, 1, 0, 2);
    q.set_priority(b, 9);
    assert_eq!([q.pop(), q.pop()], [Some(b), Some(a)]);
}

#[test]
fn backoff_is_taken_early_but_not_after_errors() {
    let mut q = queue();
    let a = add(&mut q, 0, 0, 0);
    let b = add(&mut q, 1, 0, 0);
    q.pop();
    q.pop();
    q.get_mut(a).expect("queued").unschedulable = 1;
    q.get_mut(b).expect("queued").errors = 1;
    q.enter(a, Stage::Backoff);
    q.enter(b, Stage::ErrorBackoff);
    q.check();
    assert_eq!(q.pop(), Some(a));
    assert_eq!(q.pop(), None);
    assert_eq!(q.next_wake(Time::from_seconds(0)), Some(Time::from_seconds(2)));
    q.flush_backoff(Time(1_999_999_999));
    assert_eq!(q.counts().active, 0);
    q.flush_backoff(Time::from_seconds(2));
    assert_eq!(q.pop(), Some(b));
}

#[test]
fn leftovers_come_back_after_five_minutes() {
    let mut q = queue();
    let a = add(&mut q, 0, 0, 0);
    q.pop();
    q.get_mut(a).expect("queued").unschedulable_plugins.insert(PluginId::new(5));
    q.enter(a, Stage::Unschedulable);
    assert_eq!(q.stopped_by(PluginId::new(5)).count(), 1);
    assert!(q.unschedulable_leftover(Time::from_seconds(300)).0.is_empty());
    assert_eq!(q.next_wake(Time::from_seconds(300)), Some(Time::from_seconds(330)));
    assert_eq!(q.unschedulable_leftover(Time::from_seconds(330)), (vec![a], true));
    q.enter(a, Stage::Active);
    assert_eq!(q.stopped_by(PluginId::new(5)).count(), 0);
    assert!(q.remove(a).is_some());
    q.check();
}

#[test]
fn backoff_doubles_up_to_the_limit() {
    let b = Backoff::default();
    let seconds: Vec<i64> = (0..6).map(|n| b.duration(n).seconds()).collect();
    assert_eq!(seconds, [0, 1, 2, 4, 8, 10]);
    assert_eq!(b.duration(u32::MAX).seconds(), 10);
    let off = Backoff { max: Duration::ZERO, ..b };
    assert_eq!(off.duration(3), Duration::ZERO);
    assert_eq!(off.expiry_second(Time::from_seconds(5), 1, 0), i64::MIN);
}

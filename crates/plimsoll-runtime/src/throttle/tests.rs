use super::*;

async fn write(throttle: &Throttle, millis: u64) {
    let permit = throttle.acquire().await;
    tokio::time::sleep(Duration::from_millis(millis)).await;
    permit.done(false);
}

#[tokio::test(start_paused = true)]
async fn a_fast_server_is_used_and_a_slow_one_is_spared() {
    let throttle = Throttle::default();
    for _ in 0..200 {
        write(&throttle, 2).await;
    }
    let places: Vec<Permit> = std::iter::from_fn(|| throttle.try_acquire()).collect();
    assert!(places.len() >= 16, "{}", places.len());
    drop(places);
    for _ in 0..40 {
        write(&throttle, 50).await;
    }
    let began = Instant::now();
    for _ in 0..10 {
        write(&throttle, 50).await;
    }
    assert!(began.elapsed() >= Duration::from_millis(9 * 500), "{:?}", began.elapsed());
    for _ in 0..300 {
        write(&throttle, 2).await;
    }
    let began = Instant::now();
    write(&throttle, 2).await;
    assert!(began.elapsed() < Duration::from_millis(20), "it recovers: {:?}", began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn decisions_and_refusals_close_it() {
    let throttle = Throttle::default();
    for _ in 0..100 {
        throttle.begin_decision().done(Duration::from_millis(3), false);
    }
    assert!(throttle.pace() < Duration::from_micros(3001), "{:?}", throttle.pace());
    assert!(throttle.pace() > Duration::from_micros(2900), "{:?}", throttle.pace());
    for _ in 0..100 {
        tokio::time::advance(Duration::from_millis(60)).await;
        throttle.begin_decision().done(Duration::from_millis(40), false);
        tokio::time::advance(LULL).await;
    }
    throttle.ready().await;
    let permit = throttle.try_acquire().expect("always some");
    assert!(throttle.try_acquire().is_none(), "one at a time");
    permit.done(true);
    assert!(throttle.try_acquire().is_none(), "and a pause");
    tokio::time::timeout(Duration::from_secs(1), throttle.ready()).await.expect("it ends");
    let _late = throttle.acquire_now();
}

/// Writes during an outage end by their deadline, with answers or without.
#[tokio::test(start_paused = true)]
async fn an_outage_is_over_soon_after_it_ends() {
    let throttle = Throttle::default();
    for _ in 0..50 {
        write(&throttle, 3).await;
    }
    for _ in 0..20 {
        write(&throttle, 30_000).await;
    }
    let began = Instant::now();
    for _ in 0..50 {
        write(&throttle, 3).await;
    }
    assert!(began.elapsed() < Duration::from_secs(3), "{:?}", began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn decisions_go_first() {
    let throttle = Throttle::default();
    let decisions: Vec<Decision> = (0..100).map(|_| throttle.begin_decision()).collect();
    let began = Instant::now();
    for _ in 0..20 {
        write(&throttle, 2).await;
    }
    assert!(began.elapsed() >= Duration::from_millis(20 * 2 + 19 * 18), "{:?}", began.elapsed());
    let permit = throttle.acquire().await;
    tokio::time::sleep(Duration::from_millis(400)).await;
    permit.done(false);
    drop(decisions);
    let began = Instant::now();
    throttle.ready().await;
    assert!(began.elapsed() < LULL * 2, "pauses end with the decisions: {:?}", began.elapsed());
    let began = Instant::now();
    for _ in 0..20 {
        write(&throttle, 2).await;
    }
    assert!(began.elapsed() < LULL, "{:?}", began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn events_wait_for_decisions_longest() {
    let throttle = Throttle::default();
    let event = || async {
        let permit = throttle.acquire_for_event().await;
        tokio::time::sleep(Duration::from_millis(2)).await;
        permit.done(false);
    };
    let deciding: Vec<Decision> = (0..8).map(|_| throttle.begin_decision()).collect();
    let began = Instant::now();
    for _ in 0..10 {
        event().await;
    }
    assert!(began.elapsed() >= EVENT_PAUSE * 9, "{:?}", began.elapsed());
    for _ in 0..10 {
        write(&throttle, 2).await;
    }
    assert!(
        began.elapsed() < EVENT_PAUSE * 11,
        "an explanation does not wait so long: {:?}",
        began.elapsed()
    );
    drop(deciding);
    let began = Instant::now();
    for _ in 0..20 {
        event().await;
    }
    assert!(began.elapsed() < LULL * 2, "the pauses end with the decisions: {:?}", began.elapsed());
    // One decision at a time leaves the server room.
    tokio::time::sleep(LULL).await;
    let _one = throttle.begin_decision();
    let began = Instant::now();
    let written = async {
        for _ in 0..50 {
            event().await;
        }
    };
    tokio::join!(written, write(&throttle, 2));
    assert!(began.elapsed() < Duration::from_millis(300), "{:?}", began.elapsed());
    assert!(began.elapsed() > Duration::from_millis(190), "half of the time is for others");
}

#[tokio::test(start_paused = true)]
async fn decisions_wait_for_each_other_only_when_there_are_enough() {
    let throttle = Throttle::default();
    let mut under_way: Vec<Decision> = std::iter::from_fn(|| throttle.try_begin_decision()).collect();
    assert_eq!(under_way.len(), 16);
    // One that goes on with another request is not held up.
    under_way.push(throttle.begin_decision());
    let next = tokio::time::timeout(Duration::from_secs(1), throttle.decision_ready()).await;
    assert!(next.is_err() && throttle.try_begin_decision().is_none());
    under_way.truncate(15);
    throttle.decision_ready().await;
    assert!(throttle.try_begin_decision().is_some());
    assert!(throttle.try_acquire().is_some(), "and an explanation now and then");
}

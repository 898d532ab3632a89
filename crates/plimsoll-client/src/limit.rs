//! How many requests a client may make: a token bucket, as client-go's (`clientConnection.qps` and `burst`).

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// A limit shared by its clones.
#[derive(Clone, Debug, Default)]
pub struct Limit(Option<Arc<Bucket>>);

#[derive(Debug)]
struct Bucket {
    /// Tokens a second.
    rate: f64,
    /// Most tokens there may be.
    burst: f64,
    /// How many there are, below zero where some wait for theirs, and when that was.
    tokens: Mutex<(f64, Instant)>,
}

impl Bucket {
    /// Changes the number of tokens as it is now.
    fn with<T>(&self, change: impl FnOnce(&mut f64) -> T) -> T {
        let mut tokens = self.tokens.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        let earned = now.saturating_duration_since(tokens.1).as_secs_f64() * self.rate;
        *tokens = ((tokens.0 + earned).min(self.burst), now);
        change(&mut tokens.0)
    }

    /// How long it takes to earn some tokens.
    fn time(&self, tokens: f64) -> Duration {
        Duration::try_from_secs_f64(tokens / self.rate).unwrap_or(Duration::MAX)
    }
}

impl Limit {
    /// `qps` requests a second, and `burst` at once after a silence. As in client-go a `qps` of 0 is 5 and below 0 none at
    /// all, a `burst` of 0 is 10.
    pub fn new(qps: f64, burst: u32) -> Self {
        if qps < 0.0 {
            return Self::default();
        }
        let rate = if qps == 0.0 { 5.0 } else { qps };
        let burst = f64::from(if burst == 0 { 10 } else { burst });
        Self(Some(Arc::new(Bucket { rate, burst, tokens: Mutex::new((burst, Instant::now())) })))
    }

    /// Whether there is one.
    pub const fn is_some(&self) -> bool {
        self.0.is_some()
    }

    /// Takes a token if there is one.
    pub fn try_take(&self) -> bool {
        let Some(bucket) = &self.0 else { return true };
        bucket.with(|tokens| {
            let there = *tokens >= 1.0;
            if there {
                *tokens -= 1.0;
            }
            there
        })
    }

    /// Waits for a token and takes it: first come, first served.
    pub async fn take(&self) {
        let Some(bucket) = &self.0 else { return };
        let missing = bucket.with(|tokens| {
            *tokens -= 1.0;
            -*tokens
        });
        if missing > 0.0 {
            tokio::time::sleep(bucket.time(missing)).await;
        }
    }

    /// Waits until there is a token, and leaves it.
    pub async fn ready(&self) {
        let Some(bucket) = &self.0 else { return };
        loop {
            let missing = bucket.with(|tokens| 1.0 - *tokens);
            if missing <= 0.0 {
                return;
            }
            tokio::time::sleep(bucket.time(missing)).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

    use bytes::Bytes;
    use futures::StreamExt;
    use futures::future::BoxFuture;
    use futures::stream::BoxStream;
    use http::{Request, StatusCode};

    use super::*;
    use crate::rest::{Api, Direct, FOLLOWS};

    async fn seconds(work: impl Future<Output = ()>) -> f64 {
        let began = Instant::now();
        work.await;
        began.elapsed().as_secs_f64()
    }

    #[tokio::test(start_paused = true)]
    async fn a_burst_and_then_the_rate() {
        let limit = Limit::new(50.0, 100);
        let many = |n: u32| {
            let limit = limit.clone();
            async move {
                for _ in 0..n {
                    limit.take().await;
                }
            }
        };
        assert!(seconds(many(100)).await < 0.01);
        let rest = seconds(many(100)).await;
        assert!((1.9..2.3).contains(&rest), "{rest}");
        assert!(!limit.try_take());
        let ready = seconds(limit.ready()).await;
        assert!(ready < 0.05 && limit.try_take(), "{ready}");
        // It earns no more than a burst.
        tokio::time::sleep(Duration::from_secs(3600)).await;
        assert!(seconds(many(100)).await < 0.01);
        assert!(seconds(many(10)).await > 0.1);
    }

    #[tokio::test(start_paused = true)]
    async fn special_numbers_are_client_gos() {
        let unlimited = Limit::new(-1.0, 0);
        for _ in 0..1000 {
            assert!(unlimited.try_take());
        }
        let usual = Limit::new(0.0, 0);
        assert_eq!((0..20).filter(|_| usual.try_take()).count(), 10);
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert_eq!((0..20).filter(|_| usual.try_take()).count(), 5);
    }

    /// A server that counts.
    #[derive(Default)]
    struct Counting(AtomicUsize);

    impl Direct for Arc<Counting> {
        fn call(
            &self,
            _request: Request<Vec<u8>>,
        ) -> BoxFuture<'static, (StatusCode, BoxStream<'static, Bytes>)> {
            self.0.fetch_add(1, Ordering::SeqCst);
            let body = futures::stream::iter([Bytes::from_static(b"{}")]).boxed();
            Box::pin(std::future::ready((StatusCode::OK, body)))
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_keeps_to_its_limit_and_pays_once() {
        let server = Arc::new(Counting::default());
        let api = Api::direct(Arc::new(Arc::clone(&server)), "test");
        let limit = Limit::new(10.0, 1);
        let asking = |api: Api| async move {
            loop {
                api.get_path("/").await.unwrap();
                tokio::task::yield_now().await;
            }
        };
        let limited = [api.limited(&limit), api.limited(&limit).writing_as("other")];
        let [a, b] = limited.map(|api| tokio::spawn(asking(api)));
        tokio::time::sleep(Duration::from_millis(10_050)).await;
        assert_eq!(server.0.load(Ordering::SeqCst), 101);
        a.abort();
        b.abort();
        // A caller that has taken a token doesn't wait for the first request, but for the next one.
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert!(limit.try_take());
        let prepaid = api.prepaid(&limit);
        let ask = || async { drop(prepaid.get_path("/").await.unwrap()) };
        assert!(seconds(ask()).await < 0.001);
        assert!(seconds(ask()).await > 0.09);
    }

    #[tokio::test(start_paused = true)]
    async fn a_write_that_waited_for_the_limiter_is_not_sent_after_the_lease_is_lost() {
        let (server, leads) = (Arc::new(Counting::default()), Arc::new(AtomicBool::new(true)));
        let (limit, asked) = (Limit::new(1.0, 1), Arc::clone(&leads));
        let api = Api::direct(Arc::new(Arc::clone(&server)), "test").limited(&limit);
        let api = api.while_leading(move || asked.load(Ordering::SeqCst));
        let write = || async { api.delete(plimsoll_api::resource::PODS, "ns", "n", "u", None).await };
        write().await.unwrap();
        let (late, ()) = tokio::join!(write(), async { leads.store(false, Ordering::SeqCst) });
        assert!(late.unwrap_err().to_string().contains(FOLLOWS));
        assert_eq!(server.0.load(Ordering::SeqCst), 1);
        api.get_path("/").await.unwrap();
        assert_eq!(server.0.load(Ordering::SeqCst), 2, "reads go on");
    }
}

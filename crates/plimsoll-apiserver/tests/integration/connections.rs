//! Connections that are no use end by themselves, and make place for others while they last.

#![allow(clippy::unwrap_used)]

use std::time::{Duration, Instant};

use http::{Method, StatusCode, header};
use http_body_util::BodyExt as _;
use plimsoll_apiserver::http::listener::Limits;
use tokio::io::AsyncReadExt as _;
use tokio::net::TcpStream;

use crate::support::front::{Front, Offer, read};

/// Longer than any deadline of these tests, on a busy machine too.
const SOON: Duration = Duration::from_secs(20);

fn brief() -> Limits {
    Limits { head: Duration::from_millis(400), idle: Duration::from_millis(1500), ..Limits::default() }
}

async fn soon<T>(what: impl Future<Output = T>) -> T {
    tokio::time::timeout(SOON, what).await.expect("in time")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_without_a_request_are_closed() {
    let front = Front::start(brief()).await;
    // Handshakes and not a byte more; and a connection of HTTP/2 whose client only answers pings.
    for offer in [Offer::Http1, Offer::Http2] {
        let mut silent = front.tls(offer).await.unwrap();
        let mut rest = Vec::new();
        let _ = soon(silent.read_to_end(&mut rest)).await;
    }
    let (_sender, ended) = front.http2().await;
    soon(ended).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn idle_connections_are_closed_and_watches_stay() {
    let front = Front::start(brief()).await;
    let (mut one, one_ended) = front.http1().await;
    let (mut two, two_ended) = front.http2().await;
    let (mut three, three_ended) = front.http2().await;
    let began = Instant::now();
    let get = || front.request(Method::GET, "/api/v1/namespaces/default", "");
    assert_eq!(read(one.send_request(get()).await.unwrap()).await.0, StatusCode::OK);
    assert_eq!(read(two.send_request(get()).await.unwrap()).await.0, StatusCode::OK);
    let watch = front.request(Method::GET, "/api/v1/namespaces?watch=1&resourceVersion=0", "");
    let mut watch = three.send_request(watch).await.unwrap().into_body();
    soon(one_ended).await.unwrap();
    soon(two_ended).await.unwrap();
    assert!(began.elapsed() >= Duration::from_millis(1500), "{:?}", began.elapsed());
    assert!(!three_ended.is_finished());
    assert!(soon(watch.frame()).await.unwrap().is_ok());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn strangers_make_place_for_others() {
    // The default deadlines: none of the connections ends in the time of this test by itself.
    let front = Front::start(Limits { connections: 24, ..Limits::default() }).await;
    let (mut watcher, watcher_ended) = front.http2().await;
    let watch = front.request(Method::GET, "/api/v1/namespaces?watch=1&resourceVersion=0", "");
    let mut watch = watcher.send_request(watch).await.unwrap().into_body();
    let mut known = front.http2().await;
    let get = || front.request(Method::GET, "/api/v1/namespaces/default", "");
    assert_eq!(read(known.0.send_request(get()).await.unwrap()).await.0, StatusCode::OK);

    let mut strangers = Vec::new();
    for n in 0..60 {
        if n % 2 == 0 {
            strangers.push(front.http2().await);
        } else {
            // Not even a handshake.
            let raw = TcpStream::connect(front.address).await.unwrap();
            strangers.push((front.http2().await.0, tokio::spawn(async move { drop(raw) })));
        }
    }
    for _ in 0..10 {
        let began = Instant::now();
        assert_eq!(soon(front.get("/api/v1/namespaces/default")).await.0, StatusCode::OK);
        assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
    }
    assert!(!watcher_ended.is_finished());
    assert!(soon(watch.frame()).await.unwrap().is_ok());
    assert!(!known.1.is_finished());
    assert_eq!(read(known.0.send_request(get()).await.unwrap()).await.0, StatusCode::OK);
}

/// As upstream's `UnauthenticatedHTTP2DOSMitigation`: one answer, then the connection ends.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unknown_clients_get_one_answer_over_http2() {
    let front = Front::start(Limits::default()).await;
    let (mut sender, ended) = front.http2().await;
    let mut request = front.request(Method::GET, "/api/v1/secrets", "");
    request.headers_mut().remove(header::AUTHORIZATION);
    assert_eq!(read(sender.send_request(request).await.unwrap()).await.0, StatusCode::FORBIDDEN);
    soon(ended).await.unwrap();
}

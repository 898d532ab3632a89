//! Files and URLs, read whole: what plugins come from.

use std::time::Duration;

use anyhow::{Context, bail};
use http_body_util::{BodyExt, Limited};

/// Most bytes that are read from a URL.
const MOST: usize = 64 << 20;
/// Longest wait for all of them.
const PATIENCE: Duration = Duration::from_secs(30);

/// Reads what is at a path, or at a URL that begins with `http://` or `https://`. Blocks.
///
/// # Errors
/// Why it can't be read.
pub fn read(place: &str) -> Result<Vec<u8>, String> {
    if !place.starts_with("http://") && !place.starts_with("https://") {
        return std::fs::read(place).map_err(|e| e.to_string());
    }
    // The caller may run in a runtime, which can't be blocked on from within.
    let place = place.to_owned();
    let fetched = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(async {
            tokio::time::timeout(PATIENCE, get(&place)).await.context("no answer in time")?
        })
    });
    let fetched = fetched.join().unwrap_or_else(|_| bail!("the request failed"));
    fetched.map_err(|e| format!("{e:#}"))
}

async fn get(url: &str) -> anyhow::Result<Vec<u8>> {
    let mut config = kube::Config::new(url.parse()?);
    // The request has the whole path.
    config.cluster_url = http::Uri::builder()
        .scheme(config.cluster_url.scheme_str().unwrap_or("http"))
        .authority(config.cluster_url.authority().context("the URL names no host")?.clone())
        .path_and_query("/")
        .build()?;
    let client = plimsoll_runtime::connect::client(config)?;
    let path = url.parse::<http::Uri>()?;
    let path = path.path_and_query().map_or("/", |p| p.as_str());
    let request = http::Request::get(path).body(kube::client::Body::empty())?;
    let answer = client.send(request).await?;
    if !answer.status().is_success() {
        bail!("the server answered {}", answer.status());
    }
    let body = Limited::new(answer.into_body(), MOST).collect().await.map_err(|e| anyhow::anyhow!(e))?;
    Ok(body.to_bytes().to_vec())
}

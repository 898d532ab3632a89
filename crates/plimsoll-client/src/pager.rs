//! Lists in pages (client-go's `pager.ListPager`).

use futures::future::BoxFuture;
use plimsoll_api::request::Error;
use plimsoll_api::watch::Page;
use tokio_util::task::AbortOnDropHandle;

use crate::rest::{Api, Encoding, encode};

/// Objects per page of a list (client-go's `defaultPageSize`).
const PAGE: usize = 500;

/// Lists a collection, hands on each page, and returns the version of the list. `selector` is more of the query, such as
/// `&labelSelector=…`. The server makes the next page while one is handed on. Compiled once, for all callers.
///
/// # Errors
/// What the server said, or why it could not be asked: 410 when the list took so long that its version is gone. Pages that
/// came before have been handed on.
pub fn each_page<'a>(
    api: &'a Api,
    collection: &'a str,
    selector: &'a str,
    encoding: Encoding,
    hand_on: &'a mut (dyn FnMut(&Page<'_>) + Send),
) -> BoxFuture<'a, Result<String, Error>> {
    Box::pin(async move {
        let first = format!("{collection}?limit={PAGE}{selector}");
        let mut bytes = api.get_list(&first, encoding).await?;
        loop {
            let page = Page::read(&bytes)?;
            let next = (!page.next.is_empty()).then(|| {
                let (api, path) = (api.clone(), format!("{first}&continue={}", encode(&page.next)));
                AbortOnDropHandle::new(tokio::spawn(async move { api.get_list(&path, encoding).await }))
            });
            hand_on(&page);
            let Some(next) = next else { return Ok(page.resource_version.into_owned()) };
            bytes = next.await.map_err(|e| Error::Transport(e.to_string()))??;
        }
    })
}

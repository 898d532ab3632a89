//! Lists: resource versions, pages, forms; deletion of collections.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use plimsoll_apimachinery::go::go_quote;
use plimsoll_apimachinery::page::Token;
use plimsoll_apimachinery::select::Selector;
use plimsoll_apimachinery::{ApiError, Kind};
use serde_json::{Value, json};

use super::Req;
use super::endpoint::{delete_options, warn_of_orphans, write_of};
use super::negotiate::Transform;
use super::options::{ListOptions, Match, WriteOptions, why_no_number};
use super::pieces::List;
use super::present::list_as_object;
use super::reply::Reply;
use crate::pipeline;
use crate::store::{Record, Snapshot, StoreError};
use crate::write::Admission;
use crate::{convert, heavy, machine};

/// How long a list waits for a version that hasn't been reached (the watch cache's `blockTimeout`).
pub const WAIT: Duration = Duration::from_secs(3);

/// Records that are looked through at once.
const FEW: usize = 200;

const TOO_OLD: &str = "The resourceVersion for the provided list is too old.";
const TOKEN_TOO_OLD: &str = "The provided continue parameter is too old to display a consistent list result. You can \
start a new list without the continue parameter, or use the continue token in this response to retrieve the remainder \
of the results. Continuing with the provided token results in an inconsistent list - objects that were created, \
modified, or deleted between the time the first chunk was returned and now may show up in the list.";

/// One page of objects.
pub struct Page {
    /// The objects.
    pub records: Vec<Arc<Record>>,
    /// Revision of the list.
    pub revision: u64,
    /// Token for the next page.
    pub next: Option<String>,
    /// How many more there are, when that is known.
    pub remaining: Option<u64>,
}

/// Parses the selectors of a request. Paths of one object (old watch paths) select it by name.
pub fn selector(req: &Req, kind: &Kind) -> Result<Selector, ApiError> {
    Selector::parse(kind, req.query.non_empty("labelSelector"), req.query.non_empty("fieldSelector"))
}

/// Whether a record matches, reading the object only when it must be.
pub fn matches(kind: &Kind, selector: &Selector, record: &Record) -> bool {
    let (name, namespace) = (&record.key.name, &record.key.namespace);
    selector.matches_named(name, namespace, &record.labels, || {
        Cow::Owned(convert::to_served(kind, record.value().unwrap_or_default()))
    })
}

/// Waits until a version given by the client is reached.
///
/// # Errors
/// 400 for what is no version, 504 when it isn't reached in time.
pub async fn wait_for_version(req: &Req, version: &str) -> Result<u64, ApiError> {
    if version.is_empty() || version == "0" {
        return Ok(0);
    }
    let parsed = parse_version(version)
        .map_err(|e| ApiError::bad_request(format!("invalid resource version: {e}")))?;
    let store = req.server.store();
    match store.wait_until(parsed, WAIT).await {
        Ok(_) => Ok(parsed),
        Err(e) => Err(e.to_api("", "", "")),
    }
}

/// A resource version; the error is upstream's text.
pub fn parse_version(text: &str) -> Result<u64, String> {
    let quoted = go_quote(text);
    // Go takes no sign here.
    let digits = if text.starts_with('+') { "" } else { text };
    digits.parse().map_err(|e| {
        let why = why_no_number(&e);
        format!("resourceVersion: Invalid value: {quoted}: strconv.ParseUint: parsing {quoted}: {why}")
    })
}

/// Lists a resource.
pub async fn list(req: &mut Req, kind: &Arc<Kind>) -> Result<Reply, ApiError> {
    let options = ListOptions::parse(&req.query, false)?;
    let selector = selector(req, kind)?;
    let page = page(req, kind, &options, &selector).await?;
    present_page(req, kind, page).await
}

/// Reads one page.
pub async fn page(
    req: &Req,
    kind: &Arc<Kind>,
    options: &ListOptions,
    selector: &Selector,
) -> Result<Page, ApiError> {
    let (snapshot, start) = snapshot(req, kind, options).await?;
    let from_cache = options.resource_version == "0" && options.continue_token.is_empty();
    let limit = match usize::try_from(options.limit) {
        Ok(0) | Err(_) => usize::MAX,
        Ok(_) if from_cache => usize::MAX,
        Ok(n) => n,
    };
    let mut page = Page { records: Vec::new(), revision: snapshot.revision, next: None, remaining: None };
    let all = selector.is_empty();
    if convert::webhook::is_hooked(kind) && !all {
        let found = selected_after_conversion(req, kind, selector, &snapshot, &start).await?;
        return Ok(cut(page, &snapshot, found, limit));
    }
    if !all && snapshot.iter_from(&start).nth(FEW).is_some() {
        let search = Search { kind: Arc::clone(kind), selector: selector.clone(), snapshot, start, limit };
        let page = heavy::run(search.page(page)).await;
        return with_converted(req, kind, page).await;
    }
    let mut iter = snapshot.iter_from(&start);
    for record in iter.by_ref() {
        if !all && !matches(kind, selector, record) {
            continue;
        }
        if page.records.len() == limit {
            let last = page.records.last().map(|r| snapshot.relative_path(r)).unwrap_or_default();
            page.next = Some(token(snapshot.revision, &last));
            break;
        }
        page.records.push(Arc::clone(record));
    }
    if page.next.is_some() && all {
        page.remaining = Some(1 + iter.count() as u64);
    }
    with_converted(req, kind, page).await
}

async fn with_converted(req: &Req, kind: &Kind, mut page: Page) -> Result<Page, ApiError> {
    page.records = convert::webhook::records(&req.server, kind, page.records).await?;
    Ok(page)
}

/// A look through many records for those that match, which may have to read every one of them.
struct Search {
    kind: Arc<Kind>,
    selector: Selector,
    snapshot: Snapshot,
    start: String,
    limit: usize,
}

impl Search {
    async fn page(self, mut page: Page) -> Page {
        let mut from = self.start.clone();
        loop {
            let mut last = None;
            for record in self.snapshot.iter_from(&from).take(FEW) {
                last = Some(self.snapshot.relative_path(record));
                if !matches(&self.kind, &self.selector, record) {
                    continue;
                }
                if page.records.len() == self.limit {
                    let last = page.records.last().map(|r| self.snapshot.relative_path(r));
                    page.next = Some(token(self.snapshot.revision, &last.unwrap_or_default()));
                    return page;
                }
                page.records.push(Arc::clone(record));
            }
            let Some(last) = last else { return page };
            from = format!("{last}\0");
            heavy::give_way().await;
        }
    }
}

/// What matches in the version asked for, when a webhook has to make it first.
async fn selected_after_conversion(
    req: &Req,
    kind: &Kind,
    selector: &Selector,
    snapshot: &Snapshot,
    start: &str,
) -> Result<Vec<Arc<Record>>, ApiError> {
    let all = snapshot.iter_from(start).cloned().collect();
    let mut converted = convert::webhook::records(&req.server, kind, all).await?;
    converted.retain(|r| matches(kind, selector, r));
    Ok(converted)
}

/// The page that begins with these records.
fn cut(mut page: Page, snapshot: &Snapshot, mut records: Vec<Arc<Record>>, limit: usize) -> Page {
    if records.len() > limit {
        records.truncate(limit);
        let last = records.last().map(|r| snapshot.relative_path(r)).unwrap_or_default();
        page.next = Some(token(snapshot.revision, &last));
    }
    page.records = records;
    page
}

async fn snapshot(req: &Req, kind: &Kind, options: &ListOptions) -> Result<(Snapshot, String), ApiError> {
    let store = req.server.store();
    let namespace = Some(req.info.namespace.as_str()).filter(|n| kind.namespaced && !n.is_empty());
    if !options.continue_token.is_empty() {
        let Token { revision, start } = Token::parse(&options.continue_token)
            .map_err(|why| ApiError::bad_request(format!("invalid continue token: {why}")))?;
        if !matches!(options.resource_version.as_str(), "" | "0") {
            return Err(ApiError::bad_request(
                "specifying resource version is not allowed when using continue",
            ));
        }
        // A token made after an expiry goes on at the current version.
        let Ok(revision) = u64::try_from(revision) else {
            return Ok((store.list(&kind.storage, namespace), start));
        };
        return match store.list_at(&kind.storage, namespace, revision) {
            Ok(snapshot) => Ok((snapshot, start)),
            Err(StoreError::Expired { .. }) => {
                let mut e = ApiError::new(410, "Expired", TOKEN_TOO_OLD);
                e.continue_token = Token { revision: -1, start }.encode();
                Err(e)
            }
            Err(e) => Err(e.to_api("", "", "")),
        };
    }
    let version = wait_for_version(req, &options.resource_version).await?;
    // Pages without a rule of matching are of exactly this version (etcd3's `resolveGetListRev`).
    let exact = match options.matching {
        Some(rule) => rule == Match::Exact,
        None => options.limit > 0 && version > 0,
    };
    if exact {
        let at = store.list_at(&kind.storage, namespace, version);
        return match at {
            Ok(snapshot) => Ok((snapshot, String::new())),
            Err(StoreError::Expired { .. }) => Err(ApiError::new(410, "Expired", TOO_OLD)),
            Err(e) => Err(e.to_api("", "", "")),
        };
    }
    Ok((store.list(&kind.storage, namespace), String::new()))
}

/// The token of the page after the one that ends with `last`.
fn token(revision: u64, last: &str) -> String {
    let revision = i64::try_from(revision).unwrap_or(-1);
    Token { revision, start: format!("{last}\0") }.encode()
}

/// `metadata` of a list.
pub fn list_meta(page: &Page) -> Value {
    let mut meta = json!({"resourceVersion": page.revision.to_string()});
    if let Some(next) = &page.next {
        meta["continue"] = json!(next);
    }
    if let Some(remaining) = page.remaining {
        meta["remainingItemCount"] = json!(remaining);
    }
    meta
}

/// Puts a page into the form asked for.
pub async fn present_page(req: &Req, kind: &Arc<Kind>, page: Page) -> Result<Reply, ApiError> {
    if matches!(req.accepted.transform, Transform::Partial(_)) {
        return Err(list_as_object(kind));
    }
    let meta = list_meta(&page);
    let list = list_of(req, kind, page.records, meta)?;
    if list.is_small() {
        list.reply_at_once()
    } else if req.recorded {
        heavy::run(async move { list.reply_at_once() }).await
    } else {
        Ok(list.into_reply())
    }
}

fn list_of(req: &Req, kind: &Arc<Kind>, records: Vec<Arc<Record>>, meta: Value) -> Result<List, ApiError> {
    let table = match req.accepted.transform {
        Transform::Table(_) => machine::table_options(&req.query, Value::Null, false)?,
        _ => machine::TableOptions::default(),
    };
    let (accepted, pretty, now) = (req.accepted, req.pretty(), req.server.now());
    Ok(List { kind: Arc::clone(kind), records, meta, accepted, pretty, table, now })
}

/// Puts objects of which there are no records into the form asked for.
pub fn present_objects(
    req: &Req,
    kind: &Arc<Kind>,
    mut items: Vec<Value>,
    meta: Value,
) -> Result<Reply, ApiError> {
    match req.accepted.transform {
        Transform::Partial(_) => return Err(list_as_object(kind)),
        Transform::None if kind.custom.is_none() => {
            for map in items.iter_mut().filter_map(Value::as_object_mut) {
                map.remove("kind");
                map.remove("apiVersion");
            }
        }
        _ => {}
    }
    Ok(Reply::object(200, list_of(req, kind, Vec::new(), meta)?.object(items)))
}

/// Deletes all objects of a resource that match; answers them as they were.
pub async fn delete_collection(req: &mut Req, kind: &Arc<Kind>) -> Result<Reply, ApiError> {
    let options = delete_options(req)?;
    let list_options = ListOptions::parse(&req.query, false)?;
    let selector = selector(req, kind)?;
    warn_of_orphans(req, kind, &options);
    let page = page(req, kind, &list_options, &selector).await?;
    for record in &page.records {
        let write_options = WriteOptions { dry_run: options.dry_run, ..WriteOptions::default() };
        let mut write = write_of(req, kind, &write_options, "DeleteOptions");
        write.options = options.to_value();
        write.name.clone_from(&record.key.name);
        write.namespace.clone_from(&record.key.namespace);
        write.admission = Admission::Collection;
        let result = pipeline::delete(&mut write, &options).await;
        req.warnings.append(&mut write.warnings);
        match result {
            Ok(_) => {}
            Err(e) if e.code == 404 => {}
            Err(e) => return Err(e),
        }
    }
    present_page(req, kind, page).await
}

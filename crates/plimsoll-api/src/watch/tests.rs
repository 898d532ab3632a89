use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::*;
use crate::request::Error;

fn object(name: &str, uid: &str, version: u32) -> String {
    format!(
        r#"{{"metadata":{{"namespace":"ns","name":"{name}","uid":"{uid}","resourceVersion":"{version}"}}}}"#
    )
}

/// An event in words.
fn read(line: &str) -> Result<String, Error> {
    let line = format!("{line}\n");
    Ok(words(&Event::from_line(line.as_bytes())?))
}

fn words(event: &Event<'_>) -> String {
    let of =
        |meta: &Meta<'_>| format!("{}/{} {} {}", meta.namespace, meta.name, meta.uid, meta.resource_version);
    match event {
        Event::Upsert { meta, .. } => format!("+{}", of(meta)),
        Event::Delete(meta) => format!("-{}", of(meta)),
        Event::Bookmark(version) => format!("bookmark {version}"),
        Event::Listed(version) => format!("listed {version}"),
        Event::Unreadable => "unreadable".to_owned(),
    }
}

#[test]
fn lines_are_events() {
    let line = |kind: &str, o: &str| read(&format!(r#"{{"type":"{kind}","object":{o}}}"#));
    assert_eq!(line("ADDED", &object("a", "1", 5)), Ok("+ns/a 1 5".into()));
    assert_eq!(line("MODIFIED", &object("a", "1", 6)), Ok("+ns/a 1 6".into()));
    assert_eq!(line("DELETED", &object("a", "2", 21)), Ok("-ns/a 2 21".into()));
    assert_eq!(line("BOOKMARK", r#"{"metadata":{"resourceVersion":"20"}}"#), Ok("bookmark 20".into()));
    assert_eq!(line("ADDED", r#"{"metadata":{"name":7}}"#), Ok("unreadable".into()));
    let expired = line("ERROR", r#"{"code":410,"reason":"Expired","message":"too old"}"#);
    assert_eq!(expired.map_err(|e| (e.code(), e.to_string())), Err((410, "too old".into())));
    // Any order and any spaces, and text that has to be decoded.
    let spaced = format!("{{ \"object\": {}, \"type\": \"ADDED\" }}", object("b", "\\u0033", 22));
    assert_eq!(read(&spaced), Ok("+ns/b 3 22".into()));
    assert!(read("not json").is_err());
    assert!(read(r#"{"type":"DELETED","object":{"metadata":{"name":"a"}}"#).is_err());
    let whole = format!(r#"{{"type":"ADDED","object":{}}}"#, object("a", "1", 5));
    assert!(Event::from_line(whole.as_bytes()).is_err(), "without its end it may be cut off");
}

/// The same watch of kube-apiserver as JSON and as protobuf.
#[test]
fn frames_of_protobuf_are_the_events_that_lines_of_json_are() {
    let lines = include_bytes!("../protobuf/testdata/watch.json").split_inclusive(|b| *b == b'\n');
    let mut frames = &include_bytes!("../protobuf/testdata/watch.pb")[..];
    let mut seen = 0;
    for line in lines {
        let (length, rest) = frames.split_first_chunk::<4>().unwrap();
        let (frame, rest) = rest.split_at(u32::from_be_bytes(*length) as usize);
        frames = rest;
        let (json, proto) = (Event::from_line(line).unwrap(), Event::from_frame(frame).unwrap());
        assert_eq!(words(&json), words(&proto));
        if let (Event::Upsert { object: json, .. }, Event::Upsert { object: proto, .. }) = (json, proto) {
            let [json, proto] = [json, proto].map(|bytes| crate::convert::pod(bytes).unwrap());
            assert_eq!(format!("{json:?}"), format!("{proto:?}"));
            seen += 1;
        }
    }
    assert!(seen >= 3 && frames.is_empty());
}

/// A watch of kube-apiserver that begins with a list, as JSON and as protobuf.
#[test]
fn a_bookmark_ends_what_a_watch_begins_with() {
    let lines = include_bytes!("../protobuf/testdata/watch_list.json").split_inclusive(|b| *b == b'\n');
    let json: Vec<String> = lines.map(|line| words(&Event::from_line(line).unwrap())).collect();
    let (mut frames, mut proto) = (&include_bytes!("../protobuf/testdata/watch_list.pb")[..], Vec::new());
    while let Some((length, rest)) = frames.split_first_chunk::<4>() {
        let (frame, rest) = rest.split_at(u32::from_be_bytes(*length) as usize);
        frames = rest;
        proto.push(words(&Event::from_frame(frame).unwrap()));
    }
    // Versions had moved on between the two.
    assert_eq!(json.len(), proto.len());
    for (events, version) in [(json, "1353"), (proto, "2586")] {
        assert!(events.len() > 2 && events.iter().rev().skip(1).all(|e| e.starts_with('+')), "{events:?}");
        assert_eq!(events.last().map(String::as_str), Some(&*format!("listed {version}")));
    }
    let other = r#"{"metadata":{"resourceVersion":"7","annotations":{"k8s.io/initial-events-end":"no"}}}"#;
    assert_eq!(read(&format!(r#"{{"type":"BOOKMARK","object":{other}}}"#)), Ok("bookmark 7".into()));
}

#[test]
fn pages_are_the_same_in_both_encodings() {
    let json = Page::read(include_bytes!("../protobuf/testdata/pods.json")).unwrap();
    let proto = Page::read(include_bytes!("../protobuf/testdata/pods.pb")).unwrap();
    assert_eq!((&json.resource_version, &json.next), (&proto.resource_version, &proto.next));
    let metas = |page: &Page<'_>| {
        let all = page.items.iter().map(|item| format!("{:?}", Meta::of(item).unwrap()));
        all.collect::<Vec<_>>()
    };
    assert!(!json.items.is_empty());
    assert_eq!(metas(&json), metas(&proto));
    let page = Page::read(br#"{"metadata":{"resourceVersion":"7","continue":"abc"},"items":null}"#).unwrap();
    assert_eq!((&*page.resource_version, &*page.next, page.items.len()), ("7", "abc", 0));
    assert!(Page::read(b"404 page not found").is_err());
}

#[test]
fn paths_are_those_of_lists() {
    let mut path = String::from("left over");
    join(&mut path, "ns", "a");
    assert_eq!((path.as_str(), split(&path)), ("ns/a", ("ns", "a")));
    join(&mut path, "", "node");
    assert_eq!((path.as_str(), split(&path)), ("node", ("", "node")));
}

#[test]
fn an_object_with_another_uid_is_another_object() {
    let mut known = Known::default();
    known.begin_list();
    assert_eq!(known.upsert("ns/a", "1", 10), Change::Added);
    assert_eq!(known.upsert("ns/b", "2", 20), Change::Added);
    assert!(known.end_list().is_empty());
    assert_eq!(known.upsert("ns/a", "1", 11), Change::Modified(10));
    let gone = |path: &str, uid: &str, value| Gone { path: path.into(), uid: uid.into(), value };
    assert_eq!(known.upsert("ns/a", "3", 30), Change::Replaced(gone("ns/a", "1", 11)));
    known.begin_list();
    known.upsert("ns/a", "3", 31);
    // The list breaks off, and the next one is of a later time.
    known.begin_list();
    known.upsert("ns/c", "4", 40);
    assert_eq!(known.end_list(), [gone("ns/a", "3", 31), gone("ns/b", "2", 20)]);
    assert_eq!(known.delete("ns/a"), None);
    assert_eq!(known.get("ns/c"), Some(&40));
    assert_eq!(known.delete("ns/c"), Some(gone("ns/c", "4", 40)));
    assert!(known.is_empty());
}

#[derive(Clone, Copy, Debug)]
enum Op {
    /// Creates or changes an object.
    Put(u8),
    Delete(u8),
    /// The next event comes.
    Event,
    /// Events are lost up to here, and a list is begun that breaks off after so many objects.
    Broken(u8),
    List,
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        4 => (0..4u8).prop_map(Op::Put),
        3 => (0..4u8).prop_map(Op::Delete),
        5 => Just(Op::Event),
        1 => (0..4u8).prop_map(Op::Broken),
        1 => Just(Op::List),
    ]
}

/// A client's view, checked with every change.
#[derive(Default)]
struct Client {
    known: Known<u32>,
    /// Objects by UID that were added and are not gone.
    there: BTreeMap<String, String>,
    ended: BTreeSet<String>,
}

impl Client {
    fn put(&mut self, path: &str, uid: u32) {
        let uid = uid.to_string();
        let is_new = match self.known.upsert(path, &uid, uid.parse().unwrap()) {
            Change::Added => true,
            Change::Modified(old) => {
                assert_eq!(old.to_string(), uid);
                false
            }
            Change::Replaced(gone) => {
                self.end(&gone);
                true
            }
        };
        assert_eq!(self.there.insert(uid, path.to_owned()).is_none(), is_new);
    }

    fn end(&mut self, gone: &Gone<u32>) {
        assert_eq!(gone.value.to_string(), *gone.uid);
        assert_eq!(self.there.remove(&*gone.uid).as_deref(), Some(&*gone.path), "an end without a beginning");
        assert!(self.ended.insert(gone.uid.to_string()), "a second end");
    }
}

proptest! {
    /// Whatever events are lost between lists, and wherever lists break off: after a list the client knows what the server
    /// has, and it has seen each object's end once.
    #[test]
    fn a_list_mends_what_was_lost(ops in prop::collection::vec(op(), 1..80)) {
        let (mut server, mut log, mut uids) = (BTreeMap::<String, u32>::new(), Vec::new(), 0);
        let (mut client, mut cursor) = (Client::default(), 0);
        for op in ops.into_iter().chain([Op::List]) {
            match op {
                Op::Put(n) => {
                    let path = format!("ns/{n}");
                    let uid = *server.entry(path.clone()).or_insert_with(|| { uids += 1; uids });
                    log.push((path, Some(uid)));
                }
                Op::Delete(n) => {
                    let path = format!("ns/{n}");
                    if server.remove(&path).is_some() {
                        log.push((path, None));
                    }
                }
                Op::Event => {
                    let Some((path, uid)) = log.get(cursor) else { continue };
                    cursor += 1;
                    match uid {
                        Some(uid) => client.put(path, *uid),
                        None => client.known.delete(path).iter().for_each(|gone| client.end(gone)),
                    }
                }
                Op::Broken(n) => {
                    client.known.begin_list();
                    server.iter().take(usize::from(n)).for_each(|(path, uid)| client.put(path, *uid));
                    cursor = log.len();
                }
                Op::List => {
                    client.known.begin_list();
                    server.iter().for_each(|(path, uid)| client.put(path, *uid));
                    client.known.end_list().iter().for_each(|gone| client.end(gone));
                    cursor = log.len();
                    let known: Vec<_> = client.known.with_prefix("").map(|(p, v)| (p.to_string(), *v)).collect();
                    prop_assert_eq!(&known, &server.clone().into_iter().collect::<Vec<_>>());
                    let there: BTreeMap<_, _> = server.iter().map(|(p, v)| (v.to_string(), p.clone())).collect();
                    prop_assert_eq!(&client.there, &there);
                }
            }
        }
    }
}

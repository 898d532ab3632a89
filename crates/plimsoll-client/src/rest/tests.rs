use http::HeaderMap;

use super::*;

#[test]
fn query_values_are_percent_encoded() {
    assert_eq!(encode("a=b, c"), "a%3Db%2C%20c");
}

#[test]
fn refusals_are_read_in_each_form() {
    let refused = |body: &[u8]| {
        let Error::Status { code, reason, message, retry_after } = refused(StatusCode::FORBIDDEN, 3, body)
        else {
            panic!("no status")
        };
        (code, reason, message, retry_after)
    };
    let json = br#"{"code":403,"reason":"Forbidden","message":"no","details":{"retryAfterSeconds":7}}"#;
    assert_eq!(refused(json), (403, "Forbidden".into(), "no".into(), 7));
    assert_eq!(refused(b"blocked"), (403, String::new(), "blocked".into(), 3));
    // Message and code in fields 3 and 6 of a Status.
    assert_eq!(refused(b"k8s\0\x12\x07\x1a\x02no\x30\x93\x03"), (403, String::new(), "no".into(), 3));
    let head = |value: &str| {
        let mut head = HeaderMap::new();
        head.insert(header::RETRY_AFTER, value.parse().unwrap());
        retry_after(&head)
    };
    assert_eq!((head("1"), head("soon"), retry_after(&HeaderMap::new())), (1, 0, 0));
}

//! Syntax of label keys and values, with the messages of `k8s.io/apimachinery/pkg/api/validate/content`.

/// What the API server says of a name that is no subdomain.
pub const SUBDOMAIN: &str = r"a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";
const PARTS: &str = "alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";
const VALUE: &str = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')";

/// Whether it is a lowercase subdomain of at most 253 characters (RFC 1123; `content.IsDNS1123Subdomain`).
pub fn is_subdomain(text: &str) -> bool {
    text.len() <= 253 && is_dotted(text)
}

/// What is wrong with a name that has to be a subdomain (`content.IsDNS1123Subdomain`).
pub fn subdomain(text: &str) -> Vec<&'static str> {
    let mut faults = Vec::new();
    if text.len() > 253 {
        faults.push("must be no more than 253 bytes");
    }
    if !is_dotted(text) {
        faults.push(SUBDOMAIN);
    }
    faults
}

/// Whether it has the form of a subdomain, whatever its length.
fn is_dotted(text: &str) -> bool {
    let part = |p: &str| {
        let inner = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
        !p.is_empty() && p.bytes().all(inner) && !p.starts_with('-') && !p.ends_with('-')
    };
    text.split('.').all(part)
}

/// What is wrong with a label key, such as the name of a resource (`content.IsLabelKey`).
pub fn label_key(key: &str) -> Vec<String> {
    let (prefix, name) = match key.split_once('/') {
        Some((_, name)) if name.contains('/') => {
            return vec![format!(
                "a valid label key must consist of {PARTS} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
            )];
        }
        Some((prefix, name)) => (Some(prefix), name),
        None => (None, key),
    };
    let mut faults = Vec::new();
    match prefix {
        Some("") => faults.push("prefix part must be non-empty".to_owned()),
        Some(p) => {
            if p.len() > 253 {
                faults.push("prefix part must be no more than 253 bytes".to_owned());
            }
            if !is_dotted(p) {
                faults.push(format!("prefix part {SUBDOMAIN}"));
            }
        }
        None => {}
    }
    if name.is_empty() {
        faults.push("name part must be non-empty".to_owned());
    } else if name.len() > 63 {
        faults.push("name part must be no more than 63 bytes".to_owned());
    }
    if !is_name(name) {
        faults.push(format!("name part must consist of {PARTS}"));
    }
    faults
}

/// What is wrong with the value of a label (`content.IsLabelValue`).
pub fn label_value(value: &str) -> Vec<String> {
    let mut faults = Vec::new();
    if value.len() > 63 {
        faults.push("must be no more than 63 bytes".to_owned());
    }
    if !value.is_empty() && !is_name(value) {
        faults.push(VALUE.to_owned());
    }
    faults
}

fn is_name(text: &str) -> bool {
    let inner = |b: u8| b.is_ascii_alphanumeric() || b"-_.".contains(&b);
    let ends = |b: Option<u8>| b.is_some_and(|b| b.is_ascii_alphanumeric());
    text.bytes().all(inner) && ends(text.bytes().next()) && ends(text.bytes().last())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_faults_of_a_subdomain_are_named() {
        assert!(subdomain("a.b-c").is_empty() && is_subdomain("a.b-c"));
        assert_eq!(subdomain("A"), [SUBDOMAIN]);
        assert_eq!(subdomain(&"a".repeat(254)), ["must be no more than 253 bytes"]);
        assert_eq!(subdomain(&"A".repeat(254)), ["must be no more than 253 bytes", SUBDOMAIN]);
    }

    #[test]
    fn keys_and_values_of_labels() {
        for good in ["a", "Example.com_x", "example.com/gpu", "0-9"] {
            assert!(label_key(good).is_empty(), "{good}");
        }
        for bad in ["", "@x", "-x", "x_", "/x", "Example.com/x", "a/", "a/b/c", &"x".repeat(64)] {
            assert!(!label_key(bad).is_empty(), "{bad}");
        }
        let long = format!("{}/x", "a".repeat(254));
        assert_eq!(label_key(&long), ["prefix part must be no more than 253 bytes"]);
        for good in ["", "a", "A.b_c-9"] {
            assert!(label_value(good).is_empty(), "{good}");
        }
        for bad in ["@x", "-x", "a/b", &"x".repeat(64)] {
            assert!(!label_value(bad).is_empty(), "{bad}");
        }
    }
}

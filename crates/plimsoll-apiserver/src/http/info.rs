//! What a request asks for, read from its method and path once.

use http::Method;

use super::query::{Query, unescape};

/// `k8s.io/apiserver` calls this RequestInfo.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RequestInfo {
    /// Whether the path names an API resource.
    pub is_resource: bool,
    /// `get`, `list`, `watch`, `create`, `update`, `patch`, `delete`, `deletecollection`; for other paths
    /// the method in lower case.
    pub verb: String,
    /// Path as sent (without query).
    pub path: String,
    /// API group, empty for core.
    pub group: String,
    /// API version.
    pub version: String,
    /// Namespace, empty for none.
    pub namespace: String,
    /// Plural resource name.
    pub resource: String,
    /// Subresource, empty for none.
    pub subresource: String,
    /// Name, empty for collections.
    pub name: String,
    /// The one name that the field selector of a list or watch leaves, which is authorized like a name; or empty.
    pub selected: String,
    /// Segments after the subresource (`proxy` paths).
    pub rest: Vec<String>,
    /// Whether the path went through the old `/watch/` prefix.
    pub old_watch: bool,
    /// Whether a segment in the middle is empty (`/api/v1//pods`).
    pub gap: bool,
    /// Number of segments after the version; to tell `/api/v1` from a resource.
    pub shape: Shape,
}

/// What kind of path it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Shape {
    /// Not an API path.
    #[default]
    Other,
    /// `/api` or `/apis`.
    Root,
    /// `/apis/<group>`.
    Group,
    /// `/api/v1`, `/apis/<group>/<version>`.
    Version,
    /// A resource, possibly one that isn't served.
    Resource,
}

const NAMESPACE_SUBRESOURCES: [&str; 2] = ["status", "finalize"];

impl RequestInfo {
    /// Reads method and path.
    pub fn parse(method: &Method, path: &str, query: &Query) -> Self {
        let mut info = Self {
            verb: method.as_str().to_ascii_lowercase(),
            path: unescape(path, false).unwrap_or_else(|| path.to_owned()),
            ..Self::default()
        };
        let inner = path.trim_end_matches('/');
        info.gap = inner.split('/').skip(1).any(str::is_empty);
        let segments: Vec<String> = path
            .trim_matches('/')
            .split('/')
            .filter(|s| !s.is_empty())
            .map(|s| unescape(s, false).unwrap_or_else(|| s.to_owned()))
            .collect();
        let mut rest: &[String] = match segments.split_first() {
            Some((p, rest)) if p == "api" => {
                info.shape = Shape::Root;
                rest
            }
            Some((p, rest)) if p == "apis" => {
                info.shape = Shape::Root;
                let Some((group, rest)) = rest.split_first() else { return info };
                info.group.clone_from(group);
                info.shape = Shape::Group;
                rest
            }
            _ => return info,
        };
        let Some((version, tail)) = rest.split_first() else { return info };
        info.version.clone_from(version);
        info.shape = Shape::Version;
        rest = tail;
        if rest.is_empty() {
            return info;
        }
        info.shape = Shape::Resource;
        info.is_resource = true;
        info.verb = match *method {
            Method::POST => "create",
            Method::GET | Method::HEAD => "get",
            Method::PUT => "update",
            Method::PATCH => "patch",
            Method::DELETE => "delete",
            _ => "",
        }
        .to_owned();
        if rest.first().is_some_and(|s| s == "watch") && rest.len() > 1 {
            info.old_watch = true;
            rest = &rest[1..];
        }
        info.resource_path(rest);
        info.refine_verb(query);
        info
    }

    fn resource_path(&mut self, mut rest: &[String]) {
        if rest.first().is_some_and(|s| s == "namespaces") && rest.len() > 1 {
            self.namespace.clone_from(&rest[1]);
            let of_namespace = rest.get(2).is_none_or(|s| NAMESPACE_SUBRESOURCES.contains(&s.as_str()));
            if !of_namespace {
                rest = &rest[2..];
            }
        }
        let mut parts = rest.iter();
        self.resource = parts.next().cloned().unwrap_or_default();
        self.name = parts.next().cloned().unwrap_or_default();
        self.subresource = parts.next().cloned().unwrap_or_default();
        self.rest = parts.cloned().collect();
    }

    fn refine_verb(&mut self, query: &Query) {
        if self.old_watch {
            "watch".clone_into(&mut self.verb);
        } else if self.name.is_empty() {
            match self.verb.as_str() {
                "get" if query.flag("watch") => "watch".clone_into(&mut self.verb),
                "get" => "list".clone_into(&mut self.verb),
                "delete" => "deletecollection".clone_into(&mut self.verb),
                _ => {}
            }
            if matches!(self.verb.as_str(), "list" | "watch") {
                self.selected = query.get("fieldSelector").and_then(exact_name).unwrap_or_default();
            }
        }
    }

    /// The name that authorization goes by.
    pub fn authorized_name(&self) -> &str {
        if self.name.is_empty() { &self.selected } else { &self.name }
    }
}

/// The name that a field selector requires, if it is one that a path could have.
fn exact_name(selector: &str) -> Option<String> {
    let value = |term: &str| {
        let rest = term.strip_prefix("metadata.name=")?;
        Some(rest.strip_prefix('=').unwrap_or(rest).to_owned())
    };
    // What is escaped may not be what it looks like: `metadata.name!=x\\,metadata.name=a` is one term.
    if selector.contains('\\') {
        return None;
    }
    let name = selector.split(',').find_map(value)?;
    let odd = name.is_empty() || name == "." || name == ".." || name.contains(['/', '%', '=']);
    (!odd).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_of_one_name_is_authorized_by_that_name() {
        for (method, uri, want) in [
            ("GET", "/api/v1/configmaps?fieldSelector=metadata.name%3Da", "a"),
            ("GET", "/api/v1/configmaps?watch=1&fieldSelector=type==b,metadata.name==a", "a"),
            ("GET", "/api/v1/configmaps?fieldSelector=metadata.name!=a", ""),
            ("GET", "/api/v1/configmaps?fieldSelector=metadata.name=..", ""),
            ("GET", "/api/v1/configmaps?fieldSelector=metadata.name!=x%5C,metadata.name=a", ""),
            ("GET", "/api/v1/configmaps?fieldSelector=type=x%5C%5C,metadata.name=a", ""),
            ("GET", "/api/v1/configmaps?fieldSelector=metadata.namespace=a", ""),
            ("DELETE", "/api/v1/configmaps?fieldSelector=metadata.name=a", ""),
            ("GET", "/api/v1/namespaces/n/configmaps/b?fieldSelector=metadata.name=a", "b"),
        ] {
            let (path, query) = uri.split_once('?').unwrap();
            let info = RequestInfo::parse(&method.parse().unwrap(), path, &Query::parse(query));
            assert_eq!(info.authorized_name(), want, "{uri}");
        }
    }

    #[test]
    fn gaps() {
        for (path, want) in [
            ("/", false),
            ("//", false),
            ("/api/v1/pods", false),
            ("/api/v1/pods//", false),
            ("/api/v1//pods", true),
            ("//api/v1/pods", true),
        ] {
            assert_eq!(RequestInfo::parse(&Method::GET, path, &Query::parse("")).gap, want, "{path}");
        }
    }

    #[test]
    fn paths() {
        // method, path, verb, group/version, namespace, resource/subresource, name
        let rows = [
            ("GET", "/api/v1/pods", "list", "/v1", "", "pods/", ""),
            ("GET", "/api/v1/pods?watch=1", "watch", "/v1", "", "pods/", ""),
            ("GET", "/api/v1/namespaces/a/pods/b/log", "get", "/v1", "a", "pods/log", "b"),
            ("PUT", "/api/v1/namespaces/a/status", "update", "/v1", "a", "namespaces/status", "a"),
            ("GET", "/api/v1/namespaces/a", "get", "/v1", "a", "namespaces/", "a"),
            ("DELETE", "/apis/batch/v1/namespaces/a/jobs", "deletecollection", "batch/v1", "a", "jobs/", ""),
            ("GET", "/api/v1/watch/namespaces/a/pods/b", "watch", "/v1", "a", "pods/", "b"),
            ("POST", "/api/v1/namespaces/a/pods/", "create", "/v1", "a", "pods/", ""),
            ("GET", "/healthz", "get", "/", "", "/", ""),
        ];
        for (method, uri, verb, gv, ns, res, name) in rows {
            let (path, query) = uri.split_once('?').unwrap_or((uri, ""));
            let method: Method = method.parse().unwrap();
            let i = RequestInfo::parse(&method, path, &Query::parse(query));
            assert_eq!(
                (
                    i.verb.as_str(),
                    format!("{}/{}", i.group, i.version).as_str(),
                    i.namespace.as_str(),
                    format!("{}/{}", i.resource, i.subresource).as_str(),
                    i.name.as_str()
                ),
                (verb, gv, ns, res, name),
                "{uri}"
            );
        }
    }
}

//! Content negotiation: `Accept` and `Content-Type`, as `k8s.io/apiserver/endpoints/handlers/negotiation`
//! and go-restful decide it.

use plimsoll_apimachinery::ApiError;

/// How bodies are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Format {
    /// `application/json`.
    #[default]
    Json,
    /// `application/yaml`.
    Yaml,
    /// `application/vnd.kubernetes.protobuf`.
    Protobuf,
}

impl Format {
    /// The media type.
    pub const fn media_type(self) -> &'static str {
        match self {
            Self::Json => "application/json",
            Self::Yaml => "application/yaml",
            Self::Protobuf => "application/vnd.kubernetes.protobuf",
        }
    }

    fn of(subtype: &str) -> Option<Self> {
        match subtype {
            "json" => Some(Self::Json),
            "yaml" => Some(Self::Yaml),
            "vnd.kubernetes.protobuf" => Some(Self::Protobuf),
            _ => None,
        }
    }
}

/// What form the object takes in the answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Transform {
    /// As it is.
    #[default]
    None,
    /// `as=Table`; the version of `meta.k8s.io` asked for.
    Table(MetaVersion),
    /// `as=PartialObjectMetadata`.
    Partial(MetaVersion),
    /// `as=PartialObjectMetadataList`.
    PartialList(MetaVersion),
}

/// Version of `meta.k8s.io`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetaVersion {
    /// `v1`.
    V1,
    /// `v1beta1`.
    V1beta1,
}

impl MetaVersion {
    /// `meta.k8s.io/v1` or `meta.k8s.io/v1beta1`.
    pub const fn api_version(self) -> &'static str {
        match self {
            Self::V1 => "meta.k8s.io/v1",
            Self::V1beta1 => "meta.k8s.io/v1beta1",
        }
    }
}

/// The result of negotiation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Accepted {
    /// Encoding.
    pub format: Format,
    /// Form.
    pub transform: Transform,
    /// `pretty=1` in the media type.
    pub pretty: bool,
    /// `stream=watch` in the media type.
    pub stream: bool,
}

/// What an endpoint can serve.
#[derive(Clone, Copy, Debug, Default)]
pub struct Endpoint {
    /// Tables can be made.
    pub table: bool,
    /// Metadata forms can be made.
    pub partial: bool,
    /// Protobuf can be written.
    pub protobuf: bool,
    /// It also watches (which shows in the text of a 406).
    pub watchable: bool,
    /// The answer is a watch stream: no YAML.
    pub watching: bool,
    /// A custom resource: only its metadata have a protobuf form.
    pub custom: bool,
    /// Not behind go-restful, which compares media types as they are written before anything else does.
    pub direct: bool,
}

struct Clause {
    /// `*` alone.
    bare: bool,
    kind: String,
    subtype: String,
    params: Vec<(String, String)>,
    q: f64,
}

/// Parses and orders the clauses of an `Accept` header (goautoneg).
fn clauses(header: &str) -> Vec<Clause> {
    let mut list: Vec<Clause> = header
        .split(',')
        .take(32)
        .filter_map(|part| {
            let mut pieces = part.split(';').map(str::trim);
            let (kind, subtype) = match pieces.next()? {
                "*" => ("*", "*"),
                media => media.split_once('/').map(|(k, s)| (k.trim(), s.trim()))?,
            };
            let mut clause = Clause {
                bare: !part.contains('/'),
                kind: kind.to_owned(),
                subtype: subtype.to_owned(),
                params: Vec::new(),
                q: 1.0,
            };
            for p in pieces {
                let (name, value) = p.split_once('=').unwrap_or((p, ""));
                if name.trim() == "q" {
                    clause.q = value.trim().parse().unwrap_or(1.0);
                } else {
                    clause.params.push((name.trim().to_owned(), value.trim().to_owned()));
                }
            }
            Some(clause)
        })
        .collect();
    let wild = |c: &Clause| (c.kind == "*", c.subtype == "*");
    list.sort_by(|a, b| b.q.total_cmp(&a.q).then_with(|| wild(a).cmp(&wild(b))));
    list
}

const STREAM_TYPES: &str = "application/json;stream=watch, application/vnd.kubernetes.protobuf;stream=watch";

/// Chooses the form of the answer.
///
/// # Errors
/// 406 in one of upstream's two wordings: go-restful's when no media type is known at all, apiserver's when
/// the parameters can't be served.
pub fn negotiate(accept: Option<&str>, endpoint: Endpoint) -> Result<Accepted, ApiError> {
    let accept = accept.map(str::trim).filter(|a| !a.is_empty());
    let Some(accept) = accept else { return Ok(Accepted::default()) };
    let list = clauses(accept);
    let known = |c: &&Clause| {
        (c.kind == "*" && c.subtype == "*")
            || (c.kind == "application"
                && (c.subtype == "*"
                    || Format::of(&c.subtype).is_some_and(|f| f != Format::Protobuf || endpoint.protobuf)))
    };
    let written = |c: &Clause| known(&c) && (c.subtype != "*" || c.kind == "*") && !c.bare;
    if !endpoint.direct && !endpoint.custom && !list.iter().any(written) {
        return Err(restful_not_acceptable(endpoint));
    }
    list.iter().filter(known).find_map(|c| accept_clause(c, endpoint)).ok_or_else(|| not_acceptable(endpoint))
}

/// The form of an error: no transforms, and JSON when nothing fits.
pub fn negotiate_error(accept: Option<&str>) -> Accepted {
    negotiate(accept, Endpoint { protobuf: true, direct: true, ..Endpoint::default() }).unwrap_or_default()
}

fn accept_clause(c: &Clause, endpoint: Endpoint) -> Option<Accepted> {
    let format = Format::of(&c.subtype).unwrap_or_default();
    if endpoint.watching && format == Format::Yaml {
        return None;
    }
    let mut out = Accepted { format, ..Accepted::default() };
    let (mut target, mut group, mut version) = ("", "", "");
    for (name, value) in &c.params {
        match name.as_str() {
            "as" => target = value,
            "g" => group = value,
            "v" => version = value,
            "pretty" => out.pretty = value == "1",
            "stream" if value == "watch" && format != Format::Yaml => out.stream = true,
            "stream" => return None,
            _ => {}
        }
    }
    if target.is_empty() && format == Format::Protobuf && endpoint.custom {
        return None;
    }
    if target.is_empty() {
        return (group.is_empty() && version.is_empty()).then_some(out);
    }
    let version = match (group, version) {
        ("meta.k8s.io", "v1") => MetaVersion::V1,
        ("meta.k8s.io", "v1beta1") => MetaVersion::V1beta1,
        _ => return None,
    };
    out.transform = match target {
        "Table" if endpoint.table && format != Format::Protobuf => Transform::Table(version),
        "PartialObjectMetadata" if endpoint.partial => Transform::Partial(version),
        "PartialObjectMetadataList" if endpoint.partial => Transform::PartialList(version),
        _ => return None,
    };
    Some(out)
}

fn types(endpoint: Endpoint) -> String {
    let mut text = "application/json, application/yaml".to_owned();
    if endpoint.protobuf {
        text.push_str(", application/vnd.kubernetes.protobuf");
    }
    text
}

fn restful_not_acceptable(endpoint: Endpoint) -> ApiError {
    let mut text = format!("406: Not Acceptable\n\nAvailable representations: {}", types(endpoint));
    if endpoint.watchable {
        text.push_str(", ");
        text.push_str(if endpoint.protobuf { STREAM_TYPES } else { "application/json;stream=watch" });
    }
    let mut e = ApiError::new(406, "NotAcceptable", text);
    e.details = Some(Box::default());
    e
}

fn not_acceptable(endpoint: Endpoint) -> ApiError {
    let list = match (endpoint.watching, endpoint.protobuf) {
        (true, true) => STREAM_TYPES.to_owned(),
        (true, false) => "application/json;stream=watch".to_owned(),
        (false, _) => types(endpoint),
    };
    ApiError::new(406, "NotAcceptable", format!("only the following media types are accepted: {list}"))
}

/// Format of a request body.
///
/// # Errors
/// 415 when it is none of ours.
pub fn input_format(content_type: Option<&str>, protobuf: bool) -> Result<Format, ApiError> {
    let media = content_type.unwrap_or("").split(';').next().unwrap_or("").trim().to_ascii_lowercase();
    match media.as_str() {
        "" | "application/json" => Ok(Format::Json),
        "application/yaml" => Ok(Format::Yaml),
        "application/vnd.kubernetes.protobuf" if protobuf => Ok(Format::Protobuf),
        _ => Err(ApiError::new(
            415,
            "UnsupportedMediaType",
            format!(
                "the body of the request was in an unknown format - accepted media types include: {}",
                types(Endpoint { protobuf, ..Endpoint::default() })
            ),
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OBJECT: Endpoint = Endpoint {
        table: true,
        partial: true,
        protobuf: true,
        watchable: false,
        watching: false,
        custom: false,
        direct: false,
    };

    #[test]
    fn chooses() {
        let ok = |accept: &str| negotiate(Some(accept), OBJECT).map(|a| (a.format, a.transform));
        assert_eq!(ok("*/*"), Ok((Format::Json, Transform::None)));
        assert_eq!(ok("application/json;q=0.5,application/yaml"), Ok((Format::Yaml, Transform::None)));
        assert_eq!(ok("application/xml,application/json"), Ok((Format::Json, Transform::None)));
        assert_eq!(
            ok("application/json;as=Table;v=v1;g=meta.k8s.io,application/json"),
            Ok((Format::Json, Transform::Table(MetaVersion::V1)))
        );
        assert_eq!(
            ok("application/json;as=Table;g=meta.k8s.io;v=v9,application/json"),
            Ok((Format::Json, Transform::None))
        );
        assert_eq!(negotiate(None, OBJECT).map(|a| a.format), Ok(Format::Json));
    }

    #[test]
    fn refuses_in_two_wordings() {
        let text = |accept: &str| negotiate(Some(accept), OBJECT).unwrap_err().message;
        assert!(text("application/*").starts_with("406: Not Acceptable"));
        assert!(text("text/html").starts_with("406: Not Acceptable"));
        assert!(text("application/json;as=Nonsense;g=meta.k8s.io;v=v1").starts_with("only the following"));
        let direct = Endpoint { direct: true, ..OBJECT };
        for accept in ["*", "application/*"] {
            assert_eq!(negotiate(Some(accept), direct).map(|a| a.format), Ok(Format::Json), "{accept}");
        }
        let custom = Endpoint { custom: true, ..OBJECT };
        let of_custom =
            |accept: &str| negotiate(Some(accept), custom).map(|a| a.format).map_err(|e| e.message);
        let partial = "application/vnd.kubernetes.protobuf;as=PartialObjectMetadata;g=meta.k8s.io;v=v1";
        assert_eq!(of_custom(partial), Ok(Format::Protobuf));
        for accept in ["text/html", "application/vnd.kubernetes.protobuf", "application/yaml;stream=watch"] {
            let why = of_custom(accept).unwrap_err();
            assert!(
                why.ends_with("application/json, application/yaml, application/vnd.kubernetes.protobuf"),
                "{why}"
            );
        }
        let watching = Endpoint { watching: true, ..OBJECT };
        let e = negotiate(Some("application/yaml"), watching).unwrap_err();
        assert_eq!(
            e.message,
            "only the following media types are accepted: application/json;stream=watch, \
             application/vnd.kubernetes.protobuf;stream=watch"
        );
    }
}

//! `pods/log`.

use plimsoll_apimachinery::{ApiError, Kind};
use serde_json::Value;

use super::super::Req;
use super::super::reply::{Payload, Reply};
use super::read;
use crate::logs::LogRequest;

/// GET of `pods/NAME/log`.
pub async fn log(req: &mut Req, kind: &Kind) -> Result<Reply, ApiError> {
    let pod = read(req, kind).await?;
    let wanted = req.query.non_empty("container").unwrap_or("").to_owned();
    let container = container(&pod, &wanted, &req.info.name)?;
    if pod["spec"]["nodeName"].as_str().unwrap_or("").is_empty() {
        // Nothing has been written yet.
        return Ok(Reply { status: 204, payload: Payload::Empty, headers: Vec::new() });
    }
    let number = |name: &str| -> Result<Option<u64>, ApiError> {
        let Some(text) = req.query.non_empty(name) else { return Ok(None) };
        text.parse()
            .map(Some)
            .map_err(|_| ApiError::bad_request(format!("strconv.ParseInt: parsing {text:?}: invalid syntax")))
    };
    let request = LogRequest {
        pod: &pod,
        container: &container,
        follow: req.query.flag("follow"),
        tail_lines: number("tailLines")?,
        since_seconds: number("sinceSeconds")?,
        timestamps: req.query.flag("timestamps"),
        previous: req.query.flag("previous"),
        limit_bytes: number("limitBytes")?,
    };
    let Some(source) = req.server.log_source() else {
        return Err(ApiError::new(501, "NotImplemented", "the server has no source of logs"));
    };
    let body = source.logs(&request)?;
    Ok(Reply { status: 200, payload: Payload::Stream(body, "text/plain"), headers: Vec::new() })
}

/// Names of the pod's containers by kind.
fn names<'a>(pod: &'a Value, field: &'a str) -> impl Iterator<Item = &'a str> {
    pod["spec"][field].as_array().into_iter().flatten().filter_map(|c| c["name"].as_str())
}

/// The container meant (`LogLocation`).
fn container(pod: &Value, wanted: &str, name: &str) -> Result<String, ApiError> {
    let main: Vec<&str> = names(pod, "containers").collect();
    let all = || {
        names(pod, "containers").chain(names(pod, "initContainers")).chain(names(pod, "ephemeralContainers"))
    };
    if !wanted.is_empty() {
        return if all().any(|n| n == wanted) {
            Ok(wanted.to_owned())
        } else {
            Err(ApiError::bad_request(format!("container {wanted} is not valid for pod {name}")))
        };
    }
    match main.as_slice() {
        [one] => Ok((*one).to_owned()),
        [] => Err(ApiError::bad_request(format!("a container name must be specified for pod {name}"))),
        many => {
            let mut text = format!(
                "a container name must be specified for pod {name}, choose one of: [{}]",
                many.join(" ")
            );
            let init: Vec<&str> = names(pod, "initContainers").collect();
            if !init.is_empty() {
                text.push_str(&format!(" or one of the init containers: [{}]", init.join(" ")));
            }
            Err(ApiError::bad_request(text))
        }
    }
}

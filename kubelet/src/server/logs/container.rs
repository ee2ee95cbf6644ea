//! Chooses the container of a log: of several with the name, the running or the last one.

use std::fmt;

use api::Tree;

const STATUSES: [&str; 3] =
    ["status.containerStatuses", "status.initContainerStatuses", "status.ephemeralContainerStatuses"];

/// A container that has no log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct NoLog {
    container: String,
    pod: String,
    reason: Reason,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Reason {
    Unavailable,
    NoPrevious,
    /// A waiting container, with the rest of the message.
    Waiting(String),
    Terminated,
}

impl fmt::Display for NoLog {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let of = format!("container {:?} in pod {:?}", self.container, self.pod);
        match &self.reason {
            Reason::Unavailable => write!(formatter, "{of} is not available"),
            Reason::NoPrevious => write!(formatter, "previous terminated {of} not found"),
            Reason::Waiting(end) => write!(formatter, "{of} is waiting to start{end}"),
            Reason::Terminated => write!(formatter, "{of} is terminated"),
        }
    }
}

impl std::error::Error for NoLog {}

/// The identity of the container, with its runtime's scheme, or why there is no log.
pub(crate) fn container(pod: &Tree, name: &str, previous: bool) -> Result<String, NoLog> {
    let no_log = |reason| NoLog { container: name.to_string(), pod: crate::model::pod::name(pod).to_string(), reason };
    let mut statuses = STATUSES.iter().flat_map(|list| pod.list(list));
    let status = statuses.find(|status| status.str("name") == name);
    let status = status.ok_or_else(|| no_log(Reason::Unavailable))?;
    let last = status.at("lastState").get("terminated");
    let last_id = last.map_or("", |last| last.str("containerID"));
    let state = status.at("state");
    let id = if previous {
        if last_id.is_empty() {
            return Err(no_log(Reason::NoPrevious));
        }
        last_id
    } else if state.has("running") {
        status.str("containerID")
    } else if let Some(terminated) = state.get("terminated") {
        Some(terminated.str("containerID")).filter(|id| !id.is_empty()).unwrap_or(last_id)
    } else if last.is_some() {
        last_id
    } else {
        return Err(no_log(Reason::Waiting(waiting(state))));
    };
    if id.is_empty() { Err(no_log(Reason::Terminated)) } else { Ok(id.to_string()) }
}

fn waiting(state: &Tree) -> String {
    match state.get("waiting").map(|waiting| waiting.str("reason")) {
        None => " - no logs yet".to_string(),
        Some("ErrImagePull") => ": image can't be pulled".to_string(),
        Some("ImagePullBackOff") => ": trying and failing to pull image".to_string(),
        Some(reason) => format!(": {reason}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chooses_the_running_or_last_container() {
        let cases = [
            (r#"{"name":"c","containerID":"x://1","state":{"running":{}}}"#, false, Ok("x://1")),
            (
                r#"{"name":"c","containerID":"x://2","state":{"running":{}},"lastState":{"terminated":{"containerID":"x://1"}}}"#,
                true,
                Ok("x://1"),
            ),
            (
                r#"{"name":"c","state":{"running":{}}}"#,
                true,
                Err(r#"previous terminated container "c" in pod "p" not found"#),
            ),
            (r#"{"name":"c","state":{"terminated":{"containerID":"x://1"}}}"#, false, Ok("x://1")),
            (
                r#"{"name":"c","state":{"terminated":{}},"lastState":{"terminated":{"containerID":"x://1"}}}"#,
                false,
                Ok("x://1"),
            ),
            (r#"{"name":"c","state":{"terminated":{}}}"#, false, Err(r#"container "c" in pod "p" is terminated"#)),
            (
                r#"{"name":"c","state":{"waiting":{"reason":"CrashLoopBackOff"}},"lastState":{"terminated":{"containerID":"x://1"}}}"#,
                false,
                Ok("x://1"),
            ),
            (
                r#"{"name":"c","state":{"waiting":{"reason":"ContainerCreating"}}}"#,
                false,
                Err(r#"container "c" in pod "p" is waiting to start: ContainerCreating"#),
            ),
            (
                r#"{"name":"c","state":{"waiting":{"reason":"ErrImagePull"}}}"#,
                false,
                Err(r#"container "c" in pod "p" is waiting to start: image can't be pulled"#),
            ),
            (r#"{"name":"c"}"#, false, Err(r#"container "c" in pod "p" is waiting to start - no logs yet"#)),
            (r#"{"name":"d"}"#, false, Err(r#"container "c" in pod "p" is not available"#)),
        ];
        for (status, previous, want) in cases {
            let text = format!(r#"{{"metadata":{{"name":"p"}},"status":{{"initContainerStatuses":[{status}]}}}}"#);
            let pod = api::json::decode(text.as_bytes()).expect("JSON");
            let got = container(&pod, "c", previous);
            assert_eq!(
                got.map_err(|error| error.to_string()),
                want.map(str::to_string).map_err(str::to_string),
                "{status}"
            );
        }
    }
}

//! The log of a container that never ran: when it started, what its pod says it wrote, and how it ended.

use api::Tree;
use api::query::Query;
use api::time::{self, Timestamp};

/// What the containers of a pod write when they start.
pub const LOG: &str = "tiphys.io/fake-log";

/// A container without the requested log, in the words of a kubelet.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LogError {
    /// The container has not started yet.
    #[error("container {container:?} in pod {pod:?} is waiting to start: ContainerCreating")]
    Waiting {
        /// Its name.
        container: String,
        /// The name of its pod.
        pod: String,
    },
    /// The container has not been restarted.
    #[error("previous terminated container {container:?} in pod {pod:?} not found")]
    NoPrevious {
        /// Its name.
        container: String,
        /// The name of its pod.
        pod: String,
    },
}

struct Line {
    second: i64,
    text: String,
}

/// The requested log. The API server has validated the query.
pub fn log(pod: &Tree, container: &str, query: &Query, now: i64) -> Result<String, LogError> {
    let run = run(pod, container, query.flag("previous"))?;
    let lines = select(lines(pod, container, run), query, now);
    Ok(limit(render(&lines, query.flag("timestamps")), query))
}

/// The state of the requested run: `running` or `terminated`.
fn run<'a>(pod: &'a Tree, container: &str, previous: bool) -> Result<&'a Tree, LogError> {
    let names = || (container.to_string(), pod.str("metadata.name").to_string());
    let lists = ["containerStatuses", "initContainerStatuses", "ephemeralContainerStatuses"];
    let mut statuses = lists.into_iter().flat_map(|list| pod.at("status").list(list));
    let status = statuses.find(|status| status.str("name") == container);
    let waiting = || {
        let (container, pod) = names();
        LogError::Waiting { container, pod }
    };
    let status = status.ok_or_else(waiting)?;
    let (state, last) = (status.at("state"), status.at("lastState.terminated"));
    if previous {
        let (container, pod) = names();
        return (!last.is_null()).then_some(last).ok_or(LogError::NoPrevious { container, pod });
    }
    let known = [state.at("running"), state.at("terminated"), last];
    known.into_iter().find(|run| !run.is_null()).ok_or_else(waiting)
}

fn lines(pod: &Tree, container: &str, run: &Tree) -> Vec<Line> {
    let second = |key: &str| time::parse(run.str(key)).map_or(0, |time| time.seconds);
    let started = second("startedAt");
    let node = pod.str("spec.nodeName");
    let mut lines = vec![Line {
        second: started,
        text: format!("container {container} started on the fake node {node}; nothing runs there"),
    }];
    let written = pod.map("metadata.annotations").str(LOG).lines();
    lines.extend(written.map(|line| Line { second: started, text: line.to_string() }));
    if let Some(code) = run.int("exitCode") {
        let text = format!("container {container} ended with exit code {code}");
        lines.push(Line { second: second("finishedAt"), text });
    }
    lines
}

fn select(mut lines: Vec<Line>, query: &Query, now: i64) -> Vec<Line> {
    let since = match query.get("sinceSeconds").parse::<i64>() {
        Ok(seconds) => Some(now.saturating_sub(seconds)),
        Err(_) => time::parse(query.get("sinceTime")).ok().map(|time| time.seconds),
    };
    lines.retain(|line| since.is_none_or(|since| line.second >= since));
    if let Ok(tail) = query.get("tailLines").parse::<usize>() {
        lines.drain(..lines.len().saturating_sub(tail));
    }
    lines
}

fn render(lines: &[Line], timestamps: bool) -> String {
    let mut out = String::new();
    for line in lines {
        if timestamps {
            out.push_str(&time::format_micros(Timestamp { seconds: line.second, nanos: 0 }));
            out.push(' ');
        }
        out.push_str(&line.text);
        out.push('\n');
    }
    out
}

fn limit(mut text: String, query: &Query) -> String {
    if let Ok(most) = query.get("limitBytes").parse::<usize>() {
        let end = (0..=most.min(text.len())).rev().find(|at| text.is_char_boundary(*at));
        text.truncate(end.unwrap_or(0));
    }
    text
}

#[cfg(test)]
mod tests {
    use api::{list, tree};

    use super::*;

    fn pod(state: Tree, last: Tree) -> Tree {
        let status = tree! { "name" => "c", "state" => state, "lastState" => last };
        tree! {
            "metadata" => tree! { "name" => "p", "annotations" => tree! { LOG => "one\ntwo" } },
            "spec" => tree! { "nodeName" => "fake-0" },
            "status" => tree! { "containerStatuses" => list![status] },
        }
    }

    fn check(pod: &Tree, query: &str, want: Result<&str, &str>) {
        let got = log(pod, "c", &Query::parse(query), 1010);
        assert_eq!(got.map_err(|error| error.to_string()), want.map(str::to_string).map_err(str::to_string), "{query}");
    }

    #[test]
    fn a_log_tells_how_the_container_fared() {
        let ended = || {
            tree! { "terminated" => tree! {
                "startedAt" => "1970-01-01T00:16:40Z", "finishedAt" => "1970-01-01T00:16:45Z", "exitCode" => 3,
            } }
        };
        let start = "container c started on the fake node fake-0; nothing runs there\n";
        let whole = format!("{start}one\ntwo\ncontainer c ended with exit code 3\n");
        let once = pod(ended(), tree! {});
        check(&once, "", Ok(&whole));
        check(&once, "tailLines=2", Ok("two\ncontainer c ended with exit code 3\n"));
        check(&once, "sinceSeconds=6", Ok("container c ended with exit code 3\n"));
        check(
            &once,
            "sinceTime=1970-01-01T00:16:45Z&timestamps=true&limitBytes=37",
            Ok("1970-01-01T00:16:45.000000Z container"),
        );
        check(&once, "previous=true", Err("previous terminated container \"c\" in pod \"p\" not found"));
        let again = pod(tree! { "running" => tree! { "startedAt" => "1970-01-01T00:16:50Z" } }, ended());
        check(&again, "", Ok(&format!("{start}one\ntwo\n")));
        check(&again, "previous=true", Ok(&whole));
        check(&pod(tree! {}, tree! {}), "", Err("container \"c\" in pod \"p\" is waiting to start: ContainerCreating"));
    }
}

//! Routes of the kubelet's server.

/// A container, or a pod if the path names no container.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ContainerPath<'a> {
    pub(crate) namespace: &'a str,
    pub(crate) pod: &'a str,
    /// Empty for any.
    pub(crate) uid: &'a str,
    pub(crate) container: &'a str,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Route<'a> {
    /// One check, or all by an empty name.
    Health(&'a str),
    Pods,
    Configuration,
    Metrics,
    ProbeMetrics,
    ResourceMetrics,
    CadvisorMetrics,
    Summary,
    RunningPods,
    /// A file or directory of the machine's logs.
    SystemLogs(&'a str),
    Logs(ContainerPath<'a>),
    Exec(ContainerPath<'a>),
    Attach(ContainerPath<'a>),
    PortForward(ContainerPath<'a>),
    Run(ContainerPath<'a>),
    /// A known path that is not served.
    Disabled(&'static str),
    Unknown,
}

impl<'a> Route<'a> {
    pub(crate) fn of(path: &'a str) -> Route<'a> {
        let steps: Vec<&str> = path.split('/').skip(1).collect();
        match steps[..] {
            ["healthz"] => Route::Health(""),
            ["healthz", name] => Route::Health(name),
            ["pods"] => Route::Pods,
            ["configz"] => Route::Configuration,
            ["metrics"] => Route::Metrics,
            ["metrics", "probes"] => Route::ProbeMetrics,
            ["metrics", "resource"] => Route::ResourceMetrics,
            ["metrics", "cadvisor"] => Route::CadvisorMetrics,
            ["stats", "summary"] => Route::Summary,
            ["runningpods"] | ["runningpods", ""] => Route::RunningPods,
            ["logs", ..] => Route::SystemLogs(path.strip_prefix("/logs").unwrap_or_default()),
            ["debug", "flags", ..] => Route::Disabled("flags endpoint is disabled.\n"),
            ["debug", ..] => Route::Disabled("profiling endpoint is disabled.\n"),
            ["checkpoint", ..] => Route::Disabled("checkpoint endpoint is disabled.\n"),
            ["portForward", namespace, pod] => {
                Route::PortForward(ContainerPath { namespace, pod, uid: "", container: "" })
            }
            ["portForward", namespace, pod, uid] => {
                Route::PortForward(ContainerPath { namespace, pod, uid, container: "" })
            }
            [verb, namespace, pod, container] => {
                Route::container(verb, ContainerPath { namespace, pod, uid: "", container })
            }
            [verb, namespace, pod, uid, container] if verb != "containerLogs" => {
                Route::container(verb, ContainerPath { namespace, pod, uid, container })
            }
            _ => Route::Unknown,
        }
    }

    fn container(verb: &str, place: ContainerPath<'a>) -> Route<'a> {
        match verb {
            "containerLogs" => Route::Logs(place),
            "exec" => Route::Exec(place),
            "attach" => Route::Attach(place),
            "run" => Route::Run(place),
            _ => Route::Unknown,
        }
    }

    /// Handlers that `enableDebuggingHandlers` controls.
    pub(crate) fn is_debugging(&self) -> bool {
        use Route::*;
        matches!(self, Logs(_) | Exec(_) | Attach(_) | PortForward(_) | Run(_) | RunningPods | SystemLogs(_))
    }

    /// Empty for any.
    pub(crate) fn methods(&self) -> &'static [&'static str] {
        use Route::*;
        match self {
            Exec(_) | Attach(_) | PortForward(_) => &["GET", "POST"],
            Run(_) => &["POST"],
            Disabled(_) | Unknown => &[],
            _ => &["GET"],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_paths() {
        let place = |uid, container| ContainerPath { namespace: "a", pod: "b", uid, container };
        let cases = [
            ("/healthz", Route::Health("")),
            ("/healthz/syncloop", Route::Health("syncloop")),
            ("/pods", Route::Pods),
            ("/metrics/probes", Route::ProbeMetrics),
            ("/metrics/resource", Route::ResourceMetrics),
            ("/stats/summary", Route::Summary),
            ("/stats", Route::Unknown),
            ("/runningpods/", Route::RunningPods),
            ("/logs", Route::SystemLogs("")),
            ("/logs/a/b.log", Route::SystemLogs("/a/b.log")),
            ("/containerLogs/a/b/c", Route::Logs(place("", "c"))),
            ("/containerLogs/a/b/u/c", Route::Unknown),
            ("/exec/a/b/c", Route::Exec(place("", "c"))),
            ("/exec/a/b/u/c", Route::Exec(place("u", "c"))),
            ("/attach/a/b/u/c", Route::Attach(place("u", "c"))),
            ("/portForward/a/b", Route::PortForward(place("", ""))),
            ("/portForward/a/b/u", Route::PortForward(place("u", ""))),
            ("/run/a/b/c", Route::Run(place("", "c"))),
            ("/debug/pprof/heap", Route::Disabled("profiling endpoint is disabled.\n")),
            ("/exec/a/b", Route::Unknown),
            ("/", Route::Unknown),
        ];
        for (path, want) in cases {
            assert_eq!(Route::of(path), want, "{path}");
        }
    }
}

//! The attributes of a request for authorization: a subresource of this node.

/// The subresources of `nodes` that allow a path; any of them will do.
pub fn subresources(path: &str) -> Vec<&'static str> {
    const FINE: &[(&str, &str)] = &[
        ("/pods", "pods"),
        ("/healthz", "healthz"),
        ("/configz", "configz"),
        ("/statusz", "statusz"),
        ("/runningpods", "pods"),
    ];
    const WHOLE: &[(&str, &str)] =
        &[("/stats", "stats"), ("/metrics", "metrics"), ("/logs", "log"), ("/checkpoint", "checkpoint")];
    let of = |table: &[(&str, &'static str)]| table.iter().find(|(root, _)| covers(root, path)).map(|(_, name)| *name);
    let mut all: Vec<&str> = of(FINE).into_iter().collect();
    all.push(of(WHOLE).unwrap_or("proxy"));
    all
}

fn covers(root: &str, path: &str) -> bool {
    path.strip_prefix(root).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// The API verb of a method.
pub fn verb(method: &http::Method) -> &'static str {
    match method.as_str() {
        "POST" => "create",
        "GET" => "get",
        "PUT" => "update",
        "PATCH" => "patch",
        "DELETE" => "delete",
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn maps_paths_to_node_subresources() {
        let cases: &[(&str, &[&str])] = &[
            ("/pods", &["pods", "proxy"]),
            ("/runningpods/", &["pods", "proxy"]),
            ("/healthz/ping", &["healthz", "proxy"]),
            ("/configz", &["configz", "proxy"]),
            ("/stats/summary", &["stats"]),
            ("/metrics", &["metrics"]),
            ("/metrics/cadvisor", &["metrics"]),
            ("/metricsx", &["proxy"]),
            ("/logs/", &["log"]),
            ("/checkpoint/a/b/c", &["checkpoint"]),
            ("/exec/a/b/c", &["proxy"]),
            ("/", &["proxy"]),
        ];
        for (path, want) in cases {
            assert_eq!(subresources(path), *want, "{path}");
        }
    }
}

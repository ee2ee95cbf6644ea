//! The resource and verb of a request, read from its method and path once, for every later stage.

use std::borrow::Cow;

pub use api::query::Query;

pub(crate) use api::query::percent_decode;
use http::Method;

/// The prefix of the past of objects; their path in the API follows.
pub(crate) const HISTORY: &str = "/tiphys/v1/history/";

/// The parts of a path: `/apis/apps/v1/namespaces/prod/deployments/web/scale`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RequestInfo {
    /// Whether the path is below /api/V or /apis/G/V; otherwise all fields except `path` are empty.
    pub is_resource: bool,
    pub path: String,
    pub verb: &'static str,
    pub group: String,
    pub version: String,
    pub namespace: String,
    pub resource: String,
    pub name: String,
    pub subresource: String,
    /// The path after the subresource, for proxies.
    pub rest: String,
}

impl RequestInfo {
    /// Parses the path of a request.
    pub fn parse(method: &Method, path: &str, query: &Query) -> RequestInfo {
        // The past of an object is authorized as a read of the object.
        // Only a path of the API has a past: a prefix that is repeated must not recurse.
        if let Some(of) = path.strip_prefix(HISTORY).filter(|of| of.starts_with("api")) {
            let info = RequestInfo::parse(method, &format!("/{of}"), &Query::default());
            return RequestInfo { path: path.to_string(), ..info };
        }
        let mut info = RequestInfo { path: path.to_string(), verb: plain_verb(method), ..RequestInfo::default() };
        let parts = segments(path.trim_matches('/'));
        let mut parts: &[Cow<'_, str>] = &parts;
        match parts {
            [api, version, rest @ ..] if api == "api" && !rest.is_empty() => {
                info.version = version.to_string();
                parts = rest;
            }
            [apis, group, version, rest @ ..] if apis == "apis" && !rest.is_empty() => {
                info.group = group.to_string();
                info.version = version.to_string();
                parts = rest;
            }
            // An explanation of a pod is authorized as a read of the pod.
            [tiphys, version, why, of @ ..] if tiphys == "tiphys" && version == "v1" && why == "why" => {
                let ([namespace] | [namespace, _]) = of else { return info };
                info.version = version.to_string();
                info.namespace = namespace.to_string();
                info.resource = "pods".to_string();
                info.name = of.get(1).map(Cow::to_string).unwrap_or_default();
                info.is_resource = true;
                info.verb = resource_verb(method, &info, &Query::default());
                return info;
            }
            _ => return info,
        }
        info.is_resource = true;
        info.read_resource(parts);
        info.verb = resource_verb(method, &info, query);
        info
    }

    fn read_resource(&mut self, mut parts: &[Cow<'_, str>]) {
        // The deprecated path of a watch: /api/v1/watch/pods.
        if parts.first().is_some_and(|part| part == "watch") && parts.len() > 1 {
            parts = &parts[1..];
            self.verb = "watch";
        }
        if let [namespaces, namespace, rest @ ..] = parts
            && namespaces == "namespaces"
        {
            let of_namespace = rest.first().is_none_or(|part| matches!(&**part, "status" | "finalize"));
            self.namespace = namespace.to_string();
            if !of_namespace {
                parts = rest;
            }
        }
        let part = |at: usize| parts.get(at).map(Cow::to_string).unwrap_or_default();
        self.resource = part(0);
        self.name = part(1);
        self.subresource = part(2);
        self.rest = parts.get(3..).map(|rest| rest.join("/")).unwrap_or_default();
    }
}

/// The decoded segments of a path. Every request calls this: a loop over short segments is faster than a search for
/// each.
fn segments(path: &str) -> Vec<Cow<'_, str>> {
    let mut parts = Vec::with_capacity(12);
    let mut start = 0;
    let encoded = path.contains('%');
    let mut add = |part| parts.push(if encoded { percent_decode(part) } else { Cow::Borrowed(part) });
    for (at, byte) in path.bytes().enumerate() {
        if byte == b'/' {
            add(&path[start..at]);
            start = at + 1;
        }
    }
    add(&path[start..]);
    parts
}

fn plain_verb(method: &Method) -> &'static str {
    match *method {
        Method::GET => "get",
        Method::POST => "post",
        Method::PUT => "put",
        Method::DELETE => "delete",
        Method::PATCH => "patch",
        Method::HEAD => "head",
        Method::OPTIONS => "options",
        _ => "",
    }
}

fn resource_verb(method: &Method, info: &RequestInfo, query: &Query) -> &'static str {
    let collection = info.name.is_empty();
    let watch = info.verb == "watch" || query.flag("watch");
    match *method {
        Method::POST => "create",
        Method::GET | Method::HEAD if collection && watch => "watch",
        Method::GET | Method::HEAD if info.verb == "watch" => "watch",
        Method::GET | Method::HEAD if collection => "list",
        Method::GET | Method::HEAD => "get",
        Method::PUT => "update",
        Method::PATCH => "patch",
        Method::DELETE if collection => "deletecollection",
        Method::DELETE => "delete",
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_read_as_upstream_reads_them() {
        let cases = [
            ("GET", "/api/v1/pods", "list  v1  pods  "),
            ("GET", "/api/v1/namespaces/a/pods/b", "get  v1 a pods b "),
            ("POST", "/apis/apps/v1/namespaces/a/deployments", "create apps v1 a deployments  "),
            ("GET", "/api/v1/namespaces/a", "get  v1 a namespaces a "),
            ("PUT", "/api/v1/namespaces/a/finalize", "update  v1 a namespaces a finalize"),
            ("PATCH", "/apis/apps/v1/namespaces/a/deployments/b/scale", "patch apps v1 a deployments b scale"),
            ("DELETE", "/api/v1/namespaces/a/pods", "deletecollection  v1 a pods  "),
            ("GET", "/api/v1/watch/namespaces/a/pods", "watch  v1 a pods  "),
            ("GET", "/healthz", "get      "),
            ("GET", "/tiphys/v1/why/a/b", "get  v1 a pods b "),
            ("POST", "/tiphys/v1/why/a", "create  v1 a pods  "),
            ("GET", "/tiphys/v1/why/a/b/c", "get      "),
            ("GET", "/tiphys/v1/history/apis/apps/v1/namespaces/a/deployments/b", "get apps v1 a deployments b "),
            ("GET", "/tiphys/v1/history/api/v1/secrets", "list  v1  secrets  "),
            ("GET", "/tiphys/v1/history/healthz", "get      "),
            ("GET", "/tiphys/v1/history/tiphys/v1/history/api/v1/secrets", "get      "),
        ];
        for (method, path, want) in cases {
            let method: Method = method.parse().expect("a method");
            let info = RequestInfo::parse(&method, path, &Query::default());
            let got = format!(
                "{} {} {} {} {} {} {}",
                info.verb, info.group, info.version, info.namespace, info.resource, info.name, info.subresource
            );
            assert_eq!(got, want, "{path}");
        }
    }
}

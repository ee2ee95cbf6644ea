//! Connections to a running pod: log, exec, attach and port forwarding. The API server makes the checks that need no
//! node; the rest is forwarded to the kubelet.

use std::sync::Arc;

use api::Tree;
use api::field::{Errors, Path};
use api::query::{Query, percent_encode};
use api::status::Status;
use bytes::Bytes;
use http_body_util::BodyExt;
use streaming::relay::StreamRequest;
use streaming::remote_command::{Options, Verb};

use super::node;
use crate::authorization;
use crate::call::{Call, HttpResponse};
use crate::outbound::local_nodes;
use crate::registry::Registry;
use crate::registry::admission::{self, Operation};
use crate::registry::{verbs, websocket};
use crate::request::body::{Body, Source};
use crate::request::head::RequestHead;
use crate::storage::resource::Resource;

pub(super) async fn log(
    registry: &Registry,
    resource: &Arc<Resource>,
    call: &mut Call,
) -> Result<HttpResponse, Status> {
    check_log_options(&call.head)?;
    let pod = pod(registry, resource, call).await?;
    let container = choose_container(&pod, call.head.query.get("container"))?;
    let node = pod.str("spec.nodeName");
    if node.is_empty() {
        // No container has run yet: the log is empty.
        let mut response = HttpResponse::new(Body::empty());
        *response.status_mut() = http::StatusCode::NO_CONTENT;
        return Ok(response);
    }
    let place = format!("{}{}", place("containerLogs", &pod, container), passed(&call.head.query, LOG_OPTIONS));
    let response = match registry
        .local_nodes
        .get()
        .and_then(|nodes| local_nodes::log(&**nodes, &pod, container, &call.head.query))
    {
        Some(response) => response?,
        None => node::log(registry, node, &call.head, &place).await?,
    };
    if websocket::is_upgrade(&call.head, &call.content) {
        websocket::stream(&call.head, &mut call.content, BodySource(response.into_body()))
    } else {
        Ok(response)
    }
}

/// A body as a stream of bytes.
struct BodySource(Body);

impl Source for BodySource {
    async fn next(&mut self) -> Option<Bytes> {
        loop {
            let frame = self.0.frame().await?.ok()?;
            if let Ok(data) = frame.into_data() {
                return Some(data);
            }
        }
    }
}

/// The query of a log request to the kubelet.
const LOG_OPTIONS: &[&str] =
    &["follow", "previous", "timestamps", "sinceSeconds", "sinceTime", "tailLines", "limitBytes"];

/// The kubelet's path for a container, or for a pod without a container.
fn place(verb: &str, pod: &Tree, container: &str) -> String {
    let (namespace, name) = (pod.str("metadata.namespace"), pod.str("metadata.name"));
    let container = if container.is_empty() { String::new() } else { format!("/{container}") };
    format!("/{verb}/{namespace}/{name}{container}")
}

fn passed(query: &Query, keys: &[&str]) -> String {
    let flags = ["follow", "previous", "timestamps"];
    let value = |key: &str| match flags.contains(&key) {
        true => query.flag(key).then(|| "true".to_string()),
        false => Some(query.get(key).to_string()).filter(|value| !value.is_empty()),
    };
    let pairs = keys.iter().filter_map(|key| Some((*key, value(key)?)));
    encoded(pairs)
}

fn encoded<'a>(pairs: impl Iterator<Item = (&'a str, String)>) -> String {
    let pairs: Vec<String> = pairs.map(|(key, value)| format!("{key}={}", percent_encode(&value))).collect();
    if pairs.is_empty() { String::new() } else { format!("?{}", pairs.join("&")) }
}

/// Admission checks the options of a connection; plugins may not change them.
pub(super) async fn admit(registry: &Registry, resource: &Arc<Resource>, call: &mut Call) -> Result<(), Status> {
    let Some(mut options) = options(resource, &call.head) else { return Ok(()) };
    let before = options.clone();
    let mut warnings = Vec::new();
    let scope = verbs::scope(registry, resource, call, false)?;
    let attributes = scope.attributes(Operation::Connect, &call.head.info.name);
    let admitted = admission::admit(&attributes, &mut options, &mut warnings).await;
    call.warnings.append(&mut warnings);
    admitted?;
    if options != before {
        return Err(Status::internal(
            "an admission plugin changed the options of a connection, which is not supported",
        ));
    }
    Ok(())
}

/// The options of a connection as an object: the query, in the kind of the subresource.
fn options(resource: &Resource, head: &RequestHead) -> Option<Tree> {
    let (_, version, kind) = resource.kind.subresource(&head.info.subresource)?.gvk?;
    let mut options = api::tree! { "kind" => kind, "apiVersion" => version };
    let query = &head.query;
    for key in ["stdin", "stdout", "stderr", "tty"] {
        if query.flag(key) && matches!(kind, "PodExecOptions" | "PodAttachOptions") {
            options.set(key, true);
        }
    }
    if query.has("container") {
        options.set("container", query.get("container"));
    }
    let commands: Vec<Tree> = query.all("command").map(Tree::from).collect();
    if kind == "PodExecOptions" && !commands.is_empty() {
        options.set("command", commands);
    }
    let ports: Vec<Tree> = query.all("ports").filter_map(|port| port.parse::<i64>().ok()).map(Tree::from).collect();
    if kind == "PodPortForwardOptions" && !ports.is_empty() {
        options.set("ports", ports);
    }
    if head.info.subresource == "proxy" {
        options.set("path", format!("/{}", head.info.rest));
    }
    Some(options)
}

/// exec and attach.
pub(super) async fn run(
    registry: &Registry,
    resource: &Arc<Resource>,
    call: &mut Call,
) -> Result<HttpResponse, Status> {
    let pod = pod(registry, resource, call).await?;
    let container = choose_container(&pod, call.head.query.get("container"))?.to_string();
    let kubelet = node::kubelet(registry, node_name(&pod)?, "pods").await?;
    may_create(registry, call).await?;
    let verb = if call.head.info.subresource == "exec" { Verb::Exec } else { Verb::Attach };
    let query = &call.head.query;
    let tty = query.flag("tty");
    let options =
        Options { stdin: query.flag("stdin"), stdout: query.flag("stdout"), stderr: query.flag("stderr") && !tty, tty };
    let streams = [("input", options.stdin), ("output", options.stdout), ("error", query.flag("stderr")), ("tty", tty)];
    let streams = streams.into_iter().filter(|(_, on)| *on).map(|(key, _)| (key, "1".to_string()));
    let command = query.all("command").filter(|_| verb == Verb::Exec).map(|word| ("command", word.to_string()));
    let place = format!("{}{}", place(&call.head.info.subresource, &pod, &container), encoded(streams.chain(command)));
    node::stream(call, kubelet, StreamRequest::Command(verb, options), &place).await
}

pub(super) async fn port_forward(
    registry: &Registry,
    resource: &Arc<Resource>,
    call: &mut Call,
) -> Result<HttpResponse, Status> {
    let pod = pod(registry, resource, call).await?;
    let kubelet = node::kubelet(registry, node_name(&pod)?, "pods").await?;
    may_create(registry, call).await?;
    let ports = call.head.query.all("ports").flat_map(|ports| ports.split(','));
    let ports = encoded(ports.map(|port| ("port", port.to_string())));
    let place = format!("{}{ports}", place("portForward", &pod, ""));
    node::stream(call, kubelet, StreamRequest::Forward, &place).await
}

/// A WebSocket begins with a GET, but needs the permission of a POST.
async fn may_create(registry: &Registry, call: &Call) -> Result<(), Status> {
    let Some(user) = call.caller.user.as_deref().filter(|_| call.head.info.verb == "get") else { return Ok(()) };
    let attributes = authorization::Attributes {
        verb: "create",
        ..authorization::Attributes::of(user, &call.head.info, &call.head.query)
    };
    let verdict = registry.authorizer.wait(&attributes).await;
    if verdict.is_allowed() { Ok(()) } else { Err(authorization::refuse(&call.head.path, &attributes, &verdict)) }
}

fn node_name(pod: &Tree) -> Result<&str, Status> {
    match pod.str("spec.nodeName") {
        "" => Err(Status::bad_request(format!("pod {} does not have a host assigned", pod.str("metadata.name")))),
        node => Ok(node),
    }
}

async fn pod(registry: &Registry, resource: &Arc<Resource>, call: &Call) -> Result<Tree, Status> {
    verbs::scope(registry, resource, call, false)?.current_object(&call.head.info.name).await
}

/// The requested container; a pod with one container needs no name.
fn choose_container<'a>(pod: &'a Tree, wanted: &'a str) -> Result<&'a str, Status> {
    let name = pod.str("metadata.name");
    let of = |list: &str| pod.at("spec").list(list).iter().map(|container| container.str("name"));
    let all: Vec<&str> = of("initContainers").chain(of("containers")).chain(of("ephemeralContainers")).collect();
    if !wanted.is_empty() {
        let there = all.contains(&wanted).then_some(wanted);
        return there.ok_or_else(|| Status::bad_request(format!("container {wanted} is not valid for pod {name}")));
    }
    match pod.list("spec.containers") {
        [only] => Ok(only.str("name")),
        [] => Err(Status::bad_request(format!("a container name must be specified for pod {name}"))),
        _ => Err(Status::bad_request(format!(
            "a container name must be specified for pod {name}, choose one of: [{}]",
            all.join(" ")
        ))),
    }
}

fn check_log_options(head: &RequestHead) -> Result<(), Status> {
    let query = &head.query;
    let mut errors = Errors::new();
    for (key, least, text) in [
        ("tailLines", 0, "must be greater than or equal to 0"),
        ("limitBytes", 1, "must be greater than 0"),
        ("sinceSeconds", 1, "must be greater than 0"),
    ] {
        if let Some(number) = number(query.get(key))?.filter(|number| *number < least) {
            errors.invalid(&Path::root(key), number, text);
        }
    }
    if query.has("sinceSeconds") && query.has("sinceTime") {
        errors.forbidden(&Path::root("[]"), "at most one of `sinceTime` or `sinceSeconds` may be specified");
    }
    if query.has("stream") {
        errors.forbidden(&Path::root("stream"), "may not be specified");
    }
    if errors.is_empty() {
        return Ok(());
    }
    Err(Status::invalid("", "PodLogOptions", &head.info.name, &errors))
}

fn number(text: &str) -> Result<Option<i64>, Status> {
    if text.is_empty() {
        return Ok(None);
    }
    let bad = |_| Status::bad_request(format!("strconv.ParseInt: parsing {text:?}: invalid syntax"));
    text.parse().map(Some).map_err(bad)
}

#[cfg(test)]
mod tests {
    use api::{list, tree};

    use super::*;

    #[test]
    fn one_container_needs_no_name() {
        let containers = |names: &[&str]| {
            let list = names.iter().map(|name| tree! { "name" => *name }).collect();
            tree! { "metadata" => tree! { "name" => "p" }, "spec" => tree! {
                "initContainers" => list![tree! { "name" => "i" }], "containers" => Tree::List(list),
            } }
        };
        let cases = [
            (&["c"][..], "", Ok("c")),
            (&["c"], "i", Ok("i")),
            (&["c"], "z", Err("container z is not valid for pod p")),
            (&["c", "d"], "d", Ok("d")),
            (&["c", "d"], "", Err("a container name must be specified for pod p, choose one of: [i c d]")),
        ];
        for (names, wanted, want) in cases {
            let pod = containers(names);
            let got = choose_container(&pod, wanted).map_err(|status| status.message);
            assert_eq!(got, want.map_err(str::to_string), "{names:?} {wanted}");
        }
    }
}

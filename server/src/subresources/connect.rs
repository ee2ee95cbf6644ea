//! Ways into a running pod: log, exec, attach and port forwarding. What can be judged from the API alone
//! is judged here; the streams themselves are the node agent's.

use std::sync::Arc;

use api::Tree;
use api::field::{Errors, Path};
use api::status::Status;

use crate::Server;
use crate::admission::{self, Operation};
use crate::call::{Answer, Call};
use crate::http::body::Body;
use crate::resource::Resource;
use crate::verbs;

pub async fn log(server: &Server, resource: &Arc<Resource>, call: &mut Call) -> Result<Answer, Status> {
    check_log_options(call)?;
    let pod = pod(server, resource, call).await?;
    choose_container(&pod, call.query.get("container"))?;
    let node = pod.str("spec.nodeName");
    if node.is_empty() {
        // Nothing has run yet: an empty log.
        let mut answer = Answer::new(Body::empty());
        *answer.status_mut() = http::StatusCode::NO_CONTENT;
        return Ok(answer);
    }
    Err(node_refusal(server, node, "pods"))
}

/// A connection is judged by its options, which plugins may not change.
pub async fn admit(server: &Server, resource: &Arc<Resource>, call: &mut Call) -> Result<(), Status> {
    let Some(mut options) = options(resource, call) else { return Ok(()) };
    let before = options.clone();
    let mut warnings = Vec::new();
    let scope = verbs::scope(server, resource, call, false)?;
    let attributes = scope.attributes(Operation::Connect, &call.info.name);
    admission::admit(&attributes, &mut options, &mut warnings).await?;
    call.warnings.append(&mut warnings);
    if options != before {
        return Err(Status::internal(
            "an admission plugin changed the options of a connection, which is not supported",
        ));
    }
    Ok(())
}

/// The options of a connection as an object: what the query says, in the kind of the subresource.
fn options(resource: &Resource, call: &Call) -> Option<Tree> {
    let (_, version, kind) = resource.kind.subresource(&call.info.subresource)?.gvk?;
    let mut options = api::tree! { "kind" => kind, "apiVersion" => version };
    let query = &call.query;
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
    if call.info.subresource == "proxy" {
        options.set("path", format!("/{}", call.info.rest));
    }
    Some(options)
}

/// exec and attach.
pub async fn run(server: &Server, resource: &Arc<Resource>, call: &mut Call) -> Result<Answer, Status> {
    let pod = pod(server, resource, call).await?;
    choose_container(&pod, call.query.get("container"))?;
    Err(pod_refusal(server, &pod))
}

pub async fn port_forward(server: &Server, resource: &Arc<Resource>, call: &mut Call) -> Result<Answer, Status> {
    let pod = pod(server, resource, call).await?;
    Err(pod_refusal(server, &pod))
}

async fn pod(server: &Server, resource: &Arc<Resource>, call: &Call) -> Result<Tree, Status> {
    verbs::scope(server, resource, call, false)?.current_object(&call.info.name).await
}

fn pod_refusal(server: &Server, pod: &Tree) -> Status {
    match pod.str("spec.nodeName") {
        "" => Status::bad_request(format!("pod {} does not have a host assigned", pod.str("metadata.name"))),
        node => node_refusal(server, node, "pods"),
    }
}

/// Why a node cannot be reached. `resource` is what upstream says is missing when the node is.
pub fn node_refusal(server: &Server, node: &str, resource: &str) -> Status {
    let Some(object) = server.object("minions", node) else { return Status::not_found("", resource, node) };
    if object.list("status.addresses").is_empty() {
        return Status::new(500, "", "no preferred addresses found; known addresses: []");
    }
    Status::service_unavailable(format!("node {node} has no agent that this server can reach yet"))
}

/// The container that is meant; a pod with one container needs no name.
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

fn check_log_options(call: &Call) -> Result<(), Status> {
    let query = &call.query;
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
    Err(Status::invalid("", "PodLogOptions", &call.info.name, &errors))
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

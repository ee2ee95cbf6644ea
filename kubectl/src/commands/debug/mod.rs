//! `debug`: a container for finding out what is wrong with a pod or a node. It is an ephemeral container of the pod,
//! part of a changed copy of the pod, or a pod with the namespaces and files of the node.

mod pods;
mod profiles;

use api::{Tree, json, tree, yaml};
use http::Method;

use self::pods::{Debug, root_warning};
use self::profiles::{Keep, Profile, container_mut};
use super::common::{DryRun, STRATEGIC, create};
use super::exec::attach_to;
use super::run::is_image;
use super::watching::follow;
use crate::command::Command;
use crate::context::Context;
use crate::error::{Error, Result, io_text, message};
use crate::flags::{Flag, Kind, switch, switch_on, text, typed};
use crate::objects::{Info, Select, guess};
use crate::transport::Request;

const FLAGS: &[Flag] = &[
    switch("arguments-only", '\0', "What follows -- is the arguments of the new container, not its command."),
    switch("attach", '\0', "Wait until the container runs, and attach to it. On by default with --stdin."),
    text("container", 'c', "", "The name of the debug container."),
    text("copy-to", '\0', "", "Debug a copy of the pod, which gets this name."),
    text(
        "custom",
        '\0',
        "",
        "File with a partial container, in JSON or YAML, that is merged into the result of the profile.",
    ),
    typed("env", '\0', Kind::Pairs, "", "Environment variables of the container, as NAME=VALUE."),
    typed("filename", 'f', Kind::Slice, "", "File, directory, or URL with what is to be debugged."),
    text("image", '\0', "", "The image of the debug container."),
    text("image-pull-policy", '\0', "", "The policy for pulling the image."),
    switch("keep-annotations", '\0', "The copy keeps the annotations of the pod."),
    switch_on("keep-init-containers", '\0', "The copy keeps the init containers of the pod."),
    switch("keep-labels", '\0', "The copy keeps the labels of the pod."),
    switch("keep-liveness", '\0', "The copy keeps the liveness probes of the pod."),
    switch("keep-readiness", '\0', "The copy keeps the readiness probes of the pod."),
    switch("keep-startup", '\0', "The copy keeps the startup probes of the pod."),
    text(
        "profile",
        '\0',
        "general",
        "Must be \"general\", \"baseline\", \"restricted\", \"netadmin\", or \"sysadmin\".",
    ),
    switch("quiet", 'q', "Do not print messages."),
    switch("replace", '\0', "Delete the original pod. Needs --copy-to."),
    switch("same-node", '\0', "Run the copy on the node of the pod. Needs --copy-to."),
    typed("set-image", '\0', Kind::Pairs, "", "Images of the copy, as CONTAINER=IMAGE; * is all containers."),
    switch_on("share-processes", '\0', "The containers of the copy share a process namespace."),
    switch("stdin", 'i', "Keep the standard input of the container open."),
    text("target", '\0', "", "The container whose processes an ephemeral container sees."),
    switch("tty", 't', "Give the container a terminal."),
];

pub(crate) static DEBUG: Command = Command {
    name: "debug",
    usage: "(POD | TYPE[[.VERSION].GROUP]/NAME) [ -- COMMAND [args...] ]",
    short: "Create debugging sessions for troubleshooting workloads and nodes",
    long: "Run a container that has the tools that an image lacks: inside of a running pod, in a copy of a pod, or on a node.",
    examples: "# A shell in a running pod\nkubectl debug web -it --image=busybox\n# A copy of a pod with another command\nkubectl debug web -it --copy-to=web-debug --container=app -- sh\n# The node's files are at /host\nkubectl debug node/worker -it --image=busybox",
    flags: &[FLAGS],
    run: Some(|context| Box::pin(run(context))),
    group: "Troubleshooting and Debugging Commands",
    ..Command::EMPTY
};

async fn run(context: &Context) -> Result<()> {
    let flags = &context.flags;
    let (targets, debug) = options(context)?;
    check(context, &targets, &debug)?;
    let named = |target: &String| if target.contains('/') { target.clone() } else { format!("pods/{target}") };
    let args = targets.iter().map(named).collect();
    let select = Select { args, selector: None, is_latest: false, ..Select::of(context) };
    let attaches = if flags.changed("attach") { flags.bool("attach") } else { flags.bool("stdin") };
    for info in select.find(context).await?.infos()? {
        let (pod, container) = match (info.resource.group.as_str(), info.resource.kind.as_str()) {
            ("", "Node") => debug_node(context, &debug, &info).await?,
            ("", "Pod") if debug.copy_to.is_empty() => add_ephemeral_container(context, &debug, &info).await?,
            ("", "Pod") => copy_pod(context, &debug, &info).await?,
            (_, kind) => {
                let (group, version) = (&info.resource.group, &info.resource.version);
                return message(format!("\"{group}/{version}, Kind={kind}\" not supported by debug"));
            }
        };
        if attaches && !container.is_empty() {
            attach(context, &pod, &container).await?;
        }
    }
    Ok(())
}

/// What is debugged, and how.
fn options(context: &Context) -> Result<(Vec<String>, Debug)> {
    let flags = &context.flags;
    let (targets, command) = match context.dash.filter(|dash| context.args.len() > *dash) {
        Some(dash) => (context.args[..dash].to_vec(), context.args[dash..].to_vec()),
        None => (context.args.clone(), Vec::new()),
    };
    let Some(profile) = Profile::parse(flags.str("profile")) else {
        return message(format!("unknown profile: {}", flags.str("profile")));
    };
    let text = |name: &str| flags.str(name).to_string();
    let keep = Keep {
        labels: flags.bool("keep-labels"),
        annotations: flags.bool("keep-annotations"),
        liveness: flags.bool("keep-liveness"),
        readiness: flags.bool("keep-readiness"),
        startup: flags.bool("keep-startup"),
        init_containers: flags.bool("keep-init-containers"),
    };
    let debug = Debug {
        profile: Some(profile),
        keep,
        container: text("container"),
        image: text("image"),
        pull_policy: text("image-pull-policy"),
        env: flags.pairs("env"),
        command,
        is_arguments: flags.bool("arguments-only"),
        stdin: flags.bool("stdin"),
        tty: flags.bool("tty"),
        target: text("target"),
        copy_to: text("copy-to"),
        set_images: flags.pairs("set-image"),
        shares_processes: flags.changed("share-processes").then(|| flags.bool("share-processes")),
        is_same_node: flags.bool("same-node"),
        custom: custom_profile(flags.str("custom"))?,
    };
    Ok((targets, debug))
}

/// The largest file with a partial container.
const MAX_CUSTOM: u64 = 1024 * 1024;

fn custom_profile(path: &str) -> Result<Option<Tree>> {
    if path.is_empty() {
        return Ok(None);
    }
    let failed = |error: std::io::Error| {
        Error::new(format!("must pass a container spec json file for custom profile: open {path}: {}", io_text(&error)))
    };
    if std::fs::metadata(path).map_err(failed)?.len() > MAX_CUSTOM {
        return message(format!("{path} is larger than {MAX_CUSTOM} bytes"));
    }
    let bytes = std::fs::read(path).map_err(failed)?;
    let invalid = |why: &str| Error::new(format!("{path} does not contain a valid container spec: {why}"));
    // JSON is YAML.
    let custom = yaml::decode(&bytes).map_err(|error| invalid(&error.to_string()))?;
    if custom.as_map().is_none() {
        return Err(invalid("it is not a map"));
    }
    Ok(Some(custom))
}

fn check(context: &Context, targets: &[String], debug: &Debug) -> Result<()> {
    let flags = &context.flags;
    if flags.bool("attach") && debug.image.is_empty() && debug.container.is_empty() {
        return message("you must specify --container or create a new container using --image in order to attach.");
    }
    check_copy(context, debug)?;
    let format = "invalid reference format";
    if !debug.image.is_empty() && !is_image(&debug.image) {
        return message(format!("invalid image name {}: {format}", api::field::go_quote(&debug.image)));
    }
    if targets.is_empty() && flags.list("filename").is_empty() {
        return message("NAME or filename is required for debug");
    }
    if !matches!(debug.pull_policy.as_str(), "" | "Always" | "IfNotPresent" | "Never") {
        return message(format!("invalid image pull policy: {}", debug.pull_policy));
    }
    if let Some((name, image)) = debug.set_images.iter().find(|(_, image)| !is_image(image)) {
        let quote = api::field::go_quote;
        return message(format!("invalid image name {} for container {}: {format}", quote(image), quote(name)));
    }
    if !debug.target.is_empty() {
        if !debug.copy_to.is_empty() {
            return message("--target is incompatible with --copy-to. Use --share-processes instead.");
        }
        if !flags.bool("quiet") {
            context.print(&format!(
                "Targeting container {}. If you don't see processes from this container it may be because the container \
                 runtime doesn't support this feature.\n",
                api::field::go_quote(&debug.target)
            ))?;
        }
    }
    if debug.tty && !debug.stdin {
        return message("-i/--stdin is required for containers with -t/--tty=true");
    }
    let is_fixed = |custom: &Tree| {
        ["name", "command", "image", "lifecycle", "volumeDevices"].iter().any(|field| custom.has(field))
    };
    if debug.custom.as_ref().is_some_and(is_fixed) {
        return message("name, command, image, lifecycle and volume devices are not modifiable via custom profile");
    }
    if debug.profile == Some(Profile::Legacy) {
        context.note(
            "--profile=legacy is deprecated and planned to be removed in v1.39. It is recommended to specify other \
             profile, for example \"--profile=general\".",
        );
    }
    Ok(())
}

fn check_copy(context: &Context, debug: &Debug) -> Result<()> {
    let flags = &context.flags;
    if !debug.copy_to.is_empty() {
        if debug.image.is_empty() && debug.set_images.is_empty() && debug.command.is_empty() {
            return message("you must specify --image, --set-image or command arguments.");
        }
        if !debug.command.is_empty() && debug.container.is_empty() && debug.image.is_empty() {
            return message("you must specify an existing container or a new image when specifying args.");
        }
        return Ok(());
    }
    if flags.bool("replace") {
        return message("--replace may only be used with --copy-to.");
    }
    if debug.is_same_node {
        return message("--same-node may only be used with --copy-to.");
    }
    if !debug.set_images.is_empty() {
        return message("--set-image may only be used with --copy-to.");
    }
    if debug.image.is_empty() {
        return message("you must specify --image when not using --copy-to.");
    }
    Ok(())
}

/// Five letters and digits, as the server generates names.
fn suffix() -> String {
    client::Random::seeded(client::Random::fresh_seed()).suffix(5)
}

/// The name of a new container: that of the flag, or one that no container of the pod has.
fn container_name(context: &Context, debug: &Debug, pod: &Tree) -> Result<String> {
    if !debug.container.is_empty() {
        return Ok(debug.container.clone());
    }
    let names = super::pods::container_names(pod);
    let mut name = format!("debugger-{}", suffix());
    while names.contains(&name) {
        name = format!("debugger-{}", suffix());
    }
    if !context.flags.bool("quiet") {
        context.print(&format!("Defaulting debug container name to {name}.\n"))?;
    }
    Ok(name)
}

fn warn_about_root(context: &Context, pod: &Tree, container: &Tree) {
    if let Some(warning) = root_warning(pod, container) {
        context.note(&format!("Warning: {warning}"));
    }
}

fn pod_info(object: Tree) -> Info {
    let text = |path: &str| object.str(path).to_string();
    let (namespace, name) = (text("metadata.namespace"), text("metadata.name"));
    Info { resource: guess("v1", "Pod"), namespace, name, object, source: String::new() }
}

async fn add_ephemeral_container(context: &Context, debug: &Debug, info: &Info) -> Result<(Info, String)> {
    let name = container_name(context, debug, &info.object)?;
    let pod = debug.with_ephemeral_container(&info.object, &name)?;
    let containers = pod.list("spec.ephemeralContainers");
    // A name that the pod has already is refused by the server: its container may not change.
    let named: Vec<Tree> = containers.iter().filter(|container| container.str("name") == name).cloned().collect();
    named.last().iter().for_each(|container| warn_about_root(context, &info.object, container));
    let order: Vec<Tree> = containers.iter().map(|one| tree! { "name" => one.str("name") }).collect();
    let spec = tree! { "ephemeralContainers" => named, "$setElementOrder/ephemeralContainers" => order };
    let patch = tree! { "spec" => spec };
    let path = format!("{}/ephemeralcontainers", info.path());
    let request = Request::new(Method::PATCH, path).body(STRATEGIC, json::encode(&patch, None));
    match context.client().await?.tree(&request).await {
        Ok(pod) => Ok((pod_info(pod), name)),
        Err(Error::Server { status, .. }) if status.code == 404 && has_no_details(&status) => message(format!(
            "ephemeral containers are disabled for this cluster (error from server: {})",
            api::field::go_quote(&status.message)
        )),
        Err(error) => Err(error),
    }
}

/// A missing subresource, unlike a missing pod, has no name.
fn has_no_details(status: &api::status::Status) -> bool {
    status.details.as_ref().is_none_or(|details| details.name.is_empty())
}

async fn copy_pod(context: &Context, debug: &Debug, info: &Info) -> Result<(Info, String)> {
    // A name that is generated is printed, so it is generated only if it is needed.
    let mut printed = Ok(());
    let generated = || {
        let name = container_name(context, debug, &info.object);
        name.unwrap_or_else(|error| {
            printed = Err(error);
            String::new()
        })
    };
    let (mut copy, name) = debug.copied_pod(&info.object, generated)?;
    printed?;
    if let Some(container) = container_mut(&mut copy, &name).map(|container| container.clone()) {
        warn_about_root(context, &copy, &container);
    }
    let created = create(context, &guess("v1", "Pod"), &info.namespace, &copy, DryRun::None).await?;
    if context.flags.bool("replace") {
        let request = Request::new(Method::DELETE, info.path()).json(&tree! { "gracePeriodSeconds" => 0 });
        context.client().await?.bytes(&request).await?;
    }
    Ok((pod_info(created), name))
}

async fn debug_node(context: &Context, debug: &Debug, info: &Info) -> Result<(Info, String)> {
    let name = if debug.container.is_empty() { "debugger" } else { &debug.container };
    let pod_name = format!("node-debugger-{}-{}", info.name, suffix());
    if !context.flags.bool("quiet") {
        context.print(&format!("Creating debugging pod {pod_name} with container {name} on node {}.\n", info.name))?;
    }
    let pod = debug.node_pod(&pod_name, &info.name, name)?;
    let (namespace, _) = context.namespace()?;
    let created = create(context, &guess("v1", "Pod"), &namespace, &pod, DryRun::None).await?;
    Ok((pod_info(created), name.to_string()))
}

/// Waits until the container runs, and attaches to it. One that has ended only has a log.
async fn attach(context: &Context, pod: &Info, container: &str) -> Result<()> {
    context.flush()?;
    let started = |object: &Tree| {
        let lists = ["status.initContainerStatuses", "status.containerStatuses", "status.ephemeralContainerStatuses"];
        let status = lists.iter().flat_map(|path| object.list(path)).find(|status| status.str("name") == container);
        let Some(status) = status else { return Ok(None) };
        if status.at("state").has("running") || status.at("state").has("terminated") {
            return Ok(Some((object.clone(), status.at("state").has("terminated"))));
        }
        let reason = status.str("state.waiting.message");
        if !context.flags.bool("quiet") && !reason.is_empty() {
            context.warn(&format!("container {container}: {reason}"));
        }
        Ok(None)
    };
    let (object, has_ended) = follow(context, pod, started).await?;
    let pod = Info { object, ..pod.clone() };
    if has_ended {
        return print_log(context, &pod, container).await;
    }
    if let Err(error) = attach_to(context, &pod, Some(container)).await {
        context.note(&format!("warning: couldn't attach to pod/{}, falling back to streaming logs: {error}", pod.name));
        return print_log(context, &pod, container).await;
    }
    Ok(())
}

async fn print_log(context: &Context, pod: &Info, container: &str) -> Result<()> {
    let request =
        Request::get(format!("{}/log", pod.path())).query("container", container).accept("application/json, */*");
    let mut response = context.client().await?.send(&Request { is_long: true, ..request }).await?;
    while let Some(part) = response.next().await {
        context.write(&part?)?;
    }
    Ok(())
}

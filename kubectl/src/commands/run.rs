//! `run`: a pod, or with the flags of older versions a deployment, job, cron job or replication controller, and a
//! service for it.

use api::{Tree, list, tree};

use super::common::{DRY_RUN, DryRun, create, with_last_applied};
use super::create::quantities;
use super::detach::DETACH_KEYS;
use super::expose::{labels, merge_overrides};
use super::record::{RECORD, record};
use crate::command::Command;
use crate::context::Context;
use crate::error::{Error, Result, message};
use crate::flags::{Flag, Kind, switch, text, typed};
use crate::objects::{FILES, Info, guess};
use crate::print::{PRINT, Printer};

const FLAGS: &[Flag] = &[
    typed("annotations", '\0', Kind::Array, "", "An annotation of the pod; can be repeated."),
    switch("attach", '\0', "Wait until the pod runs, and attach to it."),
    switch("command", '\0', "The arguments are the command of the container, not its arguments."),
    text("cascade", '\0', "background", "Must be \"background\", \"orphan\", or \"foreground\", with --rm.")
        .bare("background"),
    text("detach-keys", '\0', DETACH_KEYS, "Keys that detach from the container."),
    typed("env", '\0', Kind::Array, "", "An environment variable of the container; can be repeated."),
    switch("expose", '\0', "Create a service for the pod. Needs --port."),
    text("field-manager", '\0', "kubectl-run", "The name of the manager of the fields that are set."),
    text(
        "generator",
        '\0',
        "",
        "What to create, by the names of older versions: run-pod/v1, deployment/apps.v1, job/v1, cronjob/v1beta1, run/v1.",
    ),
    switch("force", '\0', "With --rm, delete the pod without waiting for its node."),
    typed("grace-period", '\0', Kind::Int, "-1", "Seconds for a graceful end, with --rm."),
    text("image", '\0', "", "The image of the container. Required."),
    text("image-pull-policy", '\0', "", "The policy for pulling the image."),
    text("labels", 'l', "", "Labels of the pod, as key=value pairs separated by commas."),
    switch("leave-stdin-open", '\0', "Keep the standard input open after the first attach."),
    text("limits", '\0', "", "Resource limits of the container, such as cpu=200m,memory=512Mi."),
    text("override-type", '\0', "merge", "How --overrides are merged: json, merge, or strategic."),
    text("overrides", '\0', "", "JSON that is merged into the object."),
    typed("pod-running-timeout", '\0', Kind::Duration, "1m0s", "How long to wait until the pod runs."),
    text("port", '\0', "", "The port of the container."),
    switch("privileged", '\0', "Run the container privileged."),
    switch("quiet", 'q', "Do not print messages."),
    typed("replicas", 'r', Kind::Int, "1", "How many pods to run, as a deployment."),
    text("requests", '\0', "", "Resource requests of the container, such as cpu=100m,memory=256Mi."),
    text(
        "restart",
        '\0',
        "Always",
        "The restart policy of the pod: Always, OnFailure or Never. With --generator or --schedule it chooses the kind.",
    ),
    switch("rm", '\0', "Delete the pod after the command. Needs to be attached."),
    switch("save-config", '\0', "Keep the configuration in an annotation, for kubectl apply."),
    text("schedule", '\0', "", "When to run, in the format of cron, as a cron job."),
    text("serviceaccount", '\0', "", "The service account of the pod.").hidden(),
    switch("stdin", 'i', "Keep the standard input of the container open."),
    typed("timeout", '\0', Kind::Duration, "0s", "How long to wait for the deletion, with --rm."),
    switch("tty", 't', "Give the container a terminal."),
    switch("wait", '\0', "Wait until the pod is gone, with --rm."),
];

pub(crate) static RUN: Command = Command {
    name: "run",
    usage: "NAME --image=image [--env=\"key=value\"] [--port=port] [--dry-run=server|client] [--overrides=inline-json] [--command] -- [COMMAND] [args...]",
    short: "Run a particular image on the cluster",
    long: "Create a pod that runs an image. With --replicas above one, or a --generator, it creates what kubectl did before 1.18.",
    examples: "# A pod\nkubectl run web --image=nginx\n# A deployment of three pods and a service\nkubectl run web --image=nginx --replicas=3 --port=80 --expose\n# A shell that is removed at its end\nkubectl run shell --image=busybox -it --rm -- sh",
    flags: &[FLAGS, DRY_RUN, PRINT, RECORD, FILES],
    run: Some(|context| Box::pin(run(context))),
    group: "Basic Commands (Beginner)",
    ..Command::EMPTY
};

/// What is created.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Workload {
    Pod,
    Deployment,
    Job,
    CronJob,
    ReplicationController,
}

/// The kind by generator, schedule, number of replicas and restart policy. Without the flags of older versions it is
/// a pod, as today.
fn workload(context: &Context) -> Result<Workload> {
    let flags = &context.flags;
    let by_name = match flags.str("generator") {
        "" => None,
        "run-pod/v1" => Some(Workload::Pod),
        "deployment/v1beta1" | "deployment/apps.v1beta1" | "deployment/apps.v1" => Some(Workload::Deployment),
        "job/v1" => Some(Workload::Job),
        "cronjob/v1beta1" | "cronjob/v2alpha1" | "cronjob/v1" => Some(Workload::CronJob),
        "run/v1" => Some(Workload::ReplicationController),
        other => return message(format!("generator \"{other}\" not found")),
    };
    if let Some(workload) = by_name {
        return Ok(workload);
    }
    if !flags.str("schedule").is_empty() {
        return Ok(Workload::CronJob);
    }
    if !flags.changed("replicas") {
        return Ok(Workload::Pod);
    }
    match flags.str("restart") {
        "Always" | "" => Ok(Workload::Deployment),
        "OnFailure" => Ok(Workload::Job),
        "Never" => Ok(Workload::Pod),
        other => message(format!("invalid restart policy: {other}")),
    }
}

fn check(context: &Context) -> Result<()> {
    let flags = &context.flags;
    if flags.str("image").is_empty() {
        return message("--image is required");
    }
    if !is_image(flags.str("image")) {
        return message(format!("Invalid image name \"{}\": invalid reference format", flags.str("image")));
    }
    let is_attached = flags.bool("attach") || flags.bool("stdin");
    if flags.bool("tty") && !flags.bool("stdin") {
        return context.usage_error("-i/--stdin is required for containers with -t/--tty=true");
    }
    if flags.bool("expose") && flags.str("port").is_empty() {
        return context.usage_error("--port must be set when exposing a service");
    }
    if flags.bool("rm") && !is_attached {
        return context.usage_error("--rm should only be used for attached containers");
    }
    if is_attached && DryRun::of(context)? != DryRun::None {
        return message(
            "--dry-run=client|server can't be used with attached containers options (--attach, --stdin, or --tty)",
        );
    }
    if !matches!(flags.str("restart"), "" | "Always" | "OnFailure" | "Never") {
        return message(format!("invalid restart policy: {}", flags.str("restart")));
    }
    // Upstream accepts and ignores them.
    for name in ["filename", "kustomize", "recursive"] {
        if flags.changed(name) {
            return message(format!("--{name} has no meaning for run: objects of files are created by kubectl create"));
        }
    }
    super::delete::propagation(context)?;
    if flags.int("replicas") < 0 {
        return message("--replicas must not be negative");
    }
    Ok(())
}

/// The grammar of image references: an optional registry, a path in lower case, an optional tag and digest.
pub(super) fn is_image(text: &str) -> bool {
    let (rest, digest) = text.split_once('@').map_or((text, None), |(rest, digest)| (rest, Some(digest)));
    if let Some(digest) = digest {
        let Some((algorithm, hex)) = digest.split_once(':') else { return false };
        let is_hex = hex.len() >= 32 && hex.bytes().all(|byte| byte.is_ascii_hexdigit());
        if algorithm.is_empty()
            || !algorithm.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"+.-_".contains(&byte))
            || !is_hex
        {
            return false;
        }
    }
    let (name, tag) = match rest.rsplit_once(':') {
        Some((name, tag)) if !tag.contains('/') => (name, Some(tag)),
        _ => (rest, None),
    };
    let is_tag = |tag: &str| {
        !tag.is_empty()
            && tag.len() <= 128
            && !tag.starts_with(['.', '-'])
            && tag.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_.-".contains(&byte))
    };
    if tag.is_some_and(|tag| !is_tag(tag)) || name.is_empty() || name.len() > 255 {
        return false;
    }
    let mut parts: Vec<&str> = name.split('/').collect();
    let is_registry =
        |part: &str| part.contains(['.', ':']) || part == "localhost" || part.bytes().any(|b| b.is_ascii_uppercase());
    if parts.len() > 1 && is_registry(parts[0]) {
        let host = parts.remove(0).split(':').next().unwrap_or_default();
        if host.is_empty() || !host.bytes().all(|byte| byte.is_ascii_alphanumeric() || b".-[]".contains(&byte)) {
            return false;
        }
    }
    parts.iter().all(|part| {
        let is_alnum = |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
        part.bytes().all(|byte| is_alnum(&byte) || b"._-".contains(&byte))
            && part.as_bytes().first().is_some_and(is_alnum)
            && part.as_bytes().last().is_some_and(is_alnum)
    })
}

fn container(context: &Context, name: &str) -> Result<Tree> {
    let flags = &context.flags;
    let mut container = tree! { "name" => name, "image" => flags.str("image") };
    let mut resources = tree! {};
    for (flag, field) in [("limits", "limits"), ("requests", "requests")] {
        if !flags.str(flag).is_empty() {
            resources.set(field, quantities(flags.str(flag))?);
        }
    }
    container.set("resources", resources);
    let rest: Vec<Tree> = context.args.iter().skip(1).map(Tree::from).collect();
    if !rest.is_empty() {
        container.set(if flags.bool("command") { "command" } else { "args" }, rest);
    }
    let mut env = Vec::new();
    for pair in flags.list("env") {
        match pair.split_once('=') {
            Some((name, value)) if api::validation::env_var_name(name).is_empty() => {
                env.push(tree! { "name" => name, "value" => value });
            }
            _ => return message(format!("invalid env: {pair}")),
        }
    }
    if !env.is_empty() {
        container.set("env", env);
    }
    if !flags.str("port").is_empty() {
        let port: i64 = flags.str("port").parse().map_err(|_| {
            Error::new(format!("strconv.Atoi: parsing {}: invalid syntax", api::field::go_quote(flags.str("port"))))
        })?;
        container.set("ports", list![tree! { "containerPort" => port }]);
    }
    if !flags.str("image-pull-policy").is_empty() {
        if !matches!(flags.str("image-pull-policy"), "Always" | "IfNotPresent" | "Never") {
            return context.usage_error(&format!("invalid image pull policy: {}", flags.str("image-pull-policy")));
        }
        container.set("imagePullPolicy", flags.str("image-pull-policy"));
    }
    for (flag, field) in [("stdin", "stdin"), ("tty", "tty")] {
        if flags.bool(flag) {
            container.set(field, true);
        }
    }
    if flags.bool("stdin") && !flags.bool("leave-stdin-open") {
        container.set("stdinOnce", true);
    }
    if flags.bool("privileged") {
        container.set("securityContext", tree! { "privileged" => true });
    }
    Ok(container)
}

fn object(context: &Context, workload: Workload, name: &str) -> Result<Tree> {
    let flags = &context.flags;
    let own = if flags.str("labels").is_empty() {
        tree! { "run" => name }
    } else {
        labels(flags.str("labels"))?
    };
    let mut spec = tree! { "containers" => list![container(context, name)?] };
    if !flags.str("serviceaccount").is_empty() {
        spec.set("serviceAccountName", flags.str("serviceaccount"));
    }
    let restart = flags.str("restart");
    match workload {
        Workload::Pod => {
            spec.set("dnsPolicy", "ClusterFirst");
            spec.set("restartPolicy", if restart.is_empty() { "Always" } else { restart });
        }
        Workload::Job | Workload::CronJob => {
            spec.set(
                "restartPolicy",
                if flags.changed("restart") && restart != "Always" { restart } else { "OnFailure" },
            );
        }
        _ => {}
    }
    let mut metadata = tree! { "name" => name, "labels" => own.clone() };
    let mut annotations = tree! {};
    for pair in flags.list("annotations") {
        let Some((key, value)) = pair.split_once('=') else { return message(format!("invalid annotation: {pair}")) };
        annotations.set(key, value);
    }
    if annotations.as_map().is_some_and(|map| !map.is_empty()) {
        metadata.set("annotations", annotations);
    }
    let template = tree! { "metadata" => tree! { "labels" => own.clone() }, "spec" => spec.clone() };
    let replicas = flags.int("replicas");
    let (version, kind, spec) = match workload {
        Workload::Pod => ("v1", "Pod", spec),
        Workload::Deployment => {
            let selector = tree! { "matchLabels" => own };
            (
                "apps/v1",
                "Deployment",
                tree! { "replicas" => replicas, "selector" => selector, "strategy" => tree! {}, "template" => template },
            )
        }
        Workload::ReplicationController => {
            ("v1", "ReplicationController", tree! { "replicas" => replicas, "selector" => own, "template" => template })
        }
        Workload::Job => ("batch/v1", "Job", tree! { "template" => template }),
        Workload::CronJob => {
            if flags.str("schedule").is_empty() {
                return message("--schedule is required for a cron job");
            }
            let job = tree! { "metadata" => tree! {}, "spec" => tree! { "template" => template } };
            ("batch/v1", "CronJob", tree! { "schedule" => flags.str("schedule"), "jobTemplate" => job })
        }
    };
    Ok(tree! { "apiVersion" => version, "kind" => kind, "metadata" => metadata, "spec" => spec, "status" => tree! {} })
}

async fn run(context: &Context) -> Result<()> {
    let flags = &context.flags;
    if !flags.changed("image") {
        return message("required flag(s) \"image\" not set");
    }
    let Some(name) = context.args.first().filter(|_| context.dash != Some(0)).cloned() else {
        return context.usage_error("NAME is required for run");
    };
    check(context)?;
    let (dry_run, printer, workload) = (DryRun::of(context)?, Printer::new(context, false)?, workload(context)?);
    if workload != Workload::Pod {
        context.warn(&format!(
            "kubectl since 1.18 creates a Pod here and does not know --replicas, --generator and --schedule; this creates a {workload:?}"
        ));
    }
    let object = merge_overrides(context, object(context, workload, &name)?)?;
    let created = send(context, object, dry_run).await?;
    let mut printed = vec![created.clone()];
    if flags.bool("expose") {
        let service = service(&created, workload, flags.str("port"))?;
        printed.insert(0, send(context, service, dry_run).await?);
    }
    let is_attached = flags.bool("attach") || flags.bool("stdin");
    if is_attached {
        return super::exec::attach_to_run(context, &pod_info(context, &created, workload)?).await;
    }
    if flags.bool("quiet") && printer.is_human() {
        return Ok(());
    }
    printed.iter().try_for_each(|object| printer.print_result(context, object, &format!("created{}", dry_run.suffix())))
}

async fn send(context: &Context, mut object: Tree, dry_run: DryRun) -> Result<Tree> {
    let (namespace, is_explicit) = context.namespace()?;
    if is_explicit {
        object.child("metadata").set("namespace", &namespace);
    }
    record(context, &mut object);
    if dry_run == DryRun::Client {
        return Ok(object);
    }
    if context.flags.bool("save-config") {
        object = with_last_applied(&object);
    }
    let resource = guess(object.str("apiVersion"), object.str("kind"));
    create(context, &resource, &namespace, &object, dry_run).await
}

fn service(object: &Tree, workload: Workload, port: &str) -> Result<Tree> {
    let port: i64 = port.parse().map_err(|_| Error::new(format!("invalid port {port}")))?;
    let labels = match workload {
        Workload::Pod | Workload::Deployment | Workload::ReplicationController => object.at("metadata.labels").clone(),
        _ => return message("--expose needs pods that keep running"),
    };
    let spec = tree! {
        "ports" => list![tree! { "port" => port, "protocol" => "TCP", "targetPort" => port }], "selector" => labels,
    };
    Ok(tree! {
        "apiVersion" => "v1", "kind" => "Service", "metadata" => tree! { "name" => object.str("metadata.name") },
        "spec" => spec, "status" => tree! { "loadBalancer" => tree! {} },
    })
}

fn pod_info(context: &Context, object: &Tree, workload: Workload) -> Result<Info> {
    if workload != Workload::Pod {
        return message("only a pod can be attached: leave --replicas, --generator and --schedule out");
    }
    let (namespace, _) = context.namespace()?;
    let name = object.str("metadata.name").to_string();
    Ok(Info { resource: guess("v1", "Pod"), namespace, name, object: object.clone(), source: String::new() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn image_names_are_checked() {
        for good in
            ["nginx", "nginx:1", "a/b", "reg.io:5000/a/b:x", "localhost/a", "a@sha256:0123456789abcdef0123456789abcdef"]
        {
            assert!(is_image(good), "{good}");
        }
        for bad in ["", "Nginx", "a b", "nginx:", ":x", "a//b", "a/-b", "nginx@sha256:xyz", "a:b c"] {
            assert!(!is_image(bad), "{bad}");
        }
    }
}

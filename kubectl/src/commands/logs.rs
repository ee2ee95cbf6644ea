//! `logs`.

use std::sync::Arc;

use tokio::sync::mpsc;

use super::pods::{container_of, described_names, list_pods, pod_of, pods_of};
use crate::command::Command;
use crate::context::Context;
use crate::error::{Error, Result, message};
use crate::flags::{Flag, Kind, switch, text, typed};
use crate::objects::{Info, ListQuery, SELECTOR, Select};
use crate::transport::{Client, Request};

const FLAGS: &[Flag] = &[
    switch("all-containers", '\0', "All containers of the pods."),
    switch("all-pods", '\0', "All pods of the object, with a prefix."),
    text("container", 'c', "", "The container."),
    switch("follow", 'f', "Print lines as they are written."),
    switch("ignore-errors", '\0', "With --follow, go on after errors."),
    switch("insecure-skip-tls-verify-backend", '\0', "Accept any certificate of the kubelet."),
    typed("limit-bytes", '\0', Kind::Int64, "0", "At most so many bytes."),
    typed("max-log-requests", '\0', Kind::Int, "5", "How many logs may be followed at the same time."),
    typed("pod-running-timeout", '\0', Kind::Duration, "20s", "How long to wait until a pod runs."),
    switch("prefix", '\0', "Print pod and container before each line."),
    switch("previous", 'p', "The log of the container's last instance."),
    typed("since", '\0', Kind::Duration, "0s", "Only lines newer than a duration."),
    text("since-time", '\0', "", "Only lines after a time (RFC3339)."),
    typed("tail", '\0', Kind::Int64, "-1", "The last lines; -1 for all, 10 with a selector."),
    switch("timestamps", '\0', "Print the time of each line."),
];

pub(crate) static LOGS: Command = Command {
    name: "logs",
    aliases: &["log"],
    usage: "[-f] [-p] (POD | TYPE/NAME) [-c CONTAINER]",
    short: "Print the logs for a container in a pod",
    flags: &[FLAGS, SELECTOR],
    run: Some(|context| Box::pin(run(context))),
    group: "Troubleshooting and Debugging Commands",
    ..Command::EMPTY
};

/// A container whose log is printed.
struct Source {
    pod: Info,
    container: String,
}

fn check(context: &Context) -> Result<()> {
    let flags = &context.flags;
    let selector = !flags.str("selector").is_empty();
    match (context.args.len(), selector) {
        (0, false) => return context.usage_error("expected 'logs [-f] [-p] (POD | TYPE/NAME) [-c CONTAINER]'.\nPOD or TYPE/NAME is a required argument for the logs command"),
        (1.., true) => return context.usage_error("only a selector (-l) or a POD name is allowed"),
        (3.., _) => return context.usage_error("expected 'logs [-f] [-p] (POD | TYPE/NAME) [-c CONTAINER]'.\nPOD or TYPE/NAME is a required argument for the logs command"),
        _ => {}
    }
    if flags.bool("all-containers") && (!flags.str("container").is_empty() || context.args.len() == 2) {
        return message("--all-containers=true should not be specified with container name");
    }
    if context.args.len() == 2 && !flags.str("container").is_empty() {
        return context.usage_error("only one of -c or an inline [CONTAINER] arg is allowed");
    }
    if !flags.str("since-time").is_empty() && flags.nanos("since") != 0 {
        return message("at most one of `sinceTime` or `sinceSeconds` may be specified");
    }
    let since = flags.str("since-time");
    if !since.is_empty() && api::time::parse(since).is_err() {
        let since = api::field::go_quote(since);
        return message(format!(
            "parsing time {since} as \"2006-01-02T15:04:05Z07:00\": cannot parse {since} as \"2006\""
        ));
    }
    if flags.nanos("since") < 0 {
        return message("--since must be greater than 0");
    }
    if flags.int("limit-bytes") < 0 {
        return message("--limit-bytes must be greater than 0");
    }
    if flags.int("tail") < -1 {
        return message("--tail must be greater than or equal to -1");
    }
    Ok(())
}

async fn run(context: &Context) -> Result<()> {
    check(context)?;
    let flags = &context.flags;
    let sources = sources(context).await?;
    let has_prefix = flags.bool("prefix") || (flags.bool("all-pods") && !flags.changed("prefix"));
    if flags.bool("follow") && sources.len() > 1 {
        let max = usize::try_from(flags.int("max-log-requests")).unwrap_or(5);
        if sources.len() > max {
            return message(format!(
                "you are attempting to follow {} log streams, but maximum allowed concurrency is {max}, use \
                 --max-log-requests to increase the limit",
                sources.len()
            ));
        }
        return follow_all(context, sources, has_prefix).await;
    }
    for source in &sources {
        let request = request(context, source);
        let mut response = context.client().await?.send(&request).await?;
        if !has_prefix {
            while let Some(part) = response.next().await {
                context.write(&part?)?;
                if flags.bool("follow") {
                    context.flush()?;
                }
            }
            continue;
        }
        let mut lines = response.lines();
        while let Some(line) = lines.next().await {
            context.write(&prefixed(source, &line?))?;
        }
    }
    Ok(())
}

fn prefixed(source: &Source, line: &[u8]) -> Vec<u8> {
    let mut out = format!("[pod/{}/{}] ", source.pod.name, source.container).into_bytes();
    out.extend_from_slice(line);
    out.push(b'\n');
    out
}

async fn sources(context: &Context) -> Result<Vec<Source>> {
    let flags = &context.flags;
    let selector = flags.str("selector");
    let pods = if !selector.is_empty() {
        let query = ListQuery { selector: selector.to_string(), ..ListQuery::default() };
        let pods = list_pods(context, &context.namespace()?.0, &query).await?;
        if pods.is_empty() {
            context.note(&format!("No resources found in {} namespace.", context.namespace()?.0));
        }
        pods
    } else if flags.bool("all-pods") {
        let select = Select { args: vec![context.args[0].clone()], selector: None, ..Select::of(context) };
        let mut pods = Vec::new();
        for info in select.find(context).await?.infos()? {
            pods.extend(pods_of(context, &info).await?);
        }
        pods
    } else {
        vec![named_pod(context).await?]
    };
    let mut sources = Vec::new();
    for pod in pods {
        if flags.bool("all-containers") {
            let lists = ["spec.initContainers", "spec.containers", "spec.ephemeralContainers"];
            for container in lists.iter().flat_map(|path| pod.object.list(path)) {
                sources.push(Source { container: container.str("name").to_string(), pod: pod.clone() });
            }
            continue;
        }
        let container = match context.args.get(1) {
            Some(name) => known(&pod, name)?,
            None => container_of(context, &pod).map_err(|error| unknown(&pod, flags.str("container"), error))?,
        };
        sources.push(Source { pod, container });
    }
    Ok(sources)
}

async fn named_pod(context: &Context) -> Result<Info> {
    find_pod(context, &context.args[0]).await.map_err(|error| match &error {
        Error::Server { status, .. } if status.code == 404 => {
            let namespace = context.namespace().map(|found| found.0).unwrap_or_default();
            let namespace = api::field::go_quote(&namespace);
            Error::Message(format!("error: error from server (NotFound): {} in namespace {namespace}", status.message))
        }
        _ => error,
    })
}

async fn find_pod(context: &Context, name: &str) -> Result<Info> {
    if name.contains('/') {
        let select = Select { args: vec![name.to_string()], selector: None, ..Select::of(context) };
        let infos = select.find(context).await?.infos()?;
        if let [info] = infos.as_slice()
            && info.resource.kind != "Pod"
        {
            let pods = pods_of(context, info).await?;
            if pods.len() > 1 {
                let pod = pod_of(context, Some(name)).await?;
                context.note(&format!("Found {} pods, using pod/{}", pods.len(), pod.name));
                return Ok(pod);
            }
        }
    }
    pod_of(context, Some(name)).await
}

fn known(pod: &Info, name: &str) -> Result<String> {
    if super::pods::container_names(&pod.object).iter().any(|known| known == name) {
        return Ok(name.to_string());
    }
    Err(unknown(pod, name, Error::new("")))
}

fn unknown(pod: &Info, name: &str, error: Error) -> Error {
    if name.is_empty() {
        return error;
    }
    Error::new(format!("container {name} is not valid for pod {} out of: {}", pod.name, described_names(&pod.object)))
}

fn request(context: &Context, source: &Source) -> Request {
    let flags = &context.flags;
    let is_on = |name: &str| if flags.bool(name) { "true" } else { "" };
    let tail = match flags.int("tail") {
        -1 if flags.changed("tail") || flags.str("selector").is_empty() => String::new(),
        -1 => "10".to_string(),
        count => count.to_string(),
    };
    let seconds = match flags.nanos("since") {
        0 => String::new(),
        nanos => (nanos + 999_999_999).div_euclid(1_000_000_000).to_string(),
    };
    let limit = if flags.int("limit-bytes") > 0 { flags.int("limit-bytes").to_string() } else { String::new() };
    let request = Request::get(format!("{}/log", source.pod.path()))
        .query("container", &source.container)
        .query("follow", is_on("follow"))
        .query("previous", is_on("previous"))
        .query("timestamps", is_on("timestamps"))
        .query("insecureSkipTLSVerifyBackend", is_on("insecure-skip-tls-verify-backend"))
        .query("sinceTime", flags.str("since-time"))
        .query("sinceSeconds", seconds)
        .query("tailLines", tail)
        .query("limitBytes", limit)
        .accept("application/json, */*");
    Request { is_long: true, ..request }
}

/// Follows several logs; their lines are not mixed.
async fn follow_all(context: &Context, sources: Vec<Source>, has_prefix: bool) -> Result<()> {
    let (sender, mut lines) = mpsc::channel::<Result<Vec<u8>>>(256);
    for source in sources {
        let (client, request, sender) = (context.client().await?.clone(), request(context, &source), sender.clone());
        tokio::spawn(async move {
            if let Err(error) = follow(&client, &request, &source, has_prefix, &sender).await {
                let _ = sender.send(Err(error)).await;
            }
        });
    }
    drop(sender);
    while let Some(line) = lines.recv().await {
        match line {
            Ok(line) => context.write(&line)?,
            Err(error) if context.flags.bool("ignore-errors") => context.note(&format!("error: {error}")),
            Err(error) => return Err(error),
        }
        context.flush()?;
    }
    Ok(())
}

async fn follow(
    client: &Arc<Client>,
    request: &Request,
    source: &Source,
    has_prefix: bool,
    sender: &mpsc::Sender<Result<Vec<u8>>>,
) -> Result<()> {
    let mut lines = client.send(request).await?.lines();
    while let Some(line) = lines.next().await {
        let mut line = line?;
        if has_prefix {
            line = prefixed(source, &line);
        } else {
            line.push(b'\n');
        }
        if sender.send(Ok(line)).await.is_err() {
            return Ok(());
        }
    }
    Ok(())
}

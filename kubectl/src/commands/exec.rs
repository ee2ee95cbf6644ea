//! `exec` and `attach`.

use std::io::IsTerminal;

use api::Tree;
use streaming::remote_command::{CommandResult, Options, SPDY_PREFERRED, Size, connect};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::detach::{DETACH_KEYS, DetachKeys};
use super::pods::{container_of, pod_of, wait_until_running};
use super::terminal::{RawMode, interrupted, terminal_size};
use super::wait::{Deletion, wait_for_deletion};
use crate::command::Command;
use crate::context::Context;
use crate::error::{Error, Result, message};
use crate::flags::{Flag, Kind, switch, text, typed};
use crate::objects::{FILES, Info};
use crate::transport::Request;

/// The protocols over WebSocket: only the newest closes the standard input.
const WEBSOCKET: &[&str] = &["v5.channel.k8s.io"];

const EXEC_FLAGS: &[Flag] = &[
    text("container", 'c', "", "The container; by default the one of an annotation, or the first."),
    typed("pod-running-timeout", '\0', Kind::Duration, "1m0s", "How long to wait until a pod runs."),
    switch("quiet", 'q', "Only print the output of the command."),
    switch("stdin", 'i', "Pass the standard input to the container."),
    switch("tty", 't', "The standard input is a terminal."),
];

pub(crate) static EXEC: Command = Command {
    name: "exec",
    usage: "(POD | TYPE/NAME) [-c CONTAINER] [flags] -- COMMAND [args...]",
    short: "Execute a command in a container",
    flags: &[EXEC_FLAGS, FILES],
    run: Some(|context| Box::pin(exec(context))),
    group: "Troubleshooting and Debugging Commands",
    ..Command::EMPTY
};

const ATTACH_FLAGS: &[Flag] = &[
    text("container", 'c', "", "The container; by default the one of an annotation, or the first."),
    text("detach-keys", '\0', DETACH_KEYS, "Keys that detach from the container."),
    typed("pod-running-timeout", '\0', Kind::Duration, "1m0s", "How long to wait until a pod runs."),
    switch("quiet", 'q', "Only print the output of the container."),
    switch("stdin", 'i', "Pass the standard input to the container."),
    switch("tty", 't', "The standard input is a terminal."),
];

pub(crate) static ATTACH: Command = Command {
    name: "attach",
    usage: "(POD | TYPE/NAME) -c CONTAINER",
    short: "Attach to a running container",
    flags: &[ATTACH_FLAGS],
    run: Some(|context| Box::pin(attach(context))),
    group: "Troubleshooting and Debugging Commands",
    ..Command::EMPTY
};

async fn exec(context: &Context) -> Result<()> {
    let from_files = !context.flags.list("filename").is_empty();
    let named = usize::from(!from_files);
    let command: Vec<String> = match context.dash {
        None if context.args.len() > named => {
            return message(format!(
                "exec [POD] [COMMAND] is not supported anymore. Use exec [POD] -- [COMMAND] instead\nSee '{} -h' for help and examples",
                context.path
            ));
        }
        None => Vec::new(),
        Some(dash) => context.args[dash..].to_vec(),
    };
    if !from_files && (context.args.is_empty() || context.dash == Some(0)) {
        return message("pod, type/name or --filename must be specified");
    }
    if command.is_empty() {
        return message("you must specify at least one command for the container");
    }
    let pod = pod_of(context, context.args.first().map(String::as_str)).await?;
    check_is_running(&pod)?;
    let container = container_of(context, &pod)?;
    let streams = wanted_streams(context);
    let mut request = Request::get(format!("{}/exec", pod.path())).query("container", container);
    for argument in command {
        request.query.push(("command".to_string(), argument));
    }
    stream(context, request, streams).await
}

fn check_is_running(pod: &Info) -> Result<()> {
    match pod.object.str("status.phase") {
        phase @ ("Succeeded" | "Failed") => {
            message(format!("cannot exec into a container in a completed pod; current phase is {phase}"))
        }
        _ => Ok(()),
    }
}

fn wanted_streams(context: &Context) -> Options {
    let stdin = context.flags.bool("stdin");
    let mut tty = context.flags.bool("tty");
    if tty && (!stdin || !std::io::stdin().is_terminal()) {
        if stdin && !context.flags.bool("quiet") {
            context.note("Unable to use a TTY - input is not a terminal or the right kind of file");
        }
        tty = tty && stdin && std::io::stdin().is_terminal();
    }
    Options { stdin, stdout: true, stderr: !tty, tty }
}

/// Runs the streams of a request until its command ends.
pub(crate) async fn stream(context: &Context, mut request: Request, options: Options) -> Result<()> {
    for (name, is_on) in
        [("stdin", options.stdin), ("stdout", options.stdout), ("stderr", options.stderr), ("tty", options.tty)]
    {
        if is_on {
            request.query.push((name.to_string(), "true".to_string()));
        }
    }
    request.is_long = true;
    let keys = DetachKeys::parse(if options.tty { context.flags.str("detach-keys") } else { "" })?;
    context.flush()?;
    let upgraded = context.client().await?.upgrade(&request, WEBSOCKET, SPDY_PREFERRED).await?;
    let mut remote = connect(upgraded.io, upgraded.transport, &upgraded.protocol, options).await?;
    // Dropping it restores the terminal, also on an error.
    let raw = if options.tty { Some(RawMode::enter()?) } else { None };
    let (detach, detached) = tokio::sync::oneshot::channel();
    let input = remote.stdin.take().map(|stdin| tokio::spawn(copy_stdin(stdin, keys, detach)));
    let resizing = remote.resize.take().map(|mut terminal| {
        tokio::spawn(async move {
            let Ok(mut changes) = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::window_change()) else {
                return;
            };
            loop {
                if let Some((width, height)) = terminal_size()
                    && terminal.resize(Size { width, height }).await.is_err()
                {
                    return;
                }
                if changes.recv().await.is_none() {
                    return;
                }
            }
        })
    });
    let stdout = copy_out(remote.stdout.take(), tokio::io::stdout());
    let stderr = copy_out(remote.stderr.take(), tokio::io::stderr());
    let (out, err, ending) = tokio::select! {
        ended = async { tokio::join!(stdout, stderr, remote.ending) } => ended,
        // Without a raw terminal, signals end the process as usual.
        Ok(()) = detached => {
            drop(raw);
            context.note("\r");
            return Ok(());
        }
        () = interrupted(), if raw.is_some() => return Err(Error::Exit(1)),
    };
    input.iter().for_each(|task| task.abort());
    resizing.iter().for_each(|task| task.abort());
    drop(raw);
    out?;
    err?;
    match ending? {
        CommandResult::Success => Ok(()),
        CommandResult::ExitCode { code, .. } => Err(Error::Command {
            message: format!("command terminated with exit code {code}"),
            code: u8::try_from(code).unwrap_or(1),
        }),
        CommandResult::Failed(text) | CommandResult::Internal(text) => message(text),
    }
}

/// Copies the input until its end, or until the user types the keys that detach.
async fn copy_stdin(mut to: streaming::Writer, mut keys: DetachKeys, detach: tokio::sync::oneshot::Sender<()>) {
    let (mut stdin, mut buffer) = (tokio::io::stdin(), [0; 8 * 1024]);
    while let Ok(count @ 1..) = stdin.read(&mut buffer).await {
        let (bytes, is_detached) = keys.push(&buffer[..count]);
        if to.write_all(&bytes).await.is_err() {
            break;
        }
        let _ = to.flush().await;
        if is_detached {
            // The other side may be gone.
            let _ = detach.send(());
            return;
        }
    }
    let _ = to.shutdown().await;
}

async fn copy_out(from: Option<streaming::Reader>, mut to: impl tokio::io::AsyncWrite + Unpin) -> Result<()> {
    let Some(mut from) = from else { return Ok(()) };
    let mut buffer = vec![0; 32 * 1024];
    loop {
        let count = from.read(&mut buffer).await?;
        if count == 0 {
            return Ok(());
        }
        to.write_all(&buffer[..count]).await?;
        to.flush().await?;
    }
}

async fn attach(context: &Context) -> Result<()> {
    let [name, ..] = context.args.as_slice() else {
        return message("at least 1 argument is required for attach");
    };
    if context.args.len() > 2 {
        return message(format!(
            "expected POD, TYPE/NAME, or TYPE NAME, (at most 2 arguments) saw {}: [{}]",
            context.args.len(),
            context.args.join(" ")
        ));
    }
    let pod = pod_of(context, Some(name)).await?;
    if matches!(pod.object.str("status.phase"), "Succeeded" | "Failed") {
        return message(format!(
            "cannot attach a container in a completed pod; current phase is {}",
            pod.object.str("status.phase")
        ));
    }
    let container =
        container_of(context, &pod).map_err(|error| error.with_context("cannot attach to the container"))?;
    attach_to(context, &pod, Some(&container)).await
}

/// The container of a pod with its specification.
fn container_spec<'a>(pod: &'a Tree, name: &str) -> Option<&'a Tree> {
    let lists = ["spec.containers", "spec.initContainers", "spec.ephemeralContainers"];
    lists.iter().flat_map(|path| pod.list(path)).find(|container| container.str("name") == name)
}

/// Attaches to a container of a pod.
pub(crate) async fn attach_to(context: &Context, pod: &Info, container: Option<&str>) -> Result<()> {
    let container = match container {
        Some(container) => container.to_string(),
        None => container_of(context, pod)?,
    };
    let mut options = wanted_streams(context);
    let has_terminal = container_spec(&pod.object, &container).is_some_and(|container| container.bool("tty"));
    if options.tty && !has_terminal {
        options.tty = false;
        options.stderr = true;
        if !context.flags.bool("quiet") {
            context.note(&format!("error: Unable to use a TTY - container {container} did not allocate one"));
        }
    } else if has_terminal && !options.tty {
        // The container's terminal has no separate error stream.
        options.stderr = false;
    }
    if !context.flags.bool("quiet") && options.stdin && options.tty {
        context.note("If you don't see a command prompt, try pressing enter.");
    }
    let request = Request::get(format!("{}/attach", pod.path())).query("container", container);
    stream(context, request, options).await
}

/// `run -it`: waits until the pod runs, attaches, and reports how its container ended.
pub(crate) async fn attach_to_run(context: &Context, pod: &Info) -> Result<()> {
    let result = attach_when_running(context, pod).await;
    if context.flags.bool("rm") {
        remove_run(context, pod).await?;
    }
    result
}

/// `run --rm`.
async fn remove_run(context: &Context, pod: &Info) -> Result<()> {
    let flags = &context.flags;
    let grace = flags.int("grace-period");
    let plan = super::delete::Plan {
        dry_run: super::common::DryRun::None,
        propagation: super::delete::propagation(context)?,
        grace_period: if flags.bool("force") { Some(0) } else { (grace >= 0).then_some(grace) },
        is_forced: flags.bool("force"),
        waits: flags.bool("wait"),
    };
    super::delete::delete(context, &plan, pod).await?;
    if !flags.bool("quiet") {
        let forced = if plan.is_forced { "force " } else { "" };
        context.print(&format!("pod \"{}\" {forced}deleted from {} namespace\n", pod.name, pod.namespace))?;
    }
    if plan.waits {
        let deletion = Deletion { info: pod.clone(), uid: pod.object.str("metadata.uid").to_string() };
        wait_for_deletion(context, &[deletion], flags.duration("timeout")).await?;
    }
    Ok(())
}

async fn attach_when_running(context: &Context, pod: &Info) -> Result<()> {
    let running = wait_until_running(context, pod, context.flags.duration("pod-running-timeout")).await?;
    let container = container_of(context, &running)?;
    if matches!(running.object.str("status.phase"), "Succeeded" | "Failed") {
        let log = context
            .client()
            .await?
            .bytes(&Request::get(format!("{}/log", pod.path())).query("container", &container))
            .await?;
        context.write(&log)?;
    } else {
        attach_to(context, &running, Some(&container)).await?;
    }
    if context.flags.str("restart") == "Always" {
        return Ok(());
    }
    let ended = |object: &Tree| {
        let statuses = object.list("status.containerStatuses");
        let status = statuses.iter().find(|status| status.str("name") == container)?;
        status.int("state.terminated.exitCode")
    };
    let code = super::watching::follow(context, pod, |object| Ok(ended(object))).await?;
    if code == 0 {
        return Ok(());
    }
    let name = format!("{}/{}", pod.namespace, pod.name);
    Err(Error::Command { message: format!("pod {name} terminated (Error)"), code: u8::try_from(code).unwrap_or(1) })
}

//! `cp`: files as a tar archive over exec. An archive from a container can never write outside of its target.

mod archive;

use streaming::remote_command::{CommandResult, Options, SPDY_PREFERRED, connect};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::pods::{container_of, pod_of};
use crate::command::Command;
use crate::context::Context;
use crate::error::{Error, Result, message};
use crate::flags::{Flag, Kind, switch, text, typed};
use crate::transport::Request;

const FLAGS: &[Flag] = &[
    text("container", 'c', "", "The container; by default the one of an annotation, or the first."),
    switch("no-preserve", '\0', "Do not keep owner and permissions in the container."),
    typed("retries", '\0', Kind::Int, "0", "How often to resume a copy from a container; 0 never."),
];

pub(crate) static CP: Command = Command {
    name: "cp",
    usage: "<file-spec-src> <file-spec-dest>",
    short: "Copy files and directories to and from containers",
    flags: &[FLAGS],
    run: Some(|context| Box::pin(run(context))),
    group: "Troubleshooting and Debugging Commands",
    ..Command::EMPTY
};

/// A side of the copy.
#[derive(Debug, PartialEq)]
struct CopyPath {
    pod: Option<(String, String)>,
    path: String,
}

/// `namespace/pod:path`, `pod:path`, or a local path.
fn parse(text: &str) -> Result<CopyPath> {
    let Some((pod, path)) = text.split_once(':') else { return Ok(CopyPath { pod: None, path: text.to_string() }) };
    if pod.starts_with(['.', '/']) {
        return Ok(CopyPath { pod: None, path: text.to_string() });
    }
    let (namespace, name) = pod.split_once('/').unwrap_or(("", pod));
    if name.is_empty() || name.contains('/') {
        return message("filespec must match the canonical format: [[namespace/]pod:]file/path");
    }
    Ok(CopyPath { pod: Some((namespace.to_string(), name.to_string())), path: path.to_string() })
}

async fn run(context: &Context) -> Result<()> {
    let [source, target] = context.args.as_slice() else {
        return message("source and destination are required");
    };
    let (source, target) = (parse(source)?, parse(target)?);
    match (&source.pod, &target.pod) {
        (Some(_), Some(_)) => message("one of src or dest must be a local file specification"),
        (None, None) => message("one of src or dest must be a remote file specification"),
        _ if source.path.is_empty() || target.path.is_empty() => message("filepath can not be empty"),
        (Some((namespace, pod)), None) => from_pod(context, namespace, pod, &source.path, &target.path).await,
        (None, Some((namespace, pod))) => to_pod(context, namespace, pod, &source.path, &target.path).await,
    }
}

async fn exec_request(context: &Context, namespace: &str, pod: &str, command: &[&str]) -> Result<Request> {
    let mut info = if namespace.is_empty() {
        pod_of(context, Some(pod)).await?
    } else {
        let resource = crate::objects::guess("v1", "Pod");
        let object = crate::objects::get_object(context, &resource, namespace, pod, "").await?;
        crate::objects::Info {
            resource,
            namespace: namespace.to_string(),
            name: pod.to_string(),
            object,
            source: String::new(),
        }
    };
    let container = container_of(context, &info)?;
    info.name = info.object.str("metadata.name").to_string();
    let mut request = Request::get(format!("{}/exec", info.path())).query("container", container);
    command.iter().for_each(|word| request.query.push(("command".to_string(), word.to_string())));
    request.is_long = true;
    Ok(request)
}

/// Runs a command in the container with this input; returns its output.
async fn run_remote(
    context: &Context,
    mut request: Request,
    input: Option<Vec<u8>>,
    mut output: impl FnMut(&[u8]) -> Result<()>,
) -> Result<()> {
    let options = Options { stdin: input.is_some(), stdout: true, stderr: true, tty: false };
    for (name, is_on) in [("stdin", options.stdin), ("stdout", true), ("stderr", true)] {
        if is_on {
            request.query.push((name.to_string(), "true".to_string()));
        }
    }
    let upgraded = context.client().await?.upgrade(&request, &["v5.channel.k8s.io"], SPDY_PREFERRED).await?;
    let mut remote = connect(upgraded.io, upgraded.transport, &upgraded.protocol, options).await?;
    let sending = remote.stdin.take().map(|mut stdin| {
        tokio::spawn(async move {
            let _ = stdin.write_all(&input.unwrap_or_default()).await;
            let _ = stdin.shutdown().await;
        })
    });
    let errors = remote.stderr.take().map(|mut stderr| {
        tokio::spawn(async move {
            let mut text = Vec::new();
            let _ = stderr.read_to_end(&mut text).await;
            text
        })
    });
    if let Some(mut stdout) = remote.stdout.take() {
        let mut buffer = vec![0; 64 * 1024];
        loop {
            let count = stdout.read(&mut buffer).await?;
            if count == 0 {
                break;
            }
            output(&buffer[..count])?;
        }
    }
    let ending = remote.ending.await?;
    sending.iter().for_each(|task| task.abort());
    if let Some(task) = errors
        && let Ok(text) = task.await
    {
        context.flush()?;
        eprint!("{}", String::from_utf8_lossy(&text));
    }
    match ending {
        CommandResult::Success => Ok(()),
        CommandResult::ExitCode { code, .. } => Err(Error::Command {
            message: format!("command terminated with exit code {code}"),
            code: u8::try_from(code).unwrap_or(1),
        }),
        CommandResult::Failed(text) | CommandResult::Internal(text) => message(text),
    }
}

async fn from_pod(context: &Context, namespace: &str, pod: &str, source: &str, target: &str) -> Result<()> {
    let mut extractor = archive::Extractor::new(source, std::path::Path::new(target))?;
    let result = receive(context, namespace, pod, source, &mut extractor).await;
    extractor.warnings().iter().for_each(|warning| context.note(&format!("warning: {warning}")));
    result?;
    extractor.finish()
}

/// Reads the archive, and after a broken connection the rest of it, as often as `--retries` allows.
async fn receive(
    context: &Context,
    namespace: &str,
    pod: &str,
    source: &str,
    extractor: &mut archive::Extractor,
) -> Result<()> {
    let limit = context.flags.int("retries");
    let (mut received, mut retries) = (0_u64, 0);
    loop {
        let resumed = resume_command(source, received + 1);
        let command: Vec<&str> =
            if limit == 0 { vec!["tar", "cf", "-", source] } else { vec!["sh", "-c", resumed.as_str()] };
        let request = exec_request(context, namespace, pod, &command).await?;
        let result = run_remote(context, request, None, |part| {
            received += part.len() as u64;
            extractor.push(part)
        })
        .await;
        let is_broken = matches!(result, Err(Error::Connect { .. } | Error::Io(_)));
        if !is_broken || limit == 0 {
            return result;
        }
        if limit > 0 && retries >= limit {
            context.print(&format!("Dropping out copy after {retries} retries\n"))?;
            return result;
        }
        retries += 1;
        context.print(&format!("Resuming copy at {received} bytes, retry {retries}/{limit}\n"))?;
        context.flush()?;
    }
}

/// A shell command for an archive from this byte on, counted from one.
fn resume_command(source: &str, from: u64) -> String {
    format!("tar cf - '{}' | tail -c+{from}", source.replace('\'', r"'\''"))
}

async fn to_pod(context: &Context, namespace: &str, pod: &str, source: &str, target: &str) -> Result<()> {
    let local = std::path::Path::new(source);
    if std::fs::metadata(local).is_err() {
        return message(format!("{source} doesn't exist in local filesystem"));
    }
    // A directory at the target takes the file into it.
    let base = local.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_else(|| ".".to_string());
    let is_directory = target.ends_with('/') || {
        let request = exec_request(context, namespace, pod, &["test", "-d", target]).await?;
        run_remote(context, request, None, |_| Ok(())).await.is_ok()
    };
    let path = if is_directory { format!("{}/{base}", target.trim_end_matches('/')) } else { target.to_string() };
    let (parent, name) = path.rsplit_once('/').unwrap_or((".", &path));
    let bytes = archive::pack(local, name)?;
    let directory = if parent.is_empty() { "/" } else { parent };
    let mut command = vec!["tar"];
    if context.flags.bool("no-preserve") {
        command.extend(["--no-same-permissions", "--no-same-owner"]);
    }
    command.extend(["-xmf", "-", "-C", directory]);
    let request = exec_request(context, namespace, pod, &command).await?;
    run_remote(context, request, Some(bytes), |_| Ok(())).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_quoted_for_the_shell() {
        assert_eq!(resume_command("/a b/c", 1), "tar cf - '/a b/c' | tail -c+1");
        assert_eq!(resume_command("/it's; rm", 7), r"tar cf - '/it'\''s; rm' | tail -c+7");
    }

    #[test]
    fn parses_places() {
        let pod = |namespace: &str, name: &str, path: &str| CopyPath {
            pod: Some((namespace.into(), name.into())),
            path: path.into(),
        };
        assert_eq!(parse("ns/p:/a").ok(), Some(pod("ns", "p", "/a")));
        assert_eq!(parse("p:a").ok(), Some(pod("", "p", "a")));
        assert_eq!(parse("./p:a").ok(), Some(CopyPath { pod: None, path: "./p:a".into() }));
        assert!(parse("a/b/c:d").is_err());
    }
}

//! `/logs/`: the files below the machine's directory of logs, and the lines of its services by name.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use api::query::{Query, percent_decode, percent_encode};
use bytes::Bytes;
use http::StatusCode;
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::sync::mpsc;

use super::body::{respond as answered, stream, text, whole};
use super::{ServerResponse, Settings};

const BLOCK: usize = 64 << 10;
/// Pieces that wait for the client.
const WAITING: usize = 4;

pub(crate) async fn respond(settings: &Settings, place: &str, query: &Query) -> ServerResponse {
    if query.has("query") {
        return match settings.system_log_query {
            true => services(settings, query).await,
            false => {
                text(StatusCode::METHOD_NOT_ALLOWED, "node log query is disabled: enableSystemLogQuery is not set\n")
            }
        };
    }
    if place.is_empty() {
        let mut moved = text(StatusCode::MOVED_PERMANENTLY, "");
        moved.headers_mut().insert(http::header::LOCATION, http::HeaderValue::from_static("/logs/"));
        return moved;
    }
    match find(&settings.log_dir, place) {
        None => text(StatusCode::NOT_FOUND, "404 page not found\n"),
        Some(path) if path.is_dir() => directory(&path),
        Some(path) => file(&path).await,
    }
}

/// The file of a path. A path that leaves the directory, with `..` or a symbolic link, is not found.
fn find(root: &Path, place: &str) -> Option<PathBuf> {
    let place = percent_decode(place).into_owned();
    let root = root.canonicalize().ok()?;
    let path = root.join(place.trim_start_matches('/')).canonicalize().ok()?;
    path.starts_with(&root).then_some(path)
}

fn directory(path: &Path) -> ServerResponse {
    let entries = std::fs::read_dir(path).into_iter().flatten().filter_map(Result::ok);
    let name = |entry: std::fs::DirEntry| {
        let slash = if entry.file_type().is_ok_and(|kind| kind.is_dir()) { "/" } else { "" };
        format!("{}{slash}", entry.file_name().to_string_lossy())
    };
    let mut names: Vec<String> = entries.map(name).collect();
    names.sort_unstable();
    let shown = |name: &String| name.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    let link =
        |name: &String| format!("<a href=\"{}\">{}</a>\n", percent_encode(name).replace("%2F", "/"), shown(name));
    let page = format!("<pre>\n{}</pre>\n", names.iter().map(link).collect::<String>());
    answered(StatusCode::OK, "text/html; charset=utf-8", whole(page))
}

async fn file(path: &Path) -> ServerResponse {
    match tokio::fs::File::open(path).await {
        Ok(file) => answered(StatusCode::OK, "text/plain; charset=utf-8", piped(file)),
        Err(error) => text(StatusCode::NOT_FOUND, format!("{error}\n")),
    }
}

fn piped(from: impl AsyncRead + Send + Unpin + 'static) -> super::Body {
    let (sender, pieces) = mpsc::channel(WAITING);
    tokio::spawn(send(from, sender));
    stream(pieces)
}

async fn send(mut from: impl AsyncRead + Unpin, to: mpsc::Sender<Bytes>) {
    loop {
        let mut block = Vec::with_capacity(BLOCK);
        match from.read_buf(&mut block).await {
            Ok(1..) if to.send(block.into()).await.is_ok() => {}
            _ => return,
        }
    }
}

/// A query of services' logs.
#[derive(Debug, PartialEq, Eq)]
struct LogQuery {
    services: Vec<String>,
    arguments: Vec<String>,
}

/// An invalid query.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
enum QueryError {
    #[error("query: Required value: query cannot be empty")]
    Empty,
    #[error("query: Invalid value: {0:?}: must be the name of a service or a file")]
    Name(String),
    #[error("{key}: Invalid value: {source}")]
    Time { key: &'static str, source: api::time::ParseError },
    #[error("{key}: Invalid value: {source}")]
    Number { key: &'static str, source: std::num::ParseIntError },
}

fn read(query: &Query) -> Result<LogQuery, QueryError> {
    let services: Vec<String> = query.all("query").filter(|name| !name.is_empty()).map(str::to_string).collect();
    if services.is_empty() {
        return Err(QueryError::Empty);
    }
    // A name becomes an argument of another program, and a part of a path.
    let is_name = |name: &&String| {
        name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"@-_.:".contains(&byte)) && !name.starts_with('-')
    };
    if let Some(bad) = services.iter().find(|name| !is_name(name) && !name.starts_with('/')) {
        return Err(QueryError::Name(bad.clone()));
    }
    let mut arguments = Vec::new();
    for (key, flag) in [("sinceTime", "--since"), ("untilTime", "--until")] {
        if query.has(key) {
            let at = api::time::parse(query.get(key)).map_err(|source| QueryError::Time { key, source })?;
            arguments.push(format!("{flag}=@{}", at.seconds));
        }
    }
    for (key, flag) in [("tailLines", "--lines"), ("boot", "--boot")] {
        if query.has(key) {
            let number: i64 = query.get(key).parse().map_err(|source| QueryError::Number { key, source })?;
            arguments.push(format!("{flag}={number}"));
        }
    }
    if query.has("pattern") {
        arguments.push(format!("--grep={}", query.get("pattern")));
    }
    Ok(LogQuery { services, arguments })
}

/// Reads the file with the name of the service if it exists, else the journal.
async fn services(settings: &Settings, query: &Query) -> ServerResponse {
    let requested = match read(query) {
        Ok(requested) => requested,
        Err(why) => return text(StatusCode::NOT_ACCEPTABLE, format!("{why}\n")),
    };
    if let [file] = &requested.services[..]
        && let Some(path) = candidates(file).iter().find_map(|place| find(&settings.log_dir, place))
        && path.is_file()
    {
        if !requested.arguments.is_empty() {
            let why = "sinceTime, untilTime, tailLines, pattern and boot are for the journal; this is a file\n";
            return text(StatusCode::NOT_ACCEPTABLE, why);
        }
        return self::file(&path).await;
    }
    let units = requested.services.iter().map(|name| format!("--unit={name}"));
    let command = tokio::process::Command::new("journalctl")
        .args(["--utc", "--no-pager", "--output=short-precise"])
        .args(requested.arguments.iter().cloned().chain(units))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn();
    let started = command.map(|mut child| (child.stdout.take(), child));
    match started {
        Ok((Some(output), mut child)) => {
            let (sender, pieces) = mpsc::channel(WAITING);
            tokio::spawn(async move {
                send(output, sender).await;
                let _ = child.kill().await;
            });
            answered(StatusCode::OK, "text/plain; charset=utf-8", stream(pieces))
        }
        _ => text(StatusCode::INTERNAL_SERVER_ERROR, "file not found, and journald is not available\n"),
    }
}

fn candidates(name: &str) -> Vec<String> {
    if name.starts_with('/') {
        return vec![name.to_string()];
    }
    vec![format!("/{name}.log"), format!("/{name}/{name}.log"), format!("/{name}")]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn does_not_leave_the_log_directory() {
        let dir = tempfile::tempdir().expect("a directory");
        let root = dir.path().join("log");
        std::fs::create_dir_all(root.join("pods")).expect("a directory");
        std::fs::write(root.join("a.log"), "a").expect("a file");
        std::fs::write(dir.path().join("secret"), "s").expect("a file");
        std::os::unix::fs::symlink(dir.path().join("secret"), root.join("link")).expect("a link");
        std::os::unix::fs::symlink(root.join("a.log"), root.join("pods/0.log")).expect("a link");
        let cases = [
            ("/", true),
            ("/a.log", true),
            ("//a.log", true),
            ("/pods/0.log", true),
            ("/link", false),
            ("/../secret", false),
            ("/%2e%2e/secret", false),
            ("/pods/../../secret", false),
            ("/nothing", false),
        ];
        for (place, want) in cases {
            assert_eq!(find(&root, place).is_some(), want, "{place}");
        }
    }

    #[test]
    fn converts_or_rejects_queries() {
        let of = |query: &str| read(&Query::parse(query)).map(|requested| requested.arguments.join(" "));
        assert_eq!(of("query=kubelet"), Ok(String::new()));
        assert_eq!(
            of("query=kubelet&sinceTime=1970-01-01T00:00:09Z&tailLines=3&pattern=a b"),
            Ok("--since=@9 --lines=3 --grep=a b".to_string())
        );
        for (query, word) in [
            ("query=", "query"),
            ("query=--file", "query"),
            ("query=a;b", "query"),
            ("query=a&tailLines=x", "tailLines"),
            ("query=a&sinceTime=x", "sinceTime"),
        ] {
            assert!(of(query).is_err_and(|why| why.to_string().starts_with(word)), "{query}");
        }
    }
}

//! `proxy`: the server on a local port, with this user's credentials. Only paths and hosts that are accepted get
//! through, so that web pages in a browser cannot use it.

use std::convert::Infallible;
use std::sync::Arc;

use bytes::Bytes;
use http::{Request as HttpRequest, Response as HttpResponse, StatusCode, header};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use regex_automata::meta::Regex;
use tokio::net::{TcpListener, UnixListener};

use crate::command::Command;
use crate::context::Context;
use crate::error::{Error, Result, message};
use crate::flags::{Flag, Kind, switch, text, typed};
use crate::transport::Client;

const FLAGS: &[Flag] = &[
    text(
        "accept-hosts",
        '\0',
        "^localhost$,^127\\.0\\.0\\.1$,^\\[::1\\]$",
        "Regular expressions for hosts that are accepted.",
    ),
    text("accept-paths", '\0', "^.*", "Regular expressions for paths that are accepted."),
    text("address", '\0', "127.0.0.1", "The address to listen on."),
    text("api-prefix", '\0', "/", "The prefix below which the API is."),
    switch("append-server-path", '\0', "Put the path of the server's URL in front of the paths of requests."),
    switch("disable-filter", '\0', "Accept all requests. Dangerous."),
    typed("keepalive", '\0', Kind::Duration, "0s", "The pause between pings of an idle connection to the server."),
    typed("port", 'p', Kind::Int, "8001", "The port to listen on; 0 for any."),
    text("reject-methods", '\0', "^$", "Regular expressions for methods that are rejected."),
    text(
        "reject-paths",
        '\0',
        "^/api/.*/pods/.*/exec,^/api/.*/pods/.*/attach",
        "Regular expressions for paths that are rejected.",
    ),
    text("unix-socket", 'u', "", "A Unix socket to listen on."),
    text("www", 'w', "", "A directory whose files are served too."),
    text("www-prefix", 'P', "/static/", "The prefix below which the files are."),
];

pub(crate) static PROXY: Command = Command {
    name: "proxy",
    usage: "[--port=PORT] [--www=static-dir] [--www-prefix=prefix] [--api-prefix=prefix]",
    short: "Run a proxy to the Kubernetes API server",
    flags: &[FLAGS],
    run: Some(|context| Box::pin(run(context))),
    group: "Troubleshooting and Debugging Commands",
    ..Command::EMPTY
};

/// The largest request that is passed on.
const MAX_BODY: usize = 64 * 1024 * 1024;

/// What gets through.
struct Filter {
    hosts: Vec<Regex>,
    paths: Vec<Regex>,
    rejected_paths: Vec<Regex>,
    rejected_methods: Vec<Regex>,
    is_off: bool,
    prefix: String,
    files: Option<(String, std::path::PathBuf)>,
}

fn expressions(text: &str) -> Result<Vec<Regex>> {
    let parse = |part: &str| {
        Regex::new(part).map_err(|error| Error::new(format!("invalid regular expression {part:?}: {error}")))
    };
    text.split(',').filter(|part| !part.is_empty()).map(parse).collect()
}

impl Filter {
    fn new(context: &Context) -> Result<Filter> {
        let flags = &context.flags;
        let files = flags.str("www");
        Ok(Filter {
            hosts: expressions(flags.str("accept-hosts"))?,
            paths: expressions(flags.str("accept-paths"))?,
            rejected_paths: expressions(flags.str("reject-paths"))?,
            rejected_methods: expressions(flags.str("reject-methods"))?,
            is_off: flags.bool("disable-filter"),
            prefix: format!("/{}", flags.str("api-prefix").trim_matches('/')),
            files: (!files.is_empty()).then(|| (flags.str("www-prefix").to_string(), std::path::PathBuf::from(files))),
        })
    }

    fn accepts(&self, method: &str, path: &str, host: &str) -> bool {
        let any = |list: &[Regex], text: &str| list.iter().any(|regex| regex.is_match(text));
        self.is_off
            || (any(&self.hosts, host)
                && any(&self.paths, path)
                && !any(&self.rejected_paths, path)
                && !any(&self.rejected_methods, method))
    }
}

async fn run(context: &Context) -> Result<()> {
    let flags = &context.flags;
    if !context.args.is_empty() {
        return message(format!("unexpected arguments: [{}]", context.args.join(" ")));
    }
    if flags.bool("disable-filter") && flags.str("unix-socket").is_empty() {
        context.note("Request filter disabled, your proxy is vulnerable to XSRF attacks, please be cautious");
    }
    let filter = Arc::new(Filter::new(context)?);
    let client = context.client().await?.clone();
    if !flags.str("unix-socket").is_empty() {
        let listener = UnixListener::bind(flags.str("unix-socket"))?;
        context.print(&format!("Starting to serve on {}\n", flags.str("unix-socket")))?;
        context.flush()?;
        return tokio::select! {
            _ = tokio::signal::ctrl_c() => Ok(()),
            result = async { loop {
                let (stream, _) = listener.accept().await?;
                tokio::spawn(serve(TokioIo::new(stream), client.clone(), filter.clone()));
            } } => result,
        };
    }
    let port = u16::try_from(flags.int("port")).map_err(|_| Error::new("invalid port"))?;
    let listener = TcpListener::bind((flags.str("address"), port)).await?;
    context.print(&format!("Starting to serve on {}\n", listener.local_addr()?))?;
    context.flush()?;
    tokio::select! {
        _ = tokio::signal::ctrl_c() => Ok(()),
        result = async { loop {
            let (stream, _) = listener.accept().await?;
            tokio::spawn(serve(TokioIo::new(stream), client.clone(), filter.clone()));
        } } => result,
    }
}

async fn serve<IO>(io: TokioIo<IO>, client: Arc<Client>, filter: Arc<Filter>)
where
    IO: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin + Send + 'static,
{
    let handle = service_fn(|request| respond(request, client.clone(), filter.clone()));
    // A client that has what it needs closes the connection.
    let _ = hyper::server::conn::http1::Builder::new().serve_connection(io, handle).with_upgrades().await;
}

type Answer = HttpResponse<http_body_util::Either<Full<Bytes>, crate::transport::ResponseBody>>;

fn plain(code: StatusCode, text: impl Into<Bytes>) -> Answer {
    let mut response = HttpResponse::new(http_body_util::Either::Left(Full::new(text.into())));
    *response.status_mut() = code;
    response
}

async fn respond(
    mut request: HttpRequest<Incoming>,
    client: Arc<Client>,
    filter: Arc<Filter>,
) -> std::result::Result<Answer, Infallible> {
    let host = request.headers().get(header::HOST).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let host = host
        .rsplit_once(':')
        .filter(|(_, port)| port.bytes().all(|byte| byte.is_ascii_digit()))
        .map_or(host, |(host, _)| host);
    let path = request.uri().path().to_string();
    if !filter.accepts(request.method().as_str(), &path, host) {
        return Ok(plain(StatusCode::FORBIDDEN, "Forbidden"));
    }
    if let Some((prefix, directory)) = &filter.files
        && let Some(rest) = path.strip_prefix(prefix.as_str())
    {
        return Ok(file(directory, rest));
    }
    let Some(rest) = path.strip_prefix(filter.prefix.as_str()) else {
        return Ok(plain(StatusCode::NOT_FOUND, "404 page not found\n"));
    };
    let query = request.uri().query().map(|query| format!("?{query}")).unwrap_or_default();
    let target = format!("/{}{query}", rest.trim_start_matches('/'));
    if request.headers().contains_key(header::UPGRADE) {
        let upgrade = hyper::upgrade::on(&mut request);
        let (head, _) = request.into_parts();
        return Ok(join(upgrade, client.forward_upgrade(&head, &target).await));
    }
    let (head, body) = request.into_parts();
    let Ok(body) = Limited::new(body, MAX_BODY).collect().await else {
        return Ok(plain(StatusCode::PAYLOAD_TOO_LARGE, "the request is too large\n"));
    };
    match client.forward(&head, &target, body.to_bytes()).await {
        Ok(response) => Ok(response.into_http().map(http_body_util::Either::Right)),
        Err(error) => Ok(plain(StatusCode::BAD_GATEWAY, format!("{error}\n"))),
    }
}

/// Passes the response to an upgrade on, and, if the server agrees, the bytes of both sides until one of them closes.
fn join(upgrade: hyper::upgrade::OnUpgrade, response: Result<HttpResponse<Incoming>>) -> Answer {
    let mut response = match response {
        Ok(response) => response,
        Err(error) => return plain(StatusCode::BAD_GATEWAY, format!("{error}\n")),
    };
    if response.status() != StatusCode::SWITCHING_PROTOCOLS {
        response.headers_mut().remove(header::CONNECTION);
        response.headers_mut().remove(header::TRANSFER_ENCODING);
        return response.map(|body| http_body_util::Either::Right(crate::transport::ResponseBody::new(body)));
    }
    let server = hyper::upgrade::on(&mut response);
    tokio::spawn(async move {
        if let (Ok(client), Ok(server)) = tokio::join!(upgrade, server) {
            let (mut client, mut server) = (TokioIo::new(client), TokioIo::new(server));
            // A side that closes ends the other.
            let _ = tokio::io::copy_bidirectional(&mut client, &mut server).await;
        }
    });
    response.map(|_| http_body_util::Either::Left(Full::default()))
}

fn file(directory: &std::path::Path, rest: &str) -> Answer {
    let relative = api::query::percent_decode(rest.trim_start_matches('/')).into_owned();
    let is_inside =
        std::path::Path::new(&relative).components().all(|part| matches!(part, std::path::Component::Normal(_)));
    let path = directory.join(&relative);
    let path = if path.is_dir() { path.join("index.html") } else { path };
    match std::fs::read(&path) {
        Ok(bytes) if is_inside || relative.is_empty() => plain(StatusCode::OK, bytes),
        _ => plain(StatusCode::NOT_FOUND, "404 page not found\n"),
    }
}

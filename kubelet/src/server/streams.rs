//! Exec, attach and port-forward: the runtime returns the address of the streams, and the client's connection is
//! relayed there.

use std::time::Duration;

use api::query::Query;
use cri::{
    AttachRequest, Code, ContainerFilter, ContainerState, ContainerStateValue, ExecRequest, ExecSyncRequest,
    ListContainersRequest, ListPodSandboxRequest, PodSandboxFilter, PodSandboxState, PodSandboxStateValue,
    PortForwardRequest, Status,
};
use http::uri::PathAndQuery;
use http::{HeaderValue, Request, StatusCode, Uri, header};
use streaming::Timeouts;
use streaming::relay::{RelayMode, RelayResponse, StreamRequest, is_upgrade, relay};
use streaming::remote_command::{Options, Verb};
use tokio::net::TcpStream;

use super::body::{behind, text, whole};
use super::route::ContainerPath;
use super::{Host, ServerResponse};

/// Labels by which the kubelet's containers and sandboxes are found again.
const POD_UID: &str = "io.kubernetes.pod.uid";
const CONTAINER_NAME: &str = "io.kubernetes.container.name";
/// The runtime is on this machine and accepts connections soon.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

pub(crate) struct Streams<'a> {
    pub(crate) host: &'a dyn Host,
    pub(crate) idle: Duration,
}

type Result<T> = std::result::Result<T, ServerResponse>;

impl Streams<'_> {
    pub(crate) async fn exec(&self, request: Request<()>, place: ContainerPath<'_>, query: &Query) -> ServerResponse {
        let command = query.all("command").map(str::to_string).collect();
        self.command(request, place, Verb::Exec, command).await.unwrap_or_else(|refusal| refusal)
    }

    pub(crate) async fn attach(&self, request: Request<()>, place: ContainerPath<'_>, _: &Query) -> ServerResponse {
        self.command(request, place, Verb::Attach, Vec::new()).await.unwrap_or_else(|refusal| refusal)
    }

    async fn command(
        &self,
        request: Request<()>,
        place: ContainerPath<'_>,
        verb: Verb,
        cmd: Vec<String>,
    ) -> Result<ServerResponse> {
        let options = Options::from_query(request.uri().query().unwrap_or_default());
        let options = options.map_err(|error| bad_request(error.to_string()))?;
        let container_id = self.container(place).await?;
        let Options { stdin, stdout, stderr, tty } = options;
        let runtime = self.host.runtime();
        let url = match verb {
            Verb::Exec => {
                let stream_request = ExecRequest { container_id, cmd, tty, stdin, stdout, stderr };
                runtime.exec(stream_request).await.map(|answer| answer.url)
            }
            Verb::Attach => {
                let stream_request = AttachRequest { container_id, stdin, tty, stdout, stderr };
                runtime.attach(stream_request).await.map(|answer| answer.url)
            }
        };
        self.proxy_stream(request, StreamRequest::Command(verb, options), url.map_err(error_response)?).await
    }

    pub(crate) async fn port_forward(
        &self,
        request: Request<()>,
        place: ContainerPath<'_>,
        query: &Query,
    ) -> ServerResponse {
        self.forward(request, place, query).await.unwrap_or_else(|refusal| refusal)
    }

    async fn forward(&self, request: Request<()>, place: ContainerPath<'_>, query: &Query) -> Result<ServerResponse> {
        let port = ports(query).map_err(|error| bad_request(error.to_string()))?;
        let uid = self.uid(place)?;
        if !place.uid.is_empty() && place.uid != uid {
            return Err(text(StatusCode::NOT_FOUND, "pod not found"));
        }
        let pod_sandbox_id = self.sandbox(&uid).await?;
        let url = self.host.runtime().port_forward(PortForwardRequest { pod_sandbox_id, port }).await;
        self.proxy_stream(request, StreamRequest::Forward, url.map_err(error_response)?.url).await
    }

    /// The legacy `run` endpoint: no streams, all output at the end.
    pub(crate) async fn run(&self, place: ContainerPath<'_>, query: &Query) -> ServerResponse {
        let cmd: Vec<String> = query.get("cmd").split(' ').map(str::to_string).collect();
        let container_id = match self.container(place).await {
            Ok(id) => id,
            Err(refusal) => return refusal,
        };
        let name = cmd.join(" ");
        let done = self.host.runtime().exec_sync(ExecSyncRequest { container_id, cmd, timeout: 0 }).await;
        match done {
            Ok(done) => {
                let output = [done.stdout, done.stderr].concat();
                if done.exit_code == 0 {
                    return super::body::respond(StatusCode::OK, "application/json", whole(output));
                }
                let output = String::from_utf8_lossy(&output).into_owned();
                let why = format!("command '{name}' exited with {}: {output}", done.exit_code);
                text(StatusCode::INTERNAL_SERVER_ERROR, why)
            }
            Err(status) => error_response(status),
        }
    }

    fn uid(&self, place: ContainerPath<'_>) -> Result<String> {
        let pod = self.host.pod(place.namespace, place.pod);
        let pod = pod.ok_or_else(|| text(StatusCode::NOT_FOUND, "pod does not exist"))?;
        Ok(crate::model::pod::uid(&pod).to_string())
    }

    /// The container that runs under this name.
    async fn container(&self, place: ContainerPath<'_>) -> Result<String> {
        let missing = || failed(format!("container not found ({:?})\n", place.container));
        let uid = self.uid(place)?;
        if !place.uid.is_empty() && place.uid != uid {
            return Err(missing());
        }
        let labels = [(POD_UID, uid.as_str()), (CONTAINER_NAME, place.container)];
        let filter = ContainerFilter {
            state: Some(ContainerStateValue { state: ContainerState::Running as i32 }),
            label_selector: labels.map(|(key, value)| (key.to_string(), value.to_string())).into(),
            ..ContainerFilter::default()
        };
        let list = self.host.runtime().list_containers(ListContainersRequest { filter: Some(filter) }).await;
        let newest = list.map_err(error_response)?.containers.into_iter().max_by_key(|container| container.created_at);
        newest.map(|container| container.id).ok_or_else(missing)
    }

    async fn sandbox(&self, uid: &str) -> Result<String> {
        let filter = PodSandboxFilter {
            state: Some(PodSandboxStateValue { state: PodSandboxState::Ready as i32 }),
            label_selector: [(POD_UID.to_string(), uid.to_string())].into(),
            ..PodSandboxFilter::default()
        };
        let list = self.host.runtime().list_pod_sandbox(ListPodSandboxRequest { filter: Some(filter) }).await;
        let newest = list.map_err(error_response)?.items.into_iter().max_by_key(|sandbox| sandbox.created_at);
        let missing = || failed(format!("failed to find sandboxID for pod {uid}\n"));
        newest.map(|sandbox| sandbox.id).ok_or_else(missing)
    }

    async fn proxy_stream(
        &self,
        request: Request<()>,
        stream_request: StreamRequest,
        url: String,
    ) -> Result<ServerResponse> {
        if !is_upgrade(request.headers()) {
            return Err(bad_request("Upgrade request required".to_string()));
        }
        let (authority, place) = split(&url).map_err(|error| failed(format!("{error}\n")))?;
        let way = RelayMode::of(request.headers(), stream_request);
        let timeouts = Timeouts { idle: self.idle, ..Timeouts::default() };
        let relayed = relay(request, way, place, timeouts, move |onward| async move {
            send(authority, onward).await.map_err(|error| error.to_string())
        })
        .await;
        match relayed.map_err(|why| failed(format!("error dialing backend: {why}\n")))? {
            RelayResponse::Here(response) => Ok(response.map(|body| {
                use http_body_util::BodyExt;
                body.map_err(|never| match never {}).boxed_unsync()
            })),
            RelayResponse::Behind(response) => Ok(behind(response)),
        }
    }
}

/// A runtime that cannot be connected.
#[derive(Debug, thiserror::Error)]
enum DialError {
    #[error(transparent)]
    Header(#[from] header::InvalidHeaderValue),
    #[error("dial tcp {0}: i/o timeout")]
    Timeout(String),
    #[error("dial tcp {authority}: connect: {source}")]
    Connect { authority: String, source: std::io::Error },
    #[error(transparent)]
    Http(#[from] hyper::Error),
}

/// An address of the runtime that cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("the runtime's streaming address {url:?} cannot be used: {source}")]
struct AddressError {
    url: String,
    source: AddressProblem,
}

#[derive(Debug, thiserror::Error)]
enum AddressProblem {
    #[error(transparent)]
    Uri(http::uri::InvalidUri),
    #[error("unsupported scheme, expected http")]
    Scheme,
    #[error("missing host")]
    NoHost,
}

/// A port that cannot be forwarded.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
enum PortError {
    #[error("port {0:?} must be > 0")]
    Zero(String),
    #[error("unable to parse {text:?} as a port: {source}")]
    Invalid { text: String, source: std::num::ParseIntError },
}

async fn send<B>(
    authority: String,
    mut onward: Request<B>,
) -> std::result::Result<http::Response<hyper::body::Incoming>, DialError>
where
    B: hyper::body::Body<Data: Send, Error: Into<Box<dyn std::error::Error + Send + Sync>>> + Send + 'static,
{
    let host = HeaderValue::from_str(&authority)?;
    onward.headers_mut().insert(header::HOST, host);
    let stream = tokio::time::timeout(CONNECT_TIMEOUT, TcpStream::connect(&authority)).await;
    let stream = stream.map_err(|_| DialError::Timeout(authority.clone()))?;
    let stream = stream.map_err(|source| DialError::Connect { authority, source })?;
    let _ = stream.set_nodelay(true);
    Ok(http_client::send_once(stream, onward).await?)
}

/// The address and path of a runtime's URL. It is on this machine, without TLS.
fn split(url: &str) -> std::result::Result<(String, PathAndQuery), AddressError> {
    let bad = |source| AddressError { url: url.to_string(), source };
    let uri: Uri = url.parse().map_err(|error| bad(AddressProblem::Uri(error)))?;
    if uri.scheme_str() != Some("http") {
        return Err(bad(AddressProblem::Scheme));
    }
    let authority = uri.authority().ok_or_else(|| bad(AddressProblem::NoHost))?;
    let port = authority.port_u16().unwrap_or(80);
    let place = uri.path_and_query().cloned().unwrap_or_else(|| PathAndQuery::from_static("/"));
    Ok((format!("{}:{port}", authority.host()), place))
}

/// For WebSocket, whose channels need all ports in advance; other protocols name them later.
fn ports(query: &Query) -> std::result::Result<Vec<i32>, PortError> {
    let port = |text: &str| match text.parse::<u16>() {
        Ok(0) => Err(PortError::Zero(text.to_string())),
        Ok(port) => Ok(i32::from(port)),
        Err(source) => Err(PortError::Invalid { text: text.to_string(), source }),
    };
    query.all("port").flat_map(|value| value.split(',')).map(port).collect()
}

fn bad_request(why: String) -> ServerResponse {
    text(StatusCode::BAD_REQUEST, why)
}

fn failed(why: String) -> ServerResponse {
    text(StatusCode::INTERNAL_SERVER_ERROR, why)
}

/// The response for a runtime's error.
fn error_response(status: Status) -> ServerResponse {
    let code = match status.code() {
        Code::NotFound => StatusCode::NOT_FOUND,
        Code::ResourceExhausted => StatusCode::TOO_MANY_REQUESTS,
        _ => StatusCode::INTERNAL_SERVER_ERROR,
    };
    text(code, format!("rpc error: code = {:?} desc = {}\n", status.code(), status.message()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn splits_the_runtimes_address() {
        let parts = |url: &str| {
            let parts = split(url).map(|(authority, place)| format!("{authority} {place}"));
            parts.map_err(|error| error.to_string())
        };
        assert_eq!(parts("http://127.0.0.1:4711/exec/x"), Ok("127.0.0.1:4711 /exec/x".to_string()));
        assert_eq!(parts("http://[::1]:4711/exec/x?y=1"), Ok("[::1]:4711 /exec/x?y=1".to_string()));
        assert_eq!(parts("http://host"), Ok("host:80 /".to_string()));
        for url in ["https://127.0.0.1:1/x", "/exec/x", ""] {
            assert!(parts(url).is_err_and(|why| why.contains("streaming address")), "{url}");
        }
    }

    #[test]
    fn reads_ports_from_the_query() {
        let of = |query: &str| ports(&Query::parse(query));
        assert_eq!(of(""), Ok(vec![]));
        assert_eq!(of("port=80&port=81,82"), Ok(vec![80, 81, 82]));
        assert_eq!(of("port=0").map_err(|error| error.to_string()), Err("port \"0\" must be > 0".to_string()));
        assert!(of("port=x").is_err_and(|why| why.to_string().contains("unable to parse \"x\" as a port")));
    }
}

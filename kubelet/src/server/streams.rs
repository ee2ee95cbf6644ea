//! Ways into a container: the runtime says where its streams are, and the client's connection is passed on to there.

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
use streaming::relay::{self, RelayMode, Relayed, StreamRequest, is_upgrade, relay};
use streaming::remote_command::{Options, Verb};
use tokio::net::TcpStream;

use super::body::{behind, text, whole};
use super::route::ContainerPath;
use super::{Answer, Host};

/// Labels by which the agent's containers and sandboxes are found again.
const POD_UID: &str = "io.kubernetes.pod.uid";
const CONTAINER_NAME: &str = "io.kubernetes.container.name";
/// A runtime on this machine answers soon.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

pub struct Streams<'a> {
    pub host: &'a dyn Host,
    pub idle: Duration,
}

type Result<T> = std::result::Result<T, Answer>;

impl Streams<'_> {
    pub async fn exec(&self, request: Request<()>, place: ContainerPath<'_>, query: &Query) -> Answer {
        let command = query.all("command").map(str::to_string).collect();
        self.command(request, place, Verb::Exec, command).await.unwrap_or_else(|refusal| refusal)
    }

    pub async fn attach(&self, request: Request<()>, place: ContainerPath<'_>, _: &Query) -> Answer {
        self.command(request, place, Verb::Attach, Vec::new()).await.unwrap_or_else(|refusal| refusal)
    }

    async fn command(
        &self,
        request: Request<()>,
        place: ContainerPath<'_>,
        verb: Verb,
        cmd: Vec<String>,
    ) -> Result<Answer> {
        let options = Options::from_query(request.uri().query().unwrap_or_default()).map_err(bad_request)?;
        let container_id = self.container(place).await?;
        let Options { stdin, stdout, stderr, tty } = options;
        let runtime = self.host.runtime();
        let url = match verb {
            Verb::Exec => {
                let asked = ExecRequest { container_id, cmd, tty, stdin, stdout, stderr };
                runtime.exec(asked).await.map(|answer| answer.url)
            }
            Verb::Attach => {
                let asked = AttachRequest { container_id, stdin, tty, stdout, stderr };
                runtime.attach(asked).await.map(|answer| answer.url)
            }
        };
        self.pass(request, StreamRequest::Command(verb, options), url.map_err(refused)?).await
    }

    pub async fn port_forward(&self, request: Request<()>, place: ContainerPath<'_>, query: &Query) -> Answer {
        self.forward(request, place, query).await.unwrap_or_else(|refusal| refusal)
    }

    async fn forward(&self, request: Request<()>, place: ContainerPath<'_>, query: &Query) -> Result<Answer> {
        let port = ports(query).map_err(bad_request)?;
        let uid = self.uid(place)?;
        if !place.uid.is_empty() && place.uid != uid {
            return Err(text(StatusCode::NOT_FOUND, "pod not found"));
        }
        let pod_sandbox_id = self.sandbox(&uid).await?;
        let url = self.host.runtime().port_forward(PortForwardRequest { pod_sandbox_id, port }).await;
        self.pass(request, StreamRequest::Forward, url.map_err(refused)?.url).await
    }

    /// The old way to run a command: no streams, all of the output at its end.
    pub async fn run(&self, place: ContainerPath<'_>, query: &Query) -> Answer {
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
                    return super::body::answer(StatusCode::OK, "application/json", whole(output));
                }
                let output = String::from_utf8_lossy(&output).into_owned();
                let why = format!("command '{name}' exited with {}: {output}", done.exit_code);
                text(StatusCode::INTERNAL_SERVER_ERROR, why)
            }
            Err(status) => refused(status),
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
        let newest = list.map_err(refused)?.containers.into_iter().max_by_key(|container| container.created_at);
        newest.map(|container| container.id).ok_or_else(missing)
    }

    async fn sandbox(&self, uid: &str) -> Result<String> {
        let filter = PodSandboxFilter {
            state: Some(PodSandboxStateValue { state: PodSandboxState::Ready as i32 }),
            label_selector: [(POD_UID.to_string(), uid.to_string())].into(),
            ..PodSandboxFilter::default()
        };
        let list = self.host.runtime().list_pod_sandbox(ListPodSandboxRequest { filter: Some(filter) }).await;
        let newest = list.map_err(refused)?.items.into_iter().max_by_key(|sandbox| sandbox.created_at);
        let missing = || failed(format!("failed to find sandboxID for pod {uid}\n"));
        newest.map(|sandbox| sandbox.id).ok_or_else(missing)
    }

    async fn pass(&self, request: Request<()>, asked: StreamRequest, url: String) -> Result<Answer> {
        if !is_upgrade(request.headers()) {
            return Err(bad_request("Upgrade request required".to_string()));
        }
        let (authority, place) = split(&url).map_err(failed)?;
        let way = RelayMode::of(request.headers(), asked);
        let timeouts = Timeouts { idle: self.idle, ..Timeouts::default() };
        let relayed = relay(request, way, place, timeouts, move |onward| send(authority, onward)).await;
        match relayed.map_err(|why| failed(format!("error dialing backend: {why}\n")))? {
            Relayed::Here(response) => Ok(response.map(|body| {
                use http_body_util::BodyExt;
                body.map_err(|never| match never {}).boxed_unsync()
            })),
            Relayed::Behind(response) => Ok(behind(response)),
        }
    }
}

async fn send<B>(
    authority: String,
    mut onward: Request<B>,
) -> std::result::Result<http::Response<hyper::body::Incoming>, String>
where
    B: hyper::body::Body<Data: Send, Error: Into<Box<dyn std::error::Error + Send + Sync>>> + Send + 'static,
{
    let host = HeaderValue::from_str(&authority).map_err(|error| error.to_string())?;
    onward.headers_mut().insert(header::HOST, host);
    let stream = tokio::time::timeout(CONNECT_TIMEOUT, TcpStream::connect(&authority)).await;
    let stream = stream.map_err(|_| format!("dial tcp {authority}: i/o timeout"))?;
    let stream = stream.map_err(|error| format!("dial tcp {authority}: connect: {error}"))?;
    let _ = stream.set_nodelay(true);
    relay::send(stream, onward).await.map_err(|error| error.to_string())
}

/// Where a runtime's address leads. It is on this machine, and plain.
fn split(url: &str) -> std::result::Result<(String, PathAndQuery), String> {
    let bad = |why: &str| format!("the runtime's streaming address {url:?} cannot be used: {why}\n");
    let uri: Uri = url.parse().map_err(|error: http::uri::InvalidUri| bad(&error.to_string()))?;
    if uri.scheme_str() != Some("http") {
        return Err(bad("only http is spoken to a runtime"));
    }
    let authority = uri.authority().ok_or_else(|| bad("it names no host"))?;
    let port = authority.port_u16().unwrap_or(80);
    let place = uri.path_and_query().cloned().unwrap_or_else(|| PathAndQuery::from_static("/"));
    Ok((format!("{}:{port}", authority.host()), place))
}

/// For channels of WebSocket, which have to be told of all ports before; others name them later.
fn ports(query: &Query) -> std::result::Result<Vec<i32>, String> {
    let port = |text: &str| match text.parse::<u16>() {
        Ok(0) => Err(format!("port {text:?} must be > 0")),
        Ok(port) => Ok(i32::from(port)),
        Err(error) => Err(format!("unable to parse {text:?} as a port: {error}")),
    };
    query.all("port").flat_map(|value| value.split(',')).map(port).collect()
}

fn bad_request(why: String) -> Answer {
    text(StatusCode::BAD_REQUEST, why)
}

fn failed(why: String) -> Answer {
    text(StatusCode::INTERNAL_SERVER_ERROR, why)
}

/// What a runtime refused.
fn refused(status: Status) -> Answer {
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
    fn a_runtime_s_address_is_taken_apart() {
        let parts = |url: &str| split(url).map(|(authority, place)| format!("{authority} {place}"));
        assert_eq!(parts("http://127.0.0.1:4711/exec/x"), Ok("127.0.0.1:4711 /exec/x".to_string()));
        assert_eq!(parts("http://[::1]:4711/exec/x?y=1"), Ok("[::1]:4711 /exec/x?y=1".to_string()));
        assert_eq!(parts("http://host"), Ok("host:80 /".to_string()));
        for url in ["https://127.0.0.1:1/x", "/exec/x", ""] {
            assert!(parts(url).is_err_and(|why| why.contains("streaming address")), "{url}");
        }
    }

    #[test]
    fn ports_are_named_in_the_query() {
        let of = |query: &str| ports(&Query::parse(query));
        assert_eq!(of(""), Ok(vec![]));
        assert_eq!(of("port=80&port=81,82"), Ok(vec![80, 81, 82]));
        assert_eq!(of("port=0"), Err("port \"0\" must be > 0".to_string()));
        assert!(of("port=x").is_err_and(|why| why.contains("unable to parse \"x\" as a port")));
    }
}

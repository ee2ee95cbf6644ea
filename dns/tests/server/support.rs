//! A server, its clients and its upstreams.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use client::{Body, Client, ResponseFuture, Transport};
use dns::message::{Data, Message, Name, Question, Rcode, Record, Type};
use dns::{Cluster, Config, CorefileSource, DnsHandle, HttpEndpoints, Limits, Listen, Server};
use stdx::clock::SystemClock;
use stdx::wait::{until_async, until_ok_await};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UdpSocket};
use tokio::sync::{mpsc, watch};

pub const WAIT: Duration = Duration::from_secs(10);

pub fn name(text: &str) -> Name {
    Name::parse(text).expect("a name")
}

pub fn query(text: &str, qtype: Type) -> Message {
    Message::query(4711, Question::new(name(text), qtype))
}

pub fn config(corefile: CorefileSource) -> Config {
    Config {
        corefile,
        default_port: 53,
        listen: Listen::At(vec!["127.0.0.1:0".parse().expect("an address")]),
        http: HttpEndpoints::Disabled,
        node_name: None,
        resolv_conf: "/nonexistent/resolv.conf".into(),
        limits: Limits::default(),
        clock: Arc::new(SystemClock),
    }
}

/// A server with a Corefile, at a port that is free.
pub async fn start(corefile: &str) -> (DnsHandle, SocketAddr) {
    start_with(config(CorefileSource::Text(corefile.to_string())), None).await
}

pub async fn start_with(config: Config, cluster: Option<Cluster>) -> (DnsHandle, SocketAddr) {
    let running = Server::start(config, cluster).await.expect("the server starts");
    let address = running.addresses()[0];
    (running, address)
}

/// The response by UDP.
pub async fn ask(server: SocketAddr, query: &Message) -> Message {
    let socket = UdpSocket::bind("127.0.0.1:0").await.expect("a socket");
    ask_from(&socket, server, query).await
}

pub async fn ask_from(socket: &UdpSocket, server: SocketAddr, query: &Message) -> Message {
    socket.send_to(&query.write(65535), server).await.expect("sent");
    let mut bytes = vec![0; 65535];
    let received = tokio::time::timeout(WAIT, socket.recv_from(&mut bytes)).await.expect("a response in time");
    let (length, from) = received.expect("a response");
    assert_eq!(from, server, "the response comes from where the query went");
    let response = Message::read(&bytes[..length]).expect("a message");
    assert_eq!((response.header.id, response.header.is_response), (query.header.id, true));
    response
}

/// The responses by TCP to several queries that are sent at once, by their IDs.
pub async fn ask_by_tcp(server: SocketAddr, queries: &[Message]) -> BTreeMap<u16, Message> {
    let mut stream = TcpStream::connect(server).await.expect("a connection");
    let mut bytes = Vec::new();
    for query in queries {
        let query = query.write(65535);
        bytes.extend(u16::try_from(query.len()).expect("short").to_be_bytes());
        bytes.extend(query);
    }
    stream.write_all(&bytes).await.expect("sent");
    let mut responses = BTreeMap::new();
    for _ in queries {
        let length = tokio::time::timeout(WAIT, stream.read_u16()).await.expect("in time").expect("a response");
        let mut bytes = vec![0; usize::from(length)];
        stream.read_exact(&mut bytes).await.expect("a whole response");
        let response = Message::read(&bytes).expect("a message");
        responses.insert(response.header.id, response);
    }
    responses
}

/// The addresses of a response, and its code.
pub fn shown(response: &Message) -> String {
    let record = |record: &Record| match &record.data {
        Data::A(address) => address.to_string(),
        Data::Aaaa(address) => address.to_string(),
        Data::Name(name) => name.to_string(),
        other => format!("{other:?}"),
    };
    let mut words = vec![response.header.rcode.to_string()];
    words.extend(response.answers.iter().map(record));
    words.join(" ")
}

pub async fn lookup(server: SocketAddr, text: &str, qtype: Type) -> String {
    shown(&ask(server, &query(text, qtype)).await)
}

/// Waits until a name resolves to what is expected.
pub async fn eventually(server: SocketAddr, text: &str, want: &str) {
    let look = async || {
        let found = lookup(server, text, Type::A).await;
        if found == want { Ok(()) } else { Err(found) }
    };
    until_ok_await(&format!("{text}: {want}"), WAIT, look).await;
}

/// Waits until all names of the cluster are known.
pub async fn ready(running: &DnsHandle) {
    until_async("ready", WAIT, || running.is_ready()).await;
}

type Answer = Box<dyn Fn(&Message) -> Option<Message> + Send + Sync>;

/// Each with its transport and its client.
type Queries = Arc<Mutex<Vec<(&'static str, Message, SocketAddr)>>>;

/// A resolver whose answers the test defines, and that counts its queries.
pub struct Upstream {
    pub address: SocketAddr,
    queries: Queries,
}

impl Upstream {
    pub async fn start(answer: impl Fn(&Message) -> Option<Message> + Send + Sync + 'static) -> Upstream {
        let tcp = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = tcp.local_addr().expect("an address");
        let udp = UdpSocket::bind(address).await.expect("the same port");
        let (answer, queries): (Arc<Answer>, _) = (Arc::new(Box::new(answer)), Arc::new(Mutex::default()));
        tokio::spawn(serve_udp(udp, answer.clone(), queries.clone()));
        tokio::spawn(serve_tcp(tcp, answer, queries.clone()));
        Upstream { address, queries }
    }

    /// One that has the same address for every name.
    pub async fn with(last: u8) -> Upstream {
        Upstream::start(move |query| Some(address_of(query, last, 60))).await
    }

    /// The queries so far, without health checks.
    pub fn queries(&self) -> Vec<(&'static str, Message, SocketAddr)> {
        let queries = self.queries.lock().expect("a lock");
        let is_real = |query: &Message| query.question.as_ref().is_some_and(|question| !question.name.is_root());
        queries.iter().filter(|(_, query, _)| is_real(query)).cloned().collect()
    }

    pub fn count(&self) -> usize {
        self.queries().len()
    }
}

/// An answer of 10.9.9.LAST.
pub fn address_of(query: &Message, last: u8, ttl: u32) -> Message {
    let mut response = query.reply(Rcode::NO_ERROR);
    response.header.recursion_available = true;
    let question = query.question.as_ref().expect("a question");
    if question.qtype == Type::A {
        response.answers.push(Record::address(question.name.clone(), ttl, [10, 9, 9, last].into()));
    }
    response
}

async fn serve_udp(socket: UdpSocket, answer: Arc<Answer>, queries: Queries) {
    let mut bytes = vec![0; 4096];
    while let Ok((length, from)) = socket.recv_from(&mut bytes).await {
        let query = Message::read(&bytes[..length]).expect("a query");
        queries.lock().expect("a lock").push(("udp", query.clone(), from));
        if let Some(response) = answer(&query) {
            let limit = query.edns.map_or(512, |edns| usize::from(edns.payload));
            let _ = socket.send_to(&response.write(limit), from).await;
        }
    }
}

async fn serve_tcp(listener: TcpListener, answer: Arc<Answer>, queries: Queries) {
    while let Ok((mut stream, from)) = listener.accept().await {
        let Ok(length) = stream.read_u16().await else { continue };
        let mut bytes = vec![0; usize::from(length)];
        stream.read_exact(&mut bytes).await.expect("a query");
        let query = Message::read(&bytes).expect("a query");
        queries.lock().expect("a lock").push(("tcp", query.clone(), from));
        if let Some(response) = answer(&query) {
            let bytes = response.write(65535);
            let _ = stream.write_u16(u16::try_from(bytes.len()).expect("short")).await;
            let _ = stream.write_all(&bytes).await;
        }
    }
}

/// An API server in memory: lists, and watches that the test feeds.
#[derive(Default)]
pub struct FakeApi {
    state: Mutex<ApiState>,
    is_paused: watch::Sender<bool>,
}

#[derive(Default)]
struct ApiState {
    /// By path of the collection, and by namespace and name.
    objects: BTreeMap<String, BTreeMap<String, String>>,
    watchers: Vec<(String, mpsc::UnboundedSender<Bytes>)>,
    /// All events, by revision and collection.
    events: Vec<(u64, String, Bytes)>,
    revision: u64,
    paths: Vec<String>,
}

impl FakeApi {
    /// Creates or changes an object, whose JSON lacks its resourceVersion; returns that.
    pub fn put(&self, collection: &str, object: &str) -> u64 {
        let mut state = self.state.lock().expect("a lock");
        state.revision += 1;
        let version = format!(r#""metadata":{{"resourceVersion":"{}","#, state.revision);
        // An event is a line.
        let object = object.replacen(r#""metadata":{"#, &version, 1).replace('\n', " ");
        state.objects.entry(collection.to_string()).or_default().insert(key_of(&object), object.clone());
        state.notify(collection, "MODIFIED", &object);
        state.revision
    }

    pub fn delete(&self, collection: &str, key: &str) {
        let mut state = self.state.lock().expect("a lock");
        state.revision += 1;
        let object = state.objects.get_mut(collection).and_then(|objects| objects.remove(key)).expect("an object");
        let old = format!(r#""resourceVersion":"{}""#, version_of(&object));
        let object = object.replacen(&old, &format!(r#""resourceVersion":"{}""#, state.revision), 1);
        state.notify(collection, "DELETED", &object);
    }

    /// Requests wait until this is false.
    pub fn pause(&self, is_paused: bool) {
        self.is_paused.send_replace(is_paused);
    }

    pub fn paths(&self) -> Vec<String> {
        self.state.lock().expect("a lock").paths.clone()
    }

    pub fn cluster(self: &Arc<FakeApi>) -> Cluster {
        let client = Client::new(Arc::new(Fake(self.clone())), "test");
        Cluster { client }
    }
}

fn tree(object: &str) -> api::Tree {
    api::json::decode(object.as_bytes()).expect("JSON")
}

fn key_of(object: &str) -> String {
    client::key_of(&tree(object)).to_string()
}

fn version_of(object: &str) -> String {
    tree(object).str("metadata.resourceVersion").to_string()
}

impl ApiState {
    fn notify(&mut self, collection: &str, kind: &str, object: &str) {
        let line = Bytes::from(format!("{{\"type\":\"{kind}\",\"object\":{object}}}\n"));
        self.events.push((self.revision, collection.to_string(), line.clone()));
        self.watchers.retain(|(of, sender)| of != collection || sender.send(line.clone()).is_ok());
    }
}

struct Fake(Arc<FakeApi>);

impl Transport for Fake {
    fn send(&self, request: http::Request<Bytes>) -> ResponseFuture<'_> {
        let path = request.uri().path().to_string();
        let is_watch = request.uri().query().unwrap_or_default().contains("watch=");
        let mut paused = self.0.is_paused.subscribe();
        let mut state = self.0.state.lock().expect("a lock");
        state.paths.push(request.uri().to_string());
        let body = if is_watch {
            let (sender, receiver) = mpsc::unbounded_channel();
            let query = request.uri().query().unwrap_or_default();
            let from = query.split('&').find_map(|pair| pair.strip_prefix("resourceVersion="));
            let from: u64 = from.and_then(|version| version.parse().ok()).expect("a version");
            let missed = state.events.iter().filter(|(revision, of, _)| *revision > from && *of == path);
            missed.for_each(|(_, _, line)| sender.send(line.clone()).expect("the receiver exists"));
            state.watchers.push((path, sender));
            Body::new(Lines(receiver))
        } else {
            let objects: Vec<&str> =
                state.objects.get(&path).into_iter().flat_map(|all| all.values()).map(String::as_str).collect();
            let list = format!(
                r#"{{"kind":"List","apiVersion":"v1","metadata":{{"resourceVersion":"{}"}},"items":[{}]}}"#,
                state.revision,
                objects.join(",")
            );
            Body::new(http_body_util::Full::new(Bytes::from(list)))
        };
        Box::pin(async move {
            let _ = paused.wait_for(|is_paused| !*is_paused).await;
            Ok(http::Response::new(body))
        })
    }
}

/// The lines of a watch.
struct Lines(mpsc::UnboundedReceiver<Bytes>);

impl http_body::Body for Lines {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        mut self: std::pin::Pin<&mut Self>,
        context: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Result<http_body::Frame<Bytes>, Self::Error>>> {
        self.0.poll_recv(context).map(|line| line.map(|line| Ok(http_body::Frame::data(line))))
    }
}

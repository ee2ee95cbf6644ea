//! An API server with many Services, in this process: what a proxy or a DNS reads, and changes of endpoints on demand.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use client::{Body, Client, ResponseFuture, Transport};
use http_body::Frame;
use stdx::sync::Mutex;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

/// The endpoints of each Service.
pub(crate) const ENDPOINTS: usize = 10;
const NAMESPACES: usize = 50;

/// The server.
pub(crate) struct LargeCluster {
    services: usize,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    revision: u64,
    /// Watches of EndpointSlices.
    watches: Vec<UnboundedSender<Bytes>>,
}

impl LargeCluster {
    /// With so many Services of ten endpoints each.
    pub(crate) fn new(services: usize) -> Arc<LargeCluster> {
        Arc::new(LargeCluster { services, state: Mutex::new(State { revision: 1, ..State::default() }) })
    }

    /// A client of it.
    pub(crate) fn client(self: &Arc<LargeCluster>) -> Client {
        Client::new(self.clone(), "bench")
    }

    /// Sends a slice of a Service to all watches.
    pub(crate) fn set_endpoints(&self, service: usize, addresses: &[String], port: u16) {
        let mut state = self.state.lock();
        state.revision += 1;
        let object = slice_of(service, state.revision, addresses, port);
        let line = Bytes::from(format!("{{\"type\":\"MODIFIED\",\"object\":{object}}}\n"));
        state.watches.retain(|watch| watch.send(line.clone()).is_ok());
    }

    fn respond(&self, request: &http::Request<Bytes>) -> Body {
        let query = request.uri().query().unwrap_or_default();
        let last = request.uri().path().rsplit('/').next().unwrap_or_default();
        if request.method() != http::Method::GET {
            return text("{}".to_string());
        }
        if query.contains("watch=") {
            return Body::new(Watch((last == "endpointslices").then(|| self.watch())));
        }
        let number = |key: &str| {
            let mut pairs = query.split('&').filter_map(|pair| pair.split_once('='));
            pairs.find(|(name, _)| *name == key).and_then(|(_, value)| value.parse::<usize>().ok())
        };
        text(self.list(last, number("continue").unwrap_or(0), number("limit").unwrap_or(usize::MAX)))
    }

    fn watch(&self) -> UnboundedReceiver<Bytes> {
        let (sender, receiver) = unbounded_channel();
        self.state.lock().watches.push(sender);
        receiver
    }

    /// A page of a list.
    fn list(&self, resource: &str, start: usize, limit: usize) -> String {
        let (count, item): (usize, fn(usize) -> String) = match resource {
            "namespaces" => (NAMESPACES, |n| meta(&format!(r#""name":"ns-{n}""#), 1, "")),
            "services" => (self.services, service),
            "endpointslices" => (self.services, |n| slice_of(n, 1, &endpoints_of(n), 8080)),
            _ => (0, service),
        };
        let end = count.min(start.saturating_add(limit));
        let items: Vec<String> = (start..end).map(item).collect();
        let more = if end < count { format!(r#","continue":"{end}""#) } else { String::new() };
        format!(r#"{{"kind":"List","metadata":{{"resourceVersion":"1"{more}}},"items":[{}]}}"#, items.join(","))
    }
}

impl Transport for LargeCluster {
    fn send(&self, request: http::Request<Bytes>) -> ResponseFuture<'_> {
        Box::pin(async move { Ok(http::Response::new(self.respond(&request))) })
    }
}

fn text(text: String) -> Body {
    Body::new(http_body_util::Full::new(Bytes::from(text)))
}

/// The DNS name of a Service.
pub(crate) fn name_of(service: usize) -> String {
    format!("svc-{service}.ns-{}.svc.cluster.local", service % NAMESPACES)
}

/// The cluster IP of a Service.
pub(crate) fn cluster_ip_of(service: usize) -> String {
    format!("10.{}.{}.{}", 96 + service / 65536, service / 256 % 256, service % 256)
}

/// The addresses of a Service's endpoints.
pub(crate) fn endpoints_of(service: usize) -> Vec<String> {
    let numbers = (0..ENDPOINTS).map(|at| service * ENDPOINTS + at);
    numbers.map(|n| format!("10.{}.{}.{}", 200 + n / 65536, n / 256 % 256, n % 256)).collect()
}

fn meta(meta: &str, revision: u64, rest: &str) -> String {
    format!(r#"{{"metadata":{{{meta},"resourceVersion":"{revision}"}}{rest}}}"#)
}

fn service(n: usize) -> String {
    let address = cluster_ip_of(n);
    let spec = format!(
        r#","spec":{{"type":"ClusterIP","clusterIP":"{address}","clusterIPs":["{address}"],"ports":[{{"name":"http","port":80,"protocol":"TCP"}}]}}"#
    );
    meta(&format!(r#""namespace":"ns-{}","name":"svc-{n}","uid":"s{n}""#, n % NAMESPACES), 1, &spec)
}

fn slice_of(n: usize, revision: u64, addresses: &[String], port: u16) -> String {
    let endpoint = |(at, address): (usize, &String)| {
        format!(
            r#"{{"addresses":["{address}"],"conditions":{{"ready":true,"serving":true,"terminating":false}},"nodeName":"node-{}","targetRef":{{"kind":"Pod","name":"svc-{n}-6d4cf56db6-{at:05}","namespace":"ns-{}"}}}}"#,
            (n * ENDPOINTS + at) % 100,
            n % NAMESPACES
        )
    };
    let endpoints: Vec<String> = addresses.iter().enumerate().map(endpoint).collect();
    let labels = format!(r#""labels":{{"kubernetes.io/service-name":"svc-{n}"}}"#);
    let rest = format!(
        r#","addressType":"IPv4","ports":[{{"name":"http","port":{port},"protocol":"TCP"}}],"endpoints":[{}]"#,
        endpoints.join(",")
    );
    let names = format!(r#""namespace":"ns-{}","name":"svc-{n}-abcde","uid":"e{n}",{labels}"#, n % NAMESPACES);
    meta(&names, revision, &rest)
}

/// A watch; without a receiver, one that never has an event.
struct Watch(Option<UnboundedReceiver<Bytes>>);

impl http_body::Body for Watch {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<std::result::Result<Frame<Bytes>, Infallible>>> {
        match &mut self.0 {
            Some(events) => events.poll_recv(context).map(|line| line.map(|line| Ok(Frame::data(line)))),
            None => Poll::Pending,
        }
    }
}

//! Pods created and bound through the API, durably: how many a second, and how long each waits.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use stdx::sync::Mutex;
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;

use super::Size;
use super::workloads::{BASIC, OTHERS, SHORT, URGENT, URGENT_CLASS, URGENT_PRIORITY, Workload, node};
use crate::child::Server;
use crate::figure::{BenchmarkResult, Goal, Report};
use crate::figures::Plan;
use crate::load::Side;
use crate::objects::{PODS, Template};
use crate::{Failure, Result};

const WRITERS: usize = 64;
/// Pods that are not bound within this time never are.
const PATIENCE: Duration = Duration::from_secs(120);
/// Of the rate at which the same pods are created without a scheduler; a bound pod costs a binding and an event.
const MUST: f64 = 0.5;

/// Of the other shapes, this part of the pods.
const PART: u64 = 5;

pub(super) async fn run(size: &Size, plan: &Plan, report: &mut Report) -> Result<()> {
    let mut creation = Creation::start(size, plan).await?;
    let server = start(size, plan, "bound", &[]).await?;
    let before = Times::new(size.before);
    bind(&server, &BASIC, "before", &before).await?;
    // Before and after: the machine may be another by then.
    let first = creation.rate("p").await?;
    let basic = Times::new(size.pods);
    let rate = bind(&server, &BASIC, "p", &basic).await?;
    let created = f64::midpoint(first, creation.rate("q").await?);
    creation.server.stop().await?;
    let goal = Goal::Nothing;
    report.add(&BenchmarkResult { name: "pods created and bound", value: rate, unit: "1/s", limit: created, goal });
    report_waits("create to bound", &basic, report);
    let (event_count, pods) = (events(&server).await?, (size.before + size.pods) as f64);
    report.add(&BenchmarkResult {
        name: "events of bindings",
        value: event_count,
        unit: "",
        limit: pods,
        goal: Goal::AtLeast(1.0),
    });
    for workload in &OTHERS {
        let times = Times::new(size.pods / PART);
        let rate = bind(&server, workload, workload.name, &times).await?;
        report_rate(workload.name, rate, created, &times, report);
    }
    measure_churn(&server, size, created, report).await?;
    server.stop().await?;
    report.progress("binding the pods of a server that had no scheduler");
    let (bound, goal) = (bind_waiting(plan).await?, Goal::AtLeast(MUST));
    report.add(&BenchmarkResult { name: "pods bound", value: bound, unit: "1/s", limit: created, goal });
    preempted(size, plan, created, report).await
}

fn report_rate(name: &str, rate: f64, created: f64, times: &Times, report: &mut Report) {
    let bound = named(format!("{name}, created and bound"));
    report.add(&BenchmarkResult { name: bound, value: rate, unit: "1/s", limit: created, goal: Goal::Nothing });
    report_waits(&format!("{name}, create to bound"), times, report);
}

fn report_waits(name: &str, times: &Times, report: &mut Report) {
    let mut waits = times.waits();
    waits.sort_unstable();
    for part in [50, 99] {
        let last = waits.len().saturating_sub(1);
        let value = waits.get((waits.len() * part / 100).min(last)).map_or(0.0, |wait| wait.as_secs_f64() * 1e3);
        let name = named(format!("{name}, p{part}"));
        report.add(&BenchmarkResult { name, value, unit: "ms", limit: 0.0, goal: Goal::Nothing });
    }
}

/// Figures have names that last; there are few of them.
fn named(name: String) -> &'static str {
    Box::leak(name.into_boxed_str())
}

/// The same while nodes change all the time.
async fn measure_churn(server: &Server, size: &Size, created: f64, report: &mut Report) -> Result<()> {
    let (mut connection, nodes) = (server.connect().await?, size.nodes);
    let churn = tokio::spawn(async move {
        for turn in 1.. {
            for number in 0..nodes {
                let path = format!("/api/v1/nodes/node-{number}");
                let request = Template::put(&path, node(number, turn).as_bytes());
                connection.fetch(request.bytes()).await?;
                tokio::time::sleep(CHURN).await;
            }
        }
        Ok::<(), Failure>(())
    });
    let times = Times::new(size.pods / PART);
    let rate = bind(server, &BASIC, "churn", &times).await;
    churn.abort();
    report_rate("basic with churn", rate?, created, &times, report);
    Ok(())
}

/// Between two changes of nodes.
const CHURN: Duration = Duration::from_millis(5);

/// Nodes full of pods of low priority, and pods that preempt them.
async fn preempted(size: &Size, plan: &Plan, created: f64, report: &mut Report) -> Result<()> {
    let count = size.nodes / 10;
    let size = Size { nodes: count, before: 0, pods: count, reference: 0 };
    let server = start(&size, plan, "preempted", &[]).await?;
    let class = Template::post("/apis/scheduling.k8s.io/v1/priorityclasses", URGENT_CLASS);
    server.connect().await?.exchange(class.bytes()).await?;
    let low = Times::new(count);
    bind_pods(&server, &SHORT.pod("low-########", "3500m", 0), "low", &low).await?;
    let high = Times::new(count / 2);
    let rate = bind_pods(&server, &URGENT.pod("high-########", "3500m", URGENT_PRIORITY), "high", &high).await?;
    report_rate("preemption", rate, created, &high, report);
    server.stop().await
}

async fn start(size: &Size, plan: &Plan, name: &str, flags: &[&str]) -> Result<Server> {
    let flags: Vec<&str> = ["--controllers=-*"].into_iter().chain(flags.iter().copied()).collect();
    let server = Server::api_with(&plan.data(name), &flags).await?;
    let mut tasks = Vec::new();
    for part in 0..16 {
        let (mut connection, nodes) = (server.connect().await?, size.nodes);
        tasks.push(tokio::spawn(async move {
            for number in (part..nodes).step_by(16) {
                let request = Template::post("/api/v1/nodes", &node(number, 0));
                connection.fetch(request.bytes()).await?;
                // A new node is tainted until its kubelet reports ready, and there is no kubelet.
                let request = Template::put(&format!("/api/v1/nodes/node-{number}"), node(number, 0).as_bytes());
                connection.fetch(request.bytes()).await?;
            }
            Ok::<(), Failure>(())
        }));
    }
    for task in tasks {
        task.await??;
    }
    Ok(server)
}

fn pods(prefix: &str) -> Template {
    Template::post(PODS, &BASIC.pod(&format!("{prefix}-########"), "100m", 0))
}

/// The data directory of the pods without a scheduler.
const CREATED: &str = "created";

/// The same pods without a scheduler.
struct Creation {
    server: Server,
    pods: u64,
}

impl Creation {
    async fn start(size: &Size, plan: &Plan) -> Result<Creation> {
        let server = start(size, plan, CREATED, &["--disable-scheduler"]).await?;
        Side::open(&server, WRITERS, pods("before")).await?.fill(size.before).await?;
        Ok(Creation { server, pods: size.pods })
    }

    async fn rate(&mut self, prefix: &str) -> Result<f64> {
        let mut side = Side::open(&self.server, WRITERS, pods(prefix)).await?;
        let began = Instant::now();
        side.fill(self.pods).await?;
        Ok(self.pods as f64 / began.elapsed().as_secs_f64())
    }
}

/// How many of the pods that were created without a scheduler are bound a second, once there is one: a binding and an
/// event each, and nothing else is written meanwhile.
async fn bind_waiting(plan: &Plan) -> Result<f64> {
    let server = Server::api_with(&plan.data(CREATED), &["--controllers=-*"]).await?;
    let bound = Arc::new(Mutex::new(ObservedBindings::default()));
    let stream = watch_bound(&server).await?;
    let counting = tokio::spawn(count_bound(stream, bound.clone()));
    let deadline = Instant::now() + PATIENCE;
    while count_pods(&server, "fieldSelector=spec.nodeName%3D").await? > 0 {
        if Instant::now() > deadline {
            return Err("pods are not bound".into());
        }
        tokio::time::sleep(SETTLING).await;
    }
    counting.abort();
    server.stop().await?;
    Ok(bound.lock().rate())
}

/// Bindings as they were seen.
#[derive(Default)]
struct ObservedBindings {
    first: Option<Instant>,
    last: Option<Instant>,
    /// All but those that were seen first.
    count: u64,
}

impl ObservedBindings {
    fn add(&mut self, at: Instant, count: u64) {
        match self.first {
            Some(_) => self.count += count,
            None => self.first = Some(at),
        }
        self.last = Some(at);
    }

    fn rate(&self) -> f64 {
        let took = self.first.zip(self.last).map_or(Duration::ZERO, |(first, last)| last - first);
        if took.is_zero() { 0.0 } else { self.count as f64 / took.as_secs_f64() }
    }
}

async fn count_bound(mut stream: TlsStream<TcpStream>, bound: Arc<Mutex<ObservedBindings>>) -> Result<()> {
    let (mut raw, mut text) = (Vec::with_capacity(1 << 20), Vec::with_capacity(1 << 20));
    while stream.read_buf(&mut raw).await? > 0 {
        take_chunks(&mut raw, &mut text)?;
        let lines = memchr::memchr_iter(b'\n', &text).count() as u64;
        text.clear();
        if lines > 0 {
            bound.lock().add(Instant::now(), lines);
        }
    }
    Ok(())
}

async fn count_pods(server: &Server, query: &str) -> Result<i64> {
    let request = Template::get(&format!("{PODS}?limit=1&{query}"));
    count_items(&server.connect().await?.fetch(request.bytes()).await?)
}

/// How many objects there are, by the first page of their list. A page with a selector does not say how many follow.
fn count_items(page: &[u8]) -> Result<i64> {
    let page = api::json::decode(page).map_err(|error| error.to_string())?;
    Ok(page.list("items").len() as i64 + page.int("metadata.remainingItemCount").unwrap_or(0))
}

/// How many events there are, once there come no more: each binding has one, and none may be lost.
async fn events(server: &Server) -> Result<f64> {
    let mut connection = server.connect().await?;
    let request = Template::get("/api/v1/namespaces/default/events?limit=1");
    let mut before = 0;
    loop {
        let count = count_items(&connection.fetch(request.bytes()).await?)?;
        if count == before {
            return Ok(count as f64);
        }
        before = count;
        tokio::time::sleep(SETTLING).await;
    }
}

/// In which the events of the last bindings are written.
const SETTLING: Duration = Duration::from_millis(300);

/// When each pod was created and bound, in nanoseconds since a beginning; 0 is not yet.
struct Times {
    began: Instant,
    created: Vec<AtomicU64>,
    bound: Vec<AtomicU64>,
    left: AtomicU64,
}

impl Times {
    fn new(count: u64) -> Arc<Times> {
        let none = || (0..count).map(|_| AtomicU64::new(0)).collect();
        Arc::new(Times { began: Instant::now(), created: none(), bound: none(), left: AtomicU64::new(count) })
    }

    fn now(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_nanos()).unwrap_or(u64::MAX).max(1)
    }

    fn is_created(&self, number: u64) {
        self.created[number as usize].store(self.now(), Ordering::Relaxed);
    }

    fn is_bound(&self, number: usize) {
        let Some(bound) = self.bound.get(number) else { return };
        if bound.compare_exchange(0, self.now(), Ordering::Relaxed, Ordering::Relaxed).is_ok() {
            self.left.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// A pod may be bound before its creator has the response.
    fn waits(&self) -> Vec<Duration> {
        let wait = |(created, bound): (&AtomicU64, &AtomicU64)| {
            Duration::from_nanos(bound.load(Ordering::Relaxed).saturating_sub(created.load(Ordering::Relaxed)))
        };
        self.created.iter().zip(&self.bound).map(wait).collect()
    }
}

/// The pods of a workload, bound: how many a second.
async fn bind(server: &Server, workload: &Workload, prefix: &str, times: &Arc<Times>) -> Result<f64> {
    let prefix = prefix.replace(' ', "-");
    let pod = workload.pod(&format!("{prefix}-########"), "100m", 0);
    bind_pods(server, &pod, &prefix, times).await
}

async fn bind_pods(server: &Server, pod: &str, prefix: &str, times: &Arc<Times>) -> Result<f64> {
    watched(server, prefix, times).await?;
    let began = Instant::now();
    create(server, &Template::post(PODS, pod), times).await?;
    Ok(times.created.len() as f64 / began.elapsed().as_secs_f64())
}

/// Creates all pods and waits until the last is bound.
async fn create(server: &Server, pods: &Template, times: &Arc<Times>) -> Result<()> {
    let next = Arc::new(AtomicU64::new(0));
    let mut tasks = Vec::new();
    for mut connection in server.connections(WRITERS).await? {
        let (template, next, times) = (pods.clone(), next.clone(), times.clone());
        tasks.push(tokio::spawn(async move {
            let mut request = Vec::new();
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                if number >= times.created.len() as u64 {
                    return Ok::<(), Failure>(());
                }
                template.write(number, &mut request);
                let code = connection.exchange(&request).await?.code;
                if code != 201 {
                    return Err(format!("a pod was answered with {code}").into());
                }
                times.is_created(number);
            }
        }));
    }
    for task in tasks {
        task.await??;
    }
    let deadline = Instant::now() + PATIENCE;
    while times.left.load(Ordering::Relaxed) > 0 {
        if Instant::now() > deadline {
            return Err(format!("{} pods are not bound", times.left.load(Ordering::Relaxed)).into());
        }
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    Ok(())
}

/// Follows the pods of a prefix until all are bound. Nothing is sent but what is looked for: those that get a node
/// from now on.
async fn watched(server: &Server, prefix: &str, times: &Arc<Times>) -> Result<()> {
    let stream = watch_bound(server).await?;
    let (times, prefix) = (times.clone(), prefix.to_string());
    tokio::spawn(async move {
        let result = follow(stream, &prefix, &times).await;
        if let Err(error) = result.as_ref().map_err(|error| error.to_string())
            && times.left.load(Ordering::Relaxed) > 0
        {
            eprintln!("the watch of pods ended: {error}");
        }
    });
    Ok(())
}

/// The pods that get a node from now on.
async fn watch_bound(server: &Server) -> Result<TlsStream<TcpStream>> {
    let page = server.connect().await?.fetch(Template::get(&format!("{PODS}?limit=1")).bytes()).await?;
    let page = api::json::decode_only(&page, &["metadata.resourceVersion"]).map_err(|error| error.to_string())?;
    let version = page.str("metadata.resourceVersion");
    let selector = "fieldSelector=spec.nodeName%21%3D";
    let path = format!("{PODS}?watch=true&{selector}&resourceVersion={version}&timeoutSeconds=600");
    server.connect().await?.stream(Template::get(&path).bytes()).await
}

async fn follow(mut stream: TlsStream<TcpStream>, prefix: &str, times: &Times) -> Result<()> {
    let (mut raw, mut text) = (Vec::with_capacity(1 << 20), Vec::with_capacity(1 << 20));
    let name = format!("\"name\":\"{prefix}-");
    while times.left.load(Ordering::Relaxed) > 0 {
        if stream.read_buf(&mut raw).await? == 0 {
            return Err("the server closed it".into());
        }
        take_chunks(&mut raw, &mut text)?;
        // Moved once for all lines: measuring must not cost.
        let whole = memchr::memrchr(b'\n', &text).map_or(0, |end| end + 1);
        let lines = text[..whole].split(|byte| *byte == b'\n');
        lines.filter_map(|line| bound_pod(line, &name)).for_each(|number| times.is_bound(number));
        text.drain(..whole);
    }
    Ok(())
}

/// Moves the insides of whole chunks of a chunked body.
fn take_chunks(raw: &mut Vec<u8>, text: &mut Vec<u8>) -> Result<()> {
    let mut taken = 0;
    while let Some(end) = memchr::memmem::find(&raw[taken..], b"\r\n").map(|end| taken + end) {
        let size = usize::from_str_radix(std::str::from_utf8(&raw[taken..end])?.trim(), 16)?;
        let (start, stop) = (end + 2, end + 2 + size);
        if raw.len() < stop + 2 {
            break;
        }
        text.extend_from_slice(&raw[start..stop]);
        taken = stop + 2;
    }
    raw.drain(..taken);
    Ok(())
}

/// The number of the pod that an event shows on a node. `name` is how its name begins, in JSON.
fn bound_pod(line: &[u8], name: &str) -> Option<usize> {
    let at = memchr::memmem::find(line, name.as_bytes())? + name.len();
    let digits = &line[at..at + memchr::memchr(b'"', &line[at..])?];
    memchr::memmem::find(line, b"\"nodeName\":\"")?;
    std::str::from_utf8(digits).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn computes_the_rate_between_first_and_last_binding() {
        let mut bound = ObservedBindings::default();
        let began = Instant::now();
        for (seconds, count) in [(1, 100), (2, 30), (3, 20)] {
            bound.add(began + Duration::from_secs(seconds), count);
        }
        assert!((bound.rate() - 25.0).abs() < 1e-9, "fifty in two seconds: {}", bound.rate());
        assert!(ObservedBindings::default().rate().abs() < 1e-9);
    }

    #[test]
    fn joins_chunks() {
        let (mut raw, mut text) = (b"3\r\nabc\r\n2\r\nd\n\r\n4\r\nef".to_vec(), Vec::new());
        take_chunks(&mut raw, &mut text).expect("chunks");
        assert_eq!((text.as_slice(), raw.as_slice()), (&b"abcd\n"[..], &b"4\r\nef"[..]));
        assert!(take_chunks(&mut b"x\r\n".to_vec(), &mut text).is_err());
    }

    #[test]
    fn pods_with_a_node_are_bound() {
        let line = |name: &str, more: &str| {
            format!(r#"{{"type":"MODIFIED","object":{{"metadata":{{"name":"{name}"}},"spec":{{{more}}}}}}}"#)
        };
        let on = r#""nodeName":"node-1""#;
        for (name, more, want) in [("p-00000012", on, Some(12)), ("p-00000012", "", None), ("q-00000012", on, None)] {
            assert_eq!(bound_pod(line(name, more).as_bytes(), "\"name\":\"p-"), want, "{name} {more}");
        }
    }
}

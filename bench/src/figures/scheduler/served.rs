//! Pods created and bound through the API, durably: how many a second, and how long each waits.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;

use super::Size;
use super::workloads::{BASIC, node};
use crate::child::Server;
use crate::figure::{Figure, Must, Report};
use crate::figures::Plan;
use crate::load::Side;
use crate::objects::{PODS, Template};
use crate::{Failure, Result};

const WRITERS: usize = 64;
/// Pods that are not bound within this time never are.
const PATIENCE: Duration = Duration::from_secs(120);
/// Of the rate at which the same pods are created where nobody schedules.
const MUST: f64 = 0.3;

pub async fn run(size: &Size, plan: &Plan, report: &mut Report) -> Result<()> {
    let created = create_rate(size, plan).await?;
    let (bound, mut waits) = bind_rate(size, plan).await?;
    let must = Must::AtLeast(MUST);
    report.add(&Figure { name: "pods created and bound", value: bound, unit: "1/s", limit: created, must });
    waits.sort_unstable();
    let at =
        |part: usize| waits.get((waits.len() * part / 100).min(waits.len() - 1)).map_or(0.0, Duration::as_secs_f64);
    for (name, part) in [("create to bound, p50", 50), ("create to bound, p99", 99)] {
        report.add(&Figure { name, value: at(part) * 1e3, unit: "ms", limit: 0.0, must: Must::Nothing });
    }
    Ok(())
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

/// The same pods where nobody schedules.
async fn create_rate(size: &Size, plan: &Plan) -> Result<f64> {
    let server = start(size, plan, "created", &["--disable-scheduler"]).await?;
    Side::open(&server, WRITERS, pods("before")).await?.fill(size.before).await?;
    let mut side = Side::open(&server, WRITERS, pods("p")).await?;
    let began = Instant::now();
    side.fill(size.pods).await?;
    let rate = size.pods as f64 / began.elapsed().as_secs_f64();
    server.stop().await?;
    Ok(rate)
}

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

    /// A pod may be bound before its creator has the answer.
    fn waits(&self) -> Vec<Duration> {
        let wait = |(created, bound): (&AtomicU64, &AtomicU64)| {
            Duration::from_nanos(bound.load(Ordering::Relaxed).saturating_sub(created.load(Ordering::Relaxed)))
        };
        self.created.iter().zip(&self.bound).map(wait).collect()
    }
}

async fn bind_rate(size: &Size, plan: &Plan) -> Result<(f64, Vec<Duration>)> {
    let server = start(size, plan, "bound", &[]).await?;
    let before = Times::new(size.before);
    watched(&server, "before", &before).await?;
    create(&server, "before", &before).await?;
    let times = Times::new(size.pods);
    watched(&server, "p", &times).await?;
    let began = Instant::now();
    create(&server, "p", &times).await?;
    let rate = size.pods as f64 / began.elapsed().as_secs_f64();
    server.stop().await?;
    Ok((rate, times.waits()))
}

/// Creates all pods and waits until the last is bound.
async fn create(server: &Server, prefix: &str, times: &Arc<Times>) -> Result<()> {
    let next = Arc::new(AtomicU64::new(0));
    let mut tasks = Vec::new();
    for mut connection in server.connections(WRITERS).await? {
        let (template, next, times) = (pods(prefix), next.clone(), times.clone());
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

/// Follows the pods of a prefix until all are bound.
async fn watched(server: &Server, prefix: &'static str, times: &Arc<Times>) -> Result<()> {
    let path = format!("{PODS}?watch=true&resourceVersion=0&timeoutSeconds=600");
    let stream = server.connect().await?.stream(Template::get(&path).bytes()).await?;
    let times = times.clone();
    tokio::spawn(async move {
        let result = follow(stream, prefix, &times).await;
        if let Err(error) = result.as_ref().map_err(|error| error.to_string())
            && times.left.load(Ordering::Relaxed) > 0
        {
            eprintln!("the watch of pods ended: {error}");
        }
    });
    Ok(())
}

async fn follow(mut stream: TlsStream<TcpStream>, prefix: &str, times: &Times) -> Result<()> {
    let (mut raw, mut text) = (Vec::new(), Vec::new());
    while times.left.load(Ordering::Relaxed) > 0 {
        if stream.read_buf(&mut raw).await? == 0 {
            return Err("the server closed it".into());
        }
        take_chunks(&mut raw, &mut text)?;
        while let Some(end) = memchr::memchr(b'\n', &text) {
            let line: Vec<u8> = text.drain(..=end).collect();
            if let Some(number) = bound_pod(&line, prefix) {
                times.is_bound(number);
            }
        }
    }
    Ok(())
}

/// Moves the insides of whole chunks of a chunked body.
fn take_chunks(raw: &mut Vec<u8>, text: &mut Vec<u8>) -> Result<()> {
    while let Some(end) = memchr::memmem::find(raw, b"\r\n") {
        let size = usize::from_str_radix(std::str::from_utf8(&raw[..end])?.trim(), 16)?;
        let (start, stop) = (end + 2, end + 2 + size);
        if raw.len() < stop + 2 {
            break;
        }
        text.extend_from_slice(&raw[start..stop]);
        raw.drain(..stop + 2);
    }
    Ok(())
}

/// The number of the pod that an event shows on a node.
fn bound_pod(line: &[u8], prefix: &str) -> Option<usize> {
    memchr::memmem::find(line, b"\"nodeName\":\"")?;
    let event = api::json::decode_only(line, &["object.metadata.name"]).ok()?;
    event.str("object.metadata.name").strip_prefix(prefix)?.strip_prefix('-')?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_are_put_together() {
        let (mut raw, mut text) = (b"3\r\nabc\r\n2\r\nd\n\r\n4\r\nef".to_vec(), Vec::new());
        take_chunks(&mut raw, &mut text).expect("chunks");
        assert_eq!((text.as_slice(), raw.as_slice()), (&b"abcd\n"[..], &b"4\r\nef"[..]));
        assert!(take_chunks(&mut b"x\r\n".to_vec(), &mut text).is_err());
    }

    #[test]
    fn a_pod_is_bound_once_it_has_a_node() {
        let line = |name: &str, more: &str| {
            format!(r#"{{"type":"MODIFIED","object":{{"metadata":{{"name":"{name}"}},"spec":{{{more}}}}}}}"#)
        };
        let on = r#""nodeName":"node-1""#;
        for (name, more, want) in [("p-00000012", on, Some(12)), ("p-00000012", "", None), ("q-00000012", on, None)] {
            assert_eq!(bound_pod(line(name, more).as_bytes(), "p"), want, "{name} {more}");
        }
    }
}

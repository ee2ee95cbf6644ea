//! Many concurrent connections, each of which sends its next request as soon as it has the last response.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::Result;
use crate::child::Server;
use crate::client::Connection;
use crate::objects::Template;
use crate::process;

/// One server under load: its connections, what they send, and the number of the next request.
pub(crate) struct Side {
    connections: Vec<Connection>,
    template: Template,
    next: Arc<AtomicU64>,
    /// Numbers start again here: reads go round a fixed set.
    wrap: u64,
}

/// When a round is over.
#[derive(Clone, Copy)]
enum Until {
    Time(Instant),
    Number(u64),
}

impl Side {
    pub(crate) async fn open(server: &Server, connections: usize, template: Template) -> Result<Side> {
        Ok(Side::over(server.connections(connections).await?, template))
    }

    pub(crate) fn over(connections: Vec<Connection>, template: Template) -> Side {
        Side { connections, template, next: Arc::new(AtomicU64::new(0)), wrap: u64::MAX }
    }

    pub(crate) fn wrapping(mut self, wrap: u64) -> Side {
        self.wrap = wrap;
        self
    }

    /// Sets the request to send from now on; numbers continue from `next`.
    pub(crate) fn send(&mut self, template: Template, next: u64) {
        self.template = template;
        self.next.store(next, Ordering::Relaxed);
    }

    /// Requests a second over a round.
    pub(crate) async fn rate(&mut self, round: Duration) -> Result<f64> {
        let started = Instant::now();
        let done = self.drive(Until::Time(started + round)).await?;
        Ok(done as f64 / started.elapsed().as_secs_f64())
    }

    /// CPU microseconds of the server for each of this many requests.
    pub(crate) async fn cost(&mut self, server: &Server, count: u64) -> Result<f64> {
        let before = process::cpu(server.pid())?;
        self.fill(count).await?;
        let used = process::cpu(server.pid())?.saturating_sub(before);
        Ok(used.as_secs_f64() * 1e6 / count as f64)
    }

    /// Sends this many requests.
    pub(crate) async fn fill(&mut self, count: u64) -> Result<()> {
        let end = self.next.load(Ordering::Relaxed) + count;
        self.drive(Until::Number(end)).await?;
        self.next.store(end, Ordering::Relaxed);
        Ok(())
    }

    async fn drive(&mut self, until: Until) -> Result<u64> {
        let mut tasks = Vec::new();
        for connection in self.connections.drain(..) {
            let (template, next, wrap) = (self.template.clone(), self.next.clone(), self.wrap);
            tasks.push(tokio::spawn(run(connection, template, next, wrap, until)));
        }
        let mut done = 0;
        for task in tasks {
            let (connection, count) = task.await??;
            self.connections.push(connection);
            done += count;
        }
        Ok(done)
    }
}

async fn run(
    mut connection: Connection,
    template: Template,
    next: Arc<AtomicU64>,
    wrap: u64,
    until: Until,
) -> Result<(Connection, u64)> {
    let mut request = Vec::new();
    let mut done = 0;
    loop {
        let number = next.fetch_add(1, Ordering::Relaxed);
        let over = match until {
            Until::Time(end) => Instant::now() >= end,
            Until::Number(end) => number >= end,
        };
        if over {
            return Ok((connection, done));
        }
        template.write(number % wrap, &mut request);
        let answer = connection.exchange(&request).await?;
        if answer.code >= 300 {
            return Err(format!("a request was answered with {}", answer.code).into());
        }
        done += 1;
    }
}

/// The best rates of two sides over rounds that take turns, so that both see the same machine.
pub(crate) async fn compare(a: &mut Side, b: &mut Side, rounds: usize, round: Duration) -> Result<(f64, f64)> {
    let mut best = (0.0_f64, 0.0_f64);
    for _ in 0..rounds {
        best.0 = best.0.max(a.rate(round).await?);
        best.1 = best.1.max(b.rate(round).await?);
    }
    Ok(best)
}

//! Creates in a store that grows: the rate must not fall once there are many objects, and no commit may stop
//! the writers for long.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::Plan;
use super::create::SENT_FILLER;
use crate::Result;
use crate::child::Server;
use crate::client::Connection;
use crate::figure::{BenchmarkResult, Goal, Report};
use crate::objects::{PODS, Template, pod};

const WRITERS: usize = 64;
/// The first tenth sets the limits for the rest.
const FIRST_PART: u64 = 10;

pub(super) async fn run(plan: &Plan, report: &mut Report) -> Result<()> {
    let server = Server::api(&plan.data("growth")).await?;
    let mut connections = server.connections(WRITERS).await?;
    let template = Template::post(PODS, &pod("growth", SENT_FILLER));
    let first_count = plan.pods / FIRST_PART;
    let first = Samples::measure(&mut connections, &template, 0..first_count).await?;
    let rest = Samples::measure(&mut connections, &template, first_count..plan.pods).await?;
    let (value, limit) = (rest.rate(), first.rate());
    let name = "create 5 KB pod, 5,000 to 50,000";
    report.add(&BenchmarkResult { name, value, unit: "1/s", limit, goal: Goal::AtLeast(0.85) });
    let (value, limit) = (millis(rest.longest_pause()), millis(first.latency(0.99)));
    let name = "longest pause of creates against p99 of the first";
    report.add(&BenchmarkResult { name, value, unit: "ms", limit, goal: Goal::AtMost(5.0) });
    server.stop().await
}

fn millis(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e3
}

/// One completed request, in times since the measurement began.
#[derive(Clone, Copy)]
struct Sample {
    sent: Duration,
    answered: Duration,
}

/// The completed requests of one measurement, in the order of their responses.
struct Samples(Vec<Sample>);

impl Samples {
    async fn measure(
        connections: &mut Vec<Connection>,
        template: &Template,
        numbers: std::ops::Range<u64>,
    ) -> Result<Samples> {
        let (began, next) = (Instant::now(), Arc::new(AtomicU64::new(numbers.start)));
        let drive = |connection| create_all(connection, template.clone(), next.clone(), numbers.end, began);
        let tasks: Vec<_> = connections.drain(..).map(drive).map(tokio::spawn).collect();
        let mut samples = Vec::new();
        for task in tasks {
            let (connection, taken) = task.await??;
            connections.push(connection);
            samples.extend(taken);
        }
        samples.sort_unstable_by_key(|sample| sample.answered);
        Ok(Samples(samples))
    }

    fn rate(&self) -> f64 {
        let took = self.0.last().map_or(Duration::ZERO, |sample| sample.answered);
        self.0.len() as f64 / took.as_secs_f64().max(f64::MIN_POSITIVE)
    }

    /// The longest time without a response for any writer; all writers always wait for one.
    fn longest_pause(&self) -> Duration {
        let gaps = self.0.windows(2).map(|pair| pair[1].answered - pair[0].answered);
        gaps.max().unwrap_or_default()
    }

    fn latency(&self, quantile: f64) -> Duration {
        let mut latencies: Vec<Duration> = self.0.iter().map(|sample| sample.answered - sample.sent).collect();
        latencies.sort_unstable();
        let last = latencies.len().saturating_sub(1);
        latencies.get((latencies.len() as f64 * quantile) as usize).or(latencies.get(last)).copied().unwrap_or_default()
    }
}

async fn create_all(
    mut connection: Connection,
    template: Template,
    next: Arc<AtomicU64>,
    end: u64,
    began: Instant,
) -> Result<(Connection, Vec<Sample>)> {
    let (mut request, mut samples) = (Vec::new(), Vec::new());
    loop {
        let number = next.fetch_add(1, Ordering::Relaxed);
        if number >= end {
            return Ok((connection, samples));
        }
        template.write(number, &mut request);
        let sent = began.elapsed();
        let code = connection.exchange(&request).await?.code;
        if code != 201 {
            return Err(format!("a create was answered with {code}").into());
        }
        samples.push(Sample { sent, answered: began.elapsed() });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn computes_rates_pauses_and_latencies() {
        let sample =
            |(sent, answered)| Sample { sent: Duration::from_millis(sent), answered: Duration::from_millis(answered) };
        let samples = Samples([(0, 10), (0, 20), (10, 70), (20, 100)].map(sample).to_vec());
        assert!((samples.rate() - 40.0).abs() < 1e-9, "four in a tenth of a second: {}", samples.rate());
        assert_eq!(samples.longest_pause(), Duration::from_millis(50));
        assert_eq!(samples.latency(0.99), Duration::from_millis(80));
        assert_eq!(Samples(Vec::new()).latency(0.99), Duration::ZERO);
    }
}

//! An upstream resolver and its health: after a failure it is probed until it answers.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::time::Instant;

use super::exchange::{ExchangeError, exchange};
use crate::corefile::{Forward, HealthCheck};
use crate::message::{Message, Question, Type};
use crate::metrics::Metrics;

/// How long a probe waits.
const PROBE_WAIT: Duration = Duration::from_secs(1);
/// The label of the metrics, as in CoreDNS.
const PROXY_NAME: &str = "forward";

pub(super) struct Upstream {
    pub address: SocketAddr,
    read_timeout: Duration,
    max_fails: u32,
    check: HealthCheck,
    fails: AtomicU32,
    is_probed: AtomicBool,
    metrics: Arc<Metrics>,
    itself: Weak<Upstream>,
}

impl Upstream {
    pub(super) fn new(address: SocketAddr, config: &Forward, metrics: Arc<Metrics>) -> Arc<Upstream> {
        Arc::new_cyclic(|itself| Upstream {
            address,
            read_timeout: config.read_timeout,
            max_fails: config.max_fails,
            check: config.health_check.clone(),
            fails: AtomicU32::new(0),
            is_probed: AtomicBool::new(false),
            metrics,
            itself: itself.clone(),
        })
    }

    pub(super) fn is_up(&self) -> bool {
        self.max_fails == 0 || self.fails.load(Ordering::Relaxed) <= self.max_fails
    }

    pub(super) async fn exchange(
        &self,
        question: &Question,
        query: &Message,
        force_tcp: bool,
        deadline: Instant,
    ) -> Result<Message, ExchangeError> {
        let start = Instant::now();
        let response = exchange(self.address, question, query, force_tcp, self.read_timeout, deadline).await?;
        let labels = [PROXY_NAME, &self.address.to_string(), &response.header.rcode.to_string()];
        self.metrics.forward.proxy_durations.with_label_values(&labels).observe(start.elapsed().as_secs_f64());
        Ok(response)
    }

    /// Records a failed query: the upstream is probed until it answers.
    pub(super) fn mark_failed(&self) {
        if self.max_fails == 0 || self.is_probed.swap(true, Ordering::Relaxed) {
            return;
        }
        tokio::spawn(probe(self.itself.clone()));
    }

    async fn responds(&self) -> bool {
        let question = Question::new(self.check.domain.clone(), Type::NS);
        let mut query = Message::query(0, question.clone());
        query.header.recursion_desired = self.check.recursion_desired;
        let deadline = Instant::now() + PROBE_WAIT;
        exchange(self.address, &question, &query, false, PROBE_WAIT, deadline).await.is_ok()
    }
}

/// Any response is health. Ends with the upstream's configuration.
async fn probe(upstream: Weak<Upstream>) {
    loop {
        let Some(upstream) = upstream.upgrade() else { return };
        if upstream.responds().await {
            upstream.fails.store(0, Ordering::Relaxed);
            upstream.is_probed.store(false, Ordering::Relaxed);
            return;
        }
        upstream.fails.fetch_add(1, Ordering::Relaxed);
        upstream
            .metrics
            .forward
            .healthcheck_failures
            .with_label_values(&[PROXY_NAME, &upstream.address.to_string()])
            .inc();
        let interval = upstream.check.interval;
        drop(upstream);
        tokio::time::sleep(interval).await;
    }
}

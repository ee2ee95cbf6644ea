//! The health of a proxy: it is unhealthy if a change is not applied in time.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use stdx::clock::{Clock, Timestamp};
use stdx::sync::Mutex;

use super::http::Reply;
use crate::model::Family;

/// Twice upstream's sync period.
const TIMEOUT: Duration = Duration::from_secs(60);

/// When changes were received and applied.
pub(crate) struct Health {
    clock: Arc<dyn Clock>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    updated: BTreeMap<Family, Timestamp>,
    /// When the oldest change that is not applied was received.
    queued: Option<Timestamp>,
    eligible: bool,
}

impl Health {
    pub(crate) fn new(clock: Arc<dyn Clock>, families: &[Family]) -> Health {
        let now = clock.now();
        let updated = families.iter().map(|family| (*family, now)).collect();
        Health { clock, state: Mutex::new(State { updated, queued: None, eligible: true }) }
    }

    pub(crate) fn queued(&self) {
        let now = self.clock.now();
        self.state.lock().queued.get_or_insert(now);
    }

    pub(crate) fn updated(&self) {
        let now = self.clock.now();
        let mut state = self.state.lock();
        state.queued = None;
        state.updated.values_mut().for_each(|updated| *updated = now);
    }

    pub(crate) fn set_eligible(&self, eligible: bool) {
        self.state.lock().eligible = eligible;
    }

    pub(crate) fn is_healthy(&self) -> bool {
        self.is_healthy_at(self.clock.now())
    }

    fn is_healthy_at(&self, now: Timestamp) -> bool {
        let since = |queued: Timestamp| {
            let nanos = |time: Timestamp| i128::from(time.seconds) * 1_000_000_000 + i128::from(time.nanos);
            nanos(now) - nanos(queued)
        };
        self.state.lock().queued.is_none_or(|queued| since(queued) < TIMEOUT.as_nanos().cast_signed())
    }

    /// The reply to `/healthz`, with the node's eligibility for load balancers.
    pub(crate) fn healthz(&self) -> Reply {
        let eligible = self.state.lock().eligible;
        self.reply(Some(eligible))
    }

    /// The reply to `/livez`.
    pub(crate) fn livez(&self) -> Reply {
        self.reply(None)
    }

    fn reply(&self, eligible: Option<bool>) -> Reply {
        let now = self.clock.now();
        let healthy = self.is_healthy_at(now);
        let ok = healthy && eligible != Some(false);
        let state = self.state.lock();
        let newest = state.updated.values().max().copied().unwrap_or_default();
        // While all is well, the last update is now: older clients expect a recent time.
        let last = if ok { now } else { newest };
        let eligible = eligible.map(|eligible| format!("\"nodeEligible\":{eligible},")).unwrap_or_default();
        let family = |(family, updated): (&Family, &Timestamp)| {
            let name = family.name();
            format!("\"{name}\":{{\"lastUpdated\":\"{}\",\"healthy\":{healthy}}}", text(*updated))
        };
        let status: Vec<String> = state.updated.iter().map(family).collect();
        let body = format!(
            "{{\"lastUpdated\":\"{}\",\"currentTime\":\"{}\",{eligible}\"healthy\":{healthy},\"status\":{{{}}}}}",
            text(last),
            text(now),
            status.join(",")
        );
        Reply::json(if ok { 200 } else { 503 }, body)
    }
}

fn text(time: Timestamp) -> api::Str {
    api::time::format_micros(time)
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Fixed(Mutex<Duration>);

    impl Clock for Fixed {
        fn since_epoch(&self) -> Duration {
            *self.0.lock()
        }
    }

    #[test]
    fn pending_changes_make_it_unhealthy_after_a_minute() {
        let clock = Arc::new(Fixed(Mutex::new(Duration::from_secs(1_000_000))));
        let health = Health::new(clock.clone(), &Family::ALL);
        assert_eq!(health.healthz().code, 200);
        health.queued();
        *clock.0.lock() += Duration::from_secs(59);
        health.queued();
        assert_eq!(health.livez().code, 200);
        *clock.0.lock() += Duration::from_secs(1);
        assert_eq!((health.livez().code, health.is_healthy()), (503, false));
        health.updated();
        health.set_eligible(false);
        assert_eq!((health.livez().code, health.healthz().code), (200, 503));
        let body = health.healthz().body;
        assert_eq!(
            body,
            "{\"lastUpdated\":\"1970-01-12T13:47:40.000000Z\",\"currentTime\":\"1970-01-12T13:47:40.000000Z\",\
             \"nodeEligible\":false,\"healthy\":true,\"status\":{\"IPv4\":{\"lastUpdated\":\"1970-01-12T13:47:40.000000Z\",\
             \"healthy\":true},\"IPv6\":{\"lastUpdated\":\"1970-01-12T13:47:40.000000Z\",\"healthy\":true}}}"
        );
    }
}

//! Carries out a decision: what has to be there before, then the binding.

use std::sync::Arc;

use tokio::time::Instant;

use super::{Shared, reference};
use crate::core::Placing;
use crate::framework::Point;
use crate::metrics::Attempt;

pub async fn bind(shared: Arc<Shared>, placing: Placing) {
    match carry_out(&shared, &placing).await {
        Ok(()) => bound(&shared, &placing),
        Err(why) => shared.not_bound(&placing, &why),
    }
}

async fn carry_out(shared: &Shared, placing: &Placing) -> Result<(), String> {
    let (pod, node) = (&*placing.pod, placing.pod.node_name.as_str());
    if !shared.core().still_fits(placing) {
        return Err(format!("node {node:?} has changed since it was chosen, and does not fit the pod any more"));
    }
    let started = Instant::now();
    for (_, plugin) in placing.profile.at(Point::PreBind) {
        if let Some(work) = plugin.pre_bind(&shared.hands, pod, node) {
            let failed =
                |error: client::Error| format!("running PreBind plugin {:?}: {}", plugin.name(), error.message());
            work.await.map_err(failed)?;
        }
    }
    let profile = &placing.profile.scheduler_name;
    shared.metrics.point(Point::PreBind, profile, true, started.elapsed());
    let started = Instant::now();
    let work = placing.profile.at(Point::Bind).find_map(|(_, plugin)| plugin.bind(&shared.hands, pod, node));
    let work = work.ok_or("no plugin of the profile binds")?;
    let result = work.await;
    shared.metrics.point(Point::Bind, profile, result.is_ok(), started.elapsed());
    result.map_err(|error| format!("binding rejected: {}", error.message()))
}

fn bound(shared: &Shared, placing: &Placing) {
    let (pod, profile) = (&placing.pod, &placing.profile);
    shared.core().bound(&pod.uid);
    shared.metrics.attempt(&profile.scheduler_name, Attempt::Scheduled, placing.decided.elapsed());
    let waited = placing.waiting.first_tried.unwrap_or(placing.decided).elapsed();
    shared.metrics.bound(placing.waiting.attempts, waited);
    let message = format!("Successfully assigned {}/{} to {}", pod.namespace, pod.name, pod.node_name);
    shared.recorder(profile).normal(&reference(pod), "Scheduled", message);
    for (_, plugin) in profile.at(Point::PostBind) {
        plugin.post_bind(pod, &pod.node_name);
    }
}

//! Brings what runs to what was granted: the pod's group grows first and shrinks last, its containers stand between.

use std::sync::Arc;

use api::Tree;

use super::allocation::{Record, WHOLE};
use super::{order, wants_restart};
use crate::model::pod;
use crate::model::state::{Container, PodState};
use crate::pod::context::Agent;
use crate::pod::cri_config::resources::{amount, of_container, of_sandbox};

/// What became of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// There was nothing to do.
    Nothing,
    Done,
    /// It has to be tried again.
    Failed,
}

/// What needs a restart is left to whoever starts containers.
pub async fn carry_out(agent: &Arc<Agent>, pod: &Arc<Tree>, state: &PodState) -> Outcome {
    let uid = pod::uid(pod);
    let Some(record) = agent.resizes.record(uid).filter(|record| record.is_unfinished) else {
        return Outcome::Nothing;
    };
    let Err(why) = follow(agent, pod, state, &record).await else { return Outcome::Done };
    if agent.resizes.fails(uid, &why) {
        agent.recorder.warning(pod, "ResizeError", order::text("error", pod, &why));
    }
    Outcome::Failed
}

async fn follow(agent: &Arc<Agent>, pod: &Arc<Tree>, state: &PodState, record: &Record) -> Result<(), String> {
    let uid = pod::uid(pod);
    let limits = agent.groups.limits_of(pod);
    let running = |name: &str| state.active(name).filter(|seen| seen.is_running());
    check_memory(agent, pod, state, record).await?;
    agent.groups.grow(pod, limits.clone()).await?;
    let mut waits = false;
    for (name, old) in record.behind.iter().filter(|(name, _)| *name != WHOLE) {
        match (running(name), pod::container(pod, name)) {
            (Some(_), Some(_)) if wants_restart(pod, name, old) => waits = true,
            (Some(seen), Some(spec)) => {
                update(agent, pod, spec, seen).await?;
                agent.resizes.follows(uid, name);
            }
            // It is started with what it was given.
            _ => agent.resizes.follows(uid, name),
        }
    }
    if waits {
        return Ok(());
    }
    agent.groups.limit(pod, limits).await?;
    agent.groups.reweigh(pod).await?;
    tell_sandbox(agent, pod, state).await;
    agent.resizes.finish(uid);
    agent.recorder.normal(pod, "ResizeCompleted", order::text("completed", pod, ""));
    // What it does not take any more may be what others wait for.
    agent.admission.take(&super::bare(pod));
    agent.resizes.retry(agent);
    Ok(())
}

async fn update(agent: &Arc<Agent>, pod: &Tree, spec: &Tree, seen: &Container) -> Result<(), String> {
    let request = cri::UpdateContainerResourcesRequest {
        container_id: seen.id.clone(),
        linux: Some(of_container(pod, spec, agent.limits())),
        ..Default::default()
    };
    let answer = agent.runtime.update(request).await;
    answer.map(drop).map_err(|status| format!("failed to resize container {:?}: {}", seen.name, status.message()))
}

/// Not every runtime wants to know.
async fn tell_sandbox(agent: &Arc<Agent>, pod: &Tree, state: &PodState) {
    let Some(sandbox) = state.sandbox() else { return };
    let (resources, overhead) = of_sandbox(pod, agent.limits());
    let request = cri::UpdatePodSandboxResourcesRequest {
        pod_sandbox_id: sandbox.id.clone(),
        overhead,
        resources: Some(resources),
    };
    if let Err(status) = agent.runtime.service.update_pod_sandbox_resources(request).await {
        tracing::debug!(pod = pod::name(pod), error = status.message(), "the runtime does not resize sandboxes");
    }
}

/// A limit below what is in use would end processes instead of shrinking them.
async fn check_memory(agent: &Arc<Agent>, pod: &Tree, state: &PodState, record: &Record) -> Result<(), String> {
    let mut problems = Vec::new();
    for (name, old) in record.behind.iter().filter(|(name, old)| *name != WHOLE && !wants_restart(pod, name, old)) {
        let Some((seen, spec)) = state.active(name).filter(|seen| seen.is_running()).zip(pod::container(pod, name))
        else {
            continue;
        };
        let (before, limit) = (amount(old.at("limits.memory")), amount(spec.at("resources.limits.memory")));
        if limit == 0 || before > 0 && before <= limit {
            continue;
        }
        let used = memory_of(agent, &seen.id).await;
        problems.extend(below(&format!("container {name:?}"), limit, used));
    }
    let limit = agent.groups.limits_of(pod).memory.filter(|limit| *limit > 0);
    if let Some(limit) = limit.filter(|limit| agent.groups.shrinks_below(pod, *limit)) {
        problems.extend(below("pod", limit, agent.groups.memory_of(pod)));
    }
    match problems.is_empty() {
        true => Ok(()),
        false => Err(format!("cannot decrease memory limits: {}", problems.join("; "))),
    }
}

fn below(whose: &str, limit: i64, used: Option<i64>) -> Option<String> {
    let used = used.filter(|used| *used > limit)?;
    Some(format!("attempting to set {whose} memory limit ({limit}) below current usage ({used})"))
}

/// Bytes that a container has in use and that cannot be dropped.
async fn memory_of(agent: &Arc<Agent>, id: &str) -> Option<i64> {
    let request = cri::ContainerStatsRequest { container_id: id.to_string() };
    let stats = agent.runtime.service.container_stats(request).await.ok()?.stats?;
    i64::try_from(stats.memory?.working_set_bytes?.value).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_in_use_is_not_taken_away() {
        let cases = [(10, None, None), (10, Some(10), None), (10, Some(11), Some("(10) below current usage (11)"))];
        for (limit, used, expected) in cases {
            let said = below("container \"c\"", limit, used);
            assert_eq!(said.is_some(), expected.is_some());
            assert!(said.is_none_or(|said| expected.is_some_and(|expected| said.ends_with(expected))));
        }
    }
}

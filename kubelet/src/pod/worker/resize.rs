//! Applies granted resources to running containers: the pod's cgroup grows before them and shrinks after them.

use std::sync::Arc;

use api::Tree;

use crate::model::pod;
use crate::model::resources::amount;
use crate::model::state::{Container, PodState};
use crate::pod::context::PodContext;
use crate::pod::cri_config::resources::{of_container, of_sandbox};
use crate::resources::cgroups::GroupError;
use crate::resources::resize::allocation::{Record, WHOLE};
use crate::resources::resize::{event_text, spec_only, wants_restart};

/// A resize that has failed and is retried.
#[derive(Debug, thiserror::Error)]
enum ResizeError {
    #[error(transparent)]
    Cgroup(#[from] GroupError),
    #[error("failed to resize container {container:?}: {}", .source.message())]
    Update { container: String, source: cri::Status },
    #[error("cannot decrease memory limits: {}", list(.0))]
    MemoryInUse(Vec<InUse>),
}

/// A limit below the memory in use.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("attempting to set {whose} memory limit ({limit}) below current usage ({used})")]
struct InUse {
    whose: String,
    limit: i64,
    used: i64,
}

fn list(all: &[InUse]) -> String {
    all.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
}

/// The outcome of a resize.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// There was no resize.
    Nothing,
    Done,
    /// The resize has to be retried.
    Failed,
}

/// Resizes that need a restart are left to the plan.
pub(crate) async fn carry_out(context: &Arc<PodContext>, pod: &Arc<Tree>, state: &PodState) -> Outcome {
    let uid = pod::uid(pod);
    let Some(record) = context.resizes.record(uid).filter(|record| record.is_unfinished) else {
        return Outcome::Nothing;
    };
    let Err(error) = follow(context, pod, state, &record).await else { return Outcome::Done };
    let why = error.to_string();
    if context.resizes.fails(uid, &why) {
        context.recorder.warning(pod, "ResizeError", event_text("error", pod, &why));
    }
    Outcome::Failed
}

async fn follow(
    context: &Arc<PodContext>,
    pod: &Arc<Tree>,
    state: &PodState,
    record: &Record,
) -> Result<(), ResizeError> {
    let uid = pod::uid(pod);
    let limits = context.groups.limits_of(pod);
    let running = |name: &str| state.active(name).filter(|seen| seen.is_running());
    check_memory(context, pod, state, record).await?;
    context.groups.grow(pod, limits.clone()).await?;
    let mut waits = false;
    for (name, old) in record.behind.iter().filter(|(name, _)| *name != WHOLE) {
        match (running(name), pod::container(pod, name)) {
            (Some(_), Some(_)) if wants_restart(pod, name, old) => waits = true,
            (Some(seen), Some(spec)) => {
                update(context, pod, spec, seen).await?;
                context.resizes.follows(uid, name);
            }
            // The container is started with the allocated resources.
            _ => context.resizes.follows(uid, name),
        }
    }
    if waits {
        return Ok(());
    }
    context.groups.limit(pod, limits).await?;
    context.groups.reweigh(pod).await?;
    update_sandbox(context, pod, state).await;
    context.resizes.finish(uid);
    context.recorder.normal(pod, "ResizeCompleted", event_text("completed", pod, ""));
    // Other pods may wait for the resources that this resize has released.
    context.admission.take(&spec_only(pod));
    context.resizes.retry(&context.resizing);
    Ok(())
}

async fn update(context: &Arc<PodContext>, pod: &Tree, spec: &Tree, seen: &Container) -> Result<(), ResizeError> {
    let request = cri::UpdateContainerResourcesRequest {
        container_id: seen.id.clone(),
        linux: Some(of_container(pod, spec, context.limits())),
        ..Default::default()
    };
    let answer = context.runtime.update(request).await;
    answer.map(drop).map_err(|source| ResizeError::Update { container: seen.name.clone(), source })
}

/// Not every runtime supports it.
async fn update_sandbox(context: &Arc<PodContext>, pod: &Tree, state: &PodState) {
    let Some(sandbox) = state.sandbox() else { return };
    let (resources, overhead) = of_sandbox(pod, context.limits());
    let request = cri::UpdatePodSandboxResourcesRequest {
        pod_sandbox_id: sandbox.id.clone(),
        overhead,
        resources: Some(resources),
    };
    if let Err(status) = context.runtime.service.update_pod_sandbox_resources(request).await {
        tracing::debug!(pod = pod::name(pod), error = status.message(), "failed to update sandbox resources");
    }
}

/// A limit below the usage would kill processes instead of shrinking them.
async fn check_memory(
    context: &Arc<PodContext>,
    pod: &Tree,
    state: &PodState,
    record: &Record,
) -> Result<(), ResizeError> {
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
        let used = memory_of(context, &seen.id).await;
        problems.extend(below(&format!("container {name:?}"), limit, used));
    }
    let limit = context.groups.limits_of(pod).memory.filter(|limit| *limit > 0);
    if let Some(limit) = limit.filter(|limit| context.groups.shrinks_below(pod, *limit)) {
        problems.extend(below("pod", limit, context.groups.memory_of(pod)));
    }
    match problems.is_empty() {
        true => Ok(()),
        false => Err(ResizeError::MemoryInUse(problems)),
    }
}

fn below(whose: &str, limit: i64, used: Option<i64>) -> Option<InUse> {
    let used = used.filter(|used| *used > limit)?;
    Some(InUse { whose: whose.to_string(), limit, used })
}

/// Bytes that a container has in use and that cannot be dropped.
async fn memory_of(context: &Arc<PodContext>, id: &str) -> Option<i64> {
    let request = cri::ContainerStatsRequest { container_id: id.to_string() };
    let stats = context.runtime.service.container_stats(request).await.ok()?.stats?;
    i64::try_from(stats.memory?.working_set_bytes?.value).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn does_not_shrink_memory_in_use() {
        let cases = [(10, None, None), (10, Some(10), None), (10, Some(11), Some("(10) below current usage (11)"))];
        for (limit, used, expected) in cases {
            let error_text = below("container \"c\"", limit, used).map(|in_use| in_use.to_string());
            assert_eq!(error_text.is_some(), expected.is_some());
            assert!(
                error_text.is_none_or(|error_text| expected.is_some_and(|expected| error_text.ends_with(expected)))
            );
        }
    }
}

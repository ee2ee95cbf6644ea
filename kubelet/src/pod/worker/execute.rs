//! Carries out a plan, one command after the other. All decisions are in the plan.

use std::sync::Arc;
use std::time::Duration;

use super::grace_period::GracePeriod;
use super::start::{self, Failure, Inputs, StartContext, unless_ended};
use super::sync::{self, SyncResult, Updates, WorkerState};
use super::{DesiredPod, resize, sandbox, terminate};
use crate::model::pod;
use crate::model::state::PodState;
use crate::pod::context::PodContext;
use crate::pod::plan::{Command, Plan, RestartBackoff, StartContainer, StopContainer};
use crate::volumes::MountedVolumes;

/// The pause before a failed resize is retried.
const RESIZE_PAUSE: Duration = Duration::from_secs(5);

/// Why the remaining commands are not carried out, and when the pod is synced again.
enum Abort {
    /// The runtime's state has not changed since the last status, or the final status is reported.
    Reported(SyncResult),
    /// The runtime's state may have changed.
    Unreported(SyncResult),
}

impl From<Failure> for Abort {
    fn from(failure: Failure) -> Abort {
        Abort::Unreported(match failure {
            Failure::Ends => SyncResult::Again,
            Failure::Waits | Failure::Failed => SyncResult::Failed,
        })
    }
}

pub(super) struct Executor<'a> {
    context: &'a Arc<PodContext>,
    wanted: &'a DesiredPod,
    worker: &'a mut WorkerState,
    updates: Updates<'a>,
    state: Arc<PodState>,
    mounted: MountedVolumes,
    /// When the pod is synced again at the latest, even if nothing changes.
    again: Option<Duration>,
    /// The sandbox that was created.
    sandbox: Option<String>,
    start_context: Option<StartContext>,
    /// The failure of the last container that failed to start.
    failure: Option<Failure>,
}

impl<'a> Executor<'a> {
    pub(super) fn new(
        context: &'a Arc<PodContext>,
        wanted: &'a DesiredPod,
        worker: &'a mut WorkerState,
        state: Arc<PodState>,
        updates: Updates<'a>,
    ) -> Executor<'a> {
        let mounted = MountedVolumes::default();
        let (again, sandbox, start_context, failure) = (None, None, None, None);
        Executor { context, wanted, worker, updates, state, mounted, again, sandbox, start_context, failure }
    }

    pub(super) async fn run(mut self, plan: &Plan) -> SyncResult {
        for command in &plan.commands {
            match self.carry_out(command, plan).await {
                Ok(()) => {}
                Err(Abort::Reported(next)) => return next,
                Err(Abort::Unreported(next)) => return self.review(Some(next)).await,
            }
        }
        match plan.changes_runtime() {
            true => self.review(None).await,
            false => self.idle(plan),
        }
    }

    async fn carry_out(&mut self, command: &Command, plan: &Plan) -> Result<(), Abort> {
        match command {
            Command::Backoff(backoff) => self.record_backoff(backoff),
            Command::StopContainer(stop) => self.stop_container(stop).await?,
            Command::ReadState => self.read_state().await?,
            Command::FinishPod => return Err(Abort::Reported(self.finish_pod().await)),
            Command::EnsureCgroup => self.ensure_cgroup().await?,
            Command::ResizeContainers => self.resize_containers(plan).await,
            Command::PrepareVolumes => self.prepare_volumes().await?,
            Command::StopSandboxes => self.stop_sandboxes().await?,
            Command::CreateSandbox { attempt } => self.create_sandbox(*attempt).await?,
            Command::StartContainer(start) => self.start_container(start).await?,
        }
        Ok(())
    }

    /// One event per pause.
    fn record_backoff(&mut self, backoff: &RestartBackoff) {
        if self.worker.pauses.contains(backoff) {
            return;
        }
        let pod = &self.wanted.pod;
        let text = format!("Back-off restarting failed container {} in pod {}", backoff.name, pod::named(pod));
        self.context.recorder.warning(&pod::subject(pod, &backoff.name), "BackOff", text);
        self.worker.pauses.push(backoff.clone());
    }

    /// Stops a container of a pod that keeps running. If the pod is to end meanwhile, the container is stopped with it.
    async fn stop_container(&mut self, stop: &StopContainer) -> Result<(), Failure> {
        let Some(seen) = self.state.containers.iter().find(|seen| seen.id == stop.id) else { return Ok(()) };
        let kill = terminate::KillOptions {
            message: &stop.message,
            given: GracePeriod::fixed(stop.grace_seconds),
            runs_pre_stop: stop.runs_pre_stop,
        };
        let stopping = terminate::stop_container(self.context, &self.wanted.pod, &self.state, seen, kill);
        let stopped = unless_ended(self.updates, Box::pin(stopping)).await.ok_or(Failure::Ends)?;
        stopped.map_err(|_| Failure::Failed)
    }

    async fn read_state(&mut self) -> Result<(), Abort> {
        let state = sync::read_state(self.context, &self.wanted.pod, self.worker).await;
        self.state = state.map_err(|_| Abort::Reported(SyncResult::Failed))?;
        Ok(())
    }

    async fn finish_pod(&mut self) -> SyncResult {
        terminate::finish(self.context, self.wanted, self.worker, self.state.clone(), self.updates).await
    }

    async fn ensure_cgroup(&mut self) -> Result<(), Abort> {
        let pod = &self.wanted.pod;
        self.context.groups.ensure(pod).await.map_err(|why| {
            let text = format!("unable to ensure pod container exists: {why}");
            self.context.recorder.warning(pod, "FailedCreatePodContainer", text);
            Abort::Reported(SyncResult::Failed)
        })
    }

    async fn resize_containers(&mut self, plan: &Plan) {
        let outcome = resize::carry_out(self.context, &self.wanted.pod, &self.state).await;
        if outcome != resize::Outcome::Nothing {
            sync::report_status(self.context, self.wanted, self.worker, &self.state, plan);
        }
        if outcome == resize::Outcome::Failed {
            self.sync_again_after(Some(RESIZE_PAUSE));
        }
    }

    async fn prepare_volumes(&mut self) -> Result<(), Abort> {
        let mounted = sync::volumes(self.context, &self.wanted.pod, self.updates).await;
        self.mounted = mounted.map_err(Abort::Reported)?;
        self.sync_again_after(self.mounted.again);
        Ok(())
    }

    fn sync_again_after(&mut self, pause: Option<Duration>) {
        self.again = self.again.into_iter().chain(pause).min();
    }

    async fn stop_sandboxes(&mut self) -> Result<(), Failure> {
        let pod = &self.wanted.pod;
        let text = "Pod sandbox changed, it will be killed and re-created.";
        self.context.recorder.normal(pod, "SandboxChanged", text);
        let grace_period = GracePeriod::fixed(None);
        let stopping = terminate::stop_all(self.context, pod, &self.state, &grace_period);
        let stopped = unless_ended(self.updates, Box::pin(stopping)).await.ok_or(Failure::Ends)?;
        stopped.map_err(|_| Failure::Failed)
    }

    async fn create_sandbox(&mut self, attempt: u32) -> Result<(), Failure> {
        let id = sandbox::create(self.context, &self.wanted.pod, self.worker, (attempt, &self.mounted)).await?;
        self.sandbox = Some(id);
        Ok(())
    }

    /// A container that cannot be started does not block other containers.
    async fn start_container(&mut self, start: &StartContainer) -> Result<(), Failure> {
        let (context, pod) = (self.context, &self.wanted.pod);
        let inputs = Inputs { state: &self.state, mounted: &self.mounted, updates: self.updates };
        let start_context = match &self.start_context {
            Some(known) => known,
            None => {
                let new = StartContext::new(context, pod, self.worker, &inputs, self.sandbox.take()).await?;
                self.start_context.insert(new)
            }
        };
        if self.updates.borrow().ends() {
            return Err(Failure::Ends);
        }
        let started = start::start_container(context, pod, self.worker, (start_context, &inputs), start).await;
        self.failure = started.err().or(self.failure);
        Ok(())
    }

    /// Reports the changes of the plan, and decides when the pod is synced again.
    async fn review(mut self, next: Option<SyncResult>) -> SyncResult {
        if self.read_state().await.is_err() {
            return SyncResult::Failed;
        }
        let plan = sync::decide(self.context, &self.wanted.pod, self.worker, &self.state);
        sync::report_status(self.context, self.wanted, self.worker, &self.state, &plan);
        self.worker.keep_pauses(&plan);
        plan.backoffs().for_each(|backoff| self.record_backoff(backoff));
        match (next, self.failure) {
            (Some(next), _) => next,
            (None, Some(Failure::Failed)) => SyncResult::Failed,
            (None, Some(Failure::Ends)) => SyncResult::Again,
            (None, None) if plan.changes_runtime() => SyncResult::Again,
            (None, None | Some(Failure::Waits)) => self.idle(&plan),
        }
    }

    fn idle(&self, plan: &Plan) -> SyncResult {
        let (context, pod) = (self.context, &self.wanted.pod);
        let backoffs = plan.backoffs().map(|backoff| backoff.until);
        let again = self.again.map(|pause| sync::after(context, pause));
        let images = context.images.next_pull_attempt(pod::uid(pod));
        SyncResult::Idle(backoffs.chain(again).chain(sync::deadline(context, pod)).chain(images).min())
    }
}

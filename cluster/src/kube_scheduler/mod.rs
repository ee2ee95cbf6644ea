//! `kube-scheduler`: the scheduler alone, with upstream's flags and configuration. It watches from its start, and
//! schedules while this process holds the lease.

pub mod flags;
mod gates;
mod settings;

use stdx::sync::{Mutex, MutexGuard};

use api::{Tree, tree};
use client::Random;
use http::Method;
use scheduler::config::Configuration;
use scheduler::{Environment, Explainer};
use server::http::component::{ComponentRequest, Reply};
use server::request::info::RequestInfo;
use server::routes::why;
use store::BoxFuture;

use crate::component::{self, ComponentContext, ComponentHandle, ComponentWork, Port};
use crate::control_plane::extenders::ExtenderClients;
use crate::error::{Error, Result};
use flags::Flags;

/// The name of the component.
pub const NAME: &str = "kube-scheduler";

/// Annotations of the leader's lease: its address, its certificate fingerprint, and the scheduler names that it serves.
pub use server::registry::announce::{ADDRESS, CERTIFICATE, SCHEDULERS};

/// Starts the scheduler with its flags.
pub async fn run(flags: Flags) -> Result<ComponentHandle> {
    let (common, configuration) = settings::read(flags)?;
    component::run(common, |tools| Scheduling::new(tools, configuration)).await
}

/// The configuration of a scheduler inside of `up`.
pub(crate) fn read_configuration(mut flags: Flags) -> Result<Configuration> {
    // The scheduler needs no kubeconfig: its client is in this process.
    flags.common.kubeconfig = Some(Default::default());
    settings::read(flags).map(|(_, configuration)| configuration)
}

/// Writes the effective configuration if --write-config-to is set; returns whether it is.
pub(crate) fn write_config(flags: &mut Flags) -> Result<bool> {
    let Some(path) = flags.write_config_to.take() else { return Ok(false) };
    let (_, configuration) = settings::read(std::mem::take(flags))?;
    std::fs::write(&path, api::yaml::encode(&configuration.effective())).map_err(Error::file(&path))?;
    Ok(true)
}

struct Scheduling {
    tools: ComponentContext,
    /// The effective configuration.
    shown: Tree,
    /// The names of its profiles.
    schedulers: String,
    metrics: scheduler::Metrics,
    state: Mutex<State>,
}

enum State {
    /// The scheduler watches nothing yet.
    Waits(Option<Box<Environment>>),
    Runs(scheduler::SchedulerHandle),
    Ended,
}

impl Scheduling {
    fn new(tools: &ComponentContext, configuration: Configuration) -> Result<Scheduling> {
        let wire = ExtenderClients::new(&configuration.extenders).map_err(|error| wrong(error.to_string()))?;
        let names: Vec<&str> = configuration.profiles.iter().map(|one| one.scheduler_name.as_str()).collect();
        let (shown, schedulers) = (configuration.effective(), names.join(","));
        let (metrics, is_delayed) = (scheduler::Metrics::default(), configuration.delay_cache_until_active);
        let environment = Environment {
            client: tools.client(),
            configuration,
            extender_transport: Some(wire),
            clock: tools.clock.clone(),
            host: server::hostname(),
            metrics: metrics.clone(),
            client_metrics: tools.metrics.clone(),
            seed: Random::fresh_seed(),
        };
        let state = match is_delayed {
            true => State::Waits(Some(Box::new(environment))),
            false => State::Runs(scheduler::start_standby(environment).map_err(|error| wrong(error.to_string()))?),
        };
        Ok(Scheduling { tools: tools.clone(), shown, schedulers, metrics, state: Mutex::new(state) })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    /// Empty before the scheduler watches pods.
    fn pod_resources(&self) -> String {
        match &*self.state() {
            State::Runs(running) => running.pod_resources(),
            State::Waits(_) | State::Ended => String::new(),
        }
    }

    fn explainer(&self) -> Option<Explainer> {
        match &*self.state() {
            State::Runs(running) => Some(running.explainer()),
            State::Waits(_) | State::Ended => None,
        }
    }
}

fn wrong(why: String) -> Error {
    Error::Flags(vec![why])
}

impl ComponentWork for Scheduling {
    fn start(&self) -> Result<()> {
        let mut state = self.state();
        if let State::Waits(environment) = &mut *state
            && let Some(environment) = environment.take()
        {
            *state = State::Runs(scheduler::start_standby(*environment).map_err(|error| wrong(error.to_string()))?);
        }
        if let State::Runs(running) = &*state {
            running.lead();
        }
        Ok(())
    }

    fn stop(&self) -> BoxFuture<'_, ()> {
        let state = std::mem::replace(&mut *self.state(), State::Ended);
        Box::pin(async {
            if let State::Runs(running) = state {
                running.stop().await;
            }
        })
    }

    fn abort(&self) {
        if let State::Runs(running) = std::mem::replace(&mut *self.state(), State::Ended) {
            running.abort();
        }
    }

    /// A scheduler that waits for its lease is healthy; it is ready once its caches are synced.
    fn checks(&self, probe: &str) -> Vec<(&'static str, bool)> {
        let (is_well, is_synced) = match &*self.state() {
            State::Waits(_) => (true, false),
            State::Runs(running) => (running.is_well(), running.is_synced()),
            State::Ended => (false, false),
        };
        match probe {
            "livez" => vec![("ping", true), ("scheduler", is_well)],
            "readyz" => vec![("leaderElection", true), ("sched-handler-sync", is_synced), ("shutdown", is_well)],
            _ => vec![("ping", true), ("leaderElection", true), ("scheduler", is_well)],
        }
    }

    fn metrics(&self) -> String {
        let own = match &*self.state() {
            State::Runs(running) => running.metrics(),
            State::Waits(_) | State::Ended => self.metrics.render(&Default::default()),
        };
        own + &self.tools.metrics.render()
    }

    fn attributes(&self, question: &ComponentRequest) -> Option<Tree> {
        let info = asked(question)?;
        Some(tree! {
            "verb" => info.verb, "version" => "v1", "resource" => "pods",
            "namespace" => info.namespace, "name" => info.name,
        })
    }

    fn show(&self, question: &ComponentRequest) -> Option<Reply> {
        if question.path == "/configz" {
            return Some(Reply::json(200, &tree! { "componentconfig" => self.shown.clone() }));
        }
        if question.path == "/metrics/resources" {
            return Some(Reply::text(200, self.pod_resources()));
        }
        let info = asked(question)?;
        let gone = || Reply::text(503, "the scheduler does not run\n");
        let Some(explainer) = self.explainer() else { return Some(gone()) };
        Some(match (&question.method, info.name.is_empty()) {
            (&Method::GET | &Method::HEAD, false) => match explainer.why(&info.namespace, &info.name) {
                Some(explanation) => Reply::json(200, &explanation),
                None => Reply::text(404, "the pod does not wait here, or was not tried yet\n"),
            },
            (&Method::POST, true) => match api::json::decode(&question.body) {
                Err(error) => Reply::text(400, format!("{error}\n")),
                Ok(pod) => match explainer.what_if(&pod) {
                    Ok(explanation) => Reply::json(200, &explanation),
                    Err(why) => Reply::text(400, format!("{why}\n")),
                },
            },
            _ => Reply::text(405, "Method Not Allowed\n"),
        })
    }

    fn takes(&self, question: &ComponentRequest) -> bool {
        asked(question).is_some()
    }

    fn announces(&self, port: &Port) -> Vec<(&'static str, String)> {
        vec![
            (ADDRESS, port.reached_at().to_string()),
            (CERTIFICATE, port.fingerprint()),
            (SCHEDULERS, self.schedulers.clone()),
        ]
    }
}

/// A question about a pod.
fn asked(question: &ComponentRequest) -> Option<RequestInfo> {
    if !question.path.starts_with(why::ROOT) {
        return None;
    }
    let info = RequestInfo::parse(&question.method, &question.path, &Default::default());
    info.is_resource.then_some(info)
}

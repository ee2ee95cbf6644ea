//! Controllers and scheduler of a control plane: they always run if its store is its own, and by election if other
//! servers share it.

use std::sync::Arc;

use scheduler::SchedulerHandle;
use scheduler::config::Configuration;
use server::Server;
use stdx::sync::Mutex;

use super::Controllers;
use super::elected::{Candidate, Slot, campaign};
use super::extenders::ExtenderClients;
use super::in_process::LocalClients;
use crate::error::{Error, Result};

/// The lease of the controllers, which is that of `kube-controller-manager`.
const CONTROLLERS_LEASE: &str = "kube-controller-manager";
const SCHEDULER_LEASE: &str = "kube-scheduler";

/// A component of a control plane.
pub(super) enum Part<R> {
    Always(R),
    Elected(Candidate, Arc<Slot<R>>),
}

/// The scheduler in a form that can be stopped through a shared reference.
type ElectedScheduler = Mutex<Option<SchedulerHandle>>;

/// The controllers of a control plane.
pub(super) type ControllersPart = Part<controllers::Handle>;

/// The scheduler of a control plane.
pub(super) enum SchedulerPart {
    Always(SchedulerHandle),
    Elected(Candidate, Arc<Slot<ElectedScheduler>>),
}

/// Whether a component is healthy.
pub(super) type Health = Box<dyn Fn() -> bool + Send + Sync>;

/// The current scheduler's explainer; None while another process leads.
pub(super) type FindExplainer = Box<dyn Fn() -> Option<scheduler::Explainer> + Send + Sync>;

impl ControllersPart {
    pub(super) fn start(
        server: &Arc<Server>,
        chosen: Controllers,
        metrics: client::Metrics,
        is_shared: bool,
    ) -> Result<ControllersPart> {
        let clients = LocalClients::new(server);
        let of_election = metrics.clone();
        let start = move |clients: &LocalClients| {
            let environment =
                controllers::Environment { metrics: metrics.clone(), ..clients.controllers(chosen.options.clone()) };
            let refused = |why| Error::Flags(vec![format!("--controllers: {why}")]);
            controllers::start(environment, &chosen.chosen).map_err(refused)
        };
        if !is_shared {
            return Ok(Part::Always(start(&clients)?));
        }
        let (candidate, slot) = campaign(&clients, CONTROLLERS_LEASE, &[], of_election, Box::new(start));
        Ok(Part::Elected(candidate, slot))
    }

    /// A candidate that does not lead is healthy.
    pub(super) fn watch_health(&self) -> Health {
        match self {
            Part::Always(running) => Box::new(running.watch_health()),
            Part::Elected(_, slot) => {
                let slot = slot.clone();
                Box::new(move || slot.current().is_none_or(|running| running.watch_health()()))
            }
        }
    }

    pub(super) async fn stop(self) {
        match self {
            Part::Always(running) => running.stop().await,
            Part::Elected(candidate, _) => candidate.stop().await,
        }
    }
}

impl SchedulerPart {
    pub(super) fn start(
        server: &Arc<Server>,
        configuration: Configuration,
        metrics: client::Metrics,
        is_shared: bool,
    ) -> Result<SchedulerPart> {
        let clients = LocalClients::new(server);
        let start = move |clients: &LocalClients| {
            let wrong = |why: String| Error::Flags(vec![why]);
            let wire = ExtenderClients::new(&configuration.extenders).map_err(|error| wrong(error.to_string()))?;
            let environment =
                scheduler::Environment { extender_transport: Some(wire), ..clients.scheduler(configuration.clone()) };
            scheduler::start(environment).map_err(|error| wrong(error.to_string()))
        };
        let part = match is_shared {
            false => SchedulerPart::Always(start(&clients)?),
            true => {
                let start = Box::new(move |clients: &LocalClients| Ok(Mutex::new(Some(start(clients)?))));
                let (candidate, slot) = campaign(&clients, SCHEDULER_LEASE, &[], metrics, start);
                SchedulerPart::Elected(candidate, slot)
            }
        };
        let explainer = part.explainer();
        let metrics = move || explainer().map(|explainer| explainer.metrics()).unwrap_or_default();
        server.metrics.show_also(Box::new(metrics));
        Ok(part)
    }

    pub(super) fn explainer(&self) -> FindExplainer {
        match self {
            SchedulerPart::Always(running) => {
                let explainer = running.explainer();
                Box::new(move || Some(explainer.clone()))
            }
            SchedulerPart::Elected(_, slot) => {
                let slot = slot.clone();
                Box::new(move || slot.current()?.lock().as_ref().map(SchedulerHandle::explainer))
            }
        }
    }

    /// A candidate that does not lead is healthy.
    pub(super) fn watch_health(&self) -> Health {
        match self {
            SchedulerPart::Always(running) => Box::new(running.watch_health()),
            SchedulerPart::Elected(_, slot) => {
                let slot = slot.clone();
                let is_well = |running: Arc<ElectedScheduler>| running.lock().as_ref().is_none_or(|one| one.is_well());
                Box::new(move || slot.current().is_none_or(is_well))
            }
        }
    }

    pub(super) async fn stop(self) {
        match self {
            SchedulerPart::Always(running) => running.stop().await,
            SchedulerPart::Elected(candidate, _) => candidate.stop().await,
        }
    }
}

//! Extenders: HTTP services that filter and prioritize the nodes found by the plugins. They are called between two
//! runs of the same decision: the second run applies their response as another plugin, so that a decision needs no
//! I/O.

mod candidates;
mod error;
mod node_results;
mod wire;

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::Arc;

use api::{Str, Tree};
use stdx::sync::{Mutex, MutexGuard};

use crate::config::ExtenderConfig;
use crate::framework::{
    Candidate, Cycle, Handle, Plugin, PluginError, PluginFuture, Point, PreFilter, PreScore, Rejection, Slot, Verdict,
};
use crate::snapshot::{NodeId, NodeState};
use podmodel::Pod;

pub use candidates::Candidates;
use error::ResponseError;
pub use error::{ExtenderError, TransportError};
use node_results::NodeResults;

/// The response body, or the error.
pub type PostFuture<'a> = Pin<Box<dyn Future<Output = Result<Vec<u8>, TransportError>> + Send + 'a>>;

/// Sends requests to extenders.
pub trait ExtenderTransport: Send + Sync {
    /// Posts JSON to `url_prefix/verb`. A status other than 200 is an error.
    fn post<'a>(&'a self, extender: &'a ExtenderConfig, verb: &'a str, body: Vec<u8>) -> PostFuture<'a>;
}

pub(crate) struct Extenders {
    all: Vec<ExtenderConfig>,
    wire: Arc<dyn ExtenderTransport>,
    /// By uid of the pod being scheduled.
    responses: Mutex<HashMap<Str, PodResponses>>,
}

/// The responses during one decision, and the pending preemption request.
#[derive(Default)]
struct PodResponses {
    nodes: Option<Arc<NodeResults>>,
    candidates: Option<Result<Candidates, ExtenderError>>,
    pending_candidates: Option<Candidates>,
}

impl Extenders {
    pub(crate) fn new(all: Vec<ExtenderConfig>, wire: Arc<dyn ExtenderTransport>) -> Extenders {
        Extenders { all, wire, responses: Mutex::default() }
    }

    fn responses(&self) -> MutexGuard<'_, HashMap<Str, PodResponses>> {
        self.responses.lock()
    }

    fn node_results(&self, pod: &Pod) -> Option<Arc<NodeResults>> {
        self.responses().get(&pod.uid)?.nodes.clone()
    }

    /// Whether extenders must be called for the pod's nodes first.
    pub(crate) fn must_be_called(&self, pod: &Pod) -> bool {
        let has_verbs = |one: &&ExtenderConfig| !one.filter_verb.is_empty() || !one.prioritize_verb.is_empty();
        self.interested(pod).any(|one| has_verbs(&one)) && self.node_results(pod).is_none()
    }

    /// The preemption candidates that extenders must be called for.
    pub(crate) fn pending_candidates(&self, pod: &Pod) -> Option<Candidates> {
        self.responses().get_mut(&pod.uid)?.pending_candidates.take()
    }

    pub(crate) fn forget(&self, pod: &Pod) {
        self.responses().remove(&pod.uid);
    }

    fn interested<'a>(&'a self, pod: &'a Pod) -> impl Iterator<Item = &'a ExtenderConfig> {
        self.all.iter().filter(|one| is_interested(one, pod))
    }

    /// Calls the extenders for nodes and keeps the response for the next run.
    pub(crate) async fn filter_nodes(
        &self,
        pod: &Pod,
        object: &Tree,
        nodes: &[(Str, Arc<Tree>)],
    ) -> Result<(), ExtenderError> {
        let mut answer = NodeResults::allowing(nodes.iter().map(|(name, _)| name.clone()));
        for one in self.interested(pod).filter(|one| !one.filter_verb.is_empty()) {
            let body = wire::filter_request(object, &answer.allowed(nodes), one.node_cache_capable);
            let response = self.post(one, &one.filter_verb, body).await;
            match response.and_then(|body| answer.filter(&body)) {
                Ok(()) => {}
                Err(why) if one.ignorable => {
                    tracing::warn!(extender = one.url_prefix, %why, "extender filter failed, ignoring it");
                }
                Err(source) => return Err(ExtenderError { url_prefix: one.url_prefix.clone(), source }),
            }
            if answer.is_nowhere() {
                break;
            }
        }
        self.prioritize(pod, object, nodes, &mut answer).await;
        self.responses().entry(pod.uid.clone()).or_default().nodes = Some(Arc::new(answer));
        Ok(())
    }

    /// Calls the extenders for preemption candidates and keeps the response for the next run. `object` returns the
    /// full pod.
    pub(crate) async fn process_preemption(
        &self,
        pod: &Pod,
        candidates: Candidates,
        object: impl Fn(&Pod) -> Tree + Send + Sync,
    ) {
        let answer = self.left_of(pod, candidates, object).await;
        self.responses().entry(pod.uid.clone()).or_default().candidates = Some(answer);
    }

    /// Each extender gets what the previous ones have left.
    async fn left_of(
        &self,
        pod: &Pod,
        mut candidates: Candidates,
        object: impl Fn(&Pod) -> Tree + Send + Sync,
    ) -> Result<Candidates, ExtenderError> {
        for one in self.interested(pod).filter(|one| !one.preempt_verb.is_empty()) {
            let body = candidates.request(&object(pod), one.node_cache_capable, &object);
            let response = self.post(one, &one.preempt_verb, body).await;
            match response.and_then(|body| candidates.apply_response(&body, pod, one.ignorable)) {
                Ok(left) => candidates = left,
                Err(why) if one.ignorable => {
                    tracing::warn!(extender = one.url_prefix, %why, "extender preemption failed, ignoring it");
                }
                Err(source) => return Err(ExtenderError { url_prefix: one.url_prefix.clone(), source }),
            }
            if candidates.is_empty() {
                break;
            }
        }
        Ok(candidates)
    }

    async fn post(&self, extender: &ExtenderConfig, verb: &str, body: Vec<u8>) -> Result<Vec<u8>, ResponseError> {
        Ok(self.wire.post(extender, verb, body).await?)
    }

    /// Failing extenders are ignored.
    async fn prioritize(&self, pod: &Pod, object: &Tree, nodes: &[(Str, Arc<Tree>)], answer: &mut NodeResults) {
        if answer.is_decided() {
            return;
        }
        for one in self.interested(pod).filter(|one| !one.prioritize_verb.is_empty()) {
            let body = wire::filter_request(object, &answer.allowed(nodes), one.node_cache_capable);
            let response = self.post(one, &one.prioritize_verb, body).await;
            if let Err(why) = response.and_then(|body| answer.rate(&body, one.weight)) {
                tracing::warn!(extender = one.url_prefix, %why, "extender failed to prioritize nodes, ignoring it");
            }
        }
    }
}

/// Whether the extender manages a resource of the pod, or all pods.
fn is_interested(extender: &ExtenderConfig, pod: &Pod) -> bool {
    let wants = |name: &str| pod.spec.requests.others.iter().any(|(other, _)| other == name);
    extender.managed_resources.is_empty() || extender.managed_resources.iter().any(|managed| wants(&managed.name))
}

impl Plugin for Extenders {
    fn name(&self) -> &'static str {
        "Extenders"
    }

    fn points(&self) -> &'static [Point] {
        &[Point::PreFilter, Point::Filter, Point::PreScore, Point::Score, Point::Bind]
    }

    fn pre_filter(&self, cycle: Cycle) -> PreFilter {
        self.node_results(cycle.pod).map_or(PreFilter::Skip, |answer| PreFilter::Check(Slot::new(answer)))
    }

    fn filter(&self, _cycle: Cycle, slot: &Slot, node: &NodeState) -> Verdict {
        let Some(answer) = slot.get::<Arc<NodeResults>>() else { return Ok(()) };
        match answer.rejection(node.name()) {
            None => Ok(()),
            Some((true, why)) => Err(Rejection::unresolvable(why.to_string())),
            Some((false, why)) => Err(Rejection::unschedulable(why.to_string())),
        }
    }

    fn pre_score(&self, cycle: Cycle, _slot: &Slot, _nodes: &[NodeId]) -> PreScore {
        match self.node_results(cycle.pod) {
            Some(answer) if answer.rates() => PreScore::Rate(Slot::new(answer)),
            _ => PreScore::Skip,
        }
    }

    fn supports_preemption(&self) -> bool {
        false
    }

    /// Records that the extenders must be called if they were not yet.
    fn filter_candidates(
        &self,
        cycle: Cycle,
        candidates: Vec<Arc<Candidate>>,
    ) -> Result<Vec<Arc<Candidate>>, PluginError> {
        if !self.interested(cycle.pod).any(|one| !one.preempt_verb.is_empty()) {
            return Ok(candidates);
        }
        let mut responses = self.responses();
        let responses = responses.entry(cycle.pod.uid.clone()).or_default();
        match &responses.candidates {
            Some(Ok(remaining)) => Ok(remaining.choose(cycle.snapshot, &candidates)),
            Some(Err(error)) => Err(error.clone().into()),
            None => {
                responses.pending_candidates = Some(Candidates::of(cycle.snapshot, &candidates));
                Ok(candidates)
            }
        }
    }

    fn score(&self, _cycle: Cycle, slot: &Slot, node: &NodeState) -> i64 {
        slot.get::<Arc<NodeResults>>().map_or(0, |answer| answer.score(node.name()))
    }

    fn bind<'a>(&'a self, _hands: &'a Handle, pod: &'a Pod, node: &'a str) -> Option<PluginFuture<'a>> {
        let binder = self.interested(pod).find(|one| !one.bind_verb.is_empty())?;
        Some(Box::pin(async move {
            let response = self.post(binder, &binder.bind_verb, wire::binding(pod, node)).await;
            response.and_then(|body| wire::bound(&body)).map_err(client::Error::failed)
        }))
    }
}

#[cfg(test)]
mod tests;

//! Extenders: services that are asked about the nodes that plugins have found, over HTTP. They are asked
//! between two looks of the same decision: the second one heeds their answer as that of one more plugin, so
//! that a decision needs no I/O.

mod answer;
mod rooms;
mod wire;

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::Arc;

use api::{Str, Tree};
use stdx::sync::{Mutex, MutexGuard};

use crate::config::ExtenderConfig;
use crate::framework::{Candidate, Cycle, Hands, Plugin, Point, PreFilter, PreScore, Refusal, Slot, Verdict, Working};
use crate::model::Pod;
use crate::snapshot::{NodeId, NodeState};

use answer::Answer;
pub use rooms::Rooms;

/// The body of an answer, or why there is none.
pub type Posting<'a> = Pin<Box<dyn Future<Output = Result<Vec<u8>, String>> + Send + 'a>>;

/// Carries a question to an extender.
pub trait Wire: Send + Sync {
    /// Posts JSON to `url_prefix/verb`. A code other than 200 is an error.
    fn post<'a>(&'a self, extender: &'a ExtenderConfig, verb: &'a str, body: Vec<u8>) -> Posting<'a>;
}

pub struct Extenders {
    all: Vec<ExtenderConfig>,
    wire: Arc<dyn Wire>,
    /// By the uid of the pod that is decided about.
    said: Mutex<HashMap<Str, Said>>,
}

/// What was said in the course of one decision, and what is still to be asked.
#[derive(Default)]
struct Said {
    nodes: Option<Arc<Answer>>,
    rooms: Option<Result<Rooms, String>>,
    question: Option<Rooms>,
}

impl Extenders {
    pub fn new(all: Vec<ExtenderConfig>, wire: Arc<dyn Wire>) -> Extenders {
        Extenders { all, wire, said: Mutex::default() }
    }

    fn said(&self) -> MutexGuard<'_, HashMap<Str, Said>> {
        self.said.lock()
    }

    fn answer(&self, pod: &Pod) -> Option<Arc<Answer>> {
        self.said().get(&pod.uid)?.nodes.clone()
    }

    /// Whether somebody has to be asked about a pod's nodes first.
    pub fn are_to_be_asked(&self, pod: &Pod) -> bool {
        let asks = |one: &&ExtenderConfig| !one.filter_verb.is_empty() || !one.prioritize_verb.is_empty();
        self.interested(pod).any(|one| asks(&one)) && self.answer(pod).is_none()
    }

    /// The ways to make room for a pod that somebody has to be asked about first.
    pub fn question(&self, pod: &Pod) -> Option<Rooms> {
        self.said().get_mut(&pod.uid)?.question.take()
    }

    pub fn forget(&self, pod: &Pod) {
        self.said().remove(&pod.uid);
    }

    fn interested<'a>(&'a self, pod: &'a Pod) -> impl Iterator<Item = &'a ExtenderConfig> {
        self.all.iter().filter(|one| is_interested(one, pod))
    }

    /// Asks about nodes, by name with their objects, and keeps the answer for the next look.
    pub async fn ask(&self, pod: &Pod, object: &Tree, nodes: &[(Str, Arc<Tree>)]) -> Result<(), String> {
        let mut answer = Answer::allowing(nodes.iter().map(|(name, _)| name.clone()));
        for one in self.interested(pod).filter(|one| !one.filter_verb.is_empty()) {
            let body = wire::question(object, &answer.allowed(nodes), one.node_cache_capable);
            let said = self.wire.post(one, &one.filter_verb, body).await.and_then(|body| answer.filter(&body));
            match said {
                Ok(()) => {}
                Err(why) if one.ignorable => {
                    tracing::warn!(extender = one.url_prefix, why, "an extender is passed by");
                }
                Err(why) => return Err(format!("extender {}: {why}", one.url_prefix)),
            }
            if answer.is_nowhere() {
                break;
            }
        }
        self.prioritize(pod, object, nodes, &mut answer).await;
        self.said().entry(pod.uid.clone()).or_default().nodes = Some(Arc::new(answer));
        Ok(())
    }

    /// Asks about ways to make room, and keeps the answer for the next look. `object` gives the whole of a pod.
    pub async fn ask_rooms(&self, pod: &Pod, rooms: Rooms, object: impl Fn(&Pod) -> Tree + Send + Sync) {
        let answer = self.left_of(pod, rooms, object).await;
        self.said().entry(pod.uid.clone()).or_default().rooms = Some(answer);
    }

    /// Each is asked about what those before have left.
    async fn left_of(
        &self,
        pod: &Pod,
        mut rooms: Rooms,
        object: impl Fn(&Pod) -> Tree + Send + Sync,
    ) -> Result<Rooms, String> {
        for one in self.interested(pod).filter(|one| !one.preempt_verb.is_empty()) {
            let body = rooms.question(&object(pod), one.node_cache_capable, &object);
            let said = self.wire.post(one, &one.preempt_verb, body).await;
            match said.and_then(|body| rooms.answered(&body, pod, one.ignorable)) {
                Ok(left) => rooms = left,
                Err(why) if one.ignorable => {
                    tracing::warn!(extender = one.url_prefix, why, "an extender is passed by");
                }
                Err(why) => return Err(format!("extender {}: {why}", one.url_prefix)),
            }
            if rooms.is_empty() {
                break;
            }
        }
        Ok(rooms)
    }

    /// Who does not answer has no say.
    async fn prioritize(&self, pod: &Pod, object: &Tree, nodes: &[(Str, Arc<Tree>)], answer: &mut Answer) {
        if answer.is_decided() {
            return;
        }
        for one in self.interested(pod).filter(|one| !one.prioritize_verb.is_empty()) {
            let body = wire::question(object, &answer.allowed(nodes), one.node_cache_capable);
            let said = self.wire.post(one, &one.prioritize_verb, body).await;
            if let Err(why) = said.and_then(|body| answer.rate(&body, one.weight)) {
                tracing::warn!(extender = one.url_prefix, why, "an extender has rated no node");
            }
        }
    }
}

/// One that manages resources is asked about pods that want these.
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
        self.answer(cycle.pod).map_or(PreFilter::Skip, |answer| PreFilter::Check(Slot::new(answer)))
    }

    fn filter(&self, _cycle: Cycle, slot: &Slot, node: &NodeState) -> Verdict {
        let Some(answer) = slot.get::<Arc<Answer>>() else { return Ok(()) };
        match answer.refusal(node.name()) {
            None => Ok(()),
            Some((true, why)) => Err(Refusal::unresolvable(why.to_string())),
            Some((false, why)) => Err(Refusal::unschedulable(why.to_string())),
        }
    }

    fn pre_score(&self, cycle: Cycle, _slot: &Slot, _nodes: &[NodeId]) -> PreScore {
        match self.answer(cycle.pod) {
            Some(answer) if answer.rates() => PreScore::Rate(Slot::new(answer)),
            _ => PreScore::Skip,
        }
    }

    fn foresees(&self) -> bool {
        false
    }

    /// Where nobody was asked yet, it is noted that somebody has to be.
    fn screen(&self, cycle: Cycle, candidates: Vec<Arc<Candidate>>) -> Result<Vec<Arc<Candidate>>, String> {
        if !self.interested(cycle.pod).any(|one| !one.preempt_verb.is_empty()) {
            return Ok(candidates);
        }
        let mut said = self.said();
        let said = said.entry(cycle.pod.uid.clone()).or_default();
        match &said.rooms {
            Some(Ok(rooms)) => Ok(rooms.choose(cycle.snapshot, &candidates)),
            Some(Err(why)) => Err(why.clone()),
            None => {
                said.question = Some(Rooms::of(cycle.snapshot, &candidates));
                Ok(candidates)
            }
        }
    }

    fn score(&self, _cycle: Cycle, slot: &Slot, node: &NodeState) -> i64 {
        slot.get::<Arc<Answer>>().map_or(0, |answer| answer.score(node.name()))
    }

    fn bind<'a>(&'a self, _hands: &'a Hands, pod: &'a Pod, node: &'a str) -> Option<Working<'a>> {
        let binder = self.interested(pod).find(|one| !one.bind_verb.is_empty())?;
        Some(Box::pin(async move {
            let said = self.wire.post(binder, &binder.bind_verb, wire::binding(pod, node)).await;
            said.and_then(|body| wire::bound(&body)).map_err(client::Error::Failed)
        }))
    }
}

#[cfg(test)]
mod tests;

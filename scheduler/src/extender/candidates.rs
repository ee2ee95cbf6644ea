//! Preemption candidates in extender requests and responses.

use std::collections::BTreeMap;
use std::sync::Arc;

use api::{Str, Tree, tree};

use super::error::ResponseError;
use super::wire;
use crate::framework::Candidate;
use crate::snapshot::Snapshot;
use podmodel::Pod;

/// The victims on a node, with all its pods: an extender may choose others.
#[derive(Debug, Clone)]
pub(crate) struct NodeVictims {
    pods: Vec<Arc<Pod>>,
    victims: Vec<Arc<Pod>>,
    violations: i64,
}

/// By node name.
#[derive(Debug, Clone, Default)]
pub struct Candidates(BTreeMap<Str, NodeVictims>);

impl Candidates {
    /// The candidates with the pods of their nodes.
    pub fn of(snapshot: &Snapshot, candidates: &[Arc<Candidate>]) -> Candidates {
        let room = |candidate: &Arc<Candidate>| {
            let node = snapshot.node(candidate.node)?;
            let violations = i64::try_from(candidate.violations).unwrap_or(i64::MAX);
            let room = NodeVictims { pods: node.pods.to_vec(), victims: candidate.victims.clone(), violations };
            Some((node.node.name.clone(), room))
        };
        Candidates(candidates.iter().filter_map(room).collect())
    }

    /// Whether no candidate is left.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The preemption request. `object` returns the full pod if it is needed.
    pub fn request(&self, pod: &Tree, by_name: bool, object: impl Fn(&Pod) -> Tree) -> Vec<u8> {
        let victim = |victim: &Arc<Pod>| match by_name {
            true => tree! { "UID" => victim.uid.clone() },
            false => object(victim),
        };
        let mut candidates = Tree::map_new();
        for (node, room) in &self.0 {
            let pods = Tree::List(room.victims.iter().map(victim).collect());
            candidates.set(node.as_str(), tree! { "Pods" => pods, "NumPDBViolations" => room.violations });
        }
        let (victims, meta) = if by_name { (Tree::Null, candidates) } else { (candidates, Tree::Null) };
        let request_body =
            tree! { "Pod" => pod.clone(), "NodeNameToVictims" => victims, "NodeNameToMetaVictims" => meta };
        api::json::encode(&request_body, None)
    }

    /// Applies a preemption response. For an ignorable extender, a node without valid victims is dropped instead of
    /// an error.
    pub(super) fn apply_response(
        &self,
        body: &[u8],
        pod: &Pod,
        is_ignorable: bool,
    ) -> Result<Candidates, ResponseError> {
        let answer = wire::read(body)?;
        let mut left = BTreeMap::new();
        let candidates = wire::field(&answer, "NodeNameToMetaVictims").as_map();
        for (node, response) in candidates.into_iter().flat_map(|candidates| candidates.iter()) {
            let known = self.0.get(node);
            let known = known.ok_or_else(|| ResponseError::UnknownNode(node.to_string()))?;
            let room = known.left(node, response, pod)?;
            match (room.victims.is_empty(), is_ignorable) {
                (false, _) => drop(left.insert(Str::new(node), room)),
                (true, true) => {}
                (true, false) => return Err(ResponseError::NoVictim(node.to_string())),
            }
        }
        Ok(Candidates(left))
    }

    /// The remaining candidates, with the chosen victims.
    pub fn choose(&self, snapshot: &Snapshot, candidates: &[Arc<Candidate>]) -> Vec<Arc<Candidate>> {
        let chosen = |candidate: &Arc<Candidate>| {
            let room = self.0.get(snapshot.node(candidate.node)?.name())?;
            let violations = usize::try_from(room.violations).unwrap_or(0);
            Some(Arc::new(Candidate { node: candidate.node, victims: room.victims.clone(), violations }))
        };
        candidates.iter().filter_map(chosen).collect()
    }
}

impl NodeVictims {
    /// The victims of a response, which must exist and have a lower priority.
    fn left(&self, node: &str, response: &Tree, pod: &Pod) -> Result<NodeVictims, ResponseError> {
        let mut victims = Vec::new();
        for one in wire::field(response, "Pods").as_list().unwrap_or_default() {
            let uid = wire::field(one, "UID").as_str().unwrap_or("");
            let victim = self.pods.iter().find(|pod| pod.uid == uid);
            let (uid, node) = (uid.to_string(), node.to_string());
            let Some(victim) = victim else { return Err(ResponseError::UnknownVictim { uid, node }) };
            if victim.priority >= pod.priority {
                return Err(ResponseError::VictimPriority { uid, node });
            }
            victims.push(victim.clone());
        }
        let violations = wire::field(response, "NumPDBViolations").as_int().unwrap_or(0);
        Ok(NodeVictims { pods: self.pods.clone(), victims, violations })
    }
}

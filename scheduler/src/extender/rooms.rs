//! Ways to make room for a pod, as extenders are asked about them: which of them are left, and who is to go.

use std::collections::BTreeMap;
use std::sync::Arc;

use api::{Str, Tree, tree};

use super::wire;
use crate::framework::Candidate;
use crate::model::Pod;
use crate::snapshot::Snapshot;

/// A way to make room on a node, with all pods that are there: an extender may choose others.
#[derive(Debug, Clone)]
pub struct Room {
    pods: Vec<Arc<Pod>>,
    victims: Vec<Arc<Pod>>,
    violations: i64,
}

/// By the name of the node.
#[derive(Debug, Clone, Default)]
pub struct Rooms(BTreeMap<Str, Room>);

impl Rooms {
    pub fn of(snapshot: &Snapshot, candidates: &[Arc<Candidate>]) -> Rooms {
        let room = |candidate: &Arc<Candidate>| {
            let node = snapshot.node(candidate.node)?;
            let violations = i64::try_from(candidate.violations).unwrap_or(i64::MAX);
            let room = Room { pods: node.pods.to_vec(), victims: candidate.victims.clone(), violations };
            Some((node.node.name.clone(), room))
        };
        Rooms(candidates.iter().filter_map(room).collect())
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The question about them. `object` gives the whole of a pod, where it is wanted.
    pub fn question(&self, pod: &Tree, by_name: bool, object: impl Fn(&Pod) -> Tree) -> Vec<u8> {
        let victim = |victim: &Arc<Pod>| match by_name {
            true => tree! { "UID" => victim.uid.clone() },
            false => object(victim),
        };
        let mut rooms = Tree::map_new();
        for (node, room) in &self.0 {
            let pods = Tree::List(room.victims.iter().map(victim).collect());
            rooms.set(node.as_str(), tree! { "Pods" => pods, "NumPDBViolations" => room.violations });
        }
        let (victims, meta) = if by_name { (Tree::Null, rooms) } else { (rooms, Tree::Null) };
        let asked = tree! { "Pod" => pod.clone(), "NodeNameToVictims" => victims, "NodeNameToMetaVictims" => meta };
        api::json::encode(&asked, None)
    }

    /// What an extender has left of them for a pod. Where it may be passed by, a room that nobody leaves is only no
    /// room.
    pub fn answered(&self, body: &[u8], pod: &Pod, is_ignorable: bool) -> Result<Rooms, String> {
        let answer = wire::read(body)?;
        let mut left = BTreeMap::new();
        let rooms = wire::field(&answer, "NodeNameToMetaVictims").as_map();
        for (node, said) in rooms.into_iter().flat_map(|rooms| rooms.iter()) {
            let known = self.0.get(node);
            let known = known.ok_or_else(|| format!("the answer has node {node:?}, which was not asked about"))?;
            let room = known.left(node, said, pod)?;
            match (room.victims.is_empty(), is_ignorable) {
                (false, _) => drop(left.insert(Str::new(node), room)),
                (true, true) => {}
                (true, false) => return Err(format!("expected at least one victim pod on node {node:?}")),
            }
        }
        Ok(Rooms(left))
    }

    /// Those of some candidates that are left, with the victims that were chosen.
    pub fn choose(&self, snapshot: &Snapshot, candidates: &[Arc<Candidate>]) -> Vec<Arc<Candidate>> {
        let chosen = |candidate: &Arc<Candidate>| {
            let room = self.0.get(snapshot.node(candidate.node)?.name())?;
            let violations = usize::try_from(room.violations).unwrap_or(0);
            Some(Arc::new(Candidate { node: candidate.node, victims: room.victims.clone(), violations }))
        };
        candidates.iter().filter_map(chosen).collect()
    }
}

impl Room {
    /// The same with the victims that an answer names, which have to be there and to be of less priority.
    fn left(&self, node: &str, said: &Tree, pod: &Pod) -> Result<Room, String> {
        let mut victims = Vec::new();
        for one in wire::field(said, "Pods").as_list().unwrap_or_default() {
            let uid = wire::field(one, "UID").as_str().unwrap_or("");
            let claims = format!("claims to preempt pod (UID: {uid}) on node: {node}, but the pod");
            let victim = self.pods.iter().find(|pod| pod.uid == uid);
            let victim = victim.ok_or_else(|| format!("{claims} is not found on that node"))?;
            if victim.priority >= pod.priority {
                return Err(format!("{claims} is not of lower priority"));
            }
            victims.push(victim.clone());
        }
        let violations = wire::field(said, "NumPDBViolations").as_int().unwrap_or(0);
        Ok(Room { pods: self.pods.clone(), victims, violations })
    }
}

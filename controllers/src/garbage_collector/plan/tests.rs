use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use super::*;
use crate::garbage_collector::graph::WorkItems;
use crate::garbage_collector::object::{Owner, TypeMeta};

fn of(kind: &str) -> Arc<TypeMeta> {
    Arc::new(TypeMeta { api_version: "v1".into(), kind: kind.into() })
}

fn owner(uid: &str, blocks: bool) -> Owner {
    Owner { uid: Uid::from(uid), of: of("Thing"), name: uid.into(), blocks }
}

/// An object named like its uid; `~` before an owner clears `blockOwnerDeletion`.
fn object(uid: &str, owners: &str, finalizers: &str, deleting: bool) -> Object {
    let words = |text: &str| text.split_whitespace().map(str::to_string).collect::<Vec<_>>();
    let read = |word: &String| owner(word.trim_start_matches('~'), !word.starts_with('~'));
    Object {
        uid: Uid::from(uid),
        of: of("Thing"),
        namespace: "ns".into(),
        name: uid.into(),
        version: 1,
        owners: words(owners).iter().map(read).collect(),
        finalizers: words(finalizers).iter().map(|word| word.as_str().into()).collect(),
        deleting,
        delete_requested: false,
    }
}

fn graph(objects: &[Object]) -> Graph {
    let mut graph = Graph::default();
    for object in objects {
        graph.put(object.clone());
    }
    graph
}

fn uids(text: &str) -> Vec<Uid> {
    text.split_whitespace().map(Uid::from).collect()
}

#[test]
fn objects_live_as_long_as_one_owner() {
    let check = |objects: &[Object], gone: &str, want: Step| {
        let mut graph = graph(objects);
        for uid in uids(gone) {
            graph.delete(&uid);
        }
        assert_eq!(plan(&graph, &Uid::from("x"), &[]), want, "{objects:?} without {gone:?}");
    };
    let x = object("x", "a b", "", false);
    let (a, b) = (object("a", "", "", false), object("b", "", "", false));
    let background = Step::Delete { policy: Policy::Background, unblock: false };
    check(&[a.clone(), b.clone()], "", Step::Nothing);
    check(&[a.clone(), b.clone(), x.clone()], "", Step::Nothing);
    check(&[a.clone(), b.clone(), x.clone()], "a", Step::Release(uids("a")));
    check(&[a.clone(), b.clone(), x.clone()], "a b", background);
    let kept = |finalizer: &str| object("x", "a", finalizer, false);
    check(&[a.clone(), kept(ORPHAN)], "a", Step::Delete { policy: Policy::Orphan, unblock: false });
    check(&[a.clone(), kept(FOREGROUND)], "a", Step::Delete { policy: Policy::Foreground, unblock: false });
    check(&[a.clone(), object("x", "a", "other", true)], "a", Step::Nothing);
    check(&[object("x", "", "", false)], "", Step::Nothing);

    let waiting = object("a", "", FOREGROUND, true);
    check(&[waiting.clone(), b.clone(), x], "", Step::Release(uids("a")));
    let x = object("x", "a", "", false);
    check(&[waiting.clone(), x.clone()], "", Step::Delete { policy: Policy::Background, unblock: false });
    let dependent = object("d", "x", "", false);
    check(&[waiting.clone(), x.clone(), dependent], "", Step::Delete { policy: Policy::Foreground, unblock: false });
    let circle = object("a", "x", FOREGROUND, true);
    check(&[circle, x], "", Step::Delete { policy: Policy::Foreground, unblock: true });
}

#[test]
fn foreground_deletion_waits_for_blocking_dependents() {
    let check = |objects: &[Object], want: Step| assert_eq!(plan(&graph(objects), &Uid::from("x"), &[]), want);
    let x = object("x", "", FOREGROUND, true);
    check(std::slice::from_ref(&x), Step::Finish(FOREGROUND));
    check(&[x.clone(), object("d", "x", "", true)], Step::Nothing);
    check(&[x.clone(), object("d", "~x", "", true)], Step::Finish(FOREGROUND));
    check(&[object("x", "", ORPHAN, true), object("d", "x", "", false)], Step::Orphan(uids("d")));
    check(&[object("x", "y", FOREGROUND, true), object("y", "x", FOREGROUND, true)], Step::Unblock);
    check(&[x, object("y", "x z", FOREGROUND, true), object("z", "y", FOREGROUND, true)], Step::Nothing);
}

#[test]
fn looks_up_unobserved_owners() {
    let x = object("x", "a", "", false);
    let mut graph = graph(std::slice::from_ref(&x));
    let delete_requested = OwnerDescription::new(&x, &x.owners[0]);
    let fetch_owner = |graph: &Graph, verdict| plan(graph, &x.uid, &[(delete_requested.clone(), verdict)]);
    assert_eq!(plan(&graph, &x.uid, &[]), Step::FetchOwner(delete_requested.clone()));
    assert_eq!(fetch_owner(&graph, OwnerLookup::Present { waiting: false }), Step::Nothing);
    assert_eq!(fetch_owner(&graph, OwnerLookup::Impossible), Step::Nothing);
    let background = Step::Delete { policy: Policy::Background, unblock: false };
    assert_eq!(fetch_owner(&graph, OwnerLookup::Present { waiting: true }), background);
    assert_eq!(fetch_owner(&graph, OwnerLookup::Absent), background);
    graph.note_absent(delete_requested.clone());
    assert_eq!(plan(&graph, &x.uid, &[]), background, "owners are looked up once");
    graph.note_delete_requested(&x.uid, true);
    assert_eq!(plan(&graph, &x.uid, &[]), Step::Nothing, "nor deletes twice");
}

#[test]
fn detects_incorrect_owner_references() {
    let foreign = Object { namespace: "other".into(), ..object("a", "", "", false) };
    let x = object("x", "a", "", false);
    let report = (x.uid.clone(), OwnerDescription::new(&x, &x.owners[0]));
    let want = WorkItems { now: uids("x"), soon: vec![], foreign: vec![report] };
    let mut owner_first = Graph::default();
    owner_first.put(foreign.clone());
    assert_eq!(owner_first.put(x.clone()), want);
    let mut dependent_first = Graph::default();
    assert_eq!(dependent_first.put(x.clone()), WorkItems { soon: uids("x"), ..WorkItems::default() });
    assert_eq!(dependent_first.put(foreign), want);
    assert!(matches!(plan(&dependent_first, &x.uid, &[]), Step::FetchOwner(_)));
    // A cluster-scoped owner matches references from any namespace.
    let cluster = Object { namespace: "".into(), ..object("a", "", "", false) };
    assert_eq!(graph(&[cluster, x.clone()]).owner_state(&x, &x.owners[0]), OwnerState::Solid);
}

/// A server that keeps the whole history, and one watch per kind, each with its own delay.
struct World {
    random: u64,
    objects: BTreeMap<Uid, Object>,
    version: u64,
    watches: [VecDeque<(Uid, Option<Object>)>; 3],
    graph: Graph,
    queue: BTreeSet<Uid>,
    born: u64,
}

impl World {
    fn new(seed: u64) -> World {
        World {
            random: seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1,
            objects: BTreeMap::new(),
            version: 1,
            watches: Default::default(),
            graph: Graph::default(),
            queue: BTreeSet::new(),
            born: 0,
        }
    }

    fn below(&mut self, limit: usize) -> usize {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        (self.random >> 33) as usize % limit
    }

    fn pick(&mut self) -> Option<Uid> {
        let at = self.below(self.objects.len().max(1));
        self.objects.keys().nth(at).cloned()
    }

    fn publish(&mut self, uid: &Uid) {
        self.version += 1;
        if let Some(object) = self.objects.get_mut(uid) {
            object.version = self.version;
        }
        let Uid::Other(name) = uid else { panic!("uids are short here") };
        let watch = name.len() % self.watches.len();
        self.watches[watch].push_back((uid.clone(), self.objects.get(uid).cloned()));
    }

    fn create(&mut self) {
        let uid = "x".repeat(1 + self.below(3)) + &self.born.to_string();
        self.born += 1;
        let mut object = object(&uid, "", "", false);
        object.owners = (0..self.below(3)).filter_map(|_| self.pick()).map(|uid| named(&uid)).collect();
        self.objects.insert(object.uid.clone(), object);
        self.publish(&Uid::from(uid.as_str()));
    }

    /// Creates ownership cycles.
    fn adopt(&mut self) {
        let (Some(uid), Some(by)) = (self.pick(), self.pick()) else { return };
        let Some(object) = self.objects.get_mut(&uid).filter(|object| !object.deleting) else { return };
        if uid != by && object.owners.iter().all(|owner| owner.uid != by) {
            object.owners = object.owners.iter().cloned().chain([named(&by)]).collect();
            self.publish(&uid);
        }
    }

    fn delete(&mut self, uid: &Uid, policy: Policy) {
        let Some(object) = self.objects.get_mut(uid) else { return };
        let wanted = match policy {
            Policy::Background => None,
            Policy::Foreground => Some(FOREGROUND),
            Policy::Orphan => Some(ORPHAN),
        };
        let others = object.finalizers.iter().filter(|name| *name != FOREGROUND && *name != ORPHAN).cloned();
        object.finalizers = others.chain(wanted.map(Into::into)).collect();
        object.deleting = true;
        self.end(uid);
    }

    fn end(&mut self, uid: &Uid) {
        if self.objects.get(uid).is_some_and(|object| object.deleting && object.finalizers.is_empty()) {
            self.objects.remove(uid);
        }
        self.publish(uid);
    }

    /// Delivers one event of one watch.
    fn deliver(&mut self) {
        let at = self.below(self.watches.len());
        let Some((uid, seen)) = self.watches[at].pop_front() else { return };
        let work_items = match seen {
            Some(object) => self.graph.put(object),
            None => self.graph.delete(&uid),
        };
        self.queue.extend(work_items.now.into_iter().chain(work_items.soon));
    }

    fn work(&mut self) {
        let at = self.below(self.queue.len().max(1));
        let Some(uid) = self.queue.iter().nth(at).cloned() else { return };
        self.queue.remove(&uid);
        let mut verdicts = Vec::new();
        loop {
            match plan(&self.graph, &uid, &verdicts) {
                Step::FetchOwner(owner) => verdicts.push((owner.clone(), self.answer(&owner))),
                step => return self.actions(&uid, step),
            }
        }
    }

    fn answer(&mut self, owner: &OwnerDescription) -> OwnerLookup {
        match self.objects.get(&owner.uid) {
            Some(object) => OwnerLookup::Present { waiting: object.deletes_dependents() },
            None => {
                self.graph.note_absent(owner.clone());
                OwnerLookup::Absent
            }
        }
    }

    fn actions(&mut self, uid: &Uid, step: Step) {
        match step {
            Step::Nothing | Step::FetchOwner(_) => {}
            Step::Delete { policy, unblock } => {
                let known = self.graph.get(uid).map(|object| object.version);
                if self.objects.get(uid).is_none_or(|object| Some(object.version) != known) {
                    self.queue.extend(self.objects.contains_key(uid).then(|| uid.clone()));
                    return;
                }
                self.assert_unheld(uid);
                if unblock {
                    self.unblock(uid);
                }
                self.graph.note_delete_requested(uid, true);
                self.delete(uid, policy);
            }
            Step::Release(owners) => self.release(uid, &owners),
            Step::Unblock => self.unblock(uid),
            Step::Finish(finalizer) => self.finish(uid, finalizer),
            Step::Orphan(dependents) => {
                dependents.iter().for_each(|dependent| self.release(dependent, std::slice::from_ref(uid)));
                self.finish(uid, ORPHAN);
            }
        }
    }

    fn assert_unheld(&self, uid: &Uid) {
        for owner in &self.objects[uid].owners {
            let holds = self.objects.get(&owner.uid).is_some_and(|owner| !owner.deletes_dependents());
            assert!(!holds, "{uid} is held by {}", owner.uid);
        }
    }

    fn release(&mut self, uid: &Uid, owners: &[Uid]) {
        let Some(object) = self.objects.get_mut(uid) else { return };
        object.owners = object.owners.iter().filter(|owner| !owners.contains(&owner.uid)).cloned().collect();
        self.publish(uid);
    }

    fn unblock(&mut self, uid: &Uid) {
        let Some(object) = self.objects.get_mut(uid) else { return };
        object.owners.iter_mut().for_each(|owner| owner.blocks = false);
        self.publish(uid);
    }

    fn finish(&mut self, uid: &Uid, finalizer: &str) {
        let Some(object) = self.objects.get_mut(uid) else { return };
        object.finalizers = object.finalizers.iter().filter(|name| *name != finalizer).cloned().collect();
        self.end(uid);
    }

    fn settle(&mut self) {
        for _ in 0..1_000_000 {
            if self.queue.is_empty() && self.watches.iter().all(VecDeque::is_empty) {
                return;
            }
            if self.below(3) == 0 { self.work() } else { self.deliver() }
        }
        panic!("it does not come to rest: {:?}", self.queue);
    }
}

fn named(uid: &Uid) -> Owner {
    owner(&uid.to_string(), true)
}

#[test]
fn random_histories_leave_no_garbage() {
    for seed in 1..400 {
        let mut world = World::new(seed);
        for _ in 0..120 {
            match world.below(10) {
                0..4 => world.create(),
                4 => world.adopt(),
                5 => {
                    let policy = [Policy::Background, Policy::Foreground, Policy::Orphan][world.below(3)];
                    // Deletion policies are not changed later: a delayed watch would not report it.
                    if let Some(uid) = world.pick().filter(|uid| !world.objects[uid].deleting) {
                        world.delete(&uid, policy);
                    }
                }
                6..8 => world.deliver(),
                _ => world.work(),
            }
        }
        world.settle();
        for object in world.objects.values() {
            assert!(!object.deleting, "seed {seed}: {} never goes: {:?}", object.uid, object);
            let is_held = object.owners.iter().any(|owner| world.objects.contains_key(&owner.uid));
            assert!(object.owners.is_empty() || is_held, "seed {seed}: {} is garbage", object.uid);
        }
        assert_eq!(world.graph.objects().count(), world.objects.len(), "seed {seed}: the graph follows");
    }
}

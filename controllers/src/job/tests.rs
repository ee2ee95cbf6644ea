//! Jobs in a simulated cluster: what a sync does, and that no crash loses a pod or counts it twice.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use api::json::{decode, encode};
use api::time::{self, Timestamp};
use api::{Tree, list, tree};

use super::backoff::Backoff;
use super::plan::{PodAction, PodActionResult, decide};
use super::view::{self, FINALIZER, INDEX};
use super::{pods, status::Event};

/// A job, its pods, and a clock.
struct World {
    job: Tree,
    pods: BTreeMap<String, Tree>,
    seconds: i64,
    made: usize,
    backoff: Option<Backoff>,
    events: Vec<Event>,
    /// The number of writes before the controller crashes.
    writes_left: usize,
    again: Option<std::time::Duration>,
}

struct Crash;

impl World {
    fn new(spec: &str) -> World {
        let template = r#""template":{"spec":{"restartPolicy":"Never","containers":[{"name":"c"}]}}"#;
        let json = format!(r#"{{"metadata":{{"namespace":"n","name":"j","uid":"u"}},"spec":{{{spec}{template}}}}}"#);
        World {
            job: decode(json.as_bytes()).expect("a job"),
            pods: BTreeMap::new(),
            seconds: 1000,
            made: 0,
            backoff: None,
            events: Vec::new(),
            writes_left: usize::MAX,
            again: None,
        }
    }

    fn now(&self) -> Timestamp {
        Timestamp { seconds: self.seconds, nanos: 0 }
    }

    /// A write, unless the controller crashes first.
    fn write(&mut self) -> Result<(), Crash> {
        self.writes_left = self.writes_left.checked_sub(1).ok_or(Crash)?;
        Ok(())
    }

    fn set_status(&mut self, status: Tree) -> Result<(), Crash> {
        if *self.job.at("status") != status {
            self.write()?;
            self.job.set("status", status);
        }
        Ok(())
    }

    fn release(&mut self, name: &str) {
        let Some(pod) = self.pods.get_mut(name) else { return };
        pod.child("metadata").set("finalizers", list![]);
        self.sweep(name);
    }

    fn delete(&mut self, name: &str) {
        let time = time::format_seconds(self.seconds);
        let Some(pod) = self.pods.get_mut(name) else { return };
        pod.child("metadata").set_default("deletionTimestamp", time);
        self.sweep(name);
    }

    /// A deleted pod is removed once it has no finalizer and no node.
    fn sweep(&mut self, name: &str) {
        let gone = self.pods.get(name).is_some_and(|pod| {
            let ended = pod.str("spec.nodeName").is_empty() || !view::is_terminating(pod);
            view::is_deleted(pod) && !view::is_tracked(pod) && ended
        });
        if gone {
            self.pods.remove(name);
        }
    }

    /// One sync, with the writes in the same order as in the controller.
    fn sync(&mut self) -> Result<(), Crash> {
        let observed = self.pods.values().cloned().map(Arc::new).collect();
        let job = Arc::new(self.job.clone());
        if view::Job(&job).is_finished() {
            return Ok(());
        }
        let decision = decide(job.clone(), observed, self.backoff, self.now());
        let mut done = PodActionResult::default();
        match &decision.act {
            PodAction::Nothing => {}
            PodAction::Create(indexes) => {
                for index in indexes {
                    self.write()?;
                    let replaced = index.and_then(|index| decision.replaced.get(&index));
                    self.create(pods::build(&job, *index, replaced.map(|pod| &**pod)));
                    done.created += 1;
                }
            }
            PodAction::Remove(gone) | PodAction::End(gone) => {
                for pod in gone {
                    let name = pod.str("metadata.name").to_string();
                    self.write()?;
                    if matches!(decision.act, PodAction::Remove(_)) {
                        self.release(&name);
                        self.write()?;
                    }
                    self.delete(&name);
                    done.deleted += 1;
                }
            }
        }
        self.again = decision.again;
        let backoff = decision.backoff;
        let tracking = decision.track(done, self.now());
        self.set_status(tracking.status.clone())?;
        self.backoff = Some(backoff);
        self.events.extend(tracking.events.clone());
        let mut released = BTreeSet::new();
        for pod in tracking.release.clone() {
            self.write()?;
            self.release(pod.str("metadata.name"));
            released.insert(view::uid(&pod).to_string());
        }
        let settled = tracking.count_released(&released, self.now());
        self.set_status(settled.status)?;
        self.events.extend(settled.events);
        Ok(())
    }

    fn create(&mut self, mut pod: Tree) {
        self.made += 1;
        let name = format!("{}{:04}", pod.str("metadata.generateName"), self.made);
        let metadata = pod.child("metadata");
        metadata.set("name", name.clone());
        metadata.set("namespace", "n");
        metadata.set("uid", format!("uid-{}", self.made));
        metadata.set("creationTimestamp", time::format_seconds(self.seconds));
        pod.set("status", tree! { "phase" => "Pending" });
        self.pods.insert(name, pod);
    }

    /// Syncs until nothing changes.
    fn settle(&mut self) {
        for _ in 0..50 {
            let before = (self.job.clone(), self.pods.clone());
            assert!(self.sync().is_ok(), "nothing crashes here");
            if before == (self.job.clone(), self.pods.clone()) {
                return;
            }
        }
        panic!("the job does not come to rest: {:?}", self.job);
    }

    fn end(&mut self, name: &str, phase: &str, code: i64) {
        let time = time::format_seconds(self.seconds);
        let pod = self.pods.get_mut(name).expect("the pod is there");
        let ended = tree! { "exitCode" => code, "finishedAt" => time };
        let state = tree! { "name" => "c", "state" => tree! { "terminated" => ended } };
        pod.set("status", tree! { "phase" => phase, "containerStatuses" => list![state] });
        self.sweep(name);
    }

    fn active(&self) -> Vec<String> {
        self.pods.iter().filter(|(_, pod)| view::is_active(pod)).map(|(name, _)| name.clone()).collect()
    }

    fn end_all(&mut self, phase: &str, code: i64) {
        for name in self.active() {
            self.end(&name, phase, code);
        }
    }

    /// The status without times, and `type=reason` of each true condition.
    fn status_text(&self) -> String {
        let mut status = self.job.at("status").clone();
        let holds = status.list("conditions").iter().filter(|condition| condition.str("status") == "True");
        let conditions: Vec<String> = holds.map(|c| format!("{}={}", c.str("type"), c.str("reason"))).collect();
        for field in ["conditions", "startTime", "completionTime"] {
            status.remove(field);
        }
        if status.map("uncountedTerminatedPods").is_empty() {
            status.remove("uncountedTerminatedPods");
        }
        let text = String::from_utf8(encode(&status, None)).expect("text");
        format!("{} {}", text.replace(['"', '{', '}'], ""), conditions.join(" "))
    }

    fn reasons(&self) -> String {
        self.events.iter().map(|event| event.reason.as_str()).collect::<Vec<_>>().join(" ")
    }
}

#[test]
fn runs_a_job_to_completion() {
    let mut world = World::new(r#""completions":3,"parallelism":2,"#);
    world.settle();
    assert_eq!(world.status_text(), "active:2,ready:0,terminating:0 ");
    world.end_all("Succeeded", 0);
    world.settle();
    assert_eq!(world.status_text(), "active:1,ready:0,succeeded:2,terminating:0 ");
    world.end_all("Succeeded", 0);
    world.settle();
    let ended = "SuccessCriteriaMet=CompletionsReached Complete=CompletionsReached";
    assert_eq!(world.status_text(), format!("ready:0,succeeded:3,terminating:0 {ended}"));
    assert_eq!(world.reasons(), "Completed");
    assert!(world.job.at("status").has("completionTime"));
    assert!(world.pods.values().all(|pod| !view::is_tracked(pod)));
}

#[test]
fn one_success_completes_a_job_without_completions() {
    let mut world = World::new(r#""parallelism":3,"#);
    world.settle();
    let first = world.active()[0].clone();
    world.end(&first, "Succeeded", 0);
    world.settle();
    assert_eq!(world.status_text(), "active:2,ready:0,succeeded:1,terminating:0 ", "other pods may finish");
    world.end_all("Failed", 1);
    world.settle();
    let ended = "SuccessCriteriaMet=CompletionsReached Complete=CompletionsReached";
    assert_eq!(world.status_text(), format!("failed:2,ready:0,succeeded:1,terminating:0 {ended}"));
}

#[test]
fn replaces_failed_pods_with_backoff() {
    let mut world = World::new(r#""completions":1,"backoffLimit":2,"#);
    for (failures, wait) in [(1, 10), (2, 20)] {
        world.settle();
        world.end_all("Failed", 1);
        world.settle();
        assert_eq!(world.status_text(), format!("failed:{failures},ready:0,terminating:0 "));
        assert_eq!(world.again, Some(std::time::Duration::from_secs(wait)));
        world.seconds += wait as i64;
    }
    world.settle();
    world.end_all("Failed", 1);
    world.settle();
    let ended = "FailureTarget=BackoffLimitExceeded Failed=BackoffLimitExceeded";
    assert_eq!(world.status_text(), format!("failed:3,ready:0,terminating:0 {ended}"));
    assert_eq!(world.reasons(), "BackoffLimitExceeded");
}

#[test]
fn restarts_count_with_on_failure() {
    let mut world = World::new(r#""completions":1,"backoffLimit":2,"#);
    world.job.child("spec.template.spec").set("restartPolicy", "OnFailure");
    world.settle();
    let name = world.active()[0].clone();
    let restarted =
        |count: i64| tree! { "phase" => "Running", "containerStatuses" => list![tree! { "restartCount" => count }] };
    world.pods.get_mut(&name).expect("the pod").set("status", restarted(1));
    world.settle();
    assert!(world.status_text().starts_with("active:1"));
    world.pods.get_mut(&name).expect("the pod").set("status", restarted(2));
    world.settle();
    assert!(world.status_text().ends_with("Failed=BackoffLimitExceeded"), "{}", world.status_text());
}

#[test]
fn deadline_fails_the_job() {
    let mut world = World::new(r#""completions":1,"activeDeadlineSeconds":5,"#);
    world.settle();
    let name = world.active()[0].clone();
    world.pods.get_mut(&name).expect("the pod").child("spec").set("nodeName", "node");
    world.settle();
    assert_eq!(world.again, Some(std::time::Duration::from_secs(5)));
    world.seconds += 5;
    world.settle();
    assert_eq!(world.status_text(), "failed:1,ready:0,terminating:1 FailureTarget=DeadlineExceeded");
    assert_eq!(world.reasons(), "", "the pod is still on its way out");
    world.pods.clear();
    world.settle();
    assert!(world.status_text().ends_with("terminating:0 FailureTarget=DeadlineExceeded Failed=DeadlineExceeded"));
    assert_eq!(world.reasons(), "DeadlineExceeded");
}

#[test]
fn suspended_jobs_have_no_pods() {
    let mut world = World::new(r#""completions":2,"parallelism":2,"#);
    world.settle();
    world.job.child("spec").set("suspend", true);
    world.settle();
    assert_eq!(world.status_text(), "ready:0,terminating:0 Suspended=JobSuspended");
    assert!(world.pods.is_empty());
    world.seconds += 60;
    world.job.child("spec").set("suspend", false);
    world.settle();
    assert_eq!(world.status_text(), "active:2,ready:0,terminating:0 ");
    assert_eq!(world.job.str("status.startTime"), time::format_seconds(1060));
    assert_eq!(world.reasons(), "Suspended Resumed");
}

#[test]
fn runs_each_index_once() {
    let mut world = World::new(r#""completionMode":"Indexed","completions":3,"parallelism":2,"#);
    world.settle();
    let of = |world: &World| {
        world
            .active()
            .iter()
            .map(|name| world.pods[name].map("metadata.annotations").str(INDEX).to_string())
            .collect::<Vec<_>>()
    };
    assert_eq!(of(&world), ["0", "1"]);
    let second = world.active()[1].clone();
    world.end(&second, "Succeeded", 0);
    world.settle();
    assert_eq!(of(&world), ["0", "2"]);
    assert_eq!(world.status_text(), "active:2,completedIndexes:1,ready:0,succeeded:1,terminating:0 ");
    world.end_all("Succeeded", 0);
    world.settle();
    let ended = "SuccessCriteriaMet=CompletionsReached Complete=CompletionsReached";
    assert_eq!(world.status_text(), format!("completedIndexes:0-2,ready:0,succeeded:3,terminating:0 {ended}"));
}

#[test]
fn backoff_limit_per_index() {
    let spec =
        r#""completionMode":"Indexed","completions":2,"parallelism":2,"backoffLimit":99,"backoffLimitPerIndex":1,"#;
    let mut world = World::new(spec);
    world.settle();
    let names = world.active();
    world.end(&names[0], "Failed", 1);
    world.end(&names[1], "Succeeded", 0);
    world.settle();
    assert_eq!(world.status_text(), "completedIndexes:1,failedIndexes:,ready:0,succeeded:1,terminating:0 ");
    assert!(view::is_tracked(&world.pods[&names[0]]), "its replacement has to learn of it");
    world.seconds += 10;
    world.settle();
    assert_eq!(
        world.status_text(),
        "active:1,completedIndexes:1,failed:1,failedIndexes:,ready:0,succeeded:1,terminating:0 "
    );
    world.end_all("Failed", 1);
    world.settle();
    let ended = "FailureTarget=FailedIndexes Failed=FailedIndexes";
    assert_eq!(
        world.status_text(),
        format!("completedIndexes:1,failed:2,failedIndexes:0,ready:0,succeeded:1,terminating:0 {ended}")
    );
}

#[test]
fn max_failed_indexes_fails_the_job() {
    let spec = r#""completionMode":"Indexed","completions":4,"parallelism":4,"backoffLimit":99,"backoffLimitPerIndex":0,"maxFailedIndexes":1,"#;
    let mut world = World::new(spec);
    world.settle();
    let names = world.active();
    world.end(&names[0], "Failed", 1);
    world.end(&names[1], "Failed", 1);
    world.settle();
    assert!(world.status_text().ends_with("FailureTarget=MaxFailedIndexesExceeded Failed=MaxFailedIndexesExceeded"));
    assert!(world.active().is_empty());
}

#[test]
fn applies_pod_failure_and_success_policies() {
    let fail = r#""podFailurePolicy":{"rules":[{"action":"FailJob","onExitCodes":{"operator":"In","values":[42]}},{"action":"Ignore","onExitCodes":{"operator":"In","values":[7]}}]},"#;
    let mut world = World::new(&format!(r#""completions":1,"backoffLimit":0,{fail}"#));
    world.settle();
    world.end_all("Failed", 7);
    world.settle();
    assert_eq!(world.status_text(), "ready:0,terminating:0 ", "ignored, but its replacement waits");
    world.seconds += 10;
    world.settle();
    world.end_all("Failed", 42);
    world.settle();
    assert_eq!(
        world.status_text(),
        "failed:1,ready:0,terminating:0 FailureTarget=PodFailurePolicy Failed=PodFailurePolicy"
    );

    let success = r#""successPolicy":{"rules":[{"succeededIndexes":"1-2","succeededCount":1}]},"#;
    let mut world = World::new(&format!(r#""completionMode":"Indexed","completions":3,"parallelism":3,{success}"#));
    world.settle();
    let names = world.active();
    world.end(&names[0], "Succeeded", 0);
    world.settle();
    assert!(world.status_text().starts_with("active:2"));
    world.end(&names[1], "Succeeded", 0);
    world.settle();
    let ended = "SuccessCriteriaMet=SuccessPolicy Complete=SuccessPolicy";
    assert_eq!(world.status_text(), format!("completedIndexes:0,1,ready:0,succeeded:2,terminating:0 {ended}"));
}

#[test]
fn terminating_pods_are_not_replaced_with_policy_failed() {
    let check = |policy: &str, want: usize| {
        let mut world = World::new(&format!(r#""completions":1,"podReplacementPolicy":"{policy}","#));
        world.settle();
        let name = world.active()[0].clone();
        world.pods.get_mut(&name).expect("the pod").child("spec").set("nodeName", "node");
        world.delete(&name);
        world.settle();
        world.seconds += 10;
        world.settle();
        assert_eq!(world.active().len(), want, "{policy}");
    };
    check("TerminatingOrFailed", 1);
    check("Failed", 0);
}

/// A small generator (splitmix64), so that seeds are reproducible.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) % limit as u64) as usize
    }
}

/// Every tracked pod that finishes is counted exactly once, wherever the controller crashes.
#[test]
fn crashes_do_not_lose_or_double_count_pods() {
    for seed in 0..24 {
        let indexed = seed % 2 == 1;
        let mode = if indexed { "Indexed" } else { "NonIndexed" };
        let spec = format!(r#""completionMode":"{mode}","completions":12,"parallelism":4,"backoffLimit":1000,"#);
        let mut random = Random(seed);
        let mut world = World::new(&spec);
        let (mut succeeded, mut failed) = (BTreeSet::new(), BTreeSet::new());
        for _ in 0..400 {
            world.seconds += 700;
            world.writes_left = random.below(6);
            if world.sync().is_err() {
                world.backoff = None;
            }
            let active = world.active();
            if !active.is_empty() && random.below(2) == 0 {
                let name = active[random.below(active.len())].clone();
                let uid = view::uid(&world.pods[&name]).to_string();
                match random.below(4) {
                    0 => {
                        failed.insert(uid);
                        world.end(&name, "Failed", 1);
                    }
                    1 => {
                        failed.insert(uid);
                        world.delete(&name);
                    }
                    _ => {
                        succeeded.insert(uid);
                        world.end(&name, "Succeeded", 0);
                    }
                }
            }
            let counted = |field: &str| {
                let status = world.job.at("status");
                let waiting = status.at("uncountedTerminatedPods").list(field).len();
                status.int(field).unwrap_or(0) as usize + waiting
            };
            assert!(counted("succeeded") <= succeeded.len(), "seed {seed}: counted twice");
            assert!(counted("failed") <= failed.len(), "seed {seed}: counted twice");
            assert!(world.active().len() <= 4, "seed {seed}: too many pods");
        }
        world.writes_left = usize::MAX;
        world.settle();
        let count = |field: &str| world.job.at("status").int(field).unwrap_or(0) as usize;
        assert!(view::Job(&world.job).is_finished(), "seed {seed}: {}", world.status_text());
        assert_eq!((count("succeeded"), count("failed")), (succeeded.len(), failed.len()), "seed {seed}");
        assert_eq!(succeeded.len(), 12, "seed {seed}");
        assert!(
            world
                .pods
                .values()
                .all(|pod| !pod.list("metadata.finalizers").iter().any(|f| f.as_str() == Some(FINALIZER)))
        );
    }
}

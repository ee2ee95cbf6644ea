//! Pods are written as `ORDINAL STATE REVISION`, actions as `+0 -1`.

use api::{list, time};

use super::*;

const NOW: Timestamp = Timestamp { seconds: 1000, nanos: 0 };

fn set(replicas: i64) -> Tree {
    let rolling = tree! { "partition" => 0, "maxUnavailable" => 1 };
    tree! {
        "apiVersion" => "apps/v1",
        "kind" => "StatefulSet",
        "metadata" => tree! { "name" => "db", "namespace" => "x", "uid" => "set", "generation" => 1 },
        "spec" => tree! {
            "replicas" => replicas,
            "serviceName" => "db",
            "podManagementPolicy" => "OrderedReady",
            "selector" => tree! { "matchLabels" => tree! { "app" => "db" } },
            "template" => template("new"),
            "updateStrategy" => tree! { "type" => "RollingUpdate", "rollingUpdate" => rolling },
        },
    }
}

fn with(mut object: Tree, path: &str, value: impl Into<Tree>) -> Tree {
    let (parent, key) = path.rsplit_once('.').expect("a parent");
    object.child(parent).set(key, value);
    object
}

fn parallel(replicas: i64) -> Tree {
    with(set(replicas), "spec.podManagementPolicy", "Parallel")
}

fn template(image: &str) -> Tree {
    let metadata = tree! { "labels" => tree! { "app" => "db" } };
    tree! { "metadata" => metadata, "spec" => tree! { "containers" => list![tree! { "image" => image }] } }
}

fn revision(name: &str) -> Revision {
    Revision { name: name.to_string(), template: template(name) }
}

/// `0 ready new`: states are ready, young (not ready for long enough), unready, pending, failed, ending.
fn pod_of(text: &str, set: &Tree) -> Arc<Tree> {
    let parts: Vec<&str> = text.split(' ').collect();
    let mut made = pod::build(set, &template(parts[2]), parts[2], parts[0].parse().expect("an ordinal"));
    made.child("metadata").set("uid", parts[0]);
    made.child("metadata").set("namespace", "x");
    let since = time::format_seconds(if parts[1] == "young" { 999 } else { 0 });
    let is_ready = if matches!(parts[1], "ready" | "young" | "ending") { "True" } else { "False" };
    let ready = tree! { "type" => "Ready", "status" => is_ready, "lastTransitionTime" => since };
    let phase = match parts[1] {
        "failed" => "Failed",
        "pending" => "Pending",
        _ => "Running",
    };
    made.set("status", tree! { "phase" => phase, "conditions" => list![ready] });
    if parts[1] == "ending" {
        made.child("metadata").set("deletionTimestamp", "now");
    }
    Arc::new(made)
}

fn pods_of(text: &[&str], set: &Tree) -> Vec<Arc<Tree>> {
    text.iter().map(|text| pod_of(text, set)).collect()
}

fn ordinal_of(pod: &Tree) -> String {
    pod::ordinal(pod).map(|ordinal| ordinal.to_string()).unwrap_or_default()
}

fn decide(set: &Tree, pods: &[&str], claims: &[Tree]) -> Vec<Action> {
    let pods = pods_of(pods, set);
    let find = |name: &str| claims.iter().find(|claim| claim.str("metadata.name") == name).cloned().map(Arc::new);
    let observed =
        ObservedState { set, pods: &pods, claim: &find, current: revision("old"), update: revision("new"), now: NOW };
    plan(&observed).into_iter().flatten().collect()
}

fn check(set: &Tree, pods: &[&str], want: &str) {
    let text = |action: Action| match action {
        Action::Create { pod, .. } => format!("+{} {}", ordinal_of(&pod), pod::revision(&pod)),
        Action::Delete(pod) => format!("-{}", ordinal_of(&pod)),
        Action::Update(pod) => format!("~{}", ordinal_of(&pod)),
        other => format!("{other:?}"),
    };
    let got: Vec<String> = decide(set, pods, &[]).into_iter().map(text).collect();
    assert_eq!(got.join(", "), want, "{pods:?}");
}

#[test]
fn creates_pods_in_order() {
    check(&set(3), &[], "+0 new");
    check(&set(3), &["0 pending new"], "");
    check(&set(3), &["0 unready new"], "");
    check(&set(3), &["0 ready new"], "+1 new");
    check(&set(3), &["0 ready new", "2 ready new"], "+1 new");
    check(&set(3), &["0 ready new", "1 ending new"], "");
    check(&set(2), &["0 failed new", "1 ready new"], "-0");
    check(&with(set(2), "spec.minReadySeconds", 10), &["0 young new"], "");
    check(&with(set(2), "spec.ordinals", tree! { "start" => 5 }), &["5 ready new"], "+6 new");
    check(&with(set(2), "spec.ordinals", tree! { "start" => 1 }), &["0 ready new", "1 ready new", "2 ready new"], "-0");
    let ending = with(set(3), "metadata.deletionTimestamp", "now");
    check(&ending, &[], "");
}

#[test]
fn parallel_pods_are_created_at_once() {
    check(&parallel(3), &[], "+0 new, +1 new, +2 new");
    check(&parallel(3), &["1 unready new"], "+0 new, +2 new");
    check(&parallel(1), &["0 unready new", "1 ready new", "2 unready new", "3 ending new"], "-2, -1");
}

#[test]
fn deletes_pods_in_reverse_order() {
    check(&set(1), &["0 ready new", "1 ready new", "2 ready new"], "-2");
    check(&set(1), &["0 ready new", "1 ready new", "2 ending new"], "");
    check(&set(1), &["0 unready new", "1 ready new"], "");
    check(&set(1), &["0 ready new", "1 ready new", "2 unready new"], "-2");
    check(&set(1), &["0 ready new", "1 unready new", "2 unready new"], "");
    check(&set(0), &["0 unready new"], "-0");
}

#[test]
fn updates_in_reverse_order_to_the_partition() {
    check(&set(3), &["0 ready old", "1 ready old", "2 ready old"], "-2");
    check(&set(3), &["0 ready old", "1 ready old", "2 unready new"], "");
    check(&set(3), &["0 ready old", "1 ready old", "2 ready new"], "-1");
    check(&set(3), &["0 ready old", "1 ready old"], "+2 new");
    let canary = with(set(3), "spec.updateStrategy.rollingUpdate.partition", 2);
    check(&canary, &["0 ready old", "1 ready old", "2 ready old"], "-2");
    check(&canary, &["0 ready old", "1 ready old", "2 ready new"], "");
    check(&canary, &["1 ready old", "2 ready new"], "+0 old");
    let by_hand = with(set(2), "spec.updateStrategy", tree! { "type" => "OnDelete" });
    check(&by_hand, &["0 ready old", "1 ready old"], "");
    check(&by_hand, &["0 ready old"], "+1 new");
}

#[test]
fn respects_max_unavailable() {
    let two = |set: Tree| with(set, "spec.updateStrategy.rollingUpdate.maxUnavailable", 2);
    check(&two(set(4)), &["0 ready old", "1 ready old", "2 ready old", "3 ready old"], "-3, -2");
    let half = with(set(4), "spec.updateStrategy.rollingUpdate.maxUnavailable", "60%");
    check(&half, &["0 ready old", "1 ready old", "2 ready old", "3 ready old"], "-3, -2");
    check(&two(parallel(4)), &["0 ready old", "1 ready old", "2 ready old", "3 unready new"], "-2");
    check(&two(parallel(4)), &["0 ready old", "1 ready old", "2 unready new", "3 unready new"], "");
    check(&parallel(3), &["0 ready old", "1 unready old", "2 ready old"], "-1");
    check(&parallel(3), &["0 unready old", "1 unready old", "2 unready old"], "-2");
}

#[test]
fn pods_have_a_stable_identity() {
    let made = pod::build(&set(1), &template("new"), "db-hash", 0);
    let labels = made.map("metadata.labels");
    assert_eq!(labels.str("statefulset.kubernetes.io/pod-name"), "db-0");
    assert_eq!(labels.str("apps.kubernetes.io/pod-index"), "0");
    assert_eq!(labels.str("controller-revision-hash"), "db-hash");
    assert_eq!((made.str("spec.hostname"), made.str("spec.subdomain")), ("db-0", "db"));
    let mut bare = made.clone();
    bare.child("metadata.labels").remove("apps.kubernetes.io/pod-index");
    assert_eq!(pod::corrected(&set(1), &bare), Some(made.clone()));
    assert_eq!(pod::corrected(&set(1), &made), None);
    let names = |text: &'static str| pod::parent_and_ordinal(text);
    assert_eq!(names("a-b-12"), Some(("a-b", 12)));
    assert_eq!((names("a"), names("a-"), names("a-1x"), names("a-+1")), (None, None, None, None));
    assert_eq!(names("a-99999999999"), None);
}

fn with_claims(replicas: i64, scaled: &str, deleted: &str) -> Tree {
    let claim = tree! { "metadata" => tree! { "name" => "data" }, "spec" => tree! { "size" => 1 } };
    let policy = tree! { "whenScaled" => scaled, "whenDeleted" => deleted };
    let set = with(set(replicas), "spec.volumeClaimTemplates", list![claim]);
    with(set, "spec.persistentVolumeClaimRetentionPolicy", policy)
}

#[test]
fn creates_claims_before_the_pod() {
    let set = with_claims(1, "Retain", "Retain");
    let Some(Action::Create { pod, claims }) = decide(&set, &[], &[]).pop() else { panic!("a pod") };
    assert_eq!(pod.list("spec.volumes")[0].str("persistentVolumeClaim.claimName"), "data-db-0");
    assert_eq!(claims[0].str("metadata.name"), "data-db-0");
    assert_eq!(claims[0].map("metadata.labels").str("app"), "db");
    let Some(Action::Create { claims: none, .. }) = decide(&set, &[], &claims).pop() else { panic!("a pod") };
    assert_eq!(none, []);
    let ending = with(claims[0].clone(), "metadata.deletionTimestamp", "now");
    let refused = Action::Refuse { pod: "db-0".to_string(), message: "pvc data-db-0 is being deleted".to_string() };
    assert_eq!(decide(&set, &[], &[ending]), [refused]);
    let old_pod = tree! { "kind" => "Pod", "name" => "db-0", "uid" => "gone", "controller" => true };
    let stale = with(claims[0].clone(), "metadata.ownerReferences", list![old_pod]);
    assert_eq!(decide(&set, &[], &[stale]), []);
    assert!(matches!(&decide(&set, &["0 pending new"], &[])[..], [Action::CreateClaims { .. }]));
}

#[test]
fn retention_policy_sets_claim_owners() {
    let owners = |set: &Tree, pods: &[&str]| -> String {
        let claim = claim::claims_of_pod(&with_claims(9, "Retain", "Retain"), 1).pop().expect("a claim");
        let actions = decide(set, pods, &[claim]);
        let claims = actions.iter().filter_map(|action| match action {
            Action::UpdateClaim(claim) => Some(claim),
            _ => None,
        });
        claims.flat_map(|claim| claim.list("metadata.ownerReferences")).map(|owner| owner.str("kind")).collect()
    };
    let both = ["0 ready new", "1 ready new"];
    assert_eq!(owners(&with_claims(2, "Retain", "Retain"), &both), "");
    assert_eq!(owners(&with_claims(2, "Delete", "Retain"), &both), "");
    assert_eq!(owners(&with_claims(2, "Delete", "Delete"), &both), "StatefulSet");
    assert_eq!(owners(&with_claims(1, "Delete", "Delete"), &both), "Pod");
    assert_eq!(owners(&with_claims(1, "Delete", "Retain"), &both), "Pod");
    assert_eq!(owners(&with_claims(1, "Retain", "Delete"), &both), "StatefulSet");
    assert_eq!(owners(&with_claims(1, "Retain", "Retain"), &both), "");
    assert_eq!(claim::sets_of("data-my-db-0"), ["my-db", "db"]);
    assert_eq!(claim::sets_of("data"), [] as [&str; 0]);
}

#[test]
fn status_counts_pods_by_revision() {
    let count_in = |set: &Tree, pods: &[&str]| {
        let status = status(set, &pods_of(pods, set), ["old", "new"], 0, NOW);
        let counts = ["replicas", "readyReplicas", "availableReplicas", "currentReplicas", "updatedReplicas"];
        let counts = counts.map(|field| status.int(field).unwrap_or_default());
        (counts, status.str("currentRevision").to_string())
    };
    let rolling = set(3);
    let count = |pods: &[&str]| count_in(&rolling, pods);
    assert_eq!(count(&["0 ready old", "1 ready old", "2 ending old"]), ([3, 3, 3, 2, 0], "old".to_string()));
    assert_eq!(count(&["0 ready old", "1 ready old", "2 unready new"]), ([3, 2, 2, 2, 1], "old".to_string()));
    let all_new = ["0 ready new", "1 ready new", "2 ready new"];
    assert_eq!(count(&all_new), ([3, 3, 3, 3, 3], "new".to_string()));
    let by_hand = with(set(3), "spec.updateStrategy", tree! { "type" => "OnDelete" });
    assert_eq!(count_in(&by_hand, &all_new), ([3, 3, 3, 3, 3], "new".to_string()));
}

#[test]
fn newest_revision_has_the_template() {
    let revision =
        |number: i64, image: &str| Arc::new(tree! { "revision" => number, "data" => history::data(&template(image)) });
    let set = set(1);
    assert_eq!(newest(&set, &[]), RevisionChange::Create(1));
    assert_eq!(newest(&set, &[revision(4, "old")]), RevisionChange::Create(5));
    let new = revision(2, "new");
    assert_eq!(newest(&set, &[revision(1, "old"), new.clone()]), RevisionChange::Keep(new.clone()));
    let RevisionChange::Renumber(back) = newest(&set, &[new, revision(3, "old")]) else { panic!("it comes back") };
    assert_eq!(back.int("revision"), Some(4));
}

/// Scaling and updates while pods become ready in any order: no ordinal exists twice, and finally all pods match the
/// request.
#[test]
fn random_sequences_converge() {
    for seed in 0..200 {
        let random = client::Random::seeded(seed);
        let mut set = if random.below(2) == 0 { set(1) } else { parallel(1) };
        let most = 1 + random.below(3) as i64;
        set = with(set, "spec.updateStrategy.rollingUpdate.maxUnavailable", most);
        let mut pods: Vec<(i64, bool, &str)> = Vec::new();
        let mut update = "old";
        let step = |set: &Tree, pods: &mut Vec<(i64, bool, &'static str)>, update: &'static str| -> bool {
            let text = |(ordinal, ready, revision): &(i64, bool, &str)| {
                format!("{ordinal} {} {revision}", if *ready { "ready" } else { "unready" })
            };
            let texts: Vec<String> = pods.iter().map(text).collect();
            let trees: Vec<Arc<Tree>> = texts.iter().map(|text| pod_of(text, set)).collect();
            let (current, update_revision) = (revision("old"), revision(update));
            let observed =
                ObservedState { set, pods: &trees, claim: &|_| None, current, update: update_revision, now: NOW };
            let actions: Vec<Action> = plan(&observed).into_iter().flatten().collect();
            let busy = !actions.is_empty();
            for action in actions {
                match action {
                    Action::Create { pod, .. } => {
                        let ordinal = pod::ordinal(&pod).expect("an ordinal");
                        assert!(pods.iter().all(|there| there.0 != ordinal), "seed {seed}: {ordinal} is there");
                        pods.push((ordinal, false, update));
                    }
                    Action::Delete(pod) => pods.retain(|there| Some(there.0) != pod::ordinal(&pod)),
                    other => panic!("seed {seed}: {other:?}"),
                }
            }
            busy
        };
        for _ in 0..40 {
            match random.below(6) {
                0 => set = with(set, "spec.replicas", random.below(7) as i64),
                1 => update = "new",
                2 => {
                    let at = random.below(7) as i64;
                    pods.iter_mut().filter(|pod| pod.0 == at).for_each(|pod| pod.1 = true);
                }
                _ => drop(step(&set, &mut pods, update)),
            }
        }
        for _ in 0..200 {
            pods.iter_mut().for_each(|pod| pod.1 = true);
            if !step(&set, &mut pods, "new") {
                break;
            }
        }
        pods.sort_unstable();
        let wanted: Vec<(i64, bool, &str)> =
            (0..set.int("spec.replicas").unwrap_or_default()).map(|ordinal| (ordinal, true, "new")).collect();
        assert_eq!(pods, wanted, "seed {seed}");
    }
}

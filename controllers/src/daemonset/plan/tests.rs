//! Nodes are letters. Pods are written as `NODE STATE REVISION`, the plan as `+a -b`.

use api::{list, time};

use super::*;

const NOW: Timestamp = Timestamp { seconds: 1000, nanos: 0 };

fn set(surge: i64, unavailable: i64) -> Tree {
    let rolling = tree! { "maxSurge" => surge, "maxUnavailable" => unavailable };
    let template = tree! { "metadata" => tree! { "labels" => tree! { "app" => "a" } }, "spec" => tree! {} };
    tree! {
        "apiVersion" => "apps/v1",
        "kind" => "DaemonSet",
        "metadata" => tree! { "name" => "agent", "namespace" => "x", "uid" => "set", "generation" => 1 },
        "spec" => tree! {
            "template" => template,
            "updateStrategy" => tree! { "type" => "RollingUpdate", "rollingUpdate" => rolling },
        },
    }
}

/// `a` or `a!EFFECT` with a taint.
fn node(text: &str) -> Arc<Tree> {
    let (name, effect) = text.split_once('!').unwrap_or((text, ""));
    let taint = (!effect.is_empty()).then(|| tree! { "key" => "k", "effect" => effect });
    let taints: Vec<Tree> = taint.into_iter().collect();
    Arc::new(tree! { "metadata" => tree! { "name" => name }, "spec" => tree! { "taints" => taints } })
}

/// States are ready, unready, waiting (not scheduled), failed, done, ending.
fn pod_of(text: &str, set: &Tree) -> Arc<Tree> {
    let parts: Vec<&str> = text.split(' ').collect();
    let mut made = pod::build(set, parts[0], parts[2]);
    made.child("metadata").set("name", text);
    made.child("metadata").set("namespace", "x");
    made.child("metadata").set("creationTimestamp", time::format_seconds(if parts[2] == "old" { 1 } else { 2 }));
    if parts[1] != "waiting" {
        made.child("spec").set("nodeName", parts[0]);
    }
    let is_ready = if matches!(parts[1], "ready" | "ending") { "True" } else { "False" };
    let ready = tree! { "type" => "Ready", "status" => is_ready, "lastTransitionTime" => time::format_seconds(0) };
    let phase = match parts[1] {
        "failed" => "Failed",
        "done" => "Succeeded",
        "waiting" => "Pending",
        _ => "Running",
    };
    made.set("status", tree! { "phase" => phase, "conditions" => list![ready] });
    if parts[1] == "ending" {
        made.child("metadata").set("deletionTimestamp", "now");
    }
    Arc::new(made)
}

fn decide(set: &Tree, nodes: &str, pods: &[&str], wait: Option<Duration>) -> (Plan, Tree) {
    let nodes: Vec<Arc<Tree>> = nodes.split(' ').filter(|text| !text.is_empty()).map(node).collect();
    let pods: Vec<Arc<Tree>> = pods.iter().map(|text| pod_of(text, set)).collect();
    let fits = pod::fits(set, &nodes);
    let observed = ObservedState { set, nodes: &nodes, fits: &fits, pods: &pods, hash: "new", now: NOW };
    (plan(&observed, |_| wait), status(&observed))
}

fn check(set: &Tree, nodes: &str, pods: &[&str], want: &str) {
    let (plan, _) = decide(set, nodes, pods, None);
    let created = plan.create.iter().map(|node| format!("+{node}"));
    let deleted = plan.delete.iter().map(|pod| format!("-{}", pod.str("metadata.name")));
    assert_eq!(created.chain(deleted).collect::<Vec<_>>().join(", "), want, "{nodes} {pods:?}");
}

#[test]
fn runs_one_pod_per_node() {
    let set = set(0, 1);
    check(&set, "a b", &[], "+a, +b");
    check(&set, "a b", &["a ready new"], "+b");
    check(&set, "a b!NoSchedule", &[], "+a");
    check(&set, "a!NoSchedule", &["a ready new"], "");
    check(&set, "a!NoExecute", &["a ready new"], "-a ready new");
    check(&set, "a!PreferNoSchedule", &[], "+a");
    check(&set, "a", &["a ready old", "a unready new"], "-a unready new");
    check(&set, "a", &["a ending new"], "");
    check(&set, "a", &["a failed new"], "-a failed new");
    check(&set, "a", &["a done new"], "-a done new");
    check(&set, "", &["a ready new"], "");
    check(&set, "", &["a waiting new"], "-a waiting new");
    let mut chosen = set.clone();
    chosen.child("spec.template.spec").set("nodeSelector", tree! { "no" => "such" });
    check(&chosen, "a", &["a ready new"], "-a ready new");
}

#[test]
fn finished_pods_are_replaced_with_backoff() {
    let (plan, _) = decide(&set(0, 1), "a", &["a failed new"], None);
    assert_eq!((plan.ended[0].failed, plan.ended[0].node.as_str()), (true, "a"));
    let pause = Duration::from_secs(4);
    let (plan, _) = decide(&set(0, 1), "a", &["a failed new"], Some(pause));
    assert_eq!((plan.delete.len(), plan.ended.len(), plan.again), (0, 0, Some(pause)));
    let (plan, _) = decide(&set(0, 1), "a", &["a done new"], Some(pause));
    assert_eq!((plan.delete.len(), plan.ended[0].failed), (1, false), "success does not wait");
}

#[test]
fn rolling_update_respects_max_unavailable() {
    let set_of = set;
    let set = set(0, 1);
    check(&set, "a b c", &["a ready old", "b ready old", "c ready old"], "-a ready old");
    check(&set, "a b c", &["a unready new", "b ready old", "c ready old"], "");
    check(&set, "a b c", &["a unready new", "b unready old", "c ready old"], "-b unready old");
    check(&set, "a b", &["a ending old", "b ready old"], "");
    check(&set, "a b", &["a ready new", "b ready old"], "-b ready old");
    check(&set, "a b", &["a unready old", "b ready old"], "-a unready old");
    check(&set_of(0, 2), "a b", &["a unready old", "b ready old"], "-a unready old, -b ready old");
    check(&set_of(0, 2), "a b c", &["a ready old", "b ready old", "c ready old"], "-a ready old, -b ready old");
    let mut by_hand = set.clone();
    by_hand.child("spec.updateStrategy").set("type", "OnDelete");
    check(&by_hand, "a", &["a ready old"], "");
}

#[test]
fn surge_creates_the_new_pod_first() {
    let set = set(1, 0);
    check(&set, "a b", &["a ready old", "b ready old"], "+a");
    check(&set, "a b", &["a ready old", "a unready new", "b ready old"], "");
    check(&set, "a b", &["a ready old", "a ready new", "b ready old"], "-a ready old");
    check(&set, "a b", &["a unready old", "b ready old"], "+a, +b");
    check(&set, "a", &["a unready old", "a unready new"], "-a unready old");
    check(&set, "a", &["a ending old"], "+a");
    check(&set, "a b", &["a ending old", "a ready new", "b ready old"], "+b");
}

#[test]
fn surge_is_limited() {
    let all = ["a ready old", "b ready old", "c ready old", "d ready old"];
    let as_text = |most: &str| {
        let mut set = set(1, 0);
        set.child("spec.updateStrategy.rollingUpdate").set("maxSurge", most);
        set
    };
    check(&as_text("50%"), "a b c d", &all, "+a, +b");
    check(&as_text("30%"), "a b c d", &all, "+a, +b");
    check(&as_text("100%"), "a b c d", &all, "+a, +b, +c, +d");
    let begun = ["a ready old", "a unready new", "b ready old", "c ready old", "d ready old"];
    check(&set(2, 0), "a b c d", &begun, "+b");
    check(&set(1, 0), "a b c d", &begun, "");
    // Unavailable pods are replaced at once and do not count towards the surge.
    check(&set(1, 0), "a b c", &["a unready old", "b unready old", "c ready old"], "+a, +b, +c");
}

/// Ready since `since`, at a time of 1000.
fn ready_since(text: &str, since: i64, set: &Tree) -> Arc<Tree> {
    let mut pod = (*pod_of(text, set)).clone();
    pod.list_mut("status.conditions")[0].set("lastTransitionTime", time::format_seconds(since));
    Arc::new(pod)
}

#[test]
fn surge_waits_for_min_ready_seconds() {
    let mut set = set(1, 0);
    set.child("spec").set("minReadySeconds", 30);
    let check = |since: i64, deleted: usize, again: Option<u64>, counts: [i64; 4]| {
        let nodes = [node("a")];
        let fits = pod::fits(&set, &nodes);
        let pods = [pod_of("a ready old", &set), ready_since("a ready new", since, &set)];
        let observed = ObservedState { set: &set, nodes: &nodes, fits: &fits, pods: &pods, hash: "new", now: NOW };
        let plan = plan(&observed, |_| None);
        assert_eq!((plan.delete.len(), plan.create.len()), (deleted, 0), "{since}");
        assert_eq!(plan.again, again.map(Duration::from_secs), "{since}");
        let status = status(&observed);
        let fields = ["currentNumberScheduled", "numberReady", "numberAvailable", "updatedNumberScheduled"];
        assert_eq!(fields.map(|field| status.int(field).unwrap_or_default()), counts, "{since}");
    };
    // The old pod counts for its node as long as it exists.
    check(990, 0, Some(20), [1, 1, 1, 0]);
    check(971, 0, Some(1), [1, 1, 1, 0]);
    check(970, 1, None, [1, 1, 1, 0]);
}

#[test]
fn surge_keeps_pods_of_excluded_nodes_until_others_are_available() {
    let set = set(1, 0);
    // Node b was tainted later: its pod may stay but is not replaced.
    check(&set, "a b!NoSchedule", &["b ready old"], "+a");
    check(&set, "a b!NoSchedule", &["a unready new", "b ready old"], "");
    check(&set, "a b!NoSchedule", &["a ready new", "b ready old"], "-b ready old");
    check(&set, "a b!NoSchedule", &["a ready new", "b unready old"], "-b unready old");
    check(
        &set,
        "a b!NoSchedule c!NoSchedule",
        &["a ready new", "b ready old", "c ready old"],
        "-b ready old, -c ready old",
    );
    check(&set, "a", &["a ready new", "gone ready old"], "-gone ready old");
}

#[test]
fn status_counts_nodes() {
    let pods = ["a ready new", "b unready old", "d ready new"];
    let (_, status) = decide(&set(0, 1), "a b c d!NoSchedule", &pods, None);
    let want = tree! {
        "currentNumberScheduled" => 2, "numberMisscheduled" => 1, "desiredNumberScheduled" => 3, "numberReady" => 1,
        "observedGeneration" => 1, "updatedNumberScheduled" => 1, "numberAvailable" => 1, "numberUnavailable" => 2,
    };
    assert_eq!(status, want);
}

#[test]
fn daemon_pods_have_affinity_and_tolerations() {
    let mut set = set(0, 1);
    set.child("metadata.annotations").set(pod::TEMPLATE_GENERATION, "3");
    let made = pod::build(&set, "a", "h");
    assert_eq!(pod::target(&made), "a");
    assert_eq!(made.map("metadata.labels").str("pod-template-generation"), "3");
    assert_eq!(made.list("spec.tolerations").len(), 6);
    assert!(pod::is_updated(&set, &made, "other"), "by its generation");
    set.child("spec.template.spec").set("hostNetwork", true);
    let own = tree! { "key" => "node.kubernetes.io/not-ready", "operator" => "Exists", "effect" => "NoExecute", "tolerationSeconds" => 5 };
    set.child("spec.template.spec").set("tolerations", list![tree! { "key" => "x" }, own]);
    let tolerations = pod::build(&set, "a", "h").list("spec.tolerations").to_vec();
    assert_eq!(tolerations.len(), 8);
    assert_eq!(tolerations[0].str("key"), "x");
    assert!(!tolerations[1].has("tolerationSeconds"));
}

/// Nodes are added, removed and tainted, templates change, pods become ready in any order: no node has too many pods,
/// an update makes no more pods unavailable than allowed, and finally each node has its new pod.
#[test]
fn random_sequences_converge() {
    for seed in 0..200 {
        let random = client::Random::seeded(seed);
        let surge = random.below(2) as i64;
        let set = set(surge, 1 - surge);
        let mut nodes: Vec<String> = vec!["a".to_string()];
        let mut pods: Vec<(String, bool, bool)> = Vec::new();
        let step = |nodes: &[String], pods: &mut Vec<(String, bool, bool)>| -> bool {
            let text = |(node, ready, new): &(String, bool, bool)| {
                let state = if *ready { "ready" } else { "unready" };
                format!("{node} {state} {}", if *new { "new" } else { "old" })
            };
            let texts: Vec<String> = pods.iter().map(text).collect();
            let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
            let (plan, _) = decide(&set, &nodes.join(" "), &texts, None);
            let mut lost = 0;
            for gone in &plan.delete {
                let at = pods.iter().position(|pod| text(pod) == gone.str("metadata.name")).expect("a pod");
                let pod = pods.remove(at);
                let is_last = pods.iter().all(|other| other.0 != pod.0);
                lost += usize::from(pod.1 && is_last && nodes.contains(&pod.0));
            }
            assert!(lost as i64 <= 1 - surge, "seed {seed}: {lost} nodes lose their pod at once");
            pods.extend(plan.create.iter().map(|node| (node.clone(), false, true)));
            for node in nodes {
                let name = node.split('!').next().unwrap_or_default();
                let count = pods.iter().filter(|pod| pod.0 == name).count() as i64;
                assert!(count <= 1 + surge, "seed {seed}: {pods:?}");
            }
            !plan.create.is_empty() || !plan.delete.is_empty()
        };
        for _ in 0..40 {
            let name = ["a", "b", "c", "d", "e"][random.below(5) as usize];
            let at = nodes.iter().position(|node| node.starts_with(name));
            match (random.below(8), at) {
                (0, None) => nodes.push(name.to_string()),
                (1, Some(at)) => {
                    nodes.remove(at);
                    // The pod garbage collector deletes the pods of the node.
                    pods.retain(|pod| pod.0 != name);
                }
                (2, Some(at)) => nodes[at] = format!("{name}!NoExecute"),
                (3, Some(at)) => nodes[at] = name.to_string(),
                (4, _) => pods.iter_mut().for_each(|pod| pod.2 = false),
                (5, _) => pods.iter_mut().filter(|pod| pod.0 == name).for_each(|pod| pod.1 = true),
                _ => drop(step(&nodes, &mut pods)),
            }
            nodes.sort();
        }
        for _ in 0..100 {
            pods.iter_mut().for_each(|pod| pod.1 = true);
            if !step(&nodes, &mut pods) {
                break;
            }
        }
        pods.sort();
        let wanted: Vec<(String, bool, bool)> =
            nodes.iter().filter(|node| !node.contains('!')).map(|node| (node.clone(), true, true)).collect();
        assert_eq!(pods, wanted, "seed {seed}: {nodes:?}");
    }
}

use std::sync::Arc;

use api::yaml;
use podmodel::Labels;

use super::*;
use crate::model::Pod;

/// A cluster from YAML documents in one list: `pods`, `policies` and `namespaces`. The node is `here`.
fn cluster(text: &str) -> Cluster {
    let tree = yaml::decode(text.as_bytes()).unwrap_or_else(|error| panic!("{error}: {text}"));
    let mut cluster = Cluster { node: "here".into(), ..Cluster::default() };
    for pod in tree.list("pods") {
        cluster.pods.insert(client::key_of(pod), Arc::new(Pod::read(pod)));
    }
    for policy in tree.list("policies") {
        cluster.policies.insert(client::key_of(policy), Arc::new(Policy::read(policy)));
    }
    for (name, labels) in tree.map("namespaces").iter() {
        let labels = labels.as_map().map(Labels::read).unwrap_or_default();
        cluster.namespaces.insert(name.into(), Arc::new(labels));
    }
    cluster
}

const PODS: &str = "
namespaces: {one: {team: red}, two: {team: blue}}
pods:
- metadata: {namespace: one, name: web, labels: {app: web}}
  spec: {nodeName: here, containers: [{ports: [{name: http, containerPort: 8080}]}]}
  status: {podIPs: [{ip: 10.0.0.1}, {ip: 'fd00::1'}]}
- metadata: {namespace: one, name: db, labels: {app: db}}
  spec: {nodeName: here, containers: [{ports: [{name: sql, containerPort: 5432}]}]}
  status: {podIP: 10.0.0.2}
- metadata: {namespace: two, name: web, labels: {app: web}}
  spec: {nodeName: there, containers: [{ports: [{name: http, containerPort: 80}, {name: dns, protocol: UDP, containerPort: 53}]}]}
  status: {podIPs: [{ip: 10.0.1.1}, {ip: 'fd00:1::1'}]}
- metadata: {namespace: one, name: agent, labels: {app: web}}
  spec: {nodeName: here, hostNetwork: true, containers: [{ports: [{name: http, containerPort: 80}]}]}
  status: {podIP: 192.0.2.1}
- metadata: {namespace: one, name: job, labels: {app: web}}
  spec: {nodeName: here, containers: []}
  status: {podIP: 10.0.0.9, phase: Succeeded}
- metadata: {namespace: one, name: crashed, labels: {app: web}}
  spec: {nodeName: here, containers: []}
  status: {podIP: 10.0.0.8, phase: Failed}
";

/// Plans a policy of the namespace `one` for the pods above, and compares what depends on it.
fn check(spec: &str, expected: &str) {
    let text = format!("{PODS}policies:\n- metadata: {{namespace: one, name: p, uid: u}}\n  spec: {spec}\n");
    let text = plan(&cluster(&text)).to_string();
    let is_fixed = |line: &str| {
        let fixed =
            ["set isolated", "set self", "chain untracked", "chain refuse", "chain ingress hook", "chain egress hook"];
        fixed.iter().any(|start| line.starts_with(start))
    };
    let mut shown = Vec::new();
    let mut skips = false;
    for line in text.lines() {
        skips = is_fixed(line) || skips && line.starts_with("  ");
        let is_empty_map = ["set ingress4", "set ingress6", "set egress4", "set egress6"]
            .iter()
            .any(|start| line.starts_with(start) && line.ends_with("{  }"));
        if !skips && !is_empty_map {
            shown.push(line);
        }
    }
    let expected: Vec<&str> = expected.lines().map(str::trim_end).filter(|line| !line.is_empty()).collect();
    assert_eq!(shown, expected, "{spec}");
}

/// The only group of pods: its name depends on the names of its policies.
const INGRESS_GROUP: &str = "ingress-group/one/GROUP";

fn check_group(spec: &str, expected: &str) {
    let mut groups = Groups::default();
    let (ingress, _) = groups.name(Direction::Ingress, "one", &["ingress/one/p".to_string()]);
    let (egress, _) = groups.name(Direction::Egress, "one", &["egress/one/p".to_string()]);
    check(spec, &expected.replace(INGRESS_GROUP, &ingress).replace("egress-group/one/GROUP", &egress));
}

#[test]
fn without_isolated_pods_there_is_no_table() {
    assert!(plan(&cluster(PODS)).is_empty());
    for spec in ["{podSelector: {matchLabels: {app: none}}}", "{podSelector: {matchLabels: {app: 'b a d'}}}"] {
        check(spec, "");
    }
}

#[test]
fn a_policy_without_rules_refuses() {
    check_group(
        "{podSelector: {}}",
        "
set ingress4 { 10.0.0.1 : goto ingress-group/one/GROUP, 10.0.0.2 : goto ingress-group/one/GROUP }
set ingress6 { fd00::1 : goto ingress-group/one/GROUP }
chain ingress-group/one/GROUP
  jump ingress/one/p
  goto refuse
chain ingress/one/p
",
    );
}

#[test]
fn peers_are_sets() {
    check_group(
        "{podSelector: {matchLabels: {app: db}}, ingress: [
            {from: [{podSelector: {}}, {namespaceSelector: {matchLabels: {team: blue}}}]},
            {from: [{ipBlock: {cidr: 10.0.0.0/24, except: [10.0.0.4/30]}}, {ipBlock: {cidr: 'fd00::/64'}}]}]}",
        "
set ingress/one/p/0/pods4 { 10.0.0.1, 10.0.0.2, 10.0.1.1 }
set ingress/one/p/0/pods6 { fd00::1, fd00:1::1 }
set ingress/one/p/1/blocks4 { 10.0.0.0-10.0.0.3, 10.0.0.8-10.0.0.255 }
set ingress/one/p/1/blocks6 { fd00::-fd00::ffff:ffff:ffff:ffff }
set ingress4 { 10.0.0.2 : goto ingress-group/one/GROUP }
chain ingress-group/one/GROUP
  jump ingress/one/p
  goto refuse
chain ingress/one/p
  from @ingress/one/p/0/pods4 accept
  from6 @ingress/one/p/0/pods6 accept
  from @ingress/one/p/1/blocks4 accept
  from6 @ingress/one/p/1/blocks6 accept
",
    );
}

#[test]
fn ports_are_rules() {
    check_group(
        "{podSelector: {matchLabels: {app: db}}, ingress: [{ports: [
            {port: 80}, {protocol: UDP, port: 1000, endPort: 2000}, {protocol: SCTP}]}]}",
        "
set ingress4 { 10.0.0.2 : goto ingress-group/one/GROUP }
chain ingress-group/one/GROUP
  jump ingress/one/p
  goto refuse
chain ingress/one/p
  protocol 6 port 80 accept
  protocol 17 port 1000-2000 accept
  protocol 132 accept
",
    );
}

#[test]
fn named_ports_are_those_of_the_destination() {
    // The isolated pods are destinations.
    check_group(
        "{podSelector: {matchLabels: {app: web}}, ingress: [{from: [{podSelector: {}}], ports: [{port: http}, {port: sql}]}]}",
        "
set ingress/one/p/0/pods4 { 10.0.0.1, 10.0.0.2 }
set ingress/one/p/0/pods6 { fd00::1 }
set ingress/one/p/0/ports4 { 10.0.0.1 . 6 . 8080 }
set ingress/one/p/0/ports6 { fd00::1 . 6 . 8080 }
set ingress4 { 10.0.0.1 : goto ingress-group/one/GROUP }
set ingress6 { fd00::1 : goto ingress-group/one/GROUP }
chain ingress-group/one/GROUP
  jump ingress/one/p
  goto refuse
chain ingress/one/p
  from @ingress/one/p/0/pods4 jump ingress/one/p/0
  from6 @ingress/one/p/0/pods6 jump ingress/one/p/0
chain ingress/one/p/0
  to protocol port @ingress/one/p/0/ports4 accept
  to6 protocol port @ingress/one/p/0/ports6 accept
",
    );
    // The peers are destinations.
    check_group(
        "{podSelector: {matchLabels: {app: db}}, policyTypes: [Egress], egress: [
            {to: [{namespaceSelector: {}, podSelector: {matchLabels: {app: web}}}], ports: [{port: http}, {protocol: UDP, port: dns}]}]}",
        "
set egress/one/p/0/pods4 { 10.0.0.1, 10.0.1.1 }
set egress/one/p/0/pods6 { fd00::1, fd00:1::1 }
set egress/one/p/0/ports4 { 10.0.0.1 . 6 . 8080, 10.0.1.1 . 6 . 80, 10.0.1.1 . 17 . 53 }
set egress/one/p/0/ports6 { fd00::1 . 6 . 8080, fd00:1::1 . 6 . 80, fd00:1::1 . 17 . 53 }
set egress4 { 10.0.0.2 : goto egress-group/one/GROUP }
chain egress-group/one/GROUP
  jump egress/one/p
  goto refuse
chain egress/one/p
  to @egress/one/p/0/pods4 jump egress/one/p/0
  to6 @egress/one/p/0/pods6 jump egress/one/p/0
chain egress/one/p/0
  to protocol port @egress/one/p/0/ports4 accept
  to6 protocol port @egress/one/p/0/ports6 accept
",
    );
}

/// A part that cannot be read allows nothing and is reported; the rest stays in force.
#[test]
fn invalid_parts_allow_nothing() {
    check_group(
        "{podSelector: {matchLabels: {app: db}}, ingress: [
            {from: [{ipBlock: {cidr: nonsense}}]},
            {from: [{ipBlock: {cidr: 10.0.0.0/8, except: [nonsense]}}]},
            {from: [{podSelector: {matchExpressions: [{key: a, operator: Odd}]}}]},
            {from: [{podSelector: {}, ipBlock: {cidr: 10.0.0.0/8}}]},
            {from: [{}]},
            {ports: [{port: 0}, {port: 70000}, {port: 9, endPort: 8}, {port: http, endPort: 9}, {endPort: 9}, {protocol: IP}]},
            {ports: [{port: 80}]}]}",
        "
set ingress4 { 10.0.0.2 : goto ingress-group/one/GROUP }
chain ingress-group/one/GROUP
  jump ingress/one/p
  goto refuse
chain ingress/one/p
  protocol 6 port 80 accept
",
    );
    let spec = "{podSelector: {matchExpressions: [{key: a, operator: Odd}]}, ingress: [{from: [{ipBlock: {cidr: nonsense}}, {}],
        ports: [{protocol: IP}, {port: 0}]}]}";
    let policy = Policy::read(&yaml::decode(format!("spec: {spec}").as_bytes()).unwrap());
    let paths: Vec<&str> = policy.problems.iter().filter_map(|problem| problem.split(':').next()).collect();
    assert_eq!(
        paths,
        [
            "spec.podSelector",
            "spec.ingress[0].from[0].ipBlock.cidr",
            "spec.ingress[0].from[1]",
            "spec.ingress[0].ports[0].protocol",
            "spec.ingress[0].ports[1]",
        ]
    );
    assert!(policy.selector.is_nothing());
}

#[test]
fn directions_follow_the_policy_types() {
    for (spec, ingress, egress) in [
        ("{}", true, false),
        ("{ingress: []}", true, false),
        ("{egress: []}", true, false),
        ("{egress: [{}]}", true, true),
        ("{policyTypes: [Ingress], egress: [{}]}", true, false),
        ("{policyTypes: [Egress]}", false, true),
        ("{policyTypes: [Egress], ingress: [{}]}", false, true),
        ("{policyTypes: [Ingress, Egress]}", true, true),
    ] {
        let policy = Policy::read(&yaml::decode(format!("spec: {spec}").as_bytes()).unwrap());
        let isolates = Direction::ALL.map(|direction| policy.rules(direction).is_some());
        assert_eq!(isolates, [ingress, egress], "{spec}");
    }
}

/// Pods with the same policies share a chain; other pods have their own.
#[test]
fn groups_are_shared() {
    let text = format!(
        "{PODS}policies:
- metadata: {{namespace: one, name: all}}
  spec: {{podSelector: {{}}}}
- metadata: {{namespace: one, name: web}}
  spec: {{podSelector: {{matchLabels: {{app: web}}}}}}
"
    );
    let table = plan(&cluster(&text));
    let groups: Vec<usize> =
        table.chains.iter().filter(|(name, _)| name.contains("-group/")).map(|(_, chain)| chain.rules.len()).collect();
    assert_eq!(groups.len(), 2);
    assert_eq!(groups.iter().sum::<usize>(), 2 + 3);
}

#[test]
fn long_names_are_replaced_by_the_uid() {
    let name = "a".repeat(253);
    let text = format!(
        "{PODS}policies:\n- metadata: {{namespace: one, name: {name}, uid: u-1}}\n  spec: {{podSelector: {{}}}}\n"
    );
    let table = plan(&cluster(&text));
    assert!(table.chains.contains_key("ingress-uid/u-1"));
    assert!(table.chains.keys().chain(table.sets.keys()).all(|name| name.len() < 256));
}

/// The addresses of pods that the kubelet has reported, and conflicts.
mod endpoints {
    use super::*;

    fn pod(name: &str, uid: &str, ips: &[&str]) -> Pod {
        let ips = ips.iter().map(|ip| ip.parse().unwrap()).collect();
        let labels = [("name", name)].into_iter().collect();
        Pod { namespace: "one".into(), name: name.into(), uid: uid.into(), labels, ips, ..Pod::default() }
    }

    fn check(shown: &[Pod], reported: &[Pod], expected: &[(&str, &str, bool)]) {
        let cluster = Cluster {
            node: "here".into(),
            pods: shown.iter().map(|pod| (client::key("one", &pod.name), Arc::new(pod.clone()))).collect(),
            reported: reported.iter().cloned().map(Arc::new).collect(),
            ..Cluster::default()
        };
        let endpoints = cluster.endpoints();
        let mut found: Vec<(String, String, bool)> = Vec::new();
        for endpoint in &endpoints {
            let label = endpoint.labels.get("name").unwrap_or_default();
            found.extend(endpoint.ips.iter().map(|ip| (ip.to_string(), label.to_string(), endpoint.local)));
        }
        found.sort();
        let expected: Vec<_> =
            expected.iter().map(|(ip, name, local)| (ip.to_string(), name.to_string(), *local)).collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn a_reported_pod_is_known_before_the_api_shows_its_address() {
        let shown = Pod { node: "here".into(), ..pod("a", "1", &[]) };
        check(&[shown], &[pod("a", "1", &["10.0.0.1"])], &[("10.0.0.1", "a", true)]);
        check(&[], &[pod("a", "1", &["10.0.0.1"])], &[("10.0.0.1", "a", true)]);
    }

    #[test]
    fn the_api_has_the_newest_labels() {
        let shown = Pod { labels: [("name", "new")].into_iter().collect(), ..pod("a", "1", &["10.0.0.9"]) };
        check(std::slice::from_ref(&shown), &[pod("a", "1", &["10.0.0.1"])], &[("10.0.0.1", "new", true)]);
        // Another pod of the same name is another pod.
        check(&[shown], &[pod("a", "2", &["10.0.0.1"])], &[("10.0.0.1", "a", true), ("10.0.0.9", "new", false)]);
    }

    #[test]
    fn a_mirror_pod_is_the_static_pod() {
        let mirror = Pod { mirror_of: "static".into(), node: "here".into(), ..pod("a", "2", &["10.0.0.1"]) };
        check(&[mirror], &[pod("a", "static", &["10.0.0.1"])], &[("10.0.0.1", "a", true)]);
    }

    #[test]
    fn an_address_belongs_to_the_latest_pod() {
        let old = pod("old", "1", &["10.0.0.1"]);
        check(std::slice::from_ref(&old), &[pod("new", "2", &["10.0.0.1"])], &[("10.0.0.1", "new", true)]);
        check(&[], &[old.clone(), pod("new", "2", &["10.0.0.1"])], &[("10.0.0.1", "new", true)]);
        let dying = Pod { terminating: true, created: "2026-01-02T00:00:00Z".into(), ..old.clone() };
        let young = Pod { created: "2026-01-01T00:00:00Z".into(), ..pod("young", "2", &["10.0.0.1"]) };
        check(&[dying, young.clone()], &[], &[("10.0.0.1", "young", false)]);
        check(&[old, young], &[], &[("10.0.0.1", "young", false)]);
    }

    #[test]
    fn terminating_pods_stay_and_finished_ones_do_not() {
        let here = |pod: Pod| Pod { node: "here".into(), ..pod };
        let dying = here(Pod { terminating: true, ..pod("a", "1", &["10.0.0.1"]) });
        let done = here(Pod { finished: true, ..pod("b", "2", &["10.0.0.2"]) });
        check(&[dying, done.clone()], &[], &[("10.0.0.1", "a", true)]);
        check(&[done], &[pod("b", "2", &["10.0.0.2"])], &[]);
    }
}

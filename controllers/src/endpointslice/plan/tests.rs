use api::Map;
use proptest::prelude::*;

use super::super::topology::HintError;
use super::*;
use crate::support::endpoint_pods::Templates;
use crate::support::slices::identity;

fn service(spec: Tree) -> Tree {
    let mut whole = tree! {
        "ipFamilies" => list!["IPv4"],
        "clusterIP" => "10.96.0.9",
        "selector" => tree! { "app" => "be" },
        "ports" => list![tree! { "name" => "web", "protocol" => "TCP", "port" => 80, "targetPort" => "http" }],
    };
    for (key, value) in spec.as_map().into_iter().flat_map(Map::iter) {
        whole.set(key, value.clone());
    }
    tree! {
        "apiVersion" => "v1",
        "kind" => "Service",
        "metadata" => tree! { "namespace" => "n", "name" => "be", "uid" => "s", "labels" => tree! { "l" => "1" } },
        "spec" => whole,
    }
}

/// A pod that serves the port `http` at this number.
fn pod(name: &str, ip: &str, ready: bool, port: i64) -> Tree {
    let status = if ready { "True" } else { "False" };
    let ports = list![tree! { "name" => "http", "protocol" => "TCP", "containerPort" => port }];
    tree! {
        "metadata" => tree! { "namespace" => "n", "name" => name, "uid" => format!("uid-{name}") },
        "spec" => tree! { "nodeName" => "node-a", "containers" => list![tree! { "ports" => ports }] },
        "status" => tree! {
            "phase" => "Running",
            "podIP" => ip,
            "podIPs" => list![tree! { "ip" => ip }, tree! { "ip" => "fd00::1" }],
            "conditions" => list![tree! { "type" => "Ready", "status" => status }],
        },
    }
}

/// A server that stores slices.
#[derive(Default)]
struct World {
    slices: Vec<Arc<Tree>>,
    made: usize,
}

impl World {
    fn apply(&mut self, changes: Changes) {
        for mut slice in changes.create {
            self.made += 1;
            slice.child("metadata").set("name", format!("be-{:04}", self.made));
            self.slices.push(Arc::new(slice));
        }
        for slice in changes.update {
            let name = slice.str("metadata.name");
            let old = self.slices.iter_mut().find(|old| old.str("metadata.name") == name).expect("it is there");
            *old = Arc::new(slice);
        }
        for slice in changes.delete {
            let before = self.slices.len();
            self.slices.retain(|other| other.str("metadata.name") != slice.str("metadata.name"));
            assert_eq!(self.slices.len() + 1, before, "what is deleted was there");
        }
    }

    fn sync(&mut self, service: &Tree, pods: &[Tree], limit: usize) -> (usize, usize, usize) {
        let topologies = NodeTopologies::from([(client::Key::from("node-a"), topology::NodeTopology::new("z1", None))]);
        self.sync_at(service, pods, limit, &topologies)
    }

    fn sync_at(
        &mut self,
        service: &Tree,
        pods: &[Tree],
        limit: usize,
        topologies: &NodeTopologies,
    ) -> (usize, usize, usize) {
        let templates = Templates::default();
        let pods: Vec<Arc<Pod>> = pods.iter().map(|pod| Arc::new(Pod::of(pod, &templates))).collect();
        let observed = ObservedState {
            service,
            pods: &pods,
            topologies,
            slices: &self.slices,
            max_endpoints: limit,
            trigger: None,
        };
        let changes = plan(&observed).changes;
        let counts = (changes.create.len(), changes.update.len(), changes.delete.len());
        self.apply(changes);
        counts
    }

    fn endpoints(&self) -> Vec<String> {
        self.slices.iter().flat_map(|slice| slice.list("endpoints")).map(identity).collect()
    }
}

#[test]
fn endpoints_describe_their_pod() {
    let mut world = World::default();
    let mut one = pod("a", "10.0.0.1", true, 8080);
    one.child("spec").set("hostname", "h");
    one.child("spec").set("subdomain", "be");
    assert_eq!(world.sync(&service(tree! {}), &[one], 100), (1, 0, 0));
    let slice = &world.slices[0];
    let want = tree! {
        "addresses" => list!["10.0.0.1"],
        "conditions" => tree! { "ready" => true, "serving" => true, "terminating" => false },
        "targetRef" => tree! { "kind" => "Pod", "namespace" => "n", "name" => "a", "uid" => "uid-a" },
        "nodeName" => "node-a",
        "zone" => "z1",
        "hostname" => "h",
    };
    assert_eq!(slice.list("endpoints"), [want]);
    assert_eq!(slice.list("ports"), [tree! { "name" => "web", "protocol" => "TCP", "port" => 8080 }]);
    let labels = tree! { "l" => "1", MANAGED_BY => MANAGER, SERVICE_NAME => "be" };
    assert_eq!(*slice.at("metadata.labels"), labels);
    assert_eq!(slice.str("metadata.generateName"), "be-");
    assert!(is_owned_by(slice, &service(tree! {})));
}

#[test]
fn endpoint_conditions_follow_the_pod() {
    let check = |ready: bool, deleted: bool, publishes: bool, want: [bool; 3]| {
        let mut pod = pod("a", "10.0.0.1", ready, 1);
        if deleted {
            pod.child("metadata").set("deletionTimestamp", "2024-01-01T00:00:00Z");
        }
        let mut world = World::default();
        world.sync(&service(tree! { "publishNotReadyAddresses" => publishes }), &[pod], 100);
        let conditions = world.slices[0].list("endpoints")[0].at("conditions").clone();
        let got = ["ready", "serving", "terminating"].map(|name| conditions.bool(name));
        assert_eq!(got, want, "{ready} {deleted} {publishes}");
    };
    check(true, false, false, [true, true, false]);
    check(false, false, false, [false, false, false]);
    check(true, true, false, [false, true, true]);
    check(true, true, true, [true, true, true]);
    check(false, false, true, [true, false, false]);
}

#[test]
fn slices_are_split_by_family_and_ports() {
    let dual = service(tree! { "ipFamilies" => list!["IPv6", "IPv4"] });
    let pods = [pod("a", "10.0.0.1", true, 1), pod("b", "10.0.0.2", true, 2)];
    let mut world = World::default();
    assert_eq!(world.sync(&dual, &pods, 100), (4, 0, 0));
    assert_eq!(world.sync(&service(tree! {}), &pods, 100), (0, 0, 2), "the other family is no longer wanted");
    assert_eq!(world.sync(&service(tree! {}), &pods[..1], 100), (0, 0, 1), "a set of ports is no longer wanted");
}

#[test]
fn skips_pods_on_unknown_nodes() {
    let mut lost = pod("a", "10.0.0.1", true, 1);
    lost.child("spec").set("nodeName", "node-b");
    let mut world = World::default();
    world.sync(&service(tree! {}), std::slice::from_ref(&lost), 100);
    assert_eq!(world.endpoints().len(), 0);
    world.sync(&service(tree! { "publishNotReadyAddresses" => true }), &[lost], 100);
    assert_eq!(world.endpoints().len(), 1);
}

#[test]
fn sets_hints_for_traffic_distribution() {
    let check = |distribution: &str, ready: bool, want: Tree| {
        let mut world = World::default();
        world.sync(&service(tree! { "trafficDistribution" => distribution }), &[pod("a", "10.0.0.1", ready, 1)], 100);
        assert_eq!(*world.slices[0].list("endpoints")[0].at("hints"), want, "{distribution}");
    };
    let zones = list![tree! { "name" => "z1" }];
    check("", true, Tree::Null);
    check("PreferClose", true, tree! { "forZones" => zones.clone() });
    check("PreferSameZone", true, tree! { "forZones" => zones.clone() });
    check("PreferSameNode", true, tree! { "forZones" => zones, "forNodes" => list![tree! { "name" => "node-a" }] });
    check("PreferSameNode", false, Tree::Null);
}

#[test]
fn topology_hints_are_requested_by_annotation() {
    let check = |annotations: Tree, want: bool, distribution_stays: bool| {
        let mut service = service(tree! { "trafficDistribution" => "PreferClose" });
        service.child("metadata").set("annotations", annotations.clone());
        assert_eq!(is_by_zone_size(&service), want, "{annotations:?}");
        assert_eq!(distribution(&service) == "PreferClose", distribution_stays, "{annotations:?}");
    };
    let [old, new] = TOPOLOGY_MODES;
    check(tree! {}, false, true);
    check(tree! { new => "Auto" }, true, false);
    check(tree! { new => "auto" }, true, false);
    check(tree! { new => "Disabled" }, false, true);
    check(tree! { old => "Auto" }, true, false);
    check(tree! { old => "Disabled", new => "Auto" }, false, true);
}

#[test]
fn hint_changes_are_reported_once() {
    let yes = || HintResult::Yes(BTreeMap::from([(Str::from("z1"), 2)]));
    let check = |before: HintResults, now: HintResults, want: &[EventMessage]| {
        assert_eq!(hint_events(&before, &now), want, "{now:?}")
    };
    let of = |hinted: HintResult| HintResults::from([("IPv4", hinted)]);
    let enabled =
        EventMessage::normal("TopologyAwareHintsEnabled", "Topology Aware Hints has been enabled, addressType: IPv4");
    let disabled = |why: &str| EventMessage::warning("TopologyAwareHintsDisabled", format!("{why}, addressType: IPv4"));
    check(HintResults::new(), HintResults::new(), &[]);
    check(HintResults::new(), of(yes()), std::slice::from_ref(&enabled));
    check(HintResults::new(), HintResults::from([("IPv4", yes()), ("IPv6", yes())]), std::slice::from_ref(&enabled));
    let few = || HintResult::No(HintError::TooFewEndpoints { endpoints: 1, zones: 2 });
    let few_text = "Insufficient number of endpoints (1 endpoints, 2 zones)";
    let no_zone = || HintResult::No(HintError::NoZone);
    check(of(few()), of(yes()), &[enabled]);
    check(of(yes()), of(yes()), &[]);
    check(of(yes()), of(few()), &[disabled(few_text)]);
    check(of(few()), of(few()), &[]);
    check(of(few()), of(no_zone()), &[disabled("One or more endpoints do not have a zone specified")]);
    check(of(yes()), HintResults::new(), &[disabled("Topology Aware Hints has been disabled")]);
    check(of(few()), HintResults::new(), &[]);
}

#[test]
fn topology_hints_are_added_kept_and_removed() {
    let mut asks = service(tree! {});
    asks.child("metadata").set("annotations", tree! { "service.kubernetes.io/topology-mode" => "Auto" });
    let at = |name: &str, node: &str| {
        let mut pod = pod(name, &format!("10.0.0.{}", name.len()), true, 1);
        pod.child("spec").set("nodeName", node);
        pod
    };
    let pods = [at("p", "node-a"), at("pp", "node-a"), at("ppp", "node-a"), at("pppp", "node-b")];
    let topologies = |b: Option<i64>| {
        let of = |name: &str, zone: &str, cpu: Option<i64>| {
            (client::Key::from(name), topology::NodeTopology::new(zone, cpu))
        };
        NodeTopologies::from([of("node-a", "z1", Some(1000)), of("node-b", "z2", b)])
    };
    let mut world = World::default();
    let hints = |world: &World| -> Vec<String> {
        let of =
            |endpoint: &Tree| endpoint.list("hints.forZones").first().map_or("", |zone| zone.str("name")).to_string();
        world.slices.iter().flat_map(|slice| slice.list("endpoints")).map(of).collect()
    };
    assert_eq!(world.sync_at(&asks, &pods, 2, &topologies(Some(1000))), (2, 0, 0));
    assert_eq!(hints(&world), ["z2", "z1", "z1", "z2"], "one of z1's is meant for z2");
    assert_eq!(world.sync_at(&asks, &pods, 2, &topologies(Some(1000))), (0, 0, 0), "what does is left alone");
    assert_eq!(world.sync_at(&asks, &pods, 2, &topologies(Some(1100))), (0, 0, 0));
    assert_eq!(world.sync_at(&asks, &pods, 2, &topologies(None)), (0, 2, 0), "one zone is none");
    assert_eq!(hints(&world), ["", "", "", ""]);
    assert_eq!(world.sync_at(&asks, &pods, 2, &topologies(Some(1000))), (0, 2, 0));
    assert_eq!(
        world.sync_at(&service(tree! {}), &pods, 2, &topologies(Some(1000))),
        (0, 2, 0),
        "hints are no longer requested"
    );
    assert_eq!(hints(&world), ["", "", "", ""]);
}

#[test]
fn a_service_without_endpoints_has_one_empty_slice() {
    let headless = service(tree! { "clusterIP" => "None", "ports" => list![] });
    let mut world = World::default();
    assert_eq!(world.sync(&headless, &[], 100), (1, 0, 0));
    assert_eq!(world.slices[0].map("metadata.labels").get(HEADLESS), Some(&"".into()));
    assert!(!world.slices[0].has("endpoints") && !world.slices[0].has("ports"));
    assert_eq!(world.sync(&headless, &[], 100), (0, 0, 0));
    assert_eq!(world.sync(&headless, &[pod("a", "10.0.0.1", true, 1)], 100), (0, 1, 0));
    assert_eq!(world.sync(&headless, &[], 100), (0, 1, 0), "it is emptied, not deleted and made again");
    assert_eq!(world.made, 1);
}

#[test]
fn terminating_services_get_no_new_slices() {
    let mut changed = service(tree! {});
    let mut world = World::default();
    world.sync(&changed, &[pod("a", "10.0.0.1", true, 1)], 100);
    changed.child("metadata").set("labels", tree! { "l" => "2", MANAGED_BY => "me" });
    assert_eq!(world.sync(&changed, &[pod("a", "10.0.0.1", true, 1)], 100), (0, 1, 0));
    assert_eq!(world.slices[0].map("metadata.labels").str("l"), "2");
    assert_eq!(world.slices[0].map("metadata.labels").str(MANAGED_BY), MANAGER);
    changed.child("metadata").set("deletionTimestamp", "2024-01-01T00:00:00Z");
    assert_eq!(World::default().sync(&changed, &[pod("a", "10.0.0.1", true, 1)], 100), (0, 0, 0));
}

#[test]
fn deletes_slices_of_a_replaced_service() {
    let mut world = World::default();
    world.sync(&service(tree! {}), &[pod("a", "10.0.0.1", true, 1)], 100);
    let mut again = service(tree! {});
    again.child("metadata").set("uid", "other");
    assert_eq!(world.sync(&again, &[pod("a", "10.0.0.1", true, 1)], 100), (1, 0, 1));
}

#[test]
fn changing_one_pod_writes_one_slice() {
    let mut pods: Vec<Tree> =
        (0..1000).map(|at| pod(&format!("p{at:04}"), &format!("10.0.{}.{}", at / 250, at % 250), true, 1)).collect();
    let mut world = World::default();
    let service = service(tree! {});
    assert_eq!(world.sync(&service, &pods, 100), (10, 0, 0));
    pods[500] = pod("p0500", "10.0.2.0", false, 1);
    assert_eq!(world.sync(&service, &pods, 100), (0, 1, 0));
    pods.remove(7);
    pods.push(pod("new", "10.9.9.9", true, 1));
    assert_eq!(world.sync(&service, &pods, 100), (0, 1, 0), "the gap is filled where it is");
}

proptest! {
    /// For any sequence of pods: the slices contain each desired endpoint once, no slice exceeds the limit, and a
    /// second plan has nothing to do.
    #[test]
    fn slices_contain_the_desired_endpoints(
        rounds in prop::collection::vec(prop::collection::vec((0..40u8, any::<bool>(), 1..3i64), 0..40), 1..6),
        limit in 1..7usize,
    ) {
        let mut world = World::default();
        let service = service(tree! {});
        for round in rounds {
            let chosen: BTreeMap<u8, (bool, i64)> =
                round.into_iter().map(|(at, ready, port)| (at, (ready, port))).collect();
            let pods: Vec<Tree> = chosen
                .iter()
                .map(|(at, (ready, port))| pod(&format!("p{at}"), &format!("10.0.0.{at}"), *ready, *port))
                .collect();
            world.sync(&service, &pods, limit);
            let mut want: Vec<String> = chosen.keys().map(|at| format!("10.0.0.{at},n/p{at}")).collect();
            let mut got = world.endpoints();
            want.sort();
            got.sort();
            prop_assert_eq!(got, want);
            prop_assert!(!world.slices.is_empty());
            prop_assert!(world.slices.iter().all(|slice| slice.list("endpoints").len() <= limit));
            prop_assert_eq!(world.sync(&service, &pods, limit), (0, 0, 0));
        }
    }
}

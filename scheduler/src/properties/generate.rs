//! Generates random objects with many similarities: selectors match some, and nodes fill up quickly.

use api::{Tree, list, tree};
use client::Random;

use oracle::ClusterState;

pub(crate) struct Generator<'a> {
    pub random: &'a Random,
    /// The number of generated pods, for their names.
    pub made: u64,
}

const NAMESPACES: [&str; 3] = ["red", "green", "blue"];
const APPS: [&str; 3] = ["web", "db", "cache"];
const ZONES: [&str; 3] = ["east", "west", "north"];
const KEYS: [&str; 3] = ["topology.kubernetes.io/zone", "kubernetes.io/hostname", "rack"];
const MIB: i64 = 1024 * 1024;

impl Generator<'_> {
    pub(super) fn below(&self, bound: u64) -> u64 {
        self.random.below(bound)
    }

    /// True with this probability in percent.
    pub(crate) fn chance(&self, percent: u64) -> bool {
        self.below(100) < percent
    }

    fn one<'a>(&self, of: &[&'a str]) -> &'a str {
        of[self.below(of.len() as u64) as usize]
    }

    /// Up to `most` items.
    fn some(&self, most: u64, make: impl Fn() -> Tree) -> Tree {
        Tree::List((0..self.below(most + 1)).map(|_| make()).collect())
    }

    pub(super) fn world(&mut self, nodes: u64, pods: u64) -> ClusterState {
        let mut world = ClusterState {
            namespaces: NAMESPACES.iter().map(|name| self.namespace(name)).collect(),
            nodes: (0..nodes).map(|number| self.node(&format!("n{number}"))).collect(),
            services: (0..self.below(3)).map(|number| self.service(number)).collect(),
            ..ClusterState::default()
        };
        for name in ["one", "two"] {
            world.replica_sets.push(self.owner(name, true));
            world.stateful_sets.push(self.owner(name, true));
            world.replication_controllers.push(self.owner(name, false));
        }
        self.storage(&mut world);
        for _ in 0..pods {
            let mut pod = self.pod();
            let node =
                self.one(&world.nodes.iter().map(|node| node.str("metadata.name")).collect::<Vec<_>>()).to_string();
            place(&mut pod, &node);
            world.pods.push(pod);
        }
        world
    }

    pub(super) fn namespace(&self, name: &str) -> Tree {
        let labels = tree! { "team" => self.one(&["a", "b"]) };
        tree! { "metadata" => tree! { "name" => name, "labels" => labels } }
    }

    pub(super) fn node(&self, name: &str) -> Tree {
        let mut labels = tree! { "disk" => self.one(&["ssd", "hdd"]), "cores" => self.below(9).to_string() };
        let places = [(KEYS[0], self.one(&ZONES), 85), (KEYS[1], name, 92), (KEYS[2], self.one(&["1", "2"]), 60)];
        for (key, value, percent) in places {
            if self.chance(percent) {
                labels.set(key, value);
            }
        }
        let mut room = tree! {
            "cpu" => (1 + self.below(6)).to_string(),
            "memory" => format!("{}Gi", 1 + self.below(8)),
            "pods" => (2 + self.below(12)).to_string(),
            "ephemeral-storage" => "8Gi",
        };
        if self.chance(30) {
            room.set("example.com/gpu", self.below(3).to_string());
        }
        let image = || {
            let size = 50 * MIB * (1 + self.below(20) as i64);
            tree! { "names" => list![format!("{}:latest", self.one(&APPS))], "sizeBytes" => size }
        };
        let features = if self.chance(50) { list!["UserNamespacesHostNetworkSupport"] } else { list![] };
        tree! {
            "metadata" => tree! { "name" => name, "uid" => name, "labels" => labels },
            "spec" => tree! { "taints" => self.taints(), "unschedulable" => self.chance(5) },
            "status" => tree! { "allocatable" => room, "images" => self.some(2, image), "declaredFeatures" => features },
        }
    }

    fn taints(&self) -> Tree {
        if self.chance(70) {
            return list![];
        }
        let effects = ["NoSchedule", "PreferNoSchedule", "NoExecute"];
        self.some(2, || {
            tree! { "key" => self.one(&["k", "l"]), "value" => self.one(&["", "v"]), "effect" => self.one(&effects) }
        })
    }

    fn service(&self, number: u64) -> Tree {
        let meta = tree! { "name" => format!("s{number}"), "namespace" => self.one(&NAMESPACES) };
        tree! { "metadata" => meta, "spec" => tree! { "selector" => tree! { "app" => self.one(&APPS) } } }
    }

    fn owner(&self, name: &str, is_set: bool) -> Tree {
        let labels = tree! { "app" => self.one(&APPS) };
        let selector = if is_set {
            tree! { "matchLabels" => labels }
        } else {
            labels
        };
        tree! {
            "metadata" => tree! { "name" => name, "namespace" => self.one(&NAMESPACES) },
            "spec" => tree! { "selector" => selector },
        }
    }

    /// An unscheduled pod.
    pub(super) fn pod(&mut self) -> Tree {
        self.made += 1;
        let name = format!("p{}", self.made);
        let mut labels = tree! { "app" => self.one(&APPS) };
        if self.chance(40) {
            labels.set("tier", self.one(&["front", "back"]));
        }
        let mut meta = tree! {
            "name" => name.clone(), "uid" => name, "namespace" => self.one(&NAMESPACES), "labels" => labels,
        };
        if self.chance(30) {
            let kind = self.one(&["ReplicaSet", "StatefulSet", "ReplicationController", "Job"]);
            let owner =
                tree! { "kind" => kind, "name" => self.one(&["one", "two"]), "uid" => "o", "controller" => true };
            meta.set("ownerReferences", list![owner]);
        }
        tree! { "metadata" => meta, "spec" => self.spec(), "status" => tree! { "phase" => "Pending" } }
    }

    fn spec(&self) -> Tree {
        let mut spec = tree! {
            "schedulerName" => "default-scheduler",
            "priority" => self.below(3) as i64,
            "containers" => Tree::List((0..1 + self.below(2)).map(|_| self.container()).collect()),
        };
        if self.chance(15) {
            let mut init = self.container();
            if self.chance(50) {
                init.set("restartPolicy", "Always");
            }
            spec.set("initContainers", list![init]);
        }
        if self.chance(5) {
            spec.set("overhead", tree! { "cpu" => "100m" });
        }
        if self.chance(5) {
            spec.set("resources", tree! { "requests" => tree! { "cpu" => "2" } });
        }
        if self.chance(3) {
            spec.set("hostNetwork", true);
            spec.set("hostUsers", false);
        }
        if self.chance(2) {
            spec.set("resourceClaims", list![tree! { "name" => "gpu", "resourceClaimName" => "gpu" }]);
        }
        if self.chance(10) {
            spec.set("nodeSelector", tree! { "disk" => self.one(&["ssd", "hdd"]) });
        }
        if self.chance(30) {
            spec.set("tolerations", self.some(2, || self.toleration()));
        }
        if self.chance(30) {
            spec.set("topologySpreadConstraints", self.spread());
        }
        if self.chance(15) {
            spec.set("volumes", self.some(2, || self.volume()));
        }
        spec.set("affinity", self.affinity());
        spec
    }

    fn container(&self) -> Tree {
        let mut requests = Tree::map_new();
        if self.chance(70) {
            requests.set("cpu", format!("{}m", 100 * (1 + self.below(15))));
        }
        if self.chance(60) {
            requests.set("memory", format!("{}Mi", 128 * (1 + self.below(12))));
        }
        if self.chance(6) {
            requests.set("example.com/gpu", "1");
        }
        let mut container = tree! {
            "name" => "c", "image" => self.one(&["web", "db:latest", "cache"]), "resources" => tree! { "requests" => requests },
        };
        if self.chance(8) {
            let port = tree! { "hostPort" => 80 + self.below(2) as i64, "hostIP" => self.one(&["", "10.0.0.1"]) };
            container.set("ports", list![port]);
        }
        container
    }

    fn toleration(&self) -> Tree {
        let effect = self.one(&["", "NoSchedule", "PreferNoSchedule", "NoExecute"]);
        match self.chance(50) {
            true => tree! { "operator" => "Exists", "key" => self.one(&["", "k", "l"]), "effect" => effect },
            false => tree! { "key" => self.one(&["k", "l"]), "value" => self.one(&["", "v"]), "effect" => effect },
        }
    }

    fn selector(&self) -> Tree {
        match self.below(10) {
            0 => tree! {},
            1 => {
                let requirement = tree! { "key" => "tier", "operator" => self.one(&["Exists", "DoesNotExist"]) };
                tree! { "matchExpressions" => list![requirement] }
            }
            2 => {
                let values = list![self.one(&APPS), self.one(&APPS)];
                let operator = self.one(&["In", "NotIn"]);
                tree! { "matchExpressions" => list![tree! { "key" => "app", "operator" => operator, "values" => values }] }
            }
            _ => tree! { "matchLabels" => tree! { "app" => self.one(&APPS) } },
        }
    }

    fn spread(&self) -> Tree {
        let constraint = |key: &str| {
            let mut made = tree! {
                "maxSkew" => 1 + self.below(3) as i64,
                "topologyKey" => key,
                "whenUnsatisfiable" => self.one(&["DoNotSchedule", "ScheduleAnyway"]),
                "labelSelector" => self.selector(),
            };
            if self.chance(20) && made.str("whenUnsatisfiable") == "DoNotSchedule" {
                made.set("minDomains", 1 + self.below(4) as i64);
            }
            if self.chance(30) {
                made.set("nodeAffinityPolicy", self.one(&["Honor", "Ignore"]));
                made.set("nodeTaintsPolicy", self.one(&["Honor", "Ignore"]));
            }
            if self.chance(20) {
                made.set("matchLabelKeys", list!["tier"]);
            }
            made
        };
        let keys: Vec<&str> = KEYS.into_iter().filter(|_| self.chance(50)).collect();
        Tree::List(keys.into_iter().map(constraint).collect())
    }

    fn term(&self) -> Tree {
        let mut term = tree! { "topologyKey" => self.one(&KEYS), "labelSelector" => self.selector() };
        match self.below(8) {
            0 => term.set("namespaces", list![self.one(&NAMESPACES)]),
            1 => term.set("namespaceSelector", tree! { "matchLabels" => tree! { "team" => "a" } }),
            2 => term.set("namespaceSelector", tree! {}),
            _ => {}
        }
        term
    }

    fn affinity(&self) -> Tree {
        const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";
        const PREFERRED: &str = "preferredDuringSchedulingIgnoredDuringExecution";
        let mut affinity = Tree::map_new();
        let weighted = || tree! { "weight" => 1 + self.below(20) as i64, "podAffinityTerm" => self.term() };
        for (kind, percent) in [("podAffinity", 8), ("podAntiAffinity", 12)] {
            if self.chance(percent) {
                affinity.child(kind).set(REQUIRED, self.some(2, || self.term()));
            }
            if self.chance(percent) {
                affinity.child(kind).set(PREFERRED, self.some(2, weighted));
            }
        }
        if self.chance(10) {
            affinity
                .child("nodeAffinity")
                .set(REQUIRED, tree! { "nodeSelectorTerms" => self.some(2, || self.node_term()) });
        }
        if self.chance(10) {
            let weighted = || tree! { "weight" => 1 + self.below(20) as i64, "preference" => self.node_term() };
            affinity.child("nodeAffinity").set(PREFERRED, self.some(2, weighted));
        }
        affinity
    }

    fn node_term(&self) -> Tree {
        let requirement = match self.below(5) {
            0 => tree! { "key" => "cores", "operator" => self.one(&["Gt", "Lt"]), "values" => list!["4"] },
            1 => tree! { "key" => "rack", "operator" => self.one(&["Exists", "DoesNotExist"]) },
            2 => {
                return tree! { "matchFields" => list![tree! { "key" => "metadata.name", "operator" => "In", "values" => list!["n1"] }] };
            }
            _ => tree! { "key" => "disk", "operator" => self.one(&["In", "NotIn"]), "values" => list!["ssd"] },
        };
        tree! { "matchExpressions" => list![requirement] }
    }

    fn volume(&self) -> Tree {
        let read_only = self.chance(50);
        match self.below(8) {
            0 => tree! { "gcePersistentDisk" => tree! { "pdName" => self.one(&["d", "e"]), "readOnly" => read_only } },
            1 => tree! { "awsElasticBlockStore" => tree! { "volumeID" => self.one(&["d", "e"]) } },
            2 => tree! { "iscsi" => tree! { "iqn" => self.one(&["d", "e"]), "readOnly" => read_only } },
            3 => tree! { "name" => "own", "ephemeral" => tree! {} },
            _ => {
                let name = self.one(&["bound", "gone", "late", "local", "large", "once", "now", "missing"]);
                tree! { "persistentVolumeClaim" => tree! { "claimName" => name } }
            }
        }
    }

    fn storage(&self, world: &mut ClusterState) {
        let in_zone = |zone: &str| {
            let requirement = tree! { "key" => KEYS[0], "operator" => "In", "values" => list![zone] };
            let term = tree! { "matchExpressions" => list![requirement] };
            tree! { "required" => tree! { "nodeSelectorTerms" => list![term] } }
        };
        let class = |name: &str, provisioner: &str, mode: &str| {
            tree! { "metadata" => tree! { "name" => name }, "provisioner" => provisioner, "volumeBindingMode" => mode }
        };
        let mut late = class("late", "csi", "WaitForFirstConsumer");
        if self.chance(50) {
            let expression = tree! { "key" => KEYS[0], "values" => list![self.one(&ZONES)] };
            late.set("allowedTopologies", list![tree! { "matchLabelExpressions" => list![expression] }]);
        }
        world.classes = vec![
            late,
            class("local", "kubernetes.io/no-provisioner", "WaitForFirstConsumer"),
            class("now", "csi", "Immediate"),
        ];
        let mut bound = tree! {
            "metadata" => tree! { "name" => "vb" },
            "spec" => tree! { "csi" => tree! { "driver" => "csi", "volumeHandle" => "h" }, "nodeAffinity" => in_zone(self.one(&ZONES)) },
        };
        if self.chance(50) {
            bound.child("metadata").set("labels", tree! { KEYS[0] => self.one(&["east", "east__west", "north"]) });
        }
        world.volumes.push(bound);
        for number in 0..3 {
            let spec = tree! {
                "storageClassName" => "local",
                "capacity" => tree! { "storage" => format!("{}Gi", 1 + self.below(6)) },
                "accessModes" => list!["ReadWriteOnce"],
                "nodeAffinity" => in_zone(self.one(&ZONES)),
            };
            let meta = tree! { "name" => format!("v{number}") };
            world
                .volumes
                .push(tree! { "metadata" => meta, "spec" => spec, "status" => tree! { "phase" => "Available" } });
        }
        for namespace in NAMESPACES {
            self.claims(world, namespace);
        }
        for node in &world.nodes {
            let driver = tree! { "name" => "csi", "allocatable" => tree! { "count" => self.below(3) as i64 } };
            let meta = tree! { "name" => node.str("metadata.name") };
            world.csi_nodes.push(tree! { "metadata" => meta, "spec" => tree! { "drivers" => list![driver] } });
        }
        self.capacities(world);
    }

    fn claims(&self, world: &mut ClusterState, namespace: &str) {
        let claim = |name: &str, class: &str, size: i64, mode: &str| {
            tree! {
                "metadata" => tree! { "name" => name, "namespace" => namespace, "uid" => format!("{namespace}-{name}") },
                "spec" => tree! {
                    "storageClassName" => class,
                    "accessModes" => list![mode],
                    "resources" => tree! { "requests" => tree! { "storage" => format!("{size}Gi") } },
                },
            }
        };
        let bound = |name: &str, volume: &str| {
            let mut made = claim(name, "now", 1, "ReadWriteOnce");
            made.child("spec").set("volumeName", volume);
            made.child("metadata").set("annotations", tree! { "pv.kubernetes.io/bind-completed" => "yes" });
            made
        };
        world.claims.extend([bound("bound", "vb"), bound("gone", "nowhere")]);
        world.claims.extend([
            claim("late", "late", 1, "ReadWriteOnce"),
            claim("local", "local", 1 + self.below(3) as i64, "ReadWriteOnce"),
            claim("large", "local", 4, "ReadWriteOnce"),
            claim("once", "late", 1, "ReadWriteOncePod"),
            claim("now", "now", 1, "ReadWriteOnce"),
        ]);
    }

    fn capacities(&self, world: &mut ClusterState) {
        if self.chance(50) {
            return;
        }
        let meta = tree! { "name" => "csi" };
        let spec = tree! { "storageCapacity" => true, "preventPodSchedulingIfMissing" => self.chance(30) };
        world.csi_drivers.push(tree! { "metadata" => meta, "spec" => spec });
        for zone in ZONES.iter().filter(|_| self.chance(60)) {
            let topology = tree! { "matchLabels" => tree! { KEYS[0] => *zone } };
            world.capacities.push(tree! {
                "metadata" => tree! { "name" => *zone, "namespace" => "kube-system" },
                "storageClassName" => "late", "nodeTopology" => topology, "capacity" => format!("{}Gi", self.below(3)),
            });
        }
    }
}

/// Assigns a pod to a node.
pub(super) fn place(pod: &mut Tree, node: &str) {
    pod.child("spec").set("nodeName", node);
    pod.child("status").set("phase", "Running");
}

//! Tables of plugin results, with objects in YAML's flow style.

use api::Tree;

use super::{
    Case, ClusterState, Settings, Strategy, Verdict, find, find_needless_victims, find_wrong_victims, requests,
};

fn yaml(text: &str) -> Tree {
    api::yaml::decode(text.as_bytes()).expect(text)
}

fn world(text: &str) -> ClusterState {
    let tree = yaml(text);
    let list = |key: &str| tree.list(key).to_vec();
    ClusterState {
        nodes: list("nodes"),
        pods: list("pods"),
        namespaces: list("namespaces"),
        services: list("services"),
        replica_sets: list("replicaSets"),
        claims: list("claims"),
        volumes: list("volumes"),
        classes: list("classes"),
        csi_nodes: list("csiNodes"),
        csi_drivers: list("csiDrivers"),
        capacities: list("capacities"),
        ..ClusterState::default()
    }
}

/// The reasons of a plugin for each node, with `!` before unresolvable ones.
fn says(plugin: &str, text: &str, pod: &str) -> Vec<String> {
    let (world, pod, settings) = (world(text), yaml(pod), Settings::default());
    let case = Case { world: &world, settings: &settings, pod: &pod };
    let filter = find(plugin).and_then(|plugin| plugin.filter).expect("the plugin filters");
    let say = |node: &Tree| match filter(&case, node) {
        Verdict::Fits => String::new(),
        Verdict::Unschedulable(reasons) => reasons.join(";"),
        Verdict::Unresolvable(reasons) => format!("!{}", reasons.join(";")),
    };
    world.nodes.iter().map(say).collect()
}

fn scores(plugin: &str, settings: &Settings, text: &str, pod: &str) -> Option<Vec<i64>> {
    let (world, pod) = (world(text), yaml(pod));
    let case = Case { world: &world, settings, pod: &pod };
    let nodes: Vec<&Tree> = world.nodes.iter().collect();
    find(plugin).and_then(|plugin| plugin.score).expect("the plugin scores")(&case, &nodes)
}

#[test]
fn sums_pod_requests() {
    let cases = [
        (
            "{spec: {containers: [{resources: {requests: {cpu: 1, memory: 1Gi}}}, {resources: {requests: {cpu: 500m}}}]}}",
            "cpu=1500 memory=1073741824",
        ),
        (
            "{spec: {overhead: {cpu: 10m}, containers: [{resources: {requests: {cpu: 1}}}], initContainers: [{resources: {requests: {cpu: 3}}}]}}",
            "cpu=3010",
        ),
        // The sidecar runs beside the later init container and beside the container.
        (
            "{spec: {containers: [{resources: {requests: {cpu: 1}}}], initContainers: [{restartPolicy: Always, resources: {requests: {cpu: 2}}}, {resources: {requests: {cpu: 2}}}]}}",
            "cpu=4000",
        ),
        (
            "{spec: {resources: {requests: {cpu: 5}}, containers: [{resources: {requests: {cpu: 1, example.com/gpu: 2}}}]}}",
            "cpu=5000 example.com/gpu=2",
        ),
        // While it is scaled down it keeps its actual resources.
        (
            "{spec: {containers: [{name: a, resources: {requests: {cpu: 1}}}]}, status: {containerStatuses: [{name: a, resources: {}, allocatedResources: {cpu: 3}}]}}",
            "cpu=3000",
        ),
    ];
    for (pod, want) in cases {
        let got: Vec<String> = requests(&yaml(pod)).iter().map(|(name, amount)| format!("{name}={amount}")).collect();
        assert_eq!(got.join(" "), want, "{pod}");
    }
}

#[test]
fn filters_by_node_properties() {
    let named = "{nodes: [{metadata: {name: a, labels: {disk: ssd, cores: '8'}}}, {metadata: {name: b}}]}";
    let tainted = "{nodes: [{spec: {taints: [{key: k, value: v, effect: NoSchedule}]}}, {spec: {unschedulable: true}}, {spec: {taints: [{key: k, value: v, effect: PreferNoSchedule}]}}]}";
    let (taint, far) = ("!node(s) had untolerated taint(s)", "!node(s) didn't match Pod's node affinity/selector");
    let cordoned = "!node(s) were unschedulable";
    let affinity = |term: &str| {
        format!(
            "{{spec: {{affinity: {{nodeAffinity: {{requiredDuringSchedulingIgnoredDuringExecution: {{nodeSelectorTerms: [{term}]}}}}}}}}}}"
        )
    };
    let cases: Vec<(&str, &str, String, Vec<&str>)> = vec![
        ("NodeName", named, "{spec: {nodeName: b}}".into(), vec!["!node(s) didn't match the requested node name", ""]),
        ("TaintToleration", tainted, "{}".into(), vec![taint, "", ""]),
        ("TaintToleration", tainted, "{spec: {tolerations: [{key: k, operator: Exists}]}}".into(), vec!["", "", ""]),
        ("TaintToleration", tainted, "{spec: {tolerations: [{key: k, value: w}]}}".into(), vec![taint, "", ""]),
        (
            "TaintToleration",
            tainted,
            "{spec: {tolerations: [{operator: Exists, effect: NoExecute}]}}".into(),
            vec![taint, "", ""],
        ),
        ("NodeUnschedulable", tainted, "{}".into(), vec!["", cordoned, ""]),
        ("NodeUnschedulable", tainted, "{spec: {tolerations: [{operator: Exists}]}}".into(), vec!["", "", ""]),
        ("NodeAffinity", named, "{spec: {nodeSelector: {disk: ssd}}}".into(), vec!["", far]),
        (
            "NodeAffinity",
            named,
            affinity("{matchExpressions: [{key: cores, operator: Gt, values: ['4']}]}"),
            vec!["", far],
        ),
        (
            "NodeAffinity",
            named,
            affinity("{matchExpressions: [{key: disk, operator: NotIn, values: [ssd]}]}"),
            vec![far, ""],
        ),
        (
            "NodeAffinity",
            named,
            affinity("{matchFields: [{key: metadata.name, operator: In, values: [b]}]}"),
            vec![far, ""],
        ),
        ("NodeAffinity", named, affinity("{}"), vec![far, far]),
        (
            "DynamicResources",
            named,
            "{spec: {resourceClaims: [{name: gpu, resourceClaimName: gpu}]}}".into(),
            vec!["!resourceclaim.resource.k8s.io \"gpu\" not found"; 2],
        ),
        (
            "NodeDeclaredFeatures",
            "{nodes: [{}, {status: {declaredFeatures: [UserNamespacesHostNetworkSupport]}}]}",
            "{spec: {hostNetwork: true, hostUsers: false}}".into(),
            vec!["!node(s) didn't match Pod's required features", ""],
        ),
    ];
    for (plugin, nodes, pod, want) in cases {
        assert_eq!(says(plugin, nodes, &pod), want, "{plugin} {pod}");
    }
}

#[test]
fn host_ports_conflict() {
    let nodes = "{nodes: [{metadata: {name: a}}], pods: [{spec: {nodeName: a, containers: [{ports: [{hostPort: 80, hostIP: 10.0.0.1}]}]}}]}";
    let busy = "node(s) didn't have free ports for the requested pod ports";
    let cases = [
        ("{hostPort: 80}", busy),
        ("{hostPort: 80, hostIP: 10.0.0.2}", ""),
        ("{hostPort: 80, hostIP: 10.0.0.1, protocol: UDP}", ""),
        ("{hostPort: 81}", ""),
        ("{containerPort: 80}", ""),
    ];
    for (port, want) in cases {
        let pod = format!("{{spec: {{containers: [{{ports: [{port}]}}]}}}}");
        assert_eq!(says("NodePorts", nodes, &pod), [want], "{port}");
    }
}

const TWO_SIZES: &str = "{nodes: [{metadata: {name: a}, status: {allocatable: {cpu: 4, memory: 8Gi, pods: 2}}},
    {metadata: {name: b}, status: {allocatable: {cpu: 2, memory: 8Gi, pods: 1}}}],
  pods: [{spec: {nodeName: a, containers: [{resources: {requests: {cpu: 2, memory: 4Gi}}}]}},
    {spec: {nodeName: b, containers: [{}]}}, {spec: {nodeName: b, containers: [{}]}, status: {phase: Succeeded}}]}";

#[test]
fn filters_by_resources() {
    let cases = [
        ("{cpu: 2}", ["", "Too many pods"]),
        ("{cpu: 3}", ["Insufficient cpu", "!Too many pods;Insufficient cpu"]),
        (
            "{cpu: 5, memory: 9Gi}",
            ["!Insufficient cpu;Insufficient memory", "!Too many pods;Insufficient cpu;Insufficient memory"],
        ),
        ("{example.com/gpu: 1}", ["!Insufficient example.com/gpu", "!Too many pods;Insufficient example.com/gpu"]),
    ];
    for (wanted, want) in cases {
        let pod = format!("{{spec: {{containers: [{{resources: {{requests: {wanted}}}}}]}}}}");
        assert_eq!(says("NodeResourcesFit", TWO_SIZES, &pod), want, "{wanted}");
    }
}

#[test]
fn strategies_score_full_nodes() {
    let pod = "{spec: {containers: [{resources: {requests: {cpu: 1, memory: 2Gi}}}]}}";
    let with = |strategy| Settings { strategy, ..Settings::default() };
    // Then a has 3 of 4 cores and 6 of 8 GiB in use; b 1.1 of 2 and 2.2 of 8.
    let cases = [
        (Strategy::LeastAllocated, vec![25, 58]),
        (Strategy::MostAllocated, vec![75, 41]),
        (Strategy::RequestedToCapacityRatio(vec![(0, 0), (100, 10)]), vec![75, 41]),
        (Strategy::RequestedToCapacityRatio(vec![(0, 10), (50, 0)]), vec![0, 46]),
    ];
    for (strategy, want) in cases {
        let settings = with(strategy.clone());
        assert_eq!(scores("NodeResourcesFit", &settings, TWO_SIZES, pod), Some(want), "{strategy:?}");
    }
    let settings = Settings::default();
    assert_eq!(scores("NodeResourcesBalancedAllocation", &settings, TWO_SIZES, pod), Some(vec![75, 68]));
    assert_eq!(scores("NodeResourcesBalancedAllocation", &settings, TWO_SIZES, "{spec: {}}"), None);
}

#[test]
fn scores_taints_labels_and_images() {
    let settings = Settings::default();
    let nodes = "{nodes: [{spec: {taints: [{key: k, effect: PreferNoSchedule}]}, metadata: {labels: {z: a}}, status: {images: [{names: ['big:latest'], sizeBytes: 1048576000}]}}, {metadata: {labels: {z: b}}}]}";
    assert_eq!(scores("TaintToleration", &settings, nodes, "{}"), Some(vec![0, 100]));
    let preferred = "{spec: {affinity: {nodeAffinity: {preferredDuringSchedulingIgnoredDuringExecution: [{weight: 4, preference: {matchExpressions: [{key: z, operator: In, values: [a]}]}}, {weight: 2, preference: {matchExpressions: [{key: z, operator: Exists}]}}]}}}}";
    assert_eq!(scores("NodeAffinity", &settings, nodes, preferred), Some(vec![100, 33]));
    assert_eq!(scores("NodeAffinity", &settings, nodes, "{}"), None);
    // Half the nodes have it, so half its size counts: 477 of 977 MiB above the minimum.
    assert_eq!(scores("ImageLocality", &settings, nodes, "{spec: {containers: [{image: big}]}}"), Some(vec![48, 0]));
}

const ZONES: &str = "{namespaces: [{metadata: {name: ns}}, {metadata: {name: other, labels: {team: x}}}],
  nodes: [{metadata: {name: a1, labels: {zone: a, kubernetes.io/hostname: a1}}}, {metadata: {name: a2, labels: {zone: a, kubernetes.io/hostname: a2}}},
    {metadata: {name: b1, labels: {zone: b, kubernetes.io/hostname: b1}}}, {metadata: {name: x}}],
  pods: [{metadata: {name: one, namespace: ns, labels: {app: web}}, spec: {nodeName: a1}},
    {metadata: {name: two, namespace: ns, labels: {app: web}}, spec: {nodeName: a2}},
    {metadata: {name: three, namespace: other, labels: {app: web}}, spec: {nodeName: b1, affinity: {podAntiAffinity: {requiredDuringSchedulingIgnoredDuringExecution: [{topologyKey: zone, namespaces: [ns], labelSelector: {matchLabels: {app: shy}}}]}}}}]}";

#[test]
fn pods_spread_over_domains() {
    let (full, bare) = (
        "node(s) didn't match pod topology spread constraints",
        "!node(s) didn't match pod topology spread constraints (missing required label)",
    );
    let cases = [
        // Two pods in a, none in b.
        (
            "{maxSkew: 1, topologyKey: zone, whenUnsatisfiable: DoNotSchedule, labelSelector: {matchLabels: {app: web}}}",
            [full, full, "", bare],
        ),
        (
            "{maxSkew: 3, topologyKey: zone, whenUnsatisfiable: DoNotSchedule, labelSelector: {matchLabels: {app: web}}}",
            ["", "", "", bare],
        ),
        (
            "{maxSkew: 2, minDomains: 3, topologyKey: zone, whenUnsatisfiable: DoNotSchedule, labelSelector: {matchLabels: {app: web}}}",
            [full, full, "", bare],
        ),
        (
            "{maxSkew: 1, topologyKey: zone, whenUnsatisfiable: DoNotSchedule, labelSelector: {matchLabels: {app: other}}}",
            ["", "", "", bare],
        ),
        (
            "{maxSkew: 1, topologyKey: zone, whenUnsatisfiable: ScheduleAnyway, labelSelector: {matchLabels: {app: web}}}",
            ["", "", "", ""],
        ),
        (
            "{maxSkew: 1, topologyKey: zone, whenUnsatisfiable: DoNotSchedule, labelSelector: {}, matchLabelKeys: [app]}",
            [full, full, "", bare],
        ),
    ];
    for (constraint, want) in cases {
        let pod = format!(
            "{{metadata: {{namespace: ns, labels: {{app: web}}}}, spec: {{topologySpreadConstraints: [{constraint}]}}}}"
        );
        assert_eq!(says("PodTopologySpread", ZONES, &pod), want, "{constraint}");
    }
}

#[test]
fn excluded_nodes_have_no_domain() {
    let constraint = |policy: &str| {
        format!(
            "{{metadata: {{namespace: ns, labels: {{app: web}}}}, spec: {{nodeSelector: {{zone: a}}, topologySpreadConstraints: [{{maxSkew: 1, topologyKey: zone, whenUnsatisfiable: DoNotSchedule, nodeAffinityPolicy: {policy}, labelSelector: {{matchLabels: {{app: web}}}}}}]}}}}"
        )
    };
    assert_eq!(says("PodTopologySpread", ZONES, &constraint("Honor"))[0], "");
    assert_ne!(says("PodTopologySpread", ZONES, &constraint("Ignore"))[0], "");
}

#[test]
fn soft_spreading_prefers_empty_domains() {
    let settings = Settings::default();
    let pod = "{metadata: {namespace: ns, labels: {app: web}}, spec: {topologySpreadConstraints: [{maxSkew: 1, topologyKey: zone, whenUnsatisfiable: ScheduleAnyway, labelSelector: {matchLabels: {app: web}}}]}}";
    assert_eq!(scores("PodTopologySpread", &settings, ZONES, pod), Some(vec![0, 0, 100, 0]));
    // No selector matches the pod, so the system defaults have nothing to count.
    let plain = "{metadata: {namespace: ns, labels: {app: web}}}";
    assert_eq!(scores("PodTopologySpread", &settings, ZONES, plain), None);
    let service = ZONES
        .replace("{namespaces:", "{services: [{metadata: {namespace: ns}, spec: {selector: {app: web}}}], namespaces:");
    let got = scores("PodTopologySpread", &settings, &service, plain).expect("the service selects it");
    assert!(got[0] == got[1] && got[0] < got[2], "{got:?}");
}

#[test]
fn affinity_and_anti_affinity() {
    let (alone, near, unwanted) = (
        "!node(s) didn't match pod affinity rules",
        "node(s) didn't match pod anti-affinity rules",
        "node(s) didn't satisfy existing pods anti-affinity rules",
    );
    let term = |rest: &str| format!("requiredDuringSchedulingIgnoredDuringExecution: [{{topologyKey: zone, {rest}}}]");
    let web = "labelSelector: {matchLabels: {app: web}}";
    let cases = [
        ("web", format!("podAffinity: {{{}}}", term(web)), ["", "", alone, alone]),
        ("web", format!("podAntiAffinity: {{{}}}", term(web)), [near, near, "", ""]),
        ("web", format!("podAntiAffinity: {{{}}}", term(&format!("namespaces: [other], {web}"))), ["", "", near, ""]),
        (
            "web",
            format!(
                "podAntiAffinity: {{{}}}",
                term(&format!("namespaceSelector: {{matchLabels: {{team: x}}}}, {web}"))
            ),
            ["", "", near, ""],
        ),
        (
            "web",
            format!("podAntiAffinity: {{{}}}", term(&format!("namespaceSelector: {{}}, {web}"))),
            [near, near, near, ""],
        ),
        // The first of its group may run anywhere with the key.
        ("db", format!("podAffinity: {{{}}}", term("labelSelector: {matchLabels: {app: db}}")), ["", "", "", alone]),
        ("shy", "podAffinity: {}".to_string(), ["", "", unwanted, ""]),
    ];
    for (app, affinity, want) in cases {
        let pod =
            format!("{{metadata: {{namespace: ns, labels: {{app: {app}}}}}, spec: {{affinity: {{{affinity}}}}}}}");
        assert_eq!(says("InterPodAffinity", ZONES, &pod), want, "{affinity}");
    }
}

#[test]
fn preferred_terms_are_scored_by_domain() {
    let settings = Settings::default();
    let pod = |kind: &str| {
        format!(
            "{{metadata: {{namespace: ns}}, spec: {{affinity: {{{kind}: {{preferredDuringSchedulingIgnoredDuringExecution: [{{weight: 5, podAffinityTerm: {{topologyKey: zone, labelSelector: {{matchLabels: {{app: web}}}}}}}}]}}}}}}}}"
        )
    };
    assert_eq!(scores("InterPodAffinity", &settings, ZONES, &pod("podAffinity")), Some(vec![100, 100, 0, 0]));
    assert_eq!(scores("InterPodAffinity", &settings, ZONES, &pod("podAntiAffinity")), Some(vec![0, 0, 100, 100]));
    assert_eq!(scores("InterPodAffinity", &settings, ZONES, "{metadata: {namespace: ns}}"), None);
}

const DISKS: &str = "{nodes: [{metadata: {name: a, labels: {topology.kubernetes.io/zone: a}}}, {metadata: {name: b, labels: {topology.kubernetes.io/zone: b}}}],
  classes: [{metadata: {name: late}, provisioner: csi, volumeBindingMode: WaitForFirstConsumer, allowedTopologies: [{matchLabelExpressions: [{key: topology.kubernetes.io/zone, values: [b]}]}]},
    {metadata: {name: local}, provisioner: kubernetes.io/no-provisioner, volumeBindingMode: WaitForFirstConsumer}, {metadata: {name: now}, volumeBindingMode: Immediate}],
  volumes: [{metadata: {name: va, labels: {topology.kubernetes.io/zone: a}}, spec: {csi: {driver: csi, volumeHandle: h}, nodeAffinity: {required: {nodeSelectorTerms: [{matchExpressions: [{key: topology.kubernetes.io/zone, operator: In, values: [a]}]}]}}}},
    {metadata: {name: free}, spec: {storageClassName: local, capacity: {storage: 5Gi}, accessModes: [ReadWriteOnce], nodeAffinity: {required: {nodeSelectorTerms: [{matchExpressions: [{key: topology.kubernetes.io/zone, operator: In, values: [b]}]}]}}}, status: {phase: Available}}],
  claims: [{metadata: {name: bound, annotations: {pv.kubernetes.io/bind-completed: 'yes'}}, spec: {volumeName: va}},
    {metadata: {name: lost, annotations: {pv.kubernetes.io/bind-completed: 'yes'}}, spec: {volumeName: gone}},
    {metadata: {name: late}, spec: {storageClassName: late}}, {metadata: {name: local}, spec: {storageClassName: local, accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}},
    {metadata: {name: large}, spec: {storageClassName: local, accessModes: [ReadWriteOnce], resources: {requests: {storage: 9Gi}}}},
    {metadata: {name: now}, spec: {storageClassName: now}}, {metadata: {name: once}, spec: {accessModes: [ReadWriteOncePod], storageClassName: late}}],
  csiNodes: [{metadata: {name: a}, spec: {drivers: [{name: csi, allocatable: {count: 1}}]}}],
  pods: [{metadata: {name: user}, spec: {nodeName: a, volumes: [{persistentVolumeClaim: {claimName: once}}, {awsElasticBlockStore: {volumeID: e}}, {gcePersistentDisk: {pdName: g, readOnly: true}}]}}]}";

#[test]
fn volumes_restrict_nodes() {
    let claim = |name: &str| format!("{{persistentVolumeClaim: {{claimName: {name}}}}}");
    let (far, none) = (
        "!node(s) didn't match PersistentVolume's node affinity",
        "!node(s) didn't find available persistent volumes to bind",
    );
    let gone = "!node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)";
    let unbound = "!pod has unbound immediate PersistentVolumeClaims";
    let used = "node has pod using PersistentVolumeClaim with the same name and ReadWriteOncePod access mode";
    let cases = [
        ("VolumeBinding", claim("bound"), ["", far]),
        ("VolumeBinding", claim("lost"), [gone, gone]),
        ("VolumeBinding", claim("late"), [none, ""]),
        ("VolumeBinding", claim("local"), [none, ""]),
        ("VolumeBinding", claim("large"), [none, none]),
        ("VolumeBinding", claim("now"), [unbound, unbound]),
        ("VolumeBinding", claim("missing"), ["!persistentvolumeclaim \"missing\" not found"; 2]),
        (
            "VolumeBinding",
            "{name: v, ephemeral: {}}".into(),
            ["!waiting for ephemeral volume controller to create the persistentvolumeclaim \"p-v\""; 2],
        ),
        ("VolumeZone", claim("bound"), ["", "!node(s) had no available volume zone"]),
        ("VolumeZone", claim("late"), ["", ""]),
        ("VolumeRestrictions", claim("once"), [used, used]),
        ("VolumeRestrictions", "{awsElasticBlockStore: {volumeID: e}}".into(), ["node(s) had no available disk", ""]),
        ("VolumeRestrictions", "{gcePersistentDisk: {pdName: g, readOnly: true}}".into(), ["", ""]),
        ("VolumeRestrictions", "{gcePersistentDisk: {pdName: g}}".into(), ["node(s) had no available disk", ""]),
        ("NodeVolumeLimits", claim("bound"), ["node(s) exceed max volume count", ""]),
        ("NodeVolumeLimits", claim("once"), ["", ""]),
    ];
    for (plugin, volume, want) in cases {
        let pod = format!("{{metadata: {{name: p}}, spec: {{volumes: [{volume}]}}}}");
        assert_eq!(says(plugin, DISKS, &pod), want, "{plugin} {volume}");
    }
}

#[test]
fn preemption_spares_important_and_needless_victims() {
    let text = "{nodes: [{metadata: {name: a}, status: {allocatable: {cpu: 3, pods: 9}}}], pods: [
      {metadata: {name: low, namespace: ns}, spec: {nodeName: a, containers: [{resources: {requests: {cpu: 1}}}]}},
      {metadata: {name: mid, namespace: ns}, spec: {nodeName: a, priority: 5, containers: [{resources: {requests: {cpu: 1}}}]}},
      {metadata: {name: top, namespace: ns}, spec: {nodeName: a, priority: 9, containers: [{resources: {requests: {cpu: 1}}}]}}]}";
    let (world, settings) = (world(text), Settings::default());
    let pod = yaml(
        "{metadata: {name: new, namespace: ns}, spec: {priority: 9, containers: [{resources: {requests: {cpu: 1}}}]}}",
    );
    let keys = |names: &[&str]| names.iter().map(|name| format!("ns/{name}")).collect::<Vec<_>>();
    assert_eq!(find_wrong_victims(&world, &pod, &keys(&["low", "top"])), ["ns/top"]);
    let needless = |names: &[&str]| find_needless_victims(&world, &settings, &pod, "a", &keys(names));
    assert!(needless(&["low"]).is_empty());
    assert_eq!(needless(&["low", "mid"]), ["ns/low", "ns/mid"]);
    assert!(needless(&[]).is_empty());
}

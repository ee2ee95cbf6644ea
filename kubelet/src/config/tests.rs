use super::*;

const HEAD: &str = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n";

fn parsed(text: &str, flags: &Overlay) -> Result<Settings, String> {
    let tree = api::yaml::decode(format!("{HEAD}{text}").as_bytes()).expect("yaml");
    read(&tree, flags).map_err(|errors| errors.join("\n"))
}

fn config(text: &str) -> Config {
    parsed(text, &Overlay::default()).expect("a configuration").config
}

#[test]
fn shows_the_defaults() {
    let shown = parsed("", &Overlay::default()).expect("a configuration").shown;
    let again = read(&shown, &Overlay::default()).expect("what is shown can be read");
    assert_eq!(format!("{:?}", again.config), format!("{:?}", Config::default()));
}

#[test]
fn fields_are_sorted() {
    let paths: Vec<&str> = fields::FIELDS.iter().map(|field| field.path).collect();
    assert!(paths.is_sorted(), "{paths:?}");
}

/// The configuration that kubeadm writes.
const KUBEADM: &str = "
authentication:
  anonymous: {enabled: false}
  webhook: {cacheTTL: 0s, enabled: true}
  x509: {clientCAFile: /etc/kubernetes/pki/ca.crt}
authorization:
  mode: Webhook
  webhook: {cacheAuthorizedTTL: 0s, cacheUnauthorizedTTL: 0s}
cgroupDriver: systemd
clusterDNS: [10.96.0.10]
clusterDomain: cluster.local
containerRuntimeEndpoint: ''
cpuManagerReconcilePeriod: 0s
crashLoopBackOff: {}
evictionPressureTransitionPeriod: 0s
fileCheckFrequency: 0s
healthzBindAddress: 127.0.0.1
healthzPort: 10248
httpCheckFrequency: 0s
imageMaximumGCAge: 0s
imageMinimumGCAge: 0s
logging:
  flushFrequency: 0
  options:
    json: {infoBufferSize: '0'}
    text: {infoBufferSize: '0'}
  verbosity: 0
memorySwap: {}
nodeStatusReportFrequency: 0s
nodeStatusUpdateFrequency: 0s
rotateCertificates: true
runtimeRequestTimeout: 0s
shutdownGracePeriod: 0s
shutdownGracePeriodCriticalPods: 0s
staticPodPath: /etc/kubernetes/manifests
streamingConnectionIdleTimeout: 0s
syncFrequency: 0s
volumeStatsAggPeriod: 0s
";

#[test]
fn reads_kubeadms_configuration() {
    let config = config(KUBEADM);
    assert_eq!(config.cgroup_driver, CgroupDriver::Systemd);
    assert_eq!(config.cluster_dns, [IpAddr::from([10, 96, 0, 10])]);
    assert_eq!(config.static_pod_path, Some("/etc/kubernetes/manifests".into()));
    assert_eq!(config.serving.client_ca_file, Some("/etc/kubernetes/pki/ca.crt".into()));
    assert!(config.certificates.rotate);
    assert_eq!(config.serving.authentication_ttl, Duration::from_secs(120), "zero is upstream's default");
    assert_eq!(config.node_status_report_frequency, Duration::from_secs(300));
}

#[test]
fn defaults_depend_on_other_fields() {
    let both = config("nodeStatusUpdateFrequency: 20s");
    assert_eq!(both.node_status_report_frequency, Duration::from_secs(20));
    let parallel = config("maxParallelImagePulls: 3");
    assert!(!parallel.image_pulls.serialize);
    assert_eq!(config("kubeAPIQPS: 0").requests.limit, None);
    let own = config(
        "evictionHard: {memory.available: 1Gi, nodefs.available: 0%}\nevictionMinimumReclaim: {memory.available: 5Mi}",
    );
    let signals = |config: &Config| config.eviction.hard().map(|one| one.signal.clone()).collect::<Vec<_>>().join(" ");
    assert_eq!(signals(&own), "memory.available", "others are off, and 0% is off too");
    assert!(own.eviction.thresholds[0].minimum_reclaim.is_some());
    let merged = config("evictionHard: {memory.available: 1Gi}\nmergeDefaultEvictionSettings: true");
    assert_eq!(merged.eviction.thresholds.len(), 5);
    let soft = config("evictionSoft: {memory.available: 2Gi}\nevictionSoftGracePeriod: {memory.available: 30s}");
    assert_eq!((soft.eviction.thresholds.len(), soft.eviction.hard().count()), (6, 5));
    let cores = config("reservedSystemCPUs: 0-2,5,5");
    assert_eq!(cores.allocatable.reserved_cpus.map(|cores| cores.to_string()).as_deref(), Some("0-2,5"));
}

#[test]
fn errors_name_their_field() {
    let cases = [
        ("maxPod: 1", "maxPod: unknown field"),
        ("authentication: {x509: {caFile: a}}", "authentication.x509.caFile: unknown field"),
        ("authentication: true", "authentication: must be an object"),
        ("maxPods: many", "maxPods: must be an integer"),
        ("maxPods: -1", "maxPods: -1 is out of range"),
        ("syncFrequency: 5", "syncFrequency: must be a duration such as 15s"),
        ("clusterDNS: [1.2.3.4, x]", "clusterDNS[1]: \"x\" is not an IP address"),
        ("kubeReserved: {gpu: '1'}", "kubeReserved: cannot reserve \"gpu\" resource"),
        ("kubeReserved: {cpu: x}", "kubeReserved[\"cpu\"]: \"x\""),
        ("evictionHard: {cpu.available: 1}", "evictionHard[\"cpu.available\"]: must be a string"),
        ("evictionHard: {cpu.available: '1'}", "evictionHard: unknown signal \"cpu.available\""),
        ("evictionSoft: {memory.available: 1Gi}", "grace period must be specified for the soft eviction threshold"),
        ("cpuManagerPolicy: dynamic", "cpuManagerPolicy: unknown policy: \"dynamic\""),
        ("cpuManagerPolicyOptions: {full-pcpus-only: 'true'}", "need cpuManagerPolicy (--cpu-manager-policy) static"),
        ("cpuManagerPolicyOptions: {x: 'true'}", "cpuManagerPolicyOptions: unknown CPU Manager Policy option: \"x\""),
        ("cpuManagerPolicyOptions: {align-by-socket: maybe}", "bad value for option \"align-by-socket\""),
        (
            "cpuManagerPolicyOptions: {full-pcpus-only: 'true', distribute-cpus-across-cores: 'true'}",
            "full-pcpus-only and distribute-cpus-across-cores can not be used at the same time",
        ),
        ("memoryManagerPolicy: static", "memoryManagerPolicy: unknown policy: \"static\""),
        ("reservedMemory: [{numaNode: 0, limits: {memory: 1Gi}}]", "needs memoryManagerPolicy"),
        ("reservedMemory: [{numaNode: 0, limits: {cpu: 1}}]", "reservedMemory[0]: [\"cpu\"]: must be a string"),
        ("reservedMemory: [{numaNode: 0, limits: {cpu: '1'}}]", "the limit type \"cpu\" for NUMA node 0"),
        ("reservedMemory: [{numaNode: 1, limits: {memory: '0'}}]", "may not be zero for NUMA node 1"),
        ("topologyManagerPolicy: strict", "topologyManagerPolicy: \"strict\" must be one of"),
        ("topologyManagerScope: node", "topologyManagerScope: \"node\" must be one of: \"container\", or \"pod\""),
        ("topologyManagerPolicyOptions: {max-allowable-numa-nodes: '4'}", "should not be less than 8, got 4"),
        (
            "cpuManagerPolicy: static\ncpuManagerPolicyOptions: {align-by-socket: 'true'}\n\
             topologyManagerPolicy: single-numa-node",
            "single-numa-node is incompatible with the option align-by-socket",
        ),
        ("tracing: {endpoint: x}", "tracing: nothing is traced"),
        ("featureGates: {Nonsense: true}", "featureGates: unrecognized feature gate: Nonsense"),
        ("featureGates: {TopologyManager: false}", "TopologyManager is on and cannot be changed"),
        ("imageGCLowThresholdPercent: 90", "imageGCLowThresholdPercent (--image-gc-low-threshold) 90 must be less"),
        ("enforceNodeAllocatable: [kube-reserved]", "kubeReservedCgroup (--kube-reserved-cgroup) must be specified"),
        (
            "enforceNodeAllocatable: [system-reserved-compressible]",
            "systemReservedCgroup (--system-reserved-cgroup) must",
        ),
        (
            "enforceNodeAllocatable: [kube-reserved, kube-reserved-compressible]\nkubeReservedCgroup: /k",
            "both \"kube-reserved\" and \"kube-reserved-compressible\" cannot be specified",
        ),
        ("allowedUnsafeSysctls: [vm.swappiness]", "allowedUnsafeSysctls: the sysctl \"vm.swappiness\" are not known"),
        ("containerRuntimeEndpoint: 'tcp://a'", "containerRuntimeEndpoint: \"tcp://a\": only unix sockets"),
        ("registerWithTaints: [{key: a, effect: Never}]", "registerWithTaints[0]: invalid taint effect: Never"),
        ("shutdownGracePeriod: 5s\nshutdownGracePeriodCriticalPods: 9s", "must be <= shutdownGracePeriod"),
        ("maxParallelImagePulls: 4\nserializeImagePulls: true", "maxParallelImagePulls: cannot be larger than 1"),
    ];
    for (text, want) in cases {
        let error = parsed(text, &Overlay::default()).expect_err(text);
        assert!(error.contains(want), "{text}: {error}");
    }
}

#[test]
fn flags_override_files_and_later_files_earlier_ones() {
    let dir = tempfile::tempdir().expect("a directory");
    let write = |name: &str, text: &str| {
        let path = dir.path().join(name);
        std::fs::create_dir_all(path.parent().expect("a directory")).expect("a directory");
        std::fs::write(&path, format!("{HEAD}{text}")).expect("a file");
        path
    };
    let file = write("config.yaml", "maxPods: 1\nport: 1001\nclusterDomain: a\nkubeReserved: {cpu: 1m, memory: 1Mi}");
    write("d/20.conf", "maxPods: 3\nkubeReserved: {cpu: 2m}");
    write("d/10.conf", "maxPods: 2\nclusterDomain: b");
    write("d/30.txt", "maxPods: 9");
    let mut flags = Overlay::default();
    flags.set("port", FlagType::Int, "1002").expect("a number");
    flags.set("evictionHard", FlagType::Thresholds, "memory.available<5%").expect("thresholds");
    flags.set("registerWithTaints", FlagType::Taints, "a=b:NoSchedule,c:NoExecute").expect("taints");
    flags.set("authentication.anonymous.enabled", FlagType::Bool, "true").expect("a boolean");
    let read = |flags: &Overlay| read_file(Some(&file), Some(&dir.path().join("d")), flags);
    let settings = read(&flags).expect("a configuration");
    let config = settings.config;
    assert_eq!((config.max_pods, config.port, config.cluster_domain.as_str()), (3, 1002, "b"));
    assert_eq!(config.allocatable.kube_reserved.len(), 2, "maps of files are merged");
    assert_eq!(config.eviction.thresholds.len(), 1);
    assert_eq!(config.register_with_taints[1].effect, "NoExecute");
    assert!(config.serving.anonymous);
    assert_eq!(settings.shown.int("port"), Some(1002));
    write("d/40.conf", "maxPods: x");
    let errors = read(&flags).expect_err("refused").join("\n");
    assert!(errors.contains("40.conf: maxPods: must be an integer"), "{errors}");
}

#[test]
fn parses_flags() {
    let read = |form: FlagType, text: &str| {
        let mut overlay = Overlay::default();
        overlay
            .set("a.b", form, text)
            .map(|()| String::from_utf8(api::json::encode(overlay.0.at("a.b"), None)).expect("text"))
    };
    let cases = [
        (FlagType::Text, "x", "\"x\""),
        (FlagType::Bool, "true", "true"),
        (FlagType::Int, "-5", "-5"),
        (FlagType::List, "a, b,", "[\"a\",\"b\"]"),
        (FlagType::Map, "cpu=1,memory=2Gi", "{\"cpu\":\"1\",\"memory\":\"2Gi\"}"),
        (FlagType::Gates, "A=true", "{\"A\":true}"),
        (
            FlagType::Memory,
            "1:memory=1Gi,hugepages-2Mi=4Mi;",
            "[{\"limits\":{\"hugepages-2Mi\":\"4Mi\",\"memory\":\"1Gi\"},\"numaNode\":1}]",
        ),
        (FlagType::Headers, "a:x,a:y", "{\"a\":[\"x\",\"y\"]}"),
    ];
    for (form, text, want) in cases {
        assert_eq!(read(form, text).as_deref(), Ok(want), "{text}");
    }
    for (form, text) in [
        (FlagType::Bool, "yes"),
        (FlagType::Int, "x"),
        (FlagType::Map, "cpu"),
        (FlagType::Taints, "a"),
        (FlagType::Memory, "x:memory=1"),
    ] {
        assert!(read(form, text).is_err(), "{text}");
    }
}

//! CRI configurations as tables.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use api::{Tree, list, tree, yaml};

use super::dns::{Cluster, Host, Resolver};
use super::resources::Limits;
use super::*;
use crate::model::env::{EnvFile, text};
use crate::model::resources::{Class, class};

const LIMITS: Limits = Limits {
    memory: 1 << 30,
    cfs_quota: true,
    cfs_period: Duration::from_millis(100),
    rules: super::memory::Rules {
        unified: false,
        counts_swap: false,
        swap: None,
        throttling: None,
        reserves: false,
        ends_whole: false,
        allocatable: 0,
    },
};

fn read(text: &str) -> Tree {
    yaml::decode(text.as_bytes()).expect("a pod")
}

#[test]
fn converts_resources_to_weights_quotas_and_scores() {
    let cases = [
        ("{}", (2, 0, 0, 1000)),
        ("{requests: {cpu: 500m}}", (512, 0, 0, 999)),
        ("{requests: {memory: 512Mi}}", (2, 0, 0, 500)),
        ("{limits: {cpu: '2', memory: 1Gi}, requests: {cpu: '2', memory: 1Gi}}", (2048, 200_000, 1 << 30, -997)),
        ("{limits: {cpu: 5m}, requests: {cpu: 5m}}", (5, 1000, 0, 999)),
        ("{limits: {cpu: '1'}}", (1024, 100_000, 0, 999)),
    ];
    for (text, expected) in cases {
        let spec = tree! { "name" => "a", "resources" => read(text) };
        let pod = tree! { "spec" => tree! { "containers" => list![spec.clone()] } };
        let made = resources::of_container(&pod, &spec, LIMITS);
        let seen = (made.cpu_shares, made.cpu_quota, made.memory_limit_in_bytes, made.oom_score_adj);
        assert_eq!(seen, expected, "{text}");
    }
}

#[test]
fn derives_the_qos_class_of_static_pods() {
    let cases = [
        ("{containers: [{name: a}]}", Class::BestEffort),
        ("{containers: [{name: a, resources: {requests: {cpu: 1}}}]}", Class::Burstable),
        (
            "{containers: [{name: a, resources: {limits: {cpu: 1, memory: 1}, requests: {cpu: 1, memory: 1}}}]}",
            Class::Guaranteed,
        ),
        (
            "{containers: [{name: a, resources: {limits: {cpu: 1, memory: 1}, requests: {cpu: 1, memory: 1}}}, {name: b}]}",
            Class::Burstable,
        ),
    ];
    for (text, expected) in cases {
        assert_eq!(class(&tree! { "spec" => read(text) }), expected, "{text}");
    }
}

#[test]
fn hostnames_fit_the_kernel() {
    let long = "x".repeat(70);
    let cases: [(&str, &str, &str); 4] = [
        ("metadata: {name: web, namespace: ns}", "web", ""),
        ("{metadata: {name: web, namespace: ns}, spec: {hostname: h, subdomain: s}}", "h", "s.ns.svc.cluster.local"),
        ("{metadata: {name: web, namespace: ns}, spec: {subdomain: s}}", "web", "s.ns.svc.cluster.local"),
        (&format!("metadata: {{name: {long}, namespace: ns}}"), &long[..63], ""),
    ];
    for (text, name, domain) in cases {
        assert_eq!(hostname::of(&read(text), "cluster.local"), (name.to_string(), domain.to_string()), "{text}");
    }
    let full = read("{metadata: {name: web, namespace: ns}, spec: {subdomain: s, setHostnameAsFQDN: true}}");
    assert_eq!(hostname::for_kernel(&full, "cluster.local").expect("a name"), "web.s.ns.svc.cluster.local");
    let named = read("{metadata: {name: web, namespace: ns}, spec: {subdomain: s, hostnameOverride: own.example}}");
    let hosts = hostname::hosts(&named, &["10.0.0.1".to_string()], "cluster.local");
    assert!(hosts.ends_with("\n10.0.0.1\town.example\n"), "{hosts}");
    let hosts = hostname::hosts(&full, &["10.0.0.1".to_string()], "cluster.local");
    assert!(hosts.ends_with("10.0.0.1\tweb.s.ns.svc.cluster.local\tweb\n"), "{hosts}");
}

#[test]
fn resolvers_follow_the_policy() {
    let host = Host::File(Resolver::parse("# a\nnameserver 192.0.2.1\nsearch example.com.\noptions timeout:1\n"));
    let servers = ["10.96.0.10".parse().expect("an address")];
    let cluster = Cluster { servers: &servers, domain: "cluster.local" };
    let with = |pod: &Tree, cluster: &Cluster<'_>, host: &Host| {
        let (made, warnings) = dns::pod_resolver(pod, cluster, host);
        format!("{}|{}|{}|{}", made.servers.join(" "), made.searches.join(" "), made.options.join(" "), warnings.len())
    };
    let show = |pod: &Tree, cluster: &Cluster<'_>| with(pod, cluster, &host);
    let cases = [
        (
            "{dnsPolicy: ClusterFirst}",
            "10.96.0.10|ns.svc.cluster.local svc.cluster.local cluster.local example.com|ndots:5|0",
        ),
        ("{dnsPolicy: Default}", "192.0.2.1|example.com|timeout:1|0"),
        ("{dnsPolicy: ClusterFirst, hostNetwork: true}", "192.0.2.1|example.com|timeout:1|0"),
        (
            "{dnsPolicy: None, dnsConfig: {nameservers: [1.1.1.1], searches: [a], options: [{name: ndots, value: '2'}, {name: edns0}]}}",
            "1.1.1.1|a|ndots:2 edns0|0",
        ),
        (
            "{dnsPolicy: Default, dnsConfig: {nameservers: [1.1.1.1, 2.2.2.2, 3.3.3.3]}}",
            "192.0.2.1 1.1.1.1 2.2.2.2|example.com|timeout:1|1",
        ),
    ];
    for (text, expected) in cases {
        let pod = tree! { "metadata" => tree! { "namespace" => "ns", "name" => "p" }, "spec" => read(text) };
        assert_eq!(show(&pod, &cluster), expected, "{text}");
    }
    let pod = tree! { "metadata" => tree! { "namespace" => "ns" }, "spec" => tree! {} };
    let without = Cluster { servers: &[], domain: "" };
    assert_eq!(show(&pod, &without), "192.0.2.1|example.com|timeout:1|1");
    assert_eq!(dns::pod_resolver(&pod, &without, &host).1, [dns::Warning::NoCluster]);
    // A node without a file: the machine's own file must not be used.
    let addresses = |list: &[&str]| list.iter().map(|address| address.parse().expect("an address")).collect();
    assert_eq!(with(&pod, &without, &Host::Nowhere(addresses(&["192.0.2.9", "fd00::9"]))), "127.0.0.1 ::1|.||1");
    assert_eq!(with(&pod, &without, &Host::Nowhere(Vec::new())), "127.0.0.1|.||1");
    let searches = "ns.svc.cluster.local svc.cluster.local cluster.local";
    assert_eq!(with(&pod, &cluster, &Host::Nowhere(Vec::new())), format!("10.96.0.10|{searches}|ndots:5|0"));
    assert_eq!(Resolver::parse("search . a. b\n").searches, [".", "a", "b"]);
}

#[test]
#[allow(clippy::too_many_lines)] // A table.
fn reads_variables_of_all_sources() {
    let spec = read(
        "
name: a
envFrom: [{prefix: P_, configMapRef: {name: c}}, {secretRef: {name: missing, optional: true}}]
env:
- {name: ONE, value: '1'}
- {name: TWO, value: '$(ONE) $(P_k) $(WEB_SERVICE_HOST) $(NONE) $$(ONE)'}
- {name: SECRET, valueFrom: {secretKeyRef: {name: s, key: k}}}
- {name: GONE, valueFrom: {secretKeyRef: {name: s, key: none, optional: true}}}
- {name: NAME, valueFrom: {fieldRef: {fieldPath: metadata.name}}}
- {name: LABEL, valueFrom: {fieldRef: {fieldPath: \"metadata.labels['x']\"}}}
- {name: IP, valueFrom: {fieldRef: {fieldPath: status.podIP}}}
- {name: NODE, valueFrom: {fieldRef: {fieldPath: spec.nodeName}}}
- {name: CPU, valueFrom: {resourceFieldRef: {resource: limits.cpu, divisor: 1m}}}
- {name: FILE, valueFrom: {fileKeyRef: {volumeName: v, path: vars, key: A}}}
- {name: NO_KEY, valueFrom: {fileKeyRef: {volumeName: v, path: vars, key: B, optional: true}}}
- {name: ONE, value: again}
resources: {limits: {cpu: 250m}}
",
    );
    let pod = tree! {
        "metadata" => tree! { "name" => "p", "namespace" => "ns", "labels" => tree! { "x" => "y" } },
        "spec" => tree! { "containers" => list![spec.clone()] },
    };
    let map = tree! { "data" => tree! { "k" => "v" } };
    let secret = tree! { "data" => tree! { "k" => "aGk=", "bytes" => "//5B" } };
    let service = Arc::new(read(
        "{metadata: {name: web, namespace: ns}, spec: {clusterIP: 10.96.0.3, ports: [{name: http, port: 80, protocol: TCP}]}}",
    ));
    let object = |resource: &str, name: &str| match (resource, name) {
        ("configmaps", "c") => Some(&map),
        ("secrets", "s") => Some(&secret),
        _ => None,
    };
    let file = |text: &str| Ok(EnvFile { path: "/k/v/vars".to_string(), text: text.to_string() });
    let nowhere = "cannot find the volume \"w\" referenced by FileKeyRef";
    let files = BTreeMap::from([
        (("v", "vars"), file("A='from a file'\n")),
        (("v", "wrong"), file("A=a")),
        (("w", "x"), Err(env::FileError::NoVolume("w".to_string()))),
    ]);
    let known = env::EnvSources {
        object: &object,
        files: &files,
        services: &[service],
        pod_ips: &["10.0.0.5".to_string()],
        host_ips: &["192.0.2.1".to_string()],
        node_name: "node",
        allocatable: &Tree::Null,
    };
    let made = env::build_env(&pod, &spec, &known).expect("variables");
    let own: Vec<String> = made.iter().take(10).map(|one| format!("{}={}", one.0, text(one))).collect();
    let expected = [
        "P_k=v",
        "ONE=again",
        "TWO=1 v 10.96.0.3 $(NONE) $(ONE)",
        "SECRET=hi",
        "NAME=p",
        "LABEL=y",
        "IP=10.0.0.5",
        "NODE=node",
        "CPU=250",
        "FILE=from a file",
    ];
    assert_eq!(own, expected);
    let services: Vec<&str> = made.iter().skip(10).map(|(name, _)| name.as_str()).collect();
    assert_eq!(
        services,
        [
            "WEB_PORT",
            "WEB_PORT_80_TCP",
            "WEB_PORT_80_TCP_ADDR",
            "WEB_PORT_80_TCP_PORT",
            "WEB_PORT_80_TCP_PROTO",
            "WEB_SERVICE_HOST",
            "WEB_SERVICE_PORT",
            "WEB_SERVICE_PORT_HTTP",
        ]
    );
    let bytes = read("{name: a, env: [{name: X, valueFrom: {secretKeyRef: {name: s, key: bytes}}}]}");
    assert_eq!(
        env::build_env(&pod, &bytes, &known).expect("variables")[0].1,
        [0xff, 0xfe, 0x41],
        "a secret need not be text"
    );
    let missing = read("{name: a, env: [{name: X, valueFrom: {configMapKeyRef: {name: c, key: z}}}]}");
    assert_eq!(
        env::build_env(&pod, &missing, &known).map_err(|error| error.to_string()),
        Err("couldn't find key z in ConfigMap ns/c".to_string())
    );
    let cases = [
        ("{volumeName: v, path: vars, key: B}", "environment variable key \"B\" not found in file \"/k/v/vars\""),
        ("{volumeName: v, path: wrong, key: A}", "couldn't parse env file"),
        ("{volumeName: w, path: x, key: A}", nowhere),
    ];
    for (reference, wanted) in cases {
        let spec = read(&format!("{{name: a, env: [{{name: X, valueFrom: {{fileKeyRef: {reference}}}}}]}}"));
        assert_eq!(
            env::build_env(&pod, &spec, &known).map_err(|error| error.to_string()),
            Err(wanted.to_string()),
            "{reference}"
        );
    }
}

#[test]
fn configures_commands_names_and_privileges() {
    let pod = read(
        "
metadata: {name: p, namespace: ns, uid: u}
spec:
  terminationGracePeriodSeconds: 7
  securityContext: {runAsUser: 5, fsGroup: 9, supplementalGroups: [3], seccompProfile: {type: RuntimeDefault}}
  containers:
  - name: a
    image: i
    command: ['$(X)', b]
    args: [c]
    lifecycle: {stopSignal: SIGUSR1}
    securityContext: {runAsUser: 6, allowPrivilegeEscalation: false, capabilities: {add: [NET_ADMIN], drop: [ALL]}}
",
    );
    let spec = &pod.list("spec.containers")[0];
    let made = container::config(
        &pod,
        spec,
        container::Inputs {
            restarts: 2,
            image: cri::ImageSpec::default(),
            env: &[("X".to_string(), b"run".to_vec())],
            mounts: Vec::new(),
            devices: Vec::new(),
            cdi_devices: Vec::new(),
            annotations: Vec::new(),
            limits: LIMITS,
            security: container::Security {
                target: "",
                users: None,
                volume_groups: &[],
                seccomp_root: "/s",
                seccomp_default: false,
            },
            cpuset: Default::default(),
        },
    );
    assert_eq!((made.command.join(" "), made.args.join(" ")), ("run b".to_string(), "c".to_string()));
    assert_eq!(made.log_path, "a/2.log");
    assert_eq!(made.labels["io.kubernetes.container.name"], "a");
    assert_eq!(made.annotations["io.kubernetes.pod.terminationGracePeriod"], "7");
    assert_eq!(made.annotations["io.kubernetes.container.restartCount"], "2");
    assert_eq!(container::signal_name(made.stop_signal).as_deref(), Some("SIGUSR1"));
    let rights = made.linux.and_then(|linux| linux.security_context).expect("rights");
    assert_eq!(rights.run_as_user.map(|user| user.value), Some(6));
    assert_eq!(rights.supplemental_groups, [9, 3]);
    assert!(rights.no_new_privs && rights.masked_paths.contains(&"/proc/kcore".to_string()));
    let seccomp = rights.seccomp.expect("a profile");
    assert_eq!(seccomp.profile_type(), cri::ProfileType::RuntimeDefault);
}

#[test]
fn configures_sandbox_ports_names_and_namespaces() {
    let pod = read(
        "
metadata: {name: p, namespace: ns, uid: u, labels: {app: web}}
spec:
  shareProcessNamespace: true
  containers: [{name: a, ports: [{containerPort: 80, hostPort: 8080, protocol: TCP}, {containerPort: 53, protocol: UDP}]}]
",
    );
    let resolver = Resolver::default();
    let given = |attempt| sandbox::Inputs {
        attempt,
        logs: Path::new("/var/log/pods"),
        hostname: "p".to_string(),
        resolver: &resolver,
        cgroup_parent: "/kubepods/besteffort/podu".to_string(),
        users: None,
        overhead: None,
        resources: None,
        volume_groups: &[],
    };
    let made = sandbox::config(&pod, given(1));
    assert_eq!((made.log_directory.as_str(), made.hostname.as_str()), ("/var/log/pods/ns_p_u", "p"));
    assert_eq!((made.labels["app"].as_str(), made.labels["io.kubernetes.pod.uid"].as_str()), ("web", "u"));
    let ports: Vec<_> = made.port_mappings.iter().map(|port| (port.container_port, port.host_port)).collect();
    assert_eq!(ports, [(80, 8080), (53, 0)]);
    let options = made.linux.and_then(|linux| linux.security_context).and_then(|rights| rights.namespace_options);
    let options = options.expect("namespaces");
    assert_eq!((options.pid(), options.network()), (cri::NamespaceMode::Pod, cri::NamespaceMode::Pod));
    let mut on_host = pod.clone();
    on_host.child("spec").set("hostNetwork", true);
    let sysctl = tree! { "name" => "net/ipv4/conf/eth0.1/forwarding", "value" => "1" };
    on_host.child("spec").set("securityContext", tree! { "sysctls" => list![sysctl] });
    let made = sandbox::config(&on_host, given(0));
    let names: Vec<String> = made.linux.clone().unwrap_or_default().sysctls.into_keys().collect();
    assert_eq!(names, ["net.ipv4.conf.eth0/1.forwarding"], "the one form that runtimes know");
    assert_eq!((made.hostname.as_str(), made.port_mappings.len()), ("", 0));
}

//! Usage, limits and host ports, as a client sees them.

use std::collections::BTreeSet;
use std::process::{Child, Command, Stdio};

use cri::{
    Code, LinuxContainerResources, ListMetricDescriptorsRequest, ListPodSandboxMetricsRequest,
    ListPodSandboxStatsRequest, PodSandboxStatsFilter, PodSandboxStatsRequest, PodSandboxStatusRequest, PortMapping,
    RuntimeService, StreamContainerStatsRequest, StreamContainersRequest, StreamPodSandboxMetricsRequest,
    StreamPodSandboxStatsRequest, StreamPodSandboxesRequest, UpdateContainerResourcesRequest,
    UpdatePodSandboxResourcesRequest,
};
use tokio_stream::StreamExt;

use crate::harness::{Node, container, options, secured, unified};

#[tokio::test]
async fn reports_usage_of_pods_and_containers() {
    let node = Node::start().await;
    node.network().await;
    let mut pod = node.networked_config("measured");
    pod.labels.insert("app".into(), "a".into());
    let sandbox = node.run_sandbox(&pod).await;
    let mut config = container("main", "exec sleep 1000");
    secured(&mut config).namespace_options = Some(options(cri::NamespaceMode::Pod, cri::NamespaceMode::Container));
    let id = node.run(&sandbox, config, &pod).await;
    let (code, text) = node.exec(&id, "ping -c 3 10.213.77.1").await;
    assert_eq!(code, 0, "{text}");

    let request = PodSandboxStatsRequest { pod_sandbox_id: sandbox.clone() };
    let stats = node.runtime.pod_sandbox_stats(request).await.unwrap().stats.unwrap();
    let linux = stats.linux.clone().unwrap();
    let eth0 = linux.network.unwrap().default_interface.unwrap();
    assert_eq!(eth0.name, "eth0");
    assert!(eth0.rx_bytes.unwrap().value > 0 && eth0.tx_bytes.unwrap().value > 0);
    assert!(linux.process.unwrap().process_count.unwrap().value >= 2, "the pause and the container");
    assert!(linux.memory.unwrap().usage_bytes.unwrap().value > 0);
    assert_eq!(linux.containers.len(), 1);
    assert_eq!(linux.containers[0].attributes.as_ref().unwrap().id, id);

    for (value, expected) in [("a", 1), ("b", 0)] {
        let label_selector = [("app".to_string(), value.to_string())].into();
        let filter = Some(PodSandboxStatsFilter { label_selector, ..Default::default() });
        let list = node.runtime.list_pod_sandbox_stats(ListPodSandboxStatsRequest { filter }).await.unwrap().stats;
        assert_eq!(list.len(), expected, "{value}");
    }
    node.end().await;
}

#[tokio::test]
async fn describes_metrics() {
    let node = Node::start().await;
    node.network().await;
    let pod = node.networked_config("metrics");
    let sandbox = node.run_sandbox(&pod).await;
    let id = node.run(&sandbox, container("main", "exec sleep 1000"), &pod).await;
    let described = node.runtime.list_metric_descriptors(ListMetricDescriptorsRequest {}).await.unwrap().descriptors;
    let names: BTreeSet<_> = described.iter().map(|d| d.name.as_str()).collect();
    let list = node.runtime.list_pod_sandbox_metrics(ListPodSandboxMetricsRequest {}).await.unwrap().pod_metrics;
    assert_eq!((list.len(), list[0].pod_sandbox_id.as_str()), (1, sandbox.as_str()));
    let container = &list[0].container_metrics[0];
    assert_eq!(container.container_id, id);
    for metric in list[0].metrics.iter().chain(&container.metrics) {
        assert!(names.contains(metric.name.as_str()), "{} is not described", metric.name);
    }
    let of = |name: &str| container.metrics.iter().find(|m| m.name == name).unwrap();
    let memory = of("container_memory_usage_bytes");
    assert!(memory.value.as_ref().unwrap().value > 0);
    assert_eq!(memory.label_values[3..], ["default", "metrics", "main"]);
    assert!(list[0].metrics.iter().any(|m| m.name == "container_network_receive_bytes_total"));
    node.end().await;
}

#[tokio::test]
async fn streams_lists() {
    let node = Node::start().await;
    let pod = node.sandbox_config("streams");
    let sandbox = node.run_sandbox(&pod).await;
    let id = node.run(&sandbox, container("main", "exec sleep 1000"), &pod).await;
    let runtime = &node.runtime;
    let pods = runtime.stream_pod_sandboxes(StreamPodSandboxesRequest::default()).await.unwrap();
    let pods: Vec<_> = pods.map(|m| m.unwrap().pod_sandboxes).collect::<Vec<_>>().await.concat();
    assert_eq!((pods.len(), pods[0].id.as_str()), (1, sandbox.as_str()));
    let list = runtime.stream_containers(StreamContainersRequest::default()).await.unwrap();
    let list: Vec<_> = list.map(|m| m.unwrap().containers).collect::<Vec<_>>().await.concat();
    assert_eq!((list.len(), list[0].id.as_str()), (1, id.as_str()));
    let list = runtime.stream_container_stats(StreamContainerStatsRequest::default()).await.unwrap();
    let list: Vec<_> = list.map(|m| m.unwrap().container_stats).collect::<Vec<_>>().await.concat();
    assert_eq!(list[0].attributes.as_ref().unwrap().id, id);
    let list = runtime.stream_pod_sandbox_stats(StreamPodSandboxStatsRequest::default()).await.unwrap();
    let list: Vec<_> = list.map(|m| m.unwrap().pod_sandbox_stats).collect::<Vec<_>>().await.concat();
    assert_eq!(list[0].attributes.as_ref().unwrap().id, sandbox);
    let list = runtime.stream_pod_sandbox_metrics(StreamPodSandboxMetricsRequest {}).await.unwrap();
    let list: Vec<_> = list.map(|m| m.unwrap().pod_sandbox_metrics).collect::<Vec<_>>().await.concat();
    assert_eq!(list[0].container_metrics[0].container_id, id);
    node.end().await;
}

#[tokio::test]
async fn updates_limits_in_the_kernel() {
    let node = Node::start().await;
    let pod = node.sandbox_config("changes");
    let sandbox = node.run_sandbox(&pod).await;
    let id = node.run(&sandbox, container("main", "exec sleep 1000"), &pod).await;
    let requested = LinuxContainerResources {
        cpu_shares: 1024,
        cpu_quota: 30_000,
        cpu_period: 100_000,
        cpuset_cpus: "0".into(),
        memory_limit_in_bytes: 48 << 20,
        ..Default::default()
    };
    let update = |container_id: &str| UpdateContainerResourcesRequest {
        container_id: container_id.into(),
        linux: Some(requested.clone()),
        ..Default::default()
    };
    node.runtime.update_container_resources(update(&id)).await.unwrap();
    let table = [
        ("memory", "memory.limit_in_bytes", "memory.max", "50331648", "50331648"),
        ("cpu", "cpu.shares", "cpu.weight", "1024", "39"),
        ("cpu", "cpu.cfs_quota_us", "cpu.max", "30000", "30000 100000"),
        ("cpuset", "cpuset.cpus", "cpuset.cpus", "0", "0"),
    ];
    for (controller, v1, v2, old, new) in table {
        assert_eq!(node.cgroup_file(&id, controller, v1, v2), if unified() { new } else { old }, "{v1}");
    }
    let error = node.runtime.update_container_resources(update("none")).await.unwrap_err();
    assert_eq!(error.code(), Code::NotFound);
    // The client changes the pod's cgroup by itself, and then reports it.
    let before = node.cgroup_file("", "memory", "memory.limit_in_bytes", "memory.max");
    let update = |id: &str| UpdatePodSandboxResourcesRequest {
        pod_sandbox_id: id.into(),
        resources: Some(requested.clone()),
        ..Default::default()
    };
    node.runtime.update_pod_sandbox_resources(update(&sandbox)).await.unwrap();
    assert_eq!(node.cgroup_file("", "memory", "memory.limit_in_bytes", "memory.max"), before);
    assert_eq!(node.runtime.update_pod_sandbox_resources(update("none")).await.unwrap_err().code(), Code::NotFound);
    node.end().await;
}

/// A simulated machine: a network namespace with a link to the test's own.
struct Neighbour(Child);

impl Neighbour {
    fn start() -> Neighbour {
        let child = Command::new("unshare").args(["--net", "sleep", "1000"]).stdin(Stdio::null()).spawn().unwrap();
        let neighbour = Neighbour(child);
        let pid = neighbour.0.id().to_string();
        let own = std::fs::read_link("/proc/thread-self/ns/net").unwrap();
        crate::harness::wait_for("its namespace", || {
            std::fs::read_link(format!("/proc/{pid}/ns/net")).is_ok_and(|link| link != own)
        });
        ip(&["link", "add", "cable0", "type", "veth", "peer", "name", "cable1", "netns", &pid]);
        ip(&["addr", "add", "192.0.2.1/24", "dev", "cable0"]);
        ip(&["link", "set", "cable0", "up"]);
        neighbour.run(&["ip", "addr", "add", "192.0.2.2/24", "dev", "cable1"]);
        neighbour.run(&["ip", "link", "set", "cable1", "up"]);
        neighbour
    }

    fn run(&self, command: &[&str]) -> String {
        let pid = self.0.id().to_string();
        let output = Command::new("nsenter").args(["--net", "--target", &pid]).args(command).output().unwrap();
        assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }
}

impl Drop for Neighbour {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn ip(arguments: &[&str]) {
    assert!(Command::new("ip").args(arguments).status().unwrap().success(), "ip {arguments:?}");
}

#[tokio::test]
async fn a_host_port_reaches_its_container() {
    let node = Node::start().await;
    node.network().await;
    let mut pod = node.networked_config("ports");
    pod.port_mappings = vec![PortMapping { host_port: 8085, container_port: 80, ..Default::default() }];
    let sandbox = node.run_sandbox(&pod).await;
    let mut config = container("main", "mkdir /www; echo hello > /www/page; exec httpd -f -p 80 -h /www");
    secured(&mut config).namespace_options = Some(options(cri::NamespaceMode::Pod, cri::NamespaceMode::Container));
    let id = node.run(&sandbox, config, &pod).await;
    crate::harness::wait_for("the server", || !node.processes().is_empty());
    let mut listening = false;
    for _ in 0..1000 {
        listening = node.exec(&id, "wget -qO- http://127.0.0.1/page").await.1 == "hello\n";
        if listening {
            break;
        }
    }
    assert!(listening, "the server does not answer in its own pod");
    let neighbour = Neighbour::start();
    let get = ["timeout", "20", "busybox", "wget", "-qO-", "http://192.0.2.1:8085/page"];
    assert_eq!(neighbour.run(&get), "hello\n");
    let status = PodSandboxStatusRequest { pod_sandbox_id: sandbox.clone(), verbose: false };
    let address = node.runtime.pod_sandbox_status(status).await.unwrap().status.unwrap().network.unwrap().ip;
    assert!(address.starts_with("10.213.77."), "{address}");
    node.remove_sandbox(&sandbox).await;
    let rules = Command::new("nft").args(["list", "ruleset"]).output().unwrap();
    assert!(!String::from_utf8_lossy(&rules.stdout).contains("8085"), "the port is left");
    ip(&["link", "del", "cable0"]);
    drop(neighbour);
    node.end().await;
}

//! Pods in networks of an administrator's configuration, with the built-in plugins and with Debian's; and leftovers.

use std::fs;
use std::net::{Ipv4Addr, TcpStream};
use std::path::PathBuf;
use std::process::Command;

use cri::{
    NamespaceMode, NetworkConfig, PodSandboxConfig, PodSandboxStatusRequest, RuntimeConfig, RuntimeService,
    StatusRequest, UpdateRuntimeConfigRequest,
};
use serde_json::{Value, json};

use crate::harness::{Node, container, leases, options, secured, wait_for};

/// A bridge with a gateway, masquerading, and addresses of the node's pod CIDR, as in many guides.
fn bridge(node: &Node) -> Value {
    json!({
        "cniVersion": "0.3.1", "name": "bridge", "type": "bridge", "bridge": "cnio0",
        "isGateway": true, "ipMasq": true,
        "ipam": {
            "type": "host-local", "ranges": [[{ "subnet": "10.200.1.0/24" }]],
            "routes": [{ "dst": "0.0.0.0/0" }], "dataDir": node.path("leases"),
        },
    })
}

async fn start(external: bool) -> Node {
    let mut node = Node::unstarted();
    node.build_images().await;
    if external {
        node.arguments = vec!["--cni-external-only".into()];
    }
    fs::write(node.path("net.d/10-bridge.conf"), bridge(&node).to_string()).unwrap();
    node.start_runtime(&[]).await;
    node
}

pub fn networked(node: &Node, name: &str) -> PodSandboxConfig {
    let mut pod = node.sandbox_config(name);
    let security = pod.linux.as_mut().unwrap().security_context.as_mut().unwrap();
    security.namespace_options = Some(options(NamespaceMode::Pod, NamespaceMode::Container));
    pod
}

pub async fn address(node: &Node, sandbox: &str) -> Ipv4Addr {
    let request = PodSandboxStatusRequest { pod_sandbox_id: sandbox.into(), verbose: false };
    let status = node.runtime.pod_sandbox_status(request).await.unwrap().status.unwrap();
    status.network.unwrap().ip.parse().unwrap()
}

/// A pod with an echo server on its port 8080.
async fn echo(node: &Node, name: &str) -> (String, String, Ipv4Addr) {
    let pod = networked(node, name);
    let sandbox = node.run_sandbox(&pod).await;
    let mut config = container("main", "exec nc -ll -p 8080 -e cat");
    secured(&mut config).namespace_options = Some(options(NamespaceMode::Pod, NamespaceMode::Container));
    let id = node.run(&sandbox, config, &pod).await;
    let ip = address(node, &sandbox).await;
    wait_for("the pod's port", || TcpStream::connect((ip, 8080)).is_ok());
    (sandbox, id, ip)
}

fn output(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output().unwrap();
    assert!(output.status.success(), "{program} {arguments:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

fn devices() -> usize {
    output("ip", &["-o", "link", "show", "master", "cnio0"]).lines().count()
}

async fn bridged(external: bool) {
    let node = start(external).await;
    let status = node.runtime.status(StatusRequest::default()).await.unwrap().status.unwrap();
    assert!(status.conditions.iter().all(|condition| condition.status), "{status:?}");
    let ((_, one, first), (other, _, second)) = (echo(&node, "one").await, echo(&node, "two").await);
    for ip in [first, second] {
        assert_eq!(ip.octets()[..3], [10, 200, 1], "{ip}");
    }
    assert_ne!(first, second);
    let (_, routes) = node.exec(&one, "ip route").await;
    assert!(routes.contains("default via 10.200.1.1 dev eth0"), "{routes}");
    let text = node.exec(&one, &format!("echo hello | nc -w 1 {second} 8080")).await;
    assert_eq!(text.1, "hello\n", "from pod to pod");
    assert!(output("ip", &["-4", "addr", "show", "cnio0"]).contains("10.200.1.1/24"));
    assert_eq!(devices(), 2);
    let rules = if external { output("iptables-save", &["-t", "nat"]) } else { output("nft", &["list", "ruleset"]) };
    assert!(rules.to_lowercase().contains("masquerade") && rules.contains(&first.to_string()), "{rules}");
    assert_eq!(leases(&node.path("leases")).len(), 2);

    node.remove_sandbox(&other).await;
    assert_eq!(leases(&node.path("leases")), [node.path(&format!("leases/bridge/{first}"))]);
    wait_for("the device to be gone", || devices() == 1);
    node.remove_all().await;
    assert_eq!(leases(&node.path("leases")), Vec::<PathBuf>::new());
    node.end().await;
}

#[tokio::test]
async fn a_bridge_with_debians_plugins() {
    bridged(true).await;
}

#[tokio::test]
async fn a_bridge_with_the_built_in_plugins() {
    bridged(false).await;
}

#[tokio::test]
async fn is_not_ready_without_a_configuration() {
    let mut node = start(true).await;
    fs::remove_file(node.path("net.d/10-bridge.conf")).unwrap();
    let status = node.runtime.status(StatusRequest::default()).await.unwrap().status.unwrap();
    let network = status.conditions.iter().find(|condition| condition.r#type == "NetworkReady").unwrap();
    assert!(!network.status && network.message.contains("no network config found"), "{network:?}");
    let request = cri::RunPodSandboxRequest { config: Some(networked(&node, "none")), ..Default::default() };
    let error = node.runtime.run_pod_sandbox(request).await.unwrap_err();
    assert!(error.message().contains("no network config found"), "{error}");
    node.kill_runtime();
    node.start_runtime(&[]).await;
    node.end().await;
}

/// Removes everything that a reboot removes: processes, cgroups, and the state directory.
fn reboot(node: &mut Node) {
    node.kill_runtime();
    for pid in node.processes() {
        let pid = rustix::process::Pid::from_raw(pid).unwrap();
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
    }
    wait_for("all processes to end", || node.processes().is_empty());
    for group in node.remove_cgroups() {
        fs::remove_dir(group).unwrap();
    }
    fs::remove_dir_all(node.path("state")).unwrap();
}

async fn forgotten(mut node: Node, directory: PathBuf) {
    let (kept, ..) = echo(&node, "kept").await;
    node.kill_runtime();
    node.start_runtime(&[]).await;
    assert_eq!(leases(&directory).len(), 1, "a pod that runs keeps its address");
    node.remove_sandbox(&kept).await;
    let (_, _, before) = echo(&node, "gone").await;
    reboot(&mut node);
    assert_eq!(leases(&directory).len(), 1, "{before}");
    node.start_runtime(&[]).await;
    assert_eq!(leases(&directory), Vec::<PathBuf>::new(), "{before}\n{}", node.log());
    let (sandbox, ..) = echo(&node, "new").await;
    assert_eq!(leases(&directory).len(), 1);
    node.remove_sandbox(&sandbox).await;
    node.end().await;
}

#[tokio::test]
async fn releases_addresses_of_pods_after_a_reboot() {
    let node = Node::start().await;
    let network_config = Some(NetworkConfig { pod_cidr: "10.213.79.0/24".into() });
    let runtime_config = Some(RuntimeConfig { network_config });
    node.runtime.update_runtime_config(UpdateRuntimeConfigRequest { runtime_config }).await.unwrap();
    let directory = node.path("root/network/networks");
    forgotten(node, directory).await;
}

/// Debian's plugins do not support GC: each pod is deleted.
#[tokio::test]
async fn releases_addresses_of_debians_plugins_after_a_reboot() {
    let node = start(true).await;
    let directory = node.path("leases");
    forgotten(node, directory).await;
}

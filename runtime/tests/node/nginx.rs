//! Debian's nginx in an image that the test builds: pushed to Debian's registry, pulled with a password, and requested
//! over its pod's address and over a host port.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::time::Duration;

use cri::{
    AuthConfig, Code, ContainerConfig, ImageService, ImageSpec, ImageStatusRequest, NamespaceMode, NetworkConfig,
    PortMapping, PullImageRequest, RuntimeConfig, RuntimeService, Status, UpdateRuntimeConfigRequest,
};
use runtime::images::{Config, Images, NoProgress};

use crate::debian::{Registry, user};
use crate::debian_nginx as nginx;
use crate::harness::{Node, container, layer, options, secured, text, wait_for};
use crate::network::{address, networked};

async fn publish(name: &str) {
    let directory = tempfile::tempdir().unwrap();
    let images = Images::open(directory.path(), Default::default()).unwrap();
    let config = Config { entrypoint: vec!["/usr/sbin/nginx".into()], ..Default::default() };
    let layers = vec![layer(), nginx::layer()];
    let id = images.build("maker.local/nginx:1", layers, config, &NoProgress).await.unwrap();
    images.push(&id, name, user()).await.unwrap();
}

fn spec(image: &str) -> Option<ImageSpec> {
    Some(ImageSpec { image: image.into(), ..Default::default() })
}

async fn pull(node: &Node, image: &str, password: &str) -> Result<String, Status> {
    let auth = AuthConfig { username: "user".into(), password: password.into(), ..Default::default() };
    let request = PullImageRequest { image: spec(image), auth: Some(auth), ..Default::default() };
    node.images.pull_image(request).await.map(|answer| answer.image_ref)
}

fn get(address: SocketAddr) -> String {
    let mut stream = TcpStream::connect_timeout(&address, Duration::from_secs(5)).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    stream.write_all(format!("GET / HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n").as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

#[tokio::test]
async fn nginx_responds_over_its_pod_and_a_host_port() {
    let node = Node::start().await;
    let registry = Registry::start().await;
    let name = registry.name("web/nginx:1.22");
    publish(&name).await;
    let network_config = Some(NetworkConfig { pod_cidr: "10.213.81.0/24".into() });
    let runtime_config = Some(RuntimeConfig { network_config });
    node.runtime.update_runtime_config(UpdateRuntimeConfigRequest { runtime_config }).await.unwrap();

    let error = pull(&node, &name, "wrong").await.unwrap_err();
    assert!(error.message().contains(&format!("{} denied access to web/nginx", registry.address)), "{error}");
    assert!(error.message().contains("password"), "{error}");
    let error = pull(&node, &registry.name("web/nginx:none"), "secret").await.unwrap_err();
    assert_eq!(error.code(), Code::NotFound, "{error}");

    let id = pull(&node, &name, "secret").await.unwrap();
    let status = ImageStatusRequest { image: spec(&name), verbose: false };
    let image = node.images.image_status(status).await.unwrap().image.unwrap();
    let digest = image.repo_digests[0].clone();
    assert_eq!(pull(&node, &digest, "secret").await.unwrap(), id);

    for (number, image) in [name, digest].iter().enumerate() {
        let mut pod = networked(&node, &format!("web-{number}"));
        let host_port = 18080 + number as i32;
        pod.port_mappings = vec![PortMapping { container_port: 80, host_port, ..Default::default() }];
        let sandbox = node.run_sandbox(&pod).await;
        let mut config = ContainerConfig { image: spec(image), command: Vec::new(), ..container("nginx", "") };
        secured(&mut config).namespace_options = Some(options(NamespaceMode::Pod, NamespaceMode::Container));
        let id = node.run(&sandbox, config, &pod).await;
        let ip = address(&node, &sandbox).await;
        let log = node.status(&id).await.log_path;
        wait_for("nginx to listen", || TcpStream::connect((ip, 80)).is_ok() || panic_if_ended(&log));
        let host = "127.0.0.1".parse().unwrap();
        for address in [SocketAddr::new(ip.into(), 80), SocketAddr::new(host, host_port as u16)] {
            let answer = get(address);
            assert!(answer.starts_with("HTTP/1.1 200 OK") && answer.contains("Server: nginx/1.22"), "{answer}");
            assert!(answer.ends_with(&format!("nginx in web-{number} for {address}\n")), "{answer}");
        }
        wait_for("both requests in the log", || text(Path::new(&log)).matches("\"GET / HTTP/1.1\" 200").count() == 2);
        node.remove_sandbox(&sandbox).await;
        assert!(TcpStream::connect((host, host_port as u16)).is_err(), "the port goes with the pod");
    }
    node.end().await;
}

/// If nginx reports a fatal error, waiting is pointless.
fn panic_if_ended(log: &str) -> bool {
    let logged = text(Path::new(log));
    assert!(!logged.contains("[emerg]"), "{logged}");
    false
}

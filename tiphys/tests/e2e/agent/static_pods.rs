//! The control plane as static pods of the binary's own image: the kubelet starts without an API server.

use std::fs;
use std::path::Path;
use std::process::Command;

use super::case::{Case, condition, container};
use super::cluster::{ANY_DISK, Cluster, ENTER, NODE, Runtime, cgroup_of};

/// The files of the kubelet of a control plane's first machine, before there is an API server: a CA, and its
/// certificate.
const CERTIFICATES: &str = "set -e; mkdir -p data/pki; cd data/pki; \
    openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 3650 -subj /CN=kubernetes-ca \
      -addext basicConstraints=critical,CA:TRUE -addext keyUsage=critical,keyCertSign,digitalSignature \
      -keyout ca.key -out ca.crt; \
    openssl req -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -subj /O=system:nodes/CN=system:node:node \
      -addext extendedKeyUsage=clientAuth -keyout node.key -out node.csr; \
    openssl x509 -req -in node.csr -CA ca.crt -CAkey ca.key -CAcreateserial -copy_extensions copyall -days 365 -out node.crt; chmod 600 ca.key";

fn manifest(component: &str, data: &Path, flags: &[&str]) -> String {
    let command: Vec<String> = ["/tiphys", component].iter().chain(flags).map(|word| format!("{word:?}")).collect();
    format!(
        "apiVersion: v1\nkind: Pod\nmetadata: {{name: {component}, namespace: kube-system, labels: {{component: {component}, tier: control-plane}}}}\n\
         spec:\n  hostNetwork: true\n  priorityClassName: system-node-critical\n  containers:\n  - name: {component}\n    \
         image: tiphys.local/hello\n    command: [{}]\n    volumeMounts: [{{name: data, mountPath: /data}}]\n  \
         volumes: [{{name: data, hostPath: {{path: {data:?}, type: Directory}}}}]\n",
        command.join(", ")
    )
}

fn prepare(dir: &Path) {
    let made = Command::new("sh").args(["-c", CERTIFICATES]).current_dir(dir).output().expect("a shell");
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let data = dir.join("data");
    let kubeconfig = format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: c\nclusters: [{{name: k, cluster: {{server: 'https://127.0.0.1:6443', \
         certificate-authority: {0}/pki/ca.crt}}}}]\ncontexts: [{{name: c, context: {{cluster: k, user: u}}}}]\n\
         users: [{{name: u, user: {{client-certificate: {0}/pki/node.crt, client-key: {0}/pki/node.key}}}}]\n",
        data.display()
    );
    fs::write(dir.join("kubelet.conf"), kubeconfig).expect("a file");
    fs::create_dir(dir.join("manifests")).expect("a directory");
    let write = |component: &str, flags: &[&str]| {
        fs::write(dir.join(format!("manifests/{component}.yaml")), manifest(component, &data, flags)).expect("a file");
    };
    write(
        "kube-apiserver",
        &[
            "--data-dir=/data",
            "--secure-port=6443",
            "--authorization-mode=Node,RBAC",
            "--enable-admission-plugins=NodeRestriction",
            "--kubelet-preferred-address-types=InternalIP",
        ],
    );
    write(
        "kube-controller-manager",
        &[
            "--kubeconfig=/data/kubeconfig",
            "--cluster-signing-cert-file=/data/pki/ca.crt",
            "--cluster-signing-key-file=/data/pki/ca.key",
            "--root-ca-file=/data/pki/ca.crt",
            "--allocate-node-cidrs=true",
            "--cluster-cidr=10.88.0.0/16",
        ],
    );
    write("kube-scheduler", &["--kubeconfig=/data/kubeconfig"]);
}

#[test]
fn the_control_plane_comes_up_as_static_pods() {
    let dir = tempfile::tempdir().expect("a directory");
    prepare(dir.path());
    let config = format!(
        "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\nfailSwapOn: false\ncgroupRoot: {}\n\
         staticPodPath: {1}/manifests\nauthentication: {{x509: {{clientCAFile: {1}/data/pki/ca.crt}}}}\n{ANY_DISK}",
        cgroup_of(&dir),
        dir.path().display()
    );
    fs::write(dir.path().join("config.yaml"), config).expect("a file");
    let words = [
        "kubelet",
        "--kubeconfig=kubelet.conf",
        "--config=config.yaml",
        "--hostname-override=node",
        "--root-dir=kubelet",
    ];
    let script = format!("{ENTER} && mkdir -p /var/lib/tiphys node && mount --bind node /var/lib/tiphys");
    let cluster = Cluster::run(dir, Runtime::Embedded, &script, &words.map(str::to_string));
    cluster.enter();
    let all = Case::of_cluster(&cluster);
    let node = || all.read("/api/v1/nodes/node");
    all.until_or("a ready node", node, |node| condition(node, "Ready") == "True", || cluster.log());
    for component in ["kube-apiserver", "kube-controller-manager", "kube-scheduler"] {
        let path = format!("/api/v1/namespaces/kube-system/pods/{component}-{NODE}");
        let is_ready = |pod: &api::Tree| condition(pod, "Ready") == "True";
        let pod = all.until_or(component, || all.read(&path), is_ready, || cluster.log());
        assert!(pod.at("metadata.annotations").has("kubernetes.io/config.mirror"), "{component}");
        assert_eq!(pod.list("metadata.ownerReferences")[0].str("kind"), "Node");
        assert!(container(&pod, component).str("image").starts_with("tiphys.local/hello"), "{component}");
    }
    // This is a whole cluster: controllers create pods, the scheduler binds them, the kubelet runs them.
    all.kubectl(&["create", "deployment", "web", "--image=tiphys.local/hello"]);
    all.kubectl(&["rollout", "status", "deployment", "web", "--timeout=90s"]);
    assert!(all.kubectl(&["logs", "-n", "kube-system", "kube-scheduler-node", "--tail=1"]).len() > 1);
    // A mirror pod is only a copy: a deleted one is created again.
    let path = "/api/v1/namespaces/kube-system/pods/kube-scheduler-node";
    let before = all.read(path).str("metadata.uid").to_string();
    all.kubectl(&["delete", "pod", "-n", "kube-system", "kube-scheduler-node", "--wait=false"]);
    let is_another = |pod: &api::Tree| !pod.is_null() && pod.str("metadata.uid") != before;
    all.until("another mirror", || all.read(path), is_another);
    // Removing a manifest removes its pod.
    fs::remove_file(cluster.dir.path().join("manifests/kube-scheduler.yaml")).expect("it is there");
    all.until("the end of the scheduler", || all.read(path), api::Tree::is_null);
}

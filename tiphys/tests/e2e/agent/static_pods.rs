//! The control plane as static pods of the binary's own image: the kubelet starts without an API server.

use std::fs;
use std::path::Path;
use std::process::Command;

use super::case::{Case, condition, container};
use super::cluster::{ANY_DISK, Cluster, ENTER, NODE, Runtime, cgroup_of};

/// The files of a control plane's first machine, before there is an API server: a CA, and a client certificate of the
/// kubelet, the controllers and the scheduler, each in a directory of its own.
const CERTIFICATES: &str = "set -e; mkdir -p data/pki; cd data/pki; \
    openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 3650 -subj /CN=kubernetes-ca \
      -addext basicConstraints=critical,CA:TRUE -addext keyUsage=critical,keyCertSign,digitalSignature \
      -keyout ca.key -out ca.crt; \
    issue() { mkdir -p ../../$1; openssl req -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -subj $2 \
      -addext extendedKeyUsage=clientAuth -keyout ../../$1/client.key -out $1.csr; \
    openssl x509 -req -in $1.csr -CA ca.crt -CAkey ca.key -CAcreateserial -copy_extensions copyall -days 365 \
      -out ../../$1/client.crt; cp ca.crt ../../$1; rm $1.csr; }; \
    issue kubelet-credentials /O=system:nodes/CN=system:node:node; \
    issue kube-controller-manager /CN=system:kube-controller-manager; issue kube-scheduler /CN=system:kube-scheduler; chmod 600 ca.key";

/// The pod of a component, which mounts these files and directories of the machine and no others.
fn manifest(component: &str, mounted: &[(&Path, &str)], flags: &[&str]) -> String {
    let command: Vec<String> = ["/tiphys", component].iter().chain(flags).map(|word| format!("{word:?}")).collect();
    let (mut mounts, mut volumes) = (Vec::new(), Vec::new());
    for (number, (path, inside)) in mounted.iter().enumerate() {
        let is_written = *inside == "/data";
        mounts.push(format!("{{name: v{number}, mountPath: {inside}, readOnly: {}}}", !is_written));
        volumes.push(format!("{{name: v{number}, hostPath: {{path: {path:?}}}}}"));
    }
    format!(
        "apiVersion: v1\nkind: Pod\nmetadata: {{name: {component}, namespace: kube-system, labels: {{component: {component}, tier: control-plane}}}}\n\
         spec:\n  hostNetwork: true\n  priorityClassName: system-node-critical\n  containers:\n  - name: {component}\n    \
         image: tiphys.local/hello\n    command: [{}]\n    volumeMounts: [{}]\n  volumes: [{}]\n",
        command.join(", "),
        mounts.join(", "),
        volumes.join(", ")
    )
}

/// A kubeconfig for the certificate in a directory.
fn kubeconfig(dir: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: c\nclusters: [{{name: k, cluster: {{server: 'https://127.0.0.1:6443', \
         certificate-authority: {dir}/ca.crt}}}}]\ncontexts: [{{name: c, context: {{cluster: k, user: u}}}}]\n\
         users: [{{name: u, user: {{client-certificate: {dir}/client.crt, client-key: {dir}/client.key}}}}]\n"
    )
}

fn prepare(dir: &Path) {
    let made = Command::new("sh").args(["-c", CERTIFICATES]).current_dir(dir).output().expect("a shell");
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let own = dir.join("kubelet-credentials").display().to_string();
    fs::write(dir.join("kubelet.conf"), kubeconfig(&own)).expect("a file");
    fs::create_dir(dir.join("manifests")).expect("a directory");
    let write = |component: &str, mounted: &[(&Path, &str)], flags: &[&str]| {
        let text = manifest(component, mounted, flags);
        fs::write(dir.join(format!("manifests/{component}.yaml")), text).expect("a file");
    };
    write(
        "kube-apiserver",
        &[(&dir.join("data"), "/data")],
        &[
            "--data-dir=/data",
            "--secure-port=6443",
            "--authorization-mode=Node,RBAC",
            "--enable-admission-plugins=NodeRestriction",
            "--kubelet-preferred-address-types=InternalIP",
        ],
    );
    let (manager, scheduler) = (dir.join("kube-controller-manager"), dir.join("kube-scheduler"));
    for credentials in [&manager, &scheduler] {
        fs::write(credentials.join("kubeconfig"), kubeconfig("/credentials")).expect("a file");
    }
    let (ca, key) = (dir.join("data/pki/ca.crt"), dir.join("data/pki/ca.key"));
    write(
        "kube-controller-manager",
        &[(&manager, "/credentials"), (&ca, "/ca/ca.crt"), (&key, "/ca/ca.key")],
        &[
            "--kubeconfig=/credentials/kubeconfig",
            "--use-service-account-credentials=true",
            "--cluster-signing-cert-file=/ca/ca.crt",
            "--cluster-signing-key-file=/ca/ca.key",
            "--root-ca-file=/ca/ca.crt",
            "--allocate-node-cidrs=true",
            "--cluster-cidr=10.88.0.0/16",
        ],
    );
    write("kube-scheduler", &[(&scheduler, "/credentials")], &["--kubeconfig=/credentials/kubeconfig"]);
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
    // Each acts as the user of its certificate, which has the rights of docs/operations/components.md and no more.
    for (component, user) in
        [("kube-controller-manager", "system:kube-controller-manager"), ("kube-scheduler", "system:kube-scheduler")]
    {
        let lease = all.read(&format!("/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/{component}"));
        assert!(!lease.str("spec.holderIdentity").is_empty(), "{component} leads");
        let refused = all.refused(&["create", "clusterrole", "own", "--verb=get", "--resource=pods", "--as", user]);
        assert!(refused.contains(&format!("User \"{user}\" cannot create resource \"clusterroles\"")), "{refused}");
    }
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

//! A DNS that users deploy themselves, as charts of CoreDNS do: a Deployment behind the Service `kube-dns`, in place of the
//! node's own.

use super::case::{Case, condition};
use super::cluster::{Cluster, IMAGE, Runtime};
use super::services::{addresses_of, client, machine_volumes};
use crate::support::BINARY;

const ADDRESS: &str = "10.96.0.10";

const MANIFEST: &str = "apiVersion: v1
kind: ServiceAccount
metadata: {name: coredns, namespace: kube-system}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: 'system:coredns'}
rules:
- {apiGroups: [''], resources: [endpoints, services, pods, namespaces], verbs: [list, watch]}
- {apiGroups: [discovery.k8s.io], resources: [endpointslices], verbs: [list, watch]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: 'system:coredns'}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: 'system:coredns'}
subjects: [{kind: ServiceAccount, name: coredns, namespace: kube-system}]
---
apiVersion: v1
kind: ConfigMap
metadata: {name: coredns, namespace: kube-system}
data:
  Corefile: |
    .:53 {
        errors
        health
        ready
        kubernetes cluster.local in-addr.arpa ip6.arpa {
           pods insecure
           fallthrough in-addr.arpa ip6.arpa
           ttl 30
        }
        hosts {
           192.0.2.77 of.the.corefile
           fallthrough
        }
        cache 30
        reload
    }
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: coredns, namespace: kube-system, labels: {k8s-app: kube-dns}}
spec:
  replicas: 2
  selector: {matchLabels: {k8s-app: kube-dns}}
  template:
    metadata: {labels: {k8s-app: kube-dns}}
    spec:
      serviceAccountName: coredns
      dnsPolicy: Default
      terminationGracePeriodSeconds: 1
      containers:
      - name: coredns
        image: IMAGE
        command: [/tiphys/tiphys, dns, -conf, /etc/coredns/Corefile]
        ports: [{name: dns, containerPort: 53, protocol: UDP}, {name: dns-tcp, containerPort: 53, protocol: TCP}]
        readinessProbe: {httpGet: {path: /ready, port: 8181}, periodSeconds: 1}
        livenessProbe: {httpGet: {path: /health, port: 8080}}
        volumeMounts: [MOUNTS, {name: config, mountPath: /etc/coredns}]
      volumes: [VOLUMES, {name: config, configMap: {name: coredns}}]
---
apiVersion: v1
kind: Service
metadata: {name: kube-dns, namespace: kube-system, labels: {k8s-app: kube-dns}}
spec:
  selector: {k8s-app: kube-dns}
  clusterIP: 10.96.0.10
  ports:
  - {name: dns, port: 53, protocol: UDP}
  - {name: dns-tcp, port: 53, protocol: TCP}
";

#[test]
fn a_deployed_dns_serves_pods() {
    let cluster = Cluster::up_with(Runtime::Embedded, &["--disable", "dns"]);
    let all = Case::of_cluster(&cluster);
    all.until("a ready node", || all.read("/api/v1/nodes/node"), |node| condition(node, "Ready") == "True");
    let directory = std::path::Path::new(BINARY).parent().expect("a directory");
    let (volumes, mounts) = machine_volumes(&[(directory.to_str().expect("text"), "/tiphys")]);
    let manifest = MANIFEST.replace("IMAGE", IMAGE).replace("VOLUMES", &volumes).replace("MOUNTS", &mounts);
    let case = Case::new(&cluster, "names");
    let file = case.file("dns", &manifest);
    all.kubectl(&["apply", "--namespace=kube-system", "-f", &file]);
    all.kubectl(&["rollout", "status", "deployment/coredns", "--namespace=kube-system", "--timeout=60s"]);
    client(&case, "client");
    let expected = [ADDRESS.to_string()].into();
    case.until("a service", || addresses_of(&case, "kube-dns.kube-system"), |seen| *seen == expected);
    let expected = ["192.0.2.77".to_string()].into();
    case.until("a host of the Corefile", || addresses_of(&case, "of.the.corefile"), |seen| *seen == expected);
    // By TCP too.
    let shown = case.exec("client", "cat /etc/resolv.conf");
    assert!(shown.contains(&format!("nameserver {ADDRESS}")), "{shown}");
    let by_tcp = case.exec("client", "RES_OPTIONS=use-vc /usr/bin/getent hosts kube-dns.kube-system");
    assert!(by_tcp.contains(ADDRESS), "{by_tcp}");
}

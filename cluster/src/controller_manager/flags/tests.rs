use super::*;
use crate::flags::testing;

/// The flags of kubeadm's static pod.
const KUBEADM: &[&str] = &[
    "--allocate-node-cidrs=true",
    "--authentication-kubeconfig=/etc/kubernetes/controller-manager.conf",
    "--authorization-kubeconfig=/etc/kubernetes/controller-manager.conf",
    "--bind-address=127.0.0.1",
    "--client-ca-file=/etc/kubernetes/pki/ca.crt",
    "--cluster-cidr=10.244.0.0/16",
    "--cluster-name=kubernetes",
    "--cluster-signing-cert-file=/etc/kubernetes/pki/ca.crt",
    "--cluster-signing-key-file=/etc/kubernetes/pki/ca.key",
    "--controllers=*,bootstrapsigner,tokencleaner",
    "--kubeconfig=/etc/kubernetes/controller-manager.conf",
    "--leader-elect=true",
    "--requestheader-client-ca-file=/etc/kubernetes/pki/front-proxy-ca.crt",
    "--root-ca-file=/etc/kubernetes/pki/ca.crt",
    "--service-account-private-key-file=/etc/kubernetes/pki/sa.key",
    "--service-cluster-ip-range=10.96.0.0/12",
    "--use-service-account-credentials=true",
];

fn read(arguments: &[&str]) -> std::result::Result<Flags, String> {
    testing::read(parse, arguments)
}

#[test]
fn accepts_the_flags_of_kubeadm() {
    let flags = read(KUBEADM).expect("flags");
    assert!(flags.options.allocate_node_cidrs && flags.common.leader_elect && flags.use_service_account_credentials);
    assert_eq!(flags.options.cluster_cidr, ["10.244.0.0/16"]);
    assert_eq!(flags.controllers.len(), 3);
    assert_eq!(flags.signing.key, Some("/etc/kubernetes/pki/ca.key".into()));
}

#[test]
fn accepts_upstream_defaults() {
    let flags = read(&[
        "--feature-gates=AllAlpha=false,JobManagedBy=true",
        "--cert-dir=/certs",
        "--kube-api-content-type=application/vnd.kubernetes.protobuf",
        "--kube-api-qps=50",
        "--kube-api-burst=100",
        "--min-resync-period=1h",
        "--profiling=false",
        "--controller-start-interval=0s",
    ]);
    let flags = flags.expect("flags");
    assert_eq!((flags.common.kube_api_qps, flags.common.kube_api_burst), (Some(50.0), 100));
    assert_eq!(flags.options.min_resync_period.as_secs(), 3600);
    assert_eq!(read(&["--kube-api-qps=-1"]).expect("flags").common.kube_api_qps, None);
}

#[test]
fn rejects_other_flags_by_name() {
    let cases = [
        ("--no-such-flag=1", "unknown flag: --no-such-flag"),
        ("--controllers=nonsense", "invalid flag --controllers: unknown controller \"nonsense\""),
        ("--concurrent-gc-syncs=0", "invalid flag --concurrent-gc-syncs: it must be at least 1"),
        ("--cloud-provider=aws", "invalid flag --cloud-provider: no cloud provider is built in"),
        ("--cloud-config=x", "invalid flag --cloud-config"),
        ("--feature-gates=X=true", "invalid flag --feature-gates: unrecognized feature gate: X"),
        ("--profiling", "invalid flag --profiling: profiling is not supported"),
        ("--kube-api-content-type=text/x", "invalid flag --kube-api-content-type: unknown content type"),
        ("--kube-api-qps=0", "invalid flag --kube-api-qps: it must not be 0"),
        ("--node-monitor-grace-period=5", "invalid flag --node-monitor-grace-period: invalid duration"),
        ("--node-monitor-period=9s", "invalid flag --node-monitor-period: controllers do not poll"),
    ];
    testing::check_refused(parse, &cases);
}

#[test]
fn flag_table_is_sorted_and_printed() {
    testing::check_sorted(PARTS);
    let mut all: Vec<&str> = PARTS.iter().copied().flatten().map(|flag| flag.name).collect();
    let count = all.len();
    all.sort_unstable();
    all.dedup();
    assert_eq!(all.len(), count, "each is there once");
    assert!(help().contains("--use-service-account-credentials"));
}

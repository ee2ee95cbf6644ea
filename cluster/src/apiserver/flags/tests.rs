use super::*;
use crate::error::Error;

/// The flags of kubeadm's static pod.
const KUBEADM: &[&str] = &[
    "--advertise-address=10.0.0.1",
    "--allow-privileged=true",
    "--authorization-mode=Node,RBAC",
    "--client-ca-file=/etc/kubernetes/pki/ca.crt",
    "--enable-admission-plugins=NodeRestriction",
    "--enable-bootstrap-token-auth=true",
    "--etcd-cafile=/etc/kubernetes/pki/etcd/ca.crt",
    "--etcd-certfile=/etc/kubernetes/pki/apiserver-etcd-client.crt",
    "--etcd-keyfile=/etc/kubernetes/pki/apiserver-etcd-client.key",
    "--etcd-servers=https://127.0.0.1:2379",
    "--kubelet-client-certificate=/etc/kubernetes/pki/apiserver-kubelet-client.crt",
    "--kubelet-client-key=/etc/kubernetes/pki/apiserver-kubelet-client.key",
    "--kubelet-preferred-address-types=InternalIP,ExternalIP,Hostname",
    "--proxy-client-cert-file=/etc/kubernetes/pki/front-proxy-client.crt",
    "--proxy-client-key-file=/etc/kubernetes/pki/front-proxy-client.key",
    "--requestheader-allowed-names=front-proxy-client",
    "--requestheader-client-ca-file=/etc/kubernetes/pki/front-proxy-ca.crt",
    "--requestheader-extra-headers-prefix=X-Remote-Extra-",
    "--requestheader-group-headers=X-Remote-Group",
    "--requestheader-username-headers=X-Remote-User",
    "--secure-port=6443",
    "--service-account-issuer=https://kubernetes.default.svc.cluster.local",
    "--service-account-key-file=/etc/kubernetes/pki/sa.pub",
    "--service-account-signing-key-file=/etc/kubernetes/pki/sa.key",
    "--service-cluster-ip-range=10.96.0.0/12",
    "--tls-cert-file=/etc/kubernetes/pki/apiserver.crt",
    "--tls-private-key-file=/etc/kubernetes/pki/apiserver.key",
];

fn read(arguments: &[&str]) -> std::result::Result<Flags, Vec<String>> {
    let arguments: Vec<String> = arguments.iter().map(ToString::to_string).collect();
    match parse(&arguments) {
        Ok(flags) => Ok(flags),
        Err(Error::Flags(errors)) => Err(errors),
        Err(other) => panic!("{other}"),
    }
}

#[test]
fn accepts_or_rejects_every_flag_of_kubeadm() {
    let errors = read(KUBEADM).err().unwrap_or_default();
    for argument in KUBEADM {
        let name = argument.split('=').next().expect("a name");
        assert!(!errors.iter().any(|error| *error == format!("unknown flag: {name}")), "{name} is in no table");
        let alone = read(&[argument]).err().unwrap_or_default();
        assert!(alone.iter().all(|error| error.starts_with(name)), "{alone:?}");
        assert!(alone.iter().all(|error| errors.contains(error)), "{errors:?}");
    }
}

#[test]
fn rejects_unsupported_flags() {
    let cases = [
        ("--authorization-mode=Node,Magic", "invalid flag --authorization-mode: \"Magic\" is not a valid mode"),
        ("--authorization-mode=RBAC,RBAC", "invalid flag --authorization-mode: \"RBAC\" is named twice"),
        ("--authorization-webhook-version=v2", "invalid flag --authorization-webhook-version: unknown version \"v2\""),
        ("--allow-privileged=false", "invalid flag --allow-privileged: privileged"),
        ("--tls-min-version=VersionTLS11", "invalid flag --tls-min-version: VersionTLS11 is insecure"),
        ("--tls-cipher-suites=TLS_X", "invalid flag --tls-cipher-suites: unknown cipher suite \"TLS_X\""),
        ("--cors-allowed-origins=a", "invalid flag --cors-allowed-origins: \"a\" does not anchor"),
        ("--strict-transport-security-directives=x", "invalid flag --strict-transport-security-directives: "),
        ("--oidc-required-claim=x", "invalid flag --oidc-required-claim: \"x\" is not of the form claim=value"),
        ("--kubelet-timeout=x", "invalid flag --kubelet-timeout: "),
        (
            "--kubelet-preferred-address-types=InternalIP,Nick",
            "invalid flag --kubelet-preferred-address-types: unknown address type \"Nick\"",
        ),
        ("--audit-log-mode=later", "invalid flag --audit-log-mode: unknown mode \"later\""),
        ("--audit-webhook-version=audit.k8s.io/v1beta1", "invalid flag --audit-webhook-version: "),
        ("--service-account-issuer=", "invalid flag --service-account-issuer: it must not be empty"),
        ("--secure-port=0", "invalid flag --secure-port: it cannot"),
        ("--secure-port=x", "invalid flag --secure-port: invalid value \"x\""),
        ("--service-cluster-ip-range=x", "invalid flag --service-cluster-ip-range: invalid CIDR"),
        ("--feature-gates=AllAlpha=true", "invalid flag --feature-gates: feature gate AllAlpha is off"),
        ("--runtime-config=apps/v1=false", "invalid flag --runtime-config: apps/v1 is served here"),
        ("--service-account-lookup=false", "invalid flag --service-account-lookup: the service account of a token"),
        ("--storage-media-type=application/cbor", "invalid flag --storage-media-type: objects are stored as"),
        (
            "--endpoint-reconciler-type=master-count",
            "invalid flag --endpoint-reconciler-type: unknown type \"master-count\"",
        ),
        ("--no-such-flag=1", "unknown flag: --no-such-flag"),
        ("--data-dir", "--data-dir needs a value"),
        ("word", "unknown argument \"word\""),
    ];
    for (argument, want) in cases {
        let errors = read(&[argument]).err().unwrap_or_default();
        assert!(errors.iter().any(|error| error.starts_with(want)), "{argument}: {errors:?}");
    }
    assert_eq!(read(&["--a=1", "--b=2"]).err().map(|errors| errors.len()), Some(2));
}

#[test]
fn accepts_supported_flags() {
    let arguments = [
        "--advertise-address=10.0.0.1",
        "--allow-privileged",
        "--authorization-mode=AlwaysDeny",
        "--enable-admission-plugins=AlwaysPullImages,AlwaysAdmit",
        "--enable-admission-plugins=AlwaysDeny",
        "--disable-admission-plugins=LimitRanger",
        "--enable-bootstrap-token-auth",
        "--anonymous-auth=false",
        "--cert-dir=/certs",
        "--endpoint-reconciler-type=none",
        "--feature-gates=AllAlpha=false,WatchList=true",
        "--runtime-config=apps/v1=true",
        "--service-account-lookup",
        "--storage-media-type=application/vnd.kubernetes.protobuf",
        "--etcd-compaction-interval=0",
        "--api-audiences=a,b",
        "--strict-transport-security-directives=max-age=7,preload",
        "--tls-min-version=VersionTLS13",
        "--data-dir",
        "/x",
        "--etcd-servers=http://a:1,http://b:2",
        "--etcd-prefix=cluster-1/",
        "--event-ttl=2h",
        "--logging-format=json",
        "--service-node-port-range=20000-20010",
        "--v=4",
    ];
    let flags = read(&arguments).unwrap_or_else(|errors| panic!("{errors:?}"));
    assert!(flags.authentication.bootstrap_tokens && flags.authentication.tls.only_tls13);
    assert_eq!(flags.authentication.anonymous, Some(false));
    assert_eq!(flags.authentication.api_audiences, ["a", "b"]);
    assert_eq!(flags.cert_dir, Some(PathBuf::from("/certs")));
    assert!(flags.stores_protobuf && !flags.config.publishes_endpoints);
    assert_eq!(flags.config.compaction_interval, Duration::ZERO);
    assert_eq!(flags.config.strict_transport_security, Some(http::HeaderValue::from_static("max-age=7; preload")));
    assert_eq!(flags.advertise_address, Some(IpAddr::from([10, 0, 0, 1])));
    assert_eq!(flags.data_dir, Some(PathBuf::from("/x")));
    assert_eq!(flags.etcd_servers, ["http://a:1", "http://b:2"]);
    assert_eq!(flags.enable_admission_plugins, ["AlwaysPullImages", "AlwaysAdmit", "AlwaysDeny"]);
    assert_eq!(flags.disable_admission_plugins, ["LimitRanger"]);
    assert_eq!(flags.etcd_prefix, "/cluster-1");
    assert_eq!(flags.config.event_ttl, Duration::from_secs(7200));
    assert_eq!(flags.config.node_ports, 20000..=20010);
    assert_eq!((flags.log_format, flags.log_level), (LogFormat::Json, Level::Debug));
}

#[test]
fn sets_the_flags_of_each_audit_backend() {
    use server::audit::Mode;
    let common = |name: &str| {
        let flag = |end: &str| format!("--audit-{name}-{end}");
        let ends = [
            "batch-buffer-size=7",
            "batch-max-size=3",
            "batch-max-wait=2s",
            "batch-throttle-burst=5",
            "batch-throttle-enable=true",
            "batch-throttle-qps=1.5",
            "mode=blocking-strict",
            "truncate-enabled",
            "truncate-max-batch-size=900",
            "truncate-max-event-size=800",
            "version=audit.k8s.io/v1",
        ];
        ends.map(flag).to_vec()
    };
    for (name, other) in [("log", "webhook"), ("webhook", "log")] {
        let arguments = common(name);
        let flags = read(&arguments.iter().map(String::as_str).collect::<Vec<_>>()).unwrap_or_else(|e| panic!("{e:?}"));
        let of = |name: &str| if name == "log" { &flags.audit.log } else { &flags.audit.webhook };
        let own = of(name);
        assert_eq!((own.batch.buffer, own.batch.max_size, own.batch.max_wait.as_secs()), (7, 3, 2));
        assert_eq!((own.batch.throttle, own.batch.qps, own.batch.burst), (true, 1.5, 5));
        assert_eq!(own.mode, Mode::BlockingStrict);
        assert_eq!((own.truncate.enabled, own.truncate.max_batch, own.truncate.max_event), (true, 900, 800));
        assert_eq!(of(other).batch.buffer, 10_000);
        assert_ne!(of(other).mode, Mode::BlockingStrict);
    }
}

#[test]
fn flag_table_is_sorted_without_duplicates() {
    assert!(PARTS.iter().all(|part| part.windows(2).all(|pair| pair[0].name < pair[1].name)));
    let mut names: Vec<&str> = PARTS.iter().copied().flatten().map(|flag| flag.name).collect();
    let count = names.len();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), count);
    let help = help();
    assert!(PARTS.iter().copied().flatten().all(|flag| help.contains(flag.name)));
}

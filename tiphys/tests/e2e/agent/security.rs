//! Security contexts: capabilities and users of containers.

use super::CaseFn;
use super::case::{Case, container};

pub const CASES: &[(&str, CaseFn)] = &[
    ("users and groups", users),
    ("capabilities are added and dropped", rights),
    ("kernel settings", sysctls),
    ("seccomp profiles", seccomp),
    ("a missing runtime class", runtime_class),
];

fn users(case: &Case) {
    let who = "id -u; id -g; touch /root-file 2>/dev/null && echo written || echo refused";
    assert_eq!(case.script("root", who, "", ""), "0\n0\nwritten");
    assert_eq!(case.script("other", who, "securityContext: {runAsUser: 33}", ""), "33\n34\nrefused");
    let pod = "securityContext: {runAsUser: 1000, runAsGroup: 1001, runAsNonRoot: true},";
    assert_eq!(case.script("pod", who, "", pod), "1000\n1001\nrefused");
    assert_eq!(
        case.script("override", who, "securityContext: {runAsUser: 0, runAsNonRoot: false}", pod),
        "0\n1001\nwritten"
    );
    assert_eq!(case.script("fixed", who, "securityContext: {readOnlyRootFilesystem: true}", ""), "0\n0\nrefused");
    let labelled = "securityContext: {seLinuxOptions: {level: 's0:c0,c1'}}";
    assert_eq!(case.script("labelled", "echo runs", labelled, ""), "runs", "with and without SELinux in the kernel");
    let status = container(&case.pods("pod"), "main").at("user.linux").clone();
    if !case.is_containerd() {
        assert_eq!((status.int("uid"), status.int("gid")), (Some(1000), Some(1001)), "{status:?}");
    }
}

fn rights(case: &Case) {
    let look =
        "grep -E '^(CapEff|NoNewPrivs|Seccomp):' /proc/self/status; chown 33 /tmp 2>/dev/null && echo chown || true";
    let shown = |name: &str, context: &str| {
        case.script(name, look, &format!("securityContext: {{{context}}}"), "").replace('\t', " ")
    };
    assert_eq!(shown("usual", ""), "CapEff: 00000000a80425fb\nNoNewPrivs: 0\nSeccomp: 0\nchown");
    assert_eq!(shown("none", "capabilities: {drop: [ALL]}"), "CapEff: 0000000000000000\nNoNewPrivs: 0\nSeccomp: 0");
    let more = shown("more", "capabilities: {drop: [ALL], add: [NET_ADMIN, SYS_TIME]}");
    assert!(more.starts_with("CapEff: 0000000002001000\n"), "{more}");
    assert!(shown("fixed", "allowPrivilegeEscalation: false").contains("NoNewPrivs: 1"));
    let all = shown("all", "privileged: true");
    assert!(!all.contains("CapEff: 00000000a80425fb"), "{all}");
    let filtered = shown("filtered", "seccompProfile: {type: RuntimeDefault}");
    assert!(filtered.contains("Seccomp: 2"), "{filtered}");
}

fn sysctls(case: &Case) {
    let safe = "securityContext: {sysctls: [{name: net.ipv4.ip_unprivileged_port_start, value: '80'}]},";
    assert_eq!(case.script("safe", "cat /proc/sys/net/ipv4/ip_unprivileged_port_start", "", safe), "80");
    if !case.is_containerd() {
        let none = "securityContext: {runAsUser: 1000, capabilities: {drop: [ALL]}}";
        let listen = "timeout 1 nc -l -p 443; [ $? -ne 1 ] && echo bound";
        let output = case.script("low", listen, none, "");
        assert!(output.ends_with("bound"), "a low port needs no capability: {output}");
    }
    case.pod(
        "unsafe",
        "securityContext: {sysctls: [{name: kernel.msgmax, value: '1000'}]}, containers: [{name: main, image: IMAGE}]",
    );
    let pod = case.until_pod("unsafe", "refusal", |pod| pod.str("status.phase") == "Failed");
    assert_eq!(pod.str("status.reason"), "SysctlForbidden");
    assert!(pod.str("status.message").contains("forbidden sysctl: \"kernel.msgmax\""), "{}", pod.str("status.message"));
    assert!(case.kubectl(&["get", "pod", "unsafe"]).contains("SysctlForbidden"));
}

fn seccomp(case: &Case) {
    let missing = "securityContext: {seccompProfile: {type: Localhost, localhostProfile: none.json}}";
    case.pod("missing", &format!("containers: [{{name: main, image: IMAGE, {missing}}}]"));
    case.until_pod("missing", "refusal", |pod| {
        let waiting = container(pod, "main").at("state.waiting").clone();
        waiting.str("reason") == "CreateContainerError" && waiting.str("message").contains("none.json")
    });
}

fn runtime_class(case: &Case) {
    let refused = case.refused(&["run", "odd", "--image=x", r#"--overrides={"spec":{"runtimeClassName":"none"}}"#]);
    assert!(refused.contains("RuntimeClass \"none\" not found"), "{refused}");
    let class = format!("of-{}", case.namespace);
    case.apply(&format!(
        "{{apiVersion: node.k8s.io/v1, kind: RuntimeClass, metadata: {{name: {class}}}, handler: missing}}"
    ));
    case.pod("odd", &format!("runtimeClassName: {class}, containers: [{{name: main, image: IMAGE}}]"));
    case.until_event("odd", "FailedCreatePodSandBox", "missing");
    assert_eq!(case.pods("odd").str("status.phase"), "Pending");
}

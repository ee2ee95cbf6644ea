//! Admission as tables.

use api::yaml;

use super::*;

fn read(text: &str) -> Tree {
    yaml::decode(text.as_bytes()).expect("an object")
}

fn node() -> Tree {
    read(
        "
metadata: {name: node, labels: {disk: ssd}}
spec: {taints: [{key: k, value: v, effect: NoExecute}, {key: soft, effect: NoSchedule}]}
status: {allocatable: {cpu: '2', memory: 1Gi, pods: '3', ephemeral-storage: 10Gi, example.com/gpu: '1'}}
",
    )
}

fn pod(uid: &str, spec: &str) -> Tree {
    let mut pod = read(&format!("{{metadata: {{name: p, namespace: default, uid: {uid}}}, spec: {spec}}}"));
    let tolerations = pod.child("spec").list_entry("tolerations");
    tolerations.push(read("{key: k, operator: Exists}"));
    pod
}

#[test]
fn rejects_pods_with_upstreams_reasons() {
    let there = pod(
        "a",
        "{containers: [{name: c, ports: [{containerPort: 1, hostPort: 80}], resources: {requests: {cpu: 1500m}}}]}",
    );
    let cases = [
        ("{containers: [{name: c}]}", ""),
        (
            "{containers: [{name: c, resources: {requests: {cpu: 600m}}}]}",
            "OutOfcpu: Node didn't have enough resource: cpu, requested: 600, used: 1500, capacity: 2000",
        ),
        (
            "{containers: [{name: c, resources: {requests: {memory: 2Gi}}}]}",
            "OutOfmemory: Node didn't have enough resource: memory, requested: 2147483648, used: 0, capacity: 1073741824",
        ),
        (
            "{containers: [{name: c, resources: {requests: {hugepages-2Mi: 4Mi}}}]}",
            "OutOfhugepages-2Mi: Node didn't have enough resource: hugepages-2Mi, requested: 4194304, used: 0, capacity: 0",
        ),
        (
            "{containers: [{name: c, resources: {requests: {example.com/gpu: '2'}}}]}",
            "OutOfexample.com/gpu: Node didn't have enough resource: example.com/gpu, requested: 2, used: 0, capacity: 1",
        ),
        // The plugin of these devices may come back.
        ("{containers: [{name: c, resources: {requests: {example.com/other: '2'}}}]}", ""),
        (
            "{nodeName: other, containers: []}",
            "NodeName: Predicate NodeName failed: node(s) didn't match the requested node name",
        ),
        (
            "{containers: [{name: c, ports: [{containerPort: 2, hostPort: 80}]}]}",
            "NodePorts: Predicate NodePorts failed: node(s) didn't have free ports for the requested pod ports",
        ),
        (
            "{nodeSelector: {disk: hdd}, containers: []}",
            "NodeAffinity: Predicate NodeAffinity failed: node(s) didn't match Pod's node affinity/selector",
        ),
        ("{nodeSelector: {disk: ssd}, containers: []}", ""),
        (
            "{os: {name: windows}, containers: []}",
            "PodOSNotSupported: Failed to admit pod as the OS field doesn't match node OS",
        ),
        (
            "{securityContext: {sysctls: [{name: kernel.msgmax, value: '1'}]}, containers: []}",
            "SysctlForbidden: forbidden sysctl: \"kernel.msgmax\" not allowlisted",
        ),
        (
            "{securityContext: {appArmorProfile: {type: RuntimeDefault}}, containers: [{name: c}]}",
            "AppArmor: Cannot enforce AppArmor: AppArmor is not enabled on the host",
        ),
        (
            "{securityContext: {appArmorProfile: {type: RuntimeDefault}}, containers: [{name: c, securityContext: {appArmorProfile: {type: Unconfined}}}]}",
            "",
        ),
        (
            "{securityContext: {supplementalGroupsPolicy: Strict}, containers: [{name: c}]}",
            "SupplementalGroupsPolicyNotSupported: SupplementalGroupsPolicy=Strict is not supported in this node",
        ),
        ("{securityContext: {sysctls: [{name: net.ipv4.tcp_syncookies, value: '1'}]}, containers: []}", ""),
        (
            "{hostNetwork: true, securityContext: {sysctls: [{name: net.ipv4.tcp_syncookies, value: '1'}]}, containers: []}",
            "SysctlForbidden: forbidden sysctl: \"net.ipv4.tcp_syncookies\" not allowed with host net enabled",
        ),
    ];
    for (spec, expected) in cases {
        let admission = Admission::default();
        admission.take(&there);
        let result = admission.admit(&pod("b", spec), &node(), &Rules::default());
        let seen = result.err().map_or(String::new(), |problem| format!("{}: {}", problem.reason, problem.message));
        assert_eq!(seen, expected, "{spec}");
    }
}

#[test]
fn admitted_pods_count_until_released() {
    let admission = Admission::default();
    let small = "{containers: [{name: c}]}";
    let admit =
        |uid: &str| admission.admit(&pod(uid, small), &node(), &Rules::default()).map(drop).map_err(|why| why.reason);
    assert_eq!((admit("a"), admit("b"), admit("c"), admit("d")), (Ok(()), Ok(()), Ok(()), Err("OutOfpods".into())));
    assert_eq!(admit("a"), Ok(()), "one that was taken is taken");
    admission.release("b");
    assert_eq!(admit("d"), Ok(()));
}

#[test]
fn rejects_pods_for_taints_and_pressure() {
    let admission = Admission::default();
    let plain = read("{metadata: {name: p, uid: u}, spec: {containers: [{name: c}]}}");
    let refused = admission.admit(&plain, &node(), &Rules::default()).expect_err("a taint");
    assert_eq!(refused.reason, "TaintToleration");
    let rules = Rules { pressure: vec!["MemoryPressure"], ..Rules::default() };
    let refused = admission.admit(&pod("b", "{containers: [{name: c}]}"), &node(), &rules).expect_err("pressure");
    assert_eq!((&*refused.reason, refused.message.as_str()), ("Evicted", "The node had condition: [MemoryPressure]. "));
    let burstable = pod("c", "{containers: [{name: c, resources: {requests: {cpu: 1m}}}]}");
    assert!(admission.admit(&burstable, &node(), &rules).is_ok());
    let critical = pod("d", "{priority: 2000000000, containers: [{name: c}]}");
    let rules = Rules { pressure: vec!["DiskPressure"], ..Rules::default() };
    assert!(admission.admit(&critical, &node(), &rules).is_ok());
    assert!(admission.admit(&burstable, &node(), &rules).is_err());
}

#[test]
fn critical_pods_preempt_other_pods() {
    let admission = Admission::default();
    let rules = Rules::default();
    let requests = |cpu: &str| format!("containers: [{{name: c, resources: {{requests: {{cpu: {cpu}}}}}}}]");
    for uid in ["a", "b"] {
        assert_eq!(
            admission.admit(&pod(uid, &format!("{{{}}}", requests("900m"))), &node(), &rules),
            Ok(Preemption::default())
        );
    }
    let critical =
        |uid: &str, cpu: &str, more: &str| pod(uid, &format!("{{priority: 2000000000, {more} {}}}", requests(cpu)));
    let refused = admission.admit(&critical("c", "5", ""), &node(), &rules).expect_err("too much");
    assert_eq!(refused.reason, "UnexpectedAdmissionError");
    assert!(refused.message.ends_with("reclaim resources: [(res: cpu, q: 3000), ]"), "{}", refused.message);
    let elsewhere = admission.admit(&critical("c", "1", "nodeName: other,"), &node(), &rules).expect_err("a name");
    assert_eq!(elsewhere.reason, "NodeName", "no pod is preempted for it");
    assert_eq!(
        admission.admit(&critical("c", "1", ""), &node(), &rules),
        Ok(Preemption { victims: vec!["a".to_string()], signal: "cpu".to_string() })
    );
    // A preempted pod counts until it is released, and so does the new one.
    assert!(admission.holds("a") && admission.holds("c"));
    assert!(admission.admit(&pod("d", &format!("{{{}}}", requests("100m"))), &node(), &rules).is_err());
    admission.release("a");
    assert!(admission.admit(&pod("d", &format!("{{{}}}", requests("100m"))), &node(), &rules).is_ok());
}

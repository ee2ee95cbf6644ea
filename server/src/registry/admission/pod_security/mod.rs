//! PodSecurity: a namespace's labels name the level that its pods must meet (enforce), and the violations to warn about
//! (warn). Pod templates are never rejected, only warned about.

mod baseline;
mod check;
mod config;
mod labels;
mod restricted;

use api::Tree;
use api::field::Errors;
use api::status::Status;

use super::setup::{FieldError, Source};
use super::{Attributes, Operation, Settings};
use check::{Pod, Violation};
use labels::{Level, Policies, Policy};

/// The maximum number of pods that are checked when the level of a namespace rises.
const MAX_PODS: usize = 3000;

pub(super) use config::Config;

pub(super) fn configure(settings: &mut Settings, source: &Source<'_>) -> Result<(), FieldError> {
    settings.pod_security = config::read(source)?;
    Ok(())
}

const ANNOTATIONS: &str = "pod-security.kubernetes.io";

pub(super) fn validate(
    attributes: &Attributes<'_>,
    object: Option<&Tree>,
    old: Option<&Tree>,
    warnings: &mut Vec<String>,
) -> Result<(), Status> {
    let Some(object) = object else { return Ok(()) };
    if attributes.is_kind("", "Namespace") && attributes.subresource.is_empty() {
        return validate_namespace(attributes, object, old, warnings);
    }
    let Some(template) = template(attributes, object) else { return Ok(()) };
    let config = &attributes.registry.admission.settings.pod_security;
    if let Some(why) = config.exempts(attributes.namespace, &attributes.user.name, template) {
        attributes.annotate(format!("{ANNOTATIONS}/exempt"), why);
        return Ok(());
    }
    let policies = namespace_policies(attributes);
    if policies.are_privileged() {
        return Ok(());
    }
    let is_pod = attributes.is_kind("", "Pod");
    if is_pod && old.is_some_and(|old| !is_significant(object, old)) {
        return Ok(());
    }
    if is_pod {
        attributes.annotate(format!("{ANNOTATIONS}/enforce-policy"), policies.enforce.to_string());
        let violations = evaluate(template, policies.enforce);
        if !violations.is_empty() {
            let text = describe(&violations);
            return Err(attributes.forbidden(format!("violates PodSecurity \"{}\": {text}", policies.enforce)));
        }
    }
    let audited = evaluate(template, policies.audit);
    if !audited.is_empty() {
        let text = format!("would violate PodSecurity \"{}\": {}", policies.audit, describe(&audited));
        attributes.annotate(format!("{ANNOTATIONS}/audit-violations"), text);
    }
    let violations = evaluate(template, policies.warn);
    if !violations.is_empty() {
        warnings.push(format!("would violate PodSecurity \"{}\": {}", policies.warn, describe(&violations)));
    }
    Ok(())
}

fn namespace_policies(attributes: &Attributes<'_>) -> Policies {
    let namespace = attributes.registry.storage.object("namespaces", attributes.namespace).unwrap_or_default();
    let defaults = attributes.registry.admission.settings.pod_security.defaults;
    Policies::read(namespace.map("metadata.labels"), defaults, &mut Errors::new())
}

/// The metadata and spec of a pod in an object; None for writes that need no check.
fn template<'a>(attributes: &Attributes<'_>, object: &'a Tree) -> Option<&'a Tree> {
    let kind = &attributes.resource.kind;
    let path = match (kind.group(), kind.kind(), attributes.subresource) {
        ("", "Pod", "" | "ephemeralcontainers" | "resize") => return Some(object),
        ("", "PodTemplate", "") => "template",
        ("", "ReplicationController", "") => "spec.template",
        ("apps", "ReplicaSet" | "Deployment" | "StatefulSet" | "DaemonSet", "") => "spec.template",
        ("batch", "Job", "") => "spec.template",
        ("batch", "CronJob", "") => "spec.jobTemplate.spec.template",
        _ => return None,
    };
    Some(object.at(path)).filter(|template| !template.is_null())
}

fn evaluate(template: &Tree, policy: Policy) -> Vec<Violation> {
    let pod =
        Pod { annotations: template.map("metadata.annotations"), spec: template.at("spec"), version: policy.version };
    match policy.level {
        Level::Privileged => Vec::new(),
        Level::Baseline => baseline::violations(&pod),
        Level::Restricted => restricted::violations(&pod),
    }
}

fn describe(violations: &[Violation]) -> String {
    let texts: Vec<String> = violations.iter().map(ToString::to_string).collect();
    texts.join(", ")
}

/// Whether an update changes a field that a check reads; other updates are not checked again.
fn is_significant(pod: &Tree, old: &Tree) -> bool {
    let watched = |pod: &Tree| {
        let mut map = pod.map("metadata.annotations").clone();
        map.retain(|key, _| key.contains("seccomp.security.alpha") || key.contains("apparmor.security.beta"));
        map
    };
    let essence = |pod: &Tree| {
        let mut spec = pod.at("spec").clone();
        spec.remove("tolerations");
        spec.remove("activeDeadlineSeconds");
        for list in ["containers", "initContainers"] {
            spec.list_mut(list).iter_mut().for_each(|container| drop(container.remove("image")));
        }
        spec
    };
    watched(pod) != watched(old) || essence(pod) != essence(old)
}

/// The labels themselves must be valid, and a raised level warns about the pods that violate it.
fn validate_namespace(
    attributes: &Attributes<'_>,
    namespace: &Tree,
    old: Option<&Tree>,
    warnings: &mut Vec<String>,
) -> Result<(), Status> {
    let mut errors = Errors::new();
    let defaults = attributes.registry.admission.settings.pod_security.defaults;
    let new_policies = Policies::read(namespace.map("metadata.labels"), defaults, &mut errors);
    let mut old_errors = Errors::new();
    let old_policies = old.map(|old| Policies::read(old.map("metadata.labels"), defaults, &mut old_errors));
    if !errors.is_empty() && !errors.iter().eq(old_errors.iter()) {
        let kind = &attributes.resource.kind;
        return Err(Status::invalid(kind.group(), kind.kind(), attributes.name, &errors));
    }
    if let Some(old) = old_policies
        && attributes.operation == Operation::Update
        && new_policies.enforce.is_stricter(old.enforce)
    {
        let pods = attributes.registry.storage.objects("pods", attributes.name);
        warnings.extend(judge_pods(attributes.name, &pods, new_policies.enforce));
    }
    Ok(())
}

/// One line for each set of violations, with the first pod that has it.
fn judge_pods(namespace: &str, pods: &[Tree], policy: Policy) -> Vec<String> {
    let mut found: Vec<(String, String, usize)> = Vec::new();
    for pod in pods.iter().take(MAX_PODS) {
        let reasons: Vec<String> = evaluate(pod, policy).into_iter().map(|violation| violation.reason).collect();
        if reasons.is_empty() {
            continue;
        }
        let reasons = reasons.join(", ");
        match found.iter_mut().find(|(_, other, _)| *other == reasons) {
            Some((_, _, others)) => *others += 1,
            None => found.push((pod.str("metadata.name").to_string(), reasons, 0)),
        }
    }
    if found.is_empty() {
        return Vec::new();
    }
    let mut lines = vec![format!(
        "existing pods in namespace {namespace:?} violate the new PodSecurity enforce level \"{policy}\""
    )];
    lines.extend(found.into_iter().map(|(pod, reasons, others)| match others {
        0 => format!("{pod}: {reasons}"),
        1 => format!("{pod} (and 1 other pod): {reasons}"),
        _ => format!("{pod} (and {others} other pods): {reasons}"),
    }));
    lines
}

#[cfg(test)]
mod tests {
    use super::super::tests::json;
    use super::*;

    fn check(level: Level, pod: &str, want: &str) {
        let policy = Policy { level, version: u32::MAX };
        assert_eq!(describe(&evaluate(&json(pod), policy)), want, "{pod}");
    }

    fn check_old(level: Level, version: u32, pod: &str, want: &str) {
        assert_eq!(describe(&evaluate(&json(pod), Policy { level, version })), want, "{pod}");
    }

    fn container(context: &str) -> String {
        format!(r#"{{"spec":{{"containers":[{{"name":"c","securityContext":{context}}}]}}}}"#)
    }

    #[test]
    fn baseline() {
        let ok = |pod: &str| check(Level::Baseline, pod, "");
        ok(r#"{"spec":{"containers":[{"name":"c"}]}}"#);
        ok(&container(
            r#"{"capabilities":{"add":["CHOWN"]},"procMount":"Default","seLinuxOptions":{"type":"container_t"}}"#,
        ));
        ok(r#"{"spec":{"securityContext":{"sysctls":[{"name":"net.ipv4.tcp_rmem"}]},"containers":[]}}"#);
        ok(r#"{"spec":{"hostUsers":false,"containers":[{"name":"c","securityContext":{"procMount":"Unmasked"}}]}}"#);
        let bad = |pod: &str, want: &str| check(Level::Baseline, pod, want);
        bad(
            r#"{"spec":{"hostPID":true,"hostIPC":true,"containers":[{"name":"c","securityContext":{"privileged":true,"capabilities":{"add":["SYS_TIME","NET_RAW"]}}}],
            "volumes":[{"name":"a","hostPath":{}},{"name":"b","hostPath":{}}]}}"#,
            "non-default capabilities (container \"c\" must not include \"NET_RAW\", \"SYS_TIME\" in securityContext.capabilities.add), host namespaces (hostPID=true, hostIPC=true), hostPath volumes (volumes \"a\", \"b\"), privileged (container \"c\" must not set securityContext.privileged=true)",
        );
        bad(
            r#"{"spec":{"containers":[{"name":"a","ports":[{"hostPort":80}]},{"name":"b","ports":[{"hostPort":81}]}]}}"#,
            "hostPort (containers \"a\", \"b\" use hostPorts 80, 81)",
        );
        bad(
            r#"{"spec":{"containers":[{"name":"c","livenessProbe":{"httpGet":{"host":"x"}}}]}}"#,
            "probe or lifecycle host (container \"c\" uses probe or lifecycle host \"x\")",
        );
        bad(
            &container(r#"{"procMount":"Unmasked"}"#),
            "procMount (container \"c\" must not set securityContext.procMount to \"Unmasked\")",
        );
        bad(
            r#"{"spec":{"securityContext":{"seLinuxOptions":{"type":"x","user":"u"}},"containers":[]}}"#,
            "seLinuxOptions (pod set forbidden securityContext.seLinuxOptions: type \"x\"; user may not be set)",
        );
        bad(
            r#"{"spec":{"securityContext":{"seccompProfile":{"type":"Unconfined"}},"containers":[]}}"#,
            "seccompProfile (pod must not set securityContext.seccompProfile.type to \"Unconfined\")",
        );
        bad(
            r#"{"metadata":{"annotations":{"container.apparmor.security.beta.kubernetes.io/c":"unconfined"}},"spec":{"containers":[]}}"#,
            "forbidden AppArmor profile (container.apparmor.security.beta.kubernetes.io/c=\"unconfined\")",
        );
        bad(
            r#"{"spec":{"securityContext":{"windowsOptions":{"hostProcess":true},"sysctls":[{"name":"kernel.msgmax"}]},"containers":[]}}"#,
            "forbidden sysctls (kernel.msgmax), hostProcess (pod must not set securityContext.windowsOptions.hostProcess=true)",
        );
    }

    #[test]
    fn restricted() {
        let good = r#"{"spec":{"securityContext":{"runAsNonRoot":true,"seccompProfile":{"type":"RuntimeDefault"}},
            "containers":[{"name":"c","securityContext":{"allowPrivilegeEscalation":false,"capabilities":{"drop":["ALL"]}}}]}}"#;
        check(Level::Restricted, good, "");
        check(
            Level::Restricted,
            r#"{"spec":{"containers":[{"name":"c","securityContext":{"capabilities":{"add":["SYS_ADMIN"]}}}],"volumes":[{"name":"v","hostPath":{}}]}}"#,
            "allowPrivilegeEscalation != false (container \"c\" must set securityContext.allowPrivilegeEscalation=false), unrestricted capabilities (container \"c\" must set securityContext.capabilities.drop=[\"ALL\"]; container \"c\" must not include \"SYS_ADMIN\" in securityContext.capabilities.add), restricted volume types (volume \"v\" uses restricted volume type \"hostPath\"), runAsNonRoot != true (pod or container \"c\" must set securityContext.runAsNonRoot=true), seccompProfile (pod or container \"c\" must set securityContext.seccompProfile.type to \"RuntimeDefault\" or \"Localhost\")",
        );
        let root = good.replace("\"runAsNonRoot\":true", "\"runAsNonRoot\":true,\"runAsUser\":0");
        check(Level::Restricted, &root, "runAsUser=0 (pod must not set runAsUser=0)");
    }

    #[test]
    fn older_versions_have_fewer_checks() {
        let host = r#"{"spec":{"containers":[{"name":"c","livenessProbe":{"httpGet":{"host":"x"}}}]}}"#;
        check_old(Level::Baseline, 33, host, "");
        let sysctl = r#"{"spec":{"securityContext":{"sysctls":[{"name":"net.ipv4.tcp_rmem"}]},"containers":[]}}"#;
        check_old(Level::Baseline, 31, sysctl, "forbidden sysctls (net.ipv4.tcp_rmem)");
    }

    #[test]
    fn only_significant_updates_are_judged() {
        let check = |old: &str, new: &str, want: bool| {
            assert_eq!(is_significant(&json(new), &json(old)), want, "{old} -> {new}");
        };
        check(r#"{"spec":{"containers":[{"image":"a"}]}}"#, r#"{"spec":{"containers":[{"image":"b"}]}}"#, false);
        check(r#"{"spec":{}}"#, r#"{"spec":{"tolerations":[{"key":"x"}]}}"#, false);
        check(r#"{"spec":{}}"#, r#"{"spec":{"ephemeralContainers":[{"name":"x"}]}}"#, true);
    }

    #[test]
    fn pods_of_a_namespace_are_grouped() {
        let pod = |name: &str| {
            json(&format!(r#"{{"metadata":{{"name":"{name}"}},"spec":{{"hostNetwork":true,"containers":[]}}}}"#))
        };
        let policy = Policy { level: Level::Baseline, version: u32::MAX };
        assert_eq!(
            judge_pods("n", &[pod("a"), pod("b"), pod("c")], policy),
            [
                "existing pods in namespace \"n\" violate the new PodSecurity enforce level \"baseline:latest\"",
                "a (and 2 other pods): host namespaces"
            ]
        );
    }
}

//! Windows options of a pod, and fields that are only valid on one operating system.

use api::Tree;
use api::field::{Errors, Path};

use crate::podspec::{check, for_each_container};

const MAX_CREDENTIAL_SPEC: usize = 64 * 1024;
const MAX_DOMAIN: usize = 256;
const MAX_USER: usize = 104;

pub(crate) fn validate_options(options: &Tree, path: &Path<'_>, errors: &mut Errors) {
    if let Some(name) = options.get("gmsaCredentialSpecName").and_then(Tree::as_str) {
        check::dns_subdomain(name, &path.field("gmsaCredentialSpecName"), errors);
    }
    if let Some(spec) = options.get("gmsaCredentialSpec").and_then(Tree::as_str) {
        let at = path.field("gmsaCredentialSpec");
        if spec.is_empty() {
            errors.invalid(&at, spec, "gmsaCredentialSpec cannot be an empty string");
        } else if spec.len() > MAX_CREDENTIAL_SPEC {
            errors.invalid(&at, spec, "gmsaCredentialSpec size must be under 64 KiB");
        }
    }
    if let Some(name) = options.get("runAsUserName").and_then(Tree::as_str) {
        for text in user_name_messages(name) {
            errors.invalid(&path.field("runAsUserName"), name, &text);
        }
    }
}

/// `domain\user` or `user`.
fn user_name_messages(name: &str) -> Vec<String> {
    if name.is_empty() {
        return vec!["runAsUserName cannot be an empty string".to_string()];
    }
    if name.chars().any(|c| c.is_ascii_control()) {
        return vec!["runAsUserName cannot contain control characters".to_string()];
    }
    let parts: Vec<&str> = name.split('\\').collect();
    let (domain, user) = match parts[..] {
        [user] => (None, user),
        [domain, user] => (Some(domain), user),
        _ => return vec!["runAsUserName cannot contain more than one backslash".to_string()],
    };
    let mut messages = Vec::new();
    if let Some(domain) = domain {
        domain_messages(domain, &mut messages);
    }
    if user.is_empty() {
        messages.push("runAsUserName's User cannot be empty".to_string());
    } else if user.len() > MAX_USER {
        messages.push(format!("runAsUserName's User length must not be longer than {MAX_USER} characters"));
    }
    if !user.is_empty() && user.chars().all(|c| matches!(c, '.' | ' ')) {
        messages.push("runAsUserName's User cannot contain only periods or spaces".to_string());
    }
    if user.contains(['"', '/', '\\', ':', ';', '|', '=', ',', '+', '*', '?', '<', '>', '@', '[', ']']) {
        let text = r#"runAsUserName's User cannot contain the following characters: "/\:;|=,+*?<>@[]"#;
        messages.push(text.to_string());
    }
    messages
}

fn domain_messages(domain: &str, messages: &mut Vec<String>) {
    if domain.len() >= MAX_DOMAIN {
        messages.push(format!("runAsUserName's Domain length must be under {MAX_DOMAIN} characters"));
    }
    if !is_net_bios(domain) && !is_dns(domain) {
        messages.push("runAsUserName's Domain doesn't match the NetBios nor the DNS format".to_string());
    }
}

fn is_net_bios(domain: &str) -> bool {
    (1..=15).contains(&domain.chars().count())
        && !domain.starts_with('.')
        && !domain.contains(['\\', '/', ':', '*', '?', '"', '<', '>', '|'])
}

fn is_dns(domain: &str) -> bool {
    domain.split('.').all(|label| {
        let bytes = label.as_bytes();
        let ends = |b: Option<&u8>| b.is_some_and(u8::is_ascii_alphanumeric);
        bytes.len() <= 63
            && ends(bytes.first())
            && ends(bytes.last())
            && bytes.iter().all(|b| b.is_ascii_alphanumeric() || *b == b'-')
    })
}

/// Either all containers of a pod are host processes or none is.
pub(crate) fn validate_host_process(spec: &Tree, path: &Path<'_>, errors: &mut Errors) {
    let of_pod = spec.at("securityContext.windowsOptions.hostProcess").as_bool();
    let (mut containers, mut processes) = (0, 0);
    for_each_container(spec, path, &mut |container, path| {
        containers += 1;
        let own = container.at("securityContext.windowsOptions.hostProcess").as_bool();
        if let (Some(pod), Some(own)) = (of_pod, own)
            && pod != own
        {
            let text = format!("pod hostProcess value must be identical if both are specified, was {pod}");
            let at = path.field("securityContext.windowsOptions.hostProcess");
            errors.invalid(&at, own, &text);
        }
        processes += usize::from(own.or(of_pod) == Some(true));
    });
    if processes == 0 {
        return;
    }
    if processes != containers {
        let text = "If pod contains any hostProcess containers then all containers must be HostProcess containers";
        errors.invalid(path, "", text);
    }
    if !spec.bool("hostNetwork") {
        let text = "hostNetwork must be true if pod contains any hostProcess containers";
        errors.invalid(&path.field("hostNetwork"), false, text);
    }
}

/// The operating system, and that no field of the other one is set.
pub(crate) fn validate_os(spec: &Tree, path: &Path<'_>, errors: &mut Errors) {
    let Some(os) = spec.get("os") else { return };
    match os.str("name") {
        "" => errors.required(&path.field("os").field("name"), "cannot be empty"),
        "linux" => validate_linux(spec, path, errors),
        "windows" => validate_windows(spec, path, errors),
        name => errors.not_supported(&path.field("os"), name, &["linux", "windows"]),
    }
}

fn validate_linux(spec: &Tree, path: &Path<'_>, errors: &mut Errors) {
    let text = "windows options cannot be set for a linux pod";
    if spec.at("securityContext").has("windowsOptions") {
        errors.forbidden(&path.field("securityContext.windowsOptions"), text);
    }
    for_each_container(spec, path, &mut |container, path| {
        if container.at("securityContext").has("windowsOptions") {
            errors.forbidden(&path.field("securityContext.windowsOptions"), text);
        }
    });
}

/// Pod fields that are not supported on Windows, in upstream's order.
const NOT_FOR_WINDOWS: &[&str] = &[
    "securityContext.appArmorProfile",
    "securityContext.seLinuxOptions",
    "hostUsers",
    "hostPID",
    "hostIPC",
    "securityContext.seccompProfile",
    "securityContext.fsGroup",
    "securityContext.fsGroupChangePolicy",
    "securityContext.sysctls",
    "shareProcessNamespace",
    "securityContext.runAsUser",
    "securityContext.runAsGroup",
    "securityContext.supplementalGroups",
    "securityContext.supplementalGroupsPolicy",
    "securityContext.seLinuxChangePolicy",
];

const CONTAINER_NOT_FOR_WINDOWS: &[&str] = &[
    "securityContext.appArmorProfile",
    "securityContext.seLinuxOptions",
    "securityContext.seccompProfile",
    "securityContext.capabilities",
    "securityContext.readOnlyRootFilesystem",
    "securityContext.privileged",
    "securityContext.allowPrivilegeEscalation",
    "securityContext.procMount",
    "securityContext.runAsUser",
    "securityContext.runAsGroup",
];

fn validate_windows(spec: &Tree, path: &Path<'_>, errors: &mut Errors) {
    let text = "cannot be set for a windows pod";
    for key in NOT_FOR_WINDOWS.iter().filter(|key| !spec.at(key).is_null()) {
        errors.forbidden(&path.field(key), text);
    }
    for_each_container(spec, path, &mut |container, path| {
        for key in CONTAINER_NOT_FOR_WINDOWS.iter().filter(|key| !container.at(key).is_null()) {
            errors.forbidden(&path.field(key), text);
        }
    });
}

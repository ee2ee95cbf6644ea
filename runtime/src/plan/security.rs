//! The security settings of a container: capabilities, devices, seccomp, AppArmor and SELinux.

use cri::{LinuxContainerSecurityContext, ProfileType, SecurityProfile};

use super::Host;
use crate::capabilities;
use crate::error::{Result, refused};
use crate::spec::{Capabilities, DeviceRule};

/// The requested seccomp profile.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Seccomp {
    Unconfined,
    Default,
    /// The path of a profile on the host.
    Localhost(String),
}

impl Seccomp {
    pub(crate) fn of(context: &LinuxContainerSecurityContext) -> Result<Seccomp> {
        if context.privileged {
            return Ok(Seccomp::Unconfined);
        }
        if let Some(profile) = &context.seccomp {
            return Ok(match profile.profile_type() {
                ProfileType::RuntimeDefault => Seccomp::Default,
                ProfileType::Unconfined => Seccomp::Unconfined,
                ProfileType::Localhost => Seccomp::Localhost(profile.localhost_ref.clone()),
            });
        }
        match context.seccomp_profile_path.as_str() {
            "" | "unconfined" => Ok(Seccomp::Unconfined),
            "runtime/default" | "docker/default" => Ok(Seccomp::Default),
            path => match path.strip_prefix("localhost/") {
                Some(path) => Ok(Seccomp::Localhost(path.into())),
                None => refused(format!("invalid seccomp_profile_path {path:?}")),
            },
        }
    }
}

/// Capabilities that the runtime process lacks are removed: a container never gets more than requested.
pub(crate) fn capabilities(context: &LinuxContainerSecurityContext, host: &Host) -> Result<Capabilities> {
    let requested = context.capabilities.clone().unwrap_or_default();
    let bounding = if context.privileged {
        capabilities::ALL
    } else {
        capabilities::adjust(capabilities::default_set(), &requested.add_capabilities, &requested.drop_capabilities)?
    };
    let ambient = capabilities::adjust(0, &requested.add_ambient_capabilities, &[])?;
    let bounding = (bounding | ambient) & host.capabilities;
    let ambient = ambient & bounding;
    Ok(Capabilities { bounding, permitted: bounding, inheritable: ambient, ambient })
}

/// The AppArmor profile. A requested profile that the kernel does not support is refused, because running without it
/// would be less secure.
pub(super) fn apparmor(context: &LinuxContainerSecurityContext, host: &Host) -> Result<Option<String>> {
    if context.privileged {
        return Ok(None);
    }
    let legacy = context.apparmor_profile.as_str();
    let profile = context.apparmor.clone().or_else(|| match legacy {
        "" | "unconfined" => None,
        "runtime/default" => Some(SecurityProfile::default()),
        other => Some(SecurityProfile {
            profile_type: ProfileType::Localhost as i32,
            localhost_ref: other.strip_prefix("localhost/").unwrap_or(other).into(),
        }),
    });
    let Some(profile) = profile else { return Ok(None) };
    match (profile.profile_type(), host.apparmor) {
        (ProfileType::Localhost, true) => Ok(Some(profile.localhost_ref)),
        (ProfileType::Localhost, false) => {
            refused(format!("AppArmor profile {:?}: this kernel has no AppArmor", profile.localhost_ref))
        }
        // Without AppArmor there is no default profile.
        (ProfileType::RuntimeDefault, false) | (ProfileType::Unconfined, _) => Ok(None),
        (ProfileType::RuntimeDefault, true) => Ok(Some(DEFAULT_APPARMOR.into())),
    }
}

/// The profile for containers that the administrator has to load.
const DEFAULT_APPARMOR: &str = "tiphys-default";

/// Whether a SELinux label is requested.
pub(crate) fn has_selinux_options(context: &LinuxContainerSecurityContext) -> bool {
    let Some(options) = context.selinux_options.as_ref().filter(|_| !context.privileged) else { return false };
    [&options.user, &options.role, &options.r#type, &options.level].iter().any(|field| !field.is_empty())
}

/// The SELinux label. On a kernel without SELinux, which does not enforce labels, it is ignored, as in other runtimes.
pub(super) fn selinux(context: &LinuxContainerSecurityContext, host: &Host) -> Option<String> {
    let options = context.selinux_options.as_ref().filter(|_| host.selinux && has_selinux_options(context))?;
    let or = |field: &str, default: &str| if field.is_empty() { default.to_string() } else { field.to_string() };
    let label = [
        or(&options.user, "system_u"),
        or(&options.role, "system_r"),
        or(&options.r#type, "container_t"),
        or(&options.level, "s0"),
    ];
    Some(label.join(":"))
}

/// The device rules: nodes of any device may be created, but only some may be opened.
pub(super) fn device_rules(privileged: bool, own: &[DeviceRule]) -> Vec<DeviceRule> {
    let rule = |allow, kind: &str, major, minor, access: &str| DeviceRule {
        allow,
        kind: kind.into(),
        major,
        minor,
        access: access.into(),
    };
    if privileged {
        return vec![rule(true, "a", None, None, "rwm")];
    }
    let mut rules =
        vec![rule(false, "a", None, None, "rwm"), rule(true, "c", None, None, "m"), rule(true, "b", None, None, "m")];
    let default_devices = [
        (1, Some(3)),
        (1, Some(5)),
        (1, Some(7)),
        (1, Some(8)),
        (1, Some(9)),
        (5, Some(0)),
        (5, Some(1)),
        (5, Some(2)),
        (136, None),
    ];
    rules.extend(default_devices.map(|(major, minor)| rule(true, "c", Some(major), minor, "rwm")));
    rules.extend(own.iter().cloned());
    rules
}

#[cfg(test)]
mod tests {
    use super::*;
    use cri::{Capability, SELinuxOption};

    fn profile(kind: ProfileType, name: &str) -> Option<SecurityProfile> {
        Some(SecurityProfile { profile_type: kind as i32, localhost_ref: name.into() })
    }

    #[test]
    fn reads_seccomp_from_either_field() {
        let check = |context: LinuxContainerSecurityContext, expected: Seccomp| {
            assert_eq!(Seccomp::of(&context).unwrap(), expected, "{context:?}");
        };
        check(Default::default(), Seccomp::Unconfined);
        let seccomp = profile(ProfileType::RuntimeDefault, "");
        check(LinuxContainerSecurityContext { seccomp: seccomp.clone(), ..Default::default() }, Seccomp::Default);
        let privileged = LinuxContainerSecurityContext { seccomp, privileged: true, ..Default::default() };
        check(privileged, Seccomp::Unconfined);
        let path =
            |path: &str| LinuxContainerSecurityContext { seccomp_profile_path: path.into(), ..Default::default() };
        check(path("runtime/default"), Seccomp::Default);
        check(path("localhost//p.json"), Seccomp::Localhost("/p.json".into()));
        assert!(Seccomp::of(&path("what")).is_err());
    }

    #[test]
    fn computes_capability_sets() {
        let host = Host {
            capabilities: capabilities::ALL & !capabilities::bit("SYS_RESOURCE").unwrap(),
            ..Default::default()
        };
        let all = LinuxContainerSecurityContext { privileged: true, ..Default::default() };
        assert_eq!(capabilities(&all, &host).unwrap().bounding, host.capabilities);
        let ambient = LinuxContainerSecurityContext {
            capabilities: Some(Capability {
                drop_capabilities: vec!["ALL".into()],
                add_ambient_capabilities: vec!["NET_BIND_SERVICE".into()],
                ..Default::default()
            }),
            ..Default::default()
        };
        let bind = capabilities::bit("NET_BIND_SERVICE").unwrap();
        let expected = Capabilities { bounding: bind, permitted: bind, inheritable: bind, ambient: bind };
        assert_eq!(capabilities(&ambient, &host).unwrap(), expected);
    }

    #[test]
    fn rejects_unsupported_apparmor_profiles() {
        let none = Host::default();
        let localhost =
            LinuxContainerSecurityContext { apparmor: profile(ProfileType::Localhost, "mine"), ..Default::default() };
        let error = apparmor(&localhost, &none).unwrap_err().to_string();
        assert_eq!(error, "AppArmor profile \"mine\": this kernel has no AppArmor");
        let default = LinuxContainerSecurityContext {
            apparmor: profile(ProfileType::RuntimeDefault, ""),
            selinux_options: Some(SELinuxOption::default()),
            ..Default::default()
        };
        assert_eq!(apparmor(&default, &none).unwrap(), None);
        assert_eq!(selinux(&default, &none), None);
        let typed = LinuxContainerSecurityContext {
            selinux_options: Some(SELinuxOption { r#type: "web_t".into(), ..Default::default() }),
            ..Default::default()
        };
        assert_eq!(selinux(&typed, &none), None, "there is nothing to guard");
        let enforcing = Host { selinux: true, ..Host::default() };
        assert_eq!(selinux(&typed, &enforcing).as_deref(), Some("system_u:system_r:web_t:s0"));
        assert_eq!(selinux(&default, &enforcing), None);
    }
}

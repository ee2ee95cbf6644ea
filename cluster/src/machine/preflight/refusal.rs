//! Why the system refuses to write to a directory, as one sentence that says what to do.

use std::fs;
use std::path::Path;

use rustix::io::Errno;

/// Types of SELinux that are not confined.
const UNCONFINED: [&str; 6] = ["unconfined_t", "unconfined_service_t", "spc_t", "kernel_t", "init_t", "initrc_t"];

/// The security module that confines this process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Confinement {
    /// SELinux enforces the policy of a type.
    SeLinux(String),
    /// AppArmor enforces a profile.
    AppArmor(String),
}

impl Confinement {
    /// None if no module confines this process.
    pub(crate) fn collect() -> Option<Confinement> {
        let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
        let apparmor = match read("/proc/self/attr/apparmor/current") {
            profile if profile.is_empty() => read("/proc/self/attr/current"),
            profile => profile,
        };
        Confinement::of(&read("/sys/fs/selinux/enforce"), &read("/proc/self/attr/current"), &apparmor)
    }

    /// Reads the switch of SELinux, the context of a process, and its profile.
    fn of(enforce: &str, context: &str, profile: &str) -> Option<Confinement> {
        let clean = |text: &str| text.trim_end_matches(['\0', '\n']).to_string();
        if enforce.trim() == "1" {
            let kind = clean(context).split(':').nth(2).unwrap_or_default().to_string();
            return (!UNCONFINED.contains(&kind.as_str())).then_some(Confinement::SeLinux(kind));
        }
        let profile = clean(profile);
        profile.strip_suffix(" (enforce)").map(|name| Confinement::AppArmor(name.to_string()))
    }

    /// What a user does about it.
    pub(super) fn explain(&self) -> String {
        match self {
            Confinement::SeLinux(kind) => format!(
                "SELinux confines this process as {kind}: `ausearch -m avc -ts recent` shows what it denies, and \
                 `runcon -t unconfined_t` starts a process without it"
            ),
            Confinement::AppArmor(profile) => format!(
                "the AppArmor profile {profile} confines this process: `dmesg | grep DENIED` shows what it denies, and \
                 `aa-exec -p unconfined` starts a process without it"
            ),
        }
    }
}

/// The sentence for an error of a directory, as this user sees it.
pub(super) fn explain(path: &Path, error: Errno, user: u32, confinement: Option<&Confinement>) -> String {
    let dir = path.display();
    match error {
        Errno::ROFS => format!(
            "{dir} is on a file system that is mounted read-only: remount it with `mount -o remount,rw`, or choose another \
             --data-dir"
        ),
        Errno::NOSPC | Errno::DQUOT => {
            format!("the disk of {dir} is full: delete files there, or choose another --data-dir")
        }
        Errno::NOTDIR | Errno::EXIST => format!("{dir} is not a directory: choose another --data-dir"),
        Errno::ACCESS | Errno::PERM => match (confinement, user) {
            (Some(confinement), _) => format!("{dir} cannot be written to: {}", confinement.explain()),
            (None, 0) => format!(
                "{dir} cannot be written to, even by root: `lsattr -d` shows whether it is immutable, and root may have \
                 no rights on a network file system; otherwise choose another --data-dir"
            ),
            (None, _) => format!(
                "user {user} may not write to {dir}: start the command as the owner of the directory, or choose another \
                 --data-dir"
            ),
        },
        other => format!("{dir} cannot be used: {}; choose another --data-dir", std::io::Error::from(other)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_refusal_says_what_to_do() {
        let check = |error: Errno, user: u32, confinement: Option<Confinement>, want: &str| {
            let text = explain(Path::new("/d"), error, user, confinement.as_ref());
            assert!(text.starts_with("/d ") || text.contains(" /d"), "{text}");
            assert!(text.contains(want) && text.contains(':') | text.contains(';'), "{want}: {text}");
        };
        check(Errno::ROFS, 0, None, "mount -o remount,rw");
        check(Errno::NOSPC, 0, None, "is full: delete files");
        check(Errno::DQUOT, 1000, None, "is full: delete files");
        check(Errno::NOTDIR, 0, None, "not a directory");
        check(Errno::ACCESS, 0, None, "lsattr -d");
        check(Errno::ACCESS, 1000, None, "user 1000 may not write");
        check(Errno::ACCESS, 0, Some(Confinement::SeLinux("container_t".to_string())), "ausearch");
        check(Errno::PERM, 0, Some(Confinement::AppArmor("docker-default".to_string())), "docker-default");
        check(Errno::IO, 0, None, "choose another --data-dir");
    }

    #[test]
    fn only_enforced_policies_confine() {
        let check = |enforce: &str, context: &str, profile: &str, want: Option<Confinement>| {
            assert_eq!(Confinement::of(enforce, context, profile), want, "{enforce} {context} {profile}");
        };
        let context = "system_u:system_r:container_t:s0:c1,c2\0";
        check("1", context, "", Some(Confinement::SeLinux("container_t".to_string())));
        check("0", context, context, None);
        check("1", "unconfined_u:unconfined_r:unconfined_t:s0\0", "", None);
        check("", "", "docker-default (enforce)\n", Some(Confinement::AppArmor("docker-default".to_string())));
        check("", "", "docker-default (complain)\n", None);
        check("", "", "unconfined\n", None);
        check("", "", "", None);
    }
}

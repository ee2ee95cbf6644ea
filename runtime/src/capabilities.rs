//! Linux capabilities: their names, and the sets of a process.

use crate::error::{Context, Result, refused};
use crate::spec::Capabilities;
use crate::sys;

/// In the order of their numbers.
const NAMES: [&str; 41] = [
    "CHOWN",
    "DAC_OVERRIDE",
    "DAC_READ_SEARCH",
    "FOWNER",
    "FSETID",
    "KILL",
    "SETGID",
    "SETUID",
    "SETPCAP",
    "LINUX_IMMUTABLE",
    "NET_BIND_SERVICE",
    "NET_BROADCAST",
    "NET_ADMIN",
    "NET_RAW",
    "IPC_LOCK",
    "IPC_OWNER",
    "SYS_MODULE",
    "SYS_RAWIO",
    "SYS_CHROOT",
    "SYS_PTRACE",
    "SYS_PACCT",
    "SYS_ADMIN",
    "SYS_BOOT",
    "SYS_NICE",
    "SYS_RESOURCE",
    "SYS_TIME",
    "SYS_TTY_CONFIG",
    "MKNOD",
    "LEASE",
    "AUDIT_WRITE",
    "AUDIT_CONTROL",
    "SETFCAP",
    "MAC_OVERRIDE",
    "MAC_ADMIN",
    "SYSLOG",
    "WAKE_ALARM",
    "BLOCK_SUSPEND",
    "AUDIT_READ",
    "PERFMON",
    "BPF",
    "CHECKPOINT_RESTORE",
];

/// The default capabilities of a container.
const DEFAULT: [&str; 14] = [
    "CHOWN",
    "DAC_OVERRIDE",
    "FSETID",
    "FOWNER",
    "MKNOD",
    "NET_RAW",
    "SETGID",
    "SETUID",
    "SETFCAP",
    "SETPCAP",
    "NET_BIND_SERVICE",
    "SYS_CHROOT",
    "KILL",
    "AUDIT_WRITE",
];

pub(crate) const ALL: u64 = (1 << NAMES.len()) - 1;

pub(crate) fn default_set() -> u64 {
    DEFAULT.iter().filter_map(|name| bit(name)).fold(0, |set, bit| set | bit)
}

/// The bit of a capability. The name is case-insensitive, with or without `CAP_`.
pub(crate) fn bit(name: &str) -> Option<u64> {
    let upper = name.to_ascii_uppercase();
    let short = upper.strip_prefix("CAP_").unwrap_or(&upper);
    NAMES.iter().position(|n| *n == short).map(|n| 1 << n)
}

/// The names with `CAP_`, in the order of their numbers.
pub(crate) fn names(set: u64) -> Vec<String> {
    let named = NAMES.iter().enumerate();
    named.filter(|(n, _)| set & (1 << n) != 0).map(|(_, name)| format!("CAP_{name}")).collect()
}

/// Adds and drops capabilities; `ALL` stands for all of them.
pub(crate) fn adjust(start: u64, add: &[String], drop: &[String]) -> Result<u64> {
    let set = |names: &[String]| -> Result<u64> {
        names.iter().try_fold(0, |set, name| match name.to_ascii_uppercase().as_str() {
            "ALL" | "CAP_ALL" => Ok(set | ALL),
            _ => match bit(name) {
                Some(bit) => Ok(set | bit),
                None => refused(format!("unknown capability {name:?}")),
            },
        })
    };
    let (add_all, drop_all) = (set(add)? == ALL, set(drop)? == ALL);
    // "ALL" is applied first, so that single names next to it still count.
    let mut result = if drop_all { 0 } else { start };
    if add_all {
        result = ALL;
    } else {
        result |= set(add)?;
    }
    if !drop_all {
        result &= !set(drop)?;
    }
    Ok(result)
}

/// Drops everything that is not in the bounding set. This needs SETPCAP, so it has to come first.
pub(crate) fn limit_bounding(bounding: u64) -> Result<()> {
    for number in 0..64u64 {
        let there = sys::prctl(libc::PR_CAPBSET_READ, number, 0, 0, 0);
        match there {
            Err(_) => break,
            Ok(0) => {}
            Ok(_) if bounding & (1 << number) != 0 => {}
            Ok(_) => {
                sys::prctl(libc::PR_CAPBSET_DROP, number, 0, 0, 0).at("dropping a capability")?;
            }
        }
    }
    Ok(())
}

/// Sets the final sets, after the user was changed. Capabilities that the runtime itself lacks were removed before.
pub(crate) fn apply(capabilities: &Capabilities) -> Result<()> {
    let sets = sys::CapSets {
        effective: capabilities.permitted,
        permitted: capabilities.permitted,
        inheritable: capabilities.inheritable,
    };
    sys::capset(sets).at("setting capabilities")?;
    raise_ambient(capabilities.ambient)
}

fn raise_ambient(ambient: u64) -> Result<()> {
    const RAISE: u64 = libc::PR_CAP_AMBIENT_RAISE as u64;
    const CLEAR: u64 = libc::PR_CAP_AMBIENT_CLEAR_ALL as u64;
    sys::prctl(libc::PR_CAP_AMBIENT, CLEAR, 0, 0, 0).at("clearing ambient capabilities")?;
    for number in (0..NAMES.len() as u64).filter(|n| ambient & (1 << n) != 0) {
        sys::prctl(libc::PR_CAP_AMBIENT, RAISE, number, 0, 0).at("raising an ambient capability")?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(add: &[&str], drop: &[&str], expected: &[&str]) {
        let own = |list: &[&str]| list.iter().map(|s| s.to_string()).collect::<Vec<_>>();
        let set = adjust(bit("CHOWN").unwrap() | bit("KILL").unwrap(), &own(add), &own(drop)).unwrap();
        assert_eq!(names(set), own(expected), "add {add:?} drop {drop:?}");
    }

    #[test]
    fn adds_and_drops() {
        check(&[], &[], &["CAP_CHOWN", "CAP_KILL"]);
        check(&["net_admin"], &["CAP_KILL"], &["CAP_CHOWN", "CAP_NET_ADMIN"]);
        check(&["NET_RAW"], &["ALL"], &["CAP_NET_RAW"]);
        check(&["KILL"], &["KILL"], &["CAP_CHOWN"]);
        check(&[], &["ALL"], &[]);
    }

    #[test]
    fn adds_all_and_drops_one() {
        let set = adjust(0, &["ALL".into()], &["SYS_ADMIN".into()]).unwrap();
        assert_eq!(set, ALL & !bit("SYS_ADMIN").unwrap());
    }

    #[test]
    fn refuses_unknown_names() {
        let error = adjust(0, &["FLY".into()], &[]).unwrap_err().to_string();
        assert_eq!(error, "unknown capability \"FLY\"");
    }
}

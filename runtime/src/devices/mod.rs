//! Device access of a container: a list of rules with cgroup v1, a BPF program with cgroup v2.

mod program;

use std::fs;

use cgroup::Hierarchies;

use crate::error::{Context, Result, refused};
use crate::spec::DeviceRule;

/// Restricts the processes of a cgroup to the devices that the rules allow.
pub(crate) fn restrict(cgroups: &Hierarchies, path: &str, rules: &[DeviceRule]) -> Result<()> {
    let Some(directory) = cgroups.in_v1("devices", path) else {
        let Some(directory) = cgroups.in_v2(path) else {
            return refused("no device cgroup and no cgroup v2 on this machine");
        };
        return program::attach(&directory, rules);
    };
    for (file, line) in lines(rules) {
        fs::write(directory.join(file), &line).context(|| format!("writing {line:?} to {file}"))?;
    }
    Ok(())
}

/// The rules in the syntax of cgroup v1.
fn lines(rules: &[DeviceRule]) -> Vec<(&'static str, String)> {
    let number = |n: Option<u32>| n.map_or("*".into(), |n| n.to_string());
    let line = |rule: &DeviceRule| {
        let file = if rule.allow { "devices.allow" } else { "devices.deny" };
        (file, format!("{} {}:{} {}", rule.kind, number(rule.major), number(rule.minor), rule.access))
    };
    rules.iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn device_rules() {
        let deny = DeviceRule { allow: false, kind: "a".into(), major: None, minor: None, access: "rwm".into() };
        let null = DeviceRule { allow: true, kind: "c".into(), major: Some(1), minor: Some(3), access: "rw".into() };
        let lines = lines(&[deny, null]);
        assert_eq!(lines[0], ("devices.deny", "a *:* rwm".into()));
        assert_eq!(lines[1], ("devices.allow", "c 1:3 rw".into()));
    }
}

//! Which devices a container may use: a list in version 1 of cgroups, a program in version 2.

mod program;

use std::fs;

use cgroup::Hierarchies;

use crate::error::{Context, Result, refused};
use crate::spec::DeviceRule;

pub fn restrict(cgroups: &Hierarchies, path: &str, rules: &[DeviceRule]) -> Result<()> {
    let Some(directory) = cgroups.in_v1("devices", path) else {
        let Some(directory) = cgroups.in_v2(path) else {
            return refused("the machine can restrict no devices");
        };
        return program::attach(&directory, rules);
    };
    for (file, line) in lines(rules) {
        fs::write(directory.join(file), &line).context(|| format!("writing {line:?} to {file}"))?;
    }
    Ok(())
}

/// What version 1 is told of devices: nothing is allowed, then each rule.
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

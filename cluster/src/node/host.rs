//! The kubelet's requirements of its machine, and the settings of its own process.

use std::path::Path;

use kubelet::Config;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::error::{Error, Result};

/// Kernel settings that upstream requires, by their files.
const KERNEL: [(&str, &str); 6] = [
    ("kernel/keys/root_maxbytes", "25000000"),
    ("kernel/keys/root_maxkeys", "1000000"),
    ("kernel/panic", "10"),
    ("kernel/panic_on_oops", "1"),
    ("vm/overcommit_memory", "1"),
    ("vm/panic_on_oom", "0"),
];

/// Rejects a machine that does not meet the configured requirements.
pub fn check(config: &Config, root: &Path) -> Result<()> {
    let mut errors = Vec::new();
    if config.swap.fail_on && kubelet::node::machine::swaps(root) {
        let why = "running with swap on is not supported, please disable swap or set --fail-swap-on flag to false";
        errors.push(why.to_string());
    }
    if config.process.fail_cgroup_v1 && !root.join("sys/fs/cgroup/cgroup.controllers").exists() {
        errors.push("failCgroupV1 (--fail-cgroupv1): this machine has cgroups of version 1".to_string());
    }
    if config.process.protect_kernel_defaults {
        errors.extend(KERNEL.iter().filter_map(|(name, want)| differs(root, name, want)));
    }
    if errors.is_empty() { Ok(()) } else { Err(Error::Flags(errors)) }
}

/// A setting that the kernel does not have is accepted.
fn differs(root: &Path, name: &str, want: &str) -> Option<String> {
    let found = std::fs::read_to_string(root.join("proc/sys").join(name)).ok()?;
    let found = found.trim();
    let same = match (found.parse::<i64>(), want.parse::<i64>()) {
        // More keys than are needed do no harm.
        (Ok(found), Ok(want)) if name.starts_with("kernel/keys") => found >= want,
        _ => found == want,
    };
    (!same).then(|| {
        format!("protectKernelDefaults (--protect-kernel-defaults): invalid kernel flag: {name}, expected value: {want}, actual value: {found}")
    })
}

/// Applies the settings of the kubelet's process; failures are logged.
pub fn prepare(config: &Config) {
    set_oom_score(config);
    raise_open_files(config);
}

/// Sets the OOM score of this process.
pub fn set_oom_score(config: &Config) {
    let wanted = config.process.oom_score_adj;
    if std::fs::write("/proc/self/oom_score_adj", wanted.to_string()).is_err() {
        tracing::warn!(wanted, "failed to set oomScoreAdj (--oom-score-adj)");
    }
}

pub(crate) fn raise_open_files(config: &Config) {
    let (wanted, now) = (config.process.max_open_files, getrlimit(Resource::Nofile));
    let least = |limit: Option<u64>| limit.is_none_or(|limit| limit >= wanted);
    if least(now.current) {
        return;
    }
    // Raising the hard limit needs a privilege.
    let maximum = now.maximum.map(|limit| limit.max(wanted));
    let raised = setrlimit(Resource::Nofile, Rlimit { current: Some(wanted), maximum });
    if raised.is_err() {
        let _ = setrlimit(Resource::Nofile, Rlimit { current: now.maximum, maximum: now.maximum });
        tracing::warn!(wanted, given = ?now.maximum, "failed to set maxOpenFiles (--max-open-files)");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rejects_unsuitable_machines() {
        let dir = tempfile::tempdir().expect("a directory");
        let write = |path: &str, text: &str| {
            let path = dir.path().join(path);
            std::fs::create_dir_all(path.parent().expect("a directory")).expect("a directory");
            std::fs::write(path, text).expect("a file");
        };
        let mut config = Config::default();
        let check = |config: &Config| check(config, dir.path()).map_err(|error| error.describe());
        assert_eq!(check(&config), Ok(()));
        write("proc/swaps", "Filename\n/dev/sda2 partition 1 0 -2\n");
        assert!(check(&config).expect_err("refused").contains("running with swap on is not supported"));
        config.swap.fail_on = false;
        config.process.fail_cgroup_v1 = true;
        assert!(check(&config).expect_err("refused").contains("failCgroupV1"));
        write("sys/fs/cgroup/cgroup.controllers", "cpu memory");
        write("proc/sys/vm/overcommit_memory", "0\n");
        write("proc/sys/kernel/keys/root_maxkeys", "2000000\n");
        assert_eq!(check(&config), Ok(()));
        config.process.protect_kernel_defaults = true;
        let why = check(&config).expect_err("refused");
        assert!(why.contains("vm/overcommit_memory, expected value: 1, actual value: 0"), "{why}");
        assert!(!why.contains("root_maxkeys"), "{why}");
    }
}

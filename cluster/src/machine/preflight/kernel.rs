//! The features of the kernel that pods need.

use std::fs;

use cgroup::Hierarchies;

use super::{Finding, Verdict, finding};

/// Linux 5.4 has all system calls that the runtime needs.
const OLDEST_KERNEL: (u32, u32) = (5, 4);
const CONTROLLERS: [&str; 4] = ["cpu", "cpuset", "memory", "pids"];

/// What is known of a kernel.
pub(crate) struct KernelFacts {
    pub(crate) release: String,
    pub(crate) version: Option<(u32, u32)>,
    /// The version of cgroups; None without any.
    pub(crate) cgroups: Option<&'static str>,
    pub(crate) controllers: Vec<String>,
    pub(crate) has_overlay: bool,
}

impl KernelFacts {
    pub(crate) fn collect() -> KernelFacts {
        let release = read("/proc/sys/kernel/osrelease");
        let (cgroups, controllers) = cgroups();
        KernelFacts { version: version(&release), has_overlay: has_overlay(&release), release, cgroups, controllers }
    }

    pub(crate) fn judge(&self) -> Vec<Finding> {
        vec![self.kernel(), self.cgroups(), self.file_systems()]
    }

    fn kernel(&self) -> Finding {
        let (major, minor) = OLDEST_KERNEL;
        match self.version {
            Some(version) if version >= OLDEST_KERNEL => finding("kernel", Verdict::Ok, self.release.as_str()),
            Some(_) => {
                let why = format!("Linux {} is too old: {major}.{minor} or newer is required", self.release);
                finding("kernel", Verdict::Failed, why)
            }
            None => finding("kernel", Verdict::Warning, format!("{:?} is not a known version", self.release)),
        }
    }

    fn cgroups(&self) -> Finding {
        let missing: Vec<&str> =
            CONTROLLERS.into_iter().filter(|name| !self.controllers.iter().any(|found| found == name)).collect();
        match (self.cgroups, missing.is_empty()) {
            (None, _) => {
                let why = "no cgroup file system is mounted: `mount -t cgroup2 none /sys/fs/cgroup` mounts it";
                finding("cgroups", Verdict::Failed, why)
            }
            (Some(version), true) => {
                finding("cgroups", Verdict::Ok, format!("{version}, with {}", CONTROLLERS.join(", ")))
            }
            (Some(version), false) => {
                let why = format!(
                    "cgroups of {version} are without {}, so that limits of pods cannot be applied: enable them in the \
                     kernel, by its parameter cgroup_enable={}",
                    missing.join(", "),
                    missing[0]
                );
                finding("cgroups", Verdict::Failed, why)
            }
        }
    }

    fn file_systems(&self) -> Finding {
        match self.has_overlay {
            true => finding("overlay", Verdict::Ok, "overlay file systems are supported"),
            false => {
                let why =
                    "the kernel has no overlay file system: install its module, and load it by `modprobe overlay`";
                finding("overlay", Verdict::Failed, why)
            }
        }
    }
}

fn read(path: &str) -> String {
    fs::read_to_string(path).unwrap_or_default().trim_end().to_string()
}

fn version(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(['.', '-', '+']).map(|part| part.parse().ok());
    Some((numbers.next()??, numbers.next()??))
}

/// The kernel loads the module when the first file system is mounted.
fn has_overlay(release: &str) -> bool {
    let is_loaded = read("/proc/filesystems").lines().any(|line| line.trim_end().ends_with("\toverlay"));
    is_loaded || read(&format!("/lib/modules/{release}/modules.dep")).contains("/overlay.ko")
}

fn cgroups() -> (Option<&'static str>, Vec<String>) {
    let Ok(hierarchies) = Hierarchies::detect() else { return (None, Vec::new()) };
    if hierarchies.unified_only() {
        let controllers = read("/sys/fs/cgroup/cgroup.controllers");
        return (Some("version 2"), controllers.split_whitespace().map(str::to_string).collect());
    }
    let enabled = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        (words.last() == Some(&"1")).then(|| words[0].to_string())
    };
    (Some("version 1"), read("/proc/cgroups").lines().skip(1).filter_map(enabled).collect())
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A kernel without findings.
    pub(crate) fn suitable() -> KernelFacts {
        KernelFacts {
            release: "6.1.0-18-amd64".to_string(),
            version: Some((6, 1)),
            cgroups: Some("version 2"),
            controllers: CONTROLLERS.map(str::to_string).to_vec(),
            has_overlay: true,
        }
    }

    #[test]
    fn releases_are_parsed() {
        assert_eq!(version("6.1.0-18-amd64"), Some((6, 1)));
        assert_eq!(version("5.15+"), Some((5, 15)));
        assert_eq!(version("unknown"), None);
    }
}

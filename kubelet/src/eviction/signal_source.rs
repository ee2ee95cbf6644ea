//! Measures the signals of the machine, from files of the kernel and file systems.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::rank::Layout;
use super::signal::{Measurement, Measurements, Signal};
use crate::config::{CgroupDriver, Config};
use crate::resources::machine;

/// The paths to measure.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Paths {
    /// Pods' directories.
    pub(crate) node: PathBuf,
    /// Directories of images and writable layers; None until the runtime has reported them.
    pub(crate) images: Option<PathBuf>,
    pub(crate) containers: Option<PathBuf>,
    /// The cgroup that all pods are in.
    pub(crate) group: String,
}

impl Paths {
    pub(crate) fn of(config: &Config) -> Paths {
        let group = match config.cgroup_driver {
            CgroupDriver::Cgroupfs => format!("{}/kubepods", config.cgroup_root.trim_end_matches('/')),
            CgroupDriver::Systemd => "/kubepods.slice".to_string(),
        };
        Paths { node: config.root_dir.clone(), group, ..Paths::default() }
    }
}

/// The machine, or its simulation in a test.
pub trait SignalSource: Send + Sync + 'static {
    /// Measures all signals.
    fn measure(&self, paths: &Paths) -> Measurements;

    /// How the file systems are divided.
    fn layout(&self, paths: &Paths) -> Layout;
}

/// The machine itself, its kernel's files below a directory.
pub(crate) struct System(pub(crate) PathBuf);

impl Default for System {
    fn default() -> System {
        System("/".into())
    }
}

impl SignalSource for System {
    fn measure(&self, paths: &Paths) -> Measurements {
        let mut seen = Measurements::new();
        let text = |path: &str| std::fs::read_to_string(self.0.join(path)).unwrap_or_default();
        let memory = machine::memory(&text("proc/meminfo"), "");
        if memory.capacity > 0 {
            let available = memory.capacity.saturating_sub(memory.working_set);
            seen.insert(Signal::Memory, measurement(available, memory.capacity));
        }
        seen.extend(self.allocatable_memory(&paths.group).map(|left| (Signal::AllocatableMemory, left)));
        let most = machine::most_processes(&text("proc/sys/kernel/pid_max"), &text("proc/sys/kernel/threads-max"));
        let processes = machine::processes(&text("proc/loadavg"));
        if most > 0 && processes > 0 {
            seen.insert(Signal::Pid, measurement(most.saturating_sub(processes), most));
        }
        let disks = [
            (Some(&paths.node), Signal::NodeFs, Signal::NodeFsInodes),
            (paths.images.as_ref(), Signal::ImageFs, Signal::ImageFsInodes),
            (paths.containers.as_ref(), Signal::ContainerFs, Signal::ContainerFsInodes),
        ];
        for (path, bytes, inodes) in disks {
            let Some(found) = path.and_then(|path| machine::filesystem(path)) else { continue };
            seen.insert(bytes, measurement(found.available, found.capacity));
            // Some file systems allocate inodes dynamically, and report none.
            if found.inodes > 0 {
                seen.insert(inodes, measurement(found.inodes_free, found.inodes));
            }
        }
        seen
    }

    fn layout(&self, paths: &Paths) -> Layout {
        let device = |path: &Path| std::fs::metadata(path).map(|meta| meta.dev()).ok();
        layout(
            device(&paths.node),
            paths.images.as_deref().and_then(device),
            paths.containers.as_deref().and_then(device),
        )
    }
}

fn layout(node: Option<u64>, images: Option<u64>, containers: Option<u64>) -> Layout {
    match (images, containers) {
        (None, _) => Layout::One,
        (images, _) if images == node => Layout::One,
        (_, containers) if containers == node => Layout::Split,
        _ => Layout::Images,
    }
}

fn measurement(available: u64, capacity: u64) -> Measurement {
    let number = |value: u64| i64::try_from(value).unwrap_or(i64::MAX);
    Measurement { available: number(available), capacity: number(capacity) }
}

impl System {
    /// The available allocatable memory; None if it is not limited.
    fn allocatable_memory(&self, group: &str) -> Option<Measurement> {
        let mount = self.0.join("sys/fs/cgroup");
        let group = group.trim_start_matches('/');
        let (dir, names) = match mount.join("cgroup.controllers").exists() {
            true => (mount.join(group), ["memory.max", "memory.current", "inactive_file"]),
            false => {
                let dir = mount.join("memory").join(group);
                (dir, ["memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"])
            }
        };
        let text = |name: &str| std::fs::read_to_string(dir.join(name)).ok();
        let number = |name: &str| text(name)?.trim().parse::<u64>().ok();
        let (limit, used) = (number(names[0])?, number(names[1])?);
        let stat = text("memory.stat").unwrap_or_default();
        let inactive = stat.lines().find_map(|line| line.strip_prefix(names[2])?.trim().parse::<u64>().ok());
        let working_set = used.saturating_sub(inactive.unwrap_or(0));
        (limit < UNLIMITED).then(|| measurement(limit.saturating_sub(working_set), limit))
    }
}

/// From here on the first version of cgroups means no limit at all.
const UNLIMITED: u64 = 1 << 62;

#[cfg(test)]
mod tests {
    use super::*;

    fn write(root: &Path, files: &[(&str, &str)]) {
        for (path, text) in files {
            let path = root.join(path);
            std::fs::create_dir_all(path.parent().expect("a directory")).expect("a directory");
            std::fs::write(path, text).expect("a file");
        }
    }

    fn look(files: &[(&str, &str)]) -> Measurements {
        let dir = tempfile::tempdir().expect("a directory");
        write(dir.path(), files);
        let paths = Paths { node: "/nonexistent".into(), group: "/kubepods".to_string(), ..Paths::default() };
        System(dir.path().to_path_buf()).measure(&paths)
    }

    #[test]
    fn reads_memory_and_processes() {
        let seen = look(&[
            ("proc/meminfo", "MemTotal: 1000 kB\nMemFree: 200 kB\nInactive(file): 300 kB\n"),
            ("proc/sys/kernel/pid_max", "32768\n"),
            ("proc/sys/kernel/threads-max", "1000\n"),
            ("proc/loadavg", "0.00 0.01 0.05 2/345 6789\n"),
        ]);
        let want = [(Signal::Memory, measurement(500 << 10, 1000 << 10)), (Signal::Pid, measurement(655, 1000))];
        assert_eq!(seen, Measurements::from(want));
        assert!(look(&[]).is_empty());
    }

    #[test]
    fn reads_allocatable_memory_of_both_cgroup_versions() {
        let first = |limit: &'static str| {
            look(&[
                ("sys/fs/cgroup/memory/kubepods/memory.limit_in_bytes", limit),
                ("sys/fs/cgroup/memory/kubepods/memory.usage_in_bytes", "600\n"),
                ("sys/fs/cgroup/memory/kubepods/memory.stat", "inactive_file 1\ntotal_inactive_file 100\n"),
            ])
        };
        assert_eq!(first("2000\n"), Measurements::from([(Signal::AllocatableMemory, measurement(1500, 2000))]));
        assert!(first("9223372036854771712\n").is_empty());
        let second = |limit: &'static str| {
            look(&[
                ("sys/fs/cgroup/cgroup.controllers", "memory\n"),
                ("sys/fs/cgroup/kubepods/memory.max", limit),
                ("sys/fs/cgroup/kubepods/memory.current", "600\n"),
                ("sys/fs/cgroup/kubepods/memory.stat", "anon 5\ninactive_file 100\n"),
            ])
        };
        assert_eq!(second("2000\n"), Measurements::from([(Signal::AllocatableMemory, measurement(1500, 2000))]));
        assert!(second("max\n").is_empty());
    }

    #[test]
    fn measures_the_disk_of_this_machine() {
        let paths = Paths { node: "/".into(), images: Some("/".into()), ..Paths::default() };
        let seen = System::default().measure(&paths);
        assert!(seen.get(&Signal::NodeFs).is_some_and(|left| left.capacity > 0), "{seen:?}");
        assert_eq!(
            seen.get(&Signal::NodeFs).map(|left| left.capacity),
            seen.get(&Signal::ImageFs).map(|left| left.capacity)
        );
        assert_eq!(System::default().layout(&paths), Layout::One);
    }

    #[test]
    fn distinguishes_disks_by_device() {
        assert_eq!(layout(Some(1), None, None), Layout::One);
        assert_eq!(layout(Some(1), Some(1), Some(1)), Layout::One);
        assert_eq!(layout(Some(1), Some(2), Some(2)), Layout::Images);
        assert_eq!(layout(Some(1), Some(2), Some(1)), Layout::Split);
    }
}

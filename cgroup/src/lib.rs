//! Cgroups of version 1 or 2, depending on what the machine has for each controller.
//!
//! A path exists below the root of every hierarchy that is used. If cgroup2 is mounted without controllers next to
//! version 1, the path is created there too, because only version 2 can kill a whole tree and report pressure.

#![warn(unreachable_pub)]

mod error;
pub mod limits;
mod resources;
pub mod stats;

use std::fs;
use std::io::{self, ErrorKind};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};

use error::{Context, refused};
pub use error::{Error, Result};
use limits::Write;
pub use resources::Resources;

/// The v1 controllers for limits, statistics and devices; processes stay in the parent's cgroup of all others.
const USED: [&str; 7] = ["cpu", "cpuacct", "cpuset", "memory", "devices", "pids", "hugetlb"];
const DELEGATED: &str = "+cpu +cpuset +memory +pids +io +hugetlb";

/// The mounted cgroup hierarchies of this machine.
#[derive(Clone, Debug, Default)]
pub struct Hierarchies {
    v1: Vec<Hierarchy>,
    v2: Option<PathBuf>,
    /// Hierarchies that only other runtimes use; what they leave there is removed too.
    others: Vec<PathBuf>,
}

#[derive(Clone, Debug)]
struct Hierarchy {
    controllers: Vec<String>,
    root: PathBuf,
}

/// Advice for a user of a machine without cgroups.
const NOT_MOUNTED: &str = "no cgroup file system is mounted, so that this machine cannot run pods: mount one (mount -t \
                           cgroup2 none /sys/fs/cgroup)";

impl Hierarchies {
    /// Detects the mounted hierarchies.
    pub fn detect() -> Result<Hierarchies> {
        let table = fs::read_to_string("/proc/self/mounts").context(|| "reading the mounts".to_string())?;
        Hierarchies::of_mounts(&table)
    }

    fn of_mounts(table: &str) -> Result<Hierarchies> {
        let found = Hierarchies::parse(table);
        if found.v1.is_empty() && found.v2.is_none() {
            return refused(NOT_MOUNTED);
        }
        Ok(found)
    }

    fn parse(table: &str) -> Hierarchies {
        let mut found = Hierarchies::default();
        for line in table.lines() {
            let fields: Vec<_> = line.split(' ').collect();
            let [_, root, kind, options, ..] = fields[..] else { continue };
            match kind {
                "cgroup" => found.add_v1(root, options),
                "cgroup2" if found.v2.is_none() => found.v2 = Some(PathBuf::from(root)),
                _ => {}
            }
        }
        found
    }

    fn add_v1(&mut self, root: &str, options: &str) {
        let controllers: Vec<_> = options.split(',').filter(|o| USED.contains(o)).map(str::to_string).collect();
        let known = self.v1.iter().any(|h| controllers.iter().any(|c| h.controllers.contains(c)));
        match (controllers.is_empty(), known) {
            (true, _) => self.others.push(PathBuf::from(root)),
            (false, false) => self.v1.push(Hierarchy { controllers, root: PathBuf::from(root) }),
            (false, true) => {}
        }
    }

    /// Whether the machine only has version 2.
    pub fn unified_only(&self) -> bool {
        self.v1.is_empty()
    }

    fn controller(&self, name: &str) -> Option<&Path> {
        self.v1.iter().find(|h| h.controllers.iter().any(|c| c == name)).map(|h| h.root.as_path())
    }

    /// The directories of a path in all v1 hierarchies, with the names of the hierarchies.
    pub fn directories(&self, path: &str) -> Vec<(String, PathBuf)> {
        self.v1.iter().map(|h| (h.controllers.join(","), below(&h.root, path))).collect()
    }

    /// The directories of a path in all hierarchies that limits are set in.
    pub fn roots(&self, path: &str) -> Vec<PathBuf> {
        self.all(path)
    }

    fn all(&self, path: &str) -> Vec<PathBuf> {
        let v1 = self.v1.iter().map(|h| &h.root);
        v1.chain(self.v2.as_ref()).map(|root| below(root, path)).collect()
    }

    /// Creates the cgroup in all hierarchies, with its parents.
    pub fn create(&self, path: &str) -> Result<()> {
        for hierarchy in &self.v1 {
            let cpuset = hierarchy.controllers.iter().any(|c| c == "cpuset");
            create(&hierarchy.root, path, |directory| if cpuset { inherit_cpuset(directory) } else { Ok(()) })?;
        }
        if let Some(root) = &self.v2 {
            let delegate = self.unified_only();
            create(root, path, |directory| {
                if delegate && let Some(parent) = directory.parent() {
                    delegate_controllers(parent);
                }
                Ok(())
            })?;
        }
        Ok(())
    }

    /// Sets limits. Limits that the machine lacks, and that do not matter for security, are returned as warnings.
    pub fn update(&self, path: &str, resources: &Resources) -> Result<Vec<String>> {
        let writes = if self.unified_only() { limits::v2(resources) } else { limits::v1(resources)? };
        let (writes, missing): (Vec<_>, Vec<_>) = writes.into_iter().partition(|write| self.has(path, write));
        for write in &writes {
            self.write(path, write)?;
        }
        let warnings = missing.iter().flat_map(|write| &write.values);
        Ok(warnings
            .map(|(file, value)| format!("{file} {value} is not set: the machine has no controller for huge pages"))
            .collect())
    }

    /// Clients set a limit for every size of huge pages, even if there is no controller for them.
    fn has(&self, path: &str, write: &Write) -> bool {
        let there = |(file, _): &(String, String)| self.file(write.controller, path, file).is_some_and(|f| f.exists());
        write.controller != "hugetlb" || write.values.iter().all(there)
    }

    /// Two limits that constrain each other are tried in both orders: the right one depends on the old values.
    fn write(&self, path: &str, write: &Write) -> Result<()> {
        let Some(root) = self.controller(write.controller).or(self.v2.as_deref().filter(|_| self.unified_only()))
        else {
            return refused(format!("the machine has no {} controller", write.controller));
        };
        let directory = below(root, path);
        let put = |(file, value): &(String, String)| {
            let path = directory.join(file);
            fs::write(&path, value).context(|| format!("writing {value} to {}", path.display()))
        };
        let optional = |(file, _): &&(String, String)| !write.optional || directory.join(file).exists();
        let values: Vec<_> = write.values.iter().filter(optional).collect();
        if values.iter().try_for_each(|v| put(v)).is_err() {
            return values.iter().rev().try_for_each(|v| put(v)).and_then(|()| values.iter().try_for_each(|v| put(v)));
        }
        Ok(())
    }

    /// The directory of a path in the hierarchy of a v1 controller.
    pub fn in_v1(&self, controller: &str, path: &str) -> Option<PathBuf> {
        self.controller(controller).map(|root| below(root, path))
    }

    /// The directory of a path in version 2.
    pub fn in_v2(&self, path: &str) -> Option<PathBuf> {
        self.v2.as_ref().map(|root| below(root, path))
    }

    /// The existing v2 cgroup of a path, to fork a child directly into it. The child calls `join_v1` for the v1 hierarchies.
    pub fn entry(&self, path: &str) -> Result<Option<OwnedFd>> {
        let Some(root) = &self.v2 else { return Ok(None) };
        let directory = below(root, path);
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let opened = rustix::fs::open(&directory, flags, Mode::empty());
        opened.context(|| format!("opening {}", directory.display())).map(Some)
    }

    /// Moves this process, which must be single-threaded, in all v1 hierarchies. Moving a process waits until every CPU has
    /// passed through the scheduler; moving a single thread does not wait.
    pub fn join_v1(&self, path: &str) -> Result<()> {
        for (_, directory) in self.directories(path) {
            let file = directory.join("tasks");
            fs::write(&file, "0").context(|| format!("entering {}", file.display()))?;
        }
        Ok(())
    }

    /// Moves this single-threaded process in all hierarchies.
    pub fn join(&self, path: &str) -> Result<()> {
        self.join_v1(path)?;
        let Some(root) = &self.v2 else { return Ok(()) };
        let file = below(root, path).join("cgroup.procs");
        fs::write(&file, "0").context(|| format!("entering {}", file.display()))
    }

    /// Kills every process below the path.
    pub fn kill(&self, path: &str) {
        let whole = self.v2.as_ref().map(|root| below(root, path).join("cgroup.kill"));
        if whole.is_none_or(|file| fs::write(file, "1").is_err()) {
            self.kill_each(path);
        }
    }

    /// Kills the processes one by one: some may not be in the cgroup of version 2.
    fn kill_each(&self, path: &str) {
        for pid in self.processes(path).into_iter().filter_map(rustix::process::Pid::from_raw) {
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
        }
    }

    /// The processes below the path, in any hierarchy.
    pub fn processes(&self, path: &str) -> std::collections::BTreeSet<i32> {
        let mut pids = std::collections::BTreeSet::new();
        for directory in self.all(path) {
            processes_below(&directory, &mut pids);
        }
        pids
    }

    /// The names of the cgroups directly below the path, in any hierarchy.
    pub fn children(&self, path: &str) -> std::collections::BTreeSet<String> {
        let directories = self.all(path).into_iter().flat_map(|directory| children(&directory));
        directories.filter_map(|directory| Some(directory.file_name()?.to_str()?.to_string())).collect()
    }

    /// Whether the cgroup exists in every hierarchy.
    pub fn has_group(&self, path: &str) -> bool {
        self.all(path).iter().all(|directory| directory.is_dir())
    }

    /// Removes the cgroup after its last process has exited. Processes that are left are killed.
    pub fn remove_when_empty(&self, path: &str, timeout: std::time::Duration) -> Result<()> {
        let give_up = std::time::Instant::now() + timeout;
        loop {
            match self.remove(path) {
                Err(error) if std::time::Instant::now() >= give_up => return Err(error),
                Err(_) => {
                    self.kill(path);
                    self.kill_each(path);
                    // Version 1 has no notification for empty cgroups, so this has to poll.
                    let moment = rustix::time::Timespec { tv_sec: 0, tv_nsec: 2_000_000 };
                    let _ = rustix::event::poll(&mut [], Some(&moment));
                }
                Ok(()) => return Ok(()),
            }
        }
    }

    /// Removes the cgroup and all below it. It need not exist; it is an error if it has processes.
    pub fn remove(&self, path: &str) -> Result<()> {
        let others = self.others.iter().map(|root| below(root, path));
        self.all(path).into_iter().chain(others).try_for_each(|directory| {
            remove_tree(&directory).context(|| format!("removing the cgroup {}", directory.display()))
        })
    }
}

/// `path` must not leave the hierarchy, because it comes from the pod.
fn below(root: &Path, path: &str) -> PathBuf {
    let parts = path.split('/').filter(|p| !p.is_empty() && *p != "." && *p != "..");
    parts.fold(root.to_path_buf(), |directory, part| directory.join(part))
}

fn create(root: &Path, path: &str, prepare: impl Fn(&Path) -> Result<()>) -> Result<()> {
    let whole = below(root, path);
    let mut directory = root.to_path_buf();
    for part in whole.strip_prefix(root).unwrap_or(&whole) {
        directory.push(part);
        match fs::create_dir(&directory) {
            Ok(()) => prepare(&directory)?,
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error).context(|| format!("creating the cgroup {}", directory.display())),
        }
    }
    Ok(())
}

/// A new v1 cpuset is empty, and no process can enter it until CPUs and memory nodes are set.
fn inherit_cpuset(directory: &Path) -> Result<()> {
    let Some(parent) = directory.parent() else { return Ok(()) };
    for file in ["cpuset.cpus", "cpuset.mems"] {
        let value = fs::read_to_string(parent.join(file)).context(|| format!("reading {file}"))?;
        fs::write(directory.join(file), value).context(|| format!("writing {file}"))?;
    }
    Ok(())
}

/// One by one, because the kernel refuses the whole list if one controller is missing.
fn delegate_controllers(directory: &Path) {
    for controller in DELEGATED.split(' ') {
        let _ = fs::write(directory.join("cgroup.subtree_control"), controller);
    }
}

fn processes_below(directory: &Path, pids: &mut std::collections::BTreeSet<i32>) {
    let text = fs::read_to_string(directory.join("cgroup.procs")).unwrap_or_default();
    pids.extend(text.lines().filter_map(|line| line.parse::<i32>().ok()));
    for child in children(directory) {
        processes_below(&child, pids);
    }
}

fn children(directory: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    entries.filter(|e| e.file_type().is_ok_and(|t| t.is_dir())).map(|e| e.path()).collect()
}

fn remove_tree(directory: &Path) -> io::Result<()> {
    for child in children(directory) {
        remove_tree(&child)?;
    }
    match fs::remove_dir(directory) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// The cgroup path of a CRI client: a plain path, or a systemd slice whose dashes are levels.
pub fn parent_path(parent: &str) -> String {
    let name = parent.trim_matches('/');
    let Some(stem) = name.strip_suffix(".slice").filter(|_| !name.contains('/')) else {
        return format!("/{name}");
    };
    let parts: Vec<_> = stem.split('-').collect();
    (1..=parts.len()).fold(String::new(), |path, n| format!("{path}/{}.slice", parts[..n].join("-")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_how_to_mount_missing_cgroups() {
        for mounts in ["", "none /sys/fs/cgroup tmpfs rw 0 0\nproc /proc proc rw 0 0\n"] {
            let error = Hierarchies::of_mounts(mounts).expect_err("no hierarchy").to_string();
            for part in ["no cgroup file system is mounted", "mount -t cgroup2"] {
                assert!(error.contains(part), "{error}");
            }
        }
        Hierarchies::of_mounts("none /sys/fs/cgroup cgroup2 rw 0 0\n").expect("a hierarchy");
    }

    #[test]
    fn parses_hierarchies_of_both_versions() {
        let hybrid = "cgroup /c/cpu,cpuacct cgroup rw,cpu,cpuacct 0 0\ncgroup /c/net cgroup rw,net_cls 0 0\n\
            cgroup /c/memory cgroup rw,memory 0 0\ncgroup2 /c/unified cgroup2 rw 0 0\n";
        let found = Hierarchies::parse(hybrid);
        assert_eq!(found.directories("/pod/a")[0], ("cpu,cpuacct".into(), "/c/cpu,cpuacct/pod/a".into()));
        assert_eq!(found.all("x").len(), 3);
        assert!(!found.unified_only());
        assert!(Hierarchies::parse("cgroup2 /sys/fs/cgroup cgroup2 rw 0 0").unified_only());
    }

    #[test]
    fn paths_stay_below_their_root() {
        assert_eq!(below(Path::new("/c"), "/../../etc/./x"), Path::new("/c/etc/x"));
        assert_eq!(below(Path::new("/c"), ""), Path::new("/c"));
    }

    #[test]
    fn slices_are_levels() {
        assert_eq!(parent_path("/kubepods/pod1"), "/kubepods/pod1");
        assert_eq!(parent_path("a-b.slice"), "/a.slice/a-b.slice");
        assert_eq!(parent_path("/a/b.slice"), "/a/b.slice");
    }
}

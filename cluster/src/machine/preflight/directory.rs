//! Whether a directory can hold the data of a cluster or of a node.

use std::fs::{self, Metadata};
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::io::Errno;

use super::refusal::{self, Confinement};
use super::version::DataVersion;
use super::{Finding, Role, Verdict, finding};

/// A new cluster needs as much for its store, its log and its certificates.
const LEAST_DISK: u64 = 64 << 20;
const LITTLE_DISK: u64 = 2 << 30;
/// Certificates created by a clock before this one would be invalid for others: 2025-01-01.
pub(super) const EARLIEST: u64 = 1_735_689_600;
/// How far behind its certificates a clock may be: the first one that notices more is TLS.
const CLOCK_SLACK: Duration = Duration::from_secs(24 * 3600);
/// Entries whose owner can act as the cluster, or as its node.
const SECRETS: [&str; 5] = ["pki", "store", "cluster-id", "kubelet.conf", "lock"];
/// Files of other programs.
const FOREIGN: [(&str, &str); 2] = [("member/wal", "etcd"), ("server/db", "k3s")];

/// What is known of a directory.
pub(crate) struct DirectoryFacts {
    pub(super) path: PathBuf,
    pub(super) user: u32,
    /// What belongs to another user, and to which.
    pub(super) other_owner: Option<(PathBuf, u32)>,
    /// The program of files that are not those of tiphys.
    pub(super) program: Option<&'static str>,
    /// Whose data it has.
    pub(super) role: Option<Role>,
    pub(super) version: DataVersion,
    /// Whether a file could be written.
    pub(super) writes: Result<(), Errno>,
    pub(super) confinement: Option<Confinement>,
    /// Free bytes of the disk.
    pub(super) disk: u64,
    pub(super) has_inodes: bool,
    pub(super) now: SystemTime,
    /// When the newest certificate was written.
    pub(super) newest: Option<SystemTime>,
}

impl DirectoryFacts {
    pub(crate) fn collect(path: &Path) -> Result<DirectoryFacts, Errno> {
        let stat = rustix::fs::statvfs(path)?;
        let user = rustix::process::geteuid().as_raw();
        Ok(DirectoryFacts {
            path: path.to_path_buf(),
            user,
            other_owner: other_owner(path, user),
            program: FOREIGN.iter().find(|(file, _)| path.join(file).exists()).map(|(_, program)| *program),
            role: role(path),
            version: DataVersion::read(path),
            writes: probe(path),
            confinement: Confinement::collect(),
            disk: stat.f_bavail.saturating_mul(stat.f_frsize),
            // Some file systems have no fixed number of them.
            has_inodes: stat.f_files == 0 || stat.f_favail > 0,
            now: SystemTime::now(),
            newest: newest(&path.join("pki")),
        })
    }

    /// The findings, in the order in which they explain each other.
    pub(crate) fn judge(&self, role: Option<Role>) -> Vec<Finding> {
        vec![self.owner(), self.contents(role), self.disk(), self.clock(), self.confinement()]
    }

    fn owner(&self) -> Finding {
        const WHAT: &str = "directory owner";
        let user = self.user;
        match &self.other_owner {
            None => finding(WHAT, Verdict::Ok, format!("user {user}")),
            Some((path, owner)) if user == 0 => {
                let path = path.display();
                let why = format!(
                    "{path} belongs to user {owner}, who can replace the keys of the cluster: `chown -R root {path}` \
                     prevents it"
                );
                finding(WHAT, Verdict::Warning, why)
            }
            Some((path, owner)) => {
                let why = format!(
                    "{} belongs to user {owner}, and this is user {user}: start the command as that user, or choose another \
                     --data-dir or --name",
                    path.display()
                );
                finding(WHAT, Verdict::Failed, why)
            }
        }
    }

    fn contents(&self, role: Option<Role>) -> Finding {
        match self.wrong_contents(role) {
            Some(why) => finding("directory contents", Verdict::Failed, why),
            None => finding("directory contents", Verdict::Ok, self.role.map_or("new", Role::describe)),
        }
    }

    fn wrong_contents(&self, role: Option<Role>) -> Option<String> {
        let dir = self.path.display();
        if let Some(program) = self.program {
            return Some(format!("{dir} has the data of {program}: choose another --data-dir"));
        }
        match (self.role, role) {
            (Some(Role::Agent), Some(Role::Server)) => Some(format!(
                "{dir} belongs to a node that `tiphys agent` has joined to a cluster: choose another --data-dir, or remove \
                 the node with `tiphys reset --data-dir {dir}`"
            )),
            (Some(Role::Server), Some(Role::Agent)) => Some(format!(
                "{dir} has a cluster of its own, and the node of another one needs its own directory: choose another \
                 --data-dir"
            )),
            _ => self.version.refusal(&self.path),
        }
    }

    fn disk(&self) -> Finding {
        const WHAT: &str = "disk";
        let (dir, shown) = (self.path.display(), format!("{} MiB free", self.disk >> 20));
        if let Err(error) = self.writes {
            let why = refusal::explain(&self.path, error, self.user, self.confinement.as_ref());
            return finding(WHAT, Verdict::Failed, why);
        }
        if !self.has_inodes {
            let why = format!("the disk of {dir} has no free inodes: delete files there, or choose another --data-dir");
            return finding(WHAT, Verdict::Failed, why);
        }
        match self.disk {
            // A cluster that has filled its disk starts, so that objects and pods can be deleted.
            bytes if bytes < LEAST_DISK && self.role.is_none() => {
                let why = format!(
                    "the disk of {dir} has {shown}, and a cluster needs {} MiB: delete files there, or choose another \
                     --data-dir",
                    LEAST_DISK >> 20
                );
                finding(WHAT, Verdict::Failed, why)
            }
            bytes if bytes < LITTLE_DISK => {
                let why = format!(
                    "the disk of {dir} has {shown}: pods are evicted when less than 1 GiB is left, delete files"
                );
                finding(WHAT, Verdict::Warning, why)
            }
            _ => finding(WHAT, Verdict::Ok, shown),
        }
    }

    fn clock(&self) -> Finding {
        const WHAT: &str = "clock";
        const HOW: &str = "set it, for example with `timedatectl set-ntp true`";
        let now = self.now.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        let shown = |seconds: u64| api::time::format_seconds(i64::try_from(seconds).unwrap_or(i64::MAX));
        if now < EARLIEST {
            let why = format!("the clock of this machine is at {}, in the past: {HOW}", shown(now));
            return finding(WHAT, Verdict::Failed, why);
        }
        match self.newest.filter(|newest| self.now + CLOCK_SLACK < *newest) {
            Some(newest) => {
                let newest = newest.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
                let why = format!(
                    "the clock of this machine is at {}, before {} of the certificates in {}/pki, which are not valid yet: \
                     {HOW}",
                    shown(now),
                    shown(newest),
                    self.path.display()
                );
                finding(WHAT, Verdict::Failed, why)
            }
            None => finding(WHAT, Verdict::Ok, "plausible"),
        }
    }

    fn confinement(&self) -> Finding {
        match &self.confinement {
            None => finding("security modules", Verdict::Ok, "neither SELinux nor AppArmor confines this process"),
            Some(confinement) => finding("security modules", Verdict::Warning, confinement.explain()),
        }
    }
}

/// The user's own `.` may be a link to a directory of another one: metadata are those of the target.
fn other_owner(path: &Path, user: u32) -> Option<(PathBuf, u32)> {
    let paths = std::iter::once(path.to_path_buf()).chain(SECRETS.iter().map(|name| path.join(name)));
    let owner = |path: PathBuf| fs::metadata(&path).ok().map(|found| (path, found.uid()));
    let mut others = paths.filter_map(owner).filter(|(_, owner)| *owner != user);
    // A directory that several users may write to, such as /tmp, is no data directory.
    others.find(|(found, _)| found != path || !is_shared(path))
}

fn is_shared(path: &Path) -> bool {
    const STICKY: u32 = 0o1000;
    fs::metadata(path).is_ok_and(|found| found.mode() & STICKY != 0)
}

fn role(path: &Path) -> Option<Role> {
    let has = |name: &str| path.join(name).exists();
    match (has("pki/ca.key") || has("store") || has("server.json"), has("servers.json")) {
        (true, _) => Some(Role::Server),
        (false, true) => Some(Role::Agent),
        (false, false) => None,
    }
}

fn probe(dir: &Path) -> Result<(), Errno> {
    let path = dir.join(format!(".tiphys-check-{}", std::process::id()));
    let write = || -> io::Result<()> {
        let mut file = fs::OpenOptions::new().write(true).create_new(true).open(&path)?;
        file.write_all(&[0; 4096])
    };
    let written = write();
    let _ = fs::remove_file(&path);
    written.map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))
}

fn newest(dir: &Path) -> Option<SystemTime> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.metadata().as_ref().map(Metadata::modified).ok()?.ok()).max()
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A directory without findings.
    pub(crate) fn suitable() -> DirectoryFacts {
        DirectoryFacts {
            path: "/d".into(),
            user: 0,
            other_owner: None,
            program: None,
            role: None,
            version: DataVersion::Unknown,
            writes: Ok(()),
            confinement: None,
            disk: 50 << 30,
            has_inodes: true,
            now: UNIX_EPOCH + Duration::from_secs(EARLIEST + 1),
            newest: None,
        }
    }

    fn check(change: impl Fn(&mut DirectoryFacts), verdict: Verdict, want: &str) {
        let mut facts = suitable();
        change(&mut facts);
        let findings = facts.judge(Some(Role::Server));
        let wrong: Vec<&Finding> = findings.iter().filter(|finding| finding.verdict != Verdict::Ok).collect();
        assert_eq!(wrong.len(), 1, "{wrong:?}");
        assert!(wrong[0].verdict == verdict && wrong[0].detail.contains(want), "{want}: {wrong:?}");
        assert!(wrong[0].detail.contains(": ") && !wrong[0].detail.contains('\n'), "what to do: {wrong:?}");
    }

    #[test]
    fn each_problem_is_one_sentence() {
        assert!(suitable().judge(None).iter().all(|finding| finding.verdict == Verdict::Ok));
        let pki = || Some((PathBuf::from("/d/pki"), 7));
        check(|facts| facts.other_owner = pki(), Verdict::Warning, "chown -R root /d/pki");
        let user = |facts: &mut DirectoryFacts| (facts.user, facts.other_owner) = (1000, pki());
        check(user, Verdict::Failed, "/d/pki belongs to user 7, and this is user 1000");
        check(|facts| facts.program = Some("etcd"), Verdict::Failed, "the data of etcd");
        check(|facts| facts.role = Some(Role::Agent), Verdict::Failed, "`tiphys reset --data-dir /d`");
        let newer = DataVersion::Known { format: 9, writer: "9.8.7".to_string() };
        check(|facts| facts.version = newer.clone(), Verdict::Failed, "start tiphys 9.8.7");
        check(|facts| facts.writes = Err(Errno::ROFS), Verdict::Failed, "read-only");
        check(|facts| facts.has_inodes = false, Verdict::Failed, "no free inodes");
        check(|facts| facts.disk = 1 << 20, Verdict::Failed, "1 MiB free, and a cluster needs 64 MiB");
        check(|facts| (facts.disk, facts.role) = (1 << 20, Some(Role::Server)), Verdict::Warning, "1 MiB free");
        check(|facts| facts.disk = 1 << 30, Verdict::Warning, "1024 MiB free");
        check(|facts| facts.now = UNIX_EPOCH, Verdict::Failed, "1970-01-01T00:00:00Z, in the past");
        let later = |facts: &mut DirectoryFacts| facts.newest = Some(facts.now + Duration::from_secs(25 * 3600));
        check(later, Verdict::Failed, "before 2025-01-02T01:00:01Z of the certificates in /d/pki");
        let confined = Confinement::SeLinux("container_t".to_string());
        check(|facts| facts.confinement = Some(confined.clone()), Verdict::Warning, "SELinux confines");
    }

    #[test]
    fn clocks_may_be_hours_behind() {
        let facts = suitable();
        let newest = Some(facts.now + Duration::from_secs(23 * 3600));
        let facts = DirectoryFacts { newest, ..facts };
        assert!(facts.judge(None).iter().all(|finding| finding.verdict == Verdict::Ok));
    }

    #[test]
    fn directories_are_recognized_by_their_files() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path();
        let check = |entry: &str, want: Option<Role>, program: Option<&str>| {
            fs::create_dir_all(path.join(entry)).expect("a directory");
            let facts = DirectoryFacts::collect(path).expect("facts");
            assert_eq!((facts.role, facts.program), (want, program), "{entry}");
            assert_eq!((facts.writes, facts.other_owner), (Ok(()), None), "{entry}");
            assert!(!path.join(format!(".tiphys-check-{}", std::process::id())).exists(), "nothing is left");
        };
        check("other", None, None);
        check("servers.json", Some(Role::Agent), None);
        check("pki/ca.key", Some(Role::Server), None);
        check("member/wal", Some(Role::Server), Some("etcd"));
        assert!(DirectoryFacts::collect(path).expect("facts").newest.is_some());
        assert!(DirectoryFacts::collect(&path.join("none")).is_err());
    }
}

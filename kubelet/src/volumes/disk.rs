//! The file system of a block device. A file system is created only if the device is empty: existing data is never
//! overwritten.

use std::path::{Path, PathBuf};

use stdx::sync::Mutex;

use super::command::{Command, CommandError};

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Disk {
    pub(crate) device: PathBuf,
    /// The type of the file system; "" for the existing one.
    pub(crate) kind: String,
    pub(crate) options: Vec<String>,
    pub(crate) read_only: bool,
}

/// The content of a device.
#[derive(Debug, Clone, PartialEq, Eq)]
enum DeviceContent {
    Nothing,
    FileSystem(String),
    /// A partition table, or unknown content.
    Other(String),
}

/// A device that cannot be mounted.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DiskError {
    #[error("{device} has {content}, and no file system that could be mounted")]
    Content { device: String, content: String },
    #[error("{0:?} is not the absolute path of a device")]
    NotAbsolute(PathBuf),
    #[error("fsType {0:?} is not the name of a file system")]
    FsType(String),
    #[error("blkid cannot be run: {0}")]
    Blkid(std::io::Error),
    #[error("failed to probe {device}: {output}")]
    Probe { device: String, output: String },
    #[error("cannot mount unformatted disk {0} as we are manipulating it in read-only mode")]
    ReadOnly(String),
    #[error("format of disk {device:?} failed: {source}")]
    Format { device: String, source: CommandError },
    #[error("'fsck' found errors on device {device} but could not correct them: {output}")]
    Fsck { device: String, output: String },
    #[error(transparent)]
    Mount(#[from] CommandError),
}

/// Two pods can use the same device: only one of them creates its file system.
static ALONE: Mutex<()> = Mutex::new(());

/// The file system of an empty device, if the volume names none.
const DEFAULT: &str = "ext4";

impl Disk {
    pub(crate) fn mount(&self, target: &Path) -> Result<(), DiskError> {
        self.check_names()?;
        let _alone = ALONE.lock();
        let device = self.device.display().to_string();
        let kind = match self.read_content()? {
            DeviceContent::FileSystem(kind) => {
                self.check(&device)?;
                if self.kind.is_empty() { kind } else { self.kind.clone() }
            }
            DeviceContent::Nothing => self.format(&device)?,
            DeviceContent::Other(content) => return Err(DiskError::Content { device, content }),
        };
        let mut options = if self.read_only { vec!["ro".to_string()] } else { Vec::new() };
        options.extend(self.options.iter().cloned());
        Ok(Command::mount(&kind, &options, &device, &target.display().to_string()).run()?)
    }

    /// Checks what becomes an argument of programs: a device by its absolute path, and a file system that is a part of
    /// a program's name.
    fn check_names(&self) -> Result<(), DiskError> {
        let is_plain = |c: char| c.is_ascii_alphanumeric() || "_-.".contains(c);
        if !self.device.is_absolute() {
            return Err(DiskError::NotAbsolute(self.device.clone()));
        }
        if self.kind.starts_with('-') || !self.kind.chars().all(is_plain) {
            return Err(DiskError::FsType(self.kind.clone()));
        }
        Ok(())
    }

    fn read_content(&self) -> Result<DeviceContent, DiskError> {
        let device = self.device.display().to_string();
        let arguments = ["-p", "-s", "TYPE", "-s", "PTTYPE", "-o", "export", &device].map(str::to_string).to_vec();
        let output = Command { program: "blkid", arguments }.output();
        let output = output.map_err(DiskError::Blkid)?;
        let found = parse_blkid(output.status.code(), &String::from_utf8_lossy(&output.stdout));
        found.ok_or_else(|| DiskError::Probe { device, output: trimmed(&output.stderr) })
    }

    /// Creates a file system. Returns its type.
    fn format(&self, device: &str) -> Result<String, DiskError> {
        if self.read_only {
            return Err(DiskError::ReadOnly(device.to_string()));
        }
        let kind = if self.kind.is_empty() { DEFAULT } else { &self.kind };
        tracing::info!(device, kind, "formatting device without file system");
        let made = mkfs_command(kind, device).run();
        made.map_err(|source| DiskError::Format { device: device.to_string(), source })?;
        Ok(kind.to_string())
    }

    /// Repairs what can be repaired automatically.
    fn check(&self, device: &str) -> Result<(), DiskError> {
        /// `fsck` has left errors as they were.
        const UNCORRECTED: i32 = 4;
        if self.read_only {
            return Ok(());
        }
        let output = Command { program: "fsck", arguments: vec!["-a".to_string(), device.to_string()] }.output();
        match output {
            Ok(output) if output.status.code() == Some(UNCORRECTED) => {
                Err(DiskError::Fsck { device: device.to_string(), output: trimmed(&output.stdout) })
            }
            // fsck is missing, or does not know the file system: the kernel decides.
            _ => Ok(()),
        }
    }
}

fn trimmed(output: &[u8]) -> String {
    String::from_utf8_lossy(output).trim_end().to_string()
}

/// `mkfs.KIND`, without questions.
fn mkfs_command(kind: &str, device: &str) -> Command {
    let arguments: &[&str] = match kind {
        "ext3" | "ext4" => &["-F", "-m0"],
        "xfs" => &["-f"],
        _ => &[],
    };
    let program = format!("mkfs.{kind}");
    let arguments = std::iter::once(program.as_str()).chain(arguments.iter().copied()).chain([device]);
    Command { program: "env", arguments: arguments.map(str::to_string).collect() }
}

/// The result of `blkid`; None if it has failed.
fn parse_blkid(code: Option<i32>, printed: &str) -> Option<DeviceContent> {
    let of = |key: &str| printed.lines().find_map(|line| line.strip_prefix(key)).map(str::to_string);
    match (code, of("TYPE="), of("PTTYPE=")) {
        (Some(2), ..) => Some(DeviceContent::Nothing),
        (Some(0), _, Some(table)) => Some(DeviceContent::Other(format!("a table of partitions ({table})"))),
        (Some(0), Some(kind), None) => Some(DeviceContent::FileSystem(kind)),
        (Some(0), None, None) => Some(DeviceContent::Other("something unknown".to_string())),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::super::mount_namespace;
    use super::*;

    #[test]
    fn rejects_names_that_look_like_options() {
        let check = |device: &str, kind: &str, is_good: bool| {
            let disk = Disk { device: device.into(), kind: kind.into(), options: Vec::new(), read_only: false };
            assert_eq!(disk.check_names().is_ok(), is_good, "{device} {kind}");
        };
        check("/dev/sdb", "", true);
        check("/dev/sdb", "ext4", true);
        check("--version", "ext4", false);
        check("sdb", "ext4", false);
        check("/dev/sdb", "x=1", false);
        check("/dev/sdb", "/../../tmp/evil", false);
        check("/dev/sdb", "-V", false);
        check("/dev/sdb", "ext4 ", false);
    }

    #[test]
    fn formats_only_empty_devices() {
        let cases = [
            (Some(2), "", Some(DeviceContent::Nothing)),
            (Some(0), "DEVNAME=/dev/x\nTYPE=xfs\n", Some(DeviceContent::FileSystem("xfs".into()))),
            (Some(0), "DEVNAME=/dev/x\nPTTYPE=gpt\n", Some(DeviceContent::Other("a table of partitions (gpt)".into()))),
            (Some(0), "DEVNAME=/dev/x\n", Some(DeviceContent::Other("something unknown".into()))),
            (Some(8), "", None),
            (None, "", None),
        ];
        for (code, printed, wanted) in cases {
            assert_eq!(parse_blkid(code, printed), wanted, "{code:?} {printed}");
        }
        let shown = |kind: &str| mkfs_command(kind, "/dev/x").arguments.join(" ");
        assert_eq!(shown("ext4"), "mkfs.ext4 -F -m0 /dev/x");
        assert_eq!((shown("xfs"), shown("vfat")), ("mkfs.xfs -f /dev/x".into(), "mkfs.vfat /dev/x".into()));
    }

    /// A device that is removed with the test.
    struct Loop(String);

    impl Loop {
        fn of(file: &Path) -> Loop {
            let output = std::process::Command::new("losetup").args(["--find", "--show"]).arg(file).output().unwrap();
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
            Loop(String::from_utf8_lossy(&output.stdout).trim_end().to_string())
        }
    }

    impl Drop for Loop {
        fn drop(&mut self) {
            let _ = std::process::Command::new("losetup").args(["--detach", &self.0]).status();
        }
    }

    #[test]
    fn formats_a_device_once() {
        if !mount_namespace::is_in_own_mount_namespace("volumes::disk::tests::formats_a_device_once") {
            return;
        }
        let temp = tempfile::tempdir().unwrap();
        let (file, target) = (temp.path().join("disk"), temp.path().join("v"));
        std::fs::File::create(&file).unwrap().set_len(16 << 20).unwrap();
        std::fs::create_dir(&target).unwrap();
        let device = Loop::of(&file);
        let options = vec!["noexec".to_string()];
        let disk =
            |read_only| Disk { device: (&device.0).into(), kind: String::new(), options: options.clone(), read_only };
        let refused = disk(true).mount(&target).unwrap_err();
        assert!(refused.to_string().starts_with("cannot mount unformatted disk"), "{refused}");
        let unmount = || rustix::mount::unmount(&target, rustix::mount::UnmountFlags::empty()).unwrap();
        disk(false).mount(&target).unwrap();
        std::fs::write(target.join("kept"), "x").unwrap();
        let table = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
        assert!(table.lines().any(|line| line.contains(target.to_str().unwrap()) && line.contains("noexec")));
        unmount();
        disk(false).mount(&target).unwrap();
        assert_eq!(std::fs::read_to_string(target.join("kept")).unwrap(), "x", "what was there stays");
        unmount();
        disk(true).mount(&target).unwrap();
        assert!(std::fs::write(target.join("no"), "").is_err());
        unmount();
    }
}

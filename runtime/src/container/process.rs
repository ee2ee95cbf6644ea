//! The last steps before the user's program: its user, capabilities, seccomp profile and executable.

use std::ffi::CString;
use std::path::Path;

use rustix::fs::{Access, AtFlags, CWD, FileType};

use super::rootfs::{Kind, Root};
use super::user::User;
use crate::capabilities;
use crate::error::{Context, Error, Result, refused};
use crate::spec::{ProcessSpec, Rlimit};
use crate::sys;

/// Data of the host's files, read before they become unreachable.
pub(crate) struct HostLookups {
    seccomp: Option<Vec<u8>>,
    label: Option<Label>,
    pub warnings: Vec<String>,
}

/// Reads files that only the host has, and applies settings that only root of the host may change.
pub(crate) fn prepare(process: &ProcessSpec) -> Result<HostLookups> {
    let seccomp = match &process.seccomp {
        Some(path) => Some(std::fs::read(path).context(|| format!("reading {}", path.display()))?),
        None => None,
    };
    let mut warnings = Vec::new();
    if let Some(score) = process.oom_score_adj {
        set_oom_score(score)?;
    }
    for limit in &process.rlimits {
        warnings.extend(set_rlimit(limit)?);
    }
    Ok(HostLookups { seccomp, label: label(process)?, warnings })
}

/// The AppArmor profile or the SELinux label that the program gets on exec.
struct Label {
    file: std::fs::File,
    text: String,
}

/// Opens the kernel's file for it while the host's `/proc` is reachable. A missing file is an error, because the
/// container would run with fewer restrictions than requested.
fn label(process: &ProcessSpec) -> Result<Option<Label>> {
    let (path, text) = match (&process.apparmor, &process.selinux) {
        (None, None) => return Ok(None),
        (Some(profile), None) => ("/proc/self/attr/apparmor/exec", format!("exec {profile}")),
        (None, Some(label)) => ("/proc/self/attr/exec", label.clone()),
        (Some(_), Some(_)) => return refused("an AppArmor profile and a SELinux label cannot be combined"),
    };
    let file = std::fs::File::options().write(true).open(path).context(|| format!("opening {path}"))?;
    Ok(Some(Label { file, text }))
}

/// Without CAP_SYS_RESOURCE the score cannot be lower than the runtime's own, and stays there. The service logs that
/// when it starts.
pub(crate) fn set_oom_score(score: i32) -> Result<()> {
    match std::fs::write("/proc/self/oom_score_adj", score.to_string()) {
        Err(error) if error.kind() != std::io::ErrorKind::PermissionDenied => {
            Err(error).context(|| format!("setting oom_score_adj {score}"))
        }
        _ => Ok(()),
    }
}

fn set_rlimit(limit: &Rlimit) -> Result<Option<String>> {
    let Some(resource) = resource(&limit.name) else {
        return refused(format!("unknown resource limit {:?}", limit.name));
    };
    let desired = rustix::process::Rlimit { current: Some(limit.soft), maximum: Some(limit.hard) };
    match rustix::process::setrlimit(resource, desired) {
        Ok(()) => Ok(None),
        Err(rustix::io::Errno::PERM) => {
            let most = rustix::process::getrlimit(resource).maximum;
            Ok(Some(format!("{} {} is not permitted; the maximum is {most:?}", limit.name, limit.hard)))
        }
        Err(error) => Err(error).context(|| format!("setting {}", limit.name)),
    }
}

fn resource(name: &str) -> Option<rustix::process::Resource> {
    use rustix::process::Resource;
    Some(match name {
        "RLIMIT_NOFILE" => Resource::Nofile,
        "RLIMIT_NPROC" => Resource::Nproc,
        "RLIMIT_CORE" => Resource::Core,
        "RLIMIT_MEMLOCK" => Resource::Memlock,
        "RLIMIT_STACK" => Resource::Stack,
        "RLIMIT_CPU" => Resource::Cpu,
        "RLIMIT_DATA" => Resource::Data,
        "RLIMIT_FSIZE" => Resource::Fsize,
        "RLIMIT_AS" => Resource::As,
        _ => return None,
    })
}

/// Enters the working directory, and creates it if the image lacks it.
pub(crate) fn enter_directory(root: &Root, cwd: &str) -> Result<()> {
    let cwd = if cwd.is_empty() { "/" } else { cwd };
    if !cwd.starts_with('/') {
        return refused(format!("the working directory {cwd:?} is not absolute"));
    }
    let directory = root.ensure(cwd, Kind::Directory)?;
    rustix::process::fchdir(&directory).context(|| format!("entering the working directory {cwd:?}"))
}

/// Drops all privileges that the program must not have. Only the exec may follow.
pub(crate) fn confine(process: &ProcessSpec, user: &User, prepared: &HostLookups) -> Result<()> {
    if let Some(Label { file, text }) = &prepared.label {
        std::io::Write::write_all(&mut &*file, text.as_bytes()).context(|| format!("setting the label {text:?}"))?;
    }
    if process.no_new_privs {
        sys::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0).at("setting no_new_privs")?;
    }
    // Without no_new_privs, loading a filter needs SYS_ADMIN, so it has to happen before that is dropped.
    if !process.no_new_privs {
        load(prepared)?;
    }
    capabilities::limit_bounding(process.capabilities.bounding)?;
    sys::prctl(libc::PR_SET_KEEPCAPS, 1, 0, 0, 0).at("keeping capabilities")?;
    sys::setgroups(&user.groups).at("setting the supplemental groups")?;
    sys::setresgid(user.gid).context(|| format!("becoming group {}", user.gid))?;
    sys::setresuid(user.uid).context(|| format!("becoming user {}", user.uid))?;
    capabilities::apply(&process.capabilities)?;
    if process.no_new_privs {
        load(prepared)?;
    }
    Ok(())
}

fn load(prepared: &HostLookups) -> Result<()> {
    match &prepared.seccomp {
        Some(program) => sys::seccomp_load(program, 0).at("loading the seccomp profile"),
        None => Ok(()),
    }
}

/// Executes the program. Returns only if that failed.
pub(crate) fn run(process: &ProcessSpec, user: &User) -> Error {
    match exec(process, user) {
        Ok(never) => match never {},
        Err(error) => Error::Refused(format!("unable to start container process: {error}")),
    }
}

fn exec(process: &ProcessSpec, user: &User) -> Result<std::convert::Infallible> {
    let Some(name) = process.args.first() else {
        return refused("neither the image nor the container has a command");
    };
    let strings = |list: &mut dyn Iterator<Item = &str>| -> Result<Vec<CString>> {
        list.map(|s| CString::new(s).context(|| format!("{s:?} contains a zero byte"))).collect()
    };
    let home = format!("HOME={}", user.home.as_deref().unwrap_or("/"));
    let lacks_home = !process.env.iter().any(|e| e.starts_with("HOME="));
    let environment = strings(&mut process.env.iter().map(String::as_str).chain(lacks_home.then_some(home.as_str())))?;
    let arguments = strings(&mut process.args.iter().map(String::as_str))?;
    let path = find(name, &process.env)?;
    let path = CString::new(path).at("the program's path")?;
    let error = sys::execve(&path, &arguments, &environment);
    Err(error).context(|| format!("exec {name:?}"))
}

/// Finds an executable as a shell does: a path is used as it is, a name is searched in PATH.
fn find(name: &str, env: &[String]) -> Result<String> {
    if name.contains('/') {
        return match executable(name) {
            Ok(()) => Ok(name.to_string()),
            Err(rustix::io::Errno::NOENT) => refused(format!("exec: {name:?}: stat {name}: no such file or directory")),
            Err(error) => refused(format!("exec: {name:?}: {}", lower(error))),
        };
    }
    let path = env.iter().find_map(|e| e.strip_prefix("PATH=")).unwrap_or_default();
    let mut found_unusable = false;
    for directory in path.split(':') {
        let candidate = if directory.is_empty() { format!("./{name}") } else { format!("{directory}/{name}") };
        match executable(&candidate) {
            Ok(()) => return Ok(candidate),
            Err(rustix::io::Errno::ACCESS) => found_unusable = true,
            Err(_) => {}
        }
    }
    if found_unusable {
        return refused(format!("exec: {name:?}: permission denied"));
    }
    refused(format!("exec: {name:?}: executable file not found in $PATH"))
}

fn executable(path: &str) -> rustix::io::Result<()> {
    let stat = rustix::fs::stat(Path::new(path))?;
    if FileType::from_raw_mode(stat.st_mode) == FileType::Directory {
        return Err(rustix::io::Errno::ISDIR);
    }
    rustix::fs::accessat(CWD, path, Access::EXEC_OK, AtFlags::EACCESS)
}

fn lower(error: rustix::io::Errno) -> &'static str {
    match error {
        rustix::io::Errno::ACCESS => "permission denied",
        rustix::io::Errno::ISDIR => "is a directory",
        rustix::io::Errno::NOTDIR => "not a directory",
        _ => "not executable",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refuses_a_label_that_the_kernel_does_not_support() {
        let process = ProcessSpec { apparmor: Some("mine".into()), ..Default::default() };
        let known = Path::new("/proc/self/attr/apparmor/exec").exists();
        assert_eq!(label(&process).is_ok(), known, "without it the container would have more than it was given");
        assert!(label(&ProcessSpec::default()).unwrap().is_none());
        let both = ProcessSpec { selinux: Some("a:b:c:d".into()), ..process };
        assert!(label(&both).is_err());
    }
}

//! Files that the kubelet writes for containers: their hosts file, termination messages, and symbolic links to their
//! logs.

use std::io::Write;
use std::path::{Path, PathBuf};

use api::Tree;

use super::sync;
use crate::logs::files;
use crate::model::pod;
use crate::model::state::{PodState, Stage, keys};
use crate::pod::context::PodContext;
use crate::pod::cri_config::hostname;
use crate::pod::plan::StartContainer;

/// The limit of a termination message.
const MOST_MESSAGE: usize = 4096;
const MOST_LINES: usize = 80;
const MOST_LOG: u64 = 2048;

/// A file that could not be written.
#[derive(Debug, thiserror::Error)]
#[error("{}: {source}", .path.display())]
pub(crate) struct FileError {
    pub(crate) path: PathBuf,
    pub(crate) source: std::io::Error,
}

/// The mounts of every container besides its volumes: its hosts file, and its termination message.
pub(crate) fn own_mounts(
    context: &PodContext,
    pod: &Tree,
    spec: &Tree,
    addresses: &[String],
    start: &StartContainer,
) -> Result<Vec<cri::Mount>, FileError> {
    let dir = context.config.pod_dir(pod::uid(pod));
    let mut mounts = Vec::new();
    let path = spec.str("terminationMessagePath");
    if !path.is_empty() {
        let file = pod::message_file(&dir, &start.name, start.restarts);
        write_file(&file, b"", 0o666)?;
        mounts.push(bind(&file, path));
    }
    let is_mounted = |path: &str| spec.list("volumeMounts").iter().any(|mount| mount.str("mountPath") == path);
    if !is_mounted("/etc/hosts") {
        let file = dir.join("etc-hosts");
        let hosts = match pod.bool("spec.hostNetwork") {
            true => hostname::host_network_hosts(pod, &std::fs::read_to_string("/etc/hosts").unwrap_or_default()),
            false => hostname::hosts(pod, addresses, &context.config.cluster_domain),
        };
        write_file(&file, hosts.as_bytes(), 0o644)?;
        mounts.push(bind(&file, "/etc/hosts"));
    }
    Ok(mounts)
}

fn bind(host: &Path, container: &str) -> cri::Mount {
    cri::Mount { host_path: host.display().to_string(), container_path: container.to_string(), ..Default::default() }
}

fn write_file(path: &Path, text: &[u8], mode: u32) -> Result<(), FileError> {
    use std::os::unix::fs::PermissionsExt;
    let write = || {
        path.parent().map(crate::volumes::create_dirs).transpose()?;
        let mut file = std::fs::OpenOptions::new().create(true).write(true).truncate(true).open(path)?;
        file.write_all(text)?;
        file.set_permissions(std::fs::Permissions::from_mode(mode))
    };
    write().map_err(|source| FileError { path: path.to_path_buf(), source })
}

/// The number after the highest number of a container's log files, `N.log` and their rotated files.
pub(crate) fn next_log(directory: &Path) -> i64 {
    let number = |name: &str| name.split_once(".log").and_then(|(number, _)| number.parse::<i64>().ok());
    let entries = std::fs::read_dir(directory).into_iter().flatten().filter_map(Result::ok);
    let highest = entries.filter_map(|entry| number(&entry.file_name().to_string_lossy())).max();
    highest.map_or(0, |highest| highest.saturating_add(1).max(0))
}

/// Creates the symbolic link by which log collectors find a container's log.
pub(crate) fn link_log(context: &PodContext, pod: &Tree, name: &str, id: &str, restarts: i64) {
    let log = sync::logs(context, pod).join(name).join(format!("{restarts}.log"));
    let file = log_link(context, pod, name, id);
    let made = file.parent().map(std::fs::create_dir_all).transpose();
    if let Err(error) = made.and_then(|_| std::os::unix::fs::symlink(log, &file)) {
        tracing::debug!(%error, file = %file.display(), "failed to create log symlink");
    }
}

/// `/var/log/containers/POD_NAMESPACE_CONTAINER-ID.log`
pub(crate) fn log_link(context: &PodContext, pod: &Tree, name: &str, id: &str) -> PathBuf {
    let dir = context.config.pod_logs_dir.parent().unwrap_or(Path::new("/")).join("containers");
    dir.join(format!("{}_{}_{name}-{id}.log", pod::name(pod), pod::namespace(pod)))
}

/// Termination messages of exited containers, from their file or their log.
pub(crate) fn read_messages(context: &PodContext, pod: &Tree, state: &mut PodState) {
    let dir = context.config.pod_dir(pod::uid(pod));
    for seen in state.containers.iter_mut().filter(|seen| seen.stage == Stage::Exited && seen.message.is_empty()) {
        let file = pod::message_file(&dir, &seen.name, seen.restarts);
        let own = read_start(&file).unwrap_or_default();
        let falls_back = seen.annotation(keys::MESSAGE_POLICY) == "FallbackToLogsOnError" && seen.exit_code != 0;
        seen.message = match own.is_empty() && falls_back {
            true => last_lines(Path::new(&seen.log_path)),
            false => own,
        };
    }
}

fn read_start(file: &Path) -> Option<String> {
    use std::io::Read;
    let mut bytes = Vec::new();
    let most = u64::try_from(MOST_MESSAGE).unwrap_or(u64::MAX);
    std::fs::File::open(file).ok()?.take(most).read_to_end(&mut bytes).ok()?;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

/// The end of a log, without timestamps and streams.
fn last_lines(log: &Path) -> String {
    use std::io::{Read, Seek, SeekFrom};
    let read = || -> std::io::Result<String> {
        let mut file = files::open(log)?;
        let length = file.metadata()?.len();
        // The prefixes of the lines take about as much again.
        file.seek(SeekFrom::Start(length.saturating_sub(MOST_LOG * 4)))?;
        let mut bytes = Vec::new();
        // The file may grow while it is read.
        file.take(MOST_LOG * 4).read_to_end(&mut bytes)?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    };
    log_text(&read().unwrap_or_default())
}

/// The text of the last lines of a log. A partial line, whose first tag is `P`, has no line end.
fn log_text(text: &str) -> String {
    let parts: Vec<(&str, &str)> = text.lines().filter_map(parts).collect();
    let last = parts[parts.len().saturating_sub(MOST_LINES)..].iter();
    let mut out: String = last.flat_map(|(text, end)| [*text, *end]).collect();
    let most = usize::try_from(MOST_LOG).unwrap_or(usize::MAX);
    if out.len() > most {
        let at = out.char_indices().map(|(at, _)| at).find(|at| out.len() - at <= most).unwrap_or(0);
        out = out.split_off(at);
    }
    out
}

/// The text of a line of a log, after its timestamp, stream and tags, and its line end.
fn parts(line: &str) -> Option<(&str, &str)> {
    let mut fields = line.splitn(4, ' ').skip(2);
    let is_part = fields.next()?.split(':').next() == Some("P");
    Some((fields.next()?, if is_part { "" } else { "\n" }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_the_last_lines_of_a_log() {
        let check = |log: &str, expected: &str| assert_eq!(log_text(log), expected, "{log:?}");
        check("", "");
        check("t stdout F DONE\n", "DONE\n");
        check("t stdout P DONE\n", "DONE");
        check("t stdout P DO\nt stdout F NE\nt stderr P end\n", "DONE\nend");
        check("t stdout F:other one\nt stdout P:other two\n", "one\ntwo");
        check("cut off\nt stdout F \n", "\n");
        let many: String = (0..100).map(|number| format!("t stdout F {number}\n")).collect();
        assert_eq!(log_text(&many).lines().count(), MOST_LINES);
        assert_eq!(log_text(&format!("t stdout P {}\n", "x".repeat(9000))).len(), 2048);
    }

    #[test]
    fn numbers_the_next_log() {
        let dir = tempfile::tempdir().expect("a directory");
        assert_eq!(next_log(&dir.path().join("absent")), 0);
        for (file, expected) in [("other", 0), ("0.log", 1), ("11.log.20260101-000000.gz", 12), ("2.log", 12)] {
            std::fs::write(dir.path().join(file), "").expect("a file");
            assert_eq!(next_log(dir.path()), expected, "{file}");
        }
    }
}

//! What is wrong with a machine or a data directory is one sentence that says what to do, from every command that starts
//! something; and what an ordinary user can run.

use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, SystemTime};

use tempfile::TempDir;

use crate::support::BINARY;

/// A user without rights.
const USER: u32 = 65534;

/// A directory that every user can enter, with the binary in it.
fn shared_dir() -> (TempDir, PathBuf) {
    let dir = tempfile::tempdir().expect("a directory");
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).expect("permissions");
    let binary = dir.path().join("tiphys");
    if fs::hard_link(BINARY, &binary).is_err() {
        fs::copy(BINARY, &binary).expect("a copy");
    }
    (dir, binary)
}

/// The commands that start something in a directory.
fn starts(data_dir: &str) -> [Vec<String>; 3] {
    let words = |text: &str| text.split(' ').map(str::to_string).chain([data_dir.to_string()]).collect();
    [
        words("up --disable-agent --port 0 --data-dir"),
        words("server --port 0 --data-dir"),
        words("agent --server https://127.0.0.1:1 --token abcdef.0123456789abcdef --data-dir"),
    ]
}

/// The one line with which a command fails.
fn failure(output: &Output) -> String {
    let text = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{text}");
    let errors: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix("error: ")).collect();
    assert_eq!(errors.len(), 1, "{text}");
    errors[0].to_string()
}

/// Runs commands among mounts of their own: `script` prepares the mount at `$1`.
fn fails_on(script: &str, want: &str) {
    let dir = tempfile::tempdir().expect("a directory");
    for command in starts(&format!("{}/data", dir.path().display())) {
        let script = format!("{script} && shift && exec \"$0\" \"$@\"");
        let mut unshare = Command::new("unshare");
        unshare.args(["--mount", "sh", "-c", &script, BINARY]).arg(dir.path()).args(&command);
        let error = failure(&unshare.output().expect("unshare is there"));
        assert!(error.contains(want) && error.contains("choose another --data-dir"), "{command:?}: {error}");
    }
}

#[test]
fn read_only_and_full_disks_are_reported() {
    fails_on("mount -t tmpfs -o ro none $1", "is on a file system that is mounted read-only");
    fails_on("mount -t tmpfs -o size=1m none $1", "1 MiB free, and a cluster needs 64 MiB");
    let full =
        "mount -t tmpfs -o size=1m none $1 && { dd if=/dev/zero of=$1/filler bs=4k 2>/dev/null || mkdir $1/data; }";
    fails_on(&format!("mkdir -p $1/data && {full}"), "is full: delete files");
    let no_inodes = "mount -t tmpfs -o size=100m,nr_inodes=3 none $1 && mkdir $1/data && touch $1/data/a";
    fails_on(no_inodes, "is full: delete files");
}

#[test]
fn directories_of_other_users_and_purposes_are_reported() {
    let (dir, binary) = shared_dir();
    let data = dir.path().join("data");
    let shown = data.to_str().expect("text").to_string();
    fs::create_dir_all(data.join("pki")).expect("a directory");
    for command in starts(&shown) {
        let mut setpriv = Command::new("setpriv");
        setpriv.args([&format!("--reuid={USER}"), &format!("--regid={USER}"), "--clear-groups"]);
        let output = setpriv.arg(&binary).args(&command).output().expect("setpriv is there");
        let error = failure(&output);
        assert!(error.contains(&format!("{shown} belongs to user 0, and this is user {USER}")), "{command:?}: {error}");
    }
    let run = |command: &[String]| failure(&Command::new(BINARY).args(command).output().expect("the binary starts"));
    let [up, server, agent] = starts(&shown);
    fs::write(data.join("servers.json"), "{}").expect("a file");
    assert!(run(&up).contains("belongs to a node that `tiphys agent` has joined"), "{}", run(&up));
    assert!(run(&server).contains(&format!("`tiphys reset --data-dir {shown}`")), "{}", run(&server));
    fs::write(data.join("pki/ca.key"), "").expect("a file");
    assert!(run(&agent).contains("has a cluster of its own"), "{}", run(&agent));
    let later = SystemTime::now() + Duration::from_secs(48 * 3600);
    File::options()
        .write(true)
        .open(data.join("pki/ca.key"))
        .and_then(|file| file.set_modified(later))
        .expect("a time");
    for command in [&up, &server] {
        assert!(run(command).contains("timedatectl set-ntp true"), "{}", run(command));
    }
    fs::write(data.join("version"), "tiphys-data 99\nwritten by tiphys 9.8.7\n").expect("a file");
    for command in [&up, &server] {
        assert!(run(command).contains("start tiphys 9.8.7 or a newer version"), "{}", run(command));
    }
    let output = Command::new(BINARY).args(["check", "--data-dir", &shown]).output().expect("the binary starts");
    let table = String::from_utf8_lossy(&output.stdout);
    assert!(table.contains("start tiphys 9.8.7") && table.contains("timedatectl"), "the same findings: {table}");
}

/// A process of an ordinary user.
struct UserProcess(Child);

impl Drop for UserProcess {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn as_user(binary: &Path, home: &Path, words: &[&str]) -> Command {
    let mut command = Command::new("setpriv");
    command.args([&format!("--reuid={USER}"), &format!("--regid={USER}"), "--clear-groups"]).arg(binary).args(words);
    command.env("TIPHYS_HOME", home).env("HOME", home).env("TIPHYS_NAME", "mine").env_remove("KUBECONFIG");
    command.current_dir(home);
    command
}

#[test]
fn ordinary_users_run_clusters_of_fake_nodes() {
    let (dir, binary) = shared_dir();
    let home = dir.path().join("home");
    fs::create_dir(&home).expect("a directory");
    chown(&home, Some(USER), Some(USER)).expect("a user");
    let mut up = as_user(&binary, &home, &["up", "--port", "0", "--fake-nodes", "1"]);
    let mut up = UserProcess(up.stdout(Stdio::piped()).spawn().expect("setpriv is there"));
    let lines = BufReader::new(up.0.stdout.take().expect("it is piped")).lines().map_while(Result::ok);
    let mut printed = Vec::new();
    for line in lines {
        let is_last = line.starts_with("ctrl-c stops it");
        printed.push(line);
        if is_last {
            break;
        }
    }
    let text = printed.join("\n");
    assert!(text.contains("Only fake nodes run") && text.contains("needs root"), "{text}");
    let script = commands(&printed).join("\n") + "\n\"$0\" down";
    let mut shell = as_user(Path::new("sh"), &home, &["-e", "-c", &script]);
    let output = shell.arg(&binary).output().expect("setpriv is there");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{script}\n{text}\n{}", String::from_utf8_lossy(&output.stderr));
    assert!(text.contains("deployment.apps/hello created") && text.contains("cluster mine runs since"), "{text}");
    assert!(text.ends_with("stopped\n"), "the variable selects the cluster: {text}");
}

/// The commands that `up` prints to be copied.
pub fn commands(printed: &[String]) -> Vec<String> {
    let is_command = |line: &&String| line.starts_with("     ") || line.starts_with("  export ");
    printed.iter().filter(is_command).map(|line| line.trim().to_string()).collect()
}

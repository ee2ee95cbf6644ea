//! Another machine for a node: a network of its own, a `/run` of its own, and its own identity. It has the processes and the
//! other files of the cluster.

use std::fs;
use std::process::{Command, Stdio};
use std::time::Duration;

use super::case::ChildProcess;
use super::cluster::Cluster;
use crate::support::BINARY;

const DEADLINE: Duration = Duration::from_secs(30);

/// It ends with the cluster.
pub struct Machine<'a> {
    cluster: &'a Cluster,
    pub name: &'static str,
    /// The process that keeps its namespaces, in those of the cluster.
    pub pid: String,
}

impl<'a> Machine<'a> {
    /// A machine without any link.
    pub fn new(cluster: &'a Cluster, name: &'static str) -> Machine<'a> {
        let id = format!("{:0>32}", name.bytes().map(|byte| format!("{byte:x}")).collect::<String>());
        fs::write(cluster.dir.path().join(format!("{name}.machine-id")), id).expect("a file");
        let own = format!(
            "mount -t tmpfs none /run && mount -t tmpfs none /var/log && mount -t tmpfs none /var/lib/cni && \
             mount --bind {name}.machine-id /etc/machine-id && ip link set lo up && touch {name}.up && exec sleep 1000000"
        );
        let script = format!("unshare --net --mount sh -c '{own}' >{name}.log 2>&1 </dev/null & echo $!");
        let output = cluster.command("sh").args(["-c", &script]).output().expect("a shell");
        let pid = String::from_utf8_lossy(&output.stdout).trim().to_string();
        let log = || fs::read_to_string(cluster.dir.path().join(format!("{name}.log"))).unwrap_or_default();
        let is_up = || cluster.dir.path().join(format!("{name}.up")).exists();
        stdx::wait::until(&format!("the machine {name}: {}", log()), DEADLINE, is_up);
        Machine { cluster, name, pid }
    }

    /// A machine with this address on the link of the cluster's machine.
    pub fn on_link(cluster: &'a Cluster, name: &'static str, address: &str) -> Machine<'a> {
        let machine = Machine::new(cluster, name);
        machine.take_link("out", address);
        machine.shell("ip route add default via 192.0.2.1");
        machine
    }

    /// Moves the other end of the cluster's link here.
    pub fn take_link(&self, device: &str, address: &str) {
        let moved = self.cluster.command("ip").args(["link", "set", device, "netns", &self.pid]).status();
        assert!(moved.expect("ip is there").success());
        self.shell(&format!("ip address add {address}/24 dev {device} && ip link set {device} up"));
    }

    /// A program of this machine.
    pub fn command(&self, program: &str) -> Command {
        let mut command = self.cluster.command("nsenter");
        let dir = format!("--wd={}", self.cluster.dir.path().display());
        command.args(["-t", &self.pid, "--net", "--mount", &dir, program]);
        command
    }

    /// The output of a script that must succeed.
    #[track_caller]
    pub fn shell(&self, script: &str) -> String {
        let output = self.command("sh").args(["-ec", script]).stdin(Stdio::null()).output().expect("a shell");
        assert!(output.status.success(), "{script}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).trim().to_string()
    }

    /// Starts a process of the binary; its log is a file with the name of the machine, and so is its process id.
    pub fn spawn(&self, words: &[&str]) -> ChildProcess {
        let script = format!("echo $$ > {0}.pid; exec \"$@\" >>{0}.log 2>&1", self.name);
        let mut command = self.command("sh");
        let command = command.args(["-c", &script, "sh", BINARY]).args(words);
        ChildProcess(command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("nsenter"))
    }

    /// Stops the process with SIGTERM, and waits for its end.
    pub fn stop(&self) {
        let pid = self.shell(&format!("cat {}.pid", self.name));
        self.shell(&format!("kill {pid}"));
        let is_running = format!("! kill -0 {pid} 2>/dev/null || grep -q '^State:.Z' /proc/{pid}/status");
        let has_ended = || self.command("sh").args(["-c", &is_running]).status().expect("a shell").success();
        stdx::wait::until(&format!("the end of {}: {}", self.name, self.log()), DEADLINE, has_ended);
    }

    /// The end of its log.
    pub fn log(&self) -> String {
        let log = fs::read_to_string(self.cluster.dir.path().join(format!("{}.log", self.name))).unwrap_or_default();
        let lines: Vec<&str> = log.lines().collect();
        lines[lines.len().saturating_sub(20)..].join("\n")
    }
}

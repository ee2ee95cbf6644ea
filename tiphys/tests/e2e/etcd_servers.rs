//! Three servers with controllers and scheduler on an etcd cluster of three members, each on a host of its own.

use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use stdx::wait::{LazyDescription, until_ok};

use crate::clocks::ShiftedClocks;
use crate::members::{Members, PATIENCE, Version};
use crate::support::BINARY;

/// The hosts of the servers.
pub const SERVERS: [u32; 3] = [4, 5, 6];

/// Servers, each on a host of its own, beside the members of etcd.
pub struct Servers {
    running: Vec<Option<Child>>,
    pub members: Members,
    /// A library that is loaded into the servers, and shifts their clocks.
    clocks: Option<ShiftedClocks>,
}

impl Servers {
    /// The first one creates the CAs that all of them have.
    pub fn start() -> Servers {
        Servers::start_with(Version::V3_4, None)
    }

    pub fn start_with(version: Version, clocks: Option<ShiftedClocks>) -> Servers {
        let members = Members::start(version, 3, 3);
        // A server does not wait for a leader for ever.
        members.etcdctl(1, &["get", "leader"]);
        let mut servers = Servers { running: vec![None, None, None], members, clocks };
        servers.run(SERVERS[0]);
        for host in &SERVERS[1..] {
            let (from, to) = (servers.data(SERVERS[0]).join("pki"), servers.data(*host));
            std::fs::create_dir_all(&to).expect("a directory");
            let copied = Command::new("cp").arg("-a").args([&from, &to.join("pki")]).status();
            assert!(copied.expect("cp is there").success());
            servers.run(*host);
        }
        servers
    }

    pub fn data(&self, host: u32) -> PathBuf {
        self.members.network.dir.path().join(format!("s{host}"))
    }

    /// Starts a server, and waits until it has written its kubeconfig.
    pub fn run(&mut self, host: u32) {
        let is_up = self.spawn(host);
        let log = self.members.network.dir.path().join(format!("s{host}.log"));
        let log = || std::fs::read_to_string(&log).unwrap_or_default();
        let check = || if is_up() { Ok(()) } else { Err(LazyDescription(log)) };
        until_ok(&format!("server {host} starts"), PATIENCE, check);
    }

    /// Starts a server; the result tells whether it is up.
    pub fn spawn(&mut self, host: u32) -> impl Fn() -> bool + use<> {
        let (data, dir) = (self.data(host), self.members.network.dir.path().to_path_buf());
        let _ = std::fs::remove_file(data.join("kubeconfig"));
        let log = dir.join(format!("s{host}.log"));
        let out = std::fs::File::options().create(true).append(true).open(&log).expect("a file");
        let mut command = self.members.network.command(host, "unshare");
        self.clocks.iter().for_each(|clocks| clocks.apply(&mut command, host));
        let child = command
            .args(["--uts", "sh", "-c", "hostname $0 && exec \"$@\"", &format!("s{host}"), BINARY, "up"])
            .args(["--disable-agent", "--bind-address", &format!("10.9.0.{host}"), "--port", "6443"])
            .args(["--cluster-cidr", "10.42.0.0/16", "--service-cidr", "10.96.0.0/16"])
            .arg(format!("--apiserver-arg=etcd-servers={}", self.members.endpoints().join(",")))
            .arg("--data-dir")
            .arg(&data)
            .stdout(Stdio::null())
            .stderr(out)
            .spawn()
            .expect("the binary starts");
        self.running[host as usize - 4] = Some(child);
        move || data.join("kubeconfig").exists()
    }

    /// Shifts the clock of a server.
    pub fn shift_clock(&self, host: u32, seconds: i64) {
        self.clocks.as_ref().expect("clocks").shift(host, seconds);
    }

    pub fn signal(&self, host: u32, signal: &str) {
        let parent = self.running[host as usize - 4].as_ref().expect("it runs").id();
        let children = std::fs::read_to_string(format!("/proc/{parent}/task/{parent}/children")).expect("it runs");
        let send = |pid: &str| Command::new("kill").args([signal, pid]).status().expect("kill is there").success();
        assert!(send(children.trim()), "{host} runs");
        // nsenter stops with its child, and does not continue with it.
        assert!(signal != "-CONT" || send(&parent.to_string()), "{host} goes on");
    }

    pub fn wait(&mut self, host: u32) {
        if let Some(mut child) = self.running[host as usize - 4].take() {
            let _ = child.wait();
        }
    }

    pub fn pki(&self) -> PathBuf {
        self.data(SERVERS[0]).join("pki")
    }
}

impl Drop for Servers {
    fn drop(&mut self) {
        for host in SERVERS {
            if self.running[host as usize - 4].is_some() {
                self.signal(host, "-KILL");
                self.wait(host);
            }
        }
    }
}

//! A separate environment to break: namespaces that survive kills, processes of the binary that can be killed and
//! restarted, and a client.

use std::cell::RefCell;
use std::fs;
use std::io::{BufRead, BufReader};
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use api::Tree;
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use tempfile::TempDir;

use stdx::wait::{LazyDescription, until_ok};

use crate::support::{BINARY, Client};

pub const DEADLINE: Duration = Duration::from_secs(180);
pub const PODS: &str = "/api/v1/namespaces/default/pods";

/// A network with a default route without a peer; no directory of the machine is changed. The first process reaps
/// orphans, like the init process of a machine.
const HOLD: &str = "ip link set lo up && ip link add way type veth peer name out && \
    ip address add 192.0.2.10/24 dev way && ip link set way up && ip link set out up && \
    ip route add default via 192.0.2.1 && mount -t tmpfs none /run && mount -t tmpfs none /var/log && \
    mount -t tmpfs none /var/lib && echo ready && while :; do sleep 1000 & wait; done";

/// The number of seeds for random tests.
pub fn seeds(usual: u64) -> u64 {
    std::env::var("TIPHYS_SEEDS").ok().and_then(|seeds| seeds.parse().ok()).unwrap_or(usual)
}

/// Long tests run in full size only on request.
pub fn size(usual: usize, whole: usize) -> usize {
    if seeds(1) > 1 { whole } else { usual }
}

pub struct World {
    holder: Child,
    /// The first process in there.
    inside: String,
    pub dir: TempDir,
    cgroup: String,
    tokio: tokio::runtime::Runtime,
    client: RefCell<Option<Client>>,
    random: RefCell<u64>,
}

/// A process in there.
pub struct Process {
    entered: Child,
}

impl World {
    pub fn new(seed: u64) -> World {
        let dir = tempfile::tempdir().expect("a directory");
        let name = dir.path().file_name().expect("a name").to_string_lossy().replace('.', "");
        let mut holder = Command::new("unshare")
            .args(["--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "sh", "-c", HOLD])
            .stdout(Stdio::piped())
            .spawn()
            .expect("unshare is there");
        let lines = BufReader::new(holder.stdout.take().expect("it is piped")).lines();
        assert_eq!(lines.map_while(Result::ok).next().as_deref(), Some("ready"), "namespaces of its own");
        let inside = children(holder.id()).first().expect("a process").clone();
        let network = fs::File::open(format!("/proc/{inside}/ns/net")).expect("its network");
        // Moves this thread, and the processes that it starts, into that network.
        move_into_link_name_space(network.as_fd(), Some(LinkNameSpaceType::Network)).expect("root may enter it");
        let tokio = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        let cgroup = format!("/tiphys-e2e-{name}");
        World { holder, inside, dir, cgroup, tokio, client: RefCell::new(None), random: RefCell::new(seed * 2 + 1) }
    }

    /// A world with a cluster whose node is ready.
    pub fn up(seed: u64, flags: &[&str]) -> (World, Process) {
        let world = World::new(seed);
        let up = world.start_up(flags);
        world.until_ready_node();
        (world, up)
    }

    /// Waits until pods can be created.
    pub fn until_ready_node(&self) {
        self.until_node("True");
        self.until("its account", "/api/v1/namespaces/default/serviceaccounts", |list| !list.list("items").is_empty());
    }

    pub fn start_up(&self, flags: &[&str]) -> Process {
        let mut words = vec!["up", "--port", "6443", "--node-name", "node", "--cgroup-root", &self.cgroup];
        let data = self.path("data");
        words.extend(["--data-dir", &data]);
        words.extend(flags);
        let up = self.start(BINARY, &words, "ctrl-c stops it");
        self.client.take();
        up
    }

    /// Runs a program in the namespaces until it prints a line with this prefix; "" to return at once.
    pub fn start(&self, program: &str, words: &[&str], says: &str) -> Process {
        let log = fs::File::options().create(true).append(true).open(self.dir.path().join("log")).expect("a file");
        let mut entered = Command::new("nsenter")
            .args(["-t", &self.inside, "--net", "--mount", "--pid", program])
            .args(words)
            .stdout(Stdio::piped())
            .stderr(log)
            .spawn()
            .expect("nsenter is there");
        let mut lines = BufReader::new(entered.stdout.take().expect("it is piped")).lines().map_while(Result::ok);
        let started = says.is_empty() || lines.by_ref().any(|line| line.starts_with(says));
        assert!(started, "{program} {words:?} does not start: {}", self.log());
        std::thread::spawn(move || lines.for_each(drop));
        Process { entered }
    }

    /// The absolute path of a file of the world's directory, since processes in the namespaces run elsewhere.
    pub fn path(&self, name: &str) -> String {
        self.dir.path().join(name).display().to_string()
    }

    /// The end of the log.
    pub fn log(&self) -> String {
        let text = fs::read_to_string(self.dir.path().join("log")).unwrap_or_default();
        let is_noise = |line: &str| line.contains("oom_score_adj") || line.contains("GetContainerEvents");
        let lines: Vec<&str> = text.lines().filter(|line| !is_noise(line)).collect();
        lines[lines.len().saturating_sub(400)..].join("\n")
    }

    pub fn cgroup(&self) -> &str {
        &self.cgroup
    }

    /// Runs a script in the namespaces to its end.
    pub fn shell(&self, script: &str) -> String {
        let enter = ["-t", &self.inside, "--net", "--mount", "--pid", "sh", "-c", "cd $0 && eval \"$1\""];
        let output = Command::new("nsenter").args(enter).arg(self.dir.path()).arg(script).output().expect("nsenter");
        assert!(output.status.success(), "{script}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).trim().to_string()
    }

    pub fn below(&self, bound: u64) -> u64 {
        let mut random = self.random.borrow_mut();
        *random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (*random >> 33) % bound
    }

    /// The status code and the response; None without a server.
    pub fn call(&self, method: &str, path: &str, body: &str) -> Option<(u16, Tree)> {
        let mut client = self.client.borrow_mut();
        self.tokio.block_on(async {
            if client.is_none() {
                *client = Some(Client::connect(&self.dir.path().join("data/pki"), 6443).await);
            }
            let answer = match client.as_mut() {
                Some(client) => client.call(method, path, body).await.ok(),
                None => None,
            };
            if answer.is_none() {
                *client = None;
            }
            answer.map(|(code, bytes)| (code, api::json::decode(&bytes).unwrap_or_default()))
        })
    }

    pub fn get(&self, path: &str) -> Tree {
        self.call("GET", path, "").map(|(_, tree)| tree).unwrap_or_default()
    }

    pub fn create(&self, path: &str, yaml: &str) -> Tree {
        let object = api::yaml::decode(yaml.as_bytes()).expect("YAML");
        let body = String::from_utf8_lossy(&api::json::encode(&object, None)).into_owned();
        let (code, answer) = self.call("POST", path, &body).expect("an answer");
        assert_eq!(code, 201, "{}", answer.str("message"));
        answer
    }

    pub fn delete(&self, path: &str) {
        let (code, answer) = self.call("DELETE", path, "").expect("an answer");
        assert!(matches!(code, 200 | 202), "{code} {}", answer.str("message"));
    }

    /// Repeats a request until the response meets the condition.
    pub fn until(&self, what: &str, path: &str, is_right: impl Fn(&Tree) -> bool) -> Tree {
        self.until_within(DEADLINE, what, path, is_right)
    }

    #[track_caller]
    pub fn until_within(&self, time: Duration, what: &str, path: &str, is_right: impl Fn(&Tree) -> bool) -> Tree {
        until_ok(what, time, || {
            let tree = self.get(path);
            if is_right(&tree) {
                Ok(tree)
            } else {
                Err(LazyDescription(move || format!("{}\n{}", summary(&tree), self.log())))
            }
        })
    }

    /// Lets time pass, up to so many milliseconds.
    #[allow(clippy::disallowed_methods, reason = "a fault comes at a moment that nothing announces")]
    pub fn pass(&self, most: u64) {
        std::thread::sleep(Duration::from_millis(self.below(most)));
    }

    pub fn until_node(&self, status: &str) {
        self.until("the node", "/api/v1/nodes/node", |node| condition(node, "Ready") == status);
    }

    pub fn until_ready(&self, pod: &str) -> Tree {
        self.until(pod, &format!("{PODS}/{pod}"), |pod| condition(pod, "Ready") == "True")
    }

    pub fn until_gone(&self, pod: &str) {
        self.until(pod, &format!("{PODS}/{pod}"), |answer| answer.int("code") == Some(404));
    }

    /// A file of a pod's volume, on the node.
    pub fn file_of(&self, uid: &str, path: &str) -> String {
        let file = self.dir.path().join("data/kubelet/pods").join(uid).join("volumes").join(path);
        fs::read_to_string(&file).unwrap_or_else(|error| panic!("{}: {error}", file.display()))
    }

    /// The directories of cgroups in there, of one hierarchy.
    pub fn cgroups(&self) -> Vec<PathBuf> {
        let pattern = format!("*{}*", self.cgroup);
        let output = Command::new("find").args(["/sys/fs/cgroup", "-type", "d", "-path", &pattern]).output();
        let output = output.expect("find is there");
        String::from_utf8_lossy(&output.stdout).lines().map(PathBuf::from).collect()
    }
}

impl Drop for World {
    #[allow(clippy::disallowed_methods, reason = "a test that waits for a process may block")]
    fn drop(&mut self) {
        let _ = self.holder.kill();
        let _ = self.holder.wait();
        // The processes end with the first one; their cgroups are empty.
        let deadline = Instant::now() + Duration::from_secs(10);
        let mut left = self.cgroups();
        while !left.is_empty() && Instant::now() < deadline {
            left.iter().rev().for_each(|dir| drop(fs::remove_dir(dir)));
            std::thread::sleep(Duration::from_millis(20));
            left = self.cgroups();
        }
    }
}

impl Process {
    /// The PID of the process outside of the namespaces.
    pub fn pid(&self) -> String {
        children(self.entered.id()).first().expect("it runs").clone()
    }

    /// Waits until the process exits; returns whether it succeeded.
    pub fn until_ended(&mut self) -> bool {
        let ended = || self.entered.try_wait().expect("it is a child").ok_or("it runs");
        until_ok("the end of the process", DEADLINE, ended).success()
    }

    /// Kills the process.
    pub fn kill(mut self) {
        signal("-KILL", &self.pid());
        let _ = self.entered.wait();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.entered.kill();
        let _ = self.entered.wait();
    }
}

pub fn signal(signal: &str, pid: &str) {
    let status = Command::new("kill").args([signal, pid]).status().expect("kill is there");
    assert!(status.success(), "kill {signal} {pid}");
}

fn children(pid: u32) -> Vec<String> {
    let text = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    text.split_whitespace().map(str::to_string).collect()
}

pub fn condition<'a>(object: &'a Tree, kind: &str) -> &'a str {
    let found = object.list("status.conditions").iter().find(|condition| condition.str("type") == kind);
    found.map_or("", |condition| condition.str("status"))
}

pub fn summary(tree: &Tree) -> String {
    let line = |object: &Tree| {
        let status = String::from_utf8_lossy(&api::json::encode(object.at("status"), None)).into_owned();
        format!("{} {} {status}", object.str("metadata.name"), object.str("metadata.deletionTimestamp"))
    };
    match tree.list("items") {
        [] => line(tree),
        items => {
            let others = items.iter().filter(|item| condition(item, "Ready") != "True");
            format!("{} items, of which not ready:\n{}", items.len(), others.map(line).collect::<Vec<_>>().join("\n"))
        }
    }
}

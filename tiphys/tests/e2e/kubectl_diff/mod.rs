//! The commands of `cases.txt` with upstream's kubectl and with ours, against one server: the same output, the same exit
//! code, and the same requests, as a proxy records them. Each case has a namespace of its own for each client.

mod compare;
mod older;
mod recorder;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::kubectl::binaries;
use crate::support::{BINARY, Server, root};
use compare::{Outcome, normalize};
use recorder::Recorder;

/// The oldest kubectl whose outputs are today's.
const OLDEST: (u32, u32) = (1, 33);

/// A case: its name and its command lines.
struct Case {
    name: String,
    steps: Vec<Step>,
}

/// A command line.
struct Step {
    line: String,
    /// Texts differ, for a reason that docs/compatibility.md gives: only the exit code is compared.
    is_code_only: bool,
    /// The order or number of requests differs.
    ignores_requests: bool,
}

fn parse(text: &str) -> Vec<Case> {
    let mut cases: Vec<Case> = Vec::new();
    for line in text.lines().filter(|line| !line.is_empty() && !line.starts_with("# ")) {
        if let Some(name) = line.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
            cases.push(Case { name: name.to_string(), steps: Vec::new() });
            continue;
        }
        let (is_code_only, line) = line.strip_prefix("~ ").map_or((false, line), |line| (true, line));
        let (ignores_requests, line) = line.strip_prefix("% ").map_or((false, line), |line| (true, line));
        let case = cases.last_mut().expect("a name comes first");
        case.steps.push(Step { line: line.to_string(), is_code_only, ignores_requests });
    }
    cases
}

/// Words by spaces, except in braces and brackets.
fn words(line: &str) -> Vec<String> {
    let (mut all, mut word, mut depth) = (Vec::new(), String::new(), 0);
    for char in line.chars() {
        match char {
            '{' | '[' => depth += 1,
            '}' | ']' => depth -= 1,
            _ => {}
        }
        if char == ' ' && depth <= 0 {
            all.extend((!word.is_empty()).then(|| std::mem::take(&mut word)));
        } else {
            word.push(char);
        }
    }
    all.extend((!word.is_empty()).then_some(word));
    all
}

/// A client: its program, its home, and the proxy that records its requests.
struct Client {
    program: PathBuf,
    letter: char,
    home: PathBuf,
    /// The node that only this client changes.
    node: &'static str,
    recorder: Recorder,
}

impl Client {
    async fn new(program: &Path, letter: char, server: &Server) -> Client {
        let recorder = Recorder::start(server).await;
        let home = server.dir.path().join(format!("home-{letter}"));
        std::fs::create_dir_all(&home).expect("a directory");
        let config = format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: diff\nclusters:\n- {{name: diff, cluster: {{server: 'http://{}'}}}}\n\
             contexts:\n- {{name: diff, context: {{cluster: diff, user: kubernetes-admin}}}}\nusers:\n- {{name: kubernetes-admin, \
             user: {{}}}}\n",
            recorder.address
        );
        std::fs::write(home.join("config"), config).expect("written");
        let node = if letter == 'a' { "fake-0" } else { "fake-1" };
        Client { program: program.to_path_buf(), letter, home, node, recorder }
    }

    fn namespace(&self, case: usize) -> String {
        format!("diff-{}-{case:03}", self.letter)
    }

    fn command(&self) -> Command {
        let mut command = Command::new(&self.program);
        if self.program == Path::new(BINARY) {
            command.arg("kubectl");
        }
        command.env("KUBECONFIG", self.home.join("config")).env("HOME", &self.home).stdin(Stdio::null());
        // Features that upstream still has behind these.
        command.env("KUBECTL_APPLYSET", "true").env("KUBECTL_KUBERC", "true");
        // An editor that changes nothing.
        command.env("KUBE_EDITOR", "true");
        command
    }

    /// Runs a step; returns what it did without what differs by nature.
    fn run(&self, case: usize, name: &str, step: &Step) -> Outcome {
        let namespace = self.namespace(case);
        let files = root().join("tiphys/tests/e2e/kubectl_diff/files");
        let home = self.home.to_string_lossy().into_owned();
        let fill = |word: String| {
            let word = word.replace("{FILES}", &files.to_string_lossy()).replace("{NS}", &namespace);
            word.replace("{HOME}", &home).replace("{NODE}", self.node)
        };
        let args: Vec<String> = words(&step.line).into_iter().map(fill).collect();
        let mut command = self.command();
        if name != "usage" && name != "config-files" && !args.iter().any(|arg| arg == "-n") {
            command.args(["-n", &namespace]);
        }
        self.recorder.take();
        let output = command.args(&args).output().expect("kubectl starts");
        let normalize = |text: &str, namespace: &str| {
            let text = text.replace(&home, "HOME").replace(&self.recorder.address.to_string(), "SERVER");
            // The name of the program is in what --record keeps.
            let program = self.program.file_name().unwrap_or_default().to_string_lossy();
            let text = if program.starts_with("kubectl.") { text.replace(&*program, "kubectl") } else { text };
            let text = if step.line.contains("{NODE}") { text.replace(self.node, "NODE") } else { text };
            normalize(&text, namespace)
        };
        Outcome {
            code: output.status.code(),
            out: normalize(&String::from_utf8_lossy(&output.stdout), &namespace),
            err: normalize(&String::from_utf8_lossy(&output.stderr), &namespace),
            requests: self.recorder.take().iter().map(|request| normalize(request, &namespace)).collect(),
        }
    }
}

/// The newest kubectl of the machine. None if there is only Debian's, which is too old to compare with.
fn upstream() -> Option<PathBuf> {
    let all = binaries();
    let found = all.iter().filter(|(version, _)| **version >= OLDEST).map(|(_, path)| path.clone()).next_back();
    let versions: Vec<_> = all.keys().collect();
    assert!(found.is_some() || versions.len() == 1, "no kubectl of {OLDEST:?} or newer is among {versions:?}");
    found
}

/// The cases are divided among so many tests, which run at the same time.
const PARTS: usize = 3;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn commands_do_what_upstreams_do_first_part() {
    compare_part(0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn commands_do_what_upstreams_do_second_part() {
    compare_part(1).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn commands_do_what_upstreams_do_third_part() {
    compare_part(2).await;
}

/// The cases of a part: each goes to the part with the fewest commands so far.
fn cases_of(part: usize) -> Vec<Case> {
    let text = std::fs::read_to_string(root().join("tiphys/tests/e2e/kubectl_diff/cases.txt")).expect("the cases");
    let chosen = std::env::var("TIPHYS_KUBECTL_CASE").ok();
    let mut counts = [0; PARTS];
    let mut cases = Vec::new();
    for case in parse(&text).into_iter().filter(|case| chosen.as_ref().is_none_or(|name| case.name == *name)) {
        let smallest = (0..PARTS).min_by_key(|part| counts[*part]).unwrap_or(0);
        counts[smallest] += case.steps.len();
        cases.extend((smallest == part).then_some(case));
    }
    cases
}

async fn compare_part(part: usize) {
    let (cases, upstream) = (cases_of(part), upstream());
    let Some(upstream) = upstream.filter(|_| !cases.is_empty()) else {
        println!("no cases, or no kubectl of 1.{} or newer is on this machine", OLDEST.1);
        return;
    };
    let server = Server::start_with(&["--fake-nodes", "2"]);
    server.wait_for_kubeconfig();
    let theirs = Client::new(&upstream, 'a', &server).await;
    let program = std::env::var("TIPHYS_KUBECTL").unwrap_or_else(|_| BINARY.to_string());
    let ours = Client::new(Path::new(&program), 'b', &server).await;
    let count: usize = cases.iter().map(|case| case.steps.len()).sum();
    let failures = tokio::task::spawn_blocking(move || compare_all(&theirs, &ours, &cases)).await.expect("it ends");
    drop(server);
    println!("{count} commands compared with {}", upstream.display());
    assert!(failures.is_empty(), "{} of {count} commands differ:\n{}", failures.len(), failures.join("\n"));
}

/// Objects without a namespace, which both clients only read.
fn create_cluster_objects(client: &Client) {
    let file = root().join("tiphys/tests/e2e/kubectl_diff/files/cluster-objects.yaml");
    let run = |args: &[&str]| {
        let output = client.command().args(args).output().expect("kubectl starts");
        assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    };
    run(&["create", "-f", &file.to_string_lossy()]);
    run(&["wait", "--for=condition=Established", "--timeout=60s", "crd/things.diff.example.com"]);
}

/// Creates the namespace of a case, with the first objects that controllers create in it.
fn prepare_namespace(client: &Client, number: usize) {
    let namespace = client.namespace(number);
    let ready = |args: &[&str]| client.command().args(args).output().expect("kubectl starts").status.success();
    assert!(ready(&["create", "namespace", &namespace]), "{namespace}");
    // Older clients cannot wait for a creation.
    let first = ["-n", &namespace, "get", "configmap/kube-root-ca.crt", "serviceaccount/default"];
    stdx::wait::until("the first objects", Duration::from_secs(60), || ready(&first));
}

fn compare_all(theirs: &Client, ours: &Client, cases: &[Case]) -> Vec<String> {
    create_cluster_objects(theirs);
    let mut failures = Vec::new();
    for (number, case) in cases.iter().enumerate() {
        prepare_namespace(theirs, number);
        prepare_namespace(ours, number);
        for step in &case.steps {
            let (want, got) = std::thread::scope(|scope| {
                let want = scope.spawn(|| theirs.run(number, &case.name, step));
                let got = ours.run(number, &case.name, step);
                (want.join().expect("kubectl ends"), got)
            });
            let difference = want.difference(&got, step.is_code_only, step.ignores_requests);
            failures.extend(difference.map(|text| format!("[{}] {}\n{text}", case.name, step.line)));
        }
    }
    failures
}

#[test]
fn command_lines_are_divided_at_spaces() {
    assert_eq!(words("get x -o jsonpath={.a b} -p [1, 2]"), ["get", "x", "-o", "jsonpath={.a b}", "-p", "[1, 2]"]);
}

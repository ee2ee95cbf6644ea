//! The command line client beside upstream's: both against one server, in turns, each with a home and a warm cache of its
//! own. The best round of each counts.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use super::{MIB, Plan};
use crate::Result;
use crate::child::Server;
use crate::figure::{BenchmarkResult, Goal, Report};
use crate::load::Side;
use crate::objects::{SERVICE_ACCOUNT, Template, numbered, pod};

/// Pods of the namespaces that tables and descriptions are made of.
const LISTED: u64 = 500;
const DESCRIBED: u64 = 50;
/// Objects of one `apply`.
const APPLIED: usize = 100;
/// Rounds of the figure about memory, of which each takes seconds.
const LARGE_ROUNDS: usize = 2;
const WRITERS: usize = 16;
/// Between two looks at the memory of a process; its peak is the kernel's, so only the last moment is missed.
const LOOK: Duration = Duration::from_millis(1);
/// The oldest upstream version that is a limit.
const OLDEST: (u32, u32) = (1, 33);

pub(crate) async fn run(plan: &Plan, report: &mut Report) -> Result<()> {
    let Some(upstream) = upstream()? else {
        report.skip("kubectl", "no upstream kubectl of 1.33 or newer is beside the one on PATH");
        return Ok(());
    };
    let server = Server::api(&plan.data("kubectl")).await?;
    let bench = Bench {
        ours: Client::new(&std::env::current_exe()?, &["kubectl"], &plan.data("ours"))?,
        theirs: Client::new(&upstream, &[], &plan.data("theirs"))?,
        kubeconfig: plan.data("kubectl").join("kubeconfig"),
        rounds: plan.rounds,
    };
    report.progress(&format!("comparing with {}", upstream.display()));
    report.add(&bench.compare("kubectl version --client", 0.1, |_| words("version --client"))?);
    fill(&server, "listed", LISTED).await?;
    report.add(&bench.compare("kubectl get pods, 500", 1.0 / 3.0, |_| words("get pods -n listed"))?);
    fill(&server, "described", DESCRIBED).await?;
    let describe = |_: &Round<'_>| words("describe pods -n described");
    report.add(&bench.compare("kubectl describe, 50 pods", 1.0 / 3.0, describe)?);
    report.add(&bench.apply(plan)?);
    report.progress(&format!("creating {} pods", plan.pods));
    fill(&server, "default", plan.pods).await?;
    report.add(&bench.memory().await?);
    server.stop().await
}

fn words(line: &str) -> Vec<String> {
    line.split(' ').map(str::to_string).collect()
}

/// Upstream's client: the link of `kubectl` on PATH leads to a directory which may have several versions.
fn upstream() -> Result<Option<PathBuf>> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let linked = std::env::split_paths(&path).map(|directory| directory.join("kubectl")).find(|file| file.exists());
    let Some(linked) = linked.and_then(|file| file.canonicalize().ok()) else { return Ok(None) };
    let wanted = linked.with_file_name(format!("kubectl.{}.{}", OLDEST.0, OLDEST.1));
    let this = std::env::current_exe()?.canonicalize()?;
    let candidates = [wanted, linked].into_iter().filter(|file| *file != this);
    Ok(candidates.into_iter().find(|file| version(file).is_some_and(|version| version >= OLDEST)))
}

/// The version that a client prints.
fn version(program: &Path) -> Option<(u32, u32)> {
    let output = Command::new(program).args(["version", "--client", "-o", "json"]).output().ok()?;
    let tree = api::json::decode(&output.stdout).ok()?;
    let mut parts = tree.at("clientVersion").str("gitVersion").strip_prefix('v')?.split('.');
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

/// Creates a namespace with pods.
async fn fill(server: &Server, namespace: &str, count: u64) -> Result<()> {
    if namespace != "default" {
        let body = format!(r#"{{"kind":"Namespace","apiVersion":"v1","metadata":{{"name":"{namespace}"}}}}"#);
        let mut connection = server.connect().await?;
        connection.fetch(Template::post("/api/v1/namespaces", &body).bytes()).await?;
        let accounts = format!("/api/v1/namespaces/{namespace}/serviceaccounts");
        connection.fetch(Template::post(&accounts, SERVICE_ACCOUNT).bytes()).await?;
    }
    let pods = format!("/api/v1/namespaces/{namespace}/pods");
    let mut side = Side::open(server, WRITERS, Template::post(&pods, &pod("pod", 0))).await?;
    side.fill(count).await?;
    // The last request proves that it is the path of an object that names are appended to.
    let last = numbered(&pods, "pod").replace("########", &format!("{:08}", count - 1));
    server.connect().await?.fetch(Template::get(&last).bytes()).await?;
    Ok(())
}

/// A client with a home of its own.
struct Client {
    program: PathBuf,
    first: &'static [&'static str],
    home: PathBuf,
}

/// One run of a client.
struct Round<'a> {
    client: &'a Client,
    number: usize,
}

/// What one run took.
struct Cost {
    time: Duration,
    /// The peak of its resident memory.
    bytes: u64,
}

impl Client {
    fn new(program: &Path, first: &'static [&'static str], home: &Path) -> Result<Client> {
        std::fs::create_dir_all(home)?;
        Ok(Client { program: program.to_path_buf(), first, home: home.to_path_buf() })
    }

    fn command(&self, kubeconfig: &Path, arguments: &[String]) -> Command {
        let mut command = Command::new(&self.program);
        command.args(self.first).args(arguments).env("HOME", &self.home).env("KUBECONFIG", kubeconfig);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        command
    }

    fn run(&self, kubeconfig: &Path, arguments: &[String]) -> Result<Duration> {
        let started = Instant::now();
        let status = self.command(kubeconfig, arguments).status()?;
        let time = started.elapsed();
        if status.success() { Ok(time) } else { Err(self.failure(arguments)) }
    }

    /// The same while its memory is watched.
    async fn watch(&self, kubeconfig: &Path, arguments: &[String]) -> Result<Cost> {
        let started = Instant::now();
        let mut child = self.command(kubeconfig, arguments).spawn()?;
        let status = format!("/proc/{}/status", child.id());
        let mut bytes = 0;
        let ended = loop {
            bytes = std::fs::read_to_string(&status).ok().and_then(|text| peak(&text)).unwrap_or(bytes).max(bytes);
            if let Some(ended) = child.try_wait()? {
                break ended;
            }
            tokio::time::sleep(LOOK).await;
        };
        let time = started.elapsed();
        if ended.success() { Ok(Cost { time, bytes }) } else { Err(self.failure(arguments)) }
    }

    fn failure(&self, arguments: &[String]) -> crate::Failure {
        format!("{} {} failed", self.program.display(), arguments.join(" ")).into()
    }
}

/// The peak of resident memory in /proc/PID/status.
fn peak(status: &str) -> Option<u64> {
    let line = status.lines().find(|line| line.starts_with("VmHWM:"))?;
    line.split_whitespace().nth(1)?.parse::<u64>().ok().map(|kib| kib * 1024)
}

struct Bench {
    ours: Client,
    theirs: Client,
    kubeconfig: PathBuf,
    rounds: usize,
}

impl Bench {
    /// The best times of both clients, after a run of each that fills its cache.
    fn compare(
        &self,
        name: &'static str,
        bound: f64,
        arguments: impl Fn(&Round<'_>) -> Vec<String>,
    ) -> Result<BenchmarkResult> {
        let mut best = [Duration::MAX; 2];
        for number in 0..=self.rounds {
            for (best, client) in best.iter_mut().zip([&self.ours, &self.theirs]) {
                let time = client.run(&self.kubeconfig, &arguments(&Round { client, number }))?;
                if number > 0 {
                    *best = time.min(*best);
                }
            }
        }
        let [value, limit] = best.map(|time| time.as_secs_f64() * 1e3);
        Ok(BenchmarkResult { name, value, unit: "ms", limit, goal: Goal::AtMost(rounded(bound)) })
    }

    /// Each run creates other objects.
    fn apply(&self, plan: &Plan) -> Result<BenchmarkResult> {
        let file = |round: &Round<'_>| {
            let side = if std::ptr::eq(round.client, &self.ours) { "ours" } else { "theirs" };
            (plan.data(&format!("{side}-{}.yaml", round.number)), format!("{side}-{}", round.number))
        };
        for number in 0..=self.rounds {
            for client in [&self.ours, &self.theirs] {
                let (path, prefix) = file(&Round { client, number });
                std::fs::write(path, objects(&prefix))?;
            }
        }
        self.compare("kubectl apply, 100 objects", 0.5, |round| {
            vec!["apply".to_string(), "-f".to_string(), file(round).0.to_string_lossy().into_owned()]
        })
    }

    async fn memory(&self) -> Result<BenchmarkResult> {
        let list = words("get pods -A -o json");
        let mut least = [u64::MAX; 2];
        for _ in 0..LARGE_ROUNDS {
            for (least, client) in least.iter_mut().zip([&self.ours, &self.theirs]) {
                let cost = client.watch(&self.kubeconfig, &list).await?;
                eprintln!("{}: {:.1} s", client.program.display(), cost.time.as_secs_f64());
                *least = cost.bytes.min(*least);
            }
        }
        let [value, limit] = least.map(|bytes| bytes as f64 / MIB);
        let name = "kubectl get pods -A -o json, peak memory";
        Ok(BenchmarkResult { name, value, unit: "MiB", limit, goal: Goal::AtMost(rounded(1.0 / 3.0)) })
    }
}

/// Three digits, as reports show bounds.
fn rounded(bound: f64) -> f64 {
    (bound * 1e3).floor() / 1e3
}

/// Half of them ConfigMaps, half Deployments.
fn objects(prefix: &str) -> String {
    let object = |number: usize| match number % 2 {
        0 => format!(
            "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: {prefix}-{number}\n  namespace: default\ndata:\n  key: value\n"
        ),
        _ => format!(
            "apiVersion: apps/v1\nkind: Deployment\nmetadata:\n  name: {prefix}-{number}\n  namespace: default\nspec:\n  \
             replicas: 2\n  selector:\n    matchLabels:\n      app: web\n  template:\n    metadata:\n      labels:\n        app: \
             web\n    spec:\n      containers:\n      - name: web\n        image: registry.example/web:1.2.3\n        ports:\n        - \
             containerPort: 8080\n"
        ),
    };
    (0..APPLIED).map(object).collect::<Vec<_>>().join("---\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_are_yaml() {
        let text = objects("a");
        let documents: Vec<&str> = text.split("---\n").collect();
        assert_eq!(documents.len(), APPLIED);
        for document in documents {
            let tree = api::yaml::decode(document.as_bytes()).expect("YAML");
            assert!(tree.str("metadata.name").starts_with("a-") && !tree.str("kind").is_empty());
        }
    }

    #[test]
    fn reads_the_peak_of_memory() {
        assert_eq!(peak("Name:\tx\nVmHWM:\t    2048 kB\nVmRSS:\t 1 kB\n"), Some(2 * 1024 * 1024));
        let own = std::fs::read_to_string("/proc/self/status").expect("it is Linux");
        assert!(peak(&own).is_some_and(|bytes| bytes > 4096));
    }
}

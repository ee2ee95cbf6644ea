//! The container runtime beside Debian's containerd with runc, on the same images, in turns.

pub(crate) mod daemon;
mod floor;
mod pods;
pub(crate) mod registry;

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Child;
use std::time::{Duration, Instant};

use daemon::Daemon;
use pods::Pod;
use registry::Registry;

use super::Plan;
use crate::Result;
use crate::child::this_binary;
use crate::figure::{BenchmarkResult, Goal, Report};

/// Pods that are started at once.
const BURST: usize = 30;

pub(crate) async fn run(quick: bool, plan: &Plan, report: &mut Report) -> Result<()> {
    let dir = &plan.dir;
    let registry = Registry::start(&dir.join("registry")).await?;
    report.progress("publishing an image of 100 MB");
    registry.publish_large().await?;
    let image = registry.image("pause");
    let ours = Daemon::ours(&dir.join("ours")).await?;
    report.progress("starting containerd");
    let theirs = Daemon::containerd(&dir.join("theirs"), &image).await?;
    for daemon in [&ours, &theirs] {
        daemon.pull(&image).await?;
    }
    let sides = Sides { ours: &ours, theirs: &theirs, image: &image, logs: &dir.join("logs") };
    let rounds = if quick { 10 } else { 50 };
    let floor = measure_floor(&dir.join("registry/pause"), &dir.join("floor"), rounds)?;
    report.progress(&format!("starting {rounds} pods on each runtime, one by one"));
    one_by_one(&sides, rounds, &floor, report).await?;
    measure_burst(&sides, report).await?;
    pull(&sides, &registry.image("large"), if quick { 1 } else { 3 }, report).await
}

struct Sides<'a> {
    ours: &'a Daemon,
    theirs: &'a Daemon,
    image: &'a str,
    logs: &'a Path,
}

/// The times of a pod: from nothing to running, for a command, and until it is removed.
#[derive(Default)]
struct Times {
    start: Vec<Duration>,
    exec: Vec<Duration>,
    remove: Vec<Duration>,
}

/// The kernel's time for a pod, without any runtime. Only a process with one thread can fork for it.
fn measure_floor(program: &Path, dir: &Path, rounds: usize) -> Result<Vec<Duration>> {
    let image = dir.join("image");
    std::fs::create_dir_all(&image)?;
    std::fs::copy(program, image.join("pause"))?;
    let output = this_binary()?.args(["bench", "floor"]).arg(&image).arg(dir).arg(rounds.to_string()).output()?;
    if !output.status.success() {
        return Err(format!("the floor: {}", String::from_utf8_lossy(&output.stderr)).into());
    }
    let micros = String::from_utf8_lossy(&output.stdout);
    Ok(micros.lines().map(|line| line.parse().map(Duration::from_micros)).collect::<std::result::Result<_, _>>()?)
}

/// The measuring process itself.
pub(crate) fn print_floor(image: &Path, work: &Path, rounds: usize) -> Result<()> {
    for took in floor::measure(image, work, rounds)? {
        println!("{}", took.as_micros());
    }
    Ok(())
}

async fn one_by_one(sides: &Sides<'_>, rounds: usize, floor: &[Duration], report: &mut Report) -> Result<()> {
    let (mut ours, mut theirs) = (Times::default(), Times::default());
    for round in 0..rounds {
        one(sides, sides.ours, &format!("ours-{round}"), &mut ours).await?;
        one(sides, sides.theirs, &format!("theirs-{round}"), &mut theirs).await?;
    }
    let mut add = |name, part, mine: &[Duration], other: &[Duration], goal| {
        report.add(&BenchmarkResult { name, value: at(mine, part), unit: "ms", limit: at(other, part), goal });
    };
    add("sandbox and container running, p50", 0.5, &ours.start, &theirs.start, Goal::AtMost(0.1));
    add("the same against the kernel's own work", 0.5, &ours.start, floor, Goal::AtMost(5.0));
    add("sandbox and container running, p99", 0.99, &ours.start, &theirs.start, Goal::Nothing);
    add("stopped and removed, p50", 0.5, &ours.remove, &theirs.remove, Goal::AtMost(0.2));
    add("stopped and removed, p99", 0.99, &ours.remove, &theirs.remove, Goal::Nothing);
    add("a command in a container, p50", 0.5, &ours.exec, &theirs.exec, Goal::Nothing);
    Ok(())
}

async fn one(sides: &Sides<'_>, daemon: &Daemon, name: &str, times: &mut Times) -> Result<()> {
    let (pod, start) = pods::start(daemon, sides.image, sides.logs, name).await?;
    times.start.push(start);
    times.exec.push(pods::exec(daemon, &pod).await?);
    times.remove.push(pods::remove(daemon, &pod).await?);
    Ok(())
}

async fn measure_burst(sides: &Sides<'_>, report: &mut Report) -> Result<()> {
    let ours = burst(sides, sides.ours, "ours").await?;
    let theirs = burst(sides, sides.theirs, "theirs").await?;
    let mut add = |name, unit, value, limit, goal| report.add(&BenchmarkResult { name, value, unit, limit, goal });
    add("30 pods at once, all running", "ms", ours.start, theirs.start, Goal::AtMost(0.1));
    add("30 pods at once, all removed", "ms", ours.remove, theirs.remove, Goal::AtMost(0.2));
    add("private memory a pod", "KiB", ours.kib, theirs.kib, Goal::AtMost(0.1));
    Ok(())
}

struct Burst {
    start: f64,
    remove: f64,
    /// Of what the runtime keeps for a pod beside its own daemon.
    kib: f64,
}

async fn burst(sides: &Sides<'_>, daemon: &Daemon, side: &str) -> Result<Burst> {
    let before = processes()?;
    let names: Vec<String> = (0..BURST).map(|at| format!("{side}-burst-{at}")).collect();
    let began = Instant::now();
    let starts = names.iter().map(|name| pods::start(daemon, sides.image, sides.logs, name));
    let started: Vec<Pod> = all(starts).await?.into_iter().map(|(pod, _)| pod).collect();
    let start = began.elapsed();
    let kib: u64 = processes()?
        .into_iter()
        .filter(|(pid, process)| !before.contains_key(pid) && !process.is_container)
        .map(|(_, process)| process.private_kib)
        .sum();
    let began = Instant::now();
    all(started.iter().map(|pod| pods::remove(daemon, pod))).await?;
    let remove = began.elapsed();
    let ms = |time: Duration| time.as_secs_f64() * 1e3;
    Ok(Burst { start: ms(start), remove: ms(remove), kib: kib as f64 / BURST as f64 })
}

async fn pull(sides: &Sides<'_>, image: &str, rounds: usize, report: &mut Report) -> Result<()> {
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        for (daemon, times) in [(sides.ours, &mut ours), (sides.theirs, &mut theirs)] {
            let began = Instant::now();
            daemon.pull(image).await?;
            times.push(began.elapsed());
            daemon.forget(image).await?;
        }
    }
    let (value, limit) = (at(&ours, 0.0), at(&theirs, 0.0));
    report.add(&BenchmarkResult {
        name: "pull of 100 MB from loopback",
        value,
        unit: "ms",
        limit,
        goal: Goal::Nothing,
    });
    Ok(())
}

/// All of them at the same time; the first error is returned.
async fn all<T>(futures: impl Iterator<Item = impl Future<Output = Result<T>>>) -> Result<Vec<T>> {
    let mut waiting: Vec<_> = futures.map(|future| (Box::pin(future), None)).collect();
    std::future::poll_fn(|cx| {
        let mut pending = false;
        for (future, result) in &mut waiting {
            if result.is_none() {
                match future.as_mut().poll(cx) {
                    std::task::Poll::Ready(ended) => *result = Some(ended),
                    std::task::Poll::Pending => pending = true,
                }
            }
        }
        if pending { std::task::Poll::Pending } else { std::task::Poll::Ready(()) }
    })
    .await;
    waiting.into_iter().filter_map(|(_, result)| result).collect()
}

struct Process {
    private_kib: u64,
    is_container: bool,
}

/// All processes of the machine and what each has for itself.
fn processes() -> Result<BTreeMap<u32, Process>> {
    let mut found = BTreeMap::new();
    for entry in std::fs::read_dir("/proc")? {
        let name = entry?.file_name();
        let Some(pid) = name.to_str().and_then(|name| name.parse().ok()) else { continue };
        // One that has ended meanwhile is not there.
        let Ok(memory) = std::fs::read_to_string(format!("/proc/{pid}/smaps_rollup")) else { continue };
        let command = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        found.insert(pid, Process { private_kib: private(&memory), is_container: is_container(pid, &command) });
    }
    Ok(found)
}

/// The container's process is the same with both; a sandbox has the same program, and no parent that is a limit's.
fn is_container(pid: u32, command: &[u8]) -> bool {
    let memory = std::fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap_or_default();
    command.starts_with(pods::ARGUMENT_ZERO.as_bytes()) && limited(&memory)
}

/// Whether a process of this cgroup has the container's limit, which a sandbox has not.
fn limited(cgroups: &str) -> bool {
    let path = |line: &str| line.splitn(3, ':').nth(2).map(str::to_string);
    let Some(memory) = cgroups.lines().find(|line| line.contains(":memory:")).and_then(path) else {
        let Some(unified) = cgroups.lines().find(|line| line.starts_with("0::")).and_then(path) else { return false };
        return std::fs::read_to_string(format!("/sys/fs/cgroup{unified}/memory.max"))
            .is_ok_and(|limit| limit.trim() == (64 << 20).to_string());
    };
    std::fs::read_to_string(format!("/sys/fs/cgroup/memory{memory}/memory.limit_in_bytes"))
        .is_ok_and(|limit| limit.trim() == (64 << 20).to_string())
}

fn private(rollup: &str) -> u64 {
    let lines = rollup.lines().filter(|line| line.starts_with("Private_Clean:") || line.starts_with("Private_Dirty:"));
    lines.filter_map(|line| line.split_whitespace().nth(1)?.parse::<u64>().ok()).sum()
}

/// The time below which this part of them is, in milliseconds; part 0 is the best.
pub(crate) fn at(times: &[Duration], part: f64) -> f64 {
    let mut sorted = times.to_vec();
    sorted.sort_unstable();
    let last = sorted.len().saturating_sub(1);
    sorted.get(((sorted.len() as f64 * part) as usize).min(last)).map_or(0.0, |time| time.as_secs_f64() * 1e3)
}

/// Waits for something that begins to be there.
async fn until(what: &str, mut is: impl AsyncFnMut() -> bool) -> Result<()> {
    let deadline = Instant::now() + Duration::from_secs(30);
    while !is().await {
        if Instant::now() > deadline {
            return Err(format!("{what} did not begin to answer").into());
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    Ok(())
}

/// Ends a child by a signal that it can act upon.
fn ended(child: &mut Child) {
    if let Some(pid) = rustix::process::Pid::from_raw(child.id() as i32) {
        // The process may have exited already.
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
    }
    let _ = child.wait();
}

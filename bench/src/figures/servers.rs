//! A highly available cluster of this machine: writes through three servers beside those of a bare client of the same
//! etcd, and what becomes of controllers and nodes when a server is killed.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use ::client::https::Https;
use ::client::{Client, Resource, ResponseFuture, Transport};
use api::Tree;
use bytes::Bytes;
use http::Request;
use rustix::process::{Pid, Signal, kill_process};
use stdx::clock::SystemClock;

use super::Plan;
use super::nodes::{NODE, processes_of};
use crate::Result;
use crate::child::{Server, this_binary};
use crate::client::{Connection, Tls};
use crate::etcd::Puts;
use crate::figure::{BenchmarkResult, Goal, Report};
use crate::inside::CGROUP;
use crate::load::Side;
use crate::objects::{CONFIG_MAPS, Template, config_map};

const WRITERS: usize = 64;
const BYTES: usize = 1024;
const FAILOVER_MS: f64 = 3000.0;
const HAND_OVER_MS: f64 = 100.0;
/// A longer time is a failure.
const PATIENCE: Duration = Duration::from_secs(120);
const PAUSE: Duration = Duration::from_millis(2);
/// A request that takes longer is sent to the next server.
const TIMEOUT: Duration = Duration::from_secs(1);
const NODES: Resource = Resource::core("nodes");
const LEASE: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/kube-controller-manager";
const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/default/deployments";
const REPLICA_SETS: &str = "/apis/apps/v1/namespaces/default/replicasets";

/// A part of the figures that may be measured at a smaller size.
struct Size {
    fake_nodes: u32,
    /// The time after which a silent node is NotReady: nodes are watched for longer.
    grace: Duration,
}

pub(crate) async fn run(quick: bool, plan: &Plan, report: &mut Report) -> Result<()> {
    let has_etcd = std::process::Command::new("etcd").arg("--version").output().is_ok();
    if !has_etcd {
        report.skip("three servers on etcd", "there is no `etcd` in $PATH");
        return Ok(());
    }
    let size = match quick {
        true => Size { fake_nodes: 100, grace: Duration::from_secs(15) },
        false => Size { fake_nodes: 500, grace: Duration::from_secs(50) },
    };
    report.progress("starting three servers");
    let mut cluster = Cluster::start(plan, &size).await?;
    report.add(&BenchmarkResult {
        name: "up --nodes 3 --servers 3 to all Ready",
        value: cluster.took,
        unit: "ms",
        limit: 0.0,
        goal: Goal::Nothing,
    });
    cluster.measure_creates(plan, report).await?;
    cluster.measure_hand_over(report).await?;
    cluster.measure_failover(&size, report).await?;
    cluster.up.stop().await
}

/// A running cluster with its servers and members.
struct Cluster {
    up: Server,
    dir: PathBuf,
    took: f64,
    servers: Vec<(String, SocketAddr)>,
    members: Vec<SocketAddr>,
}

impl Cluster {
    async fn start(plan: &Plan, size: &Size) -> Result<Cluster> {
        let dir = plan.data("servers");
        let (cgroup, started) = (format!("{CGROUP}/servers"), Instant::now());
        let grace = format!("--controller-manager-arg=node-monitor-grace-period={}s", size.grace.as_secs());
        let flags = ["--node-name", NODE, "--cgroup-root", &cgroup, "--log-level", "error", "--nodes", "3"];
        let up = Server::up(&dir, &[&flags[..], &["--servers", "3", &grace]].concat()).await?;
        let took = started.elapsed().as_secs_f64() * 1000.0;
        let list = node_command(&dir, &["list"])?;
        let hosts = |role: &str, port: u16| -> Result<Vec<(String, SocketAddr)>> {
            let rows = list.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
            let rows = rows.filter(|row| row.get(3) == Some(&role));
            rows.map(|row| Ok((row[0].to_string(), SocketAddr::new(row[2].parse()?, port)))).collect()
        };
        let (servers, members) = (hosts("server", 6443)?, hosts("etcd", 2379)?);
        let members = members.into_iter().map(|(_, address)| address).collect();
        Ok(Cluster { up, dir, took, servers, members })
    }

    /// Creates through all servers, and puts to all members, in turns.
    async fn measure_creates(&self, plan: &Plan, report: &mut Report) -> Result<()> {
        report.progress("writing through three servers, and to etcd");
        let mut connections = Vec::new();
        for writer in 0..WRITERS {
            let (_, address) = &self.servers[writer % self.servers.len()];
            connections.push(Connection::open(*address, &self.up.tls).await?);
        }
        let mut ours = Side::over(connections, Template::post(CONFIG_MAPS, &config_map("create", BYTES)));
        let puts = Puts::open(&self.members, &self.dir.join("nodes/etcd-pki"), BYTES).await?;
        let (mut value, mut limit) = (0.0_f64, 0.0_f64);
        for _ in 0..plan.rounds {
            value = value.max(ours.rate(plan.round).await?);
            limit = limit.max(puts.rate(WRITERS, plan.round).await?);
        }
        let goal = Goal::AtLeast(0.5);
        report.add(&BenchmarkResult { name: "create 1 KiB ConfigMap, 3 servers", value, unit: "1/s", limit, goal });
        Ok(())
    }

    /// The server that runs the controllers, and the connection of another one.
    async fn leader(&self) -> Result<(String, Connection)> {
        let mut connection = self.up.connect().await?;
        let holder = holder(&mut connection).await?;
        let leader = holder.split('_').next().unwrap_or_default();
        let other = self.servers.iter().find(|(name, _)| name != leader).ok_or("there is one server only")?;
        Ok((leader.to_string(), Connection::open(other.1, &self.up.tls).await?))
    }

    /// From the last time at which a leader that stops was seen to hold the lease to the first at which another does.
    async fn measure_hand_over(&self, report: &mut Report) -> Result<()> {
        report.progress("stopping the leader");
        let (leader, mut other) = self.leader().await?;
        let own = holder(&mut other).await?;
        self.signal(&leader, Signal::TERM)?;
        let (started, mut held) = (Instant::now(), Instant::now());
        let value = loop {
            let asked = Instant::now();
            match holder(&mut other).await? {
                next if next == own => held = asked,
                next if next.is_empty() => {}
                _ => break held.elapsed().as_secs_f64() * 1000.0,
            }
            check_patience(started)?;
            tokio::time::sleep(PAUSE).await;
        };
        let (limit, goal) = (HAND_OVER_MS, Goal::AtMost(1.0));
        report.add(&BenchmarkResult { name: "controllers handed over", value, unit: "ms", limit, goal });
        self.start_again(&leader).await
    }

    /// Kills the leader while fake nodes renew their leases.
    async fn measure_failover(&mut self, size: &Size, report: &mut Report) -> Result<()> {
        report.progress(&format!("starting {} fake nodes", size.fake_nodes));
        let (admin, count) = (self.up.client()?, size.fake_nodes as usize);
        let fake = self.start_fake_nodes(size)?;
        let started = Instant::now();
        while count_ready(&admin).await? < count + self.servers.len() {
            check_patience(started)?;
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        report.progress("killing the leader");
        let (leader, mut other) = self.leader().await?;
        let killed = Instant::now();
        self.signal(&leader, Signal::KILL)?;
        let value = reconcile(&mut other).await?.duration_since(killed).as_secs_f64() * 1000.0;
        let (limit, goal) = (FAILOVER_MS, Goal::AtMost(1.0));
        report.add(&BenchmarkResult {
            name: "kill -9 of the leader to the next reconcile",
            value,
            unit: "ms",
            limit,
            goal,
        });
        let until = size.grace + Duration::from_secs(10);
        report.progress(&format!("watching {count} nodes for {} s", until.as_secs()));
        let mut least = count;
        while killed.elapsed() < until {
            // The node of the killed server is not among them.
            least = least.min(count_ready_fake(&admin).await.unwrap_or(least));
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
        fake.stop().await;
        let (value, goal) = ((count - least) as f64, Goal::AtMost(0.0));
        report.add(&BenchmarkResult {
            name: "nodes NotReady after a server was killed",
            value,
            unit: "nodes",
            limit: 1.0,
            goal,
        });
        Ok(())
    }

    /// Fake nodes, which are spread over the servers as agents are.
    fn start_fake_nodes(&self, size: &Size) -> Result<fakenode::FakeNodes> {
        let clients: Vec<Client> = (0..self.servers.len()).map(|first| self.client(first)).collect::<Result<_>>()?;
        let environment = fakenode::Environment {
            reader: clients[0].clone(),
            node: Box::new(move |name| clients[fakenode::number(name).unwrap_or(0) as usize % clients.len()].clone()),
            clock: Arc::new(SystemClock),
            seed: 1,
        };
        Ok(fakenode::start(environment, size.fake_nodes)?)
    }

    fn client(&self, first: usize) -> Result<Client> {
        let mut servers = self.servers.clone();
        servers.rotate_left(first);
        let servers = servers.iter().map(|(_, address)| https(*address, &self.up.tls)).collect::<Result<_>>()?;
        Ok(Client::new(Arc::new(Failover { servers, current: AtomicUsize::new(0) }), "bench"))
    }

    /// Sends a signal to the server of a host.
    fn signal(&self, host: &str, signal: Signal) -> Result<()> {
        // The host's own processes are older.
        let pid = processes_of(&self.dir, host)?.into_iter().max().ok_or("no server")?;
        let pid = Pid::from_raw(pid as i32).ok_or("no process")?;
        Ok(kill_process(pid, signal)?)
    }

    /// Starts a host that has ended, and waits until its node is ready.
    async fn start_again(&self, host: &str) -> Result<()> {
        let started = Instant::now();
        while node_command(&self.dir, &["start", host]).is_err() {
            check_patience(started)?;
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        Ok(())
    }
}

fn https(address: SocketAddr, tls: &Tls) -> Result<Https> {
    Ok(Https::new(&address.ip().to_string(), address.port(), Some("localhost"), tls.config())?)
}

fn node_command(dir: &Path, words: &[&str]) -> Result<String> {
    let output = this_binary()?.arg("node").args(words).arg("--data-dir").arg(dir).output()?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    if output.status.success() { Ok(text(&output.stdout)) } else { Err(text(&output.stderr).into()) }
}

fn check_patience(started: Instant) -> Result<()> {
    if started.elapsed() > PATIENCE { Err("the cluster did not change in time".into()) } else { Ok(()) }
}

async fn fetch(connection: &mut Connection, path: &str) -> Result<Tree> {
    let body = connection.fetch(Template::get(path).bytes()).await?;
    Ok(api::json::decode(&body).map_err(|error| error.to_string())?)
}

async fn holder(connection: &mut Connection) -> Result<String> {
    Ok(fetch(connection, LEASE).await?.str("spec.holderIdentity").to_string())
}

/// Creates a Deployment, and waits for its ReplicaSet; returns when it was seen.
async fn reconcile(connection: &mut Connection) -> Result<Instant> {
    let deployment = r#"{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"next"},"spec":{"replicas":0,"selector":{"matchLabels":{"app":"next"}},"template":{"metadata":{"labels":{"app":"next"}},"spec":{"containers":[{"name":"c","image":"i"}]}}}}"#;
    let started = Instant::now();
    connection.exchange(Template::post(DEPLOYMENTS, deployment).bytes()).await?;
    while fetch(connection, REPLICA_SETS).await?.list("items").is_empty() {
        check_patience(started)?;
        tokio::time::sleep(PAUSE).await;
    }
    Ok(Instant::now())
}

fn is_ready(node: &&Tree) -> bool {
    let mut conditions = node.list("status.conditions").iter();
    conditions.any(|condition| condition.str("type") == "Ready" && condition.str("status") == "True")
}

async fn count_ready(client: &Client) -> Result<usize> {
    Ok(client.list(NODES, "", "").await?.list("items").iter().filter(is_ready).count())
}

async fn count_ready_fake(client: &Client) -> Result<usize> {
    let query = format!("labelSelector={}%3Dtrue", fakenode::LABEL.replace('/', "%2F"));
    Ok(client.list(NODES, "", &query).await?.list("items").iter().filter(is_ready).count())
}

/// Sends requests to one server until a request fails, then to the next one.
struct Failover {
    servers: Vec<Https>,
    current: AtomicUsize,
}

impl Transport for Failover {
    fn send(&self, request: Request<Bytes>) -> ResponseFuture<'_> {
        let current = self.current.load(Ordering::Relaxed);
        let server = &self.servers[current % self.servers.len()];
        Box::pin(async move {
            let response = match tokio::time::timeout(TIMEOUT, server.send(request)).await {
                Ok(response) => response,
                Err(_) => Err(::client::Error::Transport("no response in time".to_string())),
            };
            if response.is_err() {
                // Of the requests that fail together, one selects the next server.
                let next = current + 1;
                let _ = self.current.compare_exchange(current, next, Ordering::Relaxed, Ordering::Relaxed);
            }
            response
        })
    }
}

//! The request filters: the cost of the whole chain for a GET, and the effect of a flood of one tenant on another.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::Child;
use std::time::{Duration, Instant};

use super::Plan;
use crate::Result;
use crate::child::{Server, this_binary};
use crate::client::{Connection, Tls};
use crate::cores::{self, pinned};
use crate::figure::{BenchmarkResult, Goal, Report};
use crate::load::{Side, compare};
use crate::objects::{CONFIG_MAPS, STORED_EXTRA_BYTES, Template, config_map, numbered};

const CONNECTIONS: usize = 64;
const ROLES: u64 = 500;
/// For each role.
const BINDINGS: usize = 4;
const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1/namespaces/default";

/// Tokens of the two tenants; only these servers know them.
const FLOODER: &str = "token-of-the-flooder";
const TENANT: &str = "token-of-the-tenant";
const USERS: &str = "token-of-the-flooder,flooder,1\ntoken-of-the-tenant,tenant,2\n";
/// Everything at Metadata; the stage that upstream's own example leaves out too is left out.
const POLICY: &str =
    "apiVersion: audit.k8s.io/v1\nkind: Policy\nomitStages: [RequestReceived]\nrules:\n- level: Metadata\n";

pub(crate) async fn run(plan: &Plan, report: &mut Report) -> Result<()> {
    report.progress("measuring the chain of a GET");
    chain(plan, report).await?;
    report.progress("measuring a tenant beside a flood");
    flood(plan, report).await
}

/// The same GET with the same token: with RBAC and audit, and with AlwaysAllow without audit.
async fn chain(plan: &Plan, report: &mut Report) -> Result<()> {
    let whole = Server::apiserver(&plan.data("whole"), &whole_chain(&plan.data("whole"))?).await?;
    let least = Server::apiserver(&plan.data("least"), &least_chain(&plan.data("least"))?).await?;
    fill_rbac(&whole).await?;
    let path = numbered(CONFIG_MAPS, "gate").replace('#', "0");
    for server in [&whole, &least] {
        let object = config_map("gate", 1024 - STORED_EXTRA_BYTES);
        Side::open(server, 1, Template::post(CONFIG_MAPS, &object)).await?.fill(1).await?;
    }
    let get = Template::get(&path).with_token(TENANT);
    let mut ours = Side::over(anonymous(&whole, CONNECTIONS).await?, get.clone());
    let mut bares = Side::over(anonymous(&least, CONNECTIONS).await?, get);
    // The difference is small: many short rounds give both sides some undisturbed ones.
    let (value, limit) = compare(&mut ours, &mut bares, plan.rounds * 3, plan.round / 3).await?;
    let name = "GET with RBAC and audit against AlwaysAllow";
    report.add(&BenchmarkResult { name, value, unit: "1/s", limit, goal: Goal::AtLeast(0.8) });
    Ok(())
}

fn whole_chain(dir: &Path) -> Result<Vec<String>> {
    std::fs::create_dir_all(dir)?;
    std::fs::write(dir.join("policy.yaml"), POLICY)?;
    let mut flags = vec!["--authorization-mode=RBAC".to_string()];
    flags.push(format!("--audit-policy-file={}", dir.join("policy.yaml").display()));
    flags.push(format!("--audit-log-path={}", dir.join("audit.log").display()));
    flags.push(users(dir)?);
    Ok(flags)
}

fn least_chain(dir: &Path) -> Result<Vec<String>> {
    std::fs::create_dir_all(dir)?;
    Ok(vec!["--authorization-mode=AlwaysAllow".to_string(), users(dir)?])
}

fn users(dir: &Path) -> Result<String> {
    let path = dir.join("tokens.csv");
    std::fs::write(&path, USERS)?;
    Ok(format!("--token-auth-file={}", path.display()))
}

/// Roles and bindings of others, and the tenants' own among them.
async fn fill_rbac(server: &Server) -> Result<()> {
    let role = r#"{"kind":"Role","apiVersion":"rbac.authorization.k8s.io/v1","metadata":{"name":"role-########"},"rules":[{"apiGroups":["","apps"],"resources":["configmaps","pods","deployments"],"verbs":["get","list","watch"]}]}"#;
    let roles = format!("{RBAC}/roles");
    Side::open(server, 16, Template::post(&roles, role)).await?.fill(ROLES).await?;
    for batch in 0..BINDINGS {
        let binding = binding(&format!("b{batch}-########"), "role-########", &format!("user-{batch}-########"));
        let bindings = format!("{RBAC}/rolebindings");
        Side::open(server, 16, Template::post(&bindings, &binding)).await?.fill(ROLES).await?;
    }
    for tenant in ["flooder", "tenant"] {
        let request = Template::post(&format!("{RBAC}/rolebindings"), &binding(tenant, "role-00000007", tenant));
        server.connect().await?.exchange(request.bytes()).await?;
    }
    Ok(())
}

fn binding(name: &str, role: &str, user: &str) -> String {
    format!(
        r#"{{"kind":"RoleBinding","apiVersion":"rbac.authorization.k8s.io/v1","metadata":{{"name":"{name}"}},"roleRef":{{"apiGroup":"rbac.authorization.k8s.io","kind":"Role","name":"{role}"}},"subjects":[{{"kind":"User","apiGroup":"rbac.authorization.k8s.io","name":"{user}"}}]}}"#
    )
}

/// Connections of a client that authenticates with a token.
async fn anonymous(server: &Server, count: usize) -> Result<Vec<Connection>> {
    let tls = Tls::anonymous()?;
    let mut connections = Vec::with_capacity(count);
    for _ in 0..count {
        connections.push(Connection::open(server.address, &tls).await?);
    }
    Ok(connections)
}

/// How long the second tenant is looked at in a round: many turns of the flood, not some lucky ones.
const ROUND: Duration = Duration::from_millis(1500);
/// From the flood's first requests until it is at its full height.
const RISE: Duration = Duration::from_millis(300);
const FLOOD_CONNECTIONS: usize = 128;

/// Server and tenant on one core, the flood's client on the other.
async fn flood(plan: &Plan, report: &mut Report) -> Result<()> {
    let dir = plan.data("flood");
    let flags = whole_chain(&dir)?;
    let server = cores::run_pinned(cores::SERVER, || Server::spawn_apiserver(&dir, &flags))?.ready().await?;
    let bare = cores::run_pinned(cores::SERVER, Server::spawn_bare)?.reachable().await?;
    fill_rbac(&server).await?;
    let object = config_map("flood", 1024 - STORED_EXTRA_BYTES);
    Side::open(&server, 8, Template::post(CONFIG_MAPS, &object)).await?.fill(LISTED).await?;
    let mine = numbered(CONFIG_MAPS, "flood").replace('#', "0");
    copy(&server, &mine, &bare, "/mine").await?;
    let floods = [("p99 beside a flood of GETs", mine.as_str()), ("p99 beside a flood of LISTs", CONFIG_MAPS)];
    for (name, flooded) in floods {
        copy(&server, flooded, &bare, "/flood").await?;
        let (mut value, mut limit) = (f64::MAX, f64::MAX);
        for _ in 0..plan.rounds.div_ceil(3) {
            value = value.min(measure_beside_flood(&server, flooded, &mine).await?);
            limit = limit.min(measure_beside_flood(&bare, "/flood", "/mine").await?);
        }
        report.add(&BenchmarkResult { name, value, unit: "ms", limit, goal: Goal::AtMost(3.0) });
    }
    Ok(())
}

/// Copies a response of one server to the other.
async fn copy(from: &Server, path: &str, to: &Server, as_path: &str) -> Result<()> {
    let request = Template::get(path);
    let bytes = from.connect().await?.fetch(request.bytes()).await?;
    to.connect().await?.exchange(Template::put(as_path, &bytes).bytes()).await?;
    Ok(())
}

/// Objects that a LIST of the flood shows.
const LISTED: u64 = 200;

/// The second tenant's p99, in milliseconds, while the flood goes on.
async fn measure_beside_flood(server: &Server, flooded: &str, mine: &str) -> Result<f64> {
    let (address, request) = (server.address, Template::get(mine).with_token(TENANT));
    let flooded = flooded.to_string();
    let _flood = tokio::task::spawn_blocking(move || Flood::start(address, &flooded)).await??;
    let measure = move || -> Result<Vec<Duration>> {
        cores::pin(cores::SERVER)?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(sample(address, &request))
    };
    let mut samples = tokio::task::spawn_blocking(move || std::thread::spawn(measure).join())
        .await?
        .map_err(|_| "the measuring thread panicked")??;
    samples.sort_unstable();
    let p99 = samples[samples.len() * 99 / 100];
    Ok(p99.as_secs_f64() * 1e3)
}

async fn sample(address: std::net::SocketAddr, request: &Template) -> Result<Vec<Duration>> {
    let mut connection = Connection::open(address, &Tls::anonymous()?).await?;
    let rise = Instant::now();
    while rise.elapsed() < RISE {
        connection.exchange(request.bytes()).await?;
    }
    let mut samples = Vec::new();
    let round = Instant::now();
    while round.elapsed() < ROUND {
        let started = Instant::now();
        let answer = connection.exchange(request.bytes()).await?;
        if answer.code != 200 {
            return Err(format!("the second tenant was answered with {}", answer.code).into());
        }
        samples.push(started.elapsed());
    }
    Ok(samples)
}

struct Flood(Child);

impl Flood {
    fn start(address: std::net::SocketAddr, path: &str) -> Result<Flood> {
        let mut command = this_binary()?;
        command.args(["bench", "flood", &address.to_string(), path, FLOODER]);
        let mut child = pinned(cores::FLOOD, &mut command)?;
        // The child reports when all its connections are open.
        let line = child.stdout.take().map(|out| BufReader::new(out).read_line(&mut String::new())).transpose()?;
        let flood = Flood(child);
        if line.unwrap_or(0) > 0 { Ok(flood) } else { Err("the flood did not begin".into()) }
    }
}

impl Drop for Flood {
    fn drop(&mut self) {
        // The process may have exited already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The flood itself, in a separate process: as many requests as the core can send, whatever the responses.
pub(crate) async fn send_flood(address: std::net::SocketAddr, path: &str, token: &str) -> Result<()> {
    let (tls, request) = (Tls::anonymous()?, Template::get(path).with_token(token));
    let mut connections = Vec::new();
    for _ in 0..FLOOD_CONNECTIONS {
        connections.push(Connection::open(address, &tls).await?);
    }
    println!("open");
    let tasks: Vec<_> =
        connections.into_iter().map(|connection| tokio::spawn(repeat(connection, request.clone()))).collect();
    for task in tasks {
        task.await??;
    }
    Ok(())
}

async fn repeat(mut connection: Connection, request: Template) -> Result<()> {
    loop {
        connection.exchange(request.bytes()).await?;
    }
}

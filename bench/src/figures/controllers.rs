//! The control loops over a thousand nodes that run nothing: how long they take, how many requests an
//! object costs them, and what they use when there is nothing to do.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use api::Tree;

use super::Plan;
use crate::child::Server;
use crate::client::Connection;
use crate::figure::{BenchmarkResult, Goal, Report};
use crate::load::Side;
use crate::objects::{Template, config_map};
use crate::{Result, process};

/// How much there is to do.
struct Size {
    nodes: u64,
    replicas: u64,
    deployments: u64,
    objects: u64,
}

/// Replicas of each of the many Deployments.
const EACH: u64 = 10;
/// Upstream's time for 1,000 pods on such a machine, without client limits.
const UPSTREAM_POD_MS: f64 = 4.75;
/// A longer time is a failure.
const PATIENCE: Duration = Duration::from_secs(300);
const PAUSE: Duration = Duration::from_millis(10);
/// Between looks that cost the server more than a moment.
const LONG_PAUSE: Duration = Duration::from_millis(250);
const IDLE: Duration = Duration::from_secs(2);

const PODS: &str = "/api/v1/namespaces/default/pods";
const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/default/deployments";
const SLICES: &str = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices";

pub(crate) async fn run(quick: bool, plan: &Plan, report: &mut Report) -> Result<()> {
    let size = if quick {
        Size { nodes: 100, replicas: 200, deployments: 50, objects: 1_000 }
    } else {
        Size { nodes: 1_000, replicas: 1_000, deployments: 500, objects: 10_000 }
    };
    idle(plan, report).await?;
    report.progress(&format!("starting a cluster with {} fake nodes", size.nodes));
    let mut bench = Bench::start(plan, &size).await?;
    bench.idle_nodes(plan, report).await?;
    bench.one_deployment(size.replicas, report).await?;
    report.progress(&format!("rolling {} Deployments", size.deployments));
    bench.many_deployments(size.deployments, report).await?;
    bench.endpoints(size.deployments * EACH, report).await?;
    bench.namespace(size.objects, report).await
}

/// A cluster with nothing in it.
async fn idle(plan: &Plan, report: &mut Report) -> Result<()> {
    let mut bench =
        Bench { server: Server::api_with(&plan.data("idle"), &[]).await?, size_of_nodes: 0, connection: None };
    report.progress(&format!("watching an idle cluster for {} s", plan.idle.as_secs() + 2));
    // The work after the start is complete by then.
    tokio::time::sleep(Duration::from_secs(2)).await;
    let spent = bench.spend(async |_| pause(plan.idle).await).await?;
    let value = spent.cpu.as_secs_f64() / plan.idle.as_secs_f64() * 100.0;
    report.add(&BenchmarkResult { name: "CPU, idle", value, unit: "%", limit: 0.1, goal: Goal::AtMost(1.0) });
    let value = spent.requests(|_| true) as f64;
    report.add(&BenchmarkResult { name: "requests, idle", value, unit: "requests", limit: 0.0, goal: Goal::Nothing });
    let value = spent.requests(|key| !key.contains("leases")) as f64;
    let name = "requests but for leases, idle";
    report.add(&BenchmarkResult { name, value, unit: "requests", limit: 1.0, goal: Goal::AtMost(0.0) });
    Ok(())
}

async fn pause(time: Duration) -> Result<()> {
    tokio::time::sleep(time).await;
    Ok(())
}

struct Bench {
    server: Server,
    size_of_nodes: u64,
    /// One that was used a moment ago: a server closes those that are idle.
    connection: Option<(Connection, Instant)>,
}

/// The cost of an operation.
struct Cost {
    time: Duration,
    cpu: Duration,
    /// By verb, resource and subresource.
    requests: Totals,
}

type Totals = BTreeMap<String, u64>;

impl Cost {
    fn requests(&self, chosen: impl Fn(&str) -> bool) -> u64 {
        self.requests.iter().filter(|(key, _)| chosen(key)).map(|(_, count)| count).sum()
    }

    fn millis(&self) -> f64 {
        self.time.as_secs_f64() * 1e3
    }

    /// CPU milliseconds of the whole process, the nodes' part included.
    fn cpu_millis_each(&self, count: u64) -> f64 {
        self.cpu.as_secs_f64() * 1e3 / count as f64
    }
}

/// Events that the scheduler wrote; requests do not say whose they are.
const SCHEDULED: &str = "POST events of the scheduler";
const SCHEDULER_EVENTS: &str = "/api/v1/events?fieldSelector=source%3Ddefault-scheduler";

/// The writes of the nodes and of the scheduler: no controller's.
fn is_of_others(key: &str) -> bool {
    let others = ["leases", "nodes", "pods/binding", "PATCH pods/status", "/metrics", SCHEDULED];
    others.iter().any(|part| key.contains(part))
}

/// The requests between two counts; the scheduler's events are counted separately.
fn between(before: &Totals, mut after: Totals, scheduled: u64) -> Totals {
    for (key, count) in before {
        if let Some(after) = after.get_mut(key) {
            *after -= count;
        }
    }
    if let Some(events) = after.get_mut("POST events") {
        // One may have been written after the requests were counted.
        let scheduled = scheduled.min(*events);
        *events -= scheduled;
        after.insert(SCHEDULED.to_string(), scheduled);
    }
    after.retain(|_, count| *count > 0);
    after
}

fn is_write(key: &str) -> bool {
    !["GET ", "LIST ", "WATCH "].iter().any(|verb| key.starts_with(verb))
}

impl Bench {
    async fn start(plan: &Plan, size: &Size) -> Result<Bench> {
        let nodes = size.nodes.to_string();
        let server = Server::api_with(&plan.data("controllers"), &["--fake-nodes", &nodes]).await?;
        let mut bench = Bench { server, size_of_nodes: size.nodes, connection: None };
        bench.until(async |bench| Ok(bench.count("/api/v1/nodes").await? == bench.size_of_nodes)).await?;
        Ok(bench)
    }

    async fn connection(&mut self) -> Result<&mut Connection> {
        let fresh = self.connection.take().filter(|(_, used)| used.elapsed() < IDLE);
        let connection = match fresh {
            Some((connection, _)) => connection,
            None => self.server.connect().await?,
        };
        Ok(&mut self.connection.insert((connection, Instant::now())).0)
    }

    async fn fetch(&mut self, request: &Template) -> Result<Vec<u8>> {
        self.connection().await?.fetch(request.bytes()).await
    }

    async fn get(&mut self, path: &str) -> Result<Tree> {
        let bytes = self.fetch(&Template::get(path)).await?;
        api::json::decode(&bytes).map_err(|error| error.to_string().into())
    }

    /// How many objects a list has.
    async fn count(&mut self, path: &str) -> Result<u64> {
        let sign = if path.contains('?') { '&' } else { '?' };
        let page = self.get(&format!("{path}{sign}limit=1")).await?;
        let rest = page.int("metadata.remainingItemCount").unwrap_or(0);
        Ok(page.list("items").len() as u64 + rest.unsigned_abs())
    }

    /// Lists with selectors do not say how many are left.
    async fn count_selected(&mut self, path: &str) -> Result<u64> {
        let page = self.get(path).await?;
        Ok(page.list("items").len() as u64)
    }

    async fn until(&mut self, holds: impl AsyncFnMut(&mut Bench) -> Result<bool>) -> Result<()> {
        self.until_paced(PAUSE, holds).await
    }

    async fn until_paced(
        &mut self,
        pause: Duration,
        mut holds: impl AsyncFnMut(&mut Bench) -> Result<bool>,
    ) -> Result<()> {
        let started = Instant::now();
        while !holds(self).await? {
            if started.elapsed() > PATIENCE {
                return Err("the controllers do not get there".into());
            }
            tokio::time::sleep(pause).await;
        }
        Ok(())
    }

    async fn totals(&mut self) -> Result<Totals> {
        let text = String::from_utf8(self.fetch(&Template::get("/metrics")).await?)?;
        Ok(read_totals(&text))
    }

    async fn spend(&mut self, work: impl AsyncFnOnce(&mut Bench) -> Result<()>) -> Result<Cost> {
        let scheduled = self.count_selected(SCHEDULER_EVENTS).await?;
        let (before, cpu, started) = (self.totals().await?, process::cpu_nanos(self.server.pid())?, Instant::now());
        work(self).await?;
        let time = started.elapsed();
        let cpu = process::cpu_nanos(self.server.pid())?.saturating_sub(cpu);
        let after = self.totals().await?;
        let scheduled = self.count_selected(SCHEDULER_EVENTS).await?.saturating_sub(scheduled);
        Ok(Cost { time, cpu, requests: between(&before, after, scheduled) })
    }

    async fn idle_nodes(&mut self, plan: &Plan, report: &mut Report) -> Result<()> {
        tokio::time::sleep(Duration::from_secs(2)).await;
        let spent = self.spend(async |_| pause(plan.idle).await).await?;
        let value = spent.cpu.as_secs_f64() / plan.idle.as_secs_f64() * 100.0;
        let name = "CPU, idle with the fake nodes' leases";
        report.add(&BenchmarkResult { name, value, unit: "%", limit: 0.0, goal: Goal::Nothing });
        Ok(())
    }

    async fn one_deployment(&mut self, replicas: u64, report: &mut Report) -> Result<()> {
        let body = deployment("one", replicas, "one", "v1");
        let spent = self
            .spend(async |bench| {
                bench.fetch(&Template::post(DEPLOYMENTS, &body)).await?;
                bench.until(async |bench| Ok(bench.count(PODS).await? >= replicas)).await
            })
            .await?;
        let (value, limit) = (spent.millis(), UPSTREAM_POD_MS * replicas as f64);
        let name = "pods of one Deployment created";
        report.add(&BenchmarkResult { name, value, unit: "ms", limit, goal: Goal::Aim(0.1) });
        let value = spent.cpu_millis_each(replicas);
        report.add(&BenchmarkResult {
            name: "CPU a pod, nodes included",
            value,
            unit: "ms",
            limit: 0.0,
            goal: Goal::Nothing,
        });
        let settle = self
            .spend(async |bench| {
                let path = format!("{DEPLOYMENTS}/one");
                let ready = async |bench: &mut Bench| {
                    Ok(bench.get(&path).await?.int("status.readyReplicas").unwrap_or(0).unsigned_abs() == replicas)
                };
                bench.until(ready).await
            })
            .await?;
        let value = spent.millis() + settle.millis();
        report.add(&BenchmarkResult {
            name: "pods of one Deployment ready",
            value,
            unit: "ms",
            limit,
            goal: Goal::Nothing,
        });
        let posts = spent.requests(|key| key == "POST pods") as f64 / replicas as f64;
        report.add(&BenchmarkResult {
            name: "creates a pod",
            value: posts,
            unit: "requests",
            limit: 1.0,
            goal: Goal::AtMost(1.0),
        });
        let writes = |spent: &Cost| spent.requests(|key| is_write(key) && !is_of_others(key));
        let value = (writes(&spent) + writes(&settle)) as f64 / replicas as f64;
        let name = "controllers' writes a pod, events included";
        report.add(&BenchmarkResult { name, value, unit: "requests", limit: 1.0, goal: Goal::Nothing });
        self.fetch(&Template::delete(&format!("{DEPLOYMENTS}/one"))).await?;
        self.until(async |bench| Ok(bench.count(PODS).await? == 0)).await
    }

    async fn many_deployments(&mut self, deployments: u64, report: &mut Report) -> Result<()> {
        let pods = deployments * EACH;
        let create = Template::post(DEPLOYMENTS, &deployment("roll-########", EACH, "roll", "v1"));
        Side::open(&self.server, 16, create).await?.fill(deployments).await?;
        self.until_paced(LONG_PAUSE, async |bench| Ok(bench.settled(deployments).await?)).await?;
        let patch = r#"{"spec":{"template":{"metadata":{"labels":{"version":"v2"}}}}}"#;
        let patch = Template::merge_patch(&format!("{DEPLOYMENTS}/roll-########"), patch);
        let mut side = Side::open(&self.server, 16, patch).await?;
        let spent = self
            .spend(async |bench| {
                side.fill(deployments).await?;
                bench.until_paced(LONG_PAUSE, async |bench| Ok(bench.settled(deployments).await?)).await
            })
            .await?;
        let new = self.count_selected(&format!("{PODS}?labelSelector=version%3Dv2")).await?;
        if new != pods {
            return Err(format!("{new} of {pods} pods are of the new template").into());
        }
        let name = "Deployments of 10 rolled to a new template";
        report.add(&BenchmarkResult { name, value: spent.millis(), unit: "ms", limit: 0.0, goal: Goal::Nothing });
        let value = spent.cpu_millis_each(pods);
        report.add(&BenchmarkResult {
            name: "CPU a pod rolled, nodes included",
            value,
            unit: "ms",
            limit: 0.0,
            goal: Goal::Nothing,
        });
        let value = spent.requests(|key| is_write(key) && !is_of_others(key)) as f64 / pods as f64;
        let name = "controllers' writes a pod rolled, events included";
        report.add(&BenchmarkResult { name, value, unit: "requests", limit: 2.0, goal: Goal::Nothing });
        let value = spent.requests(|key| key == "POST pods") as f64 / pods as f64;
        report.add(&BenchmarkResult {
            name: "creates a pod rolled",
            value,
            unit: "requests",
            limit: 1.0,
            goal: Goal::AtMost(1.0),
        });
        Ok(())
    }

    /// Whether all Deployments have what they want, and only that.
    async fn settled(&mut self, deployments: u64) -> Result<bool> {
        if self.count(PODS).await? != deployments * EACH {
            return Ok(false);
        }
        let list = self.get(&format!("{DEPLOYMENTS}?labelSelector=set%3Droll")).await?;
        let done = |deployment: &Tree| {
            let status = |key: &str| deployment.at("status").int(key).unwrap_or(0).unsigned_abs();
            let seen =
                status("observedGeneration") == deployment.int("metadata.generation").unwrap_or(0).unsigned_abs();
            seen && ["replicas", "updatedReplicas", "readyReplicas"].iter().all(|key| status(key) == EACH)
        };
        let items = list.list("items");
        Ok(items.len() as u64 == deployments && items.iter().all(done))
    }

    async fn endpoints(&mut self, pods: u64, report: &mut Report) -> Result<()> {
        let service = r#"{"kind":"Service","apiVersion":"v1","metadata":{"name":"roll"},"spec":{"selector":{"set":"roll"},"ports":[{"port":80}]}}"#;
        let spent = self
            .spend(async |bench| {
                bench.fetch(&Template::post("/api/v1/namespaces/default/services", service)).await?;
                bench.until_paced(LONG_PAUSE, async |bench| Ok(bench.endpoints_ready(true).await? == pods)).await
            })
            .await?;
        let slices = |spent: &Cost| spent.requests(|key| is_write(key) && key.contains("endpointslices")) as f64;
        let name = "endpoints of a Service published";
        report.add(&BenchmarkResult { name, value: spent.millis(), unit: "ms", limit: 0.0, goal: Goal::Nothing });
        let limit = pods.div_ceil(100) as f64;
        let name = "writes of slices, published";
        report.add(&BenchmarkResult { name, value: slices(&spent), unit: "requests", limit, goal: Goal::Nothing });
        let names = self.get(&format!("{PODS}?labelSelector=set%3Droll")).await?;
        let names: Vec<String> = names.list("items").iter().map(|pod| pod.str("metadata.name").to_string()).collect();
        let spent = self
            .spend(async |bench| {
                bench.make_unready(names).await?;
                bench.until_paced(LONG_PAUSE, async |bench| Ok(bench.endpoints_ready(false).await? == pods)).await
            })
            .await?;
        let name = "pods' endpoints changed";
        report.add(&BenchmarkResult { name, value: spent.millis(), unit: "ms", limit: 0.0, goal: Goal::Nothing });
        let value = slices(&spent) / pods as f64;
        report.add(&BenchmarkResult {
            name: "writes of slices a pod",
            value,
            unit: "requests",
            limit: 1.0,
            goal: Goal::AtMost(1.0),
        });
        let value = spent.cpu_millis_each(pods);
        report.add(&BenchmarkResult {
            name: "CPU a pod's endpoint, nodes included",
            value,
            unit: "ms",
            limit: 0.0,
            goal: Goal::Nothing,
        });
        Ok(())
    }

    /// Endpoints that are ready, or are not.
    async fn endpoints_ready(&mut self, ready: bool) -> Result<u64> {
        let list = self.get(&format!("{SLICES}?labelSelector=kubernetes.io/service-name%3Droll")).await?;
        let endpoints = list.list("items").iter().flat_map(|slice| slice.list("endpoints"));
        Ok(endpoints.filter(|endpoint| endpoint.bool("conditions.ready") == ready).count() as u64)
    }

    async fn make_unready(&self, names: Vec<String>) -> Result<()> {
        let patch = r#"{"metadata":{"annotations":{"tiphys.io/fake-ready-seconds":"never"}}}"#;
        let mut tasks = Vec::new();
        for part in names.chunks(names.len().div_ceil(16).max(1)) {
            let (mut connection, part) = (self.server.connect().await?, part.to_vec());
            tasks.push(tokio::spawn(async move {
                for name in part {
                    let request = Template::merge_patch(&format!("{PODS}/{name}"), patch);
                    connection.exchange(request.bytes()).await?;
                }
                Ok::<(), crate::Failure>(())
            }));
        }
        for task in tasks {
            task.await??;
        }
        Ok(())
    }

    async fn namespace(&mut self, objects: u64, report: &mut Report) -> Result<()> {
        let namespace = r#"{"kind":"Namespace","apiVersion":"v1","metadata":{"name":"full"}}"#;
        self.fetch(&Template::post("/api/v1/namespaces", namespace)).await?;
        let create = Template::post("/api/v1/namespaces/full/configmaps", &config_map("full", 1024));
        Side::open(&self.server, 16, create).await?.fill(objects).await?;
        let spent = self
            .spend(async |bench| {
                bench.fetch(&Template::delete("/api/v1/namespaces/full")).await?;
                let gone = async |bench: &mut Bench| {
                    let request = Template::get("/api/v1/namespaces/full");
                    Ok(bench.connection().await?.exchange(request.bytes()).await?.code == 404)
                };
                bench.until(gone).await
            })
            .await?;
        let name = "a namespace of many objects deleted";
        report.add(&BenchmarkResult { name, value: spent.millis(), unit: "ms", limit: 0.0, goal: Goal::Nothing });
        let value = spent.requests(|key| is_write(key) && !is_of_others(key)) as f64 / objects as f64;
        let name = "writes an object of a deleted namespace";
        report.add(&BenchmarkResult { name, value, unit: "requests", limit: 1.0, goal: Goal::AtMost(1.0) });
        let value = spent.cpu_millis_each(objects);
        report.add(&BenchmarkResult {
            name: "CPU an object of a deleted namespace",
            value,
            unit: "ms",
            limit: 0.0,
            goal: Goal::Nothing,
        });
        Ok(())
    }
}

fn deployment(name: &str, replicas: u64, set: &str, version: &str) -> String {
    format!(
        r#"{{"kind":"Deployment","apiVersion":"apps/v1","metadata":{{"name":"{name}","labels":{{"set":"{set}"}}}},"spec":{{"replicas":{replicas},"selector":{{"matchLabels":{{"app":"{name}"}}}},"template":{{"metadata":{{"labels":{{"app":"{name}","set":"{set}","version":"{version}"}}}},"spec":{{"containers":[{{"name":"web","image":"registry.example/web:1","ports":[{{"containerPort":80}}]}}]}}}}}}}}"#
    )
}

/// Sums of `apiserver_request_total` by verb, resource and subresource.
fn read_totals(text: &str) -> Totals {
    let mut totals = BTreeMap::new();
    for line in text.lines().filter_map(|line| line.strip_prefix("apiserver_request_total{")) {
        let Some((labels, count)) = line.rsplit_once("} ") else { continue };
        let label = |name: &str| {
            let (_, rest) = labels.split_once(&format!("{name}=\""))?;
            rest.split('"').next()
        };
        // `subresource` ends in `resource` too: the comma distinguishes them.
        let labels_of = |name: &str| label(&format!(",{name}")).or_else(|| label(name)).unwrap_or("");
        let (verb, resource, sub) = (labels_of("verb"), labels_of("resource"), labels_of("subresource"));
        let key = if sub.is_empty() { format!("{verb} {resource}") } else { format!("{verb} {resource}/{sub}") };
        *totals.entry(key).or_insert(0) += count.parse().unwrap_or(0);
    }
    totals
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_totals_over_status_codes() {
        let text = "# HELP x\n\
            apiserver_request_total{code=\"201\",group=\"\",resource=\"pods\",subresource=\"\",verb=\"POST\",version=\"v1\"} 3\n\
            apiserver_request_total{code=\"409\",group=\"\",resource=\"pods\",subresource=\"\",verb=\"POST\",version=\"v1\"} 1\n\
            apiserver_request_total{code=\"200\",group=\"\",resource=\"pods\",subresource=\"status\",verb=\"PATCH\",version=\"v1\"} 2\n";
        let totals = read_totals(text);
        assert_eq!(totals.get("POST pods"), Some(&4));
        assert_eq!(totals.get("PATCH pods/status"), Some(&2));
        assert!(is_of_others("PATCH pods/status") && !is_of_others("POST pods"));
    }

    #[test]
    fn separates_events_of_the_scheduler() {
        let totals = |events: u64| Totals::from([("POST events".to_string(), events), ("POST pods".to_string(), 5)]);
        let spent = between(&totals(10), totals(40), 20);
        assert_eq!(spent, Totals::from([("POST events".to_string(), 10), (SCHEDULED.to_string(), 20)]));
        assert!(is_of_others(SCHEDULED) && !is_of_others("POST events"));
        assert_eq!(between(&totals(10), totals(12), 3), Totals::from([(SCHEDULED.to_string(), 2)]));
    }

    #[test]
    fn builds_deployments_as_json() {
        api::json::decode(deployment("a", 3, "b", "v1").as_bytes()).expect("JSON");
    }
}

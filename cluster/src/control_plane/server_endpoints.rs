//! The addresses of the servers that share a store, in the endpoints of the `kubernetes` Service. A server adds its own
//! address when it starts (`server::bootstrap`). Each server renews a Lease, removes the addresses of servers whose
//! Lease is not renewed, and its own address when it stops.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use api::time::format_micros;
use api::{Tree, tree};
use client::{Client, Resource};
use server::Server;
use server::registry::announce::{SERVER as LABEL, SERVER_LEASE_NAMESPACE as LEASE_NAMESPACE, SERVER_LEASE_PREFIX};
use stdx::clock::{Clock, SystemClock};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::in_process::LocalClients;
use crate::component::skew;
use crate::error::{Error, Result};
use crate::node::join_objects;

const LEASES: Resource = Resource::new("coordination.k8s.io", "v1", "leases");
const SLICES: Resource = Resource::new("discovery.k8s.io", "v1", "endpointslices");
const ENDPOINTS: Resource = Resource::core("endpoints");
const NAMESPACE: &str = "default";
const NAME: &str = "kubernetes";
const RENEW: Duration = Duration::from_secs(2);
/// A server whose lease was not renewed for so long is removed from the endpoints.
const EXPIRATION: Duration = Duration::from_secs(8);
/// Two servers may write the endpoints at the same time.
const ATTEMPTS: usize = 5;
const STOP_TIMEOUT: Duration = Duration::from_secs(3);
/// The annotation of a server's lease with its version of Kubernetes.
const VERSION: &str = "tiphys.io/kubernetes-version";
/// A lease that was not renewed for so long, by the clock of this machine, is not that of a running server.
const STALE_SECONDS: i64 = 60;

/// Refuses a store that holds another cluster: its certificates are of a CA that this server does not have.
pub(super) fn check_cluster(server: &Server, ca: &str) -> Result<()> {
    let maps = server.objects("configmaps", join_objects::PUBLIC);
    let Some(info) = maps.iter().find(|map| map.str("metadata.name") == join_objects::INFO) else { return Ok(()) };
    match join_objects::has_ca(info, ca) {
        true => Ok(()),
        false => Err(Error::Bootstrap(
            "the store holds another cluster, whose CA this server does not have: join it with --server, --token and \
             --certificate-key (`tiphys token create --control-plane --print-join-command` on one of its servers \
             prints the command), or use another --etcd-prefix"
                .to_string(),
        )),
    }
}

/// Refuses to run beside servers whose versions do not fit.
pub(super) fn check_versions(server: &Server) -> Result<()> {
    let leases = server.objects("leases", LEASE_NAMESPACE);
    let own = server.config.advertise_address.to_string();
    skew::check_servers(versions_of_others(&leases, &own, SystemClock.now().seconds))
}

/// The addresses and versions of the other servers that run.
fn versions_of_others<'a>(leases: &'a [Tree], own: &str, now: i64) -> impl Iterator<Item = (&'a str, &'a str)> {
    let address = |lease: &'a Tree| lease.str("spec.holderIdentity");
    let is_other = move |lease: &&Tree| address_of_lease(lease).is_some_and(|address| address != own);
    let runs = move |lease: &&Tree| {
        api::time::parse(lease.str("spec.renewTime")).is_ok_and(|at| (now - at.seconds).abs() < STALE_SECONDS)
    };
    let others: Vec<&Tree> = leases.iter().filter(is_other).filter(runs).collect();
    others.into_iter().map(move |lease| (address(lease), lease.map("metadata.annotations").str(VERSION)))
}

/// The server of a lease. A lease speaks for no other server than that of its name.
fn address_of_lease(lease: &Tree) -> Option<&str> {
    let address = lease.str("spec.holderIdentity");
    (!address.is_empty() && lease.str("metadata.name") == lease_name(address)).then_some(address)
}

/// Keeps the endpoints up to date while the server runs.
pub(super) struct ServerEndpoints {
    keeper: EndpointReconciler,
    stop: watch::Sender<bool>,
    task: JoinHandle<()>,
}

impl ServerEndpoints {
    pub(super) fn start(server: &Arc<Server>) -> ServerEndpoints {
        let client =
            LocalClients::new(server).client("kube-apiserver", "system:apiserver".to_string(), &["system:masters"]);
        let address = server.config.advertise_address;
        let is_published = server.config.publishes_endpoints && !address.is_loopback();
        let own = is_published.then(|| address.to_string());
        let keeper = EndpointReconciler { client, own, observed: BTreeMap::new() };
        let (stop, stopped) = watch::channel(false);
        let task = tokio::spawn(keeper.clone().run(stopped));
        ServerEndpoints { keeper, stop, task }
    }

    /// Removes the server's own address: clients turn to other servers.
    pub(super) async fn stop(self) {
        self.stop.send_replace(true);
        let _ = self.task.await;
        if let Some(own) = self.keeper.own.clone() {
            let own = BTreeSet::from([own]);
            if let Ok(Err(error)) = tokio::time::timeout(STOP_TIMEOUT, self.keeper.remove(&own)).await {
                tracing::warn!(%error, "failed to remove the server from the endpoints of the Service kubernetes");
            }
        }
    }
}

#[derive(Clone)]
struct EndpointReconciler {
    client: Client,
    /// The server's own address, if it is in the endpoints.
    own: Option<String>,
    observed: BTreeMap<String, ObservedServer>,
}

/// A server's lease, and since when it is unchanged.
#[derive(Clone)]
struct ObservedServer {
    renewed: String,
    since: Instant,
}

impl EndpointReconciler {
    async fn run(mut self, mut stopped: watch::Receiver<bool>) {
        loop {
            if let Err(error) = self.sync().await {
                tracing::warn!(%error, "failed to sync the endpoints of the Service kubernetes, retrying");
            }
            tokio::select! {
                biased;
                _ = stopped.wait_for(|stopped| *stopped) => return,
                () = tokio::time::sleep(RENEW) => {}
            }
        }
    }

    async fn sync(&mut self) -> client::Result<()> {
        if let Some(own) = &self.own {
            self.renew(own).await?;
            self.ensure_listed(own).await?;
        }
        let leases = self.client.list(LEASES, LEASE_NAMESPACE, &format!("labelSelector={LABEL}")).await?;
        let expired = observe(&mut self.observed, leases.list("items"), Instant::now());
        let expired: BTreeSet<String> =
            expired.into_iter().filter(|address| Some(address) != self.own.as_ref()).collect();
        if expired.is_empty() {
            return Ok(());
        }
        tracing::info!(?expired, "removing servers whose lease has expired");
        self.remove(&expired).await
    }

    async fn renew(&self, own: &str) -> client::Result<()> {
        let name = lease_name(own);
        let lease = lease(own);
        match self.client.get(LEASES, LEASE_NAMESPACE, &name).await {
            Ok(mut found) => {
                found.set("spec", lease.at("spec").clone());
                found.child("metadata").child("annotations").set(VERSION, skew::own_version());
                self.client.update(LEASES, LEASE_NAMESPACE, &name, &found).await.map(drop)
            }
            Err(error) if error.is_not_found() => self.client.create(LEASES, LEASE_NAMESPACE, &lease).await.map(drop),
            Err(error) => Err(error),
        }
    }

    /// Another server may have removed this one while it was stalled.
    async fn ensure_listed(&self, own: &str) -> client::Result<()> {
        self.edit(SLICES, &|slice| add_to_slice(slice, own)).await?;
        self.edit(ENDPOINTS, &|endpoints| add_to_subset(endpoints, own)).await
    }

    async fn remove(&self, addresses: &BTreeSet<String>) -> client::Result<()> {
        self.edit(SLICES, &|slice| remove_from_slice(slice, addresses)).await?;
        self.edit(ENDPOINTS, &|endpoints| remove_from_subsets(endpoints, addresses)).await?;
        for address in addresses {
            let name = lease_name(address);
            match self.client.delete(LEASES, LEASE_NAMESPACE, &name, client::DeleteOptions::default()).await {
                Err(error) if !error.is_not_found() => return Err(error),
                _ => {}
            }
        }
        Ok(())
    }

    /// Changes an object of the Service, if the change is one.
    async fn edit(&self, resource: Resource, change: &(dyn Fn(&mut Tree) + Send + Sync)) -> client::Result<()> {
        let mut attempt = 0;
        loop {
            let found = self.client.get(resource, NAMESPACE, NAME).await?;
            let mut changed = found.clone();
            change(&mut changed);
            if changed == found {
                return Ok(());
            }
            match self.client.update(resource, NAMESPACE, NAME, &changed).await {
                Err(error) if error.is_conflict() && attempt < ATTEMPTS => attempt += 1,
                written => return written.map(drop),
            }
        }
    }
}

fn lease_name(address: &str) -> String {
    format!("{SERVER_LEASE_PREFIX}{}", address.replace(['.', ':'], "-"))
}

fn lease(address: &str) -> Tree {
    let mut labels = tree! {};
    // Colons are not allowed in values of labels.
    labels.set(LABEL, address.replace(':', "-"));
    let mut annotations = tree! {};
    annotations.set(VERSION, skew::own_version());
    tree! {
        "apiVersion" => "coordination.k8s.io/v1",
        "kind" => "Lease",
        "metadata" => tree! {
            "name" => lease_name(address), "namespace" => LEASE_NAMESPACE, "labels" => labels,
            "annotations" => annotations,
        },
        "spec" => tree! {
            "holderIdentity" => address,
            "leaseDurationSeconds" => EXPIRATION.as_secs() as i64,
            "renewTime" => format_micros(SystemClock.now()),
        },
    }
}

/// The addresses of servers whose lease has been unchanged for too long. Time is measured by the local clock, since
/// machines' clocks differ.
fn observe(observed: &mut BTreeMap<String, ObservedServer>, leases: &[Tree], now: Instant) -> Vec<String> {
    let leases: Vec<&Tree> = leases.iter().filter(|lease| address_of_lease(lease).is_some()).collect();
    let current: BTreeSet<&str> = leases.iter().map(|lease| lease.str("spec.holderIdentity")).collect();
    observed.retain(|address, _| current.contains(address.as_str()));
    for lease in leases {
        let (address, renewed) = (lease.str("spec.holderIdentity"), lease.str("spec.renewTime"));
        match observed.get_mut(address) {
            Some(known) if known.renewed == renewed => {}
            _ => {
                let server = ObservedServer { renewed: renewed.to_string(), since: now };
                observed.insert(address.to_string(), server);
            }
        }
    }
    let is_expired = |server: &ObservedServer| now.duration_since(server.since) >= EXPIRATION;
    observed.iter().filter(|(_, server)| is_expired(server)).map(|(address, _)| address.clone()).collect()
}

fn address_of_endpoint(endpoint: &Tree) -> &str {
    endpoint.list("addresses").first().and_then(Tree::as_str).unwrap_or("")
}

fn add_to_slice(slice: &mut Tree, own: &str) {
    let mut all = slice.list("endpoints").to_vec();
    if all.iter().any(|endpoint| address_of_endpoint(endpoint) == own) {
        return;
    }
    all.push(tree! { "addresses" => vec![Tree::from(own)], "conditions" => tree! { "ready" => true } });
    all.sort_by(|one, other| address_of_endpoint(one).cmp(address_of_endpoint(other)));
    slice.set("endpoints", all);
}

fn add_to_subset(endpoints: &mut Tree, own: &str) {
    let Some(subset) = endpoints.list("subsets").first() else { return };
    let mut all = subset.list("addresses").to_vec();
    if all.iter().any(|address| address.str("ip") == own) {
        return;
    }
    all.push(tree! { "ip" => own });
    all.sort_by(|one, other| one.str("ip").cmp(other.str("ip")));
    let mut subset = subset.clone();
    subset.set("addresses", all);
    endpoints.set("subsets", vec![subset]);
}

/// The last server stays listed, as upstream: an empty list says nothing to clients.
fn remove_from_slice(slice: &mut Tree, addresses: &BTreeSet<String>) {
    let left = slice.list("endpoints").iter().filter(|endpoint| !addresses.contains(address_of_endpoint(endpoint)));
    let left: Vec<Tree> = left.cloned().collect();
    if !left.is_empty() {
        slice.set("endpoints", left);
    }
}

fn remove_from_subsets(endpoints: &mut Tree, addresses: &BTreeSet<String>) {
    let without = |subset: &Tree| {
        let left = subset.list("addresses").iter().filter(|address| !addresses.contains(address.str("ip")));
        let left: Vec<Tree> = left.cloned().collect();
        let mut subset = subset.clone();
        (!left.is_empty()).then(|| {
            subset.set("addresses", left);
            subset
        })
    };
    let subsets: Vec<Tree> = endpoints.list("subsets").iter().filter_map(without).collect();
    if !subsets.is_empty() {
        endpoints.set("subsets", subsets);
    }
}

#[cfg(test)]
mod tests {
    use api::list;

    use super::*;

    #[test]
    fn versions_of_running_servers_are_compared() {
        let lease = |address: &str, name: &str, renewed: &str, version: &str| {
            let mut annotations = tree! {};
            annotations.set(VERSION, version);
            tree! {
                "metadata" => tree! { "name" => name, "annotations" => annotations },
                "spec" => tree! { "holderIdentity" => address, "renewTime" => renewed },
            }
        };
        let now = "1970-01-01T00:10:00.000000Z";
        let leases = [
            lease("10.0.0.1", "tiphys-server-10-0-0-1", now, "1.36"),
            lease("10.0.0.2", "tiphys-server-10-0-0-2", now, "1.38"),
            lease("10.0.0.3", "tiphys-server-10-0-0-3", "1970-01-01T00:00:00.000000Z", "1.30"),
            lease("10.0.0.4", "another", now, "1.30"),
        ];
        let others: Vec<_> = versions_of_others(&leases, "10.0.0.1", 600).collect();
        assert_eq!(others, [("10.0.0.2", "1.38")], "neither this server, nor one that is gone, nor another lease");
        assert_eq!(super::lease("10.0.0.1").map("metadata.annotations").str(VERSION), "1.37");
    }

    #[test]
    fn a_server_expires_when_its_lease_is_not_renewed() {
        let lease = |address: &str, renewed: &str| {
            tree! {
                "metadata" => tree! { "name" => lease_name(address) },
                "spec" => tree! { "holderIdentity" => address, "renewTime" => renewed },
            }
        };
        let mut observed = BTreeMap::new();
        let start = Instant::now();
        let mut at =
            |seconds: u64, leases: &[Tree]| observe(&mut observed, leases, start + Duration::from_secs(seconds));
        assert!(at(0, &[lease("10.0.0.1", "a"), lease("10.0.0.2", "a")]).is_empty());
        assert!(at(7, &[lease("10.0.0.1", "b"), lease("10.0.0.2", "a")]).is_empty());
        assert_eq!(at(8, &[lease("10.0.0.1", "b"), lease("10.0.0.2", "a")]), ["10.0.0.2"]);
        assert!(at(9, &[lease("10.0.0.1", "c"), lease("10.0.0.2", "b")]).is_empty(), "it has come back");
        assert!(at(99, &[]).is_empty());
        let mut other = lease("10.0.0.1", "a");
        other.child("metadata").set("name", "other");
        for seconds in [100, 199] {
            assert!(at(seconds, &[other.clone()]).is_empty(), "the name is that of no server");
        }
    }

    #[test]
    fn endpoints_lose_only_expired_servers() {
        let endpoint = |ip: &str| tree! { "addresses" => list![ip] };
        let mut slice = tree! { "endpoints" => list![endpoint("10.0.0.1"), endpoint("10.0.0.2")] };
        let expired = BTreeSet::from(["10.0.0.2".to_string()]);
        remove_from_slice(&mut slice, &expired);
        assert_eq!(slice.list("endpoints"), &[endpoint("10.0.0.1")]);
        add_to_slice(&mut slice, "10.0.0.1");
        assert_eq!(slice.list("endpoints").len(), 1, "it is listed already");
        add_to_slice(&mut slice, "10.0.0.0");
        assert_eq!(address_of_endpoint(&slice.list("endpoints")[0]), "10.0.0.0");
        let addresses = list![tree! { "ip" => "10.0.0.1" }, tree! { "ip" => "10.0.0.2" }];
        let mut endpoints = tree! { "subsets" => list![tree! { "addresses" => addresses, "ports" => list![1] }] };
        remove_from_subsets(&mut endpoints, &expired);
        add_to_subset(&mut endpoints, "10.0.0.3");
        let ips: Vec<&str> =
            endpoints.list("subsets")[0].list("addresses").iter().map(|address| address.str("ip")).collect();
        assert_eq!(ips, ["10.0.0.1", "10.0.0.3"]);
        assert_eq!(endpoints.list("subsets")[0].list("ports").len(), 1);
        let all = ["10.0.0.0", "10.0.0.1", "10.0.0.2", "10.0.0.3"].map(str::to_string).into();
        let before = (slice.clone(), endpoints.clone());
        remove_from_slice(&mut slice, &all);
        remove_from_subsets(&mut endpoints, &all);
        assert_eq!((slice, endpoints), before, "the last one stays");
    }
}

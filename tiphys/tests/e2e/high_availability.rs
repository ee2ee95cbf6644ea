//! Three servers with controllers and scheduler on an etcd cluster of three members, each on a host of its own: leaders are
//! killed in turn under load.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use api::{Tree, json};
use stdx::sync::Mutex;
use stdx::wait::until_ok_await;
use tokio::sync::watch;

use crate::etcd_servers::{SERVERS, Servers};
use crate::members::PATIENCE;
use crate::support::{Client, config_map};

const LEASE: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/kube-controller-manager";
const MAPS: &str = "/api/v1/namespaces/default/configmaps";
/// Enough for a debug build on a busy machine; `tiphys bench nodes` measures.
const FAILOVER: Duration = Duration::from_secs(30);

async fn client(pki: &Path, host: u32) -> Client {
    Client::at(pki, SocketAddr::from(([10, 9, 0, host as u8], 6443))).await
}

async fn get(pki: &Path, host: u32, path: &str) -> Tree {
    let read = async || {
        let (code, body) = client(pki, host).await.call("GET", path, "").await.map_err(|error| error.to_string())?;
        if code == 200 { json::decode(&body).map_err(|error| error.to_string()) } else { Err(format!("{code}")) }
    };
    until_ok_await(path, PATIENCE, read).await
}

/// The host that leads: its name is the beginning of the identity.
async fn leader(pki: &Path, through: u32) -> u32 {
    let read = async || {
        let lease = get(pki, through, LEASE).await;
        let holder = lease.str("spec.holderIdentity").to_string();
        SERVERS.into_iter().find(|host| holder.starts_with(&format!("s{host}_"))).ok_or(holder)
    };
    until_ok_await("a leader", PATIENCE, read).await
}

fn deployment(name: &str) -> String {
    format!(
        r#"{{"apiVersion":"apps/v1","kind":"Deployment","metadata":{{"name":"{name}"}},"spec":{{"replicas":0,"selector":
        {{"matchLabels":{{"a":"{name}"}}}},"template":{{"metadata":{{"labels":{{"a":"{name}"}}}},"spec":{{"containers":
        [{{"name":"c","image":"i"}}]}}}}}}}}"#
    )
}

/// Creates a Deployment, and waits until a controller has created its ReplicaSet.
async fn reconciles(pki: &Path, through: u32, name: &str) {
    let path = "/apis/apps/v1/namespaces/default/deployments";
    let create = async || {
        let (code, _) =
            client(pki, through).await.call("POST", path, &deployment(name)).await.map_err(|e| e.to_string())?;
        if code == 201 || code == 409 { Ok(()) } else { Err(format!("{code}")) }
    };
    until_ok_await("a deployment", PATIENCE, create).await;
    let sets = format!("/apis/apps/v1/namespaces/default/replicasets?labelSelector=a%3D{name}");
    let found = async || match get(pki, through, &sets).await.list("items").len() {
        1 => Ok(()),
        count => Err(format!("{count} ReplicaSets")),
    };
    until_ok_await("its ReplicaSet", FAILOVER, found).await;
}

/// Creates objects through one server, and through the next one when that fails.
async fn load(pki: PathBuf, number: u32, done: watch::Receiver<bool>, acknowledged: Arc<Mutex<BTreeSet<String>>>) {
    let mut server = number as usize;
    let mut count = 0;
    let mut connection: Option<Client> = None;
    while !*done.borrow() {
        let name = format!("load-{number}-{count}");
        let mut current = match connection.take() {
            Some(current) => current,
            None => match Client::try_at(&pki, SocketAddr::from(([10, 9, 0, SERVERS[server % 3] as u8], 6443))).await {
                Some(current) => current,
                None => {
                    server += 1;
                    tokio::time::sleep(Duration::from_millis(50)).await;
                    continue;
                }
            },
        };
        let body = config_map(&name, "x");
        let created = tokio::time::timeout(Duration::from_secs(20), current.call("POST", MAPS, &body));
        match created.await {
            // A request that failed may have been executed.
            Ok(Ok((201 | 409, _))) => {
                acknowledged.lock().insert(name);
                count += 1;
                connection = Some(current);
            }
            _ => {
                server += 1;
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
    }
}

#[test]
fn leaders_are_replaced_and_no_write_is_lost() {
    let mut servers = Servers::start();
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let pki = servers.pki();
        let (stop, done) = watch::channel(false);
        let acknowledged = Arc::new(Mutex::new(BTreeSet::new()));
        let writers: Vec<_> =
            (0..3).map(|number| tokio::spawn(load(pki.clone(), number, done.clone(), acknowledged.clone()))).collect();
        reconciles(&pki, SERVERS[0], "before").await;
        for round in 0..3 {
            let leads = leader(&pki, SERVERS[0]).await;
            let other = SERVERS.into_iter().find(|host| *host != leads).expect("there are three");
            servers.signal(leads, "-KILL");
            let killed = Instant::now();
            servers.wait(leads);
            reconciles(&pki, other, &format!("killed-{round}")).await;
            println!("reconciled {} ms after the leader was killed", killed.elapsed().as_millis());
            assert_ne!(leader(&pki, other).await, leads);
            servers.run(leads);
        }
        // One that stops hands over.
        let leads = leader(&pki, SERVERS[0]).await;
        let other = SERVERS.into_iter().find(|host| *host != leads).expect("there are three");
        servers.signal(leads, "-TERM");
        servers.wait(leads);
        reconciles(&pki, other, "handed-over").await;
        stop.send_replace(true);
        for writer in writers {
            tokio::time::timeout(PATIENCE, writer).await.expect("it ends").expect("it does not fail");
        }
        let maps = get(&pki, other, MAPS).await;
        let there: BTreeSet<String> =
            maps.list("items").iter().map(|item| item.str("metadata.name").to_string()).collect();
        let acknowledged = acknowledged.lock().clone();
        let lost: Vec<&String> = acknowledged.difference(&there).collect();
        assert!(acknowledged.len() > 20 && lost.is_empty(), "of {}: lost {lost:?}", acknowledged.len());
        services_have_different_addresses(&pki, SERVERS.into_iter().filter(|host| *host != leads).collect()).await;
    });
}

/// Every server allocates addresses, in the same commit as the Service.
async fn services_have_different_addresses(pki: &Path, hosts: Vec<u32>) {
    let create = |number: usize| {
        let (pki, host) = (pki.to_path_buf(), hosts[number % hosts.len()]);
        async move {
            let body = format!(
                r#"{{"apiVersion":"v1","kind":"Service","metadata":{{"name":"s{number}"}},"spec":{{"type":"NodePort","ports":[{{"port":80}}]}}}}"#
            );
            let (code, body) = client(&pki, host)
                .await
                .call("POST", "/api/v1/namespaces/default/services", &body)
                .await
                .expect("a response");
            assert_eq!(code, 201, "{}", String::from_utf8_lossy(&body));
            let service = json::decode(&body).expect("JSON");
            let port = service.list("spec.ports")[0].int("nodePort");
            (service.str("spec.clusterIP").to_string(), port)
        }
    };
    let created: Vec<_> = (0..30).map(|number| tokio::spawn(create(number))).collect();
    let (mut addresses, mut ports) = (BTreeSet::new(), BTreeSet::new());
    for one in created {
        let (address, port) = one.await.expect("created");
        addresses.insert(address);
        ports.insert(port);
    }
    assert_eq!((addresses.len(), ports.len()), (30, 30), "addresses and ports are unique");
}

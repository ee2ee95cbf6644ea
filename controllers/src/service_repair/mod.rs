//! Repairs the cluster IPs and node ports of services. As in upstream, this belongs to the API server: it acts as the
//! server itself, whichever controllers run.

mod plan;
mod ports;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use api::{Tree, validation};
use client::{Client, DeleteOptions, Index, Key, Recorder, Resource, Result, Selection, Store, split};
use kinds::core::service::allocation::cluster_ips;
use stdx::cidr::IpNet;

use crate::support::endpoint_pods::SERVICES;
use crate::support::event_message::EventDeduplicator;
use crate::support::networks::networks;
use crate::{Context, Outcome, Reconcile, ReconcileFuture, Setup};
use plan::{AddressAction, Finding, Lookups};

pub(crate) use ports::start as start_ports;

const ADDRESSES: Resource = Resource::new("networking.k8s.io", "v1", "ipaddresses");
const RANGES: Resource = Resource::new("networking.k8s.io", "v1", "servicecidrs");
/// The ServiceCIDR of the server's flag.
const DEFAULT_RANGE: &str = "kubernetes";
/// Services by the names of their IPAddresses.
const BY_ADDRESS: Index = Index { name: "clusterIP", values: address_names };

/// Keys with a namespace are services, others IPAddresses.
struct Controller {
    services: Arc<Store>,
    addresses: Arc<Store>,
    ranges: Arc<Store>,
    client: Client,
    recorder: Recorder,
    event_recorder: EventDeduplicator,
    context: Context,
}

pub(crate) fn start_addresses(setup: &Setup, context: &Context) -> Option<Box<dyn Reconcile>> {
    let services = setup.informer(SERVICES);
    services.index_by(BY_ADDRESS);
    let addresses = setup.informer(Selection::all(ADDRESSES));
    let ranges = setup.informer(Selection::all(RANGES));
    let queue = context.queue.clone();
    services.on_change(move |change| {
        let seen = [change.old.as_deref(), change.new.as_deref()].into_iter().flatten();
        seen.flat_map(address_names).for_each(|name| queue.add(Key::from(name)));
        queue.add(change.key.clone());
    });
    let (store, queue) = (services.store().clone(), context.queue.clone());
    addresses.on_change(move |change| {
        store.find(BY_ADDRESS, &change.key).iter().for_each(|service| queue.add(client::key_of(service)));
        queue.add(change.key.clone());
    });
    // A changed ServiceCIDR may affect any service, which is rare.
    let (store, queue) = (services.store().clone(), context.queue.clone());
    ranges.on_change(move |change| {
        if change.old.is_none() || change.new.is_none() {
            store.keys().into_iter().for_each(|key| queue.add(key));
        }
    });
    Some(Box::new(Controller {
        services: services.store().clone(),
        addresses: addresses.store().clone(),
        ranges: ranges.store().clone(),
        client: context.client.clone(),
        recorder: context.recorder.clone(),
        event_recorder: EventDeduplicator::default(),
        context: context.clone(),
    }))
}

fn address_names(service: &Tree) -> Vec<String> {
    let ips = cluster_ips(service).into_iter().filter_map(validation::parse_ip);
    ips.map(|ip| ip.to_string()).collect()
}

impl Controller {
    async fn sync_service(&self, key: &str) -> Result<Outcome> {
        let Some(service) = self.services.get(key) else {
            self.event_recorder.remove(key);
            return Ok(Outcome::Done);
        };
        let all = self.ranges.all();
        if !all.iter().any(|range| range.str("metadata.name") == DEFAULT_RANGE) {
            return Ok(Outcome::Done);
        }
        let ranges: Vec<IpNet> = all.iter().flat_map(|range| networks(range)).collect();
        let mut findings = self.check_service(&service, &ranges);
        if findings.iter().any(|finding| finding.create.is_some()) {
            findings = self.recheck_service(key, &ranges).await?;
        }
        let events = findings.iter().filter_map(|finding| finding.event.clone()).collect();
        self.event_recorder.record_all(&self.recorder, &service, events);
        for made in findings.iter().filter_map(|finding| finding.create.as_ref()) {
            self.create(made).await?;
        }
        Ok(Outcome::Done)
    }

    fn check_service(&self, service: &Tree, ranges: &[IpNet]) -> Vec<Finding> {
        let known = Lookups {
            ranges,
            address: &|name| self.addresses.get(name),
            service: &|namespace, name| self.services.get(&format!("{namespace}/{name}")),
        };
        plan::plan_service(service, &known)
    }

    /// Checks again with data from the server: a service and its addresses change in one commit, but the informers
    /// show them one after the other.
    async fn recheck_service(&self, key: &str, ranges: &[IpNet]) -> Result<Vec<Finding>> {
        let (namespace, name) = split(key);
        let Some(service) = self.read(SERVICES.resource, namespace, name).await? else { return Ok(Vec::new()) };
        let mut addresses = BTreeMap::new();
        let mut parents = BTreeMap::new();
        for name in address_names(&service) {
            let Some(address) = self.read(ADDRESSES, "", &name).await? else { continue };
            if let Some((namespace, name)) = plan::parent(&address)
                && let Some(parent) = self.read(SERVICES.resource, namespace, name).await?
            {
                parents.insert(client::key_of(&parent), parent);
            }
            addresses.insert(name, address);
        }
        // A missing address was deleted with its service, unless the service is unchanged after the check.
        let after = self.read(SERVICES.resource, namespace, name).await?;
        if after.is_none_or(|after| after.str("metadata.uid") != service.str("metadata.uid")) {
            return Ok(Vec::new());
        }
        let known = Lookups {
            ranges,
            address: &|name| addresses.get(name).cloned(),
            service: &|namespace, name| parents.get(&*format!("{namespace}/{name}")).cloned(),
        };
        Ok(plan::plan_service(&service, &known))
    }

    async fn sync_address(&self, name: &str) -> Result<Outcome> {
        let Some(address) = self.addresses.get(name) else { return Ok(Outcome::Done) };
        let seen = |namespace: &str, name: &str| self.services.get(&format!("{namespace}/{name}"));
        let now = self.context.now_seconds();
        match plan::plan_address(&address, &seen, now) {
            AddressAction::Keep => return Ok(Outcome::Done),
            AddressAction::Wait { seconds } => {
                return Ok(Outcome::RequeueAfter(Duration::from_secs(seconds.unsigned_abs())));
            }
            AddressAction::Delete(_) => {}
        }
        let parent = match plan::parent(&address) {
            Some((namespace, name)) => self.read(SERVICES.resource, namespace, name).await?,
            None => None,
        };
        if let AddressAction::Delete(event) = plan::plan_address(&address, &|_, _| parent.clone(), now) {
            event.record(&self.recorder, &address);
            self.delete(&address).await?;
        }
        Ok(Outcome::Done)
    }

    async fn read(&self, resource: Resource, namespace: &str, name: &str) -> Result<Option<Arc<Tree>>> {
        match self.client.get(resource, namespace, name).await {
            Err(error) if error.is_not_found() => Ok(None),
            result => result.map(|object| Some(Arc::new(object))),
        }
    }

    async fn create(&self, object: &Tree) -> Result<()> {
        if let Some(old) = self.read(ADDRESSES, "", object.str("metadata.name")).await? {
            self.delete(&old).await?;
        }
        self.client.create(ADDRESSES, "", object).await.map(|_| ())
    }

    async fn delete(&self, address: &Tree) -> Result<()> {
        match self.client.delete(ADDRESSES, "", address.str("metadata.name"), DeleteOptions::of(address)).await {
            Err(error) if !error.is_not_found() => Err(error),
            _ => Ok(()),
        }
    }
}

impl Reconcile for Controller {
    fn reconcile<'a>(&'a self, key: &'a str) -> ReconcileFuture<'a> {
        match key.contains('/') {
            true => Box::pin(self.sync_service(key)),
            false => Box::pin(self.sync_address(key)),
        }
    }
}

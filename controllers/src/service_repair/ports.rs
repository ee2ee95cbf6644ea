//! Reports services with invalid node ports. Allocations are read from the services themselves, so that no port can
//! leak; ports written by other servers, or for another range, can still be wrong.

use std::collections::BTreeSet;
use std::ops::RangeInclusive;
use std::sync::Arc;

use api::Tree;
use client::{Index, Recorder, Store};
use kinds::core::service::allocation::node_ports;

use crate::support::endpoint_pods::SERVICES;
use crate::support::event_message::{EventDeduplicator, EventMessage};
use crate::{Context, Outcome, Reconcile, ReconcileFuture, Setup};

const BY_PORT: Index = Index { name: "nodePort", values: ports };

struct Controller {
    services: Arc<Store>,
    range: RangeInclusive<u16>,
    recorder: Recorder,
    event_recorder: EventDeduplicator,
}

pub(crate) fn start(setup: &Setup, context: &Context) -> Option<Box<dyn Reconcile>> {
    let services = setup.informer(SERVICES);
    services.index_by(BY_PORT);
    let (store, queue) = (services.store().clone(), context.queue.clone());
    services.on_change(move |change| {
        queue.add(change.key.clone());
        let seen = [change.old.as_deref(), change.new.as_deref()].into_iter().flatten();
        let others = seen.flat_map(ports).flat_map(|port| store.find(BY_PORT, &port));
        others.for_each(|service| queue.add(client::key_of(&service)));
    });
    Some(Box::new(Controller {
        services: services.store().clone(),
        range: context.options.service_node_ports.clone(),
        recorder: context.recorder.clone(),
        event_recorder: EventDeduplicator::default(),
    }))
}

fn ports(service: &Tree) -> Vec<String> {
    let numbers: BTreeSet<i64> = node_ports(service).into_iter().map(|port| port.number).collect();
    numbers.into_iter().map(|number| number.to_string()).collect()
}

/// The problems with the ports of a service; `first` returns the key of the first service with a port.
fn plan(service: &Tree, range: &RangeInclusive<u16>, first: impl Fn(&str) -> Option<client::Key>) -> Vec<EventMessage> {
    let own = client::key_of(service);
    let judge = |port: String| {
        let is_inside = port.parse().is_ok_and(|number: u16| range.contains(&number));
        if !is_inside {
            let (from, to) = (range.start(), range.end());
            let text = format!("Port {port} is not within the port range {from}-{to}; please recreate service");
            return Some(EventMessage::warning("PortOutOfRange", text));
        }
        let is_second = first(&port).is_some_and(|first| first < own);
        let text = || format!("Port {port} was assigned to multiple services; please recreate service");
        is_second.then(|| EventMessage::warning("PortAlreadyAllocated", text()))
    };
    ports(service).into_iter().filter_map(judge).collect()
}

impl Reconcile for Controller {
    fn reconcile<'a>(&'a self, key: &'a str) -> ReconcileFuture<'a> {
        let first = |port: &str| self.services.find(BY_PORT, port).iter().map(|service| client::key_of(service)).min();
        match self.services.get(key) {
            None => self.event_recorder.remove(key),
            Some(service) => {
                self.event_recorder.record_all(&self.recorder, &service, plan(&service, &self.range, first));
            }
        }
        Box::pin(std::future::ready(Ok(Outcome::Done)))
    }
}

#[cfg(test)]
mod tests {
    use api::{list, tree};

    use super::*;

    #[test]
    fn reports_invalid_and_duplicate_ports() {
        let check = |ports: &[i64], holder: &str, want: &[EventMessage]| {
            let port = |number: &i64| tree! { "protocol" => "TCP", "nodePort" => *number };
            let ports: Vec<Tree> = ports.iter().map(port).collect();
            let service = tree! {
                "metadata" => tree! { "namespace" => "n", "name" => "b" },
                "spec" => tree! { "type" => "NodePort", "ports" => ports },
            };
            assert_eq!(plan(&service, &(30000..=32767), |_| Some(holder.into())), want, "{holder}");
        };
        check(&[], "n/b", &[]);
        check(&[30001], "n/b", &[]);
        check(&[30001], "n/c", &[]);
        let twice = EventMessage::warning(
            "PortAlreadyAllocated",
            "Port 30001 was assigned to multiple services; please recreate service",
        );
        check(&[30001], "n/a", &[twice]);
        let outside = EventMessage::warning(
            "PortOutOfRange",
            "Port 40001 is not within the port range 30000-32767; please recreate service",
        );
        check(&[30001, 40001], "n/b", &[outside]);
        let both =
            list![tree! { "protocol" => "TCP", "nodePort" => 1 }, tree! { "protocol" => "UDP", "nodePort" => 1 }];
        assert_eq!(super::ports(&tree! { "spec" => tree! { "ports" => both } }), ["1"]);
    }
}

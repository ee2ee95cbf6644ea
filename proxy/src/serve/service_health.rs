//! The health check node ports of Services: a load balancer sends traffic to nodes with local endpoints only.

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

use stdx::sync::Mutex;

use super::health::Health;
use super::http::{Handler, Reply, Server};
use crate::model::{Family, ServiceKey};
use crate::proxier::ServiceHealth;

/// The servers of all health check ports.
pub(crate) struct ServiceHealthServers {
    health: Arc<Health>,
    families: Vec<Family>,
    servers: BTreeMap<ServiceKey, Servers>,
    counts: Arc<Mutex<BTreeMap<ServiceKey, usize>>>,
}

struct Servers {
    port: u16,
    /// None if the port could not be bound; that is not repeated until the port changes.
    _servers: Option<Vec<Server>>,
}

/// A port that could not be bound.
#[derive(Debug)]
pub(crate) struct BindError {
    pub(crate) service: ServiceKey,
    pub(crate) port: u16,
    pub(crate) error: io::Error,
}

impl ServiceHealthServers {
    pub(crate) fn new(health: Arc<Health>, families: &[Family]) -> ServiceHealthServers {
        ServiceHealthServers { health, families: families.to_vec(), servers: BTreeMap::new(), counts: Arc::default() }
    }

    /// Starts and stops servers as desired, and returns the ports that could not be bound.
    pub(crate) fn sync(&mut self, desired: &BTreeMap<ServiceKey, ServiceHealth>) -> Vec<BindError> {
        *self.counts.lock() =
            desired.iter().map(|(service, health)| (service.clone(), health.local_endpoints)).collect();
        self.servers.retain(|service, servers| desired.get(service).is_some_and(|health| health.port == servers.port));
        let mut errors = Vec::new();
        for (service, health) in desired {
            if self.servers.contains_key(service) {
                continue;
            }
            let bound = self.bind(service, health.port);
            let port = health.port;
            let servers = bound.map_err(|error| errors.push(BindError { service: service.clone(), port, error })).ok();
            self.servers.insert(service.clone(), Servers { port, _servers: servers });
        }
        errors
    }

    fn bind(&self, service: &ServiceKey, port: u16) -> io::Result<Vec<Server>> {
        let (health, counts, key) = (self.health.clone(), self.counts.clone(), service.clone());
        let handler: Handler = Arc::new(move |_| {
            let count = counts.lock().get(&key).copied().unwrap_or(0);
            reply(&key, count, health.is_healthy())
        });
        let any = |family: &Family| match family {
            Family::V4 => IpAddr::from(Ipv4Addr::UNSPECIFIED),
            Family::V6 => IpAddr::from(Ipv6Addr::UNSPECIFIED),
        };
        let bind = |family| Server::bind(SocketAddr::new(any(family), port), true, handler.clone());
        self.families.iter().map(bind).collect()
    }
}

/// Upstream's document, with its tabs.
fn reply(service: &str, count: usize, healthy: bool) -> Reply {
    let (namespace, name) = client::split(service);
    let body = format!(
        "{{\n\t\"service\": {{\n\t\t\"namespace\": \"{namespace}\",\n\t\t\"name\": \"{name}\"\n\t}},\n\
         \t\"localEndpoints\": {count},\n\t\"serviceProxyHealthy\": {healthy}\n}}"
    );
    let mut reply = Reply::json(if count != 0 && healthy { 200 } else { 503 }, body);
    reply.headers.push(("x-load-balancing-endpoint-weight", count.to_string()));
    reply
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replies_with_upstreams_json() {
        let one = reply("default/web", 2, true);
        assert_eq!(one.code, 200);
        assert_eq!(
            one.body,
            "{\n\t\"service\": {\n\t\t\"namespace\": \"default\",\n\t\t\"name\": \"web\"\n\t},\n\t\"localEndpoints\": 2,\n\
             \t\"serviceProxyHealthy\": true\n}"
        );
        assert!(one.headers.contains(&("x-load-balancing-endpoint-weight", "2".to_string())));
        assert_eq!((reply("default/web", 0, true).code, reply("default/web", 1, false).code), (503, 503));
    }
}

//! All that the decision depends on, and which pod has which address.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashSet};
use std::net::IpAddr;
use std::sync::Arc;

use api::Str;
use podmodel::Labels;

use super::{Pod, Policy};

/// Policies, pods and namespaces, as the API shows them, and the pods whose network this node's kubelet has reported.
#[derive(Clone, Debug, Default)]
pub struct Cluster {
    /// This node.
    pub node: Str,
    /// By namespace and name.
    pub policies: BTreeMap<Arc<str>, Arc<Policy>>,
    /// By namespace and name.
    pub pods: BTreeMap<Arc<str>, Arc<Pod>>,
    /// The labels of namespaces, by name.
    pub namespaces: BTreeMap<Arc<str>, Arc<Labels>>,
    /// Pods of this node, the latest report last. Their addresses are known before the API shows them.
    pub reported: Vec<Arc<Pod>>,
}

/// A pod that has addresses.
#[derive(Clone, Debug)]
pub struct Endpoint<'a> {
    /// The pod. Its labels and ports may be older than those here.
    pub pod: &'a Pod,
    /// The newest labels.
    pub labels: &'a Labels,
    /// The addresses that are this pod's and no later pod's.
    pub ips: Vec<IpAddr>,
    /// Whether the pod is on this node.
    pub local: bool,
}

impl Cluster {
    /// The pods that have addresses. An address belongs to one pod: the one that this node's kubelet has reported last,
    /// then one that is not being deleted, then the youngest.
    pub fn endpoints(&self) -> Vec<Endpoint<'_>> {
        let mut merged = HashSet::new();
        let mut endpoints = Vec::new();
        for pod in self.reported.iter().rev() {
            let shown = self.shown(pod);
            merged.extend(shown.map(|shown| (shown.namespace.as_str(), shown.name.as_str())));
            let labels = shown.map_or(&pod.labels, |shown| &shown.labels);
            if !shown.is_some_and(|shown| shown.finished) {
                endpoints.push(Endpoint { pod, labels, ips: pod.ips.clone(), local: true });
            }
        }
        let is_own = |pod: &Pod| merged.contains(&(pod.namespace.as_str(), pod.name.as_str()));
        let has_network = |pod: &Pod| !pod.host_network && !pod.finished && !pod.ips.is_empty();
        let others = self.pods.values().map(|pod| &**pod).filter(|pod| has_network(pod) && !is_own(pod));
        let mut others: Vec<&Pod> = others.collect();
        others.sort_by_key(|pod| (pod.terminating, Reverse(&pod.created), &pod.uid));
        endpoints.extend(others.into_iter().map(|pod| Endpoint {
            pod,
            labels: &pod.labels,
            ips: pod.ips.clone(),
            local: !self.node.is_empty() && pod.node == self.node,
        }));
        let mut taken = HashSet::new();
        endpoints.iter_mut().for_each(|endpoint| endpoint.ips.retain(|ip| taken.insert(*ip)));
        endpoints.retain(|endpoint| !endpoint.ips.is_empty());
        endpoints
    }

    /// The API object of a reported pod; a mirror pod has another UID than its static pod.
    fn shown(&self, pod: &Pod) -> Option<&Pod> {
        let shown = self.pods.get(&*client::key(&pod.namespace, &pod.name))?;
        (shown.uid == pod.uid || shown.mirror_of == pod.uid).then_some(shown)
    }
}

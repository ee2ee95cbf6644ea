//! Descriptions: an object for people, with its related objects and events, as upstream's `describe` prints it.
//! [`related`] reads from the server; all else are functions of what was read.

mod certificate;
mod cluster;
mod containers;
mod events;
mod generic;
mod network;
mod node;
mod pod;
mod policy;
mod rbac;
mod related;
mod storage;
mod values;
mod volumes;
mod workloads;
mod writer;

use api::Tree;

use crate::clock;
use crate::context::Context;
use crate::error::Result;
use crate::objects::Info;
use writer::Writer;

/// The description of an object.
pub(crate) async fn describe(context: &Context, info: &Info) -> Result<String> {
    let object = related::with_kind(info);
    let mut w = Writer::default();
    let shows_events = body(context, &mut w, &info.resource.group, &object).await?;
    if shows_events {
        let found = related::events(context, &object).await;
        events::describe(&mut w, found.as_deref(), clock::now());
    }
    Ok(w.finish())
}

/// Everything but the events; returns whether the kind has them.
async fn body(context: &Context, w: &mut Writer, group: &str, object: &Tree) -> Result<bool> {
    let (now, name, namespace) = (clock::now(), object.str("metadata.name"), object.str("metadata.namespace"));
    match (group, object.str("kind")) {
        ("", "Pod") => pod::describe(w, object, now),
        ("", "ReplicationController") => {
            workloads::replication_controller(w, object, &related::selected_pods(context, object).await?);
        }
        ("apps", "ReplicaSet") => workloads::replica_set(w, object, &related::selected_pods(context, object).await?),
        ("apps", "DaemonSet") => workloads::daemon_set(w, object, &related::selected_pods(context, object).await?),
        ("apps", "StatefulSet") => workloads::stateful_set(w, object, &related::selected_pods(context, object).await?),
        ("apps", "Deployment") => workloads::deployment(w, object, &related::replica_sets(context, object).await),
        ("", "Service") => {
            let slices = related::slices(context, namespace, name).await.unwrap_or_default();
            network::service(w, object, &slices);
        }
        ("networking.k8s.io", "Ingress") => network::ingress(w, object, &related::backends(context, object).await),
        ("", "ServiceAccount") => {
            let secrets = related::list(context, &related::core(namespace, "secrets"), &[]).await;
            network::service_account(w, object, &secrets.unwrap_or_default());
        }
        ("", "PersistentVolumeClaim") => {
            storage::claim(w, object, true, now);
            storage::claim_use(w, object, &related::list(context, &related::core(namespace, "pods"), &[]).await?);
        }
        ("", "Node") => {
            let pods = related::node_pods(context, name).await?;
            let lease = related::node_lease(context, name).await;
            node::describe(w, object, &node::Neighbors { lease, pods: pods.as_deref() }, now);
        }
        ("", "Namespace") => {
            let quotas = related::list_if_served(context, &related::core(name, "resourcequotas")).await?;
            let limits = related::list_if_served(context, &related::core(name, "limitranges")).await?;
            cluster::namespace(w, object, quotas.as_deref(), limits.as_deref());
            return Ok(false);
        }
        ("certificates.k8s.io", "CertificateSigningRequest") => certificate::signing_request(w, object)?,
        (group, kind) => return Ok(of_object(w, group, kind, object, now)),
    }
    Ok(true)
}

/// Kinds that need nothing but the object; returns whether they have events.
fn of_object(w: &mut Writer, group: &str, kind: &str, object: &Tree, now: i64) -> bool {
    match (group, kind) {
        ("batch", "Job") => workloads::job(w, object),
        ("batch", "CronJob") => workloads::cron_job(w, object),
        ("", "Endpoints") => network::endpoints(w, object),
        ("discovery.k8s.io", "EndpointSlice") => network::endpoint_slice(w, object),
        ("networking.k8s.io", "IngressClass") => network::ingress_class(w, object),
        ("networking.k8s.io", "ServiceCIDR") => network::service_cidr(w, object),
        ("networking.k8s.io", "IPAddress") => network::ip_address(w, object),
        ("", "PersistentVolume") => storage::volume(w, object, now),
        ("storage.k8s.io", "StorageClass") => storage::storage_class(w, object),
        ("storage.k8s.io", "VolumeAttributesClass") => storage::attributes_class(w, object),
        ("storage.k8s.io", "CSINode") => storage::csi_node(w, object),
        ("policy", "PodDisruptionBudget") => policy::disruption_budget(w, object),
        ("autoscaling", "HorizontalPodAutoscaler") => policy::autoscaler(w, object),
        ("scheduling.k8s.io", "PriorityClass") => cluster::priority_class(w, object),
        ("", "ConfigMap") => storage::config_map(w, object),
        (group, kind) => return without_events(w, group, kind, object),
    }
    true
}

fn without_events(w: &mut Writer, group: &str, kind: &str, object: &Tree) -> bool {
    match (group, kind) {
        ("", "Secret") => storage::secret(w, object),
        ("", "LimitRange") => cluster::limit_range(w, object),
        ("", "ResourceQuota") => cluster::quota(w, object),
        ("networking.k8s.io", "NetworkPolicy") => policy::network_policy(w, object),
        ("rbac.authorization.k8s.io", "Role" | "ClusterRole") => rbac::role(w, object),
        ("rbac.authorization.k8s.io", "RoleBinding" | "ClusterRoleBinding") => rbac::binding(w, object),
        _ => {
            generic::describe(w, object);
            return true;
        }
    }
    false
}

/// A pod template, with tabs between its columns.
pub(crate) fn template_text(template: &Tree) -> String {
    let mut writer = Writer::default();
    pod::template(&mut writer, template);
    writer.unaligned()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Objects, and what kubectl 1.33 printed for them without events.
    #[test]
    fn descriptions_are_those_of_kubectl() {
        let cases = api::json::decode(include_bytes!("golden.json")).expect("valid JSON");
        for case in cases.as_list().expect("a list") {
            let object = case.at("object");
            let group = object.str("apiVersion").rsplit_once('/').map_or("", |(group, _)| group);
            let mut w = Writer::default();
            match object.str("kind") {
                "Pod" => pod::describe(&mut w, object, 0),
                kind => drop(of_object(&mut w, group, kind, object, 0)),
            }
            assert_eq!(w.finish(), case.str("description"), "{}", object.str("metadata.name"));
        }
    }
}

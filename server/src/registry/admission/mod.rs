//! Admission: plugins that may change an object, then plugins that may refuse it, in one order. A plugin
//! reads other objects from the caches, never from the store, and decides by pure functions on trees.

mod always;
mod always_pull_images;
mod certificate_approval;
mod certificate_signing;
mod certificate_subject_restriction;
mod cluster_trust_bundle_attest;
mod default_ingress_class;
mod default_storage_class;
mod default_toleration_seconds;
mod deny_service_external_ips;
mod event_rate_limit;
mod expressions;
mod extended_resource_toleration;
mod image_policy_webhook;
pub mod initial_resources;
mod initializers;
mod limit_pod_hard_anti_affinity_topology;
mod limit_ranger;
mod matching;
pub mod metrics;
mod namespace_auto_provision;
mod namespace_exists;
mod namespace_lifecycle;
mod node_restriction;
mod owner_references_permission_enforcement;
mod persistent_volume_claim_resize;
mod pod_node_selector;
mod pod_resize_validator;
mod pod_security;
mod pod_toleration_restriction;
mod pod_topology_labels;
pub(crate) mod policy;
mod priority;
mod request;
pub(crate) mod resource_quota;
mod rounds;
mod run;
mod runtime_class;
mod service_account;
mod setup;
mod storage_object_in_use_protection;
mod taint_nodes_by_condition;
mod tolerations;
mod versioned_objects;
pub mod webhook;

use std::pin::Pin;

use api::Tree;
use api::status::Status;
use kinds::User;

use crate::call::Origin;
use crate::common::deadline::Deadline;
pub(crate) use crate::common::errors::join_errors;
use crate::registry::Registry;
use crate::registry::options::DeleteOptions;
use crate::storage::resource::Resource;
pub(crate) use rounds::Rounds;
pub(crate) use run::mutate;
pub(crate) use run::{admit, validate};
pub use setup::{Settings, Setup};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Operation {
    Create,
    Update,
    Delete,
    /// A connection: exec, attach, port forwarding, proxies.
    Connect,
}

/// The attributes of a request that plugins may read.
pub(crate) struct Attributes<'a> {
    pub registry: &'a Registry,
    pub resource: &'a Resource,
    pub operation: Operation,
    pub namespace: &'a str,
    pub name: &'a str,
    pub subresource: &'a str,
    pub user: &'a User,
    pub dry_run: bool,
    /// The request itself, where the write comes from one.
    pub origin: Option<Origin<'a>>,
    pub delete_options: Option<&'a DeleteOptions>,
    pub rounds: Rounds,
}

impl Attributes<'_> {
    /// When the request has to be complete; none for a write of the server itself.
    pub(crate) fn deadline(&self) -> Deadline {
        self.origin.map_or(Deadline::NONE, |origin| origin.deadline)
    }

    /// True for a write to the object itself of this kind.
    pub(crate) fn is(&self, group: &str, kind: &str, operation: Operation) -> bool {
        self.operation == operation && self.subresource.is_empty() && self.is_kind(group, kind)
    }

    /// True for any write to an object of this kind or to a part of it.
    pub(crate) fn is_kind(&self, group: &str, kind: &str) -> bool {
        self.resource.kind.group() == group && self.resource.kind.kind() == kind
    }

    /// Something for the audit log.
    pub(crate) fn annotate(&self, key: impl Into<std::borrow::Cow<'static, str>>, value: impl Into<String>) {
        if let Some(origin) = self.origin {
            origin.audit.annotate(key, value);
        }
    }

    pub(crate) fn forbidden(&self, why: impl std::fmt::Display) -> Status {
        let kind = &self.resource.kind;
        Status::forbidden(kind.group(), kind.plural(), self.name, why)
    }
}

pub(crate) type Mutate = fn(&Attributes<'_>, &mut Tree, Option<&Tree>, &mut Vec<String>) -> Result<(), Status>;
pub(crate) type Validate = fn(&Attributes<'_>, Option<&Tree>, Option<&Tree>, &mut Vec<String>) -> Result<(), Status>;

/// The future of a plugin that calls another server; None if no server is to be called.
pub type PluginFuture<'a> = Option<Pin<Box<dyn Future<Output = Result<(), Status>> + Send + 'a>>>;
/// The object is None for operations that have none.
pub(crate) type MutateAsync =
    for<'a> fn(&'a Attributes<'_>, Option<&'a mut Tree>, Option<&'a Tree>, &'a mut Vec<String>) -> PluginFuture<'a>;
pub(crate) type ValidateAsync =
    for<'a> fn(&'a Attributes<'_>, Option<&'a Tree>, Option<&'a Tree>, &'a mut Vec<String>) -> PluginFuture<'a>;

/// Reads a plugin's part of the admission configuration; an error names the field.
pub(crate) type Configure = fn(&mut Settings, &setup::Source<'_>) -> Result<(), setup::FieldError>;

/// A plugin under upstream's name.
pub struct Plugin {
    pub name: &'static str,
    /// Enabled unless a flag disables it.
    pub by_default: bool,
    pub(crate) configure: Option<Configure>,
    /// False while an object that the plugin needs is still being created by a controller.
    pub(crate) is_ready: Option<fn(&Attributes<'_>, &Tree) -> bool>,
    pub(crate) mutate: Option<Mutate>,
    pub(crate) mutate_async: Option<MutateAsync>,
    pub(crate) validate: Option<Validate>,
    pub(crate) validate_async: Option<ValidateAsync>,
}

impl Plugin {
    /// A plugin that is enabled by default.
    const fn new(name: &'static str) -> Plugin {
        Plugin {
            name,
            by_default: true,
            configure: None,
            is_ready: None,
            mutate: None,
            mutate_async: None,
            validate: None,
            validate_async: None,
        }
    }

    /// Disabled unless a flag enables it.
    const fn off(name: &'static str) -> Plugin {
        Plugin { by_default: false, ..Plugin::new(name) }
    }

    const fn mutate(self, mutate: Mutate) -> Plugin {
        Plugin { mutate: Some(mutate), ..self }
    }

    const fn mutate_async(self, mutate: MutateAsync) -> Plugin {
        Plugin { mutate_async: Some(mutate), ..self }
    }

    const fn validate(self, validate: Validate) -> Plugin {
        Plugin { validate: Some(validate), ..self }
    }

    const fn validate_async(self, validate: ValidateAsync) -> Plugin {
        Plugin { validate_async: Some(validate), ..self }
    }

    const fn wait_for(self, is_ready: fn(&Attributes<'_>, &Tree) -> bool) -> Plugin {
        Plugin { is_ready: Some(is_ready), ..self }
    }

    const fn configure(self, configure: Configure) -> Plugin {
        Plugin { configure: Some(configure), ..self }
    }
}

/// In upstream's order. Plugins of upstream that are missing here are rejected, see `setup`.
static PLUGINS: &[Plugin] = &[
    Plugin::off("AlwaysAdmit").validate(always::admit),
    // Before any plugin requires the namespace.
    Plugin::off("NamespaceAutoProvision").mutate_async(namespace_auto_provision::mutate),
    // First: no other check matters in a namespace that is missing or terminating.
    Plugin::new("NamespaceLifecycle").mutate(namespace_lifecycle::mutate).validate(namespace_lifecycle::validate),
    Plugin::off("NamespaceExists").validate(namespace_exists::validate),
    Plugin::off("LimitPodHardAntiAffinityTopology").validate(limit_pod_hard_anti_affinity_topology::validate),
    // Of old Kubernetes: usage history precedes a namespace's defaults.
    Plugin::off("InitialResources").configure(initial_resources::configure).mutate(initial_resources::mutate),
    // Requests and limits are set before any plugin counts them.
    Plugin::new("LimitRanger").mutate(limit_ranger::mutate).validate(limit_ranger::validate),
    Plugin::new("ServiceAccount")
        .wait_for(service_account::is_ready)
        .mutate(service_account::mutate)
        .validate(service_account::validate),
    // Before the taints of new nodes, which a kubelet could not set itself.
    Plugin::off("NodeRestriction")
        .mutate(node_restriction::mutate)
        .mutate_async(node_restriction::audience::mutate)
        .validate(node_restriction::validate),
    // A new node is not ready until its kubelet reports it.
    Plugin::new("TaintNodesByCondition").mutate(taint_nodes_by_condition::mutate),
    Plugin::off("AlwaysPullImages").mutate(always_pull_images::mutate).validate(always_pull_images::validate),
    Plugin::off("ImagePolicyWebhook")
        .configure(image_policy_webhook::configure)
        .validate_async(image_policy_webhook::validate),
    // Checks the pod after all mutating plugins.
    Plugin::new("PodSecurity").configure(pod_security::configure).validate(pod_security::validate),
    Plugin::off("PodNodeSelector")
        .configure(pod_node_selector::configure)
        .mutate(pod_node_selector::mutate)
        .validate(pod_node_selector::validate),
    Plugin::new("Priority").mutate(priority::mutate).validate(priority::validate),
    Plugin::new("DefaultTolerationSeconds").mutate(default_toleration_seconds::mutate),
    Plugin::off("PodTolerationRestriction")
        .configure(pod_toleration_restriction::configure)
        .mutate(pod_toleration_restriction::mutate)
        .validate(pod_toleration_restriction::validate),
    Plugin::off("EventRateLimit").configure(event_rate_limit::configure).validate(event_rate_limit::validate),
    Plugin::off("ExtendedResourceToleration").mutate(extended_resource_toleration::mutate),
    Plugin::new("DefaultStorageClass").mutate(default_storage_class::mutate),
    Plugin::new("StorageObjectInUseProtection").mutate(storage_object_in_use_protection::mutate),
    Plugin::off("OwnerReferencesPermissionEnforcement")
        .validate_async(owner_references_permission_enforcement::validate),
    Plugin::new("PersistentVolumeClaimResize").validate(persistent_volume_claim_resize::validate),
    // After the default tolerations, which the tolerations of a runtime class are merged with.
    Plugin::new("RuntimeClass").mutate(runtime_class::mutate).validate(runtime_class::validate),
    Plugin::new("CertificateApproval").validate_async(certificate_approval::validate),
    Plugin::new("CertificateSigning").validate_async(certificate_signing::validate),
    Plugin::new("ClusterTrustBundleAttest").validate_async(cluster_trust_bundle_attest::validate),
    Plugin::new("CertificateSubjectRestriction").validate(certificate_subject_restriction::validate),
    Plugin::new("DefaultIngressClass").mutate(default_ingress_class::mutate),
    Plugin::off("DenyServiceExternalIPs").validate(deny_service_external_ips::validate),
    Plugin::new("PodTopologyLabels").mutate(pod_topology_labels::mutate),
    Plugin::new("PodResizeValidator").validate(pod_resize_validator::validate),
    // After all built-in plugins: they get the object that will be stored.
    Plugin::new("MutatingAdmissionPolicy").mutate_async(policy::mutate),
    Plugin::new("MutatingAdmissionWebhook").configure(webhook::configure_mutating).mutate_async(webhook::mutate),
    // Of old Kubernetes: after all plugins that change a new object.
    Plugin::off("Initializers").mutate_async(initializers::mutate),
    // Policies are cheaper than calls.
    Plugin::new("ValidatingAdmissionPolicy").validate_async(policy::validate),
    Plugin::new("ValidatingAdmissionWebhook")
        .configure(webhook::configure_validating)
        .validate_async(webhook::validate),
    // Last: a write that another plugin rejects is not charged.
    Plugin::new("ResourceQuota").validate(resource_quota::validate),
    Plugin::off("AlwaysDeny").validate(always::deny),
];

/// The newest of the classes that one of these annotations marks as default; of the same age the first by name.
fn default_class(classes: Vec<Tree>, annotations: &[&str]) -> Option<Tree> {
    let is_default = |class: &Tree| {
        let map = class.map("metadata.annotations");
        annotations.iter().any(|annotation| map.str(annotation) == "true")
    };
    let age = |class: &Tree| class.str("metadata.creationTimestamp").to_string();
    // Classes are sorted by name, and `reduce` keeps the first of equals.
    classes
        .into_iter()
        .filter(is_default)
        .reduce(|newest, class| if age(&class) > age(&newest) { class } else { newest })
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A tree from JSON, for the tables of the plugins.
    pub(crate) fn json(text: &str) -> Tree {
        api::json::decode(text.as_bytes()).expect("the test's own JSON")
    }

    #[test]
    fn the_newest_default_class_wins_then_the_first_name() {
        let class = |name: &str, time: &str, value: &str| {
            json(&format!(
                r#"{{"metadata":{{"name":"{name}","creationTimestamp":"{time}","annotations":{{"d":"{value}"}}}}}}"#
            ))
        };
        let check = |classes: Vec<Tree>, want: &str| {
            let found = default_class(classes, &["d"]);
            assert_eq!(found.as_ref().map_or("", |class| class.str("metadata.name")), want);
        };
        check(vec![], "");
        check(vec![class("a", "2026-01-01T00:00:00Z", "false")], "");
        check(vec![class("a", "2026-01-01T00:00:00Z", "true"), class("b", "2026-01-01T00:00:01Z", "true")], "b");
        check(vec![class("a", "2026-01-01T00:00:00Z", "true"), class("b", "2026-01-01T00:00:00Z", "true")], "a");
    }

    #[test]
    fn errors_are_joined_as_upstream_joins_them() {
        assert_eq!(join_errors(vec!["a".into(), "a".into()]), "a");
        assert_eq!(join_errors(vec!["a".into(), "b".into(), "a".into()]), "[a, b]");
    }
}

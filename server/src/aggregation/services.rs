//! The APIServices that name a Service, by group and version.

use std::collections::BTreeMap;
use std::sync::Arc;

use api::Tree;
use http_client::Trust;

use super::OWN_GROUP;
use super::target::TargetError;
use crate::storage::cache::{DerivedState, Item};

/// The storage of APIServices.
pub(super) const STORAGE: &str = "apiregistration.k8s.io/apiservices";

/// An APIService whose group version an extension API server serves.
#[derive(Debug)]
pub(crate) struct ApiService {
    pub name: String,
    pub group: String,
    pub version: String,
    pub service: ServiceReference,
    /// PEM in base64; empty for the CA certificates of the system.
    ca_bundle: String,
    insecure_skip_tls_verify: bool,
    pub group_priority: i64,
    pub version_priority: i64,
    /// Whether the last check found it available.
    pub is_available: bool,
}

/// The Service in front of an extension API server.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct ServiceReference {
    pub namespace: String,
    pub name: String,
    pub port: i64,
}

impl ApiService {
    /// Reads an APIService; None if it is local.
    pub(crate) fn new(object: &Tree) -> Option<ApiService> {
        let spec = object.at("spec");
        let service = spec.get("service").filter(|service| !service.is_null())?;
        let is_available = |condition: &Tree| condition.str("type") == "Available" && condition.str("status") == "True";
        Some(ApiService {
            name: object.str("metadata.name").to_string(),
            group: spec.str("group").to_string(),
            version: spec.str("version").to_string(),
            service: ServiceReference {
                namespace: service.str("namespace").to_string(),
                name: service.str("name").to_string(),
                port: service.int("port").unwrap_or(443),
            },
            ca_bundle: spec.str("caBundle").to_string(),
            insecure_skip_tls_verify: spec.bool("insecureSkipTLSVerify"),
            group_priority: spec.int("groupPriorityMinimum").unwrap_or(0),
            version_priority: spec.int("versionPriority").unwrap_or(0),
            is_available: object.list("status.conditions").iter().any(is_available),
        })
    }

    /// The name in the certificate of the extension API server.
    pub(super) fn server_name(&self) -> String {
        format!("{}.{}.svc", self.service.name, self.service.namespace)
    }

    /// Whether connections to one are connections to the other, as far as certificates decide.
    pub(super) fn has_same_certificates(&self, other: &ApiService) -> bool {
        self.insecure_skip_tls_verify == other.insecure_skip_tls_verify
            && self.ca_bundle == other.ca_bundle
            && self.server_name() == other.server_name()
    }

    /// The certificates that it may have.
    pub(super) fn trust(&self) -> Result<Trust, TargetError> {
        match (self.insecure_skip_tls_verify, self.ca_bundle.as_str()) {
            (true, _) => Ok(Trust::InsecureSkipVerify),
            (false, "") => Ok(Trust::System),
            (false, bundle) => Ok(Trust::pem(&api::base64::decode(bundle)?)?),
        }
    }
}

/// The index of the cache.
#[derive(Default)]
pub(super) struct ApiServices {
    groups: BTreeMap<String, BTreeMap<String, Arc<ApiService>>>,
    /// Counts changes, for documents that are derived from all of them.
    changes: u64,
}

impl ApiServices {
    pub(super) fn find(&self, group: &str, version: &str) -> Option<Arc<ApiService>> {
        self.groups.get(group)?.get(version).cloned()
    }

    pub(super) fn changes(&self) -> u64 {
        self.changes
    }

    pub(super) fn all(&self) -> Vec<Arc<ApiService>> {
        self.groups.values().flat_map(BTreeMap::values).cloned().collect()
    }

    fn remove(&mut self, service: &ApiService) {
        if let Some(versions) = self.groups.get_mut(&service.group) {
            versions.remove(&service.version);
            if versions.is_empty() {
                self.groups.remove(&service.group);
            }
        }
    }

    fn add(&mut self, service: ApiService) {
        // The core group and this server's own are never proxied: without them nothing could be repaired.
        if !service.group.is_empty() && service.group != OWN_GROUP {
            let versions = self.groups.entry(service.group.clone()).or_default();
            versions.insert(service.version.clone(), Arc::new(service));
        }
    }
}

impl DerivedState for ApiServices {
    fn apply(&mut self, _: usize, old: Option<&Item>, new: Option<&Item>) {
        self.changes += 1;
        if let Some(old) = old.and_then(|item| ApiService::new(&item.tree())) {
            self.remove(&old);
        }
        if let Some(new) = new.and_then(|item| ApiService::new(&item.tree())) {
            self.add(new);
        }
    }
}

#[cfg(test)]
mod tests {
    use api::{list, tree};

    use super::*;

    fn object(group: &str, version: &str, service: Tree) -> Tree {
        let spec = tree! { "group" => group, "version" => version, "service" => service };
        tree! { "metadata" => tree! { "name" => format!("{version}.{group}") }, "spec" => spec }
    }

    #[test]
    fn reads_services_and_their_availability() {
        let reference = tree! { "namespace" => "a", "name" => "b" };
        let mut remote = object("x.example.com", "v1", reference);
        let read = |object: &Tree| ApiService::new(object).map(|one| (one.server_name(), one.is_available));
        assert_eq!(read(&remote), Some(("b.a.svc".to_string(), false)));
        remote.child("status").set("conditions", list![tree! { "type" => "Available", "status" => "True" }]);
        assert_eq!(read(&remote), Some(("b.a.svc".to_string(), true)));
        assert_eq!(read(&object("x.example.com", "v1", Tree::Null)), None);
    }

    #[test]
    fn core_and_own_group_are_never_proxied() {
        let mut services = ApiServices::default();
        for group in ["", "apiregistration.k8s.io", "x.example.com"] {
            let reference = tree! { "namespace" => "a", "name" => "b" };
            services.add(ApiService::new(&object(group, "v1", reference)).expect("a remote service"));
        }
        let names: Vec<String> = services.all().iter().map(|one| one.name.clone()).collect();
        assert_eq!(names, ["v1.x.example.com"]);
    }

    #[test]
    fn trusts_what_the_service_names() {
        let reference = || tree! { "namespace" => "a", "name" => "b" };
        let trust = |key: &str, value: Tree| {
            let mut object = object("x", "v1", reference());
            object.child("spec").set(key, value);
            ApiService::new(&object).expect("a remote service").trust()
        };
        assert!(matches!(trust("insecureSkipTLSVerify", Tree::Bool(true)), Ok(Trust::InsecureSkipVerify)));
        assert!(matches!(trust("caBundle", Tree::from("")), Ok(Trust::System)));
        assert!(trust("caBundle", Tree::from("!")).is_err(), "an invalid bundle trusts nothing");
        assert!(trust("caBundle", Tree::from("AAAA")).is_err(), "a bundle without certificates trusts nothing");
    }
}

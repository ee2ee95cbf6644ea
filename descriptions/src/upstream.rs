//! Reads the texts out of k8s-openapi's schemas.

use k8s_openapi::api::{
    admissionregistration, apps, authentication, authorization, autoscaling, batch, certificates, coordination, core,
    discovery, events, flowcontrol, networking, node, policy, rbac, resource, scheduling, storage, storagemigration,
};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions;
use k8s_openapi::apimachinery::pkg::apis::meta;
use k8s_openapi::apimachinery::pkg::version;
use k8s_openapi::kube_aggregator::pkg::apis::apiregistration;
use k8s_openapi::schemars::SchemaGenerator;
use k8s_openapi::serde_json::{Map, Value};

use crate::row::Row;

/// Every text of every type that a served kind can reach, in no order.
pub(crate) fn rows() -> Vec<Row> {
    let mut generator = SchemaGenerator::default();
    reach_kinds(&mut generator);
    reach_meta(&mut generator);
    let mut rows = Vec::new();
    for (ty, schema) in generator.take_definitions(false) {
        read_type(&ty, &schema, &mut rows);
    }
    rows
}

fn read_type(ty: &str, schema: &Value, rows: &mut Vec<Row>) {
    push(ty, "", schema, rows);
    let none = Map::new();
    let fields = schema.get("properties").and_then(Value::as_object).unwrap_or(&none);
    for (field, value) in fields {
        push(ty, field, value, rows);
    }
}

fn push(ty: &str, field: &str, schema: &Value, rows: &mut Vec<Row>) {
    if let Some(text) = schema.get("description").and_then(Value::as_str) {
        rows.push((ty.into(), field.into(), text.into()));
    }
}

/// Asks for each type once; what it refers to comes with it.
macro_rules! reach {
    ($generator:expr, $($group:ident :: $version:ident { $($kind:ident),* $(,)? })*) => {
        $($($generator.subschema_for::<$group::$version::$kind>();)*)*
    };
}

fn reach_meta(generator: &mut SchemaGenerator) {
    reach! { generator,
        meta::v1 { APIGroup, APIGroupList, APIResourceList, APIVersions, DeleteOptions, ListMeta, Patch, Status }
    }
    generator.subschema_for::<meta::v1::WatchEvent<Value>>();
    generator.subschema_for::<version::Info>();
}

fn reach_kinds(generator: &mut SchemaGenerator) {
    reach! { generator,
        admissionregistration::v1 {
            MutatingAdmissionPolicy, MutatingAdmissionPolicyBinding, MutatingWebhookConfiguration,
            ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding, ValidatingWebhookConfiguration,
        }
        apiextensions::v1 { CustomResourceDefinition }
        apiregistration::v1 { APIService }
        apps::v1 { ControllerRevision, DaemonSet, Deployment, ReplicaSet, StatefulSet }
        authentication::v1 { SelfSubjectReview, TokenRequest, TokenReview }
        authorization::v1 {
            LocalSubjectAccessReview, SelfSubjectAccessReview, SelfSubjectRulesReview, SubjectAccessReview,
        }
        autoscaling::v1 { HorizontalPodAutoscaler, Scale }
        autoscaling::v2 { HorizontalPodAutoscaler }
        batch::v1 { CronJob, Job }
        certificates::v1 { CertificateSigningRequest, ClusterTrustBundle, PodCertificateRequest }
        coordination::v1 { Lease }
        core::v1 {
            Binding, ComponentStatus, ConfigMap, Endpoints, Event, LimitRange, Namespace, Node,
            PersistentVolume, PersistentVolumeClaim, Pod, PodTemplate, ReplicationController, ResourceQuota,
            Secret, Service, ServiceAccount,
        }
        discovery::v1 { EndpointSlice }
        events::v1 { Event }
        flowcontrol::v1 { FlowSchema, PriorityLevelConfiguration }
        networking::v1 { IPAddress, Ingress, IngressClass, NetworkPolicy, ServiceCIDR }
        node::v1 { RuntimeClass }
        policy::v1 { Eviction, PodDisruptionBudget }
        rbac::v1 { ClusterRole, ClusterRoleBinding, Role, RoleBinding }
        resource::v1 { DeviceClass, DeviceTaintRule, ResourceClaim, ResourceClaimTemplate, ResourceSlice }
        scheduling::v1 { PriorityClass }
        storage::v1 {
            CSIDriver, CSINode, CSIStorageCapacity, StorageClass, VolumeAttachment, VolumeAttributesClass,
        }
        storagemigration::v1 { StorageVersionMigration }
    }
}

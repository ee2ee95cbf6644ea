//! The definition of each kind: names, scope, defaults, prepare, validate, columns and selectable fields. One
//! directory per group, one file per kind, one list of all. No I/O, no HTTP, no store.

#![warn(unreachable_pub)]

mod admissionregistration;
mod apiextensions;
mod apiregistration;
mod apps;
mod authentication;
mod authorization;
mod autoscaling;
pub mod batch;
pub mod cells;
pub mod certificates;
mod checks;
mod conditions;
mod coordination;
pub mod core;
pub mod custom;
mod diff;
mod discovery;
mod events;
mod flowcontrol;
mod gojson;
pub mod initializers;
mod internal;
pub mod kind;
pub mod meta;
mod names;
mod networking;
mod node;
mod pem;
pub mod podspec;
mod policy;
mod prepare;
pub mod quota;
mod rbac;
mod resource;
pub mod resources;
pub mod scale;
mod scheduling;
mod storage;
mod storagemigration;
mod strategy;
pub mod time_zones;
mod workload;

use std::sync::LazyLock;

pub use admissionregistration::expressions::{
    ExpressionError, ExpressionKind, PolicyCompiler, compile_match_condition,
};
pub use admissionregistration::type_check::{ExpressionWarning, check_types};
pub use apiextensions::structural_violations;
pub use kind::{
    Column, Context, Conversion, Kind, Lifecycle, ScalePaths, Selectable, StatusRules, Subresource, User, Verb,
};

/// Every built-in kind in discovery order: groups by preference, resources by name.
pub static ALL: &[&Kind] = &[
    &core::binding::KIND,
    &core::component_status::KIND,
    &core::config_map::KIND,
    &core::endpoints::KIND,
    &core::event::KIND,
    &core::limit_range::KIND,
    &core::namespace::KIND,
    &core::node::KIND,
    &core::persistent_volume_claim::KIND,
    &core::persistent_volume::KIND,
    &core::pod::KIND,
    &core::pod_template::KIND,
    &core::replication_controller::KIND,
    &core::resource_quota::KIND,
    &core::secret::KIND,
    &core::service_account::KIND,
    &core::service::KIND,
    &apiregistration::api_service::KIND,
    &apps::controller_revision::KIND,
    &apps::daemon_set::KIND,
    &apps::deployment::KIND,
    &apps::replica_set::KIND,
    &apps::stateful_set::KIND,
    &events::event::KIND,
    &authentication::self_subject_review::KIND,
    &authentication::token_review::KIND,
    &authorization::local_subject_access_review::KIND,
    &authorization::self_subject_access_review::KIND,
    &authorization::self_subject_rules_review::KIND,
    &authorization::subject_access_review::KIND,
    &autoscaling::horizontal_pod_autoscaler::KIND,
    &autoscaling::horizontal_pod_autoscaler_v1::KIND,
    &batch::cron_job::KIND,
    &batch::job::KIND,
    &certificates::certificate_signing_request::KIND,
    &certificates::cluster_trust_bundle::KIND,
    &certificates::pod_certificate_request::KIND,
    &networking::ingress_class::KIND,
    &networking::ingress::KIND,
    &networking::ip_address::KIND,
    &networking::network_policy::KIND,
    &networking::service_cidr::KIND,
    &policy::pod_disruption_budget::KIND,
    &rbac::cluster_role_binding::KIND,
    &rbac::cluster_role::KIND,
    &rbac::role_binding::KIND,
    &rbac::role::KIND,
    &storage::csi_driver::KIND,
    &storage::csi_node::KIND,
    &storage::csi_storage_capacity::KIND,
    &storage::storage_class::KIND,
    &storage::volume_attachment::KIND,
    &storage::volume_attributes_class::KIND,
    &admissionregistration::mutating_admission_policy::KIND,
    &admissionregistration::mutating_admission_policy_binding::KIND,
    &admissionregistration::mutating_webhook_configuration::KIND,
    &admissionregistration::validating_admission_policy::KIND,
    &admissionregistration::validating_admission_policy_binding::KIND,
    &admissionregistration::validating_webhook_configuration::KIND,
    &apiextensions::custom_resource_definition::KIND,
    &scheduling::priority_class::KIND,
    &coordination::lease::KIND,
    &node::runtime_class::KIND,
    &discovery::endpoint_slice::KIND,
    &resource::device_class::KIND,
    &resource::device_taint_rule::KIND,
    &resource::resource_claim::KIND,
    &resource::resource_claim_template::KIND,
    &resource::resource_slice::KIND,
    &flowcontrol::flow_schema::KIND,
    &flowcontrol::priority_level_configuration::KIND,
    &storagemigration::storage_version_migration::KIND,
];

/// The served kinds: all, and InitializerConfiguration if initializers are enabled.
pub fn served() -> &'static [&'static Kind] {
    static WITH_INITIALIZERS: LazyLock<Vec<&'static Kind>> = LazyLock::new(|| {
        let own = &admissionregistration::initializer_configuration::KIND;
        let mut kinds = ALL.to_vec();
        let last = kinds.iter().rposition(|kind| kind.group == own.group).map_or(kinds.len(), |at| at + 1);
        kinds.insert(last, own);
        kinds
    });
    if api::schema::initializers::are_on() { &WITH_INITIALIZERS } else { ALL }
}

/// The kind of a resource path.
pub fn find(group: &str, version: &str, plural: &str) -> Option<&'static Kind> {
    ALL.iter().copied().find(|kind| kind.group == group && kind.version == version && kind.plural == plural)
}

#[cfg(test)]
mod tests {
    use super::*;
    use api::field::Errors;
    use api::schema::{Ty, Type};
    use api::{Tree, list, tree, typed};

    /// An object of a type with a value in every field, a few levels deep.
    fn filled(ty: &'static Type, depth: usize) -> Tree {
        let mut object = tree! {};
        for field in ty.fields() {
            if depth > 0 || !matches!(field.ty, Ty::Struct(_) | Ty::List(Ty::Struct(_)) | Ty::Map(Ty::Struct(_))) {
                object.set(field.name, filled_value(field.ty, depth.saturating_sub(1)));
            }
        }
        object
    }

    fn filled_value(ty: Ty, depth: usize) -> Tree {
        match ty {
            Ty::Bool => Tree::Bool(true),
            Ty::Int32 | Ty::Int64 | Ty::Double | Ty::IntOrString => Tree::Int(-1),
            Ty::Quantity => Tree::from("1500m"),
            Ty::Time => Tree::from("2024-01-01T00:00:00Z"),
            Ty::MicroTime => Tree::from("2024-01-01T00:00:00.000000Z"),
            Ty::Struct(ty) => filled(ty, depth),
            Ty::List(item) => list![filled_value(*item, depth), filled_value(*item, depth)],
            Ty::Map(item) => tree! { "é b" => filled_value(*item, depth), "" => filled_value(*item, depth) },
            _ => Tree::from("a/b/é"),
        }
    }

    /// Calls every function of a row.
    fn exercise(kind: &Kind, new: &Tree, old: &Tree) {
        let user = User::default();
        let context = Context { now: 0, user: &user };
        let (mut new, mut errors) = (new.clone(), Errors::new());
        (kind.set_defaults)(&mut new);
        let mut updated = new.clone();
        (kind.prepare_create)(&mut new, &context);
        (kind.validate)(&new, &mut errors);
        meta::validate_object_meta(kind, &new, &mut errors);
        (kind.prepare_update)(&mut updated, old, &context);
        (kind.validate_update)(&updated, old, &mut errors);
        meta::validate_object_meta_update(kind, &updated, old, &mut errors);
        (kind.warnings)(&new, Some(old));
        (kind.cells)(&new, 0);
        for field in kind.selectable {
            (field.get)(&new, field.name);
        }
        if let Some(rules) = &kind.status {
            (rules.prepare)(&mut updated, old, &context);
            (rules.validate)(&updated, old, &mut errors);
        }
        if let Some(conversion) = &kind.conversion {
            (conversion.from_storage)((conversion.to_storage)(new));
        }
    }

    #[test]
    fn no_object_panics() {
        for kind in ALL {
            let mut minimal = tree! {};
            typed::fill(&mut minimal, kind.schema());
            let objects = [Tree::Null, tree! {}, minimal, filled(kind.schema(), 3), filled(kind.schema(), 6)];
            for new in &objects {
                for old in &objects {
                    exercise(kind, new, old);
                }
            }
        }
    }

    #[test]
    fn every_kind_has_a_type() {
        for kind in ALL {
            assert_eq!(kind.schema().name, kind.kind);
        }
    }
}

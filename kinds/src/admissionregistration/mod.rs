//! The kinds of the `admissionregistration` group, one file per kind.

pub(crate) mod expressions;
pub(crate) mod initializer_configuration;
pub(crate) mod mutating_admission_policy;
pub(crate) mod mutating_admission_policy_binding;
pub(crate) mod mutating_webhook_configuration;
mod policy;
mod rules;
mod stored;
pub(crate) mod type_check;
pub(crate) mod validating_admission_policy;
pub(crate) mod validating_admission_policy_binding;
pub(crate) mod validating_webhook_configuration;
pub(crate) mod webhook;

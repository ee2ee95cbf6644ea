//! The kinds of the `admissionregistration` group, one file per kind.

pub mod initializer_configuration;
pub mod mutating_admission_policy;
pub mod mutating_admission_policy_binding;
pub mod mutating_webhook_configuration;
mod policy;
mod rules;
pub mod validating_admission_policy;
pub mod validating_admission_policy_binding;
pub mod validating_webhook_configuration;
mod webhook;

//! The life of a pod on its node: one worker per pod decides from the pod and its state in the runtime ([`plan`]),
//! executes the decision with the messages of [`cri_config`], and reports a [`status`].

mod action;
pub(crate) mod context;
pub(crate) mod cri_config;
mod hooks;
pub(crate) mod plan;
pub(crate) mod probes;
pub(crate) mod runtime_events;
pub(crate) mod status;
pub mod stop;
pub(crate) mod user_namespaces;
pub(crate) mod worker;

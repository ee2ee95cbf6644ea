//! The life of a pod on its node: a worker a pod decides from the pod and what the runtime has of it
//! ([`plan`]), carries that out with the messages of [`cri_config`], and reports it as a [`status`].

mod action;
pub mod context;
pub mod cri_config;
mod hooks;
pub mod plan;
pub mod probes;
pub mod runtime_events;
pub mod status;
pub mod stop;
pub mod user_namespaces;
pub mod worker;

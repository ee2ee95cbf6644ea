//! The commands: one module each, and the root that lists them.

mod api_resources;
mod api_versions;
mod apply;
mod auth;
mod cluster_info;
mod common;
mod completion;
mod config;
mod cp;
mod create;
mod debug;
mod delete;
mod describe;
mod diff;
mod diff3;
mod edit;
mod events;
mod exec;
mod explain;
mod expose;
mod get;
mod hash;
mod kuberc;
mod logs;
mod metadata;
mod nodes;
mod options;
mod plugin;
mod pods;
mod port_forward;
mod proxy;
mod replace;
mod rollout;
mod run;
mod scale;
mod set;
mod terminal;
mod top;
mod version;
mod wait;
mod watching;

use crate::command::Command;

/// `kubectl`.
pub(crate) static ROOT: Command = Command {
    name: "kubectl",
    usage: "[flags] [options]",
    short: "kubectl controls the Kubernetes cluster manager.",
    long: "kubectl controls a Kubernetes cluster: it reads and changes its objects through the API.",
    children: &[
        &create::CREATE,
        &expose::EXPOSE,
        &run::RUN,
        &set::SET,
        &explain::EXPLAIN,
        &get::GET,
        &edit::EDIT,
        &delete::DELETE,
        &rollout::ROLLOUT,
        &scale::SCALE,
        &expose::AUTOSCALE,
        &auth::CERTIFICATE,
        &cluster_info::CLUSTER_INFO,
        &top::TOP,
        &nodes::CORDON,
        &nodes::UNCORDON,
        &nodes::DRAIN,
        &nodes::TAINT,
        &describe::DESCRIBE,
        &logs::LOGS,
        &exec::ATTACH,
        &exec::EXEC,
        &port_forward::PORT_FORWARD,
        &proxy::PROXY,
        &cp::CP,
        &debug::DEBUG,
        &auth::AUTH,
        &events::EVENTS,
        &diff::DIFF,
        &apply::APPLY,
        &scale::PATCH,
        &replace::REPLACE,
        &wait::WAIT,
        &diff::KUSTOMIZE,
        &metadata::LABEL,
        &metadata::ANNOTATE,
        &api_resources::API_RESOURCES,
        &api_versions::API_VERSIONS,
        &kuberc::ALPHA,
        &completion::COMPLETION,
        &completion::COMPLETE,
        &config::CONFIG,
        &kuberc::KUBERC,
        &plugin::PLUGIN,
        &options::OPTIONS,
        &version::VERSION,
    ],
    ..Command::EMPTY
};

//! The commands: one module each, and the root that lists them.

mod api_resources;
mod api_versions;
mod apply;
mod common;
mod create;
mod delete;
mod describe;
mod diff3;
mod edit;
mod get;
mod hash;
mod options;
mod version;
mod wait;

use crate::command::Command;

/// `kubectl`.
pub(crate) static ROOT: Command = Command {
    name: "kubectl",
    usage: "[flags] [options]",
    short: "kubectl controls the Kubernetes cluster manager.",
    long: "kubectl controls a Kubernetes cluster: it reads and changes its objects through the API.",
    children: &[
        &create::CREATE,
        &get::GET,
        &edit::EDIT,
        &delete::DELETE,
        &apply::APPLY,
        &wait::WAIT,
        &describe::DESCRIBE,
        &api_resources::API_RESOURCES,
        &api_versions::API_VERSIONS,
        &options::OPTIONS,
        &version::VERSION,
    ],
    ..Command::EMPTY
};

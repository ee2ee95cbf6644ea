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
mod detach;
mod diff;
mod diff3;
mod edit;
mod env_list;
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
mod past;
mod plugin;
mod pods;
mod port_forward;
mod proxy;
mod record;
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

pub(crate) use past::PAST;

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

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::path::Path;

    use super::{ROOT, diff};
    use crate::command::Command;
    use crate::globals::GLOBALS;

    /// Flags that no code reads by their own name, and why.
    const NOT_READ: &[(&str, &str)] = &[
        ("log-flush-frequency", "every line of the log is flushed"),
        ("vmodule", "the log has no levels by file"),
        ("profile-output", "no profiles of Go programs exist: `--profile` is refused"),
        ("openapi-patch", "the schemas are built in, and are those of the server"),
        ("use-protocol-buffers", "requests are JSON"),
        ("no-descriptions", "the shells print descriptions or drop them"),
    ];

    fn add_names(command: &'static Command, names: &mut BTreeSet<&'static str>) {
        names.extend(command.flags.iter().flat_map(|group| group.iter()).map(|flag| flag.name));
        command.children.iter().for_each(|child| add_names(child, names));
    }

    /// The source text of the crate without its tests.
    fn sources(directory: &Path, text: &mut String) {
        for entry in std::fs::read_dir(directory).expect("a directory").flatten() {
            let path = entry.path();
            if path.is_dir() {
                sources(&path, text);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let file = std::fs::read_to_string(&path).expect("read");
                text.push_str(file.split("#[cfg(test)]\nmod tests").next().unwrap_or_default());
            }
        }
    }

    /// Whether code names the flag other than to declare it.
    fn is_read(name: &str, text: &str) -> bool {
        let quoted = format!("\"{name}\"");
        const DECLARATIONS: [&str; 5] = ["text(", "switch(", "switch_on(", "typed(", "Flag {"];
        text.match_indices(&quoted).any(|(at, _)| {
            let before = text[..at].trim_end();
            // `text` is also the name of closures that read flags, without a letter behind the name.
            let after = text[at + quoted.len()..].trim_start();
            let is_declaration = DECLARATIONS.iter().any(|start| before.ends_with(start)) && after.starts_with(", '");
            !is_declaration
        })
    }

    #[test]
    fn every_flag_is_read() {
        let mut names: BTreeSet<&str> = GLOBALS.iter().map(|flag| flag.name).collect();
        add_names(&ROOT, &mut names);
        let mut text = String::new();
        sources(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"), &mut text);
        assert!(!is_read("not-a-flag-of-kubectl", &text) && is_read("grace-period", &text));
        let is_exempt = |name: &str| NOT_READ.iter().any(|(known, _)| *known == name);
        for (name, reason) in NOT_READ {
            assert!(names.contains(name) && !is_read(name, &text), "{name} is no exception: {reason}");
        }
        // They are refused as one list.
        let is_refused = |name: &str| diff::PROGRAM_FLAGS.iter().any(|flag| flag.name == name);
        names.retain(|name| !is_refused(name));
        let unread: Vec<&&str> = names.iter().filter(|name| !is_read(name, &text) && !is_exempt(name)).collect();
        assert!(unread.is_empty(), "flags are accepted and never read: {unread:?}");
    }
}

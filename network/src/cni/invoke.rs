//! Runs one command of one plugin: in process if the plugin is built in, otherwise as an executable.

use std::path::PathBuf;
use std::time::Duration;

use serde_json::Value;

use super::exec;
use crate::plugins::{self, Call, Delegate, Plugin, Shared};
use crate::spec::command::{Target, Verb};
use crate::spec::error::{Error, code};
use crate::spec::result::AddResult;

/// Finds and runs plugins.
#[derive(Clone, Debug)]
pub struct Invoker {
    /// The directories of plugin binaries, in order.
    pub bin_dirs: Vec<PathBuf>,
    /// Whether the built-in plugins run in process.
    pub builtin: bool,
    /// How long a plugin binary may run.
    pub timeout: Duration,
    /// State that built-in plugins share.
    pub shared: Shared,
}

/// Long enough for a plugin that waits for its own server.
pub const TIMEOUT: Duration = Duration::from_secs(120);

enum ResolvedPlugin {
    BuiltIn(&'static Plugin),
    Binary(PathBuf),
}

impl Delegate for Invoker {
    fn delegate(&self, verb: Verb, kind: &str, conf: &Value, target: Target<'_>) -> Result<AddResult, Error> {
        self.invoke(verb, kind, conf, target)
    }
}

impl Invoker {
    /// Runs the plugin of this type. Only ADD has a result; it is empty if the plugin printed none.
    pub fn invoke(&self, verb: Verb, kind: &str, conf: &Value, target: Target<'_>) -> Result<AddResult, Error> {
        let binary = match self.choose(kind, conf)? {
            ResolvedPlugin::BuiltIn(plugin) => {
                return plugin.run(verb, &Call { conf, target, shared: &self.shared, delegate: self });
            }
            ResolvedPlugin::Binary(binary) => binary,
        };
        let path = self.bin_dirs.iter().map(|directory| directory.display().to_string()).collect::<Vec<_>>().join(":");
        let environment = [
            ("CNI_COMMAND", verb.as_str()),
            ("CNI_CONTAINERID", target.container_id),
            ("CNI_NETNS", target.netns),
            ("CNI_IFNAME", target.ifname),
            ("CNI_ARGS", target.args),
            ("CNI_PATH", &path),
        ];
        let mut printed = exec::run(&binary, &environment, conf, self.timeout)?;
        if verb != Verb::Add || printed.is_null() {
            return Ok(AddResult::default());
        }
        if let Some(object) = printed.as_object_mut() {
            object.entry("cniVersion").or_insert_with(|| conf["cniVersion"].clone());
        }
        AddResult::from_json(&printed).map_err(|error| error.within(format!("the result of {}", binary.display())))
    }

    /// Prefers the built-in plugin, and falls back to a binary for a configuration that the built-in one does not
    /// support. The choice depends only on the configuration and the directories, so that DEL is run by the plugin
    /// that ran ADD.
    fn choose(&self, kind: &str, conf: &Value) -> Result<ResolvedPlugin, Error> {
        if kind.is_empty() || kind.contains('/') {
            return Err(Error::configuration(format!("type: {kind:?} is not the name of a plugin")));
        }
        let builtin = plugins::find(kind).filter(|_| self.builtin);
        let refused = match builtin.map(|plugin| (plugin, (plugin.accepts)(conf))) {
            Some((plugin, Ok(()))) => return Ok(ResolvedPlugin::BuiltIn(plugin)),
            Some((_, Err(error))) if error.code != code::UNSUPPORTED_FIELD => return Err(error),
            Some((_, Err(error))) => Some(error),
            None => None,
        };
        let found = self.bin_dirs.iter().map(|directory| directory.join(kind)).find(|path| path.is_file());
        match (found, refused) {
            (Some(path), _) => Ok(ResolvedPlugin::Binary(path)),
            (None, Some(refused)) => Err(refused),
            (None, None) => Err(Error::internal(format!("failed to find plugin {kind:?} in path {:?}", self.bin_dirs))),
        }
    }
}

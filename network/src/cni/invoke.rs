//! One plugin, one command: in process where it is one of ours, otherwise as an executable.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;

use super::error::{Error, code};
use super::exec;
use super::reaper::Reaper;
use super::result::Attachment;
use super::version::Version;
use crate::nft;
use crate::plugins::{self, Call, Plugin};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verb {
    Add,
    Del,
    Check,
    Gc,
    Status,
}

impl Verb {
    pub const ALL: [Verb; 5] = [Verb::Add, Verb::Del, Verb::Check, Verb::Gc, Verb::Status];

    pub const fn as_str(self) -> &'static str {
        match self {
            Verb::Add => "ADD",
            Verb::Del => "DEL",
            Verb::Check => "CHECK",
            Verb::Gc => "GC",
            Verb::Status => "STATUS",
        }
    }
}

/// What a command is about. GC and STATUS are about nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct Target<'a> {
    pub container_id: &'a str,
    /// Empty where the namespace is gone.
    pub netns: &'a str,
    pub ifname: &'a str,
    /// `KEY=value;…`
    pub args: &'a str,
}

/// Where plugins are found.
#[derive(Clone, Debug)]
pub struct Invoker {
    pub bin_dirs: Vec<PathBuf>,
    /// Whether plugins of this crate run in process.
    pub builtin: bool,
    pub timeout: Duration,
    /// The caller knows what is attached, so that plugins need not look whether something is.
    pub fresh: bool,
    /// Deletes devices in the background; where there is none, they are waited for.
    pub reaper: Option<Arc<Reaper>>,
    pub nft: Arc<nft::Pool>,
}

/// Long enough for a plugin that waits for its own server.
pub const TIMEOUT: Duration = Duration::from_secs(120);

enum Chosen {
    BuiltIn(&'static Plugin),
    Binary(PathBuf),
}

impl Invoker {
    /// Runs the plugin of this type. ADD has a result; one that a plugin left out is empty.
    pub fn invoke(&self, verb: Verb, kind: &str, conf: &Value, target: Target<'_>) -> Result<Attachment, Error> {
        let binary = match self.choose(kind, conf)? {
            Chosen::BuiltIn(plugin) => return plugin.run(verb, &Call { conf, target, invoker: self }),
            Chosen::Binary(binary) => binary,
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
            return Ok(Attachment::default());
        }
        if let Some(object) = printed.as_object_mut() {
            object.entry("cniVersion").or_insert_with(|| conf["cniVersion"].clone());
        }
        Attachment::from_json(&printed).map_err(|error| error.within(format!("the result of {}", binary.display())))
    }

    /// Ours first; a binary where ours does not do what the configuration asks for. The choice depends on nothing
    /// but the configuration and the directories, so that DEL is done by whom ADD was done by.
    fn choose(&self, kind: &str, conf: &Value) -> Result<Chosen, Error> {
        if kind.is_empty() || kind.contains('/') {
            return Err(Error::configuration(format!("type: {kind:?} is not the name of a plugin")));
        }
        let builtin = plugins::find(kind).filter(|_| self.builtin);
        let refused = match builtin.map(|plugin| (plugin, (plugin.accepts)(conf))) {
            Some((plugin, Ok(()))) => return Ok(Chosen::BuiltIn(plugin)),
            Some((_, Err(error))) if error.code != code::UNSUPPORTED_FIELD => return Err(error),
            Some((_, Err(error))) => Some(error),
            None => None,
        };
        let found = self.bin_dirs.iter().map(|directory| directory.join(kind)).find(|path| path.is_file());
        match (found, refused) {
            (Some(path), _) => Ok(Chosen::Binary(path)),
            (None, Some(refused)) => Err(refused),
            (None, None) => Err(Error::internal(format!("failed to find plugin {kind:?} in path {:?}", self.bin_dirs))),
        }
    }
}

/// The version that a plugin's configuration is in.
pub fn version_of(conf: &Value) -> Result<Version, Error> {
    Version::parse(conf["cniVersion"].as_str().unwrap_or_default())
}

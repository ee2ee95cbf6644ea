//! The built-in plugins, each of them a table of functions. They run in process, or as executables by their names.

pub(crate) mod bandwidth;
pub(crate) mod bridge;
pub(crate) mod guard;
pub(crate) mod host_local;
mod ipam;
pub(crate) mod loopback;
mod masquerade;
pub(crate) mod portmap;
mod reaper;
pub(crate) mod table;

pub use reaper::Reaper;
use table::Table;

use std::path::Path;
use std::sync::Arc;

use serde_json::Value;

use crate::netlink::{self, Rtnl};
use crate::nft;
use crate::ns::Netns;
use crate::spec::command::{Target, Verb};
use crate::spec::error::{Error, code};
use crate::spec::reader::Reader;
use crate::spec::result::AddResult;

/// All built-in plugins.
pub const PLUGINS: &[Plugin] =
    &[bridge::PLUGIN, host_local::PLUGIN, loopback::PLUGIN, portmap::PLUGIN, bandwidth::PLUGIN];

/// Finds a built-in plugin by its type.
pub fn find(name: &str) -> Option<&'static Plugin> {
    PLUGINS.iter().find(|plugin| plugin.name == name)
}

/// A built-in plugin.
pub struct Plugin {
    pub name: &'static str,
    /// Checks whether the plugin supports a configuration. For an unsupported field, the error has the code
    /// [`code::UNSUPPORTED_FIELD`].
    pub accepts: fn(&Value) -> Result<(), Error>,
    add: fn(&Call<'_>) -> Result<AddResult, Error>,
    del: fn(&Call<'_>) -> Result<(), Error>,
    check: fn(&Call<'_>) -> Result<(), Error>,
    gc: fn(&Call<'_>) -> Result<(), Error>,
    status: fn(&Call<'_>) -> Result<(), Error>,
}

impl Plugin {
    /// Runs a command. Only ADD has a result.
    pub fn run(&self, verb: Verb, call: &Call<'_>) -> Result<AddResult, Error> {
        (self.accepts)(call.conf)?;
        let act = match verb {
            Verb::Add => return (self.add)(call),
            Verb::Del => self.del,
            Verb::Check => self.check,
            Verb::Gc => self.gc,
            Verb::Status => self.status,
        };
        act(call).map(|()| AddResult::default())
    }
}

/// Runs another plugin on behalf of a plugin: `bridge` delegates to the IPAM plugin of its configuration.
pub trait Delegate {
    /// Runs one command of the plugin of this type.
    fn delegate(&self, verb: Verb, kind: &str, conf: &Value, target: Target<'_>) -> Result<AddResult, Error>;
}

/// State that the calls of one process share.
#[derive(Clone, Debug, Default)]
pub struct Shared {
    /// Whether the caller keeps track of attachments, so that ADD need not check for an existing one.
    pub fresh: bool,
    /// Deletes devices in the background; without it, deletions are synchronous.
    pub reaper: Option<Arc<Reaper>>,
    /// Open nftables sockets.
    pub nft: Arc<nft::Pool>,
}

/// A command to a plugin.
pub struct Call<'a> {
    /// The plugin's configuration, as the specification's standard input.
    pub conf: &'a Value,
    /// The attachment that the command is about.
    pub target: Target<'a>,
    /// State that the calls of this process share.
    pub shared: &'a Shared,
    /// Runs IPAM plugins.
    pub delegate: &'a dyn Delegate,
}

impl<'a> Call<'a> {
    /// The name of the network.
    pub fn network(&self) -> &'a str {
        self.conf["name"].as_str().unwrap_or_default()
    }

    /// The pod's network namespace, which must differ from the current one.
    pub fn netns(&self) -> Result<Netns, Error> {
        let path = self.target.netns;
        let with_context = |error: std::io::Error| Error::internal(format!("failed to open netns {path:?}: {error}"));
        let netns = Netns::open(Path::new(path)).map_err(with_context)?;
        if netns.same(&Netns::current()?)? {
            let message = "the pod's network namespace is the plugin's own";
            return Err(Error::new(code::INVALID_ENVIRONMENT, message));
        }
        Ok(netns)
    }

    /// The result of the previous plugin.
    pub fn previous(&self) -> Result<Option<AddResult>, Error> {
        let previous = self.conf.get("prevResult").filter(|previous| !previous.is_null());
        previous.map(AddResult::from_json).transpose().map_err(|error| error.within("prevResult"))
    }

    /// The result of the previous plugin, which must exist.
    pub fn chained(&self) -> Result<AddResult, Error> {
        self.previous()?
            .ok_or_else(|| Error::configuration("prevResult: is missing; it must be called as a chained plugin"))
    }

    /// The owner that is stored with an element of a table. The unique part is first, since long texts are truncated.
    pub fn owner(&self) -> String {
        owner(self.target.container_id, self.target.ifname, self.network())
    }

    /// The valid attachments, for GC.
    pub fn valid(&self) -> Result<Vec<(String, String)>, Error> {
        let mut reader = Reader::new(self.conf, "")?;
        let key = "cni.dev/valid-attachments";
        let list = reader.list(key)?;
        let pair =
            |value: &Value| Some((value["containerID"].as_str()?.to_string(), value["ifname"].as_str()?.to_string()));
        list.iter()
            .map(pair)
            .collect::<Option<_>>()
            .ok_or_else(|| reader.invalid(key, "every entry needs a containerID and an ifname"))
    }

    /// Works on the nftables table that the network's configuration names, or on the default one.
    fn table<T>(&self, work: impl FnOnce(&mut Table<'_>) -> Result<T, netlink::Error>) -> Result<T, Error> {
        let name = self.conf["table"].as_str().unwrap_or(table::DEFAULT);
        Ok(self.shared.nft.with(|nft| work(&mut Table { nft, name }))?)
    }

    /// Deletes a device of the host, in the background if there is a reaper. Returns whether the device existed.
    fn delete_device(&self, rtnl: &mut Rtnl, name: &str) -> Result<bool, Error> {
        match &self.shared.reaper {
            Some(reaper) if rtnl.has_link(name)? => {
                reaper.delete(name)?;
                Ok(true)
            }
            Some(_) => Ok(false),
            None => Ok(rtnl.delete_link(name)?),
        }
    }

    /// The value of a key in CNI_ARGS.
    pub fn arg(&self, key: &str) -> Option<&'a str> {
        self.target
            .args
            .split(';')
            .filter_map(|pair| pair.split_once('='))
            .find(|(name, _)| *name == key)
            .map(|(_, value)| value)
    }

    /// Refuses unknown CNI_ARGS unless IgnoreUnknown is set.
    pub fn check_args(&self, known: &[&str]) -> Result<(), Error> {
        let ignore =
            self.arg("IgnoreUnknown").is_some_and(|value| matches!(value, "1" | "true" | "TRUE" | "True" | "t"));
        for pair in self.target.args.split(';').filter(|pair| !pair.is_empty()) {
            let (key, _) = pair.split_once('=').ok_or_else(|| args_error(format!("invalid pair {pair:?}")))?;
            if !ignore && key != "IgnoreUnknown" && !known.contains(&key) {
                return Err(args_error(format!("unknown argument {key:?}")));
            }
        }
        Ok(())
    }
}

fn args_error(message: String) -> Error {
    Error::new(code::INVALID_ENVIRONMENT, format!("CNI_ARGS: {message}"))
}

/// The owner of an attachment's elements, as it is stored in their comments.
pub fn owner(container_id: &str, ifname: &str, network: &str) -> String {
    nft::comment(&format!("{container_id} {ifname} {network}")).to_string()
}

/// Fields that every plugin's configuration may have, and that the plugins themselves do not read.
pub const COMMON: &[&str] = &[
    "cniVersion",
    "cniVersions",
    "name",
    "type",
    "capabilities",
    "prevResult",
    "disableCheck",
    "disableGC",
    "loadOnlyInlinedPlugins",
    "cni.dev/valid-attachments",
    // Ours: the nftables table of the network.
    "table",
];

/// Runs every step even if one fails, and returns the first error.
fn all(steps: &[&dyn Fn() -> Result<(), Error>]) -> Result<(), Error> {
    let outcomes: Vec<Result<(), Error>> = steps.iter().map(|step| step()).collect();
    outcomes.into_iter().collect()
}

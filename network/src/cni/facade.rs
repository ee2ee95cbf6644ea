//! The interface that a container runtime uses. Calls block and may come from many threads, but a runtime makes only
//! one call at a time for a sandbox.

use std::fmt;
use std::fs;
use std::io;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::{Value, json};
use stdx::fs::{Durability, ReplaceOptions};
use stdx::sync::Mutex;

use super::builtin;
use super::cache::{Cache, Entry};
use super::conf::{self, NetworkList};
use super::invoke::{Invoker, TIMEOUT};
use super::list::{Runner, RuntimeConf};
use super::pod::Attachment;
use crate::cidr::{InvalidCidr, IpNet};
use crate::plugins::Shared;
use crate::spec::command::{Target, Verb};
use crate::spec::error::Error;
use crate::spec::result::{self, Dns, Interface};
use crate::spec::version::Version;

/// Directories that [`Cni`] uses.
#[derive(Clone, Debug)]
pub struct CniOptions {
    /// `/etc/cni/net.d`.
    pub conf_dir: PathBuf,
    /// `/opt/cni/bin` and `/usr/lib/cni`; the first that has a plugin counts.
    pub bin_dirs: Vec<PathBuf>,
    /// `/var/lib/cni`.
    pub cache_dir: PathBuf,
    /// The leases of the built-in network, and the last known pod CIDRs.
    pub state_dir: PathBuf,
    /// Whether the built-in plugins run in process, and the built-in network is used when there is no configuration.
    pub builtin: bool,
    /// The names of the built-in network.
    pub names: builtin::Names,
    /// The pods of other nodes, for the built-in network.
    pub cluster: builtin::ClusterPods,
}

/// The reason why pods cannot be attached to a network now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotReady(pub String);

impl fmt::Display for NotReady {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for NotReady {}

/// The network of a sandbox, after ADD.
#[derive(Clone, Debug, PartialEq)]
pub struct PodNetwork {
    /// The addresses of the requested interface, in the order of the result.
    pub ips: Vec<IpAddr>,
    pub interfaces: Vec<Interface>,
    pub dns: Dns,
    /// The result in the newest version of the specification.
    pub raw: Value,
}

/// Attaches sandboxes to the pod network.
pub struct Cni {
    options: CniOptions,
    invoker: Invoker,
    cache: Cache,
    /// Empty until the pod CIDRs are known.
    pod_cidrs: Mutex<Vec<IpNet>>,
}

impl Cni {
    /// Opens the cache and loads the pod CIDRs of the previous run.
    pub fn open(options: CniOptions) -> Result<Cni, Error> {
        let invoker = Invoker {
            bin_dirs: options.bin_dirs.clone(),
            builtin: options.builtin,
            timeout: TIMEOUT,
            shared: Shared { fresh: true, reaper: Some(Arc::default()), nft: Arc::default() },
        };
        let cache = Cache::new(&options.cache_dir, &options.state_dir.display().to_string());
        let pod_cidrs = read_cidrs(&options.state_dir.join(CIDR_FILE))?;
        Ok(Cni { options, invoker, cache, pod_cidrs: Mutex::new(pod_cidrs) })
    }

    /// Whether a pod could be attached to a network now.
    pub fn status(&self) -> Result<(), NotReady> {
        let list = self.network()?;
        self.runner().status(&list).map_err(|error| NotReady(error.to_string()))
    }

    /// Sets the pod CIDRs of the node, for the built-in network. An empty list changes nothing.
    pub fn set_pod_cidr(&self, cidrs: &[IpNet]) -> Result<(), Error> {
        if cidrs.is_empty() {
            return Ok(());
        }
        builtin::check_cidrs(cidrs).map_err(|error| Error::configuration(error.to_string()))?;
        let mut known = self.pod_cidrs.lock();
        if *known != cidrs {
            write_cidrs(&self.options.state_dir, cidrs)?;
            *known = cidrs.to_vec();
        }
        Ok(())
    }

    /// Attaches a sandbox. After a failure, everything is undone.
    pub fn add(&self, attachment: &Attachment) -> Result<PodNetwork, Error> {
        let list = self.network().map_err(|NotReady(reason)| Error::internal(reason))?;
        let runtime = attachment.runtime();
        if self.cache.read(&list.name, &runtime.container_id, &runtime.ifname).is_some() {
            // An existing attachment stays as it is.
            return Err(Error::internal(format!("{} of {} is attached already", runtime.ifname, runtime.container_id)));
        }
        self.loopback(&runtime)?;
        match self.runner().add(&list, &runtime) {
            Ok(made) => Ok(attached(&made, &attachment.ifname)),
            Err(error) => {
                if let Err(left) = self.runner().del(&list, &runtime) {
                    tracing::warn!(%error, %left, container = runtime.container_id, "failed to undo a failed attachment");
                }
                self.settle();
                Err(error)
            }
        }
    }

    /// Detaches a sandbox, with the configuration that attached it. It is idempotent, and the namespace may be deleted
    /// already. Devices of built-in plugins may be deleted a little later, or with the namespace: see [`Cni::settle`].
    pub fn del(&self, attachment: &Attachment) -> Result<(), Error> {
        let runtime = attachment.runtime();
        let made = self.cache.of(&runtime.container_id, &runtime.ifname)?;
        if made.is_empty() {
            // An ADD that was interrupted by a crash left no result: undo it with the current configuration.
            let list = self.network().ok();
            return list.map_or(Ok(()), |list| self.runner().del(&list, &runtime));
        }
        made.iter().try_for_each(|entry| self.del_entry(entry, &runtime.netns))
    }

    /// Checks that everything is as ADD left it. Uses only [`Attachment::container_id`], `netns` and `ifname`.
    pub fn check(&self, attachment: &Attachment) -> Result<(), Error> {
        let runtime = attachment.runtime();
        let made = self.cache.of(&runtime.container_id, &runtime.ifname)?;
        let entry = made.first().ok_or_else(|| Error::internal("no result of ADD is cached"))?;
        let list = NetworkList::parse(&entry.config, None)?;
        self.runner().check(&list, &of_entry(entry, &runtime.netns))
    }

    /// Detaches all our attachments that are not in this list of sandboxes and interfaces, and runs GC of the plugins.
    /// Leaves the results of other runtimes in the same directory alone.
    pub fn gc(&self, valid: &[(String, String)]) -> Result<(), Error> {
        let is_valid =
            |entry: &Entry| valid.iter().any(|(id, ifname)| *id == entry.container_id && *ifname == entry.ifname);
        let mut outcome = Ok(());
        let (ours, others): (Vec<_>, Vec<_>) =
            self.cache.all()?.into_iter().partition(|entry| entry.owner == self.cache.owner());
        for entry in ours.iter().filter(|entry| !is_valid(entry)) {
            // The path may belong to another namespace by now.
            outcome = outcome.and(self.del_entry(entry, ""));
        }
        let others = others.into_iter().map(|entry| (entry.container_id, entry.ifname));
        let kept: Vec<_> = valid.iter().cloned().chain(others).collect();
        match self.network() {
            Ok(list) => outcome.and(self.runner().gc(&list, &kept)),
            Err(_) => outcome,
        }
    }

    /// Waits until the devices of detached pods are deleted in the background.
    pub fn settle(&self) {
        if let Some(reaper) = &self.invoker.shared.reaper {
            reaper.settle();
        }
    }

    fn runner(&self) -> Runner<'_> {
        Runner { invoker: &self.invoker, cache: &self.cache }
    }

    /// Reads the configuration directory on every call: it is small, and needs no watch.
    fn network(&self) -> Result<NetworkList, NotReady> {
        match conf::load(&self.options.conf_dir) {
            Ok(Some(list)) => return Ok(list),
            Ok(None) if self.options.builtin => {}
            Ok(None) => {
                return Err(NotReady(format!("no network config found in {}", self.options.conf_dir.display())));
            }
            Err(error) => return Err(NotReady(error.to_string())),
        }
        let cidrs = self.pod_cidrs.lock();
        if cidrs.is_empty() {
            let text = "the node's pod CIDR is not known yet, and there is no network config in";
            return Err(NotReady(format!("{text} {}", self.options.conf_dir.display())));
        }
        let CniOptions { names, cluster, state_dir, .. } = &self.options;
        Ok(builtin::network(&cidrs, names, cluster, &state_dir.join("networks")))
    }

    /// Sets up the loopback interface, which every sandbox has, independent of the configuration.
    fn loopback(&self, runtime: &RuntimeConf) -> Result<(), Error> {
        let conf = json!({ "cniVersion": Version::NEWEST.as_str(), "name": "loopback", "type": "loopback" });
        let target = Target { container_id: &runtime.container_id, netns: &runtime.netns, ifname: "lo", args: "" };
        let invoker = Invoker {
            bin_dirs: Vec::new(),
            builtin: true,
            timeout: TIMEOUT,
            shared: Shared { fresh: true, ..Shared::default() },
        };
        invoker.invoke(Verb::Add, "loopback", &conf, target).map(|_| ()).map_err(|error| error.within("loopback"))
    }

    fn del_entry(&self, entry: &Entry, netns: &str) -> Result<(), Error> {
        let list = NetworkList::parse(&entry.config, None)?;
        self.runner().del(&list, &of_entry(entry, netns))
    }
}

fn of_entry(entry: &Entry, netns: &str) -> RuntimeConf {
    RuntimeConf {
        container_id: entry.container_id.clone(),
        netns: netns.to_string(),
        ifname: entry.ifname.clone(),
        args: entry.args.clone(),
        capability_args: entry.capability_args.clone(),
    }
}

fn attached(made: &result::AddResult, ifname: &str) -> PodNetwork {
    PodNetwork {
        ips: made.ips_of(ifname).map(|ip| ip.address.address).collect(),
        interfaces: made.interfaces.clone(),
        dns: made.dns.clone(),
        raw: made.to_json(Version::NEWEST),
    }
}

const CIDR_FILE: &str = "pod-cidrs";

/// The file has one CIDR per line.
fn read_cidrs(file: &Path) -> Result<Vec<IpNet>, Error> {
    let text = match fs::read_to_string(file) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        text => text.map_err(|error| Error::from(error).within(file.display()))?,
    };
    let parse = |line: &str| {
        line.parse().map_err(|error: InvalidCidr| Error::internal(error.to_string()).within(file.display()))
    };
    text.lines().map(parse).collect()
}

fn write_cidrs(state_dir: &Path, cidrs: &[IpNet]) -> Result<(), Error> {
    let file = state_dir.join(CIDR_FILE);
    let with_context = |error: io::Error| Error::from(error).within(file.display());
    fs::create_dir_all(state_dir).map_err(with_context)?;
    let lines: String = cidrs.iter().map(|cidr| format!("{cidr}\n")).collect();
    let options = ReplaceOptions { mode: None, durability: Durability::Cached };
    options.write(&file, lines.as_bytes()).map_err(with_context)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(directory: &Path, builtin: bool) -> CniOptions {
        CniOptions {
            conf_dir: directory.join("net.d"),
            bin_dirs: Vec::new(),
            cache_dir: directory.join("cache"),
            state_dir: directory.join("state"),
            builtin,
            names: Default::default(),
            cluster: Default::default(),
        }
    }

    #[test]
    fn is_not_ready_until_the_pod_cidr_is_known() {
        let directory = tempfile::tempdir().unwrap();
        let conf_dir = directory.path().join("net.d");
        let cni = Cni::open(options(directory.path(), true)).unwrap();
        let reason =
            format!("the node's pod CIDR is not known yet, and there is no network config in {}", conf_dir.display());
        assert_eq!(cni.status(), Err(NotReady(reason)));
        assert!(cni.set_pod_cidr(&["10.0.0.1/24".parse().unwrap()]).is_err());
        cni.set_pod_cidr(&["10.0.0.0/24".parse().unwrap(), "fd00::/64".parse().unwrap()]).unwrap();
        assert_eq!(cni.status(), Ok(()));
        let again = Cni::open(options(directory.path(), true)).unwrap();
        assert_eq!(again.status(), Ok(()));
        again.set_pod_cidr(&[]).unwrap();
        assert_eq!(again.status(), Ok(()));
        let without = Cni::open(options(directory.path(), false)).unwrap();
        assert_eq!(without.status(), Err(NotReady(format!("no network config found in {}", conf_dir.display()))));
    }

    #[test]
    fn reports_a_broken_configuration() {
        let directory = tempfile::tempdir().unwrap();
        let cni = Cni::open(options(directory.path(), true)).unwrap();
        cni.set_pod_cidr(&["10.0.0.0/24".parse().unwrap()]).unwrap();
        fs::create_dir(directory.path().join("net.d")).unwrap();
        let file = directory.path().join("net.d/10.conf");
        fs::write(&file, r#"{"cniVersion":"1.0.0","name":"n"}"#).unwrap();
        assert_eq!(cni.status(), Err(NotReady(format!("{}: type: is missing", file.display()))));
        // STATUS exists since version 1.1.
        fs::write(&file, r#"{"cniVersion":"1.1.0","name":"n","type":"absent"}"#).unwrap();
        let NotReady(reason) = cni.status().unwrap_err();
        assert_eq!(reason, "plugin type=\"absent\" failed (status): failed to find plugin \"absent\" in path []");
        fs::write(&file, r#"{"cniVersion":"1.1.0","name":"n","type":"bridge","ipam":{"type":"host-local"}}"#).unwrap();
        let NotReady(reason) = cni.status().unwrap_err();
        assert_eq!(reason, "plugin type=\"bridge\" failed (status): ipam.ranges: no range is configured");
    }

    #[test]
    fn deletes_an_unknown_attachment_without_error() {
        let directory = tempfile::tempdir().unwrap();
        let cni = Cni::open(options(directory.path(), true)).unwrap();
        let attachment =
            Attachment { container_id: "a".to_string(), ifname: "eth0".to_string(), ..Attachment::default() };
        assert_eq!(cni.del(&attachment), Ok(()));
        assert!(cni.check(&attachment).is_err());
    }
}

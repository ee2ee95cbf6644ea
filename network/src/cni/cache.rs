//! The cache of ADD results on disk, in the format of the reference library (libcni), so that other tools can read it.

use std::fs;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value, json};
use stdx::fs::ReplaceOptions;

use crate::spec::error::Error;

const KIND: &str = "cniCacheV1";
/// A field of ours, which libcni ignores.
const OWNER: &str = "tiphys.io/owner";

/// The cached result of an ADD, with everything that DEL needs.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    pub container_id: String,
    pub ifname: String,
    pub network: String,
    /// The configuration list that ADD used.
    pub config: Vec<u8>,
    pub netns: String,
    pub args: Vec<(String, String)>,
    pub capability_args: Map<String, Value>,
    pub result: Value,
    /// The runtime that ran ADD; empty if it was not Tiphys.
    pub owner: String,
}

/// The cache directory. Several runtimes may share it.
pub struct Cache {
    directory: PathBuf,
    owner: String,
}

impl Cache {
    /// The cache in this directory. Entries that are written belong to `owner`.
    pub fn new(cache_dir: &Path, owner: &str) -> Cache {
        Cache { directory: cache_dir.join("results"), owner: owner.to_string() }
    }

    /// The owner of the entries that are written.
    pub fn owner(&self) -> &str {
        &self.owner
    }

    /// Writes an entry atomically.
    pub fn write(&self, entry: &Entry) -> Result<(), Error> {
        let path = self.path(&entry.network, &entry.container_id, &entry.ifname);
        let with_context = |error: io::Error| Error::from(error).within(path.display());
        fs::DirBuilder::new().recursive(true).mode(0o700).create(&self.directory).map_err(with_context)?;
        // Not synced: a reboot removes the network too.
        ReplaceOptions::PRIVATE.write(&path, to_json(entry).to_string().as_bytes()).map_err(with_context)
    }

    /// Returns None if there is no entry, or if it cannot be parsed.
    pub fn read(&self, network: &str, container_id: &str, ifname: &str) -> Option<Entry> {
        read(&self.path(network, container_id, ifname))
    }

    /// Deletes an entry, if it exists.
    pub fn delete(&self, network: &str, container_id: &str, ifname: &str) -> Result<(), Error> {
        let path = self.path(network, container_id, ifname);
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(Error::from(error).within(path.display())),
            _ => Ok(()),
        }
    }

    /// The entries of all networks, sorted by file name.
    pub fn all(&self) -> Result<Vec<Entry>, Error> {
        self.ending_in("")
    }

    /// The entries for an interface of a container, of any network. Does not open other containers' files.
    pub fn of(&self, container_id: &str, ifname: &str) -> Result<Vec<Entry>, Error> {
        let mut entries = self.ending_in(&format!("-{container_id}-{ifname}"))?;
        entries.retain(|entry| entry.container_id == container_id && entry.ifname == ifname);
        Ok(entries)
    }

    fn ending_in(&self, ending: &str) -> Result<Vec<Entry>, Error> {
        let with_context = |error: io::Error| Error::from(error).within(self.directory.display());
        let files = match fs::read_dir(&self.directory) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            files => files.map_err(with_context)?,
        };
        let mut paths = Vec::new();
        for file in files {
            let file = file.map_err(with_context)?;
            // Names that begin with a dot are temporary files.
            let wanted = |name: &str| name.ends_with(ending) && !name.starts_with('.');
            if file.file_name().to_str().is_some_and(wanted) {
                paths.push(file.path());
            }
        }
        paths.sort();
        Ok(paths.iter().filter_map(|path| read(path)).collect())
    }

    fn path(&self, network: &str, container_id: &str, ifname: &str) -> PathBuf {
        self.directory.join(file_name(network, container_id, ifname))
    }
}

fn file_name(network: &str, container_id: &str, ifname: &str) -> String {
    format!("{network}-{container_id}-{ifname}")
}

fn read(path: &Path) -> Option<Entry> {
    from_json(&serde_json::from_slice(&fs::read(path).ok()?).ok()?)
}

fn to_json(entry: &Entry) -> Value {
    let args: Vec<Value> = entry.args.iter().map(|(key, value)| json!([key, value])).collect();
    let mut json = json!({
        "kind": KIND,
        "containerId": entry.container_id,
        "config": STANDARD.encode(&entry.config),
        "ifName": entry.ifname,
        "networkName": entry.network,
        "result": entry.result,
        OWNER: entry.owner,
    });
    if !entry.netns.is_empty() {
        json["netns"] = entry.netns.as_str().into();
    }
    if !args.is_empty() {
        json["cniArgs"] = args.into();
    }
    if !entry.capability_args.is_empty() {
        json["capabilityArgs"] = entry.capability_args.clone().into();
    }
    json
}

fn from_json(json: &Value) -> Option<Entry> {
    let text = |key: &str| json[key].as_str().map(str::to_string);
    (json["kind"] == KIND).then_some(())?;
    let args = json["cniArgs"].as_array().into_iter().flatten();
    let pair = |arg: &Value| Some((arg[0].as_str()?.to_string(), arg[1].as_str()?.to_string()));
    Some(Entry {
        container_id: text("containerId")?,
        ifname: text("ifName")?,
        network: text("networkName")?,
        config: STANDARD.decode(json["config"].as_str()?).ok()?,
        netns: text("netns").unwrap_or_default(),
        args: args.filter_map(pair).collect(),
        capability_args: json["capabilityArgs"].as_object().cloned().unwrap_or_default(),
        result: json["result"].clone(),
        owner: text(OWNER).unwrap_or_default(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_survive_a_round_trip_and_deletion() {
        let directory = tempfile::tempdir().unwrap();
        let cache = Cache::new(directory.path(), "me");
        let entry = Entry {
            container_id: "pod".to_string(),
            ifname: "eth0".to_string(),
            network: "net".to_string(),
            config: b"{}".to_vec(),
            netns: "/proc/1/ns/net".to_string(),
            args: vec![("IgnoreUnknown".to_string(), "1".to_string())],
            capability_args: json!({ "aliases": ["a"] }).as_object().cloned().unwrap(),
            result: json!({ "cniVersion": "1.0.0" }),
            owner: "me".to_string(),
        };
        assert_eq!(cache.all().unwrap(), []);
        cache.write(&entry).unwrap();
        assert_eq!(cache.read("net", "pod", "eth0"), Some(entry.clone()));
        assert_eq!(cache.all().unwrap(), std::slice::from_ref(&entry));
        assert_eq!(cache.of("pod", "eth0").unwrap(), [entry]);
        assert_eq!(cache.of("d", "eth0").unwrap(), []);
        let file = fs::read(directory.path().join("results/net-pod-eth0")).unwrap();
        let json: Value = serde_json::from_slice(&file).unwrap();
        assert_eq!((&json["kind"], &json["config"]), (&json!("cniCacheV1"), &json!("e30=")));
        fs::write(directory.path().join("results/net-other-eth0"), "cut sho").unwrap();
        assert_eq!(cache.read("net", "other", "eth0"), None);
        cache.delete("net", "pod", "eth0").unwrap();
        cache.delete("net", "pod", "eth0").unwrap();
        assert_eq!(cache.all().unwrap(), []);
    }
}

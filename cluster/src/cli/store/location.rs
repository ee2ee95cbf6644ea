//! Where a store is: a data directory, or an etcd cluster.

use std::path::{Path, PathBuf};

use store::embedded::offline::DirectoryLock;
use store::etcd::Config;

use crate::error::{Error, Result};
use crate::machine::lock::{Lock, lock_data_dir};

/// How etcd is reached.
#[derive(clap::Args, Clone)]
pub(super) struct EtcdArguments {
    /// The prefix of all keys in etcd
    #[arg(long, default_value = "/registry")]
    etcd_prefix: String,
    /// CA bundle for etcd's certificates
    #[arg(long)]
    etcd_cafile: Option<PathBuf>,
    /// Client certificate for etcd
    #[arg(long, requires = "etcd_keyfile")]
    etcd_certfile: Option<PathBuf>,
    /// The key of that certificate
    #[arg(long, requires = "etcd_certfile")]
    etcd_keyfile: Option<PathBuf>,
}

/// A store.
pub(super) enum Location {
    /// A data directory of `up`, `server` or `kube-apiserver`, or the `store` directory in it.
    Directory(PathBuf),
    Etcd(Box<Config>),
}

impl EtcdArguments {
    /// The etcd cluster with these endpoints.
    pub(super) fn location(&self, servers: &[String]) -> Result<Location> {
        let wrong = servers.iter().find(|url| !is_url(url));
        if let Some(wrong) = wrong {
            return Err(Error::Flags(vec![format!("{wrong:?} is no URL of etcd, such as https://10.0.0.1:2379")]));
        }
        let mut config = Config::new(servers.to_vec());
        config.prefix = format!("/{}", self.etcd_prefix.trim_matches('/'));
        config.ca_file.clone_from(&self.etcd_cafile);
        config.cert_file.clone_from(&self.etcd_certfile);
        config.key_file.clone_from(&self.etcd_keyfile);
        config.compact_interval = None;
        Ok(Location::Etcd(Box::new(config)))
    }

    /// A directory, or URLs separated by commas.
    pub(super) fn parse(&self, text: &str) -> Result<Location> {
        let servers: Vec<String> = text.split(',').map(str::to_string).collect();
        match servers.first().is_some_and(|first| is_url(first)) {
            true => self.location(&servers),
            false => Ok(Location::Directory(text.into())),
        }
    }
}

fn is_url(text: &str) -> bool {
    ["http://", "https://"].iter().any(|scheme| text.strip_prefix(scheme).is_some_and(|rest| !rest.is_empty()))
}

/// The directory with the files of the store.
pub(super) fn store_dir(data_dir: &Path) -> PathBuf {
    match data_dir.join("VERSION").exists() {
        true => data_dir.to_path_buf(),
        false => data_dir.join("store"),
    }
}

/// Keeps every server away from a data directory.
pub(super) struct Locks {
    _data_dir: Option<Lock>,
    pub store: Option<DirectoryLock>,
}

impl Locks {
    /// Fails if a server runs on the directory, and names its process.
    pub(super) fn take(data_dir: &Path) -> Result<Locks> {
        Ok(Locks { _data_dir: lock_dir(data_dir)?, store: Some(DirectoryLock::take(&store_dir(data_dir))?) })
    }

    /// The same for a directory without a store.
    pub(super) fn take_empty(data_dir: &Path) -> Result<Locks> {
        std::fs::create_dir_all(data_dir).map_err(Error::file(data_dir))?;
        Ok(Locks { _data_dir: lock_dir(data_dir)?, store: None })
    }
}

fn lock_dir(data_dir: &Path) -> Result<Option<Lock>> {
    let is_data_dir = store_dir(data_dir) != data_dir;
    is_data_dir.then(|| lock_data_dir(data_dir)).transpose()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arguments() -> EtcdArguments {
        EtcdArguments { etcd_prefix: "registry/".into(), etcd_cafile: None, etcd_certfile: None, etcd_keyfile: None }
    }

    #[test]
    fn tells_directories_from_etcd() {
        let parse = |text: &str| match arguments().parse(text) {
            Ok(Location::Directory(dir)) => dir.display().to_string(),
            Ok(Location::Etcd(config)) => format!("{} {}", config.endpoints.join(" "), config.prefix),
            Err(error) => error.describe(),
        };
        assert_eq!(parse("./data"), "./data");
        assert_eq!(parse("http://a:2379,https://b:2379"), "http://a:2379 https://b:2379 /registry");
        assert!(parse("http://a:2379,b").contains("\"b\" is no URL"));
    }
}

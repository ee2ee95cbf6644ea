//! The discovery documents on disk, by server.

use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use api::{Tree, json};
use bytes::Bytes;
use stdx::fs::{Durability, ReplaceOptions};

use super::{Group, Resource, read_aggregated, read_resource_list};
use crate::error::{Error, Result};
use crate::transport::{Client, Request};

/// Documents older than this are fetched again.
const MAX_AGE: Duration = Duration::from_secs(6 * 3600);
/// As upstream has it, whatever the umask is.
const MODE: u32 = 0o660;
const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,\
                          application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList,application/json";

/// Where the documents of one server are.
pub(crate) struct Cache {
    directory: Option<PathBuf>,
}

impl Cache {
    /// A directory for a server below the cache directory; none if that is empty.
    pub(crate) fn new(root: &str, url: &str) -> Cache {
        if root.is_empty() {
            return Cache { directory: None };
        }
        let host = url.split_once("://").map_or(url, |(_, rest)| rest);
        let name: String =
            host.chars().map(|char| if char.is_ascii_alphanumeric() || char == '.' { char } else { '_' }).collect();
        Cache { directory: Some(Path::new(root).join("discovery").join(name)) }
    }

    fn read(&self, name: &str) -> Option<Bytes> {
        let path = self.directory.as_ref()?.join(name);
        let modified = std::fs::metadata(&path).ok()?.modified().ok()?;
        let age = SystemTime::now().duration_since(modified).unwrap_or_default();
        if age > MAX_AGE { None } else { std::fs::read(path).ok().map(Bytes::from) }
    }

    /// Another process may write the same file: it is replaced whole. Without a cache the next command is only slower.
    fn write(&self, name: &str, bytes: &[u8]) {
        let Some(directory) = &self.directory else { return };
        let _ = std::fs::DirBuilder::new().recursive(true).mode(0o750).create(directory);
        let options = ReplaceOptions { mode: Some(MODE), durability: Durability::Cached };
        let _ = options.write_shared(&directory.join(name), bytes);
    }
}

/// The groups of the server, from the cache if it may be used and is young enough, and whether they are fresh.
pub(crate) async fn read_groups(client: &Client, cache: &Cache, may_be_cached: bool) -> Result<(Vec<Group>, bool)> {
    let mut documents = Vec::new();
    let mut is_fresh = false;
    for (path, name) in [("/api", "api.json"), ("/apis", "apis.json")] {
        let cached = if may_be_cached { cache.read(name) } else { None };
        let document = cached.and_then(|bytes| json::decode(&bytes).ok());
        let document = match document {
            Some(document) => document,
            None => {
                is_fresh = true;
                let bytes = client.send(&Request::get(path).accept(AGGREGATED)).await?.object_bytes().await?;
                let document = json::decode(&bytes).map_err(|error| Error::new(format!("discovery: {error}")))?;
                if document.str("kind") == "APIGroupDiscoveryList" {
                    cache.write(name, &bytes);
                }
                document
            }
        };
        documents.push(document);
    }
    if documents.iter().all(|document| document.str("kind") == "APIGroupDiscoveryList") {
        return Ok((read_aggregated(&documents), is_fresh));
    }
    Ok((read_legacy(client, &documents).await?, is_fresh))
}

/// Servers before 1.27, with one document for each group version.
async fn read_legacy(client: &Client, documents: &[Tree]) -> Result<Vec<Group>> {
    let mut groups = vec![Group { preferred: "v1".to_string(), ..Group::default() }];
    for version in documents.first().map_or(&[][..], |api| api.list("versions")) {
        let number = version.as_str().unwrap_or_default().to_string();
        let resources = read_list(client, &format!("/api/{number}")).await;
        groups[0].versions.push((number, resources));
    }
    for item in documents.get(1).map_or(&[][..], |apis| apis.list("groups")) {
        let name = item.str("name").to_string();
        let mut group = Group { preferred: item.str("preferredVersion.version").to_string(), ..Group::default() };
        for version in item.list("versions") {
            let number = version.str("version").to_string();
            let resources = read_list(client, &format!("/apis/{name}/{number}")).await;
            group.versions.push((number, resources));
        }
        group.name = name;
        groups.push(group);
    }
    Ok(groups)
}

/// A version that the server cannot describe now does not keep the others from being used.
async fn read_list(client: &Client, path: &str) -> Option<Vec<Resource>> {
    client.tree(&Request::get(path)).await.ok().map(|list| read_resource_list(&list))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_planted_link_is_not_followed() {
        let dir = tempfile::tempdir().expect("a directory");
        let cache = Cache::new(&dir.path().to_string_lossy(), "https://a:1");
        cache.write("api.json", b"first");
        let directory = cache.directory.clone().expect("a directory");
        let precious = dir.path().join("precious");
        std::fs::write(&precious, "kept").expect("written");
        let own = format!(".api.json.{}", std::process::id());
        std::os::unix::fs::symlink(&precious, directory.join(own)).expect("a link");
        cache.write("api.json", b"second");
        assert_eq!(cache.read("api.json").as_deref(), Some(&b"second"[..]));
        assert_eq!(std::fs::read_to_string(&precious).expect("read"), "kept");
        assert_eq!(std::fs::read_dir(&directory).expect("entries").count(), 1, "nothing is left");
    }
}

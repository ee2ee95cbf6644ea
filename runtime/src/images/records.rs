//! The index of images and their names.
//!
//! It is one file, which is read again when it has changed and replaced atomically, so that changes of other processes
//! are seen. Changes are pure functions of the index.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::Image;
use super::digest::Digest;
use super::error::{Error, Result};
use super::manifest::{Config, Descriptor};
use super::reference::Reference;

/// The minimum length of an abbreviated image ID.
const SHORT_ID: usize = 3;

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(super) struct Index {
    #[serde(default)]
    pub images: BTreeMap<Digest, Record>,
    /// Tags and `name@digest`, fully qualified, with the IDs of their images.
    #[serde(default)]
    pub names: BTreeMap<String, Digest>,
}

/// An image.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Record {
    /// The pulled manifest, or the index that it was resolved from.
    pub target: Descriptor,
    pub manifest: Descriptor,
    pub layers: Vec<Descriptor>,
    pub diff_ids: Vec<Digest>,
    pub chain: Vec<Digest>,
    pub size: u64,
    pub config: Config,
    #[serde(default)]
    pub pinned: bool,
    /// Identifies the source of an image that was built here. Its layers have no blobs, and it is outdated if this differs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub made_from: Option<String>,
}

impl Index {
    /// Adds an image with names. Names that refer to another image are moved.
    pub(super) fn add(&mut self, id: Digest, mut record: Record, names: impl IntoIterator<Item = String>) {
        record.pinned |= self.images.get(&id).is_some_and(|old| old.pinned);
        self.names.extend(names.into_iter().map(|name| (name, id.clone())));
        self.images.insert(id, record);
    }

    pub(super) fn remove(&mut self, id: &Digest) {
        self.images.remove(id);
        self.names.retain(|_, other| other != id);
    }

    /// Resolves a name, an ID, or a unique prefix of an ID.
    pub(super) fn resolve(&self, text: &str) -> Result<Option<&Digest>> {
        if let Ok(digest) = Digest::parse(text) {
            return Ok(self.images.get_key_value(&digest).map(|(id, _)| id));
        }
        let named = Reference::parse(text).ok().and_then(|reference| self.names.get(&reference.to_string()));
        match named {
            Some(id) => Ok(Some(id)),
            None => self.by_prefix(text),
        }
    }

    fn by_prefix(&self, text: &str) -> Result<Option<&Digest>> {
        let digits = text.strip_prefix("sha256:").unwrap_or(text);
        if digits.len() < SHORT_ID || !digits.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return Ok(None);
        }
        let mut matching = self.images.keys().filter(|id| id.hex().starts_with(digits));
        match (matching.next(), matching.next()) {
            (Some(_), Some(_)) => Err(Error::Ambiguous(text.to_owned())),
            (only, _) => Ok(only),
        }
    }

    pub(super) fn image(&self, id: &Digest) -> Option<Image> {
        let record = self.images.get(id)?;
        let names = self.names.iter().filter(|(_, other)| *other == id).map(|(name, _)| name.clone());
        let (repo_digests, repo_tags) = names.partition(|name| name.contains('@'));
        Some(Image {
            id: id.to_string(),
            repo_tags,
            repo_digests,
            size: record.size,
            config: record.config.clone(),
            pinned: record.pinned,
            chain: record.chain.clone(),
        })
    }

    pub(super) fn all(&self) -> BTreeMap<Digest, Arc<Image>> {
        self.images.keys().filter_map(|id| Some((id.clone(), Arc::new(self.image(id)?)))).collect()
    }

    /// The blobs that images need.
    pub(super) fn blobs(&self) -> BTreeSet<Digest> {
        let of = |(id, record): (&Digest, &Record)| {
            let layers = record.layers.iter().map(|layer| layer.digest.clone());
            let own = [id.clone(), record.manifest.digest.clone(), record.target.digest.clone()];
            own.into_iter().chain(layers).collect::<Vec<_>>()
        };
        self.images.iter().flat_map(of).collect()
    }

    /// The images that are not pinned, not in `used`, and without a tag unless `tagged` is set.
    pub(super) fn unused(&self, used: &BTreeSet<Digest>, tagged: bool) -> Vec<Digest> {
        let has_tag = |id: &Digest| self.names.iter().any(|(name, other)| other == id && !name.contains('@'));
        let unused =
            |(id, record): &(&Digest, &Record)| !record.pinned && !used.contains(*id) && (tagged || !has_tag(id));
        self.images.iter().filter(unused).map(|(id, _)| id.clone()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(layers: &[&str]) -> Record {
        let descriptor = |text: &str| Descriptor::new("", Digest::of(text.as_bytes()), 1);
        Record {
            target: descriptor("target"),
            manifest: descriptor("manifest"),
            layers: layers.iter().map(|layer| descriptor(layer)).collect(),
            diff_ids: Vec::new(),
            chain: Vec::new(),
            size: 3,
            config: Config::default(),
            pinned: false,
            made_from: None,
        }
    }

    fn index() -> (Index, Digest, Digest) {
        let (a, b) = (Digest::of(b"a"), Digest::of(b"b"));
        let mut index = Index::default();
        let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        let first = format!("docker.io/library/x@{}", Digest::of(b"1"));
        index.add(a.clone(), record(&["l1", "l2"]), names(&["docker.io/library/x:latest", &first]));
        let second = format!("docker.io/library/x@{}", Digest::of(b"2"));
        index.add(b.clone(), record(&["l1"]), names(&["docker.io/library/x:latest", &second]));
        (index, a, b)
    }

    #[test]
    fn moves_a_tag_and_keeps_the_old_image() {
        let (index, a, b) = index();
        let (old, new) = (index.image(&a).unwrap(), index.image(&b).unwrap());
        assert_eq!((old.repo_tags.len(), old.repo_digests.len()), (0, 1));
        assert_eq!(new.repo_tags, ["docker.io/library/x:latest"]);
        assert_eq!(index.unused(&BTreeSet::new(), false), std::slice::from_ref(&a));
        assert_eq!(index.unused(&[a].into(), true), [b]);
    }

    #[test]
    fn resolves_names_and_ids() {
        let (index, a, b) = index();
        let digest = format!("x@{}", Digest::of(b"1"));
        let cases: &[(&str, Option<&Digest>)] = &[
            ("x", Some(&b)),
            ("docker.io/library/x:latest", Some(&b)),
            (&digest, Some(&a)),
            (a.as_str(), Some(&a)),
            (a.hex(), Some(&a)),
            (&a.hex()[..6], Some(&a)),
            (&a.as_str()[..15], Some(&a)),
            (&a.hex()[..2], None),
            ("y", None),
            ("x:other", None),
            ("", None),
        ];
        for (text, expected) in cases {
            assert_eq!(index.resolve(text).unwrap(), *expected, "{text}");
        }
    }

    #[test]
    fn refuses_an_ambiguous_prefix() {
        let mut index = Index::default();
        for last in ["0", "1"] {
            let id = Digest::parse(&format!("sha256:{}{last}", "a".repeat(63))).unwrap();
            index.add(id, record(&[]), []);
        }
        assert!(matches!(index.resolve("aaaa"), Err(Error::Ambiguous(_))));
    }

    #[test]
    fn removes_all_names_and_keeps_pins() {
        let (mut index, a, b) = index();
        index.images.get_mut(&a).unwrap().pinned = true;
        index.add(a.clone(), record(&["l1", "l2"]), ["docker.io/library/y:1".to_owned()]);
        assert!(index.images[&a].pinned);
        assert!(index.unused(&BTreeSet::new(), true).contains(&b));
        index.remove(&a);
        assert!(index.resolve("y:1").unwrap().is_none());
        assert!(!index.blobs().contains(&Digest::of(b"l2")));
        assert!(index.blobs().contains(&Digest::of(b"l1")));
    }
}

//! Garbage collection: removes blobs and layers that neither an image nor a snapshot needs.

use std::collections::{BTreeMap, BTreeSet};

use super::Images;
use super::digest::Digest;
use super::error::Result;

/// The layers of these stacks: their tops, and everything below.
fn needed(tops: impl IntoIterator<Item = String>, parents: &BTreeMap<String, Option<String>>) -> BTreeSet<String> {
    let mut needed = BTreeSet::new();
    for top in tops {
        let mut next = Some(top);
        while let Some(layer) = next {
            next = parents.get(&layer).cloned().flatten();
            // The layers below a known layer are known too.
            if !needed.insert(layer) {
                break;
            }
        }
    }
    needed
}

impl Images {
    /// Does nothing while a pull or a prepare is in progress, since the index may not reference what it needs yet.
    pub(super) fn collect_garbage(&self) -> Result<()> {
        let store = &self.inner.store;
        let mut removed = Vec::new();
        if let Some(_idle) = store.idle()? {
            let index = &self.known()?.index;
            let layers = store.layers()?;
            let name = |digest: &Digest| digest.hex().to_owned();
            let parents = layers.iter().filter_map(|(path, info)| {
                Some((path.file_name()?.to_str()?.to_owned(), info.parent.as_ref().map(name)))
            });
            let tops = index.images.values().filter_map(|record| record.chain.last().cloned());
            let tops: Vec<String> = tops.chain(self.tops()?).map(|digest| name(&digest)).collect();
            let needed = needed(tops, &parents.collect());
            for (path, _) in layers {
                if path.file_name().and_then(|name| name.to_str()).is_some_and(|name| !needed.contains(name)) {
                    removed.extend(store.take(&path)?);
                }
            }
            removed.extend(self.take_blobs()?);
        }
        // Deleting the contents needs no lock.
        drop(removed);
        Ok(())
    }

    fn take_blobs(&self) -> Result<Vec<super::store::IngestPath>> {
        let index = &self.known()?.index;
        let mut needed = index.blobs();
        if !self.inner.options.keep_blobs {
            let layers = index.images.values().flat_map(|record| &record.layers);
            for layer in layers {
                needed.remove(&layer.digest);
            }
        }
        let mut removed = Vec::new();
        for algorithm in ["sha256", "sha512"] {
            for hex in self.inner.store.names(&format!("blobs/{algorithm}"))? {
                let Ok(digest) = Digest::parse(&format!("{algorithm}:{hex}")) else { continue };
                if !needed.contains(&digest) {
                    removed.extend(self.inner.store.take(&self.inner.store.blob(&digest))?);
                }
            }
        }
        Ok(removed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stack_needs_all_layers_below() {
        let layers = [("a", None), ("b", Some("a")), ("c", Some("b")), ("d", Some("a")), ("e", None)];
        let parents: BTreeMap<String, Option<String>> =
            layers.iter().map(|(name, parent)| ((*name).to_owned(), parent.map(str::to_owned))).collect();
        let cases: &[(&[&str], &str)] =
            &[(&[], ""), (&["c"], "abc"), (&["d"], "ad"), (&["c", "d", "c"], "abcd"), (&["missing", "e"], "emissing")];
        for (tops, expected) in cases {
            let found = needed(tops.iter().map(|top| (*top).to_owned()), &parents);
            assert_eq!(found.into_iter().collect::<String>(), *expected, "{tops:?}");
        }
    }
}

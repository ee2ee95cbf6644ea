//! Objects that a conversion webhook has to convert into the watched version, before they are framed.

use std::sync::Arc;

use api::Tree;
use api::status::Status;

use super::{Stage, Watcher};
use crate::registry::conversion;
use crate::request::body::CHUNK_BYTES;
use crate::storage::cache::{Item, RingRead};

impl Watcher {
    /// An object in the watched version.
    pub(super) fn object_of(&self, item: &Item) -> Tree {
        match self.converted.get(&(item.key.clone(), item.revision)) {
            Some(object) => object.clone(),
            None => self.resource.read(item),
        }
    }

    /// Converts the next objects with the webhook of the resource, if it has one. Framing is not asynchronous.
    pub(super) async fn convert_ahead(&mut self) -> Result<(), Status> {
        let Some(registry) = self.registry.clone() else { return Ok(()) };
        let items: Vec<Arc<Item>> = match &self.stage {
            Stage::Initial { snapshot, .. } if self.converted.is_empty() => {
                snapshot.map.values().filter(|item| self.selects(item)).cloned().collect()
            }
            Stage::Following { cursor } => match self.cache.read(*cursor, CHUNK_BYTES) {
                RingRead::Changes(changes, _) => {
                    changes.iter().flat_map(|change| [change.old.clone(), change.new.clone()]).flatten().collect()
                }
                _ => return Ok(()),
            },
            _ => return Ok(()),
        };
        if matches!(self.stage, Stage::Following { .. }) {
            self.converted.clear();
        }
        let objects = conversion::read_all(&registry, &self.resource, &items).await?;
        let pairs = items.iter().zip(objects);
        self.converted.extend(pairs.map(|(item, object)| ((item.key.clone(), item.revision), object)));
        Ok(())
    }
}

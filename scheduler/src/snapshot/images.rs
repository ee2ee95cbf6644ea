//! The number of nodes that have an image.

use std::collections::HashMap;

use api::Str;

use podmodel::Node;

/// The number of nodes that have an image.
#[derive(Debug, Default)]
pub struct ImageIndex(HashMap<Str, usize>);

impl ImageIndex {
    pub(crate) fn nodes_with(&self, image: &str) -> usize {
        self.0.get(image).copied().unwrap_or(0)
    }

    pub(super) fn add(&mut self, node: &Node) {
        for image in &node.images {
            *self.0.entry(image.name.clone()).or_default() += 1;
        }
    }

    pub(super) fn remove(&mut self, node: &Node) {
        for image in &node.images {
            let Some(nodes) = self.0.get_mut(&image.name) else { continue };
            *nodes -= 1;
            if *nodes == 0 {
                self.0.remove(&image.name);
            }
        }
    }
}

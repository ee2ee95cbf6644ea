//! A few objects that every write needs (its namespace, the service account, the priority classes), as trees. Bounded,
//! because no cache keeps trees in general.

use std::collections::VecDeque;
use std::sync::Arc;

use api::Tree;
use stdx::sync::Mutex;

use super::Item;

/// Enough for the namespaces and classes of concurrent writes.
const KEPT: usize = 32;

#[derive(Default)]
pub(crate) struct DecodedCache {
    /// The newest first. An item is immutable, so its address identifies its revision too.
    trees: Mutex<VecDeque<(Arc<Item>, Arc<Tree>)>>,
}

impl DecodedCache {
    pub(crate) fn tree(&self, item: &Arc<Item>) -> Arc<Tree> {
        if let Some(tree) = self.find(item) {
            return tree;
        }
        let tree = Arc::new(item.tree());
        let mut trees = self.trees.lock();
        trees.truncate(KEPT - 1);
        trees.push_front((item.clone(), tree.clone()));
        tree
    }

    fn find(&self, item: &Arc<Item>) -> Option<Arc<Tree>> {
        let trees = self.trees.lock();
        trees.iter().find(|(kept, _)| Arc::ptr_eq(kept, item)).map(|(_, tree)| tree.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decodes_cached_trees_once() {
        let decoded = DecodedCache::default();
        let item = |n: u64| Arc::new(Item::new("a", n, bytes::Bytes::from(format!("{{\"n\":{n}}}"))));
        let first = item(0);
        let tree = decoded.tree(&first);
        assert!(Arc::ptr_eq(&tree, &decoded.tree(&first)));
        for n in 1..=KEPT as u64 {
            assert_eq!(decoded.tree(&item(n)).int("n"), Some(n as i64));
        }
        assert!(!Arc::ptr_eq(&tree, &decoded.tree(&first)), "it was old");
    }
}

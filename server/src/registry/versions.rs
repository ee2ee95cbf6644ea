//! The versions of a kind, for managed fields: managers name their fields in the version they wrote.

use api::Tree;
use api::schema::Type;
use kinds::Kind;

use crate::storage::resource::Resource;

pub(crate) struct Versions<'a> {
    pub resource: &'a Resource,
}

impl Versions<'_> {
    /// The kind of another version over the same storage.
    fn kind(&self, api_version: &str) -> Option<&'static Kind> {
        let own = self.resource.kind;
        if api_version == self.resource.api_version {
            return Some(own);
        }
        let same_storage = |kind: &&&'static Kind| kind.storage == own.storage && kind.api_version() == api_version;
        kinds::served().iter().find(same_storage).copied()
    }
}

impl api::apply::Versions for Versions<'_> {
    fn ty(&self, api_version: &str) -> Option<&'static Type> {
        self.kind(api_version).map(Kind::schema)
    }

    fn convert(&self, tree: &Tree, from: &str, to: &str) -> Option<Tree> {
        if from == to {
            return Some(tree.clone());
        }
        let (from, to) = (self.kind(from)?, self.kind(to)?);
        let stored = match from.conversion {
            Some(conversion) => (conversion.to_storage)(tree.clone()),
            None => tree.clone(),
        };
        Some(match to.conversion {
            Some(conversion) => (conversion.from_storage)(stored),
            None => stored,
        })
    }
}

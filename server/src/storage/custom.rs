//! The resources of all definitions, derived from the cache of CustomResourceDefinitions: a definition is served by the
//! first request after its write, and the cost of a change is that of the changed definition.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};

use api::Str;
use kinds::custom::Definition;

use super::cache::{Caches, DerivedState, Item, View};
use super::kind::{CustomVersion, Schemas};
use super::resource::Resource;

/// The storage path of definitions.
pub(crate) const DEFINITIONS: &str = "apiextensions.k8s.io/customresourcedefinitions";

pub(crate) struct CustomResources {
    view: View<Definitions>,
    caches: Arc<Caches>,
    prefix: String,
}

/// All definitions, by name and by group.
#[derive(Default)]
struct Definitions {
    by_name: HashMap<Str, Arc<Entry>>,
    by_group: BTreeMap<Str, BTreeSet<Str>>,
    /// Counts changes, for documents that are derived from all of them.
    changes: u64,
}

/// A definition and its resources, which are created when one of them is first used.
pub(crate) struct Entry {
    pub(crate) definition: Arc<Definition>,
    pub(crate) source: Arc<Item>,
    /// Objects that were written later than this were written with this schema.
    since: u64,
    /// Outlive changes of the status.
    schemas: OnceLock<Arc<Schemas>>,
    resources: OnceLock<Vec<Arc<Resource>>>,
}

impl Entry {
    /// Creates the entry of a new definition, or of one with a changed spec.
    fn new(definition: Definition, item: &Item) -> Entry {
        let source = Arc::new(Item::new(&item.key, item.revision, item.bytes.clone()));
        let (schemas, resources) = (OnceLock::new(), OnceLock::new());
        Entry { definition: Arc::new(definition), source, since: item.revision, schemas, resources }
    }

    /// Creates the entry of a definition with an unchanged spec; its schemas stay compiled.
    fn updated(&self, definition: Definition, item: &Item) -> Entry {
        let entry = Entry { since: self.since, ..Entry::new(definition, item) };
        match self.schemas.get() {
            Some(schemas) => Entry { schemas: OnceLock::from(schemas.clone()), ..entry },
            None => entry,
        }
    }
}

impl DerivedState for Definitions {
    fn apply(&mut self, _: usize, old: Option<&Item>, new: Option<&Item>) {
        self.changes += 1;
        if let Some(old) = old.filter(|_| new.is_none()) {
            self.remove(old.name());
        }
        if let Some(new) = new {
            self.insert(new);
        }
    }
}

impl Definitions {
    fn remove(&mut self, name: &str) {
        let Some(entry) = self.by_name.remove(name) else { return };
        if let Some(names) = self.by_group.get_mut(&entry.definition.group) {
            names.remove(name);
            if names.is_empty() {
                self.by_group.remove(&entry.definition.group);
            }
        }
    }

    fn insert(&mut self, item: &Item) {
        let definition = Definition::read(&item.tree());
        self.by_group.entry(definition.group.clone()).or_default().insert(definition.name.clone());
        let entry = match self.by_name.get(&definition.name) {
            Some(known) if known.definition.is_same_spec(&definition) => known.updated(definition, item),
            _ => Entry::new(definition, item),
        };
        self.by_name.insert(entry.definition.name.clone(), Arc::new(entry));
    }
}

/// Distinguishes the encodings of resources that share a cache.
static NEXT_CODE: AtomicU32 = AtomicU32::new(1);

impl CustomResources {
    pub(crate) fn new(prefix: &str, caches: &Arc<Caches>) -> CustomResources {
        let view = View::new(caches.get(DEFINITIONS));
        CustomResources { view, caches: caches.clone(), prefix: prefix.to_string() }
    }

    /// The definition of a resource.
    pub(crate) fn entry(&self, group: &str, plural: &str) -> Option<Arc<Entry>> {
        let name = format!("{plural}.{group}");
        self.view.read(|definitions| definitions.by_name.get(name.as_str()).cloned())
    }

    /// The resource of a definition that is served.
    pub(crate) fn find(&self, group: &str, version: &str, plural: &str) -> Option<Arc<Resource>> {
        let entry = self.entry(group, plural).filter(|entry| entry.definition.is_served)?;
        let is = |resource: &&Arc<Resource>| resource.kind.version() == version && is_reachable(resource);
        self.resources(&entry).iter().find(is).cloned()
    }

    /// The resources of a definition, one for each version, served or not.
    pub(crate) fn resources<'a>(&self, entry: &'a Entry) -> &'a [Arc<Resource>] {
        entry.resources.get_or_init(|| {
            let cache = self.caches.custom(&entry.definition.storage());
            let compile = || Arc::new(Schemas::new(entry.definition.clone(), entry.source.clone()));
            let schemas = entry.schemas.get_or_init(compile);
            let create = |at: usize| {
                let version = CustomVersion::new(entry.definition.clone(), schemas.clone(), at);
                let code = NEXT_CODE.fetch_add(1, Ordering::Relaxed);
                Arc::new(Resource::custom(version, &self.prefix, cache.clone(), entry.since, code))
            };
            (0..entry.definition.versions.len()).map(create).collect()
        })
    }

    /// The other versions of a resource.
    pub(crate) fn siblings(&self, resource: &Resource) -> Vec<Arc<Resource>> {
        let entry = self.entry(resource.kind.group(), resource.kind.plural());
        entry.map(|entry| self.resources(&entry).to_vec()).unwrap_or_default()
    }

    /// The definitions of a group that are established, by name.
    pub(crate) fn group_entries(&self, group: &str) -> Vec<Arc<Entry>> {
        self.view.read(|definitions| {
            let names = definitions.by_group.get(group).into_iter().flatten();
            let entries = names.filter_map(|name| definitions.by_name.get(name));
            entries.filter(|entry| entry.definition.is_established).cloned().collect()
        })
    }

    /// The groups with established definitions, by name.
    pub(crate) fn groups(&self) -> Vec<Str> {
        self.view.read(|definitions| {
            let is_established = |name: &Str| {
                definitions.by_name.get(name).is_some_and(|entry| {
                    entry.definition.is_established && entry.definition.versions.iter().any(|version| version.served)
                })
            };
            let groups = definitions.by_group.iter().filter(|(_, names)| names.iter().any(is_established));
            groups.map(|(group, _)| group.clone()).collect()
        })
    }

    /// A number that changes with any definition.
    pub(crate) fn changes(&self) -> u64 {
        self.view.read(|definitions| definitions.changes)
    }
}

/// Whether a version is served. The storage version is served until its definition is deleted: its objects must stay
/// deletable.
fn is_reachable(resource: &Resource) -> bool {
    is_served(resource)
        || resource.kind.definition().is_some_and(|custom| custom.definition.is_terminating && custom.version.storage)
}

/// Whether clients may use a version of a definition.
pub(crate) fn is_served(resource: &Resource) -> bool {
    resource.kind.definition().is_some_and(|custom| custom.version.served)
}

#[cfg(test)]
mod tests {
    use std::sync::Weak;

    use api::field::Errors;
    use api::{Tree, json};

    use super::*;

    /// A definition whose field `size` is at most `maximum`.
    fn item(generation: u64, maximum: u64, is_established: bool) -> Item {
        let conditions = if is_established { r#"[{"type":"Established","status":"True"}]"# } else { "[]" };
        let text = format!(
            r#"{{"metadata":{{"name":"things.e.com","uid":"u","generation":{generation}}},
                "spec":{{"group":"e.com","scope":"Cluster","names":{{"plural":"things","kind":"Thing"}},"versions":[
                    {{"name":"v1","served":true,"storage":true,"schema":{{"openAPIV3Schema":{{"type":"object",
                    "properties":{{"size":{{"type":"integer","maximum":{maximum}}}}},
                    "x-kubernetes-validations":[{{"rule":"self.size != 13"}}]}}}}}}]}},
                "status":{{"conditions":{conditions}}}}}"#
        );
        Item::new("things.e.com", generation, text.into_bytes().into())
    }

    fn schemas(entry: &Entry) -> &Arc<Schemas> {
        entry.schemas.get_or_init(|| Arc::new(Schemas::new(entry.definition.clone(), entry.source.clone())))
    }

    fn entry(definitions: &Definitions) -> Arc<Entry> {
        definitions.by_name.get("things.e.com").expect("a definition").clone()
    }

    fn accepts(schemas: &Schemas, size: i64) -> bool {
        let text = format!(r#"{{"apiVersion":"e.com/v1","kind":"Thing","metadata":{{"name":"a"}},"size":{size}}}"#);
        let object: Tree = json::decode(text.as_bytes()).expect("JSON");
        let mut errors = Errors::new();
        schemas.find("e.com/v1").expect("a version").validate_create(&object, &|| false, &mut errors);
        errors.is_empty()
    }

    #[test]
    fn schemas_of_old_generations_are_freed() {
        let mut definitions = Definitions::default();
        let mut old: Vec<Weak<Schemas>> = Vec::new();
        let mut last: Option<Item> = None;
        for generation in 1..=10_000 {
            let new = item(generation, generation, true);
            definitions.apply(0, last.as_ref(), Some(&new));
            let entry = entry(&definitions);
            // Compiling uses the memory; a part of the generations is enough.
            if generation % 50 == 0 {
                assert!(accepts(schemas(&entry), 1));
            }
            old.push(Arc::downgrade(schemas(&entry)));
            last = Some(new);
        }
        assert_eq!(old.iter().filter(|schemas| schemas.strong_count() > 0).count(), 1, "only the current one is left");
        definitions.apply(0, last.as_ref(), None);
        assert!(old.iter().all(|schemas| schemas.strong_count() == 0), "freed with the definition");
        assert!(definitions.by_name.is_empty() && definitions.by_group.is_empty());
    }

    #[test]
    fn a_request_keeps_the_schema_it_began_with() {
        let mut definitions = Definitions::default();
        let (first, second) = (item(1, 5, true), item(2, 10, true));
        definitions.apply(0, None, Some(&first));
        let held = schemas(&entry(&definitions)).clone();
        definitions.apply(0, Some(&first), Some(&second));
        let current = schemas(&entry(&definitions)).clone();
        assert!(!accepts(&held, 7) && accepts(&current, 7));
        assert!(!accepts(&held, 13) && !accepts(&current, 13), "rules are compiled too");
        let weak = Arc::downgrade(&held);
        drop(held);
        assert_eq!(weak.strong_count(), 0);
    }

    #[test]
    fn schemas_stay_compiled_when_only_the_status_changes() {
        let mut definitions = Definitions::default();
        let (installing, established) = (item(1, 5, false), item(1, 5, true));
        definitions.apply(0, None, Some(&installing));
        let before = schemas(&entry(&definitions)).clone();
        definitions.apply(0, Some(&installing), Some(&established));
        let after = entry(&definitions);
        assert!(Arc::ptr_eq(&before, schemas(&after)));
        assert!(after.definition.is_established);
    }
}

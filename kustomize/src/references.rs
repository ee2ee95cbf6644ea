//! Names of other resources, updated where those got prefixes, suffixes, hashes or namespaces.

use api::Tree;

use crate::config::NameReference;
use crate::error::Error;
use crate::field_spec::{Creates, FieldSpec};
use crate::id::{Gvk, ResId};
use crate::resource::Resource;
use crate::resources::Resources;

/// What a reference needs to know about a resource.
struct Candidate {
    id: ResId,
    previous: Vec<ResId>,
    prefixes: Vec<String>,
    suffixes: Vec<String>,
}

impl Candidate {
    fn of(resource: &Resource) -> Candidate {
        Candidate {
            id: resource.id(),
            previous: resource.previous_ids(),
            prefixes: resource.prefixes.clone(),
            suffixes: resource.suffixes.clone(),
        }
    }

    fn original_id(&self) -> &ResId {
        self.previous.first().unwrap_or(&self.id)
    }
}

pub(crate) fn fix(resources: &mut Resources, references: &[NameReference]) -> Result<(), Error> {
    let candidates: Vec<Candidate> = resources.list.iter().map(Candidate::of).collect();
    for (at, resource) in resources.list.iter_mut().enumerate() {
        let own = &candidates[at];
        let subset = referable(resource, own, &candidates);
        for reference in references {
            for spec in &reference.referrers {
                if !own.original_id().gvk.is_selected_by(&spec.gvk) {
                    continue;
                }
                let role = role_of(&resource.tree, spec);
                let fix = Fix { referrer: own, target: &reference.target, role, candidates: &subset };
                // The kind was checked with the original identity.
                let spec = FieldSpec { gvk: Gvk::default(), ..spec.clone() };
                spec.apply(&mut resource.tree, Creates::Nothing, &mut |value| fix.set(value)).map_err(|error| {
                    error.context(format!("updating name reference in '{}' field of '{}'", spec.path, own.id))
                })?;
            }
        }
    }
    Ok(())
}

/// The kind in the role reference of a binding.
fn role_of(tree: &Tree, spec: &FieldSpec) -> Option<Gvk> {
    let role = tree.get("roleRef").filter(|_| spec.path.ends_with("roleRef/name"))?;
    let (group, kind) = (role.get("apiGroup")?.as_str()?, role.get("kind")?.as_str()?);
    Some(Gvk { group: group.to_string(), version: String::new(), kind: kind.to_string() })
}

/// The resources that one may refer to: those of its namespace, and those outside of namespaces.
fn referable<'c>(resource: &Resource, own: &Candidate, candidates: &'c [Candidate]) -> Vec<&'c Candidate> {
    let is_binding = resource.kind() == "RoleBinding";
    let subjects =
        resource.tree.list("subjects").iter().filter(|subject| is_binding && subject.str("kind") == "ServiceAccount");
    let namespaces: Vec<&str> =
        subjects.map(|subject| subject.str("namespace")).filter(|name| !name.is_empty()).collect();
    let is_referable = |candidate: &&Candidate| {
        own.id.gvk.is_cluster_scoped()
            || candidate.id.gvk.is_cluster_scoped()
            || candidate.id.is_same_namespace(&own.id)
            || namespaces.contains(&candidate.id.namespace.as_str())
    };
    candidates.iter().filter(is_referable).collect()
}

struct Fix<'c> {
    referrer: &'c Candidate,
    target: &'c Gvk,
    role: Option<Gvk>,
    candidates: &'c [&'c Candidate],
}

impl Fix<'_> {
    fn set(&self, value: &mut Tree) -> Result<(), Error> {
        match value {
            Tree::Null => Ok(()),
            Tree::List(items) => items.iter_mut().try_for_each(|item| self.set_one(item)),
            value => self.set_one(value),
        }
    }

    fn set_one(&self, value: &mut Tree) -> Result<(), Error> {
        match value {
            Tree::Map(_) => self.set_map(value),
            Tree::Str(name) => {
                if let Some(found) = self.find(name, self.candidates, false)? {
                    *value = Tree::from(&found.id.name);
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// A map with a name and perhaps a namespace.
    fn set_map(&self, value: &mut Tree) -> Result<(), Error> {
        let name = value.get("name").ok_or(Error::NoNameField)?.as_str().unwrap_or_default().to_string();
        let candidates = self.of_namespace(value.get("namespace").and_then(Tree::as_str));
        let Some(found) = self.find(&name, &candidates, true)? else { return Ok(()) };
        value.set("name", &found.id.name);
        if !found.id.namespace.is_empty() {
            value.set("namespace", &found.id.namespace);
        }
        Ok(())
    }

    /// Those whose original namespace this is; without any, those whose current namespace it is.
    fn of_namespace(&self, namespace: Option<&str>) -> Vec<&Candidate> {
        let Some(namespace) = namespace else { return self.candidates.to_vec() };
        let with = |id: fn(&Candidate) -> &ResId| -> Vec<&Candidate> {
            let matches = |candidate: &&&Candidate| id(candidate).effective_namespace() == namespace;
            self.candidates.iter().filter(matches).copied().collect()
        };
        let original = with(Candidate::original_id);
        if original.is_empty() { with(|candidate| &candidate.id) } else { original }
    }

    fn find<'c>(
        &self,
        name: &str,
        candidates: &[&'c Candidate],
        compares_namespaces: bool,
    ) -> Result<Option<&'c Candidate>, Error> {
        let mut found: Vec<&Candidate> =
            candidates.iter().copied().filter(|candidate| self.may_be(candidate, name)).collect();
        if found.len() == 1 {
            return Ok(found.pop());
        }
        found.retain(|candidate| has_same_affixes(candidate, self.referrer, true));
        if found.len() > 1 {
            found.retain(|candidate| has_same_affixes(candidate, self.referrer, false));
        }
        let Some(first) = found.first().copied() else { return Ok(None) };
        let is_same = |other: &&Candidate| {
            other.id.name == first.id.name && (!compares_namespaces || other.id.namespace == first.id.namespace)
        };
        if found.iter().all(is_same) {
            return Ok(Some(first));
        }
        let ids: Vec<String> = found.iter().map(|candidate| candidate.id.to_string()).collect();
        Err(Error::SeveralReferrals(ids.join(", ")))
    }

    fn may_be(&self, candidate: &Candidate, name: &str) -> bool {
        let had = |matches: &dyn Fn(&ResId) -> bool| candidate.previous.iter().any(matches);
        had(&|id| id.name == name)
            && had(&|id| id.gvk.is_selected_by(self.target))
            && self.role.as_ref().is_none_or(|role| had(&|id| id.gvk.is_selected_by(role)))
            && self.is_in_reach(candidate)
    }

    fn is_in_reach(&self, candidate: &Candidate) -> bool {
        self.referrer.id.gvk.is_cluster_scoped()
            || candidate.id.gvk.is_cluster_scoped()
            || candidate.id.gvk.kind == "ServiceAccount"
            || candidate.id.is_same_namespace(&self.referrer.id)
    }
}

fn has_same_affixes(one: &Candidate, other: &Candidate, allows_empty: bool) -> bool {
    let matches = |one: &[String], other: &[String]| {
        (allows_empty && (one.is_empty() || other.is_empty())) || has_same_ending(one, other)
    };
    matches(&one.prefixes, &other.prefixes) && matches(&one.suffixes, &other.suffixes)
}

fn has_same_ending(one: &[String], other: &[String]) -> bool {
    let (short, long) = if one.len() > other.len() { (other, one) } else { (one, other) };
    if short.is_empty() { long.is_empty() } else { long.ends_with(short) }
}

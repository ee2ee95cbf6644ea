//! The namespace of all resources.

use api::Tree;

use super::check_scalar;
use crate::error::Error;
use crate::field_spec::{Creates, FieldSpec};
use crate::fields::{Reader, map_text};
use crate::id::Gvk;
use crate::resource::Resource;
use crate::resources::Resources;

/// Which subjects of role bindings get the namespace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Subjects {
    DefaultOnly,
    AllServiceAccounts,
    None,
}

#[derive(Debug, Clone)]
pub(crate) struct Namespace {
    name: String,
    specs: Vec<FieldSpec>,
    unset_only: bool,
    subjects: Subjects,
}

impl Namespace {
    pub(super) fn new(name: String, specs: Vec<FieldSpec>) -> Namespace {
        Namespace { name, specs, unset_only: false, subjects: Subjects::DefaultOnly }
    }

    pub(super) fn read(tree: &Tree, specs: Vec<FieldSpec>) -> Result<Namespace, Error> {
        let reader = Reader::new(tree, "NamespaceTransformerPlugin");
        let subjects = match map_text(tree, "setRoleBindingSubjects").as_str() {
            "" | "defaultOnly" => Subjects::DefaultOnly,
            "allServiceAccounts" => Subjects::AllServiceAccounts,
            "none" => Subjects::None,
            other => return Err(Error::RoleBindingSubjects(other.to_string())),
        };
        let name = map_text(tree.at("metadata"), "namespace");
        Ok(Namespace { name, specs, unset_only: reader.bool("unsetOnly")?, subjects })
    }

    pub(super) fn apply(&self, resources: &mut Resources) -> Result<(), Error> {
        if self.name.is_empty() {
            return Ok(());
        }
        for at in 0..resources.list.len() {
            let resource = &mut resources.list[at];
            resource.store_previous_id();
            self.apply_to(resource)?;
            let id = resource.id();
            let same: Vec<String> = resources
                .list
                .iter()
                .map(Resource::id)
                .filter(|known| known.is_same(&id))
                .map(|id| id.to_string())
                .collect();
            if same.len() != 1 {
                return Err(Error::NamespaceConflict(format!("[{}]", same.join(" "))));
            }
        }
        Ok(())
    }

    fn apply_to(&self, resource: &mut Resource) -> Result<(), Error> {
        let gvk = Gvk::of(&resource.tree);
        let is_core = resource.tree.str("apiVersion") == "v1";
        let is_binding = matches!(gvk.kind.as_str(), "RoleBinding" | "ClusterRoleBinding");
        if !gvk.is_cluster_scoped() {
            let spec = FieldSpec::new("metadata/namespace", true);
            spec.apply(&mut resource.tree, Creates::Scalar, &mut |value| self.set(value))?;
        }
        if is_binding {
            self.apply_to_subjects(&mut resource.tree)?;
        }
        let is_used = |spec: &&FieldSpec| match spec.path.as_str() {
            "metadata/namespace" => false,
            "metadata/name" => is_core,
            "subjects/namespace" => {
                !(is_binding && matches!(spec.gvk.kind.as_str(), "RoleBinding" | "ClusterRoleBinding"))
            }
            _ => true,
        };
        for spec in self.specs.iter().filter(is_used) {
            spec.apply(&mut resource.tree, Creates::Scalar, &mut |value| self.set(value))
                .map_err(|error| error.context("namespace transformation failed"))?;
        }
        Ok(())
    }

    fn set(&self, value: &mut Tree) -> Result<(), Error> {
        check_scalar(value)?;
        let is_empty = value.is_null() || value.as_str() == Some("");
        if !self.unset_only || is_empty {
            *value = Tree::from(&self.name);
        }
        Ok(())
    }

    fn apply_to_subjects(&self, object: &mut Tree) -> Result<(), Error> {
        for subject in object.list_mut("subjects") {
            let is_selected = match self.subjects {
                Subjects::None => false,
                Subjects::DefaultOnly => subject.str("name") == "default",
                Subjects::AllServiceAccounts => subject.str("kind") == "ServiceAccount",
            };
            if is_selected {
                let mut namespace = subject.get("namespace").cloned().unwrap_or_default();
                self.set(&mut namespace)?;
                subject.set("namespace", namespace);
            }
        }
        Ok(())
    }
}

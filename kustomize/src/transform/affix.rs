//! Prefixes and suffixes of names.

use api::Tree;

use crate::error::Error;
use crate::field_spec::{Creates, FieldSpec};
use crate::resource::Resource;
use crate::resources::Resources;

pub(super) fn prefix(resources: &mut Resources, text: &str, specs: &[FieldSpec]) -> Result<(), Error> {
    apply(resources, specs, &|resource| resource.prefixes.push(text.to_string()), &|name| format!("{text}{name}"))
}

pub(super) fn suffix(resources: &mut Resources, text: &str, specs: &[FieldSpec]) -> Result<(), Error> {
    apply(resources, specs, &|resource| resource.suffixes.push(text.to_string()), &|name| format!("{name}{text}"))
}

/// Their names have a meaning.
fn is_skipped(resource: &Resource) -> bool {
    let gvk = resource.original_id().gvk;
    let is_service = gvk.group == "apiregistration.k8s.io" && gvk.kind == "APIService";
    is_service || matches!(gvk.kind.as_str(), "CustomResourceDefinition" | "Namespace")
}

fn apply(
    resources: &mut Resources,
    specs: &[FieldSpec],
    record: &dyn Fn(&mut Resource),
    rename: &dyn Fn(&str) -> String,
) -> Result<(), Error> {
    for resource in resources.list.iter_mut().filter(|resource| !is_skipped(resource)) {
        let gvk = resource.original_id().gvk;
        for spec in specs.iter().filter(|spec| gvk.is_selected_by(&spec.gvk)) {
            if spec.path == "metadata/name" {
                record(resource);
                resource.store_previous_id();
            }
            spec.apply(&mut resource.tree, Creates::Scalar, &mut |value| {
                let name = crate::fields::scalar_text(value);
                *value = Tree::from(rename(&name));
                Ok(())
            })?;
        }
    }
    Ok(())
}

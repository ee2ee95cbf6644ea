//! PodTemplate.

use api::Tree;
use api::field::{Errors, Path};

use crate::kind::{Context, Kind, Lifecycle, bump_generation, column};
use crate::{cells, podspec, prepare};

pub(crate) static KIND: Kind = Kind {
    columns: &[
        column("Name", "string", "name", 0),
        column("Containers", "string", "", 0),
        column("Images", "string", "", 0),
        column("Pod Labels", "string", "", 0),
    ],
    set_defaults,
    prepare_create,
    prepare_update,
    validate,
    validate_update: |template, _, errors| validate(template, errors),
    warnings: |template, old| match old.is_some_and(|old| old.at("template") == template.at("template")) {
        true => Vec::new(),
        false => podspec::template_warnings(template.at("template"), &Path::root("template")),
    },
    cells: template_cells,
    lifecycle: Lifecycle::RETURNS_DELETED,
    ..Kind::namespaced("", "v1", "PodTemplate", "podtemplates", "podtemplate")
};

fn set_defaults(template: &mut Tree) {
    if let Some(template) = template.get_mut("template") {
        podspec::set_template_defaults(template);
    }
}

fn prepare_create(template: &mut Tree, _: &Context<'_>) {
    prepare::first_generation(template);
    podspec::drop_disabled_template(template.child("template"), &Tree::Null);
}

fn prepare_update(template: &mut Tree, old: &Tree, _: &Context<'_>) {
    podspec::drop_disabled_template(template.child("template"), old.at("template"));
    bump_generation(template, old, &["template"]);
}

fn validate(template: &Tree, errors: &mut Errors) {
    podspec::validate_template(template.at("template"), &Path::root("template"), errors);
}

fn template_cells(template: &Tree, _: i64) -> Vec<Tree> {
    let (names, images) = podspec::names_and_images(template.at("template.spec"));
    let labels = cells::labels(template.map("template.metadata.labels"));
    vec![cells::name(template), Tree::from(names), Tree::from(images), Tree::from(labels)]
}

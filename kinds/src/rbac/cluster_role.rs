//! ClusterRole.

use api::Tree;
use api::field::{Errors, Path};
use api::selector::Selector;

use super::rules;
use crate::kind::{Kind, column};
use crate::podspec::validate_label_selector;
use crate::{cells, gojson, names};

pub(crate) static KIND: Kind = Kind {
    columns: &[column("Name", "string", "name", 0), column("Created At", "date", "", 0)],
    validate_name: names::path_segment,
    validate,
    validate_update: |object, _, errors| validate(object, errors),
    create_on_update: true,
    cells: cells::name_and_created,
    ..Kind::cluster("rbac.authorization.k8s.io", "v1", "ClusterRole", "clusterroles", "clusterrole")
};

fn validate(object: &Tree, errors: &mut Errors) {
    rules::validate_rules(object, false, errors);
    if object.has("aggregationRule") {
        validate_aggregation(object.list("aggregationRule.clusterRoleSelectors"), errors);
    }
}

fn validate_aggregation(selectors: &[Tree], errors: &mut Errors) {
    let path = Path::root("aggregationRule.clusterRoleSelectors");
    if selectors.is_empty() {
        errors.required(&path, "at least one clusterRoleSelector required if aggregationRule is non-nil");
    }
    for (index, selector) in selectors.iter().enumerate() {
        let path = path.index(index);
        validate_label_selector(selector, &path, errors);
        if Selector::from_object(selector).is_err() {
            errors.invalid(&path, gojson::null(), "invalid label selector.");
        }
    }
}

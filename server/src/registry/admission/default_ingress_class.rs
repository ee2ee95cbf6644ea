//! DefaultIngressClass: an ingress without a class gets the default class.

use api::Tree;
use api::status::Status;

use super::{Attributes, Operation, default_class};

pub(crate) fn mutate(
    attributes: &Attributes<'_>,
    ingress: &mut Tree,
    _: Option<&Tree>,
    _: &mut Vec<String>,
) -> Result<(), Status> {
    let named = ingress.at("spec").has("ingressClassName")
        || ingress.map("metadata.annotations").contains("kubernetes.io/ingress.class");
    if !attributes.is("networking.k8s.io", "Ingress", Operation::Create) || named {
        return Ok(());
    }
    let classes = attributes.registry.storage.objects("ingressclasses", "");
    if let Some(class) = default_class(classes, &["ingressclass.kubernetes.io/is-default-class"]) {
        ingress.child("spec").set("ingressClassName", class.str("metadata.name"));
    }
    Ok(())
}

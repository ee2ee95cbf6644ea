//! Binds through the pods' binding subresource.

use api::tree;
use client::Resource;

use crate::framework::{Hands, Plugin, Point, Working};
use crate::model::Pod;

pub struct DefaultBinder;

const PODS: Resource = Resource::core("pods");

impl Plugin for DefaultBinder {
    fn name(&self) -> &'static str {
        "DefaultBinder"
    }

    fn points(&self) -> &'static [Point] {
        &[Point::Bind]
    }

    fn bind<'a>(&'a self, hands: &'a Hands, pod: &'a Pod, node: &'a str) -> Option<Working<'a>> {
        Some(Box::pin(async move {
            // The uid: another pod of the same name is not bound by mistake.
            let binding = tree! {
                "apiVersion" => "v1",
                "kind" => "Binding",
                "metadata" => tree! { "name" => pod.name.clone(), "namespace" => pod.namespace.clone(), "uid" => pod.uid.clone() },
                "target" => tree! { "apiVersion" => "v1", "kind" => "Node", "name" => node },
            };
            hands.client.create_subresource_unread(PODS, &pod.namespace, &pod.name, "binding", &binding).await
        }))
    }
}

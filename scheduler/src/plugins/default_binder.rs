//! Binds through the pods' binding subresource.

use api::tree;
use client::Resource;

use crate::framework::{Handle, Plugin, PluginFuture, Point};
use podmodel::Pod;

pub(crate) struct DefaultBinder;

const PODS: Resource = Resource::core("pods");

impl Plugin for DefaultBinder {
    fn name(&self) -> &'static str {
        "DefaultBinder"
    }

    fn points(&self) -> &'static [Point] {
        &[Point::Bind]
    }

    fn bind<'a>(&'a self, handle: &'a Handle, pod: &'a Pod, node: &'a str) -> Option<PluginFuture<'a>> {
        Some(Box::pin(async move {
            // The uid protects another pod of the same name.
            let binding = tree! {
                "apiVersion" => "v1",
                "kind" => "Binding",
                "metadata" => tree! { "name" => pod.name.clone(), "namespace" => pod.namespace.clone(), "uid" => pod.uid.clone() },
                "target" => tree! { "apiVersion" => "v1", "kind" => "Node", "name" => node },
            };
            handle.client.create_subresource_unread(PODS, &pod.namespace, &pod.name, "binding", &binding).await
        }))
    }
}

//! The JSON of requests and responses. Go writes struct field names unchanged, and reads them case-insensitively.

use std::sync::Arc;

use api::{Str, Tree, tree};

use podmodel::Pod;

use super::error::ResponseError;

/// A request with a pod and the remaining nodes.
pub(crate) fn filter_request(pod: &Tree, nodes: &[&(Str, Arc<Tree>)], by_name: bool) -> Vec<u8> {
    let names = || Tree::List(nodes.iter().map(|(name, _)| Tree::from(name.clone())).collect());
    let objects = || Tree::List(nodes.iter().map(|(_, node)| Tree::clone(node)).collect());
    let request_body = match by_name {
        true => tree! { "Pod" => pod.clone(), "Nodes" => Tree::Null, "NodeNames" => names() },
        false => tree! { "Pod" => pod.clone(), "Nodes" => tree! { "items" => objects() }, "NodeNames" => Tree::Null },
    };
    api::json::encode(&request_body, None)
}

pub(super) fn binding(pod: &Pod, node: &str) -> Vec<u8> {
    let request_body = tree! {
        "PodName" => pod.name.clone(),
        "PodNamespace" => pod.namespace.clone(),
        "PodUID" => pod.uid.clone(),
        "Node" => node,
    };
    api::json::encode(&request_body, None)
}

pub(super) fn bound(body: &[u8]) -> Result<(), ResponseError> {
    no_error(&read(body)?)
}

pub(super) fn read(body: &[u8]) -> Result<Tree, ResponseError> {
    api::json::decode(body).map_err(ResponseError::Json)
}

pub(super) fn no_error(answer: &Tree) -> Result<(), ResponseError> {
    match field(answer, "Error").as_str() {
        None | Some("") => Ok(()),
        Some(why) => Err(ResponseError::Extender(why.to_string())),
    }
}

pub(super) fn field<'a>(tree: &'a Tree, name: &str) -> &'a Tree {
    static NULL: Tree = Tree::Null;
    let mut fields = tree.as_map().into_iter().flat_map(|map| map.iter());
    fields.find(|(key, _)| key.eq_ignore_ascii_case(name)).map_or(&NULL, |(_, value)| value)
}

//! A folder or block device of this very node, as a persistent volume.

use std::path::PathBuf;

use api::Tree;

use super::{Ask, Kind, Planning};
use crate::volumes::plan::Plan;

pub const KIND: Kind = Kind { field: "local", folder: "kubernetes.io~local-volume", refreshes: false, plan };

fn plan<'a>(ask: &'a Ask<'a>) -> Planning<'a> {
    Box::pin(async move { Ok(decide(ask.source, ask.persistent, ask.read_only)) })
}

fn decide(source: &Tree, persistent: Option<&Tree>, read_only: bool) -> Plan {
    let path = PathBuf::from(source.str("path"));
    match persistent.is_some_and(|volume| volume.str("spec.volumeMode") == "Block") {
        true => Plan::Device { path, read_only },
        false => Plan::Bind { source: path, read_only },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_mounted_or_given_as_a_device() {
        let source = api::tree! { "path" => "/mnt/a" };
        let block = api::tree! { "spec" => api::tree! { "volumeMode" => "Block" } };
        assert_eq!(decide(&source, None, true), Plan::Bind { source: "/mnt/a".into(), read_only: true });
        assert_eq!(decide(&source, Some(&block), false), Plan::Device { path: "/mnt/a".into(), read_only: false });
    }
}

//! A directory or block device of this very node, as a persistent volume.

use std::os::unix::fs::FileTypeExt;
use std::path::PathBuf;

use api::Tree;

use super::{Kind, PlanFuture, VolumeContext};
use crate::volumes::disk::Disk;
use crate::volumes::plan::Plan;

pub(crate) const KIND: Kind = Kind { field: "local", directory: "kubernetes.io~local-volume", refreshes: false, plan };

fn plan<'a>(context: &'a VolumeContext<'a>) -> PlanFuture<'a> {
    Box::pin(async move {
        let stat = tokio::fs::metadata(context.source.str("path")).await;
        let is_device = stat.is_ok_and(|stat| stat.file_type().is_block_device());
        Ok(decide(context.source, context.persistent, context.read_only, is_device))
    })
}

fn decide(source: &Tree, persistent: Option<&Tree>, read_only: bool, is_device: bool) -> Plan {
    let path = PathBuf::from(source.str("path"));
    let desired = persistent.map(|volume| volume.list("spec.mountOptions")).unwrap_or_default();
    let options = desired.iter().filter_map(Tree::as_str).map(str::to_string).collect();
    if persistent.is_some_and(|volume| volume.str("spec.volumeMode") == "Block") {
        return Plan::Device { path, read_only };
    }
    match is_device {
        true => Plan::Disk(Disk { device: path, kind: source.str("fsType").to_string(), options, read_only }),
        false => Plan::Bind { source: path, read_only, options },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plans_mounts_and_devices() {
        let source = api::tree! { "path" => "/mnt/a" };
        let block = api::tree! { "spec" => api::tree! { "volumeMode" => "Block" } };
        let directory = |read_only, options| Plan::Bind { source: "/mnt/a".into(), read_only, options };
        assert_eq!(decide(&source, None, true, false), directory(true, Vec::new()));
        let device = Plan::Device { path: "/mnt/a".into(), read_only: false };
        assert_eq!(decide(&source, Some(&block), false, true), device);
        let options = vec!["noatime".to_string()];
        let plain = api::tree! { "spec" => api::tree! { "mountOptions" => api::list!["noatime"] } };
        assert_eq!(decide(&source, Some(&plain), false, false), directory(false, options.clone()));
        let typed = api::tree! { "path" => "/dev/x", "fsType" => "xfs" };
        let disk = Disk { device: "/dev/x".into(), kind: "xfs".into(), options, read_only: true };
        assert_eq!(decide(&typed, Some(&plain), true, true), Plan::Disk(disk));
    }
}

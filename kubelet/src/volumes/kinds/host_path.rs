//! A path of the node.

use super::{Kind, PlanFuture, VolumeContext};
use crate::volumes::plan::{HostPathType, Plan};

pub(crate) const KIND: Kind = Kind { field: "hostPath", directory: "kubernetes.io~host-path", refreshes: false, plan };

#[derive(Debug, thiserror::Error)]
#[error("{0} is an invalid volume type")]
struct TypeError(String);

fn plan<'a>(context: &'a VolumeContext<'a>) -> PlanFuture<'a> {
    Box::pin(async move {
        let expected = parse_type(context.source.str("type"))?;
        Ok(Plan::Host { path: context.source.str("path").into(), expected, read_only: context.read_only })
    })
}

fn parse_type(text: &str) -> Result<HostPathType, TypeError> {
    Ok(match text {
        "" => HostPathType::Anything,
        "DirectoryOrCreate" => HostPathType::DirectoryOrCreate,
        "Directory" => HostPathType::Directory,
        "FileOrCreate" => HostPathType::FileOrCreate,
        "File" => HostPathType::File,
        "Socket" => HostPathType::Socket,
        "CharDevice" => HostPathType::CharDevice,
        "BlockDevice" => HostPathType::BlockDevice,
        other => return Err(TypeError(other.to_string())),
    })
}

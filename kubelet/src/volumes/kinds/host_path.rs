//! A path of the node.

use super::{Ask, Kind, Planning};
use crate::volumes::plan::{Expected, Plan};

pub(crate) const KIND: Kind = Kind { field: "hostPath", directory: "kubernetes.io~host-path", refreshes: false, plan };

#[derive(Debug, thiserror::Error)]
#[error("{0} is an invalid volume type")]
struct TypeError(String);

fn plan<'a>(ask: &'a Ask<'a>) -> Planning<'a> {
    Box::pin(async move {
        let expected = expected(ask.source.str("type"))?;
        Ok(Plan::Host { path: ask.source.str("path").into(), expected, read_only: ask.read_only })
    })
}

fn expected(text: &str) -> Result<Expected, TypeError> {
    Ok(match text {
        "" => Expected::Anything,
        "DirectoryOrCreate" => Expected::DirectoryOrCreate,
        "Directory" => Expected::Directory,
        "FileOrCreate" => Expected::FileOrCreate,
        "File" => Expected::File,
        "Socket" => Expected::Socket,
        "CharDevice" => Expected::CharDevice,
        "BlockDevice" => Expected::BlockDevice,
        other => return Err(TypeError(other.to_string())),
    })
}

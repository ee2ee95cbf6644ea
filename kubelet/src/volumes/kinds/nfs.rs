//! A directory of an NFS server.

use api::Tree;

use super::{Kind, PlanFuture, VolumeContext};
use crate::volumes::command::Command;
use crate::volumes::plan::Plan;

pub(crate) const KIND: Kind = Kind { field: "nfs", directory: "kubernetes.io~nfs", refreshes: false, plan };

/// A source that cannot be mounted.
#[derive(Debug, thiserror::Error)]
enum SourceError {
    #[error("nfs.server {0:?} is not the name or address of a server")]
    Server(String),
    #[error("nfs.path {0:?} is not an absolute path")]
    Path(String),
}

fn plan<'a>(context: &'a VolumeContext<'a>) -> PlanFuture<'a> {
    Box::pin(async move {
        let read_only = context.read_only || context.source.bool("readOnly");
        let target = context.dir.to_string_lossy();
        check(context.source)?;
        Ok(Plan::Run { command: command(context.source, context.persistent, read_only, &target), read_only })
    })
}

/// `mount.nfs` gets server and path as one argument, where a leading dash would be an option.
fn check(source: &Tree) -> Result<(), SourceError> {
    let (server, path) = (source.str("server"), source.str("path"));
    let is_plain = |text: &str| !text.is_empty() && !text.chars().any(|c| c.is_whitespace() || c.is_control());
    if !is_plain(server) || server.starts_with('-') {
        return Err(SourceError::Server(server.to_string()));
    }
    if !path.starts_with('/') {
        return Err(SourceError::Path(path.to_string()));
    }
    Ok(())
}

fn command(source: &Tree, persistent: Option<&Tree>, read_only: bool, target: &str) -> Command {
    let server = source.str("server");
    // An IPv6 address contains colons.
    let server = if server.contains(':') && !server.starts_with('[') { format!("[{server}]") } else { server.into() };
    let mut options: Vec<String> = if read_only { vec!["ro".to_string()] } else { Vec::new() };
    let wanted = persistent.map(|volume| volume.list("spec.mountOptions")).unwrap_or_default();
    options.extend(wanted.iter().filter_map(Tree::as_str).map(str::to_string));
    options.sort();
    options.dedup();
    Command::mount("nfs", &options, &format!("{server}:{}", source.str("path")), target)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mount_command_matches_upstream() {
        let check = |source: &str, volume: &str, read_only: bool, wanted: &str| {
            let (source, volume) =
                (api::yaml::decode(source.as_bytes()).unwrap(), api::yaml::decode(volume.as_bytes()).unwrap());
            let command = command(&source, Some(&volume), read_only, "/k/v");
            assert_eq!(format!("{} {}", command.program, command.arguments.join(" ")), wanted);
        };
        let source = "{server: nfs.example, path: /export/a}";
        check(source, "{}", false, "mount -t nfs -- nfs.example:/export/a /k/v");
        check(source, "{}", true, "mount -t nfs -o ro -- nfs.example:/export/a /k/v");
        let volume = "{spec: {mountOptions: [nfsvers=4.2, hard, hard]}}";
        check(source, volume, true, "mount -t nfs -o hard,nfsvers=4.2,ro -- nfs.example:/export/a /k/v");
        check("{server: 'fd00::1', path: /a}", "{}", false, "mount -t nfs -- [fd00::1]:/a /k/v");
    }

    #[test]
    fn rejects_sources_that_look_like_options() {
        for (server, path, is_good) in [
            ("nfs.example", "/export", true),
            ("fd00::1", "/", true),
            ("--fstab=/tmp/fstab", "/export", false),
            ("-o", "/export", false),
            ("", "/export", false),
            ("a b", "/export", false),
            ("nfs.example", "export", false),
            ("nfs.example", "--all", false),
        ] {
            let source = api::tree! { "server" => server, "path" => path };
            assert_eq!(super::check(&source).is_ok(), is_good, "{server}:{path}");
        }
        let sly = api::tree! { "server" => "--fstab=/tmp/fstab", "path" => "/a" };
        let command = command(&sly, None, false, "/k/v");
        assert_eq!(command.arguments[2..], ["--", "--fstab=/tmp/fstab:/a", "/k/v"]);
    }
}

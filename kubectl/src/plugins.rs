//! Plugins: programs named `kubectl-NAME` in PATH, which replace this process.

use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};

use crate::error::{Error, Result};

/// Runs the plugin that the arguments name, the longest name first; returns if there is none.
pub(crate) fn run(arguments: &[String], flags_before: &[String]) -> Result<()> {
    if !flags_before.is_empty() {
        return Ok(());
    }
    let names: Vec<String> =
        arguments.iter().take_while(|argument| !argument.starts_with('-')).map(|name| name.replace('-', "_")).collect();
    for count in (1..=names.len()).rev() {
        if let Some(path) = find(&format!("kubectl-{}", names[..count].join("-"))) {
            let error = std::process::Command::new(&path).args(&arguments[count..]).exec();
            return Err(Error::Message(format!("{}: {}", path.display(), crate::error::io_text(&error))));
        }
    }
    Ok(())
}

/// A program in PATH.
pub(crate) fn find(name: &str) -> Option<PathBuf> {
    let paths = std::env::var_os("PATH")?;
    std::env::split_paths(&paths).map(|directory| directory.join(name)).find(|path| is_executable(path))
}

/// Whether a file can be run.
pub(crate) fn is_executable(path: &Path) -> bool {
    std::fs::metadata(path).is_ok_and(|file| file.is_file() && file.permissions().mode() & 0o111 != 0)
}

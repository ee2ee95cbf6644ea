//! A program that mounts a volume.

use std::process::Stdio;

/// Upstream's timeout of a mount.
const SECONDS: &str = "120";

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Command {
    pub(crate) program: &'static str,
    pub(crate) arguments: Vec<String>,
}

/// A program that has failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CommandError {
    #[error("mount failed: {0}")]
    Spawn(#[from] std::io::Error),
    #[error("mount failed: {status}\nMounting command: {program}\nMounting arguments: {arguments}\nOutput: {output}")]
    Failed { status: std::process::ExitStatus, program: &'static str, arguments: String, output: String },
}

impl Command {
    /// `mount -t KIND -o OPTIONS -- SOURCE TARGET`: a source is never parsed as an option.
    pub(crate) fn mount(kind: &str, options: &[String], source: &str, target: &str) -> Command {
        let mut arguments = vec!["-t".to_string(), kind.to_string()];
        if !options.is_empty() {
            arguments.extend(["-o".to_string(), options.join(",")]);
        }
        arguments.extend(["--".to_string(), source.to_string(), target.to_string()]);
        Command { program: "mount", arguments }
    }

    /// `mount -o bind,OPTIONS -- SOURCE TARGET`.
    pub(crate) fn bind(options: &[String], source: &str, target: &str) -> Command {
        let options: Vec<&str> = std::iter::once("bind").chain(options.iter().map(String::as_str)).collect();
        let arguments = ["-o", &options.join(","), "--", source, target].map(str::to_string).to_vec();
        Command { program: "mount", arguments }
    }

    /// Its output and exit status. A command that hangs is killed.
    pub(crate) fn output(&self) -> std::io::Result<std::process::Output> {
        let mut command = std::process::Command::new("timeout");
        command.args(["--kill-after=5", SECONDS, self.program]).args(&self.arguments).stdin(Stdio::null()).output()
    }

    /// Runs the command; an exit code other than 0 is an error.
    pub(crate) fn run(&self) -> Result<(), CommandError> {
        let output = self.output()?;
        if output.status.success() {
            return Ok(());
        }
        Err(CommandError::Failed {
            status: output.status,
            program: self.program,
            arguments: self.arguments.join(" "),
            output: String::from_utf8_lossy(&output.stderr).trim_end().to_string(),
        })
    }
}

//! `plugin`.

use crate::command::Command;
use crate::context::Context;
use crate::error::{Result, message};
use crate::flags::{Flag, switch};

const PLUGIN_LIST_FLAGS: &[Flag] = &[switch("name-only", '\0', "Print only the names, without the paths.")];

static PLUGIN_LIST: Command = Command {
    name: "list",
    short: "List all visible plugin executables on a user's PATH",
    flags: &[PLUGIN_LIST_FLAGS],
    run: Some(|context| Box::pin(async move { plugin_list(context) })),
    ..Command::EMPTY
};

pub(crate) static PLUGIN: Command = Command {
    name: "plugin",
    usage: "[flags]",
    short: "Provides utilities for interacting with plugins",
    children: &[&PLUGIN_LIST],
    group: "Other Commands",
    ..Command::EMPTY
};

fn plugin_list(context: &Context) -> Result<()> {
    let mut seen: Vec<String> = Vec::new();
    let mut warnings = 0;
    for directory in std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default()) {
        let Ok(entries) = std::fs::read_dir(&directory) else { continue };
        let mut paths: Vec<_> = entries.filter_map(|entry| entry.ok().map(|entry| entry.path())).collect();
        paths.sort();
        for path in paths {
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            if !name.starts_with("kubectl-") {
                continue;
            }
            if seen.is_empty() {
                context.print("The following compatible plugins are available:\n\n")?;
            }
            let shown = if context.flags.bool("name-only") { name.clone() } else { path.display().to_string() };
            context.print(&format!("{shown}\n"))?;
            if !crate::plugins::is_executable(&path) {
                warnings += 1;
                context.note(&format!(
                    "  - warning: {} identified as a kubectl plugin, but it is not executable",
                    path.display()
                ));
            }
            if seen.contains(&name) {
                warnings += 1;
                context.note(&format!("  - warning: {} is overshadowed by a similarly named plugin", path.display()));
            }
            seen.push(name);
        }
    }
    match (seen.is_empty(), warnings) {
        (true, _) => message("unable to find any kubectl plugins in your PATH"),
        (_, 0) => Ok(()),
        (_, 1) => message("one plugin warning was found"),
        (_, count) => message(format!("{count} plugin warnings were found")),
    }
}

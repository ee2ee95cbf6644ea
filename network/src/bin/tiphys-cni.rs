//! The plugins as a small executable of their own: by the name of the file, or of the first argument.

use std::path::Path;
use std::process::ExitCode;

fn main() -> ExitCode {
    let mut arguments = std::env::args();
    let own = arguments.next().unwrap_or_default();
    let name = Path::new(&own).file_name().and_then(|name| name.to_str()).unwrap_or_default().to_string();
    match network::plugins::find(&name) {
        Some(plugin) => network::executable::main(plugin.name),
        None => network::executable::main(&arguments.next().unwrap_or_default()),
    }
}

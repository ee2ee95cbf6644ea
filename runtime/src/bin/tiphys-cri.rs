//! The runtime alone, without the rest of the cluster, for its tests.

use std::process::ExitCode;

fn main() -> ExitCode {
    match std::env::args().nth(1).as_deref() {
        Some(runtime::zygote::COMMAND) => runtime::zygote::main(),
        _ => runtime::cli::main(std::env::args()),
    }
}

//! The client as a program of its own, which is quick to build.

use std::process::ExitCode;

fn main() -> ExitCode {
    kubectl::main(std::env::args_os().skip(1))
}

//! Tiphys: Kubernetes in one binary.

use std::process::ExitCode;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    // A huge page for every few objects makes a small cluster several times as large as it is. Children
    // inherit this: the runtime resets it before it starts a user's program. A kernel without it is fine too.
    let _ = rustix::thread::disable_transparent_huge_pages(true);
    let mut arguments = std::env::args();
    let program = arguments.next().unwrap_or_default();
    let name = program.rsplit('/').next().unwrap_or_default();
    if network::plugins::find(name).is_some() {
        return network::executable::main(name);
    }
    if name == "kubectl" {
        return kubectl::main(std::env::args_os().skip(1));
    }
    match arguments.next().as_deref() {
        // What pods' shims are forked from: it must stay small, so nothing else comes before it.
        Some(runtime::zygote::COMMAND) => runtime::zygote::main(),
        Some(hosts::init::HOST_COMMAND) => hosts::init::run_host(arguments),
        Some(hosts::init::INIT_COMMAND) => hosts::init::run_init(arguments),
        Some("history" | "diff" | "undo") => kubectl::main_of_past(std::env::args_os().skip(1)),
        Some("kubectl") => kubectl::main(std::env::args_os().skip(2)),
        Some("hello") => runtime::hello::main(arguments),
        Some("cri") => runtime::cli::main(std::iter::once("tiphys cri".to_string()).chain(arguments)),
        Some("images") => runtime::images::cli::main(arguments.map(Into::into)),
        Some("bench") => bench::main(),
        _ => cluster::cli::main(),
    }
}

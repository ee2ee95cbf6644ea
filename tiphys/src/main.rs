//! Tiphys: Kubernetes in one binary.

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> std::process::ExitCode {
    // A huge page for every few objects makes a small cluster several times as large as it is. Children
    // inherit this: whoever starts a program of the user's takes it back. A kernel without it is fine too.
    let _ = rustix::thread::disable_transparent_huge_pages(true);
    match std::env::args().nth(1).as_deref() {
        Some("bench") => bench::main(),
        Some("cri") => runtime::cli::main(std::env::args().skip(1)),
        // What pods' shims are forked from: it must stay small, so nothing else comes before it.
        Some(runtime::zygote::COMMAND) => runtime::zygote::main(),
        _ => cluster::cli::main(),
    }
}

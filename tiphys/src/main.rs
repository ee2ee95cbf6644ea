//! Tiphys: Kubernetes in one binary.

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> std::process::ExitCode {
    match std::env::args().nth(1).as_deref() {
        Some("bench") => bench::main(),
        _ => cluster::cli::main(),
    }
}

//! Fault points, at which a test kills the runtime, as a crash would.

/// All fault points, in the order in which the lifecycle of a pod reaches them.
pub const POINTS: [&str; 16] = [
    "sandbox-recorded",
    "shim-forked",
    "sandbox-made",
    "network-added",
    "sandbox-ready",
    "snapshot-prepared",
    "container-recorded",
    "start-recorded",
    "container-started",
    "stop-signalled",
    "container-stopped",
    "container-removing",
    "snapshot-released",
    "sandbox-stopping",
    "network-removed",
    "sandbox-removing",
];

/// The environment variable that names the fault point.
pub const VARIABLE: &str = "TIPHYS_RUNTIME_FAULT";

/// Kills the process if this fault point is chosen. In production the variable is not set.
pub fn point(name: &str) {
    debug_assert!(POINTS.contains(&name), "{name} is not in the list");
    if std::env::var_os(VARIABLE).is_some_and(|chosen| chosen == name) {
        let _ = rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL);
    }
}

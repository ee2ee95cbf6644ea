//! Places where a test ends the agent, as a crash would.

/// Every place, in the order in which a pod's life passes them.
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

/// The environment variable that names the place to end at.
pub const VARIABLE: &str = "TIPHYS_RUNTIME_FAULT";

/// Ends the process here if this place was chosen. In ordinary use the variable is not set.
pub fn point(name: &str) {
    debug_assert!(POINTS.contains(&name), "{name} is not in the list");
    if std::env::var_os(VARIABLE).is_some_and(|chosen| chosen == name) {
        let _ = rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL);
    }
}

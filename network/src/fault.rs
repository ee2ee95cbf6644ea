//! Fault points, at which a test makes an operation fail or the process abort, to verify that nothing is left behind.

use std::cell::Cell;
use std::io;
use std::sync::OnceLock;

/// All fault points, in the order in which an ADD of the built-in network reaches them.
pub const POINTS: &[&str] = &[
    "host-local.lease-made",
    "host-local.lease-written",
    "bridge.address-leased",
    "bridge.bridge-made",
    "bridge.veth-made",
    "bridge.port-set",
    "bridge.addresses-set",
    "bridge.routes-set",
    "bridge.masquerade-set",
    "portmap.ports-set",
    "bandwidth.ingress-shaped",
    "bandwidth.device-made",
    "bandwidth.egress-shaped",
    "cni.result-cached",
];

/// The environment variable that names the fault point at which the process aborts.
pub const VARIABLE: &str = "TIPHYS_NETWORK_FAULT";

thread_local! {
    static ARMED: Cell<Option<&'static str>> = const { Cell::new(None) };
}

/// Makes the calling thread fail at this fault point, once.
pub fn arm(point: &'static str) {
    ARMED.set(Some(point));
}

/// Removes the armed fault point, and returns whether it was not reached.
pub fn disarm() -> bool {
    ARMED.take().is_some()
}

/// A fault point: fails if this thread has armed it, and aborts if [`VARIABLE`] names it.
pub fn point(name: &'static str) -> io::Result<()> {
    debug_assert!(POINTS.contains(&name), "{name} is not in the list");
    if ARMED.get() == Some(name) {
        ARMED.set(None);
        return Err(io::Error::other(format!("fault at {name}")));
    }
    static DEADLY: OnceLock<Option<String>> = OnceLock::new();
    if DEADLY.get_or_init(|| std::env::var(VARIABLE).ok()).as_deref() == Some(name) {
        std::process::abort();
    }
    Ok(())
}

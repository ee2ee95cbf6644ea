//! Sysctls of the calling thread's network namespace.

use std::fs;
use std::io;

/// Sets the sysctl at this path below `/proc/sys/net`. Does not write a value that is already set, because the write
/// would fail where `/proc/sys` is mounted read-only.
pub(crate) fn set(name: &str, value: &str) -> io::Result<()> {
    let path = format!("/proc/sys/net/{name}");
    let with_context = |error: io::Error| io::Error::new(error.kind(), format!("{path}: {error}"));
    if fs::read_to_string(&path).map_err(with_context)?.trim() == value {
        return Ok(());
    }
    fs::write(&path, value).map_err(with_context)
}

//! Kernel settings of the calling thread's network namespace.

use std::fs;
use std::io;

/// Sets a setting below `/proc/sys/net`, by its path. One that has the value already is not written: that would be
/// refused where `/proc/sys` is mounted read-only.
pub fn set(name: &str, value: &str) -> io::Result<()> {
    let path = format!("/proc/sys/net/{name}");
    let told = |error: io::Error| io::Error::new(error.kind(), format!("{path}: {error}"));
    if fs::read_to_string(&path).map_err(told)?.trim() == value {
        return Ok(());
    }
    fs::write(&path, value).map_err(told)
}

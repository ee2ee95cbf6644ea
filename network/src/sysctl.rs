//! Sysctls of the calling thread's network namespace.

use std::fs;
use std::io;

fn path(name: &str) -> String {
    format!("/proc/sys/net/{name}")
}

fn with_context(path: &str, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{path}: {error}"))
}

/// Sets the sysctl at this path below `/proc/sys/net`. Does not write a value that is already set, because the write
/// would fail where `/proc/sys` is mounted read-only.
pub fn set(name: &str, value: &str) -> io::Result<()> {
    let path = path(name);
    if fs::read_to_string(&path).map_err(|error| with_context(&path, &error))?.trim() == value {
        return Ok(());
    }
    fs::write(&path, value).map_err(|error| with_context(&path, &error))
}

/// The number that a sysctl has.
pub fn number(name: &str) -> io::Result<u64> {
    let path = path(name);
    let text = fs::read_to_string(&path).map_err(|error| with_context(&path, &error))?;
    text.trim()
        .parse()
        .map_err(|_| io::Error::new(io::ErrorKind::InvalidData, format!("{path}: not a number: {text:?}")))
}

/// Sets a number, or the greatest one that the kernel accepts below it, found by halving; returns the number that is set.
pub fn set_number(name: &str, desired: u64) -> io::Result<u64> {
    let mut value = desired;
    loop {
        match set(name, &value.to_string()) {
            Ok(()) => return Ok(value),
            Err(error) if error.kind() == io::ErrorKind::InvalidInput && value > 1 => value /= 2,
            Err(error) => return Err(error),
        }
    }
}

//! Runs plugin binaries: the environment of the specification, the configuration on standard input, JSON on standard
//! output.

use std::fs::File;
use std::io::{self, Read, Seek, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::MemfdFlags;
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, kill_process_group, pidfd_open};
use serde_json::Value;

use crate::spec::error::{Error, code};

/// The limit of a plugin's output.
const OUTPUT_BYTES: u64 = 4 * 1024 * 1024;
/// How much of a plugin's standard error is kept for the error message.
const STDERR_BYTES: u64 = 4 * 1024;

/// Runs a plugin until it exits, or kills its process group after the timeout. Input and output are memory files, so
/// that a plugin that reads no input, or leaves a child with its output open, cannot block the caller.
pub(super) fn run(
    binary: &Path,
    environment: &[(&str, &str)],
    input: &Value,
    timeout: Duration,
) -> Result<Value, Error> {
    let with_context = |error: io::Error| Error::from(error).within(binary.display());
    let (mut stdin, mut stdout, mut stderr) = (memfd()?, memfd()?, memfd()?);
    stdin.write_all(input.to_string().as_bytes())?;
    stdin.rewind()?;
    let mut command = Command::new(binary);
    command.envs(environment.iter().copied()).process_group(0);
    command.stdin(stdin).stdout(stdout.try_clone()?).stderr(Stdio::from(stderr.try_clone()?));
    let mut child = command.spawn().map_err(with_context)?;
    let success = match wait(&mut child, timeout).map_err(with_context)? {
        Some(success) => success,
        None => {
            let message = format!("{}: did not exit within {} s", binary.display(), timeout.as_secs_f32());
            return Err(Error::internal(message));
        }
    };
    parse_output(success, &read(&mut stdout, OUTPUT_BYTES)?, &read(&mut stderr, STDERR_BYTES)?)
        .map_err(|error| error.within(format!("plugin {}", binary.display())))
}

/// Whether the plugin succeeded; None if it was killed.
fn wait(child: &mut Child, timeout: Duration) -> io::Result<Option<bool>> {
    let group = Pid::from_child(child);
    let handle = pidfd_open(group, PidfdFlags::empty())?;
    let deadline = Instant::now() + timeout;
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let left = Timespec { tv_sec: left.as_secs().cast_signed(), tv_nsec: left.subsec_nanos().into() };
        match poll(&mut [PollFd::new(&handle, PollFlags::IN)], Some(&left)) {
            Err(Errno::INTR) => {}
            Ok(0) => {
                // The child leads its process group and has not been reaped, so the pid is still its own.
                kill_process_group(group, Signal::KILL).or_else(|_| child.kill().map_err(|_| Errno::SRCH))?;
                child.wait()?;
                return Ok(None);
            }
            Ok(_) => return Ok(Some(child.wait()?.success())),
            Err(errno) => return Err(errno.into()),
        }
    }
}

/// Interprets a plugin's output. A plugin that succeeds may print nothing.
fn parse_output(success: bool, stdout: &[u8], stderr: &[u8]) -> Result<Value, Error> {
    let printed = serde_json::from_slice::<Value>(stdout);
    let stderr = String::from_utf8_lossy(stderr).trim().to_string();
    match (success, printed) {
        (true, _) if stdout.trim_ascii().is_empty() => Ok(Value::Null),
        (true, Ok(value)) => Ok(value),
        (true, Err(error)) => Err(Error::new(code::DECODE, format!("invalid JSON in its output: {error}"))),
        (false, Ok(value)) if value.get("code").is_some() || value.get("msg").is_some() => {
            let unknown =
                Error { code: code::INTERNAL, message: text(&value, "msg"), details: text(&value, "details") };
            Err(Error::from_json(&value).unwrap_or(unknown))
        }
        (false, _) => {
            let output = String::from_utf8_lossy(&stdout[..stdout.len().min(STDERR_BYTES as usize)]).trim().to_string();
            Err(Error {
                details: stderr,
                ..Error::internal(format!("failed without an error message, output: {output:?}"))
            })
        }
    }
}

fn text(value: &Value, key: &str) -> String {
    value[key].as_str().unwrap_or_default().to_string()
}

fn memfd() -> io::Result<File> {
    Ok(File::from(rustix::fs::memfd_create("cni", MemfdFlags::CLOEXEC)?))
}

fn read(file: &mut File, limit: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    file.rewind()?;
    file.take(limit).read_to_end(&mut bytes)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use serde_json::json;

    use super::*;

    fn script(text: &str, timeout: Duration) -> Result<Value, Error> {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("plugin");
        fs::write(&file, format!("#!/bin/sh\n{text}\n")).unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).unwrap();
        // Between fork and exec, another test's child may hold the script open for writing.
        loop {
            match run(&file, &[("CNI_COMMAND", "ADD")], &json!({ "name": "n" }), timeout) {
                Err(error) if error.message.contains("Text file busy") => std::thread::yield_now(),
                outcome => {
                    let name = format!("plugin {}: ", file.display());
                    return outcome.map_err(|error| Error { message: error.message.replace(&name, ""), ..error });
                }
            }
        }
    }

    const LONG: Duration = Duration::from_secs(30);

    #[test]
    fn parses_results_and_errors() {
        assert_eq!(script("cat", LONG), Ok(json!({ "name": "n" })));
        assert_eq!(script("printf '{\"c\":\"%s\"}' $CNI_COMMAND", LONG), Ok(json!({ "c": "ADD" })));
        assert_eq!(script("true", LONG), Ok(Value::Null));
        let error = script("echo '{\"code\":11,\"msg\":\"later\",\"details\":\"busy\"}'; exit 1", LONG).unwrap_err();
        assert_eq!((error.code, error.to_string().as_str()), (11, "later; busy"));
        let error = script("echo oh >&2; echo x; exit 2", LONG).unwrap_err();
        assert_eq!(error.to_string(), "failed without an error message, output: \"x\"; oh");
        assert_eq!(script("echo x", LONG).unwrap_err().code, code::DECODE);
    }

    #[test]
    fn kills_a_hanging_plugin_and_its_children() {
        let directory = tempfile::tempdir().unwrap();
        let fifo = directory.path().join("fifo");
        let made = Command::new("mkfifo").arg(&fifo).status().unwrap();
        assert!(made.success());
        // The child holds the writing end of the pipe open; end of file shows that the child is dead too.
        let text = format!("(exec 3>{}; sleep 1000) & wait", fifo.display());
        let reader = std::thread::spawn(move || fs::read(fifo).map(|bytes| bytes.len()));
        let error = script(&text, Duration::from_millis(500)).unwrap_err();
        assert!(error.message.ends_with("did not exit within 0.5 s"), "{error}");
        assert_eq!(reader.join().unwrap().unwrap(), 0);
    }
}

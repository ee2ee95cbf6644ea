//! `tiphys down`: stops a running cluster of this machine, and waits until its process has exited.

use std::path::Path;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::Timespec;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use super::instance::InstanceArguments;
use super::say;
use crate::error::{Error, Result};
use crate::machine::lock;

/// The arguments of `tiphys down`.
#[derive(clap::Args)]
pub(super) struct DownArguments {
    #[command(flatten)]
    instance: InstanceArguments,
    /// How many seconds to wait for the pods; afterwards they are stopped at once
    #[arg(long, value_name = "SECONDS", default_value_t = 60)]
    timeout: u32,
}

pub(super) fn run(arguments: &DownArguments) -> Result<()> {
    let data_dir = arguments.instance.existing()?;
    match stop(&data_dir, Duration::from_secs(arguments.timeout.into()))? {
        true => say("stopped"),
        false => say(&format!("the cluster in {} is not running", data_dir.display())),
    }
    Ok(())
}

/// Stops the process that holds a data directory; false if none does.
fn stop(data_dir: &Path, timeout: Duration) -> Result<bool> {
    let Some(pid) = lock::holder(data_dir).and_then(|pid| Pid::from_raw(i32::try_from(pid).ok()?)) else {
        return Ok(false);
    };
    let failed = |error: rustix::io::Errno| Error::Runtime(error.into());
    // The descriptor stays that of this process, whatever its number is given to later.
    let process = match pidfd_open(pid, PidfdFlags::empty()) {
        Err(rustix::io::Errno::SRCH) => return Ok(false),
        opened => opened.map_err(failed)?,
    };
    // After the descriptor was opened: from here on, the process is the one that was checked.
    if !lock::is_open_in(pid.as_raw_nonzero().get().unsigned_abs(), data_dir) {
        let why = format!("process {pid} does not have the lock of {} open: it is not stopped", data_dir.display());
        return Err(Error::Ended(why));
    }
    say(&format!("stopping the cluster in {} (pid {pid})", data_dir.display()));
    let wait = |timeout: Duration| {
        let timeout = Timespec { tv_sec: timeout.as_secs().try_into().unwrap_or(i64::MAX), tv_nsec: 0 };
        poll(&mut [PollFd::new(&process, PollFlags::IN)], Some(&timeout)).map(|ready| ready > 0).map_err(failed)
    };
    pidfd_send_signal(&process, Signal::TERM).map_err(failed)?;
    if wait(timeout)? {
        return Ok(true);
    }
    say("its pods have not stopped in time, stopping immediately");
    // The second signal, as a second ctrl-c.
    pidfd_send_signal(&process, Signal::TERM).map_err(failed)?;
    match wait(timeout)? {
        true => Ok(true),
        false => Err(Error::Ended(format!("process {pid} does not exit; `kill -9 {pid}` ends it"))),
    }
}

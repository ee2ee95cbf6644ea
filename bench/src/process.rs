//! The kernel's statistics of a process and of the sockets of this machine.

use std::fs;
use std::time::Duration;

use crate::Result;

/// The kernel counts CPU time in hundredths of a second for every reader of /proc.
const TICK: Duration = Duration::from_millis(10);

/// CPU time that a process has used, all threads, user and system.
pub(crate) fn cpu(pid: u32) -> Result<Duration> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat"))?;
    // The name, in brackets, may hold spaces; the numbers begin behind it.
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or("").split_whitespace().collect();
    let ticks = |at: usize| fields.get(at).and_then(|field| field.parse::<u32>().ok());
    let (user, system) = ticks(11).zip(ticks(12)).ok_or("/proc/PID/stat has no times")?;
    Ok(TICK * (user + system))
}

/// The same to the nanosecond: what an idle process uses is less than a tick.
pub(crate) fn cpu_nanos(pid: u32) -> Result<Duration> {
    let mut nanos = 0;
    for task in fs::read_dir(format!("/proc/{pid}/task"))? {
        // A thread may have ended meanwhile; its time is lost, and small.
        let Ok(text) = fs::read_to_string(task?.path().join("schedstat")) else { continue };
        nanos += text.split_whitespace().next().and_then(|field| field.parse::<u64>().ok()).unwrap_or(0);
    }
    Ok(Duration::from_nanos(nanos))
}

/// Bytes that are the process' own: what is mapped from files is the kernel's to take back.
pub(crate) fn private_bytes(pid: u32) -> Result<u64> {
    let text = fs::read_to_string(format!("/proc/{pid}/smaps_rollup"))?;
    Ok(field(&text, "Anonymous:").ok_or("smaps_rollup has no Anonymous")? * 1024)
}

/// Bytes that a process has caused to be written to disk.
pub(crate) fn written_bytes(pid: u32) -> Result<u64> {
    let text = fs::read_to_string(format!("/proc/{pid}/io"))?;
    Ok(field(&text, "write_bytes:").ok_or("/proc/PID/io has no write_bytes")?)
}

/// Memory that all TCP sockets of this machine hold.
pub(crate) fn socket_bytes() -> Result<u64> {
    let text = fs::read_to_string("/proc/net/sockstat")?;
    let line = text.lines().find(|line| line.starts_with("TCP:")).ok_or("sockstat has no TCP")?;
    let pages = field(line, "mem").ok_or("sockstat has no mem")?;
    Ok(pages * rustix::param::page_size() as u64)
}

/// The number behind a word.
fn field(text: &str, name: &str) -> Option<u64> {
    let mut words = text.split_whitespace();
    words.find(|word| *word == name)?;
    words.next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_the_process_statistics() {
        let pid = std::process::id();
        assert!(private_bytes(pid).expect("smaps_rollup") > 4096);
        cpu(pid).expect("stat");
        assert!(cpu_nanos(pid).expect("schedstat") > Duration::ZERO);
        socket_bytes().expect("sockstat");
        assert_eq!(field("TCP: inuse 4 mem 286", "mem"), Some(286));
    }
}

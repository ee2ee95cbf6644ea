//! Which core does what, where a figure is about sharing one.

use std::process::{Child, Command, Stdio};

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use crate::Result;

/// The server, and the tenant whose time is taken.
pub(crate) const SERVER: usize = 0;
pub(crate) const FLOOD: usize = 1;

/// Keeps this thread, and what it starts, on one core.
pub(crate) fn pin(core: usize) -> Result<()> {
    let mut set = CpuSet::new();
    set.set(core);
    Ok(sched_setaffinity(None, &set)?)
}

/// Runs something on one core; what it starts stays there, this thread does not.
pub(crate) fn run_pinned<T>(core: usize, run: impl FnOnce() -> Result<T>) -> Result<T> {
    let before = sched_getaffinity(None)?;
    pin(core)?;
    let result = run();
    sched_setaffinity(None, &before)?;
    result
}

/// A child on one core, whose output can be read.
pub(crate) fn pinned(core: usize, command: &mut Command) -> Result<Child> {
    run_pinned(core, || Ok(command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unpins_the_thread() {
        let before = sched_getaffinity(None).expect("an affinity");
        let inside = run_pinned(SERVER, || Ok(sched_getaffinity(None)?.count())).expect("a core");
        assert_eq!(inside, 1);
        assert_eq!(sched_getaffinity(None).expect("an affinity").count(), before.count());
    }
}

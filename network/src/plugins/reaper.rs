//! Deletes devices in the background.
//!
//! The kernel needs some twenty milliseconds to delete a device, and hardly more to delete many in one request. So the
//! deletions that arrive while others are in progress are batched. If the process exits first, nothing is lost: the
//! kernel deletes the devices together with the pod's namespace.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;

use stdx::sync::Mutex;

use crate::netlink::{Error, Rtnl};

/// The device group of devices that are deleted in one request.
const GROUP: u32 = 0x7469_7068;

/// A thread that deletes devices. It is started on first use.
#[derive(Debug, Default)]
pub struct Reaper(Mutex<Option<ReaperThread>>);

#[derive(Debug)]
struct ReaperThread {
    sender: Sender<String>,
    thread: JoinHandle<()>,
}

impl Reaper {
    /// Schedules the deletion of a device of the calling thread's namespace, which is the same for all callers.
    pub fn delete(&self, name: &str) -> Result<(), Error> {
        let mut running = self.0.lock();
        if running.is_none() {
            *running = Some(start().map_err(|error| Error::new("start the thread that deletes devices", error))?);
        }
        let sent = running.as_ref().map(|running| running.sender.send(name.to_string()));
        match sent {
            Some(Ok(())) => Ok(()),
            // The thread must have panicked: delete the device here.
            _ => Rtnl::open()?.delete_link(name).map(|_| ()),
        }
    }

    /// Waits until all scheduled deletions are done.
    pub fn settle(&self) {
        let running = self.0.lock().take();
        if let Some(ReaperThread { sender, thread }) = running {
            drop(sender);
            let _ = thread.join();
        }
    }
}

impl Drop for Reaper {
    fn drop(&mut self) {
        self.settle();
    }
}

fn start() -> std::io::Result<ReaperThread> {
    let (sender, receiver) = channel();
    let thread = std::thread::Builder::new().name("network-reaper".to_string()).spawn(move || reap(&receiver))?;
    Ok(ReaperThread { sender, thread })
}

fn reap(receiver: &Receiver<String>) {
    while let Ok(first) = receiver.recv() {
        let names: Vec<String> = std::iter::once(first).chain(receiver.try_iter()).collect();
        if let Err(error) = delete_all(&names) {
            tracing::warn!(?names, error = %crate::spec::error::Error::from(error), "failed to delete pod devices");
        }
    }
}

/// A device that does not exist any more is no error.
fn delete_all(names: &[String]) -> Result<(), Error> {
    let mut rtnl = Rtnl::open()?;
    if let [name] = names {
        return rtnl.delete_link(name).map(|_| ());
    }
    for name in names {
        rtnl.set_group(name, GROUP)?;
    }
    rtnl.delete_group(GROUP)
}

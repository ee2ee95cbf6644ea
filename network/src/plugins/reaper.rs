//! Deletes devices behind the back of those who are done with them.
//!
//! The kernel takes some twenty milliseconds to delete a device, and hardly more for many at once: so they are
//! collected while the last ones are on their way. The pod's namespace takes them with it, too, so that nothing is
//! lost where the process ends before.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;

use stdx::sync::Mutex;

use crate::netlink::{Error, Rtnl};

/// A group that devices are put into to be deleted together.
const GROUP: u32 = 0x7469_7068;

#[derive(Debug, Default)]
pub struct Reaper(Mutex<Option<Running>>);

#[derive(Debug)]
struct Running {
    sender: Sender<String>,
    thread: JoinHandle<()>,
}

impl Reaper {
    /// Has a device of the calling thread's namespace deleted soon. All callers are in the same.
    pub fn delete(&self, name: &str) -> Result<(), Error> {
        let mut running = self.0.lock();
        if running.is_none() {
            *running = Some(start().map_err(|error| Error::new("start the thread that deletes devices", error))?);
        }
        let sent = running.as_ref().map(|running| running.sender.send(name.to_string()));
        match sent {
            Some(Ok(())) => Ok(()),
            // The thread is gone, which only a panic explains.
            _ => Rtnl::open()?.delete_link(name).map(|_| ()),
        }
    }

    /// Waits until all that was asked for is done.
    pub fn settle(&self) {
        let running = self.0.lock().take();
        if let Some(Running { sender, thread }) = running {
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

fn start() -> std::io::Result<Running> {
    let (sender, receiver) = channel();
    let thread = std::thread::Builder::new().name("network-reaper".to_string()).spawn(move || reap(&receiver))?;
    Ok(Running { sender, thread })
}

fn reap(receiver: &Receiver<String>) {
    while let Ok(first) = receiver.recv() {
        let names: Vec<String> = std::iter::once(first).chain(receiver.try_iter()).collect();
        if let Err(error) = delete_all(&names) {
            tracing::warn!(?names, error = %crate::spec::error::Error::from(error), "devices of pods are not deleted");
        }
    }
}

/// One that has gone by itself is fine.
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

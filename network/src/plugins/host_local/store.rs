//! Leases on disk: one file per address, named after the address, with the container and the interface as its content.
//! A network has one lock.
//!
//! A file is created and written under the lock, by upstream's plugin too. So a file that is empty under the lock is
//! the leftover of a crash between the two steps, and its address is free.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::net::IpAddr;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, Mode, OFlags, flock, openat};

use crate::fault;
use crate::spec::error::Error;

/// The leases of a network, locked.
pub(super) struct Store {
    directory: PathBuf,
    _lock: File,
}

impl Store {
    /// Waits for the lock.
    pub(super) fn lock(data_dir: &Path, network: &str) -> Result<Store, Error> {
        let directory = data_dir.join(network);
        let with_context = |error: io::Error| Error::from(error).within(directory.display());
        fs::create_dir_all(&directory).map_err(with_context)?;
        let path = directory.join("lock");
        let lock = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o640)
            .open(path)
            .map_err(with_context)?;
        flock(&lock, FlockOperation::LockExclusive).map_err(|errno| with_context(errno.into()))?;
        Ok(Store { directory, _lock: lock })
    }

    /// None if the network has no leases. Does not create anything.
    pub(super) fn lock_existing(data_dir: &Path, network: &str) -> Result<Option<Store>, Error> {
        if data_dir.join(network).is_dir() { Store::lock(data_dir, network).map(Some) } else { Ok(None) }
    }

    /// Leases the address to the container. Returns whether it was free.
    pub(super) fn reserve(&self, set: usize, address: IpAddr, id: &str, ifname: &str) -> Result<bool, Error> {
        let path = self.directory.join(address.to_string());
        let with_context = |error: io::Error| Error::from(error).within(path.display());
        let made = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path);
        let mut file = match made {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && is_empty(&path).map_err(with_context)? => {
                OpenOptions::new().write(true).open(&path).map_err(with_context)?
            }
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => return Ok(false),
            made => made.map_err(with_context)?,
        };
        let written = fault::point("host-local.lease-made").and_then(|()| {
            file.write_all(format!("{id}\r\n{ifname}").as_bytes())?;
            write_in_place(&self.directory.join(last_name(set)), &address.to_string())?;
            fault::point("host-local.lease-written")
        });
        if written.is_err() {
            // Report the error of the write. If this fails too, the address is still free, because the file is empty.
            let _ = fs::remove_file(&path);
        }
        written.map(|()| true).map_err(with_context)
    }

    pub(super) fn last_reserved(&self, set: usize) -> Option<IpAddr> {
        fs::read_to_string(self.directory.join(last_name(set))).ok()?.trim().parse().ok()
    }

    /// The addresses of an attachment.
    pub(super) fn owned(&self, id: &str, ifname: &str) -> Result<Vec<IpAddr>, Error> {
        let mine = |lease: &Lease| lease.is_of(id, ifname);
        Ok(self.leases()?.iter().filter(|lease| mine(lease)).map(|lease| lease.address).collect())
    }

    /// Releases the leases of an attachment, if it has any.
    pub(super) fn release(&self, id: &str, ifname: &str) -> Result<(), Error> {
        self.remove(|lease| lease.is_of(id, ifname))
    }

    /// Releases all leases except those that match. Leases of old versions have no interface.
    pub(super) fn retain(&self, wanted: impl Fn(&str, &str) -> bool) -> Result<(), Error> {
        self.remove(|lease| !wanted(&lease.id, &lease.ifname))
    }

    fn remove(&self, unwanted: impl Fn(&Lease) -> bool) -> Result<(), Error> {
        for lease in self.leases()?.iter().filter(|lease| unwanted(lease)) {
            let path = self.directory.join(lease.address.to_string());
            fs::remove_file(&path).map_err(|error| Error::from(error).within(path.display()))?;
        }
        Ok(())
    }

    /// Reads all leases. There may be hundreds: each costs three system calls, and no path lookup.
    fn leases(&self) -> Result<Vec<Lease>, Error> {
        let with_context = |error: io::Error| Error::from(error).within(self.directory.display());
        let directory = File::open(&self.directory).map_err(with_context)?;
        let mut leases = Vec::new();
        for entry in fs::read_dir(&self.directory).map_err(with_context)? {
            let name = entry.map_err(with_context)?.file_name();
            // The other files are the lock and the last reserved addresses.
            let Some(address) = name.to_str().and_then(|name| name.parse().ok()) else { continue };
            let file = openat(&directory, &name, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty());
            let mut bytes = [0; LEASE_BYTES];
            let read =
                file.and_then(|file| rustix::io::read(file, &mut bytes)).map_err(|errno| with_context(errno.into()))?;
            leases.push(Lease::parse(address, &String::from_utf8_lossy(&bytes[..read])));
        }
        leases.sort_by_key(|lease| lease.address);
        Ok(leases)
    }
}

/// A container ID, two bytes and an interface name. Container IDs are used as file names, which are shorter.
const LEASE_BYTES: usize = 512;

struct Lease {
    address: IpAddr,
    id: String,
    /// Empty in leases of old versions.
    ifname: String,
}

impl Lease {
    fn parse(address: IpAddr, text: &str) -> Lease {
        let (id, ifname) = text.trim().split_once('\n').unwrap_or((text, ""));
        Lease { address, id: id.trim().to_string(), ifname: ifname.trim().to_string() }
    }

    fn is_of(&self, id: &str, ifname: &str) -> bool {
        self.id == id && (self.ifname == ifname || self.ifname.is_empty())
    }
}

/// Overwrites a file. Some file systems flush a file that was truncated before, which costs milliseconds per pod.
fn write_in_place(path: &Path, text: &str) -> io::Result<()> {
    let file = OpenOptions::new().write(true).create(true).truncate(false).open(path)?;
    file.write_all_at(text.as_bytes(), 0)?;
    if file.metadata()?.len() > text.len() as u64 { file.set_len(text.len() as u64) } else { Ok(()) }
}

fn is_empty(path: &Path) -> io::Result<bool> {
    Ok(fs::metadata(path)?.len() == 0)
}

fn last_name(set: usize) -> String {
    format!("last_reserved_ip.{set}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn leases_an_address_once_and_releases_it_idempotently() {
        let directory = tempfile::tempdir().unwrap();
        assert!(Store::lock_existing(directory.path(), "net").unwrap().is_none());
        let store = Store::lock(directory.path(), "net").unwrap();
        assert!(store.reserve(0, address("10.1.0.2"), "a", "eth0").unwrap());
        assert!(!store.reserve(0, address("10.1.0.2"), "b", "eth0").unwrap());
        assert!(store.reserve(1, address("fd00::2"), "a", "eth0").unwrap());
        assert_eq!(store.last_reserved(1), Some(address("fd00::2")));
        assert_eq!(fs::read_to_string(directory.path().join("net/10.1.0.2")).unwrap(), "a\r\neth0");
        assert_eq!(store.owned("a", "eth0").unwrap(), [address("10.1.0.2"), address("fd00::2")]);
        assert_eq!(store.owned("a", "eth1").unwrap(), [] as [IpAddr; 0]);
        store.release("a", "eth0").unwrap();
        store.release("a", "eth0").unwrap();
        assert_eq!(store.owned("a", "eth0").unwrap(), [] as [IpAddr; 0]);
        assert!(store.reserve(0, address("10.1.0.200"), "b", "eth0").unwrap());
        assert!(store.reserve(0, address("10.1.0.3"), "c", "eth0").unwrap());
        assert_eq!(fs::read_to_string(directory.path().join("net/last_reserved_ip.0")).unwrap(), "10.1.0.3");
    }

    #[test]
    fn an_empty_lease_file_is_free() {
        let directory = tempfile::tempdir().unwrap();
        let store = Store::lock(directory.path(), "net").unwrap();
        fs::write(directory.path().join("net/10.1.0.2"), "").unwrap();
        assert!(store.reserve(0, address("10.1.0.2"), "a", "eth0").unwrap());
        assert_eq!(store.owned("a", "eth0").unwrap(), [address("10.1.0.2")]);
    }

    #[test]
    fn keeps_leases_of_old_versions_while_they_are_valid() {
        let directory = tempfile::tempdir().unwrap();
        let store = Store::lock(directory.path(), "net").unwrap();
        fs::write(directory.path().join("net/10.1.0.2"), "old").unwrap();
        assert!(store.reserve(0, address("10.1.0.3"), "new", "eth0").unwrap());
        assert!(store.reserve(0, address("10.1.0.4"), "gone", "eth0").unwrap());
        store.retain(|id, ifname| id == "old" || (id, ifname) == ("new", "eth0")).unwrap();
        assert_eq!(store.owned("old", "eth0").unwrap(), [address("10.1.0.2")]);
        assert_eq!(store.owned("gone", "eth0").unwrap(), [] as [IpAddr; 0]);
        assert_eq!(store.owned("new", "eth0").unwrap(), [address("10.1.0.3")]);
    }

    #[test]
    fn faults_leave_no_lease() {
        let directory = tempfile::tempdir().unwrap();
        let store = Store::lock(directory.path(), "net").unwrap();
        for point in ["host-local.lease-made", "host-local.lease-written"] {
            fault::arm(point);
            assert!(store.reserve(0, address("10.1.0.2"), "a", "eth0").is_err());
            assert!(!directory.path().join("net/10.1.0.2").exists());
        }
    }
}

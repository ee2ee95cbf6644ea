//! A disk with power failures. Unsynced data is then kept, dropped or torn, by sector and name, according to a seed.
//! It can also be full, and fail.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use stdx::sync::{Mutex, MutexGuard};
use store::disk::{Disk, DiskFile};

const SECTOR: usize = 512;

/// A small deterministic generator.
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Below `limit`.
    pub fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }
}

#[derive(Clone)]
pub struct SimDisk(Arc<Mutex<World>>);

struct World {
    random: Random,
    inodes: Vec<Inode>,
    names: BTreeMap<PathBuf, usize>,
    durable_names: BTreeMap<PathBuf, usize>,
    locks: BTreeSet<PathBuf>,
    /// The number of power cycles: files opened before are invalid.
    life: u64,
    /// Operations until the power failure; None for no failure.
    power: Option<u64>,
    /// Whether a sync has an effect.
    syncs: bool,
    /// Bytes that can still be allocated.
    free: u64,
    faults: BTreeMap<Fault, u32>,
    pub operations: u64,
}

/// An operation of the disk that can fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fault {
    Write,
    Sync,
    SyncDir,
    Rename,
}

#[derive(Default)]
struct Inode {
    content: Vec<u8>,
    durable: Vec<u8>,
    dirty: BTreeSet<usize>,
}

impl SimDisk {
    pub fn new(seed: u64) -> Self {
        Self(Arc::new(Mutex::new(World {
            random: Random::new(seed),
            inodes: Vec::new(),
            names: BTreeMap::new(),
            durable_names: BTreeMap::new(),
            locks: BTreeSet::new(),
            life: 0,
            power: None,
            syncs: true,
            free: u64::MAX,
            faults: BTreeMap::new(),
            operations: 0,
        })))
    }

    pub fn without_sync(self) -> Self {
        self.hold().syncs = false;
        self
    }

    /// The power fails after so many operations.
    pub fn cut_power_after(&self, operations: u64) {
        self.hold().power = Some(operations);
    }

    pub fn fail(&self, fault: Fault, times: u32) {
        self.hold().faults.insert(fault, times);
    }

    pub fn set_free(&self, bytes: u64) {
        self.hold().free = bytes;
    }

    pub fn operations(&self) -> u64 {
        self.hold().operations
    }

    /// Power cycle: only what is on the disk remains.
    pub fn reboot(&self) {
        let mut world = self.hold();
        world.lose();
        world.life += 1;
        world.power = None;
    }

    /// The files, for damaging them in tests.
    pub fn names(&self) -> Vec<PathBuf> {
        self.hold().names.keys().cloned().collect()
    }

    pub fn edit(&self, path: &Path, edit: impl FnOnce(&mut Vec<u8>)) {
        let mut world = self.hold();
        let inode = world.names[path];
        let inode = &mut world.inodes[inode];
        edit(&mut inode.content);
        inode.durable = inode.content.clone();
    }

    pub fn content(&self, path: &Path) -> Vec<u8> {
        let world = self.hold();
        world.inodes[world.names[path]].content.clone()
    }

    fn hold(&self) -> MutexGuard<'_, World> {
        self.0.lock()
    }
}

impl World {
    /// Every change goes through here, as does the power failure.
    fn operate(&mut self, life: u64) -> io::Result<()> {
        if self.life != life || self.power == Some(0) {
            return Err(io::Error::other("the power is off"));
        }
        self.operations += 1;
        if let Some(left) = &mut self.power {
            *left -= 1;
        }
        Ok(())
    }

    fn fault(&mut self, fault: Fault) -> io::Result<()> {
        match self.faults.get_mut(&fault) {
            Some(times) if *times > 0 => {
                *times -= 1;
                Err(io::Error::from_raw_os_error(5))
            }
            _ => Ok(()),
        }
    }

    fn lose(&mut self) {
        let World { random, inodes, .. } = self;
        inodes.iter_mut().for_each(|inode| inode.lose(random));
        let paths: BTreeSet<PathBuf> = self.names.keys().chain(self.durable_names.keys()).cloned().collect();
        for path in paths {
            let (new, old) = (self.names.get(&path).copied(), self.durable_names.get(&path).copied());
            match if self.random.below(2) == 0 { old } else { new } {
                Some(inode) => drop(self.names.insert(path, inode)),
                None => drop(self.names.remove(&path)),
            }
        }
        self.durable_names = self.names.clone();
        self.locks.clear();
    }
}

impl Inode {
    fn lose(&mut self, random: &mut Random) {
        let new = std::mem::take(&mut self.content);
        let length = if random.below(2) == 0 { self.durable.len() } else { new.len() };
        self.durable.resize(length, 0);
        for sector in std::mem::take(&mut self.dirty) {
            let start = sector * SECTOR;
            let end = (start + SECTOR).min(length).min(new.len());
            if start < end {
                tear(&mut self.durable[start..end], &new[start..end], random);
            }
        }
        self.content = self.durable.clone();
    }
}

/// Usually a sector is written or not; some are partial, and a few are garbage.
fn tear(old: &mut [u8], new: &[u8], random: &mut Random) {
    match random.below(10) {
        0..4 => {}
        4..8 => old.copy_from_slice(new),
        8 => {
            let cut = random.below(new.len() as u64) as usize;
            old[..cut].copy_from_slice(&new[..cut]);
        }
        _ => old.iter_mut().for_each(|byte| *byte = random.next() as u8),
    }
}

impl Disk for SimDisk {
    fn create_dir(&self, _dir: &Path) -> io::Result<()> {
        Ok(())
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        let world = self.hold();
        let here = world.names.keys().filter(|path| path.parent() == Some(dir));
        Ok(here.map(|path| path.file_name().unwrap().to_str().unwrap().to_owned()).collect())
    }

    fn create(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        let mut world = self.hold();
        let life = world.life;
        world.operate(life)?;
        world.inodes.push(Inode::default());
        let inode = world.inodes.len() - 1;
        world.names.insert(path.to_owned(), inode);
        Ok(Box::new(SimFile { disk: self.clone(), inode, life }))
    }

    fn open(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        let world = self.hold();
        let inode = *world.names.get(path).ok_or(io::ErrorKind::NotFound)?;
        Ok(Box::new(SimFile { disk: self.clone(), inode, life: world.life }))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut world = self.hold();
        let life = world.life;
        world.operate(life)?;
        world.fault(Fault::Rename)?;
        let inode = world.names.remove(from).ok_or(io::ErrorKind::NotFound)?;
        world.names.insert(to.to_owned(), inode);
        Ok(())
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        let mut world = self.hold();
        let life = world.life;
        world.operate(life)?;
        world.names.remove(path).ok_or(io::ErrorKind::NotFound)?;
        Ok(())
    }

    fn sync_dir(&self, _dir: &Path) -> io::Result<()> {
        let mut world = self.hold();
        let life = world.life;
        world.operate(life)?;
        world.fault(Fault::SyncDir)?;
        if world.syncs {
            world.durable_names = world.names.clone();
        }
        Ok(())
    }

    fn lock(&self, path: &Path) -> io::Result<Box<dyn Send + Sync>> {
        let mut world = self.hold();
        if !world.locks.insert(path.to_owned()) {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        Ok(Box::new(SimLock { disk: self.clone(), path: path.to_owned(), life: world.life }))
    }
}

struct SimLock {
    disk: SimDisk,
    path: PathBuf,
    life: u64,
}

impl Drop for SimLock {
    fn drop(&mut self) {
        let mut world = self.disk.hold();
        if world.life == self.life {
            world.locks.remove(&self.path);
        }
    }
}

struct SimFile {
    disk: SimDisk,
    inode: usize,
    life: u64,
}

impl SimFile {
    fn change<T>(&self, change: impl FnOnce(&mut World, &mut Inode) -> io::Result<T>) -> io::Result<T> {
        let mut world = self.disk.hold();
        world.operate(self.life)?;
        let mut inode = std::mem::take(&mut world.inodes[self.inode]);
        let result = change(&mut world, &mut inode);
        world.inodes[self.inode] = inode;
        result
    }
}

fn grow(world: &mut World, inode: &mut Inode, size: usize) -> io::Result<()> {
    let more = size.saturating_sub(inode.content.len());
    if more as u64 > world.free {
        return Err(io::Error::from_raw_os_error(28));
    }
    world.free -= more as u64;
    inode.content.resize(inode.content.len() + more, 0);
    Ok(())
}

impl DiskFile for SimFile {
    fn size(&self) -> io::Result<u64> {
        Ok(self.disk.hold().inodes[self.inode].content.len() as u64)
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let world = self.disk.hold();
        let rest = world.inodes[self.inode].content.get(offset as usize..).unwrap_or_default();
        let count = rest.len().min(buffer.len());
        buffer[..count].copy_from_slice(&rest[..count]);
        Ok(count)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.change(|world, inode| {
            let (start, end) = (offset as usize, offset as usize + bytes.len());
            grow(world, inode, end)?;
            let failed = world.fault(Fault::Write);
            // A failed write may have written something.
            let end = if failed.is_err() { start + bytes.len() / 2 } else { end };
            inode.content[start..end].copy_from_slice(&bytes[..end - start]);
            inode.dirty.extend(start / SECTOR..end.div_ceil(SECTOR));
            failed
        })
    }

    fn allocate(&self, size: u64) -> io::Result<()> {
        self.change(|world, inode| grow(world, inode, size as usize))
    }

    fn truncate(&self, size: u64) -> io::Result<()> {
        self.change(|world, inode| {
            world.free = world.free.saturating_add((inode.content.len() as u64).saturating_sub(size));
            inode.content.resize(size as usize, 0);
            Ok(())
        })
    }

    fn sync_data(&self) -> io::Result<()> {
        self.change(|world, inode| {
            world.fault(Fault::Sync)?;
            if world.syncs {
                inode.durable.resize(inode.content.len(), 0);
                for sector in std::mem::take(&mut inode.dirty) {
                    let start = sector * SECTOR;
                    let end = (start + SECTOR).min(inode.content.len());
                    if start < end {
                        inode.durable[start..end].copy_from_slice(&inode.content[start..end]);
                    }
                }
            }
            Ok(())
        })
    }
}

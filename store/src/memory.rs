//! A store that forgets everything at its end, for tests: the embedded engine on a disk in memory,
//! so that there is one path to trust.

use std::sync::Arc;

use crate::disk::MemoryDisk;
use crate::embedded::{self, Config, Embedded};
use crate::{Result, Sink};

pub fn open(sink: Arc<dyn Sink>) -> Result<Embedded> {
    embedded::open(Config::new("/memory"), Arc::new(MemoryDisk::default()), sink)
}

//! The demo image: this program with its dynamic linker and its libraries, so that pods can run without a registry. It
//! is built on first use, and again when the program has changed.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::build::{copy_blob, plan_from_layers};
use super::digest::{Digest, Hasher};
use super::elf;
use super::error::{Error, Result};
use super::layer::tar::{Entry, Kind, Writer};
use super::layer::{Usage, content};
use super::manifest::{Config, Descriptor, OCI_LAYER};
use super::reference::Reference;
use super::store::LayerInfo;
use super::{Image, Images};

/// The reference of the demo image.
pub const NAME: &str = "tiphys.local/hello";
const PROGRAM: &str = "/tiphys";
const OWN: &str = "/proc/self/exe";

/// Whether a reference means the demo image.
pub(super) fn is_demo(text: &str) -> bool {
    text.starts_with(NAME)
        && Reference::parse(text).is_ok_and(|reference| reference.name() == NAME && reference.tag() == Some("latest"))
}

impl Images {
    /// The demo image of the running program.
    pub(super) fn demo(&self) -> Result<Arc<Image>> {
        let identity = identity(Path::new(OWN))?;
        let known = self.known()?;
        if let Some(id) = known.index.resolve(NAME)?
            && known.index.images[id].made_from.as_ref() == Some(&identity)
            && let Some(image) = known.images.get(id)
        {
            return Ok(image.clone());
        }
        self.build_demo(&identity)?;
        self.require(NAME)
    }

    fn build_demo(&self, identity: &str) -> Result<()> {
        let store = &self.inner.store;
        let _busy = store.busy()?;
        let temp = store.temp_directory()?;
        let directory = content(temp.path());
        let usage = fill(&directory)?;
        let mut counted = CountingWriter { hasher: Hasher::sha256(), size: 0 };
        write_tar(&directory, &mut counted)?;
        let diff_id = counted.hasher.finish();
        let layer = Descriptor::new(OCI_LAYER, diff_id.clone(), counted.size);
        let plan = plan_from_layers(self, vec![layer], std::slice::from_ref(&diff_id), &config())?;
        if !store.has_layer(&plan.chain[0]) {
            store.commit_layer(temp, &plan.chain[0], LayerInfo { diff_id, parent: None, usage, boot: None })?;
        }
        let mut record = plan.record();
        // Only this program can build it again, so garbage collection must not remove it.
        record.pinned = true;
        record.made_from = Some(identity.to_owned());
        let name = Reference::parse(NAME)?;
        self.add(plan.id(), record, vec![name.to_string(), name.with_digest(&plan.target.digest)])
    }

    /// Writes the blob of a layer that was built here.
    pub(super) fn write_layer_blob(&self, chain: &Digest, layer: &Descriptor) -> Result<()> {
        let store = &self.inner.store;
        let (temp, file) = store.temp_file()?;
        let mut file = io::BufWriter::new(file);
        write_tar(&content(&store.layer(chain)), &mut file)?;
        file.flush().map_err(Error::at(temp.path()))?;
        let mut written = File::open(temp.path()).map_err(Error::at(temp.path()))?;
        copy_blob(store, &mut written, "the demo image", Some(&layer.digest)).map(drop)
    }
}

fn config() -> Config {
    Config {
        entrypoint: vec![PROGRAM.to_owned(), "hello".to_owned()],
        env: vec!["PATH=/".to_owned()],
        working_dir: "/".to_owned(),
        exposed: vec!["8080/tcp".to_owned()],
        ..Config::default()
    }
}

/// Identifies a program without reading it.
fn identity(program: &Path) -> Result<String> {
    let meta = fs::metadata(program).map_err(Error::at(program))?;
    Ok(format!("{}:{}:{}:{}.{}", meta.dev(), meta.ino(), meta.size(), meta.mtime(), meta.mtime_nsec()))
}

/// Fills an empty directory with everything that the program needs.
fn fill(directory: &Path) -> Result<Usage> {
    let mut usage = Usage::default();
    let mut add = |from: &Path, to: &str| -> Result<()> {
        let path = directory.join(to.trim_start_matches('/'));
        create_directories(path.parent().unwrap_or(directory))?;
        if path.exists() {
            return Ok(());
        }
        usage += Usage { bytes: share(from, &path)?, inodes: 1 };
        Ok(())
    };
    add(Path::new(OWN), PROGRAM)?;
    for (from, to) in needs()? {
        add(&from, &to)?;
    }
    for (name, text) in
        [("passwd", "root:x:0:0:root:/:\nnobody:x:65534:65534:nobody:/:\n"), ("group", "root:x:0:\nnobody:x:65534:\n")]
    {
        let path = directory.join("etc").join(name);
        create_directories(&directory.join("etc"))?;
        fs::write(&path, text).map_err(Error::at(&path))?;
    }
    let tmp = directory.join("tmp");
    create_directories(&tmp)?;
    fs::set_permissions(&tmp, fs::Permissions::from_mode(0o1777)).map_err(Error::at(&tmp))?;
    Ok(usage)
}

/// The dynamic linker under its path, and each library under its soname in the directory where it was found, where the
/// dynamic linker will look for it again.
fn needs() -> Result<Vec<(PathBuf, String)>> {
    let own = Path::new(OWN);
    let program = elf::read(own).map_err(Error::at(own))?;
    let Some(interpreter) = program.interpreter else { return Ok(Vec::new()) };
    let exe = fs::read_link(own).map_err(Error::at(own))?;
    let maps = fs::read_to_string("/proc/self/maps").map_err(Error::at(Path::new("/proc/self/maps")))?;
    let mut needs = vec![(PathBuf::from(&interpreter), interpreter)];
    for path in elf::mapped(&maps).into_iter().map(PathBuf::from).filter(|path| *path != exe) {
        let Ok(library) = elf::read(&path) else { continue };
        let (Some(soname), Some(directory)) = (library.soname, path.parent()) else { continue };
        let to = directory.join(soname).to_string_lossy().into_owned();
        needs.push((path, to));
    }
    Ok(needs)
}

fn create_directories(path: &Path) -> Result<()> {
    fs::DirBuilder::new().recursive(true).mode(0o755).create(path).map_err(Error::at(path))
}

/// Creates a file without copying if possible: as a reflink or as a hard link. Returns the space that it uses.
fn share(from: &Path, to: &Path) -> Result<u64> {
    let source = File::open(from).map_err(Error::at(from))?;
    let meta = source.metadata().map_err(Error::at(from))?;
    let target = File::options().write(true).create_new(true).open(to).map_err(Error::at(to))?;
    if rustix::fs::ioctl_ficlone(&target, &source).is_ok() {
        return executable(&target, to).map(|()| 0);
    }
    // A file that every user may execute and only root may change can be hard-linked.
    let shareable = meta.uid() == 0 && meta.mode() & 0o7777 == 0o755;
    if shareable && let Ok(real) = fs::canonicalize(from) {
        fs::remove_file(to).map_err(Error::at(to))?;
        if fs::hard_link(&real, to).is_ok() {
            return Ok(0);
        }
        let target = File::options().write(true).create_new(true).open(to).map_err(Error::at(to))?;
        return copy(&source, target, to);
    }
    copy(&source, target, to)
}

fn copy(mut source: &File, mut target: File, to: &Path) -> Result<u64> {
    let size = io::copy(&mut source, &mut target).map_err(Error::at(to))?;
    executable(&target, to)?;
    Ok(size)
}

fn executable(file: &File, path: &Path) -> Result<()> {
    file.set_permissions(fs::Permissions::from_mode(0o755)).map_err(Error::at(path))
}

/// Writes a directory as a tar stream. It is reproducible: owners and times are not included.
fn write_tar(directory: &Path, to: &mut dyn Write) -> Result<()> {
    let mut writer = Writer::new(to);
    tree(&mut writer, directory, Path::new(""))?;
    writer.finish().map(drop).map_err(Error::at(directory))
}

fn tree(writer: &mut Writer<&mut dyn Write>, root: &Path, inner: &Path) -> Result<()> {
    let directory = root.join(inner);
    let read = fs::read_dir(&directory).map_err(Error::at(&directory))?;
    let mut names: Vec<_> = read.filter_map(|entry| Some(entry.ok()?.file_name())).collect();
    names.sort();
    for name in names {
        let inner = inner.join(name);
        let path = root.join(&inner);
        let meta = fs::symlink_metadata(&path).map_err(Error::at(&path))?;
        let shown = inner.to_string_lossy();
        if meta.is_dir() {
            let mode = meta.mode() & 0o7777;
            writer.entry(&Entry::new(&format!("{shown}/"), Kind::Directory, mode)).map_err(Error::at(&path))?;
            tree(writer, root, &inner)?;
            continue;
        }
        let mode = if meta.mode() & 0o111 == 0 { 0o644 } else { 0o755 };
        let mut entry = Entry::new(&shown, Kind::File, mode);
        entry.size = meta.len();
        writer.entry(&entry).map_err(Error::at(&path))?;
        let mut file = File::open(&path).map_err(Error::at(&path))?;
        io::copy(&mut file, writer.data()).map_err(Error::at(&path))?;
    }
    Ok(())
}

struct CountingWriter {
    hasher: Hasher,
    size: u64,
}

impl Write for CountingWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.hasher.update(bytes);
        self.size += bytes.len() as u64;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

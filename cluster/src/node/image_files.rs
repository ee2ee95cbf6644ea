//! Imports the image archives of `DATA_DIR/images` when a node starts, so that a machine without a registry has its images.

use std::fs::{self, Metadata};
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use runtime::images::{Images, NoProgress};

use crate::error::{Error, Result};
use crate::machine::files::write_private;
use crate::machine::trust;

/// The directory in a data directory.
const DIRECTORY: &str = "images";
/// What was imported, by the name of the archive, in the directory of the runtime.
const IMPORTED: &str = "imported";
/// Archives beyond this number are reported, and not imported.
const MAX_ARCHIVES: usize = 500;
const ENDINGS: [&str; 5] = [".tar", ".tar.gz", ".tgz", ".tar.zst", ".tzst"];

/// Imports what is new. A file that cannot be imported does not prevent the start: it is logged, and tried at the next one.
/// The store is opened only if there are archives.
pub(super) async fn import_all(data_dir: &Path, open: impl FnOnce(&Path) -> Result<Images>) -> Result<()> {
    let archives = archives(&data_dir.join(DIRECTORY))?;
    if archives.is_empty() {
        return Ok(());
    }
    let root = data_dir.join("runtime");
    let imported = root.join(IMPORTED);
    fs::create_dir_all(&imported).map_err(Error::file(&imported))?;
    let images = open(&root)?;
    for archive in archives {
        import(&images, &archive, &imported).await?;
    }
    Ok(())
}

fn archives(dir: &Path) -> Result<Vec<PathBuf>> {
    let entries = match fs::read_dir(dir) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.map_err(Error::file(dir))?,
    };
    let is_archive = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        !name.starts_with('.') && ENDINGS.iter().any(|end| name.ends_with(end))
    };
    let mut archives: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).filter(is_archive).collect();
    archives.sort();
    if archives.len() > MAX_ARCHIVES {
        tracing::warn!(
            archives = archives.len(),
            "too many image archives: only the first {MAX_ARCHIVES} are imported"
        );
        archives.truncate(MAX_ARCHIVES);
    }
    Ok(archives)
}

/// Imports an archive, unless its images are there since an earlier start.
async fn import(images: &Images, archive: &Path, imported: &Path) -> Result<()> {
    let file = archive.display();
    let found = match trust::trusted(archive) {
        Ok(found) => found,
        Err(error) => {
            tracing::error!(%file, error = stdx::error::chain(&error), "image archive not imported");
            return Ok(());
        }
    };
    let marker = imported.join(archive.file_name().unwrap_or_default());
    let version = version(&found);
    if is_imported(&fs::read_to_string(&marker).unwrap_or_default(), &version, |id| images.get(id).is_some()) {
        return Ok(());
    }
    match images.import(archive, None, &NoProgress).await {
        Ok(ids) => {
            tracing::info!(%file, images = ids.len(), "imported image archive");
            write_private(&marker, &format!("{version}\n{}\n", ids.join("\n")))
        }
        Err(error) => {
            tracing::error!(%file, error = error.chain(), "failed to import image archive");
            Ok(())
        }
    }
}

/// What changes when a file is written again or replaced.
fn version(found: &Metadata) -> String {
    format!("{} {} {}.{:09}", found.ino(), found.len(), found.mtime(), found.mtime_nsec())
}

/// Whether a marker is that of this version, and garbage collection has left the images.
fn is_imported(marker: &str, version: &str, has_image: impl Fn(&str) -> bool) -> bool {
    let mut lines = marker.lines();
    lines.next() == Some(version) && lines.all(has_image)
}

#[cfg(test)]
mod tests {
    use runtime::images::archive::Output;

    use super::*;

    /// Writes an archive with an image of one file.
    async fn write_archive(dir: &Path, name: &str, archive: &Path) {
        let images = Images::open(&dir.join("source"), Default::default()).expect("images");
        images.build(name, vec![vec![0; 1024]], Default::default(), &NoProgress).await.expect("an image");
        images.export(&[name.to_string()], Output::File(archive.to_path_buf())).await.expect("an archive");
    }

    #[tokio::test]
    async fn archives_are_imported_once() {
        let dir = tempfile::tempdir().expect("a directory");
        let data = dir.path().join("data");
        let images = Images::open(&data.join("runtime/images"), Default::default()).expect("images");
        import_all(&data, |_| Ok(images.clone())).await.expect("no archives");
        assert!(!data.join("runtime/imported").exists());
        fs::create_dir(data.join("images")).expect("a directory");
        write_archive(dir.path(), "a.local/a:1", &data.join("images/a.tar")).await;
        fs::write(data.join("images/b.tar"), "no archive").expect("a file");
        fs::write(data.join("images/notes"), "").expect("a file");
        import_all(&data, |_| Ok(images.clone())).await.expect("imports");
        let id = images.get("a.local/a:1").expect("the image").id.clone();
        let marker = fs::read_to_string(data.join("runtime/imported/a.tar")).expect("a marker");
        assert!(marker.contains(&id), "{marker}");
        assert!(!data.join("runtime/imported/b.tar").exists(), "a damaged archive is imported at the next start again");
        // Images that were removed are imported again.
        images.remove("a.local/a:1").await.expect("a removal");
        assert!(images.get("a.local/a:1").is_none());
        import_all(&data, |_| Ok(images.clone())).await.expect("imports");
        assert!(images.get("a.local/a:1").is_some());
    }

    #[test]
    fn markers_are_those_of_a_version() {
        let check = |marker: &str, want: bool| assert_eq!(is_imported(marker, "1 2", |id| id == "a"), want, "{marker}");
        check("1 2\na\n", true);
        check("1 2\na\nb\n", false);
        check("1 3\na\n", false);
        check("", false);
    }
}

//! Replaces the files of a volume atomically: they are in a directory that is named after the time, `..data` is a
//! symbolic link to it, and containers see links through `..data`. An update renames that one link.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use api::time::{Timestamp, civil};

use super::files::{File, Files};

const DATA: &str = "..data";
const NEXT: &str = "..data_tmp";

/// Writes the files unless they exist already. `own` gets the new directory before it becomes visible.
pub(crate) fn write(
    dir: &Path,
    files: &Files,
    now: Timestamp,
    own: impl Fn(&Path) -> io::Result<()>,
) -> io::Result<()> {
    let before = match fs::read_link(dir.join(DATA)) {
        Ok(name) => Some(name),
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => return Err(error),
    };
    let old = before.map(|name| content(&dir.join(name))).transpose()?;
    if old.as_ref().is_some_and(|old| is_same(old, files)) {
        return Ok(());
    }
    let fresh = fresh_directory(dir, now)?;
    let made = fill(&fresh, files).and_then(|()| own(&fresh)).and_then(|()| swap(dir, &fresh, files));
    if let Err(error) = made {
        // The new directory was not visible yet; the old files are unchanged.
        let _ = fs::remove_dir_all(&fresh);
        return Err(error);
    }
    clear(dir, &fresh, &top_entries(files.keys().map(String::as_str)))
}

/// Readable files by path; unreadable ones were not written by the kubelet.
type Content = Vec<(String, Vec<u8>)>;

fn content(root: &Path) -> io::Result<Content> {
    let (mut found, mut directories) = (Vec::new(), vec![PathBuf::new()]);
    while let Some(directory) = directories.pop() {
        let entries = match fs::read_dir(root.join(&directory)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            entries => entries?,
        };
        for entry in entries {
            let entry = entry?;
            let path = directory.join(entry.file_name());
            if entry.file_type()?.is_dir() {
                directories.push(path);
            } else {
                found.push((path.to_string_lossy().into_owned(), fs::read(entry.path())?));
            }
        }
    }
    found.sort();
    Ok(found)
}

fn is_same(old: &Content, files: &Files) -> bool {
    old.len() == files.len() && old.iter().zip(files).all(|((at, data), (path, file))| at == path && *data == file.data)
}

/// The first components of paths: the entries of the volume's directory.
fn top_entries<'a>(paths: impl Iterator<Item = &'a str>) -> BTreeSet<&'a str> {
    paths.filter_map(|path| path.split('/').next()).collect()
}

fn fresh_directory(dir: &Path, now: Timestamp) -> io::Result<PathBuf> {
    for attempt in 0..100 {
        let directory = dir.join(directory_name(now, attempt));
        match fs::create_dir(&directory) {
            Ok(()) => return set_mode(&directory, 0o755).map(|()| directory),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
        }
    }
    Err(io::ErrorKind::AlreadyExists.into())
}

fn directory_name(now: Timestamp, attempt: u32) -> String {
    let (days, rest) = (now.seconds.div_euclid(86_400), now.seconds.rem_euclid(86_400));
    let (year, month, day) = civil(days);
    let (hour, minute, second) = (rest / 3600, rest / 60 % 60, rest % 60);
    let unique = u64::from(now.nanos) + u64::from(attempt);
    format!("..{year:04}_{month:02}_{day:02}_{hour:02}_{minute:02}_{second:02}.{unique:09}")
}

fn fill(directory: &Path, files: &Files) -> io::Result<()> {
    for (path, file) in files {
        let mut here = directory.to_owned();
        let parts: Vec<&str> = path.split('/').collect();
        for part in &parts[..parts.len() - 1] {
            here.push(part);
            create_directory(&here)?;
        }
        write_file(&directory.join(path), file)?;
    }
    Ok(())
}

fn create_directory(path: &Path) -> io::Result<()> {
    match fs::create_dir(path) {
        Ok(()) => set_mode(path, 0o755),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists && path.is_dir() => Ok(()),
        Err(error) => Err(error),
    }
}

fn write_file(path: &Path, file: &File) -> io::Result<()> {
    fs::write(path, &file.data)?;
    set_mode(path, file.mode)?;
    if let Some(user) = file.user {
        std::os::unix::fs::chown(path, Some(user), None)?;
    }
    Ok(())
}

fn set_mode(path: &Path, mode: u32) -> io::Result<()> {
    fs::set_permissions(path, fs::Permissions::from_mode(mode))
}

/// Links to new files are created before the rename, so that they are not dangling for long.
fn swap(dir: &Path, fresh: &Path, files: &Files) -> io::Result<()> {
    for top in top_entries(files.keys().map(String::as_str)) {
        match symlink(Path::new(DATA).join(top), dir.join(top)) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            linked => linked?,
        }
    }
    let next = dir.join(NEXT);
    match fs::remove_file(&next) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => symlink(fresh.file_name().unwrap_or_default(), &next)?,
    }
    fs::rename(next, dir.join(DATA))
}

/// Removes links to removed files, the old directory, and leftovers of an interrupted update.
fn clear(dir: &Path, fresh: &Path, wanted: &BTreeSet<&str>) -> io::Result<()> {
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        let name = entry.file_name();
        let name = name.to_string_lossy();
        let stays = name == DATA || wanted.contains(&*name) || entry.path() == fresh;
        if !stays && entry.file_type()?.is_dir() && name.starts_with("..") {
            fs::remove_dir_all(entry.path())?;
        } else if !stays && entry.file_type()?.is_symlink() {
            fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp { seconds: 1_700_000_000, nanos: 5 };

    fn files(list: &[(&str, &str)]) -> Files {
        list.iter().map(|(path, data)| (path.to_string(), File::new(*data, 0o644))).collect()
    }

    fn seen(dir: &Path) -> Vec<String> {
        let mut names: Vec<String> =
            fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn update_renames_one_link() {
        let temp = tempfile::tempdir().unwrap();
        let dir = temp.path();
        let write = |list: &[(&str, &str)]| write(dir, &files(list), NOW, |_| Ok(())).unwrap();
        write(&[("a", "1"), ("sub/b", "2"), ("sub/c", "3")]);
        assert_eq!(seen(dir), ["..2023_11_14_22_13_20.000000005", "..data", "a", "sub"]);
        assert_eq!(fs::read_link(dir.join("sub")).unwrap(), Path::new("..data/sub"));
        assert_eq!(fs::read_to_string(dir.join("sub/b")).unwrap(), "2");
        write(&[("a", "1"), ("sub/b", "2"), ("sub/c", "3")]);
        assert_eq!(seen(dir)[0], "..2023_11_14_22_13_20.000000005", "nothing has changed");
        write(&[("a", "x"), ("d", "4")]);
        assert_eq!(seen(dir), ["..2023_11_14_22_13_20.000000006", "..data", "a", "d"]);
        assert_eq!(fs::read_to_string(dir.join("a")).unwrap(), "x");
        write(&[]);
        assert_eq!(seen(dir), ["..2023_11_14_22_13_20.000000005", "..data"]);
    }

    #[test]
    fn failed_update_keeps_the_old_files() {
        let temp = tempfile::tempdir().unwrap();
        let dir = temp.path();
        write(dir, &files(&[("a", "1")]), NOW, |_| Ok(())).unwrap();
        let refused = write(dir, &files(&[("a", "2")]), NOW, |_| Err(io::ErrorKind::StorageFull.into()));
        assert!(refused.is_err());
        assert_eq!(fs::read_to_string(dir.join("a")).unwrap(), "1");
        assert_eq!(seen(dir).len(), 3, "the half update is gone: {:?}", seen(dir));
        fs::create_dir(dir.join("..2001_01_01_01_01_01.1")).unwrap();
        symlink("..2001_01_01_01_01_01.1", dir.join(NEXT)).unwrap();
        write(dir, &files(&[("a", "3")]), NOW, |_| Ok(())).unwrap();
        assert_eq!(fs::read_to_string(dir.join("a")).unwrap(), "3");
        assert_eq!(seen(dir).len(), 3, "{:?}", seen(dir));
    }

    #[test]
    fn sets_modes_despite_the_umask() {
        let temp = tempfile::tempdir().unwrap();
        let one = Files::from([("a/b".to_string(), File::new("", 0o777)), ("c".to_string(), File::new("", 0o400))]);
        write(temp.path(), &one, NOW, |_| Ok(())).unwrap();
        let mode = |path: &str| fs::metadata(temp.path().join(path)).unwrap().permissions().mode() & 0o7777;
        assert_eq!([mode("a"), mode("a/b"), mode("c"), mode("..data")], [0o755, 0o777, 0o400, 0o755]);
    }
}

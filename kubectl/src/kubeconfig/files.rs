//! One file of a kubeconfig.

use std::io::ErrorKind;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::Path;

use api::{Tree, yaml};
use stdx::fs::{Durability, ReplaceOptions};

use super::{Config, Entry, PATH_FIELDS, Section};
use crate::error::{Result, io_text, message};

/// A kubeconfig is small; more is another file.
const MAX_SIZE: u64 = 16 * 1024 * 1024;

/// Why a file was not loaded.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LoadError {
    #[error("no such file or directory")]
    Missing,
    #[error("open {path}: {}", io_text(.source))]
    Read { path: String, source: std::io::Error },
    #[error("the file is larger than {MAX_SIZE} bytes")]
    TooLarge,
    #[error("{source}{}", place(source))]
    Syntax { source: yaml::Error },
    #[error("{0}")]
    Shape(String),
}

fn place(error: &yaml::Error) -> String {
    error.place().map(|(line, column)| format!(" (line {line}, column {column})")).unwrap_or_default()
}

/// Reads a file.
pub(crate) fn load_file(path: &Path) -> std::result::Result<Config, LoadError> {
    let failed = |source: std::io::Error| match source.kind() {
        ErrorKind::NotFound => LoadError::Missing,
        _ => LoadError::Read { path: path.display().to_string(), source },
    };
    let metadata = std::fs::metadata(path).map_err(failed)?;
    if metadata.len() > MAX_SIZE {
        return Err(LoadError::TooLarge);
    }
    let bytes = std::fs::read(path).map_err(failed)?;
    let config = parse(&bytes, path)?;
    let is_full = |(key, entry): (&(Section, String), &Entry)| {
        key.0 == Section::Users && entry.value.as_map().is_some_and(|map| !map.is_empty())
    };
    let has_credentials = config.entries.iter().any(is_full);
    if has_credentials && metadata.is_file() && metadata.permissions().mode() & 0o004 != 0 {
        eprintln!("Warning: {} has credentials, and every user of this machine can read it", path.display());
    }
    Ok(config)
}

fn parse(bytes: &[u8], path: &Path) -> std::result::Result<Config, LoadError> {
    let mut object = yaml::decode(bytes).map_err(|source| LoadError::Syntax { source })?;
    if object.is_null() {
        return Ok(Config::default());
    }
    if object.as_map().is_none() {
        return Err(LoadError::Shape("the configuration is not a map".to_string()));
    }
    check_type(&object)?;
    let mut config = Config { current_context: object.str("current-context").to_string(), ..Config::default() };
    for section in Section::ALL {
        for entry in object.list(section.key()) {
            let value = entry.at(section.item()).clone();
            let key = (section, entry.str("name").to_string());
            config.entries.entry(key).or_insert(Entry { value, origin: path.to_path_buf() });
        }
        object.remove(section.key());
    }
    for key in ["apiVersion", "kind", "current-context"] {
        object.remove(key);
    }
    config.other = object;
    Ok(config)
}

fn check_type(object: &Tree) -> std::result::Result<(), LoadError> {
    match (object.str("apiVersion"), object.str("kind")) {
        ("v1" | "", "Config" | "") => Ok(()),
        (version, kind) => {
            let (group, version) = version.rsplit_once('/').unwrap_or(("", version));
            Err(LoadError::Shape(format!(
                "no kind \"{kind}\" is registered for version \"{}\" in scheme \"pkg/runtime/scheme.go:110\"",
                if group.is_empty() { version.to_string() } else { format!("{group}/{version}") }
            )))
        }
    }
}

/// Writes a file of its own entries, readable for the user only, whole or not at all. A lock file keeps other
/// processes from writing at the same time.
pub(crate) fn write_file(path: &Path, config: &Config) -> Result<()> {
    let mut config = config.clone();
    let directory = path.parent().unwrap_or(Path::new("."));
    relative_paths(&mut config, directory);
    if !directory.as_os_str().is_empty() && !directory.exists() {
        std::fs::create_dir_all(directory)?;
    }
    let lock = path.with_file_name(format!("{}.lock", path.file_name().unwrap_or_default().to_string_lossy()));
    let locked = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&lock);
    if let Err(error) = locked {
        return message(format!("open {}: {}", lock.display(), lock_text(&error)));
    }
    let result = replace(path, &yaml::encode(&config.to_tree()));
    let _ = std::fs::remove_file(&lock);
    result
}

fn lock_text(error: &std::io::Error) -> String {
    if error.kind() == ErrorKind::AlreadyExists { "file exists".to_string() } else { io_text(error) }
}

fn replace(path: &Path, bytes: &[u8]) -> Result<()> {
    // A link stays a link: its target is replaced.
    let path = std::fs::canonicalize(path).unwrap_or_else(|_| path.to_path_buf());
    let mode = std::fs::metadata(&path).map_or(0o600, |metadata| metadata.permissions().mode() & 0o777);
    ReplaceOptions { mode: Some(mode), durability: Durability::All }.write(&path, bytes)?;
    Ok(())
}

/// Paths below the file's directory are written relative to it.
fn relative_paths(config: &mut Config, directory: &Path) {
    for ((section, _), entry) in &mut config.entries {
        for (_, field) in PATH_FIELDS.iter().filter(|(of, _)| of == section) {
            let relative = Path::new(entry.value.str(field)).strip_prefix(directory).map(|path| path.to_path_buf());
            if let Ok(path) = relative.as_ref().map(|path| path.to_string_lossy())
                && !directory.as_os_str().is_empty()
                && !path.is_empty()
            {
                entry.value.set(field, path.as_ref());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_keep_their_entries() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("config");
        let text = "apiVersion: v1\nclusters:\n- cluster:\n    certificate-authority: ca.crt\n    server: https://a\n  \
                    name: a\ncontexts: null\ncurrent-context: x\nkind: Config\nusers: null\n";
        std::fs::write(&path, text).expect("written");
        let mut config = load_file(&path).expect("loaded");
        config.resolve_paths();
        assert_eq!(config.current_context, "x");
        let ca = config.get(Section::Clusters, "a").expect("a cluster").str("certificate-authority").to_string();
        assert_eq!(Path::new(&ca), dir.path().join("ca.crt"));
        write_file(&path, &config).expect("written");
        assert_eq!(std::fs::read_to_string(&path).expect("read"), text);
    }

    #[test]
    fn bad_files_are_refused() {
        let check = |text: &str, want: &str| {
            assert_eq!(parse(text.as_bytes(), Path::new("x")).expect_err(text).to_string(), want)
        };
        check("a: b: c", "yaml: mapping values are not allowed in this context (line 1, column 5)");
        check("[]", "the configuration is not a map");
        check("kind: Pod", "no kind \"Pod\" is registered for version \"\" in scheme \"pkg/runtime/scheme.go:110\"");
    }

    #[test]
    fn a_planted_link_is_not_followed() {
        let dir = tempfile::tempdir().expect("a directory");
        let (real, link) = (dir.path().join("real"), dir.path().join("config"));
        std::fs::write(&real, "kind: Config\n").expect("written");
        std::fs::set_permissions(&real, std::fs::Permissions::from_mode(0o640)).expect("a mode");
        std::os::unix::fs::symlink(&real, &link).expect("a link");
        let precious = dir.path().join("precious");
        std::fs::write(&precious, "kept").expect("written");
        for name in [format!("real.tmp{}", std::process::id()), ".real.new".to_string()] {
            std::os::unix::fs::symlink(&precious, dir.path().join(name)).expect("a link");
        }
        let config = load_file(&link).expect("loaded");
        write_file(&link, &config).expect("written");
        assert_eq!(std::fs::read_to_string(&precious).expect("read"), "kept");
        assert!(link.is_symlink() && !real.is_symlink(), "a link of the user stays");
        assert!(std::fs::read_to_string(&real).expect("read").contains("current-context"));
        assert_eq!(std::fs::metadata(&real).expect("a file").permissions().mode() & 0o777, 0o640);
    }
}

//! The version of a data directory: a newer one may have files that this version would misread, or not know at all.

use std::fs;
use std::path::Path;

use crate::error::Result;
use crate::machine::files::write_private;

pub(crate) const FILE: &str = "version";
/// The format of the files outside of the store, which has a version of its own. A change that older versions would
/// misread increases it.
const FORMAT: u32 = 1;

/// The version that a data directory was written by.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum DataVersion {
    /// A new directory, or one of a version that did not write the file.
    Unknown,
    Known {
        format: u32,
        writer: String,
    },
    /// The file has another content.
    Invalid,
}

impl DataVersion {
    pub(super) fn read(data_dir: &Path) -> DataVersion {
        // An unreadable file is reported as what it is: a directory that this user cannot use.
        fs::read_to_string(data_dir.join(FILE)).map_or(DataVersion::Unknown, |text| DataVersion::parse(&text))
    }

    fn parse(text: &str) -> DataVersion {
        let mut lines = text.lines();
        let format = lines.next().and_then(|line| line.strip_prefix("tiphys-data ")).and_then(|text| text.parse().ok());
        let writer = lines.next().and_then(|line| line.strip_prefix("written by tiphys "));
        match (format, writer) {
            (Some(format), Some(writer)) => DataVersion::Known { format, writer: writer.to_string() },
            _ => DataVersion::Invalid,
        }
    }

    /// Why this version cannot use the directory.
    pub(super) fn refusal(&self, data_dir: &Path) -> Option<String> {
        let (dir, own) = (data_dir.display(), env!("CARGO_PKG_VERSION"));
        match self {
            DataVersion::Known { format, writer } if *format > FORMAT => Some(format!(
                "{dir} was written by tiphys {writer} in data format {format}, and this is tiphys {own}, which reads up to \
                 format {FORMAT}: start tiphys {writer} or a newer version, or choose another --data-dir"
            )),
            DataVersion::Invalid => Some(format!(
                "{dir}/{FILE} is not a version of tiphys: restore it from a backup, or remove the file if no newer version \
                 has used the directory"
            )),
            _ => None,
        }
    }

    /// Writes the version where it is missing or older.
    pub(super) fn write(&self, data_dir: &Path) -> Result<()> {
        let own = DataVersion::Known { format: FORMAT, writer: env!("CARGO_PKG_VERSION").to_string() };
        if *self == own {
            return Ok(());
        }
        let text = format!("tiphys-data {FORMAT}\nwritten by tiphys {}\n", env!("CARGO_PKG_VERSION"));
        write_private(&data_dir.join(FILE), &text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn newer_versions_are_refused() {
        let check = |text: &str, want: Option<&str>| {
            let why = DataVersion::parse(text).refusal(Path::new("/d"));
            assert_eq!(why.is_some(), want.is_some(), "{text}: {why:?}");
            assert!(why.unwrap_or_default().contains(want.unwrap_or_default()), "{text}");
        };
        check("tiphys-data 1\nwritten by tiphys 0.0.1\n", None);
        check("tiphys-data 2\nwritten by tiphys 9.8.7\n", Some("start tiphys 9.8.7 or a newer version"));
        check("tiphys-data x\nwritten by tiphys 9.8.7\n", Some("/d/version is not a version"));
        check("", Some("/d/version is not a version"));
    }

    #[test]
    fn version_is_written_once() {
        let dir = tempfile::tempdir().expect("a directory");
        assert_eq!(DataVersion::read(dir.path()), DataVersion::Unknown);
        DataVersion::Unknown.write(dir.path()).expect("a file");
        let written = DataVersion::read(dir.path());
        assert!(matches!(&written, DataVersion::Known { format: FORMAT, .. }), "{written:?}");
        fs::remove_file(dir.path().join(FILE)).expect("a file");
        written.write(dir.path()).expect("nothing to do");
        assert!(!dir.path().join(FILE).exists());
    }
}

//! Network configurations: a list of plugins, or a single plugin, which is treated as a list of one; and the choice of
//! the file in a configuration directory.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::spec::error::Error;
use crate::spec::names::check_identifier;
use crate::spec::reader::Reader;
use crate::spec::version::Version;

/// The size limit of a configuration file.
const FILE_BYTES: u64 = 1024 * 1024;

/// A network configuration list.
#[derive(Clone, Debug, PartialEq)]
pub struct NetworkList {
    pub name: String,
    pub version: Version,
    pub disable_check: bool,
    pub disable_gc: bool,
    /// Objects that have a `type`, in the order of ADD. At least one.
    pub plugins: Vec<Value>,
}

impl NetworkList {
    /// Parses a list. Further plugins may be in a subdirectory of `directory` that has the network's name.
    pub fn parse(bytes: &[u8], directory: Option<&Path>) -> Result<NetworkList, Error> {
        let value = parse_json(bytes)?;
        let mut reader = Reader::new(&value, "")?;
        let name = reader.text("name")?.to_string();
        check_identifier("name", &name).map_err(|error| Error::configuration(error.message))?;
        let version = read_version(&mut reader)?;
        let mut plugins = reader.list("plugins")?.to_vec();
        if let Some(directory) = directory.filter(|_| !only_inlined(&mut reader).unwrap_or(false)) {
            plugins.extend(plugins_of(&directory.join(&name))?);
        }
        only_inlined(&mut reader)?;
        let list = NetworkList {
            disable_check: lenient_flag(&mut reader, "disableCheck")?,
            disable_gc: lenient_flag(&mut reader, "disableGC")?,
            name,
            version,
            plugins,
        };
        list.check_plugins()?;
        Ok(list)
    }

    /// Parses a single plugin's configuration as a list of one.
    pub fn parse_single(bytes: &[u8]) -> Result<NetworkList, Error> {
        let value = parse_json(bytes)?;
        if value.get("plugins").is_some() {
            return Err(Error::configuration("plugins: a list of plugins belongs in a file that ends in .conflist"));
        }
        let mut reader = Reader::new(&value, "")?;
        let name = reader.text("name")?.to_string();
        check_identifier("name", &name).map_err(|error| Error::configuration(error.message))?;
        let version = read_version(&mut reader)?;
        if reader.text("type")?.is_empty() {
            return Err(reader.invalid("type", "is missing"));
        }
        Ok(NetworkList { name, version, disable_check: false, disable_gc: false, plugins: vec![value] })
    }

    /// The whole list as one document, which the cache stores with the result.
    pub fn to_bytes(&self) -> Vec<u8> {
        let json = json!({
            "cniVersion": self.version.as_str(),
            "name": self.name,
            "disableCheck": self.disable_check,
            "disableGC": self.disable_gc,
            "loadOnlyInlinedPlugins": true,
            "plugins": self.plugins,
        });
        json.to_string().into_bytes()
    }

    fn check_plugins(&self) -> Result<(), Error> {
        if self.plugins.is_empty() {
            return Err(Error::configuration("plugins: the list is empty"));
        }
        for (index, plugin) in self.plugins.iter().enumerate() {
            let mut reader = Reader::new(plugin, format!("plugins[{index}]"))?;
            if reader.text("type")?.is_empty() {
                return Err(reader.invalid("type", "is missing"));
            }
        }
        Ok(())
    }
}

/// Loads the first valid configuration of a directory, by file name. Returns None if no file has the extension of a
/// configuration, and the error of the first file if none is valid.
pub fn load(directory: &Path) -> Result<Option<NetworkList>, Error> {
    let mut first_error = None;
    for file in files(directory, &["conf", "conflist", "json"])? {
        match load_file(&file) {
            Ok(list) => return Ok(Some(list)),
            Err(error) => {
                tracing::warn!(file = %file.display(), %error, "ignoring invalid network configuration");
                first_error.get_or_insert(error);
            }
        }
    }
    first_error.map_or(Ok(None), Err)
}

fn load_file(file: &Path) -> Result<NetworkList, Error> {
    let bytes = read(file)?;
    let list = match file.extension().is_some_and(|extension| extension == "conflist") {
        true => NetworkList::parse(&bytes, file.parent()),
        false => NetworkList::parse_single(&bytes),
    };
    list.map_err(|error| error.within(file.display()))
}

/// The files of a directory with one of these extensions, sorted by name; none if the directory does not exist.
fn files(directory: &Path, endings: &[&str]) -> Result<Vec<PathBuf>, Error> {
    let with_context = |error: io::Error| Error::from(error).within(directory.display());
    let entries = match fs::read_dir(directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.map_err(with_context)?,
    };
    let mut files = Vec::new();
    for entry in entries {
        let path = entry.map_err(with_context)?.path();
        let ending = path.extension().and_then(|ending| ending.to_str());
        if ending.is_some_and(|ending| endings.contains(&ending)) && path.is_file() {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

/// Plugins in a directory of their own, one per file.
fn plugins_of(directory: &Path) -> Result<Vec<Value>, Error> {
    let one = |file: &PathBuf| parse_json(&read(file)?).map_err(|error| error.within(file.display()));
    files(directory, &["conf"])?.iter().map(one).collect()
}

fn read(file: &Path) -> Result<Vec<u8>, Error> {
    let with_context = |error: io::Error| Error::from(error).within(file.display());
    if fs::metadata(file).map_err(with_context)?.len() > FILE_BYTES {
        return Err(Error::configuration(format!("{}: larger than {FILE_BYTES} bytes", file.display())));
    }
    fs::read(file).map_err(with_context)
}

fn parse_json(bytes: &[u8]) -> Result<Value, Error> {
    serde_json::from_slice(bytes).map_err(|error| Error::configuration(format!("invalid JSON: {error}")))
}

/// The newest supported version of those that the configuration lists.
fn read_version(reader: &mut Reader<'_>) -> Result<Version, Error> {
    let mut offered = reader.texts("cniVersions")?;
    let single = reader.text("cniVersion")?;
    if offered.is_empty() || !single.is_empty() {
        offered.push(single.to_string());
    }
    let known = offered.iter().filter_map(|text| Version::parse(text).ok()).max();
    known.map_or_else(|| Version::parse(&offered[offered.len() - 1]), Ok)
}

fn only_inlined(reader: &mut Reader<'_>) -> Result<bool, Error> {
    lenient_flag(reader, "loadOnlyInlinedPlugins")
}

/// libcni also accepts these flags as strings.
fn lenient_flag(reader: &mut Reader<'_>, key: &'static str) -> Result<bool, Error> {
    match reader.value(key) {
        None => Ok(false),
        Some(Value::Bool(flag)) => Ok(*flag),
        Some(Value::String(text)) if text.eq_ignore_ascii_case("true") => Ok(true),
        Some(Value::String(text)) if text.eq_ignore_ascii_case("false") => Ok(false),
        Some(_) => Err(reader.invalid(key, "must be true or false")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_and_singles() {
        let list = NetworkList::parse(
            br#"{"cniVersion":"1.0.0","name":"n","disableCheck":"true","disableGC":true,"plugins":[{"type":"a"},{"type":"b"}]}"#,
            None,
        );
        let list = list.unwrap();
        assert_eq!((list.name.as_str(), list.version, list.plugins.len()), ("n", Version::V1_0_0, 2));
        assert!(list.disable_check && list.disable_gc);
        assert_eq!(NetworkList::parse(&list.to_bytes(), None).unwrap(), list);
        let single =
            NetworkList::parse_single(br#"{"cniVersion":"0.3.1","name":"bridge","type":"bridge","x":1}"#).unwrap();
        assert_eq!(single.plugins[0]["x"], 1);
        let newest =
            br#"{"cniVersions":["0.4.0","1.1.0","9.0.0"],"cniVersion":"1.0.0","name":"n","plugins":[{"type":"a"}]}"#;
        assert_eq!(NetworkList::parse(newest, None).unwrap().version, Version::V1_1_0);
    }

    #[test]
    fn errors_name_the_field() {
        for (text, message) in [
            ("{", "invalid JSON: EOF while parsing an object at line 1 column 1"),
            ("[]", "must be an object"),
            (r#"{"cniVersion":"1.0.0"}"#, "name: is missing"),
            (r#"{"cniVersion":"1.0.0","name":"a/b"}"#, "name: invalid characters in \"a/b\""),
            (r#"{"name":"n"}"#, "cniVersion: \"\" is not supported, only 0.3.0, 0.3.1, 0.4.0, 1.0.0, 1.1.0"),
            (r#"{"cniVersion":"1.0.0","name":"n"}"#, "plugins: the list is empty"),
            (r#"{"cniVersion":"1.0.0","name":"n","plugins":{}}"#, "plugins: must be a list"),
            (r#"{"cniVersion":"1.0.0","name":"n","plugins":[1]}"#, "plugins[0]: must be an object"),
            (r#"{"cniVersion":"1.0.0","name":"n","plugins":[{"type":"a"},{}]}"#, "plugins[1].type: is missing"),
            (
                r#"{"cniVersion":"1.0.0","name":"n","disableGC":"x","plugins":[{"type":"a"}]}"#,
                "disableGC: must be true or false",
            ),
        ] {
            assert_eq!(NetworkList::parse(text.as_bytes(), None).unwrap_err().message, message, "{text}");
        }
        let single = |text: &str| NetworkList::parse_single(text.as_bytes()).unwrap_err().message;
        assert_eq!(single(r#"{"cniVersion":"1.0.0","name":"n"}"#), "type: is missing");
        assert!(single(r#"{"plugins":[]}"#).starts_with("plugins: a list"));
    }

    #[test]
    fn loads_the_first_valid_file_by_name() {
        let directory = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| fs::write(directory.path().join(name), text).unwrap();
        assert_eq!(load(&directory.path().join("absent")), Ok(None));
        assert_eq!(load(directory.path()), Ok(None));
        write("00-readme.txt", "not one");
        write("10-broken.conf", "{");
        let error = load(directory.path()).unwrap_err();
        assert!(error.message.starts_with(&format!("{}/10-broken.conf: invalid JSON", directory.path().display())));
        write("30-late.conf", r#"{"cniVersion":"1.0.0","name":"late","type":"x"}"#);
        write("20-first.conflist", r#"{"cniVersion":"1.0.0","name":"first","plugins":[{"type":"x"}]}"#);
        assert_eq!(load(directory.path()).unwrap().unwrap().name, "first");
    }

    #[test]
    fn appends_plugins_of_a_directory_unless_only_inlined_plugins_are_loaded() {
        let directory = tempfile::tempdir().unwrap();
        fs::create_dir(directory.path().join("n")).unwrap();
        fs::write(directory.path().join("n/20.conf"), r#"{"type":"c"}"#).unwrap();
        fs::write(directory.path().join("n/10.conf"), r#"{"type":"b"}"#).unwrap();
        let types = |flag: &str| {
            let text = format!(r#"{{"cniVersion":"1.1.0","name":"n","plugins":[{{"type":"a"}}]{flag}}}"#);
            let list = NetworkList::parse(text.as_bytes(), Some(directory.path())).unwrap();
            list.plugins.iter().map(|plugin| plugin["type"].as_str().unwrap().to_string()).collect::<String>()
        };
        assert_eq!(types(""), "abc");
        assert_eq!(types(r#","loadOnlyInlinedPlugins":true"#), "a");
    }
}

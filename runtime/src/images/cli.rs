//! `tiphys images`: pull, import, export, list and remove the images of the container runtime.

use std::ffi::OsString;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};

use super::archive::Output;
use super::error::{Error, Result};
use super::progress::ProgressLines;
use super::reference::Reference;
use super::registry::hosts::DEFAULT_DIRECTORIES;
use super::{Credentials, Image, Images, Options};

/// The default image directory of a runtime without a cluster.
pub const DEFAULT_ROOT: &str = "/var/lib/tiphys/images";

#[derive(Parser)]
#[command(name = "tiphys images", about = "Manage the images of the container runtime")]
struct Cli {
    /// The data directory of the cluster whose images are managed [default: that of the cluster that runs pods on this
    /// machine, or ./data]
    #[arg(long, global = true, conflicts_with = "root")]
    data_dir: Option<PathBuf>,
    /// The image directory of a runtime without a cluster [default: /var/lib/tiphys/images]
    #[arg(long, global = true)]
    root: Option<PathBuf>,
    /// A directory of registry host configurations and certificates, in containerd's format; can be repeated
    #[arg(long = "hosts-dir", global = true, default_values = DEFAULT_DIRECTORIES)]
    hosts: Vec<PathBuf>,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Pull images from registries
    Pull(Pull),
    /// Import the images of a Docker archive or an OCI layout
    Import {
        /// A file, a directory, or `-` for standard input
        path: PathBuf,
        /// The name of an image that has none in the archive
        #[arg(long)]
        name: Option<String>,
        /// Pin the images: garbage collection keeps them
        #[arg(long)]
        pin: bool,
    },
    /// Export images as one archive, which is both a Docker archive and an OCI layout
    Export {
        #[arg(required = true)]
        images: Vec<String>,
        /// A file, or `-` for standard output
        #[arg(long, short, required_unless_present = "layout", conflicts_with = "layout")]
        output: Option<PathBuf>,
        /// Export to a new directory, as an OCI layout
        #[arg(long)]
        layout: Option<PathBuf>,
    },
    /// List the images
    List {
        /// Print only image IDs
        #[arg(long, short)]
        quiet: bool,
    },
    /// Remove images with all their names
    Remove {
        #[arg(required = true)]
        images: Vec<String>,
        /// Remove pinned images too
        #[arg(long)]
        force: bool,
    },
    /// Remove untagged images that no container uses
    Prune {
        /// Remove tagged images that no container uses too
        #[arg(long)]
        all: bool,
    },
}

#[derive(Args)]
struct Pull {
    #[arg(required = true)]
    images: Vec<String>,
    /// The user name at the registry
    #[arg(long, requires = "password_stdin")]
    username: Option<String>,
    /// Read the password from standard input
    #[arg(long, requires = "username")]
    password_stdin: bool,
    /// A file of credentials, in the format of Docker's config.json
    #[arg(long, conflicts_with = "username")]
    auth_file: Option<PathBuf>,
    /// Pin the images: garbage collection keeps them
    #[arg(long)]
    pin: bool,
}

/// Runs the command; `args` are those after `images`.
pub fn main(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    let cli = match Cli::try_parse_from([OsString::from("tiphys images")].into_iter().chain(args)) {
        Ok(cli) => cli,
        Err(error) => {
            let _ = error.print();
            return if error.use_stderr() { ExitCode::from(2) } else { ExitCode::SUCCESS };
        }
    };
    match run(cli) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(std::io::stderr(), "error: {}", error.chain());
            ExitCode::FAILURE
        }
    }
}

/// The directory of state that a reboot may clear.
const STATES: &str = "/run/tiphys";
/// The image directory of a cluster, below its data directory.
const BELOW_DATA_DIR: &str = "runtime/images";

/// The image directory: given by a flag, that of the cluster whose pods run here, or an existing one.
fn store(root: Option<PathBuf>, data_dir: Option<PathBuf>, states: &Path, here: &Path) -> Result<PathBuf> {
    let of = |data_dir: PathBuf| data_dir.join(BELOW_DATA_DIR);
    if let Some(named) = root.or(data_dir.map(of)) {
        return Ok(named);
    }
    let running = running_data_dirs(states);
    let local = Some(of(here.join("data"))).filter(|path| path.exists());
    match (running.as_slice(), local) {
        ([one], _) if of(one.clone()).exists() => Ok(of(one.clone())),
        (_, Some(local)) => Ok(local),
        ([_, _, ..], None) => Err(Error::SeveralClusters),
        _ => Ok(PathBuf::from(DEFAULT_ROOT)),
    }
}

/// The data directories of the clusters that run pods in this network namespace, from the files of their claims.
fn running_data_dirs(states: &Path) -> Vec<PathBuf> {
    use std::os::unix::fs::MetadataExt;
    let Ok(namespace) = std::fs::metadata("/proc/self/ns/net").map(|namespace| namespace.ino()) else {
        return Vec::new();
    };
    let prefix = format!("pod-network-{namespace}-");
    let is_claim = |entry: &std::fs::DirEntry| entry.file_name().to_string_lossy().starts_with(&prefix);
    let claims = std::fs::read_dir(states).into_iter().flatten().flatten().filter(is_claim);
    let data_dir = |text: String| text.lines().nth(1).map(PathBuf::from);
    claims.filter_map(|claim| std::fs::read_to_string(claim.path()).ok().and_then(data_dir)).collect()
}

fn run(cli: Cli) -> Result<()> {
    let root = store(cli.root, cli.data_dir, Path::new(STATES), Path::new("."))?;
    if !root.exists() && !matches!(cli.command, Command::Pull(_) | Command::Import { .. }) {
        // Reading commands do not create a store. A mistyped path is reported.
        let _ = writeln!(std::io::stderr(), "{} does not exist: no image was pulled or imported yet", root.display());
        return match cli.command {
            Command::Export { images, .. } | Command::Remove { images, .. } => {
                Err(Error::NotFound(images.into_iter().next().unwrap_or_default()))
            }
            Command::List { quiet } => print(&list(&[], quiet)),
            _ => Ok(()),
        };
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let runtime = runtime.map_err(Error::at(&root))?;
    runtime.block_on(async move {
        let images = Images::open(&root, Options { hosts: cli.hosts, ..Options::default() })?;
        command(&images, cli.command).await
    })
}

async fn command(images: &Images, command: Command) -> Result<()> {
    match command {
        Command::Pull(pull) => pull_all(images, pull).await,
        Command::Import { path, name, pin } => {
            let lines = ProgressLines::new(&path.display().to_string());
            let imported = images.import(&path, name.as_deref(), &lines).await;
            lines.finish();
            for id in imported? {
                keep(images, &id, pin)?;
            }
            Ok(())
        }
        Command::Export { images: chosen, output, layout } => {
            let output = match (output, layout) {
                (_, Some(directory)) => Output::Directory(directory),
                (Some(path), None) if path != Path::new("-") => Output::File(path),
                _ => Output::Standard,
            };
            images.export(&chosen, output).await
        }
        Command::List { quiet } => print(&list(&images.list(), quiet)),
        Command::Remove { images: chosen, force } => remove(images, &chosen, force).await,
        Command::Prune { all } => {
            let removed = images.prune(all).await?;
            print(&removed.iter().map(|id| format!("{id}\n")).collect::<String>())
        }
    }
}

async fn pull_all(images: &Images, pull: Pull) -> Result<()> {
    let password = match pull.password_stdin {
        true => Some(read_password()?),
        false => None,
    };
    for name in &pull.images {
        let auth = match (&pull.username, &password, &pull.auth_file) {
            (Some(username), Some(password), _) => Some(Credentials::basic(username, password)),
            (_, _, Some(file)) => from_file(file, name)?,
            _ => None,
        };
        let lines = ProgressLines::new(name);
        let pulled = images.pull(name, auth, &lines).await;
        lines.finish();
        keep(images, &pulled?, pull.pin)?;
    }
    Ok(())
}

fn keep(images: &Images, id: &str, pin: bool) -> Result<()> {
    if pin {
        images.pin(id, true)?;
    }
    print(&format!("{id}\n"))
}

fn read_password() -> Result<String> {
    let mut password = String::new();
    std::io::stdin().take(64 << 10).read_to_string(&mut password).map_err(Error::at(Path::new("standard input")))?;
    Ok(password.trim_end_matches(['\r', '\n']).to_owned())
}

/// The entry of a credentials file for an image's registry.
fn from_file(path: &Path, image: &str) -> Result<Option<Credentials>> {
    #[derive(serde::Deserialize)]
    struct File {
        #[serde(default)]
        auths: std::collections::BTreeMap<String, Entry>,
    }
    #[derive(serde::Deserialize)]
    struct Entry {
        #[serde(default)]
        auth: String,
        #[serde(default)]
        identitytoken: String,
        #[serde(default)]
        registrytoken: String,
    }
    let wrong = |why: String| Error::Hosts { path: path.to_owned(), why };
    let bytes = std::fs::read(path).map_err(Error::at(path))?;
    let file: File = serde_json::from_slice(&bytes).map_err(|error| wrong(error.to_string()))?;
    let registry = Reference::parse(image)?.registry;
    for (server, entry) in file.auths {
        let bare = Credentials {
            server_address: server.clone(),
            identity_token: entry.identitytoken,
            registry_token: entry.registrytoken,
            ..Credentials::default()
        };
        if bare.is_for(&registry) {
            return bare.with_encoded(&entry.auth).map(Some).map_err(|why| wrong(format!("auths {server:?}: {why}")));
        }
    }
    Ok(None)
}

async fn remove(images: &Images, chosen: &[String], force: bool) -> Result<()> {
    for name in chosen {
        let image = images.find(name)?.ok_or_else(|| Error::NotFound(name.clone()))?;
        if image.pinned && !force {
            return Err(Error::Pinned(name.clone()));
        }
        images.remove(&image.id).await?;
        print(&format!("{}\n", image.id))?;
    }
    Ok(())
}

fn list(images: &[std::sync::Arc<Image>], quiet: bool) -> String {
    if quiet {
        return images.iter().map(|image| format!("{}\n", image.id)).collect();
    }
    let mut rows = vec![["IMAGE", "ID", "SIZE", "PINNED"].map(str::to_owned)];
    for image in images {
        let names = match (image.repo_tags.is_empty(), image.repo_digests.is_empty()) {
            (false, _) => image.repo_tags.clone(),
            (true, false) => image.repo_digests.clone(),
            (true, true) => vec!["<none>".to_owned()],
        };
        let id: String = image.id.trim_start_matches("sha256:").chars().take(13).collect();
        let size = format!("{:.1} MB", image.size as f64 / 1e6);
        let pinned = if image.pinned { "yes" } else { "" }.to_owned();
        rows.extend(names.into_iter().map(|name| [name, id.clone(), size.clone(), pinned.clone()]));
    }
    table(&rows)
}

fn table(rows: &[[String; 4]]) -> String {
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..4).map(width).collect();
    let mut text = String::new();
    for row in rows {
        let cells: Vec<String> = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:width$}")).collect();
        text.push_str(cells.join("   ").trim_end());
        text.push('\n');
    }
    text
}

/// A closed pipe, as with `head`, is not an error.
fn print(text: &str) -> Result<()> {
    match std::io::stdout().write_all(text.as_bytes()) {
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
        written => written.map_err(Error::at(Path::new("standard output"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_the_images_of_a_cluster() {
        use std::os::unix::fs::MetadataExt;
        let dir = tempfile::tempdir().unwrap();
        let (states, here, other) = (dir.path().join("run"), dir.path().join("here"), dir.path().join("other"));
        let check = |root: Option<&str>, data_dir: Option<&Path>, want: &Path| {
            let found = store(root.map(PathBuf::from), data_dir.map(Path::to_path_buf), &states, &here);
            assert_eq!(found.unwrap(), want);
        };
        check(None, None, Path::new(DEFAULT_ROOT));
        std::fs::create_dir_all(here.join("data").join(BELOW_DATA_DIR)).unwrap();
        check(None, None, &here.join("data").join(BELOW_DATA_DIR));
        std::fs::create_dir_all(other.join(BELOW_DATA_DIR)).unwrap();
        std::fs::create_dir_all(&states).unwrap();
        let namespace = std::fs::metadata("/proc/self/ns/net").unwrap().ino();
        let claim = format!("7\n{}\n", other.display());
        std::fs::write(states.join(format!("pod-network-{namespace}-0.lock")), &claim).unwrap();
        check(None, None, &other.join(BELOW_DATA_DIR));
        check(None, Some(Path::new("/d")), &Path::new("/d").join(BELOW_DATA_DIR));
        check(Some("/r"), None, Path::new("/r"));
        std::fs::write(states.join(format!("pod-network-{namespace}-1.lock")), &claim).unwrap();
        check(None, None, &here.join("data").join(BELOW_DATA_DIR));
        let several = store(None, None, &states, dir.path()).unwrap_err().to_string();
        assert!(several.contains("--data-dir"), "{several}");
    }

    #[test]
    fn lists_images_as_a_table() {
        let image = Image {
            id: format!("sha256:{}", "ab".repeat(32)),
            repo_tags: vec!["docker.io/library/a:1".to_owned(), "docker.io/library/a:2".to_owned()],
            repo_digests: Vec::new(),
            size: 1_250_000,
            config: super::super::Config::default(),
            pinned: true,
            chain: Vec::new(),
        };
        let expected = "\
IMAGE                   ID              SIZE     PINNED\n\
docker.io/library/a:1   abababababab0   1.2 MB   yes\n\
docker.io/library/a:2   abababababab0   1.2 MB   yes\n";
        assert_eq!(list(&[image.into()], false), expected.replace("abababababab0", "ababababababa"));
    }

    #[test]
    fn reads_credentials_from_a_docker_file() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let text =
            r#"{"auths":{"r.example:5000":{"auth":"dTpw"},"https://index.docker.io/v1/":{"identitytoken":"t"}}}"#;
        std::fs::write(file.path(), text).unwrap();
        let read = |image: &str| from_file(file.path(), image).unwrap();
        assert_eq!(read("r.example:5000/a").unwrap().password, "p");
        assert_eq!(read("nginx").unwrap().identity_token, "t");
        assert!(read("other.example/a").is_none());
        std::fs::write(file.path(), text.replace("dTpw", "!")).unwrap();
        assert!(from_file(file.path(), "r.example:5000/a").unwrap_err().to_string().contains("r.example:5000"));
    }

    #[test]
    fn parses_commands() {
        use clap::CommandFactory;
        Cli::command().debug_assert();
        assert_eq!(main(["pull".into()]), ExitCode::from(2));
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path().join("mistyped");
        let run = |args: &[&str]| main(args.iter().map(Into::into).chain(["--root".into(), root.clone().into()]));
        assert_eq!(run(&["list"]), ExitCode::SUCCESS);
        assert_eq!(run(&["remove", "a"]), ExitCode::FAILURE);
        assert!(!root.exists(), "to look is not to make");
        assert_eq!(main(["--help".into()]), ExitCode::SUCCESS);
    }
}

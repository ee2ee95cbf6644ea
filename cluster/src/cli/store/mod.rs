//! `tiphys store`: copies, snapshots and maintenance of the embedded store and of etcd.

mod copy;
mod location;
mod maintenance;
mod snapshot;

use std::path::PathBuf;

use clap::Subcommand;
use store::Revision;

use super::runtime;
use crate::error::Result;
use crate::logs::{self, Format, Level};
use location::{EtcdArguments, Location};

/// The arguments of `tiphys store`.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Copies all objects from a data directory to etcd, or back. No server may run on the source
    Copy(copy::Arguments),
    /// Saves a checked snapshot, also while servers run
    Snapshot {
        #[command(flatten)]
        of: Of,
        /// The file to write
        file: PathBuf,
    },
    /// Creates the store of a data directory from a snapshot
    Restore {
        /// A snapshot of an embedded store. Those of etcd are restored by `etcdutl snapshot restore`
        file: PathBuf,
        /// The data directory, which must not contain a store; its certificates are kept
        #[arg(long, default_value = "./data")]
        data_dir: PathBuf,
    },
    /// Reads a store or a snapshot and checks all checksums; compares the members of etcd
    Verify {
        #[command(flatten)]
        of: Of,
        /// A snapshot of an embedded store or of etcd, instead of a store
        file: Option<PathBuf>,
    },
    /// Shows revision, sizes and problems of a store
    Status {
        #[command(flatten)]
        of: Of,
    },
    /// Drops history and frees its space. The embedded store must not be in use: a server compacts its own
    Compact {
        #[command(flatten)]
        of: Of,
        /// The newest revision to drop, in etcd only [default: the newest one]
        #[arg(long)]
        revision: Option<Revision>,
    },
    /// Returns the free space of etcd's members to the file system, the leader last
    Defrag {
        #[command(flatten)]
        of: Of,
        /// Disarm all alarms afterwards, so that etcd accepts writes again
        #[arg(long)]
        disarm: bool,
    },
}

/// The store of a command.
#[derive(clap::Args)]
struct Of {
    /// The data directory of the embedded store
    #[arg(long, default_value = "./data", conflicts_with = "etcd_servers")]
    data_dir: PathBuf,
    /// The URLs of all members of an etcd cluster, instead of a data directory
    #[arg(long, value_delimiter = ',')]
    etcd_servers: Vec<String>,
    #[command(flatten)]
    etcd: EtcdArguments,
}

impl Of {
    fn location(&self) -> Result<Location> {
        match self.etcd_servers.is_empty() {
            true => Ok(Location::Directory(self.data_dir.clone())),
            false => self.etcd.location(&self.etcd_servers),
        }
    }
}

/// Runs a command and prints its result.
pub(super) fn run(args: Arguments) -> Result<()> {
    logs::init(Format::default(), Level::Warn);
    runtime()?.block_on(async {
        match args.command {
            Command::Copy(args) => copy::run(&args).await,
            Command::Snapshot { of, file } => snapshot::save(&of.location()?, &file).await,
            Command::Restore { file, data_dir } => snapshot::restore(&file, &data_dir),
            Command::Verify { file: Some(file), .. } => snapshot::verify(&file),
            Command::Verify { of, file: None } => maintenance::verify(&of.location()?).await,
            Command::Status { of } => maintenance::status(&of.location()?).await,
            Command::Compact { of, revision } => maintenance::compact(&of.location()?, revision).await,
            Command::Defrag { of, disarm } => maintenance::defrag(&of.location()?, disarm).await,
        }
    })
}

//! Scheduled snapshots of the embedded store: when, where to, and how many are kept. A snapshot is written under a
//! temporary name, read back and checked, and only then gets its name; older ones are removed afterwards.

mod retention;
mod s3;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use api::time::Timestamp;
use controllers::ZonedSchedule;
use kinds::batch::cron;
use stdx::clock::Clock;
use store::Store;
use store::embedded::offline;
use tokio::task::JoinHandle;

use crate::error::{Error, Result};
use s3::{Bucket, S3Error};

/// The default number of snapshots.
pub const RETENTION: usize = 5;
/// The clock may be set meanwhile: a longer wait is computed anew.
const LONGEST_WAIT: Duration = Duration::from_secs(60);
const S3_SCHEME: &str = "s3://";

/// The flags of scheduled snapshots.
#[derive(Debug, Clone, Default, clap::Args)]
pub struct Settings {
    /// Save snapshots of the store at these times: a cron schedule in UTC, such as "0 */6 * * *", or "@every 1h"
    #[arg(long = "snapshot-schedule", value_name = "CRON")]
    pub schedule: Option<String>,
    /// The number of scheduled snapshots to keep [default: 5]
    #[arg(long = "snapshot-retention", value_name = "N")]
    pub retention: Option<usize>,
    /// A directory, or s3://BUCKET/PREFIX [default: DATA_DIR/snapshots]
    #[arg(long = "snapshot-dir", value_name = "DIR|URL")]
    pub dir: Option<String>,
    /// The URL of an S3-compatible service [default: that of AWS in the region]
    #[arg(long = "snapshot-s3-endpoint", value_name = "URL")]
    pub s3_endpoint: Option<String>,
    /// The region of the bucket [default: us-east-1]
    #[arg(long = "snapshot-s3-region", value_name = "REGION")]
    pub s3_region: Option<String>,
    /// CA bundle for the service's certificate [default: the CAs of the system]
    #[arg(long = "snapshot-s3-ca-file", value_name = "FILE")]
    pub s3_ca_file: Option<PathBuf>,
    /// A file with aws_access_key_id and aws_secret_access_key [default: the environment's AWS_ACCESS_KEY_ID,
    /// AWS_SECRET_ACCESS_KEY and AWS_SESSION_TOKEN]
    #[arg(long = "snapshot-s3-credentials-file", value_name = "FILE")]
    pub s3_credentials_file: Option<PathBuf>,
}

/// Why a snapshot was not saved.
#[derive(Debug, thiserror::Error)]
enum SnapshotError {
    #[error("failed to save a snapshot")]
    Store(#[from] store::Error),
    #[error("cannot use {}", path.display())]
    File {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    #[error(transparent)]
    S3(#[from] S3Error),
    #[error("the task was aborted")]
    Aborted,
}

fn file(path: &Path) -> impl FnOnce(std::io::Error) -> SnapshotError + use<> {
    let path = path.to_path_buf();
    move |source| SnapshotError::File { path, source }
}

enum Destination {
    Directory(PathBuf),
    S3(Box<Bucket>),
}

/// Scheduled snapshots whose settings are checked.
pub struct Snapshots {
    schedule: ZonedSchedule,
    retention: usize,
    destination: Destination,
    /// Files are written and checked here before they are uploaded.
    work_dir: PathBuf,
}

impl Settings {
    /// None without a schedule. `data_dir` is None if the objects are in etcd.
    pub fn check(&self, data_dir: Option<&Path>) -> Result<Option<Snapshots>> {
        let Some(text) = &self.schedule else {
            return match self.first_other() {
                Some(name) => refuse(format!("{name} needs --snapshot-schedule")),
                None => Ok(None),
            };
        };
        let Some(data_dir) = data_dir else {
            return refuse("--snapshot-schedule is for the embedded store: `tiphys store snapshot` saves etcd".into());
        };
        let wrong = |why: String| Error::Flags(vec![format!("--snapshot-schedule: {why}")]);
        let schedule = cron::parse(text).map_err(|error| wrong(error.to_string()))?;
        let retention = self.retention.unwrap_or(RETENTION);
        if retention == 0 {
            return refuse("--snapshot-retention must be at least 1".into());
        }
        let work_dir = data_dir.join("snapshots");
        let destination = match self.dir.as_deref().map(|dir| (dir, dir.strip_prefix(S3_SCHEME))) {
            Some((_, Some(path))) => Destination::S3(Box::new(Bucket::new(path, self)?)),
            _ if self.s3_endpoint.is_some() || self.s3_credentials_file.is_some() => {
                return refuse("--snapshot-s3-…: --snapshot-dir must be s3://BUCKET/PREFIX".into());
            }
            Some((dir, None)) => Destination::Directory(dir.into()),
            None => Destination::Directory(work_dir.clone()),
        };
        let schedule = ZonedSchedule::utc(schedule);
        Ok(Some(Snapshots { schedule, retention, destination, work_dir }))
    }

    fn first_other(&self) -> Option<&'static str> {
        let given = [
            ("--snapshot-retention", self.retention.is_some()),
            ("--snapshot-dir", self.dir.is_some()),
            ("--snapshot-s3-endpoint", self.s3_endpoint.is_some()),
            ("--snapshot-s3-region", self.s3_region.is_some()),
            ("--snapshot-s3-ca-file", self.s3_ca_file.is_some()),
            ("--snapshot-s3-credentials-file", self.s3_credentials_file.is_some()),
        ];
        given.into_iter().find(|(_, is_given)| *is_given).map(|(name, _)| name)
    }
}

fn refuse<T>(why: String) -> Result<T> {
    Err(Error::Flags(vec![why]))
}

impl Snapshots {
    /// Saves snapshots until the task is aborted.
    pub fn start(self, store: Arc<dyn Store>, clock: Arc<dyn Clock>) -> JoinHandle<()> {
        tokio::spawn(async move {
            loop {
                if !self.wait(&*clock).await {
                    return;
                }
                match self.take(&*store, clock.now()).await {
                    Ok(name) => tracing::info!(name, "saved and checked a snapshot of the store"),
                    Err(error) => {
                        tracing::error!(
                            error = stdx::error::chain(&error),
                            "failed to save a snapshot, older ones are kept"
                        )
                    }
                }
            }
        })
    }

    /// Waits for the next time of the schedule; false if there is none.
    async fn wait(&self, clock: &dyn Clock) -> bool {
        let Some(next) = self.schedule.next(clock.now().seconds) else { return false };
        loop {
            let left = next - clock.now().seconds;
            match u64::try_from(left) {
                Ok(left) if left > 0 => tokio::time::sleep(Duration::from_secs(left).min(LONGEST_WAIT)).await,
                _ => return true,
            }
        }
    }

    /// Saves one snapshot, then removes those that are too old. Returns its name.
    async fn take(&self, store: &dyn Store, now: Timestamp) -> std::result::Result<String, SnapshotError> {
        let name = retention::name(now);
        let dir = match &self.destination {
            Destination::Directory(dir) => dir,
            Destination::S3(_) => &self.work_dir,
        };
        create_private(dir)?;
        let partial = Partial(dir.join(format!(".{name}.partial")));
        store.snapshot(&partial.0).await?;
        verify(&partial.0).await?;
        match &self.destination {
            Destination::Directory(dir) => {
                publish(&partial.0, &dir.join(&name))?;
                remove_oldest(dir, self.retention)?;
            }
            Destination::S3(bucket) => {
                bucket.upload(&name, &partial.0).await?;
                bucket.remove_oldest(self.retention).await?;
            }
        }
        Ok(name)
    }
}

/// An incomplete file, which is removed at the end. It no longer exists if it was renamed.
struct Partial(PathBuf);

impl Drop for Partial {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// Snapshots contain secrets: only the owner may read them.
fn create_private(dir: &Path) -> std::result::Result<(), SnapshotError> {
    use std::os::unix::fs::DirBuilderExt;
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(dir).map_err(file(dir))
}

async fn verify(path: &Path) -> std::result::Result<(), SnapshotError> {
    let path = path.to_path_buf();
    let read = tokio::task::spawn_blocking(move || offline::read_snapshot(&path).map(|_| ()));
    Ok(read.await.map_err(|_| SnapshotError::Aborted)??)
}

fn publish(partial: &Path, path: &Path) -> std::result::Result<(), SnapshotError> {
    std::fs::rename(partial, path).map_err(file(path))?;
    let dir = path.parent().unwrap_or(Path::new("."));
    std::fs::File::open(dir).and_then(|dir| dir.sync_all()).map_err(file(dir))
}

fn remove_oldest(dir: &Path, retention: usize) -> std::result::Result<(), SnapshotError> {
    let entries = std::fs::read_dir(dir).map_err(file(dir))?;
    let names: Vec<String> = entries.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    for name in retention::expired(&names, retention) {
        let path = dir.join(name);
        std::fs::remove_file(&path).map_err(file(&path))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests;

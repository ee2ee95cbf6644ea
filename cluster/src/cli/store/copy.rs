//! `tiphys store copy`.

use std::io::{IsTerminal, Write};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use server::storage::encryption::is_sealed;
use server::storage::resource::adopt_foreign;
use store::embedded::offline;
use store::etcd::Config;
use store::etcd::transfer::{self, CopyProgress, RevisionPolicy};
use store::{Contents, Entry};

use super::location::{EtcdArguments, Location, Locks, store_dir};
use crate::cli::say;
use crate::error::{Error, Result};

/// API servers renew their leases every 10 s.
const RENEWAL: Duration = Duration::from_secs(15);
const RENEWAL_CHECK: Duration = Duration::from_millis(500);
/// The prefix of all keys in the embedded store.
const EMBEDDED_PREFIX: &str = "/registry";
/// The leases of API servers.
const SERVER_LEASES: &str = "/leases/kube-system/apiserver-";

#[derive(clap::Args)]
pub(super) struct Arguments {
    /// A data directory, or the URLs of etcd
    #[arg(long, value_name = "DIR|URL,...")]
    from: String,
    /// The URLs of etcd, or a data directory without a store
    #[arg(long, value_name = "URL,...|DIR")]
    to: String,
    /// What becomes of resource versions in etcd: `above` raises its revision over those of the source, so that clients
    /// list again; `restart` does not, and clients must be restarted
    #[arg(long, value_enum, default_value_t = Revisions::Above)]
    revisions: Revisions,
    #[command(flatten)]
    etcd: EtcdArguments,
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum Revisions {
    Above,
    Restart,
}

pub(super) async fn run(args: &Arguments) -> Result<()> {
    match (args.etcd.parse(&args.from)?, args.etcd.parse(&args.to)?) {
        (Location::Directory(from), Location::Etcd(to)) => to_etcd(&from, &to, args.revisions).await,
        (Location::Etcd(from), Location::Directory(to)) => to_directory(&from, &to).await,
        (Location::Directory(_), Location::Directory(_)) => {
            refuse("copy a directory by `tiphys store snapshot` and `tiphys store restore`")
        }
        (Location::Etcd(_), Location::Etcd(_)) => {
            refuse("copy an etcd cluster by `tiphys store snapshot` and `etcdutl snapshot restore`")
        }
    }
}

fn refuse<T>(why: &str) -> Result<T> {
    Err(Error::Flags(vec![why.to_string()]))
}

async fn to_etcd(from: &Path, to: &Config, revisions: Revisions) -> Result<()> {
    // Held until the copy is complete: no server writes to the source meanwhile.
    let _locks = Locks::take(from)?;
    let dir = store_dir(from);
    let (id, contents) = (offline::identity(&dir)?, offline::read(&dir)?);
    refuse_other_prefix(&contents, to)?;
    let contents = without_prefix(&contents)?;
    let policy = match revisions {
        Revisions::Above => RevisionPolicy::Above,
        Revisions::Restart => RevisionPolicy::Restart,
    };
    let line = ProgressLine::new();
    let copied = transfer::write(to, &contents, &format!("{id:016x}"), policy, &|step| line.show(step)).await;
    line.end();
    let report = copied?;
    if report.kept > 0 {
        say(&format!("continued an interrupted copy, which had {} entries", report.kept));
    }
    say(&format!("copied and verified {}", report.digest));
    say(&format!("etcd is at revision {}, the source was at {}", report.revision, contents.revision));
    say("start the API servers with --etcd-servers; the source is unchanged");
    Ok(())
}

async fn to_directory(from: &Config, to: &Path) -> Result<()> {
    let dir = store_dir(to);
    if dir.join("VERSION").exists() {
        return refuse(&format!("{} contains a store already: move it away first", dir.display()));
    }
    let _locks = Locks::take_empty(to)?;
    let line = ProgressLine::new();
    let read = transfer::read(from, &|step| line.show(step)).await;
    line.end();
    refuse_active_servers(from, &read?).await?;
    // Whatever a server wrote before it stopped.
    let source = transfer::read(from, &|_| {}).await?;
    refuse_other_prefix(&source, from)?;
    let contents = converted(&source)?;
    offline::create(&dir, &contents)?;
    let (want, have) = (contents.digest(), offline::read(&dir)?.digest());
    let changed = transfer::has_changed(from, &source).await?;
    if changed || want != have {
        std::fs::remove_dir_all(&dir).map_err(Error::file(&dir))?;
        return refuse(match changed {
            true => "etcd has changed during the copy: stop all API servers on it, and repeat the copy",
            false => "the copy differs from its source, and was removed: check the disk, and repeat the copy",
        });
    }
    say(&format!("copied and verified {have}"));
    say(&format!("the store is at revision {}, and resource versions are kept; etcd is unchanged", contents.revision));
    Ok(())
}

/// An encrypted value is bound to its whole key.
fn refuse_other_prefix(contents: &Contents, etcd: &Config) -> Result<()> {
    let is_encrypted = contents.entries.iter().any(|entry| is_sealed(&entry.value));
    match is_encrypted && etcd.prefix != EMBEDDED_PREFIX {
        false => Ok(()),
        true => refuse(&format!(
            "--etcd-prefix {}: encrypted values can only be copied with the prefix {EMBEDDED_PREFIX}, which their keys have",
            etcd.prefix
        )),
    }
}

/// The engine of etcd adds the prefix of all keys itself.
fn without_prefix(contents: &Contents) -> Result<Contents> {
    let mut result = Contents { revision: contents.revision, ..Contents::default() };
    for entry in contents.entries.iter() {
        let Some(key) = entry.key.strip_prefix(EMBEDDED_PREFIX).filter(|key| key.starts_with('/')) else {
            return refuse(&format!("the key {} of the source has an unknown prefix", entry.key));
        };
        result.entries.insert(Arc::new(Entry { key: key.into(), ..(**entry).clone() }));
    }
    Ok(result)
}

/// Values in etcd may be upstream's; the embedded store has canonical JSON with the revision. Encrypted values stay as
/// they are: the server decrypts both.
fn converted(contents: &Contents) -> Result<Contents> {
    let mut result = Contents { revision: contents.revision, ..Contents::default() };
    for entry in contents.entries.iter() {
        let value = match is_sealed(&entry.value) {
            true => Some(entry.value.clone()),
            false => adopt_foreign(entry),
        };
        let Some(value) = value else {
            return refuse(&format!(
                "the value of {} in etcd cannot be read: delete it there if no server needs it, and repeat the copy",
                entry.key
            ));
        };
        let key = format!("{EMBEDDED_PREFIX}{}", entry.key).into();
        result.entries.insert(Arc::new(Entry { key, value, ..(**entry).clone() }));
    }
    Ok(result)
}

/// A server whose lease is renewed runs. Leases are observed, because clocks differ and encrypted leases show no time.
async fn refuse_active_servers(config: &Config, contents: &Contents) -> Result<()> {
    let leases: Vec<&Arc<Entry>> =
        contents.entries.iter().filter(|entry| entry.key.starts_with(SERVER_LEASES)).collect();
    if leases.is_empty() {
        return Ok(());
    }
    say(&format!("waiting {} s for signs of a running API server", RENEWAL.as_secs()));
    let end = tokio::time::Instant::now() + RENEWAL;
    while tokio::time::Instant::now() < end {
        tokio::time::sleep(RENEWAL_CHECK).await;
        for lease in &leases {
            let now = transfer::get(config, &lease.key).await?;
            if now.is_some_and(|now| now.revision > lease.revision) {
                let name = lease.key.rsplit('/').next().unwrap_or_default();
                let holder = adopt_foreign(lease).and_then(|bytes| api::json::decode(&bytes).ok());
                let holder = holder.map(|lease| lease.str("spec.holderIdentity").to_string()).unwrap_or_default();
                return refuse(&format!(
                    "an API server runs on this etcd: the lease kube-system/{name} is renewed by {holder:?}; stop it first"
                ));
            }
        }
    }
    match transfer::has_changed(config, contents).await? {
        false => Ok(()),
        true => refuse("an API server runs on this etcd: objects have changed; stop it first"),
    }
}

/// The progress of a copy on standard error: one line that changes, on a terminal.
struct ProgressLine {
    is_terminal: bool,
}

impl ProgressLine {
    fn new() -> ProgressLine {
        ProgressLine { is_terminal: std::io::stderr().is_terminal() }
    }

    fn show(&self, step: CopyProgress) {
        let text = match step {
            CopyProgress::Read { entries } => format!("read {entries} entries"),
            CopyProgress::Written { entries, of } => format!("copied {entries} of {of} entries"),
            CopyProgress::Revision { at, of } => format!("raising etcd's revision: {at} of {of}"),
            CopyProgress::Verifying => "verifying".to_string(),
        };
        let (start, end) = if self.is_terminal { ("\r\x1b[2K", "") } else { ("", "\n") };
        let mut out = std::io::stderr().lock();
        // The copy goes on without a reader.
        let _ = write!(out, "{start}{text}{end}").and_then(|()| out.flush());
    }

    fn end(&self) {
        if self.is_terminal {
            let _ = writeln!(std::io::stderr());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn contents(entries: &[(&str, &'static str)]) -> Contents {
        let mut contents = Contents { revision: 9, ..Contents::default() };
        for &(key, value) in entries {
            let value = bytes::Bytes::from_static(value.as_bytes());
            contents.entries.insert(Arc::new(Entry { key: key.into(), value, revision: 7, expires: 0 }));
        }
        contents
    }

    #[test]
    fn keys_and_values_are_those_of_each_store() {
        let pod = r#"{"kind":"Pod","apiVersion":"v1","metadata":{"name":"a","resourceVersion":""}}"#;
        let own =
            converted(&contents(&[("/pods/x/a", pod), ("/secrets/x/b", "k8s:enc:secretbox:v1:k:x")])).expect("ok");
        let value = |key: &str| String::from_utf8_lossy(&own.entries.get(key).expect(key).value).into_owned();
        assert!(value("/registry/pods/x/a").contains(r#""resourceVersion":"7""#), "{}", value("/registry/pods/x/a"));
        assert_eq!(value("/registry/secrets/x/b"), "k8s:enc:secretbox:v1:k:x");
        let back = without_prefix(&own).expect("ok");
        assert!(back.entries.get("/pods/x/a").is_some() && back.revision == 9);
        let unreadable = converted(&contents(&[("/pods/x/a", "what?")])).err().expect("refused").describe();
        assert!(unreadable.contains("/pods/x/a"), "{unreadable}");
        assert!(without_prefix(&contents(&[("/registryx/a", "")])).is_err());
    }

    #[test]
    fn encrypted_values_need_their_prefix() {
        let sealed = contents(&[("/secrets/x/b", "k8s:enc:secretbox:v1:k:x")]);
        let etcd = |prefix: &str| Config { prefix: prefix.to_string(), ..Config::new(Vec::new()) };
        assert!(refuse_other_prefix(&sealed, &etcd("/registry")).is_ok());
        assert!(refuse_other_prefix(&sealed, &etcd("/other")).is_err());
        assert!(refuse_other_prefix(&contents(&[("/pods/x/a", "{}")]), &etcd("/other")).is_ok());
    }
}

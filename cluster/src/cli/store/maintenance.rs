//! The state of a store, compaction, defragmentation.

use store::Revision;
use store::embedded::offline;
use store::etcd::Config;
use store::etcd::maintenance::{MemberStatus, Members};

use super::location::{Location, Locks, store_dir};
use crate::cli::say;
use crate::error::{Error, Result};

pub(super) async fn verify(of: &Location) -> Result<()> {
    match of {
        Location::Directory(dir) => {
            let contents = offline::read(&store_dir(dir))?;
            say(&format!("revision {}, {}", contents.revision, contents.digest()));
            Ok(())
        }
        Location::Etcd(config) => verify_members(config).await,
    }
}

async fn verify_members(config: &Config) -> Result<()> {
    let (revision, hashes) = Members::new(config)?.hashes().await?;
    let mut differing = Vec::new();
    for member in &hashes {
        say(&format!(
            "{}: revision {revision}, compacted {}, hash {:08x}",
            member.endpoint, member.compacted, member.hash
        ));
        // Members that have compacted different revisions cannot be compared.
        let differs = |other: &&_| {
            let other: &store::etcd::maintenance::MemberHash = other;
            other.compacted == member.compacted && other.hash != member.hash
        };
        if let Some(other) = hashes.iter().find(differs) {
            differing.push(format!("{} differs from {}", member.endpoint, other.endpoint));
        }
    }
    match differing.is_empty() {
        true => Ok(()),
        false => Err(Error::Flags(
            differing.into_iter().chain(["replace the damaged member: remove it, and add it again".into()]).collect(),
        )),
    }
}

pub(super) async fn status(of: &Location) -> Result<()> {
    match of {
        Location::Directory(dir) => {
            directory_lines(&offline::status(&store_dir(dir))?).iter().for_each(|line| say(line))
        }
        Location::Etcd(config) => {
            let members = Members::new(config)?;
            let (mut lines, mut unreachable) = (Vec::new(), 0);
            for (endpoint, status) in members.status().await {
                lines.push(match status {
                    Ok(status) => member_line(&status),
                    Err(error) => {
                        unreachable += 1;
                        format!("{endpoint}: {}", stdx::error::chain(&error))
                    }
                });
            }
            lines.iter().for_each(|line| say(line));
            if unreachable == lines.len() {
                return Err(Error::Flags(vec!["no member of etcd responds".to_string()]));
            }
            for alarm in members.alarms().await? {
                say(&format!("alarm {} of member {:x}", alarm.name, alarm.member_id));
            }
        }
    }
    Ok(())
}

fn directory_lines(status: &offline::DirectoryStatus) -> Vec<String> {
    let state = match (status.is_locked, status.is_closed) {
        (true, _) => "in use by a server",
        (false, true) => "closed",
        (false, false) => "not closed: the next start replays its log",
    };
    let mut lines = vec![
        format!("id           {:016x}, format {}", status.id, status.format),
        format!("state        {state}"),
        format!("revision     {}, compacted up to {}", status.revision, status.compacted),
        format!("entries      {}, {} bytes", status.entries, status.live_bytes),
    ];
    lines.extend(status.files.iter().map(|(name, size)| format!("file         {name}, {size} bytes")));
    lines
}

fn member_line(status: &MemberStatus) -> String {
    let role = match (status.is_leader, status.is_learner) {
        (true, _) => "leader",
        (_, true) => "learner",
        _ => "follower",
    };
    let mut line = format!(
        "{}: member {:x}, {role}, version {}, revision {}, term {}, index {}, {} bytes, {} in use",
        status.endpoint,
        status.member_id,
        status.version,
        status.revision,
        status.raft_term,
        status.raft_index,
        status.size,
        status.size_in_use
    );
    status.errors.iter().for_each(|error| line.push_str(&format!(", {error}")));
    line
}

pub(super) async fn compact(of: &Location, revision: Option<Revision>) -> Result<()> {
    match of {
        Location::Directory(_) if revision.is_some() => {
            Err(Error::Flags(vec!["--revision: the embedded store drops its whole history".to_string()]))
        }
        Location::Directory(dir) => {
            let locks = Locks::take(dir)?;
            if let Some(store) = &locks.store {
                let (before, after) = store.compact()?;
                say(&format!("compacted from {before} to {after} bytes"));
            }
            Ok(())
        }
        Location::Etcd(config) => {
            let revision = Members::new(config)?.compact(revision).await?;
            say(&format!("compacted up to revision {revision}; `tiphys store defrag` returns the space"));
            Ok(())
        }
    }
}

pub(super) async fn defrag(of: &Location, disarm: bool) -> Result<()> {
    let Location::Etcd(config) = of else {
        let why = "the embedded store needs no defragmentation: `tiphys store compact` returns its space";
        return Err(Error::Flags(vec![why.to_string()]));
    };
    let members = Members::new(config)?;
    for endpoint in members.defragmentation_order().await? {
        members.defragment(&endpoint).await?;
        say(&format!("{endpoint}: defragmented"));
    }
    if disarm {
        for alarm in members.disarm().await? {
            say(&format!("disarmed {} of member {:x}", alarm.name, alarm.member_id));
        }
    }
    Ok(())
}

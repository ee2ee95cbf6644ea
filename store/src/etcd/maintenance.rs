//! Maintenance of an etcd cluster: the state of each member, compaction, defragmentation, alarms, and the comparison of
//! members by hash. Each call goes to one endpoint, since it concerns one member.

use std::path::Path;
use std::time::Duration;

use aws_lc_rs::digest;
use tonic::Code;

use super::client::{Client, failed, is_compacted};
use super::keys::END;
use super::{Config, proto};
use crate::{Error, Result, Revision};

/// etcd blocks a member while it is defragmented, for seconds with gigabytes.
const DEFRAGMENT_TIMEOUT: Duration = Duration::from_secs(300);
/// The end of etcd's snapshots: their SHA-256.
const SUM: usize = 32;
/// Snapshots consist of pages of the database, and of the sum.
const PAGE: u64 = 512;

/// The members of an etcd cluster, by their endpoints.
pub struct Members {
    members: Vec<(String, Client)>,
}

/// The state of a member.
#[derive(Debug, Clone)]
pub struct MemberStatus {
    pub endpoint: String,
    pub member_id: u64,
    pub version: String,
    /// The size of the database file.
    pub size: u64,
    /// What of it is in use; defragmentation frees the rest. 0 before etcd 3.4.
    pub size_in_use: u64,
    pub revision: Revision,
    pub raft_term: u64,
    pub raft_index: u64,
    pub is_leader: bool,
    pub is_learner: bool,
    /// Problems that the member reports, such as a missing leader or an alarm.
    pub errors: Vec<String>,
}

/// An alarm of a member: it stops writes until it is disarmed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Alarm {
    pub member_id: u64,
    /// `NOSPACE` or `CORRUPT`.
    pub name: String,
}

/// The hash of a member's whole state at a revision.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemberHash {
    pub endpoint: String,
    pub hash: u32,
    /// Revisions up to here are compacted; hashes of different compactions differ.
    pub compacted: Revision,
}

impl Members {
    /// The members at the endpoints of the configuration. Connects with the first call.
    pub fn new(config: &Config) -> Result<Members> {
        let client = |endpoint: &String| {
            let one = Config { endpoints: vec![endpoint.clone()], ..config.clone() };
            Ok((endpoint.clone(), Client::new(&one)?))
        };
        Ok(Members { members: config.endpoints.iter().map(client).collect::<Result<_>>()? })
    }

    /// The state of each member, or why it does not respond.
    pub async fn status(&self) -> Vec<(String, Result<MemberStatus>)> {
        let mut all = Vec::with_capacity(self.members.len());
        for (endpoint, client) in &self.members {
            let status = client.status().await.map_err(|status| failed(&status));
            all.push((endpoint.clone(), status.map(|status| describe(endpoint, status))));
        }
        all
    }

    /// The alarms of all members.
    pub async fn alarms(&self) -> Result<Vec<Alarm>> {
        self.alarm(proto::ALARM_GET, 0, 0).await
    }

    /// Disarms all alarms: writes are accepted again. Returns the disarmed ones.
    pub async fn disarm(&self) -> Result<Vec<Alarm>> {
        let alarms = self.alarm(proto::ALARM_GET, 0, 0).await?;
        for alarm in &alarms {
            let kind = if alarm.name == "NOSPACE" { proto::ALARM_NOSPACE } else { proto::ALARM_CORRUPT };
            self.alarm(proto::ALARM_DEACTIVATE, alarm.member_id, kind).await?;
        }
        Ok(alarms)
    }

    /// Drops history up to a revision, or up to the newest one, and waits until the space is free. Returns the
    /// revision.
    pub async fn compact(&self, revision: Option<Revision>) -> Result<Revision> {
        let (_, client) = self.first()?;
        let revision = match revision {
            Some(revision) => revision,
            None => newest(client).await?,
        };
        match client.compact_physically(revision).await {
            Ok(_) => Ok(revision),
            Err(status) if is_compacted(&status) => Ok(revision),
            Err(status) if status.code() == Code::OutOfRange => {
                Err(Error::Future { asked: revision, newest: newest(client).await? })
            }
            Err(status) => Err(failed(&status)),
        }
    }

    /// Returns the free space of a member's database to the file system. The member does not respond meanwhile.
    pub async fn defragment(&self, endpoint: &str) -> Result<()> {
        let Some((_, client)) = self.members.iter().find(|(name, _)| name == endpoint) else {
            return Err(Error::Refused(format!("{endpoint} is none of the endpoints")));
        };
        let done = client.with_timeout(DEFRAGMENT_TIMEOUT).defragment().await;
        done.map(|_| ()).map_err(|status| named(endpoint, failed(&status)))
    }

    /// The endpoints in the order in which they are defragmented: the leader last, so that it changes at most once.
    pub async fn defragmentation_order(&self) -> Result<Vec<String>> {
        let mut order = Vec::new();
        for (endpoint, status) in self.status().await {
            order.push((status.map_err(|error| named(&endpoint, error))?.is_leader, endpoint));
        }
        order.sort_by_key(|(is_leader, _)| *is_leader);
        Ok(order.into_iter().map(|(_, endpoint)| endpoint).collect())
    }

    /// The hashes of all members at one revision, which are equal unless a member is damaged.
    pub async fn hashes(&self) -> Result<(Revision, Vec<MemberHash>)> {
        let (_, client) = self.first()?;
        let revision = newest(client).await?;
        let mut hashes = Vec::with_capacity(self.members.len());
        for (endpoint, client) in &self.members {
            // A linearizable read first: the member then has this revision.
            newest(client).await.map_err(|error| named(endpoint, error))?;
            let response = match client.hash_kv(revision).await {
                // etcd does not hash a compacted revision, but its newest one, which is the same without writes.
                Err(status) if is_compacted(&status) => client.hash_kv(0).await,
                response => response,
            };
            let response = response.map_err(|status| named(endpoint, failed(&status)))?;
            let compacted = response.compact_revision.max(0) as u64;
            hashes.push(MemberHash { endpoint: endpoint.clone(), hash: response.hash, compacted });
        }
        Ok((revision, hashes))
    }

    /// Saves etcd's own snapshot, with its checksum, under a temporary name; then checks it and renames it.
    pub async fn snapshot(&self, path: &Path) -> Result<Revision> {
        let (_, client) = self.first()?;
        super::snapshot::save(client, path).await
    }

    async fn alarm(&self, action: i32, member_id: u64, alarm: i32) -> Result<Vec<Alarm>> {
        let request = proto::AlarmRequest { action, member_id, alarm };
        let (_, client) = self.first()?;
        let response = client.alarm(request).await.map_err(|status| failed(&status))?;
        let name = |kind| match kind {
            proto::ALARM_NOSPACE => "NOSPACE",
            proto::ALARM_CORRUPT => "CORRUPT",
            _ => "UNKNOWN",
        };
        let alarm = |one: proto::AlarmMember| Alarm { member_id: one.member_id, name: name(one.alarm).to_owned() };
        Ok(response.alarms.into_iter().map(alarm).collect())
    }

    fn first(&self) -> Result<&(String, Client)> {
        self.members.first().ok_or_else(|| Error::Unavailable("no etcd endpoint is configured".to_owned()))
    }
}

/// Checks the SHA-256 at the end of a snapshot of etcd. Returns the size of the database in it.
pub fn verify_snapshot(path: &Path) -> Result<u64> {
    use std::io::Read;
    let io = |source| Error::Io { what: format!("cannot read {}", path.display()), source };
    let damaged = |offset, what: &str| Error::Damaged { file: path.display().to_string(), offset, what: what.into() };
    let mut file = std::fs::File::open(path).map_err(io)?;
    let size = file.metadata().map_err(io)?.len();
    let database = size.saturating_sub(SUM as u64);
    if size <= SUM as u64 || database % PAGE != 0 {
        return Err(damaged(size, "the file is no snapshot of etcd, or is cut off"));
    }
    let mut hash = digest::Context::new(&digest::SHA256);
    let (mut buffer, mut left) = (vec![0; 1 << 20], database);
    while left > 0 {
        let part = left.min(buffer.len() as u64) as usize;
        file.read_exact(&mut buffer[..part]).map_err(io)?;
        hash.update(&buffer[..part]);
        left -= part as u64;
    }
    file.read_exact(&mut buffer[..SUM]).map_err(io)?;
    match buffer[..SUM] == *hash.finish().as_ref() {
        true => Ok(database),
        false => Err(damaged(database, "the checksum of the snapshot does not match")),
    }
}

/// The newest revision, from a linearizable read.
pub(super) async fn newest(client: &Client) -> Result<Revision> {
    let request = proto::RangeRequest { key: END.to_vec(), keys_only: true, ..Default::default() };
    let response = client.range(request).await.map_err(|status| failed(&status))?;
    Ok(response.header.map_or(0, |header| header.revision) as u64)
}

fn named(endpoint: &str, error: Error) -> Error {
    match error {
        Error::Unavailable(why) => Error::Unavailable(format!("{endpoint}: {why}")),
        other => other,
    }
}

fn describe(endpoint: &str, status: proto::StatusResponse) -> MemberStatus {
    let header = status.header.unwrap_or_default();
    MemberStatus {
        endpoint: endpoint.to_owned(),
        member_id: header.member_id,
        version: status.version,
        size: status.db_size.max(0) as u64,
        size_in_use: status.db_size_in_use.max(0) as u64,
        revision: header.revision.max(0) as u64,
        raft_term: status.raft_term,
        raft_index: status.raft_index,
        is_leader: status.leader != 0 && status.leader == header.member_id,
        is_learner: status.is_learner,
        errors: status.errors,
    }
}

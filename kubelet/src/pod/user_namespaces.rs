//! Users of pods that have their own (`hostUsers: false`): a range of the host's ids each, which no two have at once.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use api::Tree;
use stdx::sync::Mutex;

use crate::config::Config;
use crate::model::pod;
use crate::volumes;

/// The size of a range; the first range is the host's.
const LENGTH: u32 = 65_536;
/// Far more than the pods of the largest nodes.
const MOST: u32 = 60_000;

/// The number of the first part that a pod has, and how many.
type IdRange = (u32, u32);

/// A pod that has no range of IDs.
#[derive(Debug, thiserror::Error)]
pub(crate) enum UserNamespaceError {
    #[error("no range of user IDs is available")]
    NoneLeft,
    #[error("{}: {source}", .file.display())]
    Io { file: PathBuf, source: std::io::Error },
}

/// Which parts each pod has.
pub(crate) struct UsernsManager {
    config: Arc<Config>,
    taken: Mutex<BTreeMap<String, IdRange>>,
}

impl UsernsManager {
    /// With the ranges of pods from before this process started.
    pub(crate) fn open(config: Arc<Config>) -> UsernsManager {
        let entries = std::fs::read_dir(config.root_dir.join("pods")).into_iter().flatten().filter_map(Result::ok);
        let read = |uid: String| {
            let text = std::fs::read_to_string(file(&config, &uid)).ok()?;
            let mut words = text.split_whitespace().map(str::parse);
            Some((uid, (words.next()?.ok()?, words.next().unwrap_or(Ok(1)).ok()?)))
        };
        let taken = entries.filter_map(|entry| read(entry.file_name().into_string().ok()?)).collect();
        UsernsManager { config, taken: Mutex::new(taken) }
    }

    /// The user namespace of a pod; None if it uses the host's.
    pub(crate) fn of(&self, pod: &Tree) -> Result<Option<cri::UserNamespace>, UserNamespaceError> {
        if pod.at("spec").get("hostUsers").and_then(Tree::as_bool) != Some(false) {
            return Ok(None);
        }
        let (first, count) = self.parts(pod::uid(pod))?;
        let range = vec![cri::IDMapping { host_id: first * LENGTH, container_id: 0, length: count * LENGTH }];
        Ok(Some(cri::UserNamespace { mode: cri::NamespaceMode::Pod.into(), uids: range.clone(), gids: range }))
    }

    /// A range is on disk before a pod uses it.
    fn parts(&self, uid: &str) -> Result<IdRange, UserNamespaceError> {
        let mut taken = self.taken.lock();
        if let Some(parts) = taken.get(uid) {
            return Ok(*parts);
        }
        let count = (self.config.user_namespace_ids_per_pod / LENGTH).clamp(1, MOST);
        let is_free =
            |first: &u32| !taken.values().any(|(other, length)| *other < first + count && *first < other + length);
        let first = (1..=MOST - count).find(is_free).ok_or(UserNamespaceError::NoneLeft)?;
        let file = file(&self.config, uid);
        let write = || {
            file.parent().map(volumes::create_dirs).transpose()?;
            volumes::write_private(&file, format!("{first} {count}").as_bytes())
        };
        write().map_err(|source| UserNamespaceError::Io { file: file.clone(), source })?;
        taken.insert(uid.to_string(), (first, count));
        Ok((first, count))
    }

    /// The pod was removed, and its directory with it.
    pub(crate) fn release(&self, uid: &str) {
        self.taken.lock().remove(uid);
    }
}

fn file(config: &Config, uid: &str) -> PathBuf {
    config.pod_dir(uid).join("userns")
}

#[cfg(test)]
mod tests {
    use api::tree;

    use super::*;

    #[test]
    fn ranges_are_exclusive_and_survive_a_restart() {
        let dir = tempfile::tempdir().expect("a directory");
        let config = Arc::new(Config { root_dir: dir.path().to_path_buf(), ..Config::default() });
        let pod = |uid: &str, own: bool| {
            tree! { "metadata" => tree! { "uid" => uid }, "spec" => tree! { "hostUsers" => !own } }
        };
        let first = |users: &UsernsManager, uid: &str| {
            let range = users.of(&pod(uid, true)).expect("a range").expect("users of its own").uids;
            (range[0].host_id, range[0].length)
        };
        let users = UsernsManager::open(config.clone());
        assert_eq!(users.of(&pod("x", false)).expect("users of the host"), None);
        assert_eq!((first(&users, "a"), first(&users, "b")), ((65_536, 65_536), (131_072, 65_536)));
        assert_eq!(first(&users, "a"), (65_536, 65_536));
        let again = UsernsManager::open(config);
        assert_eq!(first(&again, "c"), (196_608, 65_536));
        again.release("a");
        assert_eq!(first(&again, "d"), (65_536, 65_536));
    }
}

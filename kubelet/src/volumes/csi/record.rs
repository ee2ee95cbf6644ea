//! The record of a pod's CSI volume, in a file beside it: after a restart it names the driver to call.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use api::{Tree, json, tree};

use stdx::fs::ReplaceOptions;

use crate::volumes::execute::create_dirs;

const FILE: &str = "vol_data.json";
const DIRECTORIES: [(&str, bool); 2] = [("volumes", false), ("volumeDevices", true)];
pub(crate) const KIND: &str = "kubernetes.io~csi";

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Record {
    /// The directory of the file.
    pub(crate) dir: PathBuf,
    /// The volume's name, or its persistent volume's.
    pub(crate) name: String,
    pub(crate) driver: String,
    pub(crate) handle: String,
    /// The name of the VolumeAttachment; "" without an attachment.
    pub(crate) attachment: String,
    pub(crate) is_persistent: bool,
    pub(crate) is_block: bool,
    /// The driver was called for the volume, which may have to be unpublished whatever the state of the directories.
    pub(crate) is_begun: bool,
}

impl Record {
    /// The directory of a volume of a pod.
    pub(crate) fn dir(pod_dir: &Path, name: &str, is_block: bool) -> PathBuf {
        pod_dir.join(if is_block { "volumeDevices" } else { "volumes" }).join(KIND).join(name)
    }

    /// Writes the record. A volume that was begun stays begun.
    pub(crate) fn write(&self, node: &str) -> io::Result<()> {
        let before = Record::read(self.dir.clone(), self.is_block);
        let is_begun = self.is_begun || before.is_some_and(|before| before.is_begun);
        let mode = if self.is_persistent { "Persistent" } else { "Ephemeral" };
        let data = tree! {
            "attachmentID" => &self.attachment, "driverName" => &self.driver, "nodeName" => node,
            "specVolID" => &self.name, "volumeHandle" => &self.handle, "volumeLifecycleMode" => mode,
            "begun" => is_begun.to_string(),
        };
        let text = json::encode(&data, None);
        if fs::read(self.dir.join(FILE)).is_ok_and(|there| there == text) {
            return Ok(());
        }
        create_dirs(&self.dir)?;
        ReplaceOptions::PRIVATE.write(&self.dir.join(FILE), text.as_ref())
    }

    fn read(dir: PathBuf, is_block: bool) -> Option<Record> {
        let data: Tree = json::decode(&fs::read(dir.join(FILE)).ok()?).ok()?;
        let text = |key: &str| data.str(key).to_string();
        Some(Record {
            name: text("specVolID"),
            driver: text("driverName"),
            handle: text("volumeHandle"),
            attachment: text("attachmentID"),
            is_persistent: data.str("volumeLifecycleMode") != "Ephemeral",
            // An earlier kubelet did not write this field.
            is_begun: data.str("begun") != "false",
            is_block,
            dir,
        })
    }

    /// Of all CSI volumes of a pod.
    pub(crate) fn of_pod(pod_dir: &Path) -> Vec<Record> {
        let all = DIRECTORIES.iter().flat_map(|(directory, is_block)| {
            entries(&pod_dir.join(directory).join(KIND)).into_iter().filter_map(|dir| Record::read(dir, *is_block))
        });
        all.collect()
    }

    /// Of all pods of the node.
    pub(crate) fn all(root: &Path) -> Vec<Record> {
        entries(&root.join("pods")).iter().flat_map(|pod_dir| Record::of_pod(pod_dir)).collect()
    }

    /// The volume's name in the node's status; None if the control plane does not attach it.
    pub(crate) fn unique_name(&self) -> Option<String> {
        (!self.attachment.is_empty()).then(|| format!("kubernetes.io/csi/{}^{}", self.driver, self.handle))
    }

    /// The UID of the pod, from the directory of the file.
    pub(crate) fn uid(&self) -> String {
        let directory = self.dir.ancestors().nth(3).and_then(Path::file_name);
        directory.map(|uid| uid.to_string_lossy().into_owned()).unwrap_or_default()
    }

    pub(crate) fn is_same_volume(&self, other: &Record) -> bool {
        self.driver == other.driver && self.handle == other.handle
    }

    pub(crate) fn remove(&self) -> io::Result<()> {
        match fs::remove_file(self.dir.join(FILE)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }
}

fn entries(dir: &Path) -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> = fs::read_dir(dir).into_iter().flatten().flatten().map(|entry| entry.path()).collect();
    found.sort();
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_written_records() {
        let temp = tempfile::tempdir().unwrap();
        let record = |uid: &str, is_block: bool, attachment: &str| Record {
            dir: Record::dir(&temp.path().join("pods").join(uid), "pv", is_block),
            name: "pv".into(),
            driver: "d".into(),
            handle: "h".into(),
            attachment: attachment.into(),
            is_persistent: true,
            is_block,
            is_begun: false,
        };
        let (one, two) = (record("a", false, "att"), record("b", true, ""));
        one.write("n").unwrap();
        two.write("n").unwrap();
        assert_eq!(Record::all(temp.path()), [one.clone(), two.clone()]);
        assert_eq!(one.unique_name().as_deref(), Some("kubernetes.io/csi/d^h"));
        assert_eq!(two.unique_name(), None);
        assert_eq!([one.uid(), two.uid()], ["a", "b"]);
        let begun = Record { is_begun: true, ..one.clone() };
        begun.write("n").unwrap();
        one.write("n").unwrap();
        assert_eq!(Record::all(temp.path()), [begun, two.clone()], "it is not forgotten that it was begun");
        one.remove().unwrap();
        one.remove().unwrap();
        assert_eq!(Record::all(temp.path()), [two]);
    }
}

//! Users and groups by name, from the image's own passwd and group files.

use crate::error::{Result, refused};
use crate::spec::UserSpec;

/// Who a process runs as, in numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct User {
    pub uid: u32,
    pub gid: u32,
    pub groups: Vec<u32>,
    pub home: Option<String>,
}

/// Finds the user in the image's files; a name that is not there is refused, a number need not be there.
pub fn resolve(spec: &UserSpec, passwd: &str, group: &str) -> Result<User> {
    let (name, group_name) = match spec.name.split_once(':') {
        Some((user, group)) => (user, Some(group)),
        None => (spec.name.as_str(), None),
    };
    let name = if name.is_empty() { "0" } else { name };
    let entry = entries(passwd, 7).find(|e| e[0] == name || e[2] == name);
    let uid = match (&entry, name.parse::<u32>()) {
        (Some(entry), _) => number(entry[2], "uid", name)?,
        (None, Ok(uid)) => uid,
        (None, Err(_)) => return refused(format!("unable to find user {name}: no matching entries in passwd file")),
    };
    let image_gid = entry.as_ref().map(|e| number(e[3], "gid", name)).transpose()?;
    let gid = match (spec.gid, group_name) {
        (Some(gid), _) => gid,
        (None, Some(wanted)) => find_group(wanted, group)?,
        (None, None) => image_gid.unwrap_or(0),
    };
    let mut groups = spec.groups.clone();
    if spec.image_groups
        && let Some(entry) = &entry
    {
        groups.extend(memberships(entry[0], group));
    }
    groups.push(gid);
    groups.sort_unstable();
    groups.dedup();
    let home = entry.map(|e| e[5].to_string()).filter(|home| !home.is_empty());
    Ok(User { uid, gid, groups, home })
}

fn entries(text: &str, fields: usize) -> impl Iterator<Item = Vec<&str>> {
    text.lines().map(|line| line.split(':').collect::<Vec<_>>()).filter(move |fields_of| fields_of.len() >= fields)
}

fn find_group(wanted: &str, group: &str) -> Result<u32> {
    let entry = entries(group, 3).find(|e| e[0] == wanted || e[2] == wanted);
    match (entry, wanted.parse::<u32>()) {
        (Some(entry), _) => number(entry[2], "gid", wanted),
        (None, Ok(gid)) => Ok(gid),
        (None, Err(_)) => refused(format!("unable to find group {wanted}: no matching entries in group file")),
    }
}

fn memberships(user: &str, group: &str) -> Vec<u32> {
    let member = |e: &Vec<&str>| e[3].split(',').any(|m| m.trim() == user);
    entries(group, 4).filter(member).filter_map(|e| e[2].parse().ok()).collect()
}

fn number(text: &str, what: &str, of: &str) -> Result<u32> {
    text.parse().or_else(|_| refused(format!("the image's entry of {of} has the {what} {text:?}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    const PASSWD: &str = "root:x:0:0:root:/root:/bin/sh\nweb:x:33:34::/var/www:/bin/false\nbroken\n";
    const GROUP: &str = "root:x:0:\nweb:x:34:\nlogs:x:50:other,web\nzero:x:7:web\n";

    fn check(name: &str, gid: Option<u32>, image_groups: bool, expected: &str) {
        let spec = UserSpec { name: name.into(), gid, groups: vec![90], image_groups };
        let got = match resolve(&spec, PASSWD, GROUP) {
            Ok(u) => format!("{}:{} {:?}", u.uid, u.gid, u.groups),
            Err(e) => e.to_string(),
        };
        assert_eq!(got, expected, "{name}");
    }

    #[test]
    fn names_and_numbers() {
        check("", None, true, "0:0 [0, 90]");
        check("web", None, true, "33:34 [7, 34, 50, 90]");
        check("33", None, true, "33:34 [7, 34, 50, 90]");
        check("web", None, false, "33:34 [34, 90]");
        check("web", Some(1000), true, "33:1000 [7, 50, 90, 1000]");
        check("1000", None, true, "1000:0 [0, 90]");
        check("1000:logs", None, true, "1000:50 [50, 90]");
        check("web:12", None, false, "33:12 [12, 90]");
        check("nobody", None, true, "unable to find user nobody: no matching entries in passwd file");
        check("web:none", None, true, "unable to find group none: no matching entries in group file");
    }
}

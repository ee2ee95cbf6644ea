//! Lookups of users and groups in the image's passwd and group files.

use crate::error::{Result, refused};
use crate::spec::UserSpec;

/// The numeric IDs of a process.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(crate) struct User {
    pub uid: u32,
    pub gid: u32,
    pub groups: Vec<u32>,
    pub home: Option<String>,
}

/// The highest ID a process may run as. `setresuid` interprets 2³²−1 as "unchanged".
pub(crate) const MAX_ID: u32 = i32::MAX as u32;

/// Looks up the user in the image's files. A name must exist there; a number need not.
///
/// A string of digits is always a number and never compared with names: the image's author controls the files, and a
/// user named `1000` with the ID 0 must not turn `runAsUser: 1000` into root.
pub(crate) fn resolve(spec: &UserSpec, passwd: &str, group: &str) -> Result<User> {
    let (name, group_name) = match spec.name.split_once(':') {
        Some((user, group)) => (user, Some(group)),
        None => (spec.name.as_str(), None),
    };
    let (uid, entry) = find_user(if name.is_empty() { "0" } else { name }, passwd)?;
    let gid = match (spec.gid, group_name.filter(|name| !name.is_empty()), &entry) {
        (Some(gid), ..) => check_id(gid, "gid")?,
        (None, Some(wanted), _) => find_group(wanted, group)?,
        (None, None, Some(entry)) => id_field(entry[3], "gid", name)?,
        (None, None, None) => 0,
    };
    let mut groups = spec.groups.iter().map(|gid| check_id(*gid, "supplemental group")).collect::<Result<Vec<_>>>()?;
    if spec.image_groups
        && let Some(entry) = &entry
    {
        groups.extend(memberships(entry[0], group)?);
    }
    groups.push(gid);
    groups.sort_unstable();
    groups.dedup();
    let home = entry.map(|e| e[5].to_string()).filter(|home| !home.is_empty());
    Ok(User { uid, gid, groups, home })
}

/// Parses a numeric user or group; None if it is a name.
pub(crate) fn parse_id(text: &str) -> Option<Result<u32>> {
    let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then(|| text.parse().ok().filter(|id| *id <= MAX_ID).map_or_else(|| too_large(text, "id"), Ok))
}

/// Refuses an ID that the kernel does not accept.
pub(crate) fn check_id(id: u32, what: &str) -> Result<u32> {
    if id <= MAX_ID { Ok(id) } else { too_large(id, what) }
}

fn too_large<T>(id: impl std::fmt::Display, what: &str) -> Result<T> {
    refused(format!("{what} {id} is above {MAX_ID}, the highest allowed id"))
}

fn find_user<'a>(name: &str, passwd: &'a str) -> Result<(u32, Option<Vec<&'a str>>)> {
    if let Some(uid) = parse_id(name) {
        let uid = uid?;
        return Ok((uid, entries(passwd, 7).find(|e| e[2].parse() == Ok(uid))));
    }
    match entries(passwd, 7).find(|e| e[0] == name) {
        Some(entry) => Ok((id_field(entry[2], "uid", name)?, Some(entry))),
        None => refused(format!("unable to find user {name}: no matching entries in passwd file")),
    }
}

fn entries(text: &str, fields: usize) -> impl Iterator<Item = Vec<&str>> {
    text.lines().map(|line| line.split(':').collect::<Vec<_>>()).filter(move |entry| entry.len() >= fields)
}

fn find_group(wanted: &str, group: &str) -> Result<u32> {
    if let Some(gid) = parse_id(wanted) {
        return gid;
    }
    match entries(group, 3).find(|e| e[0] == wanted) {
        Some(entry) => id_field(entry[2], "gid", wanted),
        None => refused(format!("unable to find group {wanted}: no matching entries in group file")),
    }
}

fn memberships(user: &str, group: &str) -> Result<Vec<u32>> {
    let member = |e: &Vec<&str>| e[3].split(',').any(|m| m.trim() == user);
    entries(group, 4).filter(member).map(|e| id_field(e[2], "gid", e[0])).collect()
}

fn id_field(text: &str, what: &str, of: &str) -> Result<u32> {
    parse_id(text).unwrap_or_else(|| refused(format!("the image's entry of {of} has the {what} {text:?}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    const PASSWD: &str = "root:x:0:0:root:/root:/bin/sh\nweb:x:33:34::/var/www:/bin/false\nbroken\n\
                          1000:x:0:0::/:/bin/sh\nhigh:x:2147483648:0::/:/bin/sh\nnone:x:4294967295:0::/:/bin/sh\n\
                          group:x:5:4294967295::/:/bin/sh\nmember:x:6:6::/:/bin/sh\n";
    const GROUP: &str = "root:x:0:\nweb:x:34:\nlogs:x:50:other,web\nzero:x:7:web\n1000:x:0:1000\n\
                         high:x:4294967295:member\n";

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
        check("web:", None, false, "33:34 [34, 90]");
        check("+33", None, true, "unable to find user +33: no matching entries in passwd file");
    }

    #[test]
    fn a_number_is_never_a_name() {
        check("1000", None, true, "1000:0 [0, 90]");
        check("01000", None, true, "1000:0 [0, 90]");
        check("web:1000", None, false, "33:1000 [90, 1000]");
        check("033", None, true, "33:34 [7, 34, 50, 90]");
    }

    #[test]
    fn refuses_ids_above_the_limit() {
        let refused = |what: &str, id: &str| format!("{what} {id} is above 2147483647, the highest allowed id");
        check("2147483647", None, true, "2147483647:0 [0, 90]");
        check("0:2147483647", None, true, "0:2147483647 [90, 2147483647]");
        for id in ["2147483648", "4294967295", "4294967296", "99999999999999999999"] {
            check(id, None, true, &refused("id", id));
            check(&format!("0:{id}"), None, true, &refused("id", id));
        }
        check("0", Some(u32::MAX), true, &refused("gid", "4294967295"));
        check("high", None, true, &refused("id", "2147483648"));
        check("none", None, true, &refused("id", "4294967295"));
        check("group", None, true, &refused("id", "4294967295"));
        check("member", None, true, &refused("id", "4294967295"));
        check("member", None, false, "6:6 [6, 90]");
        let spec = UserSpec { groups: vec![u32::MAX], ..Default::default() };
        let error = resolve(&spec, PASSWD, GROUP).unwrap_err().to_string();
        assert_eq!(error, refused("supplemental group", "4294967295"));
    }
}

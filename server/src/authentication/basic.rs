//! User names and passwords of a file: `password,user,uid` and, in one quoted field, groups.

use std::collections::HashMap;
use std::sync::Arc;

use api::base64;
use aws_lc_rs::constant_time;
use kinds::User;

use super::token_file::owner;
use super::{Authenticator, Credentials, Verdict, csv};
use crate::call::Peer;
use crate::request::head::RequestHead;

/// The users and passwords of a file.
pub struct PasswordFile {
    users: HashMap<String, (String, Arc<User>)>,
}

impl PasswordFile {
    /// Errors name the line, never the password.
    pub fn read(text: &str) -> Result<PasswordFile, csv::Error> {
        let mut users = HashMap::new();
        for record in csv::read(text)? {
            let line = record.line;
            let (password, user) = owner(record, "password")?;
            if users.insert(user.name.clone(), (password, user)).is_some() {
                return Err(csv::Error::Duplicate { line, what: "user" });
            }
        }
        Ok(PasswordFile { users })
    }

    fn user(&self, name: &str, password: &str) -> Option<Arc<User>> {
        let (stored, user) = self.users.get(name)?;
        constant_time::verify_slices_are_equal(stored.as_bytes(), password.as_bytes()).ok()?;
        Some(user.clone())
    }
}

pub(super) fn authenticate(auth: &Authenticator, _: &mut RequestHead, _: &Peer, credentials: &Credentials) -> Verdict {
    let Some(file) = &auth.config.passwords else { return Verdict::Unknown };
    let Some(encoded) = credentials.parameters_of("basic") else { return Verdict::Unknown };
    let decoded = base64::decode(encoded).ok().and_then(|bytes| String::from_utf8(bytes).ok());
    let user = decoded.as_deref().and_then(|text| text.split_once(':')).and_then(|(name, word)| file.user(name, word));
    user.map_or_else(|| Verdict::refused("invalid username/password combination"), Verdict::known)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn name_and_password_must_match() {
        let file = PasswordFile::read("secret,jane,7,devs\n").expect("a file");
        for (name, password, want) in [("jane", "secret", true), ("jane", "secre", false), ("joe", "secret", false)] {
            assert_eq!(file.user(name, password).is_some(), want, "{name} {password}");
        }
        let error = PasswordFile::read("secret,jane,7\nother,jane,8").err().map(|error| error.to_string());
        assert_eq!(error.as_deref(), Some("line 2: duplicate user"));
    }
}

//! Tokens of a file: `token,user,uid` and, in one quoted field, groups.

use std::collections::HashMap;
use std::sync::Arc;

use kinds::User;

use super::{TokenRequest, TokenVerdict, Verdict, csv};
use crate::authentication::Authenticator;
use crate::common::users::with_authenticated_group;

/// The users and tokens of a file.
pub struct TokenFile {
    users: HashMap<String, Arc<User>>,
}

impl TokenFile {
    /// Errors name the line, never the token.
    pub fn read(text: &str) -> Result<TokenFile, csv::Error> {
        let mut users = HashMap::new();
        for record in csv::read(text)? {
            let line = record.line;
            let (token, user) = owner(record, "token")?;
            if users.insert(token, user).is_some() {
                return Err(csv::Error::Duplicate { line, what: "token" });
            }
        }
        Ok(TokenFile { users })
    }
}

/// The secret of a record, and the user that it belongs to.
pub(super) fn owner(record: csv::Record, secret_name: &'static str) -> Result<(String, Arc<User>), csv::Error> {
    let (line, count) = (record.line, record.fields.len());
    let mut fields = record.fields.into_iter();
    let (Some(secret), Some(name), Some(uid)) = (fields.next(), fields.next(), fields.next()) else {
        return Err(csv::Error::Columns { line, secret: secret_name, count });
    };
    if secret.is_empty() || name.is_empty() {
        return Err(csv::Error::Empty { line, secret: secret_name });
    }
    let groups = fields.next().unwrap_or_default();
    let groups = groups.split(',').filter(|group| !group.is_empty()).map(str::to_string).collect();
    Ok((secret, with_authenticated_group(User { name, uid, groups, ..User::default() })))
}

pub(super) fn authenticate<'a>(auth: &'a Authenticator, request: TokenRequest<'a>) -> TokenVerdict<'a> {
    let found = auth.config.token_file.as_ref().and_then(|file| file.users.get(request.token));
    let verdict = found.map_or(Verdict::Unknown, |user| auth.config.for_any_audience(user.clone(), request.audiences));
    TokenVerdict::Now(verdict)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_have_their_groups() {
        let file = TokenFile::read("t1,jane,7,\"devs,ops\"\nt2,joe,8\n").expect("a file");
        assert_eq!(file.users["t1"].groups, ["devs", "ops", "system:authenticated"]);
        assert_eq!((file.users["t2"].name.as_str(), file.users["t2"].uid.as_str()), ("joe", "8"));
    }

    #[test]
    fn a_bad_line_is_named_without_its_token() {
        let cases = [
            ("a,b,c\nsecret,b\n", "line 2: at least 3 columns are needed (token, user name, user uid), there are 2"),
            (",b,c", "line 1: the token and the user name must not be empty"),
            ("secret,b,c\nsecret,d,e", "line 2: duplicate token"),
        ];
        for (text, want) in cases {
            assert_eq!(TokenFile::read(text).err().map(|error| error.to_string()).as_deref(), Some(want));
        }
    }
}

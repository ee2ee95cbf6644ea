//! Tokens of a file: `token,user,uid` and, in one quoted field, groups.

use std::collections::HashMap;
use std::sync::Arc;

use kinds::User;

use super::{TokenRequest, TokenVerdict, Verdict, csv};
use crate::authentication::Authenticator;
use crate::common::users::with_authenticated_group;

pub struct TokenFile {
    users: HashMap<String, Arc<User>>,
}

impl TokenFile {
    /// Errors name the line, never the token.
    pub fn read(text: &str) -> Result<TokenFile, String> {
        let mut users = HashMap::new();
        for record in csv::read(text)? {
            let (token, user) = owner(record.fields, "token").map_err(|why| format!("line {}: {why}", record.line))?;
            if users.insert(token, user).is_some() {
                return Err(format!("line {}: the token of an earlier line again", record.line));
            }
        }
        Ok(TokenFile { users })
    }
}

/// The secret of a record, and whose it is.
pub(super) fn owner(fields: Vec<String>, what: &str) -> Result<(String, Arc<User>), String> {
    let count = fields.len();
    let mut fields = fields.into_iter();
    let (Some(secret), Some(name), Some(uid)) = (fields.next(), fields.next(), fields.next()) else {
        return Err(format!("at least 3 columns are needed ({what}, user name, user uid), there are {count}"));
    };
    if secret.is_empty() || name.is_empty() {
        return Err(format!("the {what} and the user name must not be empty"));
    }
    let groups = fields.next().unwrap_or_default();
    let groups = groups.split(',').filter(|group| !group.is_empty()).map(str::to_string).collect();
    Ok((secret, with_authenticated_group(User { name, uid, groups, ..User::default() })))
}

pub fn authenticate<'a>(auth: &'a Authenticator, question: TokenRequest<'a>) -> TokenVerdict<'a> {
    let found = auth.config.token_file.as_ref().and_then(|file| file.users.get(question.token));
    let verdict = found.map_or(Verdict::Unknown, |user| auth.config.for_any_audience(user.clone(), question.audiences));
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
            ("secret,b,c\nsecret,d,e", "line 2: the token of an earlier line again"),
        ];
        for (text, want) in cases {
            assert_eq!(TokenFile::read(text).err().as_deref(), Some(want));
        }
    }
}

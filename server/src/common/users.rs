//! Well-known users and groups.

use std::sync::Arc;

use kinds::User;

pub(crate) const AUTHENTICATED: &str = "system:authenticated";
pub(crate) const UNAUTHENTICATED: &str = "system:unauthenticated";
/// Members may do everything before any authorizer is consulted: no configuration can lock all users out.
pub const MASTERS: &str = "system:masters";
/// The name of a user without credentials.
pub(crate) const ANONYMOUS: &str = "system:anonymous";

/// The identity under which the server writes for itself.
pub(crate) fn system_user() -> User {
    User {
        name: "system:apiserver".to_string(),
        uid: String::new(),
        groups: vec![MASTERS.to_string(), AUTHENTICATED.to_string()],
        extra: api::Map::new(),
    }
}

/// The user with the group that every authenticated user has.
pub(crate) fn with_authenticated_group(mut user: User) -> Arc<User> {
    let has_group = |group: &String| group == AUTHENTICATED || group == UNAUTHENTICATED;
    if user.name != ANONYMOUS && !user.groups.iter().any(has_group) {
        user.groups.push(AUTHENTICATED.to_string());
    }
    Arc::new(user)
}

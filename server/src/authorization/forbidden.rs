//! The messages of a 403, in upstream's words.

use api::status::{Details, Status};

use super::{Attributes, Reason};

pub(crate) fn forbidden(attributes: &Attributes<'_>, reason: &Reason) -> Status {
    let mut why = escape(&message(attributes));
    if !reason.is_empty() {
        why.push_str(&format!(": {reason}"));
    }
    if attributes.path.is_some() {
        let mut status = Status::new(403, "Forbidden", format!("forbidden: {why}"));
        status.details = Some(Details::default());
        return status;
    }
    Status::forbidden(attributes.group, attributes.resource, &attributes.name, &why)
}

fn message(attributes: &Attributes<'_>) -> String {
    let (user, verb) = (&attributes.user.name, attributes.verb);
    if let Some(path) = attributes.path {
        return format!("User {user:?} cannot {verb} path {path:?}");
    }
    let (resource, group) = (attributes.whole_resource(), attributes.group);
    let place = match attributes.namespace {
        "" => "at the cluster scope".to_string(),
        namespace => format!("in the namespace {namespace:?}"),
    };
    format!("User {user:?} cannot {verb} resource {resource:?} in API group {group:?} {place}")
}

/// Text of the client must not become markup if a browser renders the response.
fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use kinds::User;

    use super::*;

    #[test]
    fn refusals_have_upstreams_words() {
        let user = User { name: "jo".to_string(), ..User::default() };
        let check = |requested: &str, reason: Reason, want: &str| {
            assert_eq!(forbidden(&Attributes::parse(&user, requested), &reason).message, want);
        };
        let none = || Reason::None;
        check(
            "list pods@a",
            none(),
            r#"pods is forbidden: User "jo" cannot list resource "pods" in API group "" in the namespace "a""#,
        );
        check(
            "get apps:deployments/scale@a d",
            none(),
            r#"deployments.apps "d" is forbidden: User "jo" cannot get resource "deployments/scale" in API group "apps" in the namespace "a""#,
        );
        check("post /x", none(), r#"forbidden: User "jo" cannot post path "/x""#);
        check("get /<a>", none(), r#"forbidden: User "jo" cannot get path "/&lt;a&gt;""#);
        check(
            "get nodes n",
            Reason::Text("node: no".into()),
            r#"nodes "n" is forbidden: User "jo" cannot get resource "nodes" in API group "" at the cluster scope: node: no"#,
        );
    }
}

//! Delegated authorization: the API server decides, by a SubjectAccessReview.

use api::status::Status;
use api::{Tree, tree};

use crate::authentication::User;
use crate::cluster::Cluster;
use crate::greetings::{GROUP, RESOURCE, VERSION};

const REVIEWS: &str = "/apis/authorization.k8s.io/v1/subjectaccessreviews";

/// What a request is about.
pub(crate) enum Attributes<'a> {
    Resource { verb: &'a str, namespace: &'a str, name: &'a str },
    Path { verb: &'a str, path: &'a str },
}

/// An error unless the user may do this.
pub(crate) async fn check(cluster: &Cluster, user: &User, attributes: &Attributes<'_>) -> Result<(), Status> {
    let review = review(user, attributes);
    let decided = cluster.post(REVIEWS, &review).await.map_err(Status::internal)?;
    if decided.bool("status.allowed") { Ok(()) } else { Err(denial(user, attributes, decided.str("status.reason"))) }
}

fn review(user: &User, attributes: &Attributes<'_>) -> Tree {
    let strings = |list: &[String]| Tree::List(list.iter().map(|text| Tree::from(text.as_str())).collect());
    let mut extra = Tree::map_new();
    user.extra.iter().for_each(|(key, values)| extra.set(key, strings(values)));
    let mut spec = tree! {
        "user" => user.name.as_str(), "uid" => user.uid.as_str(), "groups" => strings(&user.groups), "extra" => extra,
    };
    match attributes {
        Attributes::Resource { verb, namespace, name } => spec.set(
            "resourceAttributes",
            tree! {
                "verb" => *verb, "namespace" => *namespace, "name" => *name,
                "group" => GROUP, "version" => VERSION, "resource" => RESOURCE,
            },
        ),
        Attributes::Path { verb, path } => {
            spec.set("nonResourceAttributes", tree! { "verb" => *verb, "path" => *path });
        }
    }
    tree! { "kind" => "SubjectAccessReview", "apiVersion" => "authorization.k8s.io/v1", "spec" => spec }
}

fn denial(user: &User, attributes: &Attributes<'_>, reason: &str) -> Status {
    let user = &user.name;
    let reason = if reason.is_empty() { String::new() } else { format!(": {reason}") };
    match attributes {
        Attributes::Resource { verb, namespace, name } => {
            let place = match *namespace {
                "" => " at the cluster scope".to_string(),
                namespace => format!(" in the namespace {namespace:?}"),
            };
            let what = format!("User {user:?} cannot {verb} resource {RESOURCE:?} in API group {GROUP:?}{place}");
            Status::forbidden(GROUP, RESOURCE, name, format!("{what}{reason}"))
        }
        Attributes::Path { verb, path } => {
            Status::forbidden("", "", "", format!("User {user:?} cannot {verb} path {path:?}{reason}"))
        }
    }
}

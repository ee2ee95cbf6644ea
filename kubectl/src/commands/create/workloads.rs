//! Deployments, namespaces and service accounts.

use api::{Tree, list, tree};

use super::{COMMON, finish, name, require};
use crate::command::Command;
use crate::commands::common::{DRY_RUN, VALIDATE};
use crate::context::Context;
use crate::error::{Result, message};
use crate::flags::{Flag, Kind, typed};
use crate::print::PRINT;

const DEPLOYMENT_FLAGS: &[Flag] = &[
    typed("image", '\0', Kind::Slice, "", "Image of a container; can be repeated."),
    typed("port", '\0', Kind::Int32, "-1", "The port of the container."),
    typed("replicas", 'r', Kind::Int32, "1", "How many pods to create."),
];

pub(crate) static DEPLOYMENT: Command = Command {
    name: "deployment",
    aliases: &["deploy"],
    usage: "NAME --image=image -- [COMMAND] [args...]",
    short: "Create a deployment with the specified name",
    flags: &[DEPLOYMENT_FLAGS, COMMON, DRY_RUN, VALIDATE, PRINT],
    run: Some(|context| Box::pin(async move { finish(context, deployment(context)?).await })),
    ..Command::EMPTY
};

pub(crate) static NAMESPACE: Command = Command {
    name: "namespace",
    aliases: &["ns"],
    usage: "NAME [--dry-run=server|client|none]",
    short: "Create a namespace with the specified name",
    flags: &[COMMON, DRY_RUN, VALIDATE, PRINT],
    run: Some(|context| {
        Box::pin(async move {
            let object = tree! { "apiVersion" => "v1", "kind" => "Namespace", "metadata" => tree! { "name" => name(context)? }, "spec" => tree! {}, "status" => tree! {} };
            finish(context, object).await
        })
    }),
    ..Command::EMPTY
};

pub(crate) static SERVICE_ACCOUNT: Command = Command {
    name: "serviceaccount",
    aliases: &["sa"],
    usage: "NAME [--dry-run=server|client|none]",
    short: "Create a service account with the specified name",
    flags: &[COMMON, DRY_RUN, VALIDATE, PRINT],
    run: Some(|context| {
        Box::pin(async move {
            let metadata = tree! { "name" => name(context)? };
            finish(context, tree! { "apiVersion" => "v1", "kind" => "ServiceAccount", "metadata" => metadata }).await
        })
    }),
    ..Command::EMPTY
};

/// The name of an image's container: its last part without tag and digest, as a valid name.
pub(crate) fn container_name(image: &str) -> String {
    let last = image.rsplit('/').next().unwrap_or_default();
    let name = last.split('@').next().unwrap_or_default().split(':').next().unwrap_or_default();
    let name: String =
        name.to_lowercase().chars().map(|char| if char.is_ascii_alphanumeric() { char } else { '-' }).collect();
    let name = name.trim_matches('-').to_string();
    name.chars().take(63).collect()
}

fn deployment(context: &Context) -> Result<Tree> {
    require(context, &["image"])?;
    let (name, flags) = (name(context)?, &context.flags);
    let images = flags.list("image");
    let command: Vec<Tree> = context.args.iter().skip(1).map(Tree::from).collect();
    if images.len() > 1 && !command.is_empty() {
        return message("cannot specify multiple --image options and command");
    }
    let mut containers: Vec<Tree> = Vec::new();
    for image in &images {
        let mut container =
            tree! { "name" => unique(&containers, &container_name(image)), "image" => image, "resources" => tree! {} };
        if flags.int("port") >= 0 {
            container.set("ports", list![tree! { "containerPort" => flags.int("port") }]);
        }
        if !command.is_empty() {
            container.set("command", command.clone());
        }
        containers.push(container);
    }
    let labels = tree! { "app" => &name };
    Ok(tree! {
        "apiVersion" => "apps/v1", "kind" => "Deployment",
        "metadata" => tree! { "name" => &name, "labels" => labels.clone() },
        "spec" => tree! {
            "replicas" => flags.int("replicas"),
            "selector" => tree! { "matchLabels" => labels.clone() },
            "strategy" => tree! {},
            "template" => tree! {
                "metadata" => tree! { "labels" => labels },
                "spec" => tree! { "containers" => containers },
            },
        },
        "status" => tree! {},
    })
}

/// Two containers of one image get different names.
fn unique(containers: &[Tree], name: &str) -> String {
    let is_taken = |name: &str| containers.iter().any(|container| container.str("name") == name);
    if !is_taken(name) {
        return name.to_string();
    }
    let suffix =
        |text: &str| format!("{:05x}", containers.len() + text.len()).chars().rev().take(5).collect::<String>();
    format!("{name}-{}", suffix(name))
}

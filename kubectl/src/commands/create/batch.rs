//! Jobs and cron jobs.

use api::{Tree, list, tree};

use super::{COMMON, finish, name, require};
use crate::command::Command;
use crate::commands::common::{DRY_RUN, VALIDATE};
use crate::context::Context;
use crate::error::{Result, message};
use crate::flags::{Flag, text};
use crate::objects::get_object;
use crate::print::PRINT;

const JOB_FLAGS: &[Flag] = &[
    text("from", '\0', "", "The object to create the job from, such as cronjob/name."),
    text("image", '\0', "", "Image of the container."),
];

pub(crate) static JOB: Command = Command {
    name: "job",
    usage: "NAME --image=image [--from=cronjob/name] -- [COMMAND] [args...]",
    short: "Create a job with the specified name",
    flags: &[JOB_FLAGS, COMMON, DRY_RUN, VALIDATE, PRINT],
    run: Some(|context| Box::pin(async move { finish(context, job(context).await?).await })),
    ..Command::EMPTY
};

const CRONJOB_FLAGS: &[Flag] = &[
    text("image", '\0', "", "Image of the container."),
    text("restart", '\0', "", "The restart policy of the pods: OnFailure or Never."),
    text("schedule", '\0', "", "When the job runs, in the format of cron."),
];

pub(crate) static CRONJOB: Command = Command {
    name: "cronjob",
    aliases: &["cj"],
    usage: "NAME --image=image --schedule='0/5 * * * ?' -- [COMMAND] [args...] [flags]",
    short: "Create a cron job with the specified name",
    flags: &[CRONJOB_FLAGS, COMMON, DRY_RUN, VALIDATE, PRINT],
    run: Some(|context| Box::pin(async move { finish(context, cronjob(context)?).await })),
    ..Command::EMPTY
};

fn pod_spec(context: &Context, name: &str, restart: &str) -> Tree {
    let mut container = tree! { "name" => name, "image" => context.flags.str("image"), "resources" => tree! {} };
    let command: Vec<Tree> = context.args.iter().skip(1).map(Tree::from).collect();
    if !command.is_empty() {
        container.set("command", command);
    }
    tree! { "containers" => list![container], "restartPolicy" => restart }
}

async fn job(context: &Context) -> Result<Tree> {
    let (name, flags) = (name(context)?, &context.flags);
    let (image, from) = (flags.str("image"), flags.str("from"));
    if image.is_empty() == from.is_empty() {
        return message("either --image or --from must be specified");
    }
    if !from.is_empty() && context.args.len() > 1 {
        return message("cannot specify --from and command");
    }
    let mut job = tree! { "apiVersion" => "batch/v1", "kind" => "Job", "metadata" => tree! { "name" => &name } };
    if from.is_empty() {
        let template = tree! { "metadata" => tree! {}, "spec" => pod_spec(context, &name, "Never") };
        job.set("spec", tree! { "template" => template });
        job.set("status", tree! {});
        return Ok(job);
    }
    let Some((kind, source)) = from.split_once('/') else {
        return message(format!("from must be in the form of cronjob/name, got {from:?}"));
    };
    let resource = context.resolve(kind).await?;
    let cron = get_object(context, &resource, &context.namespace()?.0, source, "").await?;
    if resource.kind != "CronJob" {
        return message(format!("unknown object type *{}.{}", resource.version, resource.kind));
    }
    let metadata = job.child("metadata");
    let mut annotations = cron.at("spec.jobTemplate.metadata.annotations").clone();
    if annotations.is_null() {
        annotations = tree! {};
    }
    annotations.set("cronjob.kubernetes.io/instantiate", "manual");
    metadata.set("annotations", annotations);
    if cron.at("spec.jobTemplate.metadata").has("labels") {
        metadata.set("labels", cron.at("spec.jobTemplate.metadata.labels").clone());
    }
    metadata.set(
        "ownerReferences",
        list![tree! {
            "apiVersion" => "batch/v1", "kind" => "CronJob", "name" => cron.str("metadata.name"),
            "uid" => cron.str("metadata.uid"), "controller" => true,
        }],
    );
    job.set("spec", cron.at("spec.jobTemplate.spec").clone());
    job.set("status", tree! {});
    Ok(job)
}

fn cronjob(context: &Context) -> Result<Tree> {
    require(context, &["image", "schedule"])?;
    let (name, flags) = (name(context)?, &context.flags);
    let restart = if flags.str("restart").is_empty() { "OnFailure" } else { flags.str("restart") };
    let template = tree! { "metadata" => tree! {}, "spec" => pod_spec(context, &name, restart) };
    Ok(tree! {
        "apiVersion" => "batch/v1", "kind" => "CronJob", "metadata" => tree! { "name" => &name },
        "spec" => tree! {
            "schedule" => flags.str("schedule"),
            "jobTemplate" => tree! { "metadata" => tree! { "name" => &name }, "spec" => tree! { "template" => template } },
        },
        "status" => tree! {},
    })
}

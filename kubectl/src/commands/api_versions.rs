//! `api-versions`.

use crate::command::Command;
use crate::context::Context;
use crate::error::Result;

pub(crate) static API_VERSIONS: Command = Command {
    name: "api-versions",
    short: "Print the supported API versions on the server, in the form of \"group/version\"",
    run: Some(|context| Box::pin(run(context))),
    group: "Other Commands",
    ..Command::EMPTY
};

async fn run(context: &Context) -> Result<()> {
    if !context.args.is_empty() {
        return context.usage_error(&format!("unexpected arguments: [{}]", context.args.join(" ")));
    }
    let mapper = context.fresh_mapper().await?;
    let mut versions: Vec<String> = Vec::new();
    for group in mapper.groups() {
        let name = |version: &str| {
            if group.name.is_empty() { version.to_string() } else { format!("{}/{version}", group.name) }
        };
        versions.extend(group.versions.iter().map(|(version, _)| name(version)));
    }
    versions.sort();
    versions.iter().try_for_each(|version| context.print(&format!("{version}\n")))
}

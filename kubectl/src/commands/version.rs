//! `version`.

use api::{Tree, tree, yaml};

use crate::command::Command;
use crate::context::{CLIENT_VERSION as CLIENT, Context};
use crate::error::{Result, message};
use crate::flags::{Flag, switch, text};
use crate::transport::Request;

const FLAGS: &[Flag] = &[
    switch("client", '\0', "Print the version of this client only, without the server."),
    text("output", 'o', "", "One of 'yaml' or 'json'."),
];

pub(crate) static VERSION: Command = Command {
    name: "version",
    usage: "",
    short: "Print the client and server version information",
    flags: &[FLAGS],
    run: Some(|context| Box::pin(run(context))),
    group: "Other Commands",
    ..Command::EMPTY
};

const KUSTOMIZE: &str = "v5.7.1";

fn client_info() -> Tree {
    tree! {
        "major" => "1", "minor" => "37", "gitVersion" => CLIENT, "gitCommit" => "", "gitTreeState" => "clean",
        "buildDate" => "1970-01-01T00:00:00Z", "goVersion" => "", "compiler" => "rustc",
        "platform" => concat!("linux/", "amd64"),
    }
}

async fn run(context: &Context) -> Result<()> {
    if !context.args.is_empty() {
        return message(format!("extra arguments: [{}]", context.args.join(" ")));
    }
    let output = context.flags.str("output");
    if !matches!(output, "" | "json" | "yaml") {
        return message("--output must be 'yaml' or 'json'");
    }
    let mut versions = tree! { "clientVersion" => client_info(), "kustomizeVersion" => KUSTOMIZE };
    let mut failure = None;
    if !context.flags.bool("client") {
        match server(context).await {
            Ok(server) => versions.set("serverVersion", server),
            Err(error) => failure = Some(error),
        }
    }
    match output {
        "json" => {
            let mut text = api::json::encode_pretty(&versions, None);
            if !text.ends_with(b"\n") {
                text.push(b'\n');
            }
            context.write(&text)?;
        }
        "yaml" => context.write(&yaml::encode(&versions))?,
        _ => {
            context.print(&format!("Client Version: {CLIENT}\nKustomize Version: {KUSTOMIZE}\n"))?;
            if versions.has("serverVersion") {
                context.print(&format!("Server Version: {}\n", versions.str("serverVersion.gitVersion")))?;
                warn_about_skew(context, versions.at("serverVersion"));
            }
        }
    }
    failure.map_or(Ok(()), Err)
}

/// The version of the server.
pub(crate) async fn server(context: &Context) -> Result<Tree> {
    context.client().await?.tree(&Request::get("/version").query("timeout", "32s")).await
}

fn warn_about_skew(context: &Context, server: &Tree) {
    let minor = server.str("minor").trim_end_matches('+').parse::<i64>().unwrap_or(37);
    let major = server.str("major");
    if major != "1" || !(36..=38).contains(&minor) {
        context.note(&format!(
            "WARNING: version difference between client (1.37) and server ({major}.{minor}) exceeds the supported minor \
             version skew of +/-1"
        ));
    }
}

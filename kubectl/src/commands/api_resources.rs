//! `api-resources`.

use api::{Tree, tree};

use crate::command::Command;
use crate::context::Context;
use crate::discovery::Resource;
use crate::error::{Result, message};
use crate::flags::{Flag, Kind, switch, switch_on, text, typed};
use crate::print::{TabWriter, pretty};

const FLAGS: &[Flag] = &[
    text("api-group", '\0', "", "Only resources of this API group."),
    switch("cached", '\0', "Use the cached list of resources if there is one."),
    typed("categories", '\0', Kind::Slice, "", "Only resources of these categories."),
    switch_on("namespaced", '\0', "If false, only resources without a namespace; if true, only those with one."),
    switch("no-headers", '\0', "Do not print the names of columns."),
    text("output", 'o', "", "Output format. One of: (json, yaml, kyaml, name, wide)."),
    text("sort-by", '\0', "", "Sort by name or kind."),
    typed("verbs", '\0', Kind::Slice, "", "Only resources with all of these verbs."),
];

pub(crate) static API_RESOURCES: Command = Command {
    name: "api-resources",
    short: "Print the supported API resources on the server",
    flags: &[FLAGS],
    run: Some(|context| Box::pin(run(context))),
    group: "Other Commands",
    ..Command::EMPTY
};

async fn run(context: &Context) -> Result<()> {
    let flags = &context.flags;
    if !context.args.is_empty() {
        return context.usage_error(&format!("unexpected arguments: [{}]", context.args.join(" ")));
    }
    let output = flags.str("output");
    if !matches!(output, "" | "wide" | "name" | "json" | "yaml" | "kyaml") {
        return message(format!("--output {output} is not available"));
    }
    if !matches!(flags.str("sort-by"), "" | "name" | "kind") {
        return message("--sort-by accepts only name or kind");
    }
    let mapper = if flags.bool("cached") { context.mapper().await? } else { context.fresh_mapper().await? };
    let mut all: Vec<&Resource> = mapper.preferred().into_iter().filter(|one| is_shown(context, one)).collect();
    all.sort_by(|a, b| match flags.str("sort-by") {
        "name" => a.plural.cmp(&b.plural),
        "kind" => a.kind.cmp(&b.kind),
        _ => (&a.group, &a.plural).cmp(&(&b.group, &b.plural)),
    });
    match output {
        "name" => all.iter().try_for_each(|one| context.print(&format!("{}\n", one.qualified()))),
        "json" => context.write(&pretty(&list(&all))),
        "yaml" => context.write(&api::yaml::encode(&list(&all))),
        "kyaml" => context.print(&crate::print::encode_kyaml(&list(&all))),
        _ => table(context, &all, output == "wide"),
    }
}

fn is_shown(context: &Context, one: &Resource) -> bool {
    let flags = &context.flags;
    !one.verbs.is_empty()
        && (!flags.changed("api-group") || flags.str("api-group") == one.group)
        && (!flags.changed("namespaced") || flags.bool("namespaced") == one.is_namespaced)
        && flags.list("verbs").iter().all(|verb| one.has_verb(verb))
        && flags.list("categories").iter().all(|category| one.categories.iter().any(|other| other == category))
}

fn table(context: &Context, all: &[&Resource], is_wide: bool) -> Result<()> {
    let mut tabs = TabWriter::default();
    let texts = |cells: &[&str]| cells.iter().map(|cell| cell.to_string()).collect::<Vec<_>>();
    if !context.flags.bool("no-headers") {
        let mut header = texts(&["NAME", "SHORTNAMES", "APIVERSION", "NAMESPACED", "KIND"]);
        if is_wide {
            header.extend(texts(&["VERBS", "CATEGORIES"]));
        }
        tabs.line(header);
    }
    for one in all {
        let namespaced = one.is_namespaced.to_string();
        let mut cells = texts(&[&one.plural, &one.short_names.join(","), &one.api_version(), &namespaced, &one.kind]);
        if is_wide {
            cells.extend([one.verbs.join(","), one.categories.join(",")]);
        }
        tabs.line(cells);
    }
    context.print(&tabs.flush())
}

fn list(all: &[&Resource]) -> Tree {
    let texts = |list: &[api::Str]| Tree::List(list.iter().map(|text| Tree::Str(text.clone())).collect());
    let item = |one: &&Resource| {
        let mut item = tree! {
            "name" => &one.plural, "singularName" => &one.singular, "namespaced" => one.is_namespaced,
            "kind" => &one.kind, "verbs" => texts(&one.verbs), "version" => &one.version,
        };
        for (key, list) in [("shortNames", &one.short_names), ("categories", &one.categories)] {
            if !list.is_empty() {
                item.set(key, texts(list));
            }
        }
        if !one.group.is_empty() {
            item.set("group", &one.group);
        }
        item
    };
    tree! {
        "kind" => "APIResourceList", "apiVersion" => "v1", "groupVersion" => "",
        "resources" => all.iter().map(item).collect::<Vec<_>>(),
    }
}

//! `explain`: the documentation of types, from the server's OpenAPI v3 documents.

use std::collections::BTreeSet;

use api::Tree;

use crate::command::Command;
use crate::context::Context;
use crate::discovery::Resource;
use crate::error::{Error, Result, message};
use crate::flags::{Flag, Kind, switch, text, typed};
use crate::transport::Request;

const FLAGS: &[Flag] = &[
    text("api-version", '\0', "", "The version of the type, as group/version."),
    typed("max-depth", '\0', Kind::Int, "0", "How deep fields are listed with --recursive; 0 is without a limit."),
    text("output", 'o', "plaintext", "The format, plaintext or plaintext-openapiv2."),
    switch("recursive", '\0', "List the fields of fields."),
];

pub(crate) static EXPLAIN: Command = Command {
    name: "explain",
    usage: "TYPE [--recursive=FALSE|TRUE] [--api-version=api-version-group] [-o|--output=plaintext|plaintext-openapiv2]",
    short: "Get documentation for a resource",
    flags: &[FLAGS],
    run: Some(|context| Box::pin(run(context))),
    group: "Basic Commands (Intermediate)",
    ..Command::EMPTY
};

/// References in each other; schemas may refer to themselves.
const MAX_DEPTH: usize = 64;

async fn run(context: &Context) -> Result<()> {
    let flags = &context.flags;
    let [path] = context.args.as_slice() else {
        return message(if context.args.is_empty() {
            "You must specify the type of resource to explain. Use \"kubectl api-resources\" for a complete list of supported resources.".to_string()
        } else {
            "We accept only this format: explain RESOURCE".to_string()
        });
    };
    if !matches!(flags.str("output"), "plaintext" | "plaintext-openapiv2") {
        return message(format!("unrecognized format: {}", flags.str("output")));
    }
    let (resource, fields) = resolve(context, path.trim_end_matches('.')).await?;
    let prefix = if resource.group.is_empty() {
        format!("/openapi/v3/api/{}", resource.version)
    } else {
        format!("/openapi/v3/apis/{}", resource.api_version())
    };
    let index = context.client().await?.tree(&Request::get("/openapi/v3")).await?;
    let key = prefix.trim_start_matches("/openapi/v3/");
    let Some(url) = index.at("paths").get(key).map(|entry| entry.str("serverRelativeURL").to_string()) else {
        return message(format!("couldn't find resource for {}", key));
    };
    let document = context.client().await?.tree(&Request::get(url)).await?;
    let page = Page { document: &document, is_recursive: flags.bool("recursive"), max_depth: flags.int("max-depth") };
    context.print(&page.render(context, &resource, &fields)?)
}

/// The resource of `deployments.apps.spec`, and the path of fields in it.
async fn resolve(context: &Context, text: &str) -> Result<(Resource, Vec<String>)> {
    let parts: Vec<&str> = text.split('.').collect();
    let version = context.flags.str("api-version");
    // The longest name first that is a resource with its group.
    let mapper = context.mapper().await?;
    let longest = (2..=parts.len()).rev().find_map(|count| {
        let name = parts[..count].join(".");
        let found = mapper.all().find(|one| !one.group.is_empty() && format!("{}.{}", one.plural, one.group) == name);
        found.map(|found| (found.clone(), count))
    });
    let (mut resource, count) = match longest {
        Some(found) => found,
        None => (context.resolve(parts[0]).await.map_err(|error| Error::Plain(error.to_string()))?, 1),
    };
    if !version.is_empty() {
        let found = mapper.all().find(|one| one.plural == resource.plural && one.api_version() == version);
        resource = found.cloned().ok_or_else(|| {
            Error::new(format!("couldn't find resource for \"{version}, Resource={}\"", resource.plural))
        })?;
    }
    Ok((resource, parts[count..].iter().map(|part| part.to_string()).collect()))
}

/// A page of documentation.
struct Page<'a> {
    document: &'a Tree,
    is_recursive: bool,
    max_depth: i64,
}

impl<'a> Page<'a> {
    fn render(&self, context: &Context, resource: &Resource, fields: &[String]) -> Result<String> {
        let is_it = |schema: &Tree| {
            schema.at("x-kubernetes-group-version-kind").as_list().is_some_and(|list| {
                list.iter().any(|one| {
                    one.str("group") == resource.group
                        && one.str("version") == resource.version
                        && one.str("kind") == resource.kind
                })
            })
        };
        let schemas = self.document.map("components.schemas");
        let Some((_, schema)) = schemas.iter().find(|(_, schema)| is_it(schema)) else {
            return message(format!(
                "GVK {}, Kind={} not found in OpenAPI schema",
                resource.api_version(),
                resource.kind
            ));
        };
        let mut text = String::new();
        if !resource.group.is_empty() {
            text.push_str(&format!("GROUP:      {}\n", resource.group));
        }
        text.push_str(&format!("KIND:       {}\nVERSION:    {}\n\n", resource.kind, resource.version));
        let Some(body) = self.output(schema, fields, 0) else {
            context.print(&text)?;
            return message(format!(
                "field {} does not exist",
                api::field::go_quote(fields.last().map_or("", String::as_str))
            ));
        };
        text.push_str(&body);
        text.push('\n');
        Ok(text)
    }

    fn resolved(&self, schema: &'a Tree) -> &'a Tree {
        let name = schema.get("$ref").and_then(Tree::as_str).and_then(|text| text.rsplit('/').next());
        name.and_then(|name| self.document.map("components.schemas").get(name)).unwrap_or(schema)
    }

    fn output(&self, schema: &'a Tree, fields: &[String], depth: usize) -> Option<String> {
        if depth > MAX_DEPTH {
            return None;
        }
        let resolved = self.resolved(schema);
        let Some((first, rest)) = fields.split_first() else {
            let description = self.description(resolved, 0);
            let description = if description.is_empty() { "<empty>".to_string() } else { description };
            let mut text = format!("DESCRIPTION:\n{}\n", indent(&wrap(&description, 76), 4));
            let list = self.field_list(resolved, 1, &BTreeSet::new());
            if !list.is_empty() {
                text.push_str(&format!("FIELDS:\n{list}"));
            }
            return Some(text);
        };
        if let Some(inner) = resolved.at("properties").get(first) {
            let head = if rest.is_empty() {
                format!("FIELD: {first} <{}>\n{}\n\n", self.type_of(inner, 0), long_enum(inner))
            } else {
                String::new()
            };
            return self.output(inner, rest, depth + 1).map(|text| format!("{head}{text}"));
        }
        if resolved.has("items") {
            return self.output(resolved.at("items"), fields, depth + 1);
        }
        if resolved.at("additionalProperties").as_map().is_some() {
            return self.output(resolved.at("additionalProperties"), fields, depth + 1);
        }
        resolved.list("allOf").iter().find_map(|one| self.output(one, fields, depth + 1))
    }

    fn description(&self, schema: &'a Tree, depth: usize) -> String {
        let schema = self.resolved(schema);
        let mut text = String::new();
        if depth > MAX_DEPTH {
            return text;
        }
        if !schema.str("description").is_empty() {
            text.push_str(&format!("{}\n", schema.str("description")));
        }
        for one in schema.list("allOf") {
            text.push_str(&self.description(one, depth + 1));
        }
        for key in ["items", "additionalProperties"] {
            if schema.at(key).as_map().is_some() {
                text.push_str(&self.description(schema.at(key), depth + 1));
            }
        }
        text
    }

    fn type_of(&self, schema: &'a Tree, depth: usize) -> String {
        if depth > MAX_DEPTH {
            return "Object".to_string();
        }
        if schema.has("items") {
            return format!("[]{}", self.type_of(schema.at("items"), depth + 1));
        }
        if schema.at("additionalProperties").as_map().is_some() {
            return format!("map[string]{}", self.type_of(schema.at("additionalProperties"), depth + 1));
        }
        if let [only] = schema.list("allOf")
            && !schema.has("properties")
        {
            return self.type_of(only, depth + 1);
        }
        let name = schema.get("$ref").and_then(Tree::as_str);
        let kind = if name.is_some() { self.resolved(schema).str("type") } else { schema.str("type") };
        match (name, kind) {
            (Some(name), "" | "object") => name.rsplit(['/', '.']).next().unwrap_or("Object").to_string(),
            (_, "" | "object") => "Object".to_string(),
            (_, kind) => kind.to_string(),
        }
    }

    fn field_list(&self, schema: &'a Tree, level: usize, seen: &BTreeSet<&str>) -> String {
        let mut seen = seen.clone();
        if let Some(name) = schema.get("$ref").and_then(Tree::as_str)
            && !seen.insert(name)
        {
            return String::new();
        }
        if level > MAX_DEPTH {
            return String::new();
        }
        let resolved = self.resolved(schema);
        let mut text = String::new();
        for (name, inner) in resolved.map("properties").iter() {
            text.push_str(&self.field(name, inner, resolved, level));
            if self.is_recursive
                && (self.max_depth == 0 || i64::try_from(level).is_ok_and(|level| level < self.max_depth))
            {
                text.push_str(&self.field_list(inner, level + 1, &seen));
            }
        }
        resolved.list("allOf").iter().for_each(|one| text.push_str(&self.field_list(one, level, &seen)));
        for key in ["items", "additionalProperties"] {
            if resolved.at(key).as_map().is_some() {
                text.push_str(&self.field_list(resolved.at(key), level, &seen));
            }
        }
        text
    }

    fn field(&self, name: &str, inner: &'a Tree, parent: &Tree, level: usize) -> String {
        let pad = "  ".repeat(level);
        let is_required = parent.list("required").iter().any(|one| one.as_str() == Some(name));
        let mut text =
            format!("{pad}{name}\t<{}>{}", self.type_of(inner, 0), if is_required { " -required-" } else { "" });
        let values = inner.list("enum");
        if !values.is_empty() {
            let shown: Vec<String> = values.iter().take(4).map(enum_text).collect();
            text.push_str(&format!(
                "\n{pad}enum: {}{}",
                shown.join(", "),
                if values.len() > 4 { ", ...." } else { "" }
            ));
        }
        text.push('\n');
        if !self.is_recursive {
            let description = inner.str("description");
            let description = if description.is_empty() { "<no description>" } else { description };
            text.push_str(&format!("{}\n\n", indent(&wrap(description, 78 - 2 * level), 2 * level + 2)));
        }
        text
    }
}

fn enum_text(value: &Tree) -> String {
    match value.as_str() {
        Some("") => "\"\"".to_string(),
        Some(text) => text.to_string(),
        None => String::from_utf8_lossy(&api::json::encode(value, None)).into_owned(),
    }
}

fn long_enum(schema: &Tree) -> String {
    let values = schema.list("enum");
    if values.is_empty() {
        return String::new();
    }
    format!("ENUM:{}", values.iter().map(|value| format!("\n    {}", enum_text(value))).collect::<String>())
}

fn indent(text: &str, count: usize) -> String {
    let pad = " ".repeat(count);
    text.split('\n').map(|line| format!("{pad}{line}")).collect::<Vec<_>>().join("\n")
}

/// Lines of words, at most this long; line feeds stay.
fn wrap(text: &str, width: usize) -> String {
    let lines = text.split('\n').map(|line| {
        let (mut out, mut length) = (String::new(), 0);
        for word in line.split(' ').filter(|word| !word.is_empty()) {
            let size = word.chars().count();
            if length > 0 && length + 1 + size > width {
                out.push('\n');
                length = 0;
            } else if length > 0 {
                out.push(' ');
                length += 1;
            }
            out.push_str(word);
            length += size;
        }
        out
    });
    lines.collect::<Vec<_>>().join("\n")
}

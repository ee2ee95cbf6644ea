//! `config view`.

use api::{base64, yaml};

use super::load;
use crate::context::Context;
use crate::error::{Error, Result, message};
use crate::kubeconfig::{Config, PATH_FIELDS, Section};
use crate::print::Printer;

const SECRETS: [(Section, &str, &str); 7] = [
    (Section::Users, "client-certificate-data", "DATA+OMITTED"),
    (Section::Users, "client-key-data", "DATA+OMITTED"),
    (Section::Clusters, "certificate-authority-data", "DATA+OMITTED"),
    (Section::Users, "token", "REDACTED"),
    (Section::Users, "password", "REDACTED"),
    (Section::Users, "id-token", "REDACTED"),
    (Section::Users, "refresh-token", "REDACTED"),
];

pub(super) fn view(context: &Context) -> Result<()> {
    let flags = &context.flags;
    if !flags.bool("merge") && !context.paths().is_explicit() {
        return message("if merge==false a precise file must be specified");
    }
    let mut config = load(context)?;
    if flags.bool("minify") {
        minify(context, &mut config)?;
    }
    if flags.bool("flatten") {
        flatten(&mut config)?;
    }
    if !flags.bool("raw") && !flags.bool("flatten") {
        for ((section, _), entry) in &mut config.entries {
            for (_, field, text) in SECRETS.iter().filter(|(of, ..)| of == section) {
                if !entry.value.str(field).is_empty() {
                    entry.value.set(field, *text);
                }
            }
        }
    }
    let object = config.to_tree();
    let printer = Printer::new(context, false)?;
    if printer.is_human() { context.write(&yaml::encode(&object)) } else { printer.print(context, &object) }
}

fn minify(context: &Context, config: &mut Config) -> Result<()> {
    if !context.flags.str("context").is_empty() {
        config.current_context = context.flags.str("context").to_string();
    }
    if config.current_context.is_empty() {
        return message("current-context must exist in order to minify");
    }
    let name = config.current_context.clone();
    let Some(entry) = config.get(Section::Contexts, &name).cloned() else {
        return message(format!("cannot locate context {name}"));
    };
    config.entries.retain(|(section, key), _| match section {
        Section::Contexts => *key == name,
        Section::Clusters => key == entry.str("cluster"),
        Section::Users => key == entry.str("user"),
    });
    Ok(())
}

fn flatten(config: &mut Config) -> Result<()> {
    for ((section, _), entry) in &mut config.entries {
        for (_, field) in PATH_FIELDS.iter().filter(|(of, field)| of == section && *field != "tokenFile") {
            let path = entry.value.str(field).to_string();
            if !path.is_empty() {
                let bytes = std::fs::read(&path)
                    .map_err(|error| Error::new(format!("open {path}: {}", crate::error::io_text(&error))))?;
                entry.value.remove(field);
                entry.value.set(&format!("{field}-data"), base64::encode(&bytes));
            }
        }
    }
    Ok(())
}

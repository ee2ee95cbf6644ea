//! Server blocks: their zones, and the plugins in them.

use super::plugins::{self, Context};
use super::syntax::{Block, Directive, Line};
use super::values::ValueError;
use super::{CorefileError, Problem, ServerBlock, values};
use crate::message::Name;

/// Reads a block into server blocks, one for each port.
pub(super) fn read(block: &Block, default_port: u16, blocks: &mut Vec<ServerBlock>, errors: &mut Vec<CorefileError>) {
    let zones = zones(&block.keys, default_port, errors);
    let mut server = ServerBlock { zones: zones.iter().map(|(zone, _)| zone.clone()).collect(), ..Default::default() };
    for directive in &block.directives {
        if let Err(problem) = plugin(directive, &mut server, block) {
            errors.push(problem);
        }
    }
    let ports: std::collections::BTreeSet<u16> = zones.iter().map(|(_, port)| *port).collect();
    for port in ports {
        let zones: Vec<Name> = zones.iter().filter(|(_, of)| *of == port).map(|(zone, _)| zone.clone()).collect();
        let taken = blocks.iter().filter(|other| other.port == port).flat_map(|other| &other.zones);
        let taken: Vec<&Name> = taken.filter(|zone| zones.contains(zone)).collect();
        let line = block.keys.first().map_or(1, |key| key.line);
        errors.extend(
            taken
                .iter()
                .map(|zone| CorefileError { line, problem: Problem::Duplicate { zone: (*zone).clone(), port } }),
        );
        blocks.push(ServerBlock { zones, port, ..server.clone() });
    }
}

/// The zones of the keys with their ports.
fn zones(keys: &[Line], default_port: u16, errors: &mut Vec<CorefileError>) -> Vec<(Name, u16)> {
    let mut zones = Vec::new();
    for key in keys {
        for text in key.name.split(',').filter(|text| !text.is_empty()) {
            match zone(text, default_port) {
                Ok((names, port)) => zones.extend(names.into_iter().map(|name| (name, port))),
                Err(why) => errors.push(CorefileError {
                    line: key.line,
                    problem: Problem::Zone { zone: text.to_string(), why: why.to_string() },
                }),
            }
        }
    }
    zones
}

fn zone(key: &str, default_port: u16) -> values::Value<(Vec<Name>, u16)> {
    let rest = match key.split_once("://") {
        Some(("dns", rest)) => rest,
        Some((protocol, _)) => return Err(ValueError::Unsupported(format!("{protocol}://"))),
        None => key,
    };
    let (zone, port) = match rest.rsplit_once(':') {
        Some((zone, port)) if !rest.contains('/') || port.bytes().all(|byte| byte.is_ascii_digit()) => {
            (zone, values::number(port)?)
        }
        _ => (rest, default_port),
    };
    Ok((values::zones(if zone.is_empty() { "." } else { zone })?, port))
}

fn plugin(directive: &Directive, server: &mut ServerBlock, block: &Block) -> Result<(), CorefileError> {
    let name = directive.head.name.as_str();
    let Some(plugin) = plugins::LIST.iter().find(|plugin| plugin.name == name) else {
        let problem = Problem::UnknownPlugin(name.to_string());
        return Err(CorefileError { line: directive.head.line, problem });
    };
    let first = block.directives.iter().find(|other| other.head.name == name);
    if !plugin.is_repeatable && first.is_some_and(|first| !std::ptr::eq(first, directive)) {
        return Err(CorefileError { line: directive.head.line, problem: Problem::Repeated(plugin.name) });
    }
    (plugin.read)(&Context { plugin: plugin.name, directive }, server)
}

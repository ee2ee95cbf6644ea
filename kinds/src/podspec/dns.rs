//! DNS policy, DNS config and host aliases of a pod.

use api::field::{Errors, Path};
use api::{Tree, validation};

use super::check;

const MAX_NAMESERVERS: usize = 3;
const MAX_SEARCHES: usize = 32;
const MAX_SEARCH_CHARACTERS: usize = 2048;

pub(crate) fn validate_config(spec: &Tree, path: &Path<'_>, errors: &mut Errors) {
    let config = spec.get("dnsConfig");
    if spec.str("dnsPolicy") == "None" {
        let Some(config) = config else {
            return errors.required(path, "must provide `dnsConfig` when `dnsPolicy` is None");
        };
        if config.list("nameservers").is_empty() {
            let text = "must provide at least one DNS nameserver when `dnsPolicy` is None";
            return errors.required(&path.field("nameservers"), text);
        }
    }
    let Some(config) = config else { return };
    validate_nameservers(config, &path.field("nameservers"), errors);
    validate_searches(config, &path.field("searches"), errors);
    let options = path.field("options");
    for (index, option) in config.list("options").iter().enumerate() {
        if option.str("name").is_empty() {
            errors.required(&options.index(index), "must not be empty");
        }
    }
}

fn validate_nameservers(config: &Tree, path: &Path<'_>, errors: &mut Errors) {
    let servers = config.list("nameservers");
    if servers.len() > MAX_NAMESERVERS {
        let text = format!("must not have more than {MAX_NAMESERVERS} nameservers");
        errors.invalid(path, config.at("nameservers"), &text);
    }
    for (index, server) in servers.iter().enumerate() {
        let server = server.as_str().unwrap_or("");
        errors.invalid_all(&path.index(index), server, validation::ip_legacy(server, false));
    }
}

fn validate_searches(config: &Tree, path: &Path<'_>, errors: &mut Errors) {
    let searches = config.list("searches");
    if searches.len() > MAX_SEARCHES {
        let text = format!("must not have more than {MAX_SEARCHES} search paths");
        errors.invalid(path, config.at("searches"), &text);
    }
    let characters: usize = searches.iter().map(|search| search.as_str().unwrap_or("").len() + 1).sum();
    if characters > MAX_SEARCH_CHARACTERS + 1 {
        let text =
            format!("must not have more than {MAX_SEARCH_CHARACTERS} characters (including spaces) in the search list");
        errors.invalid(path, config.at("searches"), &text);
    }
    for (index, search) in searches.iter().enumerate() {
        let search = search.as_str().unwrap_or("");
        if search != "." {
            let search = search.strip_suffix('.').unwrap_or(search);
            errors.invalid_all(&path.index(index), search, validation::dns1123_subdomain_with_underscore(search));
        }
    }
}

pub(crate) fn validate_host_aliases(aliases: &[Tree], path: &Path<'_>, errors: &mut Errors) {
    for (index, alias) in aliases.iter().enumerate() {
        let path = path.index(index);
        let ip = alias.str("ip");
        errors.invalid_all(&path.field("ip"), ip, validation::ip_legacy(ip, false));
        let names = path.field("hostnames");
        for (index, name) in alias.list("hostnames").iter().enumerate() {
            check::dns_subdomain(name.as_str().unwrap_or(""), &names.index(index), errors);
        }
    }
}

//! `host-local`: allocates addresses from ranges, with one file per address, in upstream's layout.

mod conf;
mod ranges;
mod store;

use std::fs;
use std::net::IpAddr;

use serde_json::Value;

use self::conf::Conf;
use self::ranges::RangeSet;
use self::store::Store;
use super::{Call, Plugin};
use crate::spec::error::{Error, code};
use crate::spec::result::{AddResult, Dns, Ip};

pub(crate) const PLUGIN: Plugin = Plugin { name: "host-local", accepts, add, del, check, gc, status };

fn accepts(conf: &Value) -> Result<(), Error> {
    Conf::read(conf).map(|_| ())
}

fn add(call: &Call<'_>) -> Result<AddResult, Error> {
    let conf = Conf::read(call.conf)?;
    call.check_args(&["IP", "GATEWAY"])?;
    let dns = conf.resolv_conf.as_deref().map(read_resolv_conf).transpose()?.unwrap_or_default();
    let requested = requested(call, &conf)?;
    let store = Store::lock(&conf.data_dir, call.network())?;
    if !call.shared.fresh {
        refuse_second(&store, call)?;
    }
    let leased = lease_all(&store, &conf.sets, requested, call);
    if leased.is_err() {
        // Release the addresses of other range sets. The error to report is the original one.
        let _ = store.release(call.target.container_id, call.target.ifname);
    }
    Ok(AddResult { interfaces: Vec::new(), ips: leased?, routes: conf.routes, dns })
}

fn refuse_second(store: &Store, call: &Call<'_>) -> Result<(), Error> {
    let id = call.target.container_id;
    match store.owned(id, call.target.ifname)?.first() {
        Some(address) => {
            let text = format!("{address} has been allocated to {id}, duplicate allocation is not allowed");
            Err(Error::internal(text))
        }
        None => Ok(()),
    }
}

/// Leases one address of every range set.
fn lease_all(store: &Store, sets: &[RangeSet], mut requested: Vec<IpAddr>, call: &Call<'_>) -> Result<Vec<Ip>, Error> {
    let mut ips = Vec::new();
    for (number, set) in sets.iter().enumerate() {
        let wanted = requested.iter().position(|address| set.contains(*address)).map(|index| requested.remove(index));
        ips.push(lease(store, number, set, wanted, call)?);
    }
    match requested.first() {
        Some(address) => Err(Error::internal(format!("requested IP address {address} is not in any of the ranges"))),
        None => Ok(ips),
    }
}

fn lease(store: &Store, number: usize, set: &RangeSet, wanted: Option<IpAddr>, call: &Call<'_>) -> Result<Ip, Error> {
    let (id, ifname) = (call.target.container_id, call.target.ifname);
    if let Some(address) = wanted {
        if set.ranges.iter().any(|range| range.gateway == Some(address)) {
            return Err(Error::internal(format!("requested IP address {address} is the subnet's gateway")));
        }
        if !store.reserve(number, address, id, ifname)? {
            let text = format!("requested IP address {address} is not available in range set {set}");
            return Err(Error::internal(text));
        }
        return Ok(set.ip(address));
    }
    for address in set.from(store.last_reserved(number)) {
        if store.reserve(number, address, id, ifname)? {
            return Ok(set.ip(address));
        }
    }
    Err(Error::internal(format!("no IP addresses available in range set: {set}")))
}

/// The addresses requested by the runtime, by the arguments of the configuration, and by the environment.
fn requested(call: &Call<'_>, conf: &Conf) -> Result<Vec<IpAddr>, Error> {
    let mut requested = conf.requested.clone();
    if let Some(text) = call.arg("IP") {
        let invalid = |_| Error::new(code::INVALID_ENVIRONMENT, format!("CNI_ARGS: IP: {text:?} is not an address"));
        requested.push(text.parse().map_err(invalid)?);
    }
    Ok(requested)
}

fn del(call: &Call<'_>) -> Result<(), Error> {
    let conf = Conf::read(call.conf)?;
    let Some(store) = Store::lock_existing(&conf.data_dir, call.network())? else { return Ok(()) };
    store.release(call.target.container_id, call.target.ifname)
}

fn check(call: &Call<'_>) -> Result<(), Error> {
    let conf = Conf::read(call.conf)?;
    let store = Store::lock_existing(&conf.data_dir, call.network())?;
    let owned = store.map(|store| store.owned(call.target.container_id, call.target.ifname)).transpose()?;
    match owned.unwrap_or_default().is_empty() {
        true => Err(Error::internal(format!("Failed to find address added by container {}", call.target.container_id))),
        false => Ok(()),
    }
}

fn gc(call: &Call<'_>) -> Result<(), Error> {
    let (conf, valid) = (Conf::read(call.conf)?, call.valid()?);
    match Store::lock_existing(&conf.data_dir, call.network())? {
        Some(store) => store.retain(|id, ifname| {
            valid.iter().any(|(valid_id, valid_ifname)| valid_id == id && (ifname.is_empty() || valid_ifname == ifname))
        }),
        None => Ok(()),
    }
}

fn status(call: &Call<'_>) -> Result<(), Error> {
    Conf::read(call.conf).map(|_| ())
}

/// The `dns` of a result, from a file in the format of /etc/resolv.conf.
fn read_resolv_conf(file: &str) -> Result<Dns, Error> {
    let text =
        fs::read_to_string(file).map_err(|error| Error::from(error).within(format!("ipam.resolvConf: {file}")))?;
    Ok(parse_resolv_conf(&text))
}

fn parse_resolv_conf(text: &str) -> Dns {
    let mut dns = Dns::default();
    for line in text.lines().filter(|line| !line.starts_with(['#', ';'])) {
        let mut words = line.split_whitespace();
        let key = words.next().unwrap_or_default();
        let words = words.map(str::to_string);
        match key {
            "nameserver" => dns.nameservers.extend(words.take(1)),
            "domain" => dns.domain = words.take(1).collect(),
            "search" => dns.search.extend(words),
            "options" => dns.options.extend(words),
            _ => {}
        }
    }
    dns
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resolv_conf() {
        let text =
            "# a\nnameserver 10.0.0.1\nnameserver fd00::1\ndomain d\nsearch a b\noptions ndots:5 rotate\n;b\nother\n";
        let dns = parse_resolv_conf(text);
        assert_eq!(dns.nameservers, ["10.0.0.1", "fd00::1"]);
        assert_eq!((dns.domain.as_str(), dns.search.len(), dns.options.len()), ("d", 2, 2));
    }
}

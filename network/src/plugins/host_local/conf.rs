//! The configuration: the `ipam` section of a plugin's configuration, with upstream's fields.

use std::net::IpAddr;
use std::path::PathBuf;

use serde_json::Value;

use super::ranges::{Range, RangeSet};
use crate::cidr::IpNet;
use crate::spec::error::Error;
use crate::spec::reader::Reader;
use crate::spec::result::{Route, read_route};

#[derive(Debug, PartialEq)]
pub(super) struct Conf {
    pub data_dir: PathBuf,
    pub resolv_conf: Option<String>,
    pub routes: Vec<Route>,
    /// At least one. Sets do not overlap.
    pub sets: Vec<RangeSet>,
    pub requested: Vec<IpAddr>,
}

const DATA_DIR: &str = "/var/lib/cni/networks";

impl Conf {
    pub(super) fn read(conf: &Value) -> Result<Conf, Error> {
        let mut whole = Reader::new(conf, "")?;
        let mut ipam = whole.object("ipam")?.ok_or_else(|| whole.invalid("ipam", "is missing"))?;
        ipam.skip(&["type", "name"]);
        let mut sets = Vec::new();
        if ipam.value("subnet").is_some() {
            sets.push(RangeSet { ranges: vec![read_range(&mut ipam)?] });
        } else {
            ipam.skip(&["rangeStart", "rangeEnd", "gateway"]);
        }
        // Ranges of the runtime come first: the gateway of the first range is the default gateway.
        let mut runtime = read_runtime(&mut whole)?;
        runtime.0.append(&mut sets);
        let mut sets = runtime.0;
        sets.extend(read_sets(&mut ipam, "ranges")?);
        check_sets(&sets).map_err(|error| ipam.invalid("ranges", error.to_string()))?;
        let mut requested = runtime.1;
        requested.extend(read_args(&mut whole)?);
        let routes = ipam.list("routes")?.iter().enumerate();
        let routes = routes.map(|(index, route)| read_route(Reader::new(route, format!("ipam.routes[{index}]"))?));
        let conf = Conf {
            routes: routes.collect::<Result<_, _>>()?,
            data_dir: Some(ipam.text("dataDir")?).filter(|text| !text.is_empty()).unwrap_or(DATA_DIR).into(),
            resolv_conf: Some(ipam.text("resolvConf")?).filter(|text| !text.is_empty()).map(str::to_string),
            sets,
            requested,
        };
        ipam.finish()?;
        Ok(conf)
    }
}

/// The range sets and addresses of the runtime's configuration.
fn read_runtime(whole: &mut Reader<'_>) -> Result<(Vec<RangeSet>, Vec<IpAddr>), Error> {
    match whole.object("runtimeConfig")? {
        Some(mut runtime) => Ok((read_sets(&mut runtime, "ipRanges")?, read_addresses(&mut runtime, "ips")?)),
        None => Ok(Default::default()),
    }
}

fn read_args(whole: &mut Reader<'_>) -> Result<Vec<IpAddr>, Error> {
    let cni = whole.object("args")?.map(|mut args| args.object("cni")).transpose()?.flatten();
    cni.map(|mut cni| read_addresses(&mut cni, "ips")).transpose().map(Option::unwrap_or_default)
}

/// Addresses, with or without a prefix length.
fn read_addresses(reader: &mut Reader<'_>, key: &'static str) -> Result<Vec<IpAddr>, Error> {
    let parse = |text: &String| text.parse().or_else(|_| text.parse::<IpNet>().map(|net| net.address));
    let texts = reader.texts(key)?;
    texts
        .iter()
        .map(|text| parse(text).map_err(|_| reader.invalid(key, format!("{text:?} is not an address"))))
        .collect()
}

fn read_sets(reader: &mut Reader<'_>, key: &'static str) -> Result<Vec<RangeSet>, Error> {
    let mut sets = Vec::new();
    for (number, set) in reader.list(key)?.iter().enumerate() {
        let path = format!("{}[{number}]", reader.path_of(key));
        let ranges = set.as_array().ok_or_else(|| Error::configuration(format!("{path}: must be a list")))?;
        let mut read = RangeSet::default();
        for (index, range) in ranges.iter().enumerate() {
            let mut range = Reader::new(range, format!("{path}[{index}]"))?;
            read.ranges.push(read_range(&mut range)?);
            range.finish()?;
        }
        sets.push(read);
    }
    Ok(sets)
}

fn read_range(reader: &mut Reader<'_>) -> Result<Range, Error> {
    let subnet: Option<IpNet> = reader.parsed("subnet", "a network")?;
    let subnet = subnet.ok_or_else(|| reader.invalid("subnet", "is missing"))?;
    let mut address = |key| reader.parsed::<IpAddr>(key, "an address");
    let (start, end, gateway) = (address("rangeStart")?, address("rangeEnd")?, address("gateway")?);
    Range::new(subnet, start, end, gateway).map_err(|(field, text)| reader.invalid(field, text))
}

/// Why addresses cannot be allocated from the range sets.
#[derive(Debug, thiserror::Error)]
enum SetsError {
    #[error("no range is configured")]
    Missing,
    #[error("set {0} is empty")]
    Empty(usize),
    #[error("set {0} mixes address families")]
    Families(usize),
    #[error("{}-{} overlaps {}-{}", .0.start, .0.end, .1.start, .1.end)]
    Overlap(Box<Range>, Box<Range>),
}

fn check_sets(sets: &[RangeSet]) -> Result<(), SetsError> {
    if sets.is_empty() {
        return Err(SetsError::Missing);
    }
    for (number, set) in sets.iter().enumerate() {
        let first = set.ranges.first().ok_or(SetsError::Empty(number))?;
        if set.ranges.iter().any(|range| range.subnet.is_ipv4() != first.subnet.is_ipv4()) {
            return Err(SetsError::Families(number));
        }
    }
    let all: Vec<&Range> = sets.iter().flat_map(|set| &set.ranges).collect();
    for (index, range) in all.iter().enumerate() {
        if let Some(other) = all[..index].iter().find(|other| other.overlaps(range)) {
            return Err(SetsError::Overlap(Box::new(Range::clone(range)), Box::new(Range::clone(other))));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(ipam: Value) -> Result<Conf, String> {
        let mut conf = json!({ "name": "n", "ipam": ipam });
        conf["ipam"]["type"] = "host-local".into();
        Conf::read(&conf).map_err(|error| error.message)
    }

    #[test]
    fn reads_both_forms_of_ranges() {
        let old = read(json!({ "subnet": "10.1.0.0/16", "rangeStart": "10.1.0.9", "gateway": "10.1.0.2" })).unwrap();
        let new =
            read(json!({ "ranges": [[{ "subnet": "10.1.0.0/16", "rangeStart": "10.1.0.9", "gateway": "10.1.0.2" }]] }));
        assert_eq!(old, new.unwrap());
        assert_eq!(old.data_dir, PathBuf::from(DATA_DIR));
        let both = read(
            json!({ "subnet": "10.1.0.0/16", "ranges": [[{ "subnet": "fd00::/64" }]], "routes": [{ "dst": "0.0.0.0/0" }] }),
        );
        let both = both.unwrap();
        assert_eq!((both.sets.len(), both.routes.len()), (2, 1));
    }

    #[test]
    fn reads_the_runtime_configuration() {
        let conf = json!({
            "ipam": { "type": "host-local", "ranges": [[{ "subnet": "10.1.0.0/16" }]] },
            "runtimeConfig": { "ips": ["10.1.0.7/16"], "ipRanges": [[{ "subnet": "fd00::/64" }]] },
            "args": { "cni": { "ips": ["fd00::7"] } },
        });
        let conf = Conf::read(&conf).unwrap();
        assert_eq!(conf.requested, ["10.1.0.7".parse::<IpAddr>().unwrap(), "fd00::7".parse().unwrap()]);
        assert!(!conf.sets[0].ranges[0].subnet.is_ipv4() && conf.sets.len() == 2);
    }

    #[test]
    fn errors_name_the_field() {
        for (ipam, message) in [
            (json!({}), "ipam.ranges: no range is configured"),
            (json!({ "ranges": [[]] }), "ipam.ranges: set 0 is empty"),
            (json!({ "ranges": [{}] }), "ipam.ranges[0]: must be a list"),
            (json!({ "ranges": [[{}]] }), "ipam.ranges[0][0].subnet: is missing"),
            (
                json!({ "ranges": [[{ "subnet": "10.1.0.0/16", "rangeStart": "x" }]] }),
                "ipam.ranges[0][0].rangeStart: \"x\" is not an address",
            ),
            (
                json!({ "ranges": [[{ "subnet": "10.1.0.0/16", "rangeStrat": "x" }]] }),
                "ipam.ranges[0][0].rangeStrat: unknown field",
            ),
            (
                json!({ "ranges": [[{ "subnet": "10.1.0.0/16" }, { "subnet": "fd00::/64" }]] }),
                "ipam.ranges: set 0 mixes address families",
            ),
            (
                json!({ "ranges": [[{ "subnet": "10.1.0.0/16" }], [{ "subnet": "10.1.2.0/24" }]] }),
                "ipam.ranges: 10.1.2.1-10.1.2.254 overlaps 10.1.0.1-10.1.255.254",
            ),
            (
                json!({ "subnet": "10.1.0.0/16", "routes": [{ "dst": "x" }] }),
                "ipam.routes[0].dst: \"x\" is not a network",
            ),
            (json!({ "subnet": "10.1.0.0/16", "daemonSocketPath": "x" }), "ipam.daemonSocketPath: unknown field"),
        ] {
            assert_eq!(read(ipam.clone()).unwrap_err(), message, "{ipam}");
        }
    }
}

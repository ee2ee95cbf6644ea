//! The result of ADD in one form, and its JSON in each version of the specification.

use std::net::IpAddr;

use serde_json::{Map, Value, json};

use super::error::{Error, code};
use super::reader::Reader;
use super::version::Version;
use crate::cidr::IpNet;

/// The result of ADD.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AddResult {
    pub interfaces: Vec<Interface>,
    pub ips: Vec<Ip>,
    pub routes: Vec<Route>,
    pub dns: Dns,
}

/// An interface that ADD created or configured.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Interface {
    pub name: String,
    pub mac: String,
    pub mtu: Option<u32>,
    /// The path of the network namespace; empty for an interface of the host.
    pub sandbox: String,
    pub socket_path: String,
    pub pci_id: String,
}

/// An address that ADD assigned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ip {
    pub address: IpNet,
    pub gateway: Option<IpAddr>,
    /// An index into `interfaces`.
    pub interface: Option<usize>,
}

/// A route of the pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Route {
    pub to: IpNet,
    pub gateway: Option<IpAddr>,
    pub mtu: Option<u32>,
    pub advmss: Option<u32>,
    pub priority: Option<u32>,
    pub table: Option<u32>,
    pub scope: Option<u32>,
}

impl Route {
    /// A route with default values.
    pub fn new(to: IpNet, gateway: Option<IpAddr>) -> Route {
        Route { to, gateway, mtu: None, advmss: None, priority: None, table: None, scope: None }
    }
}

/// The DNS configuration of a result.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Dns {
    pub nameservers: Vec<String>,
    pub domain: String,
    pub search: Vec<String>,
    pub options: Vec<String>,
}

impl AddResult {
    /// Parses a result of any supported version, which it names itself.
    pub fn from_json(value: &Value) -> Result<AddResult, Error> {
        let with_context = |error: Error| Error { code: code::DECODE, ..error };
        read(value).map_err(with_context)
    }

    /// The result in the form of a version.
    pub fn to_json(&self, version: Version) -> Value {
        let mut json = Map::new();
        json.insert("cniVersion".to_string(), version.as_str().into());
        let mut list = |key: &str, values: Vec<Value>| {
            if !values.is_empty() {
                json.insert(key.to_string(), values.into());
            }
        };
        list("interfaces", self.interfaces.iter().map(|interface| interface_json(interface, version)).collect());
        list("ips", self.ips.iter().map(|ip| ip_json(ip, version)).collect());
        list("routes", self.routes.iter().map(|route| route_json(route, version)).collect());
        json.insert("dns".to_string(), dns_json(&self.dns));
        json.into()
    }

    /// The addresses of an interface in the pod, and those that name no interface.
    pub fn ips_of<'a>(&'a self, ifname: &'a str) -> impl Iterator<Item = &'a Ip> {
        self.ips.iter().filter(move |ip| match ip.interface.and_then(|index| self.interfaces.get(index)) {
            Some(interface) => interface.name == ifname && !interface.sandbox.is_empty(),
            None => true,
        })
    }

    /// The interface of this name in the sandbox.
    pub fn in_sandbox(&self, ifname: &str) -> Option<&Interface> {
        self.interfaces.iter().find(|interface| interface.name == ifname && !interface.sandbox.is_empty())
    }
}

fn read(value: &Value) -> Result<AddResult, Error> {
    let mut reader = Reader::new(value, "")?;
    Version::parse(reader.text("cniVersion")?)?;
    let mut each = |key: &'static str| -> Result<Vec<Reader<'_>>, Error> {
        let list = reader.list(key)?;
        list.iter().enumerate().map(|(index, value)| Reader::new(value, format!("{key}[{index}]"))).collect()
    };
    let (interfaces, ips, routes) = (each("interfaces")?, each("ips")?, each("routes")?);
    let attachment = AddResult {
        interfaces: interfaces.into_iter().map(read_interface).collect::<Result<_, _>>()?,
        ips: ips.into_iter().map(read_ip).collect::<Result<_, _>>()?,
        routes: routes.into_iter().map(read_route).collect::<Result<_, _>>()?,
        dns: reader.object("dns")?.map(read_dns).transpose()?.unwrap_or_default(),
    };
    let count = attachment.interfaces.len();
    match attachment.ips.iter().position(|ip| ip.interface.is_some_and(|index| index >= count)) {
        Some(index) => Err(Error::configuration(format!("ips[{index}].interface: there is no such interface"))),
        None => Ok(attachment),
    }
}

fn read_interface(mut reader: Reader<'_>) -> Result<Interface, Error> {
    Ok(Interface {
        name: reader.text("name")?.to_string(),
        mac: reader.text("mac")?.to_string(),
        mtu: reader.number32("mtu")?,
        sandbox: reader.text("sandbox")?.to_string(),
        socket_path: reader.text("socketPath")?.to_string(),
        pci_id: reader.text("pciID")?.to_string(),
    })
}

fn read_ip(mut reader: Reader<'_>) -> Result<Ip, Error> {
    // Some plugins use -1 for "no interface".
    let interface = reader.value("interface").and_then(Value::as_i64).and_then(|index| usize::try_from(index).ok());
    let address = reader.parsed("address", "an address with its prefix")?;
    Ok(Ip {
        address: address.ok_or_else(|| reader.invalid("address", "is missing"))?,
        gateway: reader.parsed("gateway", "an address")?,
        interface,
    })
}

/// Reads a route of a result or of an IPAM configuration.
pub(crate) fn read_route(mut reader: Reader<'_>) -> Result<Route, Error> {
    let to: Option<IpNet> = reader.parsed("dst", "a network")?;
    let route = Route {
        to: to.ok_or_else(|| reader.invalid("dst", "is missing"))?,
        gateway: reader.parsed("gw", "an address")?,
        mtu: reader.number32("mtu")?,
        advmss: reader.number32("advmss")?,
        priority: reader.number32("priority")?,
        table: reader.number32("table")?,
        scope: reader.number32("scope")?,
    };
    reader.finish()?;
    Ok(route)
}

/// Reads the `dns` of a result or of a configuration.
pub(crate) fn read_dns(mut reader: Reader<'_>) -> Result<Dns, Error> {
    let dns = Dns {
        nameservers: reader.texts("nameservers")?,
        domain: reader.text("domain")?.to_string(),
        search: reader.texts("search")?,
        options: reader.texts("options")?,
    };
    reader.finish()?;
    Ok(dns)
}

fn interface_json(interface: &Interface, version: Version) -> Value {
    let mut json = json!({ "name": interface.name });
    let mut texts = vec![("mac", &interface.mac), ("sandbox", &interface.sandbox)];
    if version >= Version::V1_1_0 {
        texts.extend([("socketPath", &interface.socket_path), ("pciID", &interface.pci_id)]);
        put_numbers(&mut json, &[("mtu", interface.mtu)]);
    }
    for (key, text) in texts.into_iter().filter(|(_, text)| !text.is_empty()) {
        json[key] = text.as_str().into();
    }
    json
}

fn ip_json(ip: &Ip, version: Version) -> Value {
    let mut json = json!({ "address": ip.address.to_string() });
    if version < Version::V1_0_0 {
        json["version"] = if ip.address.is_ipv4() { "4" } else { "6" }.into();
    }
    if let Some(interface) = ip.interface {
        json["interface"] = interface.into();
    }
    if let Some(gateway) = ip.gateway {
        json["gateway"] = gateway.to_string().into();
    }
    json
}

fn route_json(route: &Route, version: Version) -> Value {
    let mut json = json!({ "dst": route.to.to_string() });
    if let Some(gateway) = route.gateway {
        json["gw"] = gateway.to_string().into();
    }
    if version >= Version::V1_1_0 {
        let Route { mtu, advmss, priority, table, scope, .. } = *route;
        let numbers = [("mtu", mtu), ("advmss", advmss), ("priority", priority), ("table", table), ("scope", scope)];
        put_numbers(&mut json, &numbers);
    }
    json
}

fn put_numbers(json: &mut Value, numbers: &[(&str, Option<u32>)]) {
    for (key, number) in numbers.iter().filter_map(|(key, number)| Some((*key, (*number)?))) {
        json[key] = number.into();
    }
}

pub(crate) fn dns_json(dns: &Dns) -> Value {
    let mut json = json!({});
    if !dns.domain.is_empty() {
        json["domain"] = dns.domain.as_str().into();
    }
    let lists = [("nameservers", &dns.nameservers), ("search", &dns.search), ("options", &dns.options)];
    for (key, list) in lists.into_iter().filter(|(_, list)| !list.is_empty()) {
        json[key] = list.clone().into();
    }
    json
}

#[cfg(test)]
mod tests {
    use super::*;

    fn newest() -> Value {
        json!({
            "cniVersion": "1.1.0",
            "interfaces": [
                { "name": "cni0", "mac": "0a:00:00:00:00:01" },
                { "name": "eth0", "mac": "0a:00:00:00:00:02", "mtu": 1400, "sandbox": "/proc/1/ns/net", "pciID": "x" },
            ],
            "ips": [
                { "address": "10.1.0.2/16", "gateway": "10.1.0.1", "interface": 1 },
                { "address": "fd00::2/64", "interface": 1 },
            ],
            "routes": [{ "dst": "0.0.0.0/0", "gw": "10.1.0.1", "mtu": 1400, "priority": 5, "table": 100 }],
            "dns": { "nameservers": ["10.96.0.10"], "search": ["svc"], "domain": "local", "options": ["ndots:5"] },
        })
    }

    #[test]
    fn converts_between_versions() {
        let attachment = AddResult::from_json(&newest()).unwrap();
        assert_eq!(attachment.to_json(Version::V1_1_0), newest());
        for version in [Version::V0_3_0, Version::V0_3_1, Version::V0_4_0] {
            let old = attachment.to_json(version);
            assert_eq!(old["cniVersion"], version.as_str());
            assert_eq!(
                old["ips"][0],
                json!({ "version": "4", "address": "10.1.0.2/16", "gateway": "10.1.0.1", "interface": 1 })
            );
            assert_eq!(old["ips"][1]["version"], "6");
            assert_eq!(old["routes"], json!([{ "dst": "0.0.0.0/0", "gw": "10.1.0.1" }]));
            assert_eq!(old["interfaces"][1].get("mtu"), None);
            let again = AddResult::from_json(&old).unwrap();
            assert_eq!((again.ips, again.dns), (attachment.ips.clone(), attachment.dns.clone()));
        }
        assert_eq!(attachment.to_json(Version::V1_0_0)["ips"][0].get("version"), None);
        assert_eq!(attachment.to_json(Version::V1_0_0)["routes"][0].get("mtu"), None);
    }

    #[test]
    fn an_empty_result_has_dns() {
        assert_eq!(AddResult::default().to_json(Version::V0_4_0), json!({ "cniVersion": "0.4.0", "dns": {} }));
    }

    #[test]
    fn refuses_invalid_results() {
        for (value, message) in [
            (json!([]), "must be an object"),
            (json!({}), "cniVersion: \"\" is not supported, only 0.3.0, 0.3.1, 0.4.0, 1.0.0, 1.1.0"),
            (json!({ "cniVersion": "1.0.0", "ips": [{}] }), "ips[0].address: is missing"),
            (
                json!({ "cniVersion": "1.0.0", "ips": [{ "address": "10.0.0.1" }] }),
                "ips[0].address: \"10.0.0.1\" is not an address with its prefix",
            ),
            (
                json!({ "cniVersion": "1.0.0", "ips": [{ "address": "10.0.0.1/8", "interface": 0 }] }),
                "ips[0].interface: there is no such interface",
            ),
            (json!({ "cniVersion": "1.0.0", "routes": [{ "dst": 1 }] }), "routes[0].dst: must be a string"),
        ] {
            let error = AddResult::from_json(&value).unwrap_err();
            assert_eq!((error.message.as_str(), error.code), (message, code::DECODE), "{value}");
        }
    }
}

//! The configuration, with upstream's fields. Fields for unsupported features are refused by name.

use serde_json::Value;

use super::super::COMMON;
use crate::cidr::IpNet;
use crate::netlink::{Mac, parse_mac};
use crate::spec::error::Error;
use crate::spec::reader::Reader;
use crate::spec::result::{Dns, read_dns};

#[derive(Debug, PartialEq)]
pub(super) struct Conf {
    pub bridge: String,
    pub is_gateway: bool,
    pub is_default_gateway: bool,
    pub force_address: bool,
    pub masquerade: bool,
    /// The ranges of all pods of the cluster, to which packets are not masqueraded. Not one of upstream's fields.
    pub cluster_cidrs: Vec<IpNet>,
    pub mtu: Option<u32>,
    pub hairpin: bool,
    /// Whether pods cannot send to each other through the bridge.
    pub isolated: bool,
    /// Whether pods send everything to their gateway, and only from their own addresses. Not one of upstream's fields.
    pub routed: bool,
    pub promiscuous: bool,
    pub dns: Option<Dns>,
    pub mac: Option<Mac>,
}

const DEFAULT_BRIDGE: &str = "cni0";

impl Conf {
    pub(super) fn read(conf: &Value) -> Result<Conf, Error> {
        let mut reader = Reader::new(conf, "")?;
        reader.skip(COMMON);
        reader.skip(&["ipam"]);
        refuse_unsupported(&mut reader)?;
        let is_default_gateway = reader.flag("isDefaultGateway")?;
        let read = Conf {
            bridge: Some(reader.text("bridge")?).filter(|name| !name.is_empty()).unwrap_or(DEFAULT_BRIDGE).to_string(),
            is_gateway: reader.flag("isGateway")? || is_default_gateway,
            is_default_gateway,
            force_address: reader.flag("forceAddress")?,
            masquerade: reader.flag("ipMasq")?,
            cluster_cidrs: read_cidrs(&mut reader)?,
            mtu: reader.number32("mtu")?.filter(|mtu| *mtu > 0),
            hairpin: reader.flag("hairpinMode")?,
            isolated: reader.flag("portIsolation")?,
            routed: reader.flag("routed")?,
            promiscuous: reader.flag("promiscMode")?,
            dns: reader.object("dns")?.map(read_dns).transpose()?.filter(|dns| *dns != Dns::default()),
            mac: read_mac(&mut reader)?,
        };
        crate::spec::names::check_interface("bridge", &read.bridge)
            .map_err(|error| Error::configuration(error.message))?;
        if read.hairpin && read.promiscuous {
            return Err(reader.invalid("promiscMode", "cannot set hairpin mode and promiscuous mode at the same time"));
        }
        if read.routed && !read.is_gateway {
            return Err(reader.invalid("routed", "needs isGateway"));
        }
        reader.finish()?;
        Ok(read)
    }
}

fn refuse_unsupported(reader: &mut Reader<'_>) -> Result<(), Error> {
    const UNSUPPORTED: &str = "is not supported by the built-in bridge plugin";
    for key in ["macspoofchk", "enabledad", "disableContainerInterface"] {
        if reader.flag(key)? {
            return Err(reader.unsupported(key, UNSUPPORTED));
        }
    }
    if reader.number("vlan")?.unwrap_or(0) != 0 {
        return Err(reader.unsupported("vlan", UNSUPPORTED));
    }
    if !reader.list("vlanTrunk")?.is_empty() {
        return Err(reader.unsupported("vlanTrunk", UNSUPPORTED));
    }
    // The option only matters for VLANs.
    reader.flag("preserveDefaultVlan")?;
    match reader.text("ipMasqBackend")? {
        "" | "nftables" => Ok(()),
        "iptables" => Err(reader.unsupported("ipMasqBackend", UNSUPPORTED)),
        other => Err(reader.invalid("ipMasqBackend", format!("{other:?} is neither iptables nor nftables"))),
    }
}

fn read_cidrs(reader: &mut Reader<'_>) -> Result<Vec<IpNet>, Error> {
    const KEY: &str = "clusterCIDRs";
    let texts = reader.texts(KEY)?;
    let parse = |text: &String| text.parse().map_err(|_| reader.invalid(KEY, format!("{text:?} is not a CIDR")));
    texts.iter().map(parse).collect()
}

/// The runtime's configuration takes precedence over the plugin's own.
fn read_mac(reader: &mut Reader<'_>) -> Result<Option<Mac>, Error> {
    let args = reader.object("args")?.map(|mut args| args.object("cni")).transpose()?.flatten();
    for section in [reader.object("runtimeConfig")?, args].into_iter().flatten() {
        let mut section = section;
        match section.text("mac")? {
            "" => {}
            text => {
                return parse_mac(text).map(Some).ok_or_else(|| section.invalid("mac", format!("{text:?} is not one")));
            }
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::spec::error::code;

    #[test]
    fn applies_defaults() {
        let conf = Conf::read(&json!({ "name": "n", "type": "bridge", "isDefaultGateway": true })).unwrap();
        assert_eq!((conf.bridge.as_str(), conf.is_gateway, conf.mtu, conf.mac), ("cni0", true, None, None));
        let conf = json!({ "mtu": 1400, "runtimeConfig": { "mac": "0a:58:00:00:00:01" }, "args": { "cni": { "mac": "0a:58:00:00:00:02" } } });
        let conf = Conf::read(&conf).unwrap();
        assert_eq!((conf.mtu, conf.mac.map(|mac| mac[5])), (Some(1400), Some(1)));
    }

    #[test]
    fn errors_name_the_field() {
        const UNSUPPORTED: &str = "is not supported by the built-in bridge plugin";
        for (conf, code, message) in [
            (json!({ "isGatway": true }), code::UNSUPPORTED_FIELD, "isGatway: unknown field".to_string()),
            (json!({ "vlan": 5 }), code::UNSUPPORTED_FIELD, format!("vlan: {UNSUPPORTED}")),
            (json!({ "macspoofchk": true }), code::UNSUPPORTED_FIELD, format!("macspoofchk: {UNSUPPORTED}")),
            (json!({ "ipMasqBackend": "iptables" }), code::UNSUPPORTED_FIELD, format!("ipMasqBackend: {UNSUPPORTED}")),
            (
                json!({ "isGateway": "yes" }),
                code::INVALID_CONFIGURATION,
                "isGateway: must be true or false".to_string(),
            ),
            (json!({ "mtu": -1 }), code::INVALID_CONFIGURATION, "mtu: must be a number of 32 bits".to_string()),
            (
                json!({ "bridge": "a/b" }),
                code::INVALID_CONFIGURATION,
                "bridge: contains / or : or whitespace".to_string(),
            ),
            (
                json!({ "runtimeConfig": { "mac": "x" } }),
                code::INVALID_CONFIGURATION,
                "runtimeConfig.mac: \"x\" is not one".to_string(),
            ),
        ] {
            let error = Conf::read(&conf).unwrap_err();
            assert_eq!((error.code, error.message), (code, message), "{conf}");
        }
        assert!(
            Conf::read(&json!({ "vlan": 0, "macspoofchk": false, "vlanTrunk": [], "ipMasqBackend": "nftables" }))
                .is_ok()
        );
    }
}

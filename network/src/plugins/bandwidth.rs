//! `bandwidth`: limits the rate at which a pod sends and receives.

use serde_json::Value;

use super::{COMMON, Call, Plugin};
use crate::fault;
use crate::netlink::{Link, RateLimit, Rtnl, mac_text};
use crate::spec::error::Error;
use crate::spec::names::derived;
use crate::spec::reader::Reader;
use crate::spec::result::{AddResult, Interface};

pub(crate) const PLUGIN: Plugin = Plugin { name: "bandwidth", accepts, add, del, check, gc: no_op, status: no_op };

/// The limits, from the pod's point of view.
#[derive(Debug, Default, PartialEq)]
struct Conf {
    ingress: Option<RateLimit>,
    egress: Option<RateLimit>,
}

impl Conf {
    /// The runtime's configuration takes precedence over the plugin's own.
    fn read(conf: &Value) -> Result<Conf, Error> {
        let mut reader = Reader::new(conf, "")?;
        reader.skip(COMMON);
        reader.skip(&["ipam", "dns", "args"]);
        for key in ["unshapedSubnets", "shapedSubnets"] {
            if !reader.list(key)?.is_empty() {
                return Err(reader.unsupported(key, "is not supported by the built-in bandwidth plugin"));
            }
        }
        let own = read_shapes(&mut reader)?;
        let runtime =
            reader.object("runtimeConfig")?.map(|mut runtime| runtime.object("bandwidth")).transpose()?.flatten();
        let runtime = runtime.map(|mut runtime| read_shapes(&mut runtime)).transpose()?;
        reader.finish()?;
        Ok(runtime.filter(|runtime| *runtime != Conf::default()).unwrap_or(own))
    }
}

fn read_shapes(reader: &mut Reader<'_>) -> Result<Conf, Error> {
    Ok(Conf {
        ingress: read_shape(reader, "ingressRate", "ingressBurst")?,
        egress: read_shape(reader, "egressRate", "egressBurst")?,
    })
}

/// Rate and burst are in bits. Either both are set or neither.
fn read_shape(
    reader: &mut Reader<'_>,
    rate_key: &'static str,
    burst_key: &'static str,
) -> Result<Option<RateLimit>, Error> {
    let (rate, burst) = (reader.number(rate_key)?.unwrap_or(0), reader.number(burst_key)?.unwrap_or(0));
    match (rate, burst) {
        (0, 0) => Ok(None),
        (0, _) => Err(reader.invalid(burst_key, format!("requires {rate_key}"))),
        (_, 0) => Err(reader.invalid(rate_key, format!("requires {burst_key}"))),
        (1..8, _) => Err(reader.invalid(rate_key, "is less than one byte per second")),
        _ => {
            let burst_bytes = u32::try_from(burst / 8).map_err(|_| reader.invalid(burst_key, "is more than 4 GB"))?;
            Ok(Some(RateLimit { bytes_per_second: rate / 8, burst_bytes }))
        }
    }
}

fn accepts(conf: &Value) -> Result<(), Error> {
    Conf::read(conf).map(|_| ())
}

fn add(call: &Call<'_>) -> Result<AddResult, Error> {
    let conf = Conf::read(call.conf)?;
    let previous = call.chained()?;
    if conf == Conf::default() {
        return Ok(previous);
    }
    shape(call, &conf, previous).inspect_err(|error| {
        if let Err(left) = del(call) {
            tracing::warn!(%error, %left, "failed to undo a failed ADD");
        }
    })
}

fn shape(call: &Call<'_>, conf: &Conf, mut attachment: AddResult) -> Result<AddResult, Error> {
    let mut rtnl = Rtnl::open()?;
    let port = host_end(call, &mut rtnl)?;
    if let Some(ingress) = conf.ingress {
        rtnl.add_bucket(port.index, ingress)?;
    }
    fault::point("bandwidth.ingress-shaped")?;
    if let Some(egress) = conf.egress {
        let device = create_device(call, &mut rtnl, port.mtu)?;
        fault::point("bandwidth.device-made")?;
        rtnl.add_bucket(device.index, egress)?;
        rtnl.redirect_incoming(port.index, device.index)?;
        let interface = Interface { name: device.name, mac: mac_text(device.mac), ..Interface::default() };
        attachment.interfaces.push(interface);
    }
    fault::point("bandwidth.egress-shaped")?;
    Ok(attachment)
}

/// Packets from the pod arrive at the host's end of its veth. Only packets that leave a device can be shaped, so they
/// are redirected through an ifb device.
fn create_device(call: &Call<'_>, rtnl: &mut Rtnl, mtu: u32) -> Result<Link, Error> {
    let name = device_name(call);
    match rtnl.add_link("ifb", &name, Some(mtu)) {
        // The device is a leftover of an earlier ADD of this attachment that was interrupted.
        Err(error) if error.is(rustix::io::Errno::EXIST) => {
            rtnl.delete_link(&name)?;
            rtnl.add_link("ifb", &name, Some(mtu))?;
        }
        outcome => outcome?,
    }
    rtnl.link(&name)?.ok_or_else(|| Error::internal(format!("{name:?} disappeared after it was created")))
}

fn device_name(call: &Call<'_>) -> String {
    derived("bwp", &[call.network(), call.target.container_id, call.target.ifname])
}

/// The host's end of the pod's veth pair.
fn host_end(call: &Call<'_>, rtnl: &mut Rtnl) -> Result<Link, Error> {
    let ifname = call.target.ifname;
    let peer = Rtnl::open_in(&call.netns()?)?.link(ifname)?.and_then(|link| link.peer);
    let port = peer.map(|index| rtnl.link_at(index)).transpose()?.flatten();
    port.filter(|port| port.kind.as_deref() == Some("veth"))
        .ok_or_else(|| Error::internal(format!("{ifname} has no peer on the host")))
}

/// Deletes the ifb device. The queueing disciplines of the veth are deleted with it.
fn del(call: &Call<'_>) -> Result<(), Error> {
    call.delete_device(&mut Rtnl::open()?, &device_name(call))?;
    Ok(())
}

fn check(call: &Call<'_>) -> Result<(), Error> {
    let conf = Conf::read(call.conf)?;
    let mut rtnl = Rtnl::open()?;
    if conf == Conf::default() {
        return Ok(());
    }
    host_end(call, &mut rtnl)?;
    let name = device_name(call);
    match conf.egress.is_some() && rtnl.link(&name)?.is_none() {
        true => Err(Error::internal(format!("the device {name}, which limits egress, is missing"))),
        false => Ok(()),
    }
}

fn no_op(_: &Call<'_>) -> Result<(), Error> {
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn shapes() {
        let read = |conf: Value| Conf::read(&conf).map_err(|error| error.message);
        assert_eq!(read(json!({})), Ok(Conf::default()));
        let both = json!({
            "ingressRate": 8000, "ingressBurst": 80,
            "runtimeConfig": { "bandwidth": { "egressRate": 16_000, "egressBurst": 160 } },
        });
        let egress = RateLimit { bytes_per_second: 2000, burst_bytes: 20 };
        assert_eq!(read(both), Ok(Conf { ingress: None, egress: Some(egress) }));
        for (conf, message) in [
            (json!({ "ingressRate": 8 }), "ingressRate: requires ingressBurst"),
            (json!({ "egressBurst": 8 }), "egressBurst: requires egressRate"),
            (json!({ "egressRate": 1, "egressBurst": 8 }), "egressRate: is less than one byte per second"),
            (json!({ "egressRate": 8, "egressBurst": 40_000_000_000_u64 }), "egressBurst: is more than 4 GB"),
            (
                json!({ "runtimeConfig": { "bandwidth": { "egressRate": "x" } } }),
                "runtimeConfig.bandwidth.egressRate: must be a number that is not negative",
            ),
            (
                json!({ "unshapedSubnets": ["10.0.0.0/8"] }),
                "unshapedSubnets: is not supported by the built-in bandwidth plugin",
            ),
        ] {
            assert_eq!(read(conf).unwrap_err(), message);
        }
    }
}

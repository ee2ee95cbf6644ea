//! Traffic control: token bucket filters, and the redirection of incoming packets through another device.

use super::message::Message;
use super::socket::{CREATE, EXCL};
use super::{Error, Rtnl};

const NEWQDISC: u16 = 36;
const NEWFILTER: u16 = 44;
const TCA_KIND: u16 = 1;
const TCA_OPTIONS: u16 = 2;
const TBF_PARAMETERS: u16 = 1;
const TBF_RATE64: u16 = 4;
const TBF_BURST: u16 = 6;
const U32_SELECTOR: u16 = 5;
const U32_ACTIONS: u16 = 7;
const ACTION_KIND: u16 = 1;
const ACTION_OPTIONS: u16 = 2;
const MIRRED_PARAMETERS: u16 = 2;

const ROOT: u32 = 0xffff_ffff;
const INGRESS: u32 = 0xffff_fff1;
const INGRESS_HANDLE: u32 = 0xffff_0000;
const ETH_P_ALL: u16 = 3;
const LINKLAYER_ETHERNET: u8 = 1;
const STOLEN: u32 = 4;
const EGRESS_REDIRECT: u32 = 1;
const TERMINAL: u8 = 1;
/// How long a packet may wait for tokens.
const LATENCY_MILLISECONDS: u64 = 25;

/// The rate limit of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RateLimit {
    pub bytes_per_second: u64,
    pub burst_bytes: u32,
}

impl Rtnl {
    /// Limits the rate of packets that leave the device.
    pub fn add_bucket(&mut self, device: u32, shape: RateLimit) -> Result<(), Error> {
        let mut message = Message::new(NEWQDISC, CREATE | EXCL, &tcmsg(device, 0x1_0000, ROOT, 0));
        message.put_text(TCA_KIND, "tbf");
        message.nest(TCA_OPTIONS, |options| {
            options.put(TBF_PARAMETERS, &bucket(shape));
            options.put(TBF_RATE64, &shape.bytes_per_second.to_ne_bytes());
            options.put_u32(TBF_BURST, shape.burst_bytes);
        });
        self.0.request("add a token bucket", message)
    }

    /// Redirects packets that arrive on the device through another device.
    pub fn redirect_incoming(&mut self, device: u32, through: u32) -> Result<(), Error> {
        let mut qdisc = Message::new(NEWQDISC, CREATE | EXCL, &tcmsg(device, INGRESS_HANDLE, INGRESS, 0));
        qdisc.put_text(TCA_KIND, "ingress");
        self.0.request("add an ingress queue", qdisc)?;
        let info = (1 << 16) | u32::from(ETH_P_ALL.to_be());
        let mut filter = Message::new(NEWFILTER, CREATE | EXCL, &tcmsg(device, 0, INGRESS_HANDLE, info));
        filter.put_text(TCA_KIND, "u32");
        filter.nest(TCA_OPTIONS, |options| {
            options.put(U32_SELECTOR, &everything());
            options.nest(U32_ACTIONS, |actions| actions.nest(1, |action| put_redirect(action, through)));
        });
        self.0.request("redirect incoming packets", filter)
    }
}

fn put_redirect(action: &mut Message, through: u32) {
    action.put_text(ACTION_KIND, "mirred");
    action.nest(ACTION_OPTIONS, |options| {
        let words = [0, 0, STOLEN, 0, 0, EGRESS_REDIRECT, through];
        options.put(MIRRED_PARAMETERS, &words.map(u32::to_ne_bytes).concat());
    });
}

/// struct tc_tbf_qopt. A rate of more than 32 bits has its own attribute.
fn bucket(shape: RateLimit) -> Vec<u8> {
    let rate = u32::try_from(shape.bytes_per_second).unwrap_or(u32::MAX);
    let waiting = shape.bytes_per_second.saturating_mul(LATENCY_MILLISECONDS) / 1000;
    let limit = u32::try_from(waiting.saturating_add(shape.burst_bytes.into())).unwrap_or(u32::MAX);
    let mut bytes = vec![0, LINKLAYER_ETHERNET, 0, 0, 0, 0, 0, 0];
    bytes.extend(rate.to_ne_bytes());
    bytes.extend([0; 12]);
    bytes.extend([limit, 0, 0].map(u32::to_ne_bytes).concat());
    bytes
}

/// struct tc_u32_sel with one key whose mask is empty, which matches every packet.
fn everything() -> Vec<u8> {
    let mut bytes = vec![0; 16 + 16];
    (bytes[0], bytes[2]) = (TERMINAL, 1);
    bytes
}

/// struct tcmsg.
fn tcmsg(device: u32, handle: u32, parent: u32, info: u32) -> Vec<u8> {
    [0, device, handle, parent, info].map(u32::to_ne_bytes).concat()
}

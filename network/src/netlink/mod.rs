//! rtnetlink: links, addresses, routes, neighbours and traffic control, by blocking requests.
//!
//! The kernel replies to a request before `send` returns, so that a call only waits for locks in the kernel. A socket
//! stays in the namespace in which it was opened, no matter which thread uses it.

mod address;
mod conntrack;
mod link;
pub(crate) mod message;
mod neighbour;
mod owner;
mod route;
pub(crate) mod socket;
mod tc;
mod vxlan;

pub use address::Address;
pub use conntrack::{Conntrack, Flow};
pub use link::{Link, Mac, Veth, mac_text, parse_mac};
pub use neighbour::Neighbour;
pub use owner::SocketOwner;
pub use route::Route;
pub use socket::{Error, Reply, Socket};
pub use tc::RateLimit;
pub use vxlan::{Forwarding, Vxlan};

use crate::ns::Netns;

/// An rtnetlink socket.
pub struct Rtnl(Socket);

impl Rtnl {
    /// Opens a socket in the namespace of the calling thread.
    pub fn open() -> Result<Rtnl, Error> {
        // The protocol number of rtnetlink is zero, which the type cannot represent.
        Socket::open(None).map(Rtnl)
    }

    /// Opens a socket in another namespace.
    pub fn open_in(netns: &Netns) -> Result<Rtnl, Error> {
        let opened = netns.run(|| Ok(Rtnl::open()));
        opened.map_err(|error| Error::new("enter the network namespace", error))?
    }
}

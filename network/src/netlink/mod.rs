//! rtnetlink: links, addresses, routes, neighbours and shaping, by blocking requests.
//!
//! The kernel answers a request before `send` returns, so that nothing here waits for anything but a lock in the
//! kernel. A socket stays in the namespace in which it was opened, whatever thread uses it.

mod address;
mod conntrack;
mod link;
pub mod message;
mod neighbour;
mod route;
pub mod socket;
mod tc;

pub use address::Address;
pub use conntrack::{Conntrack, Flow};
pub use link::{Link, Mac, Veth, mac_text, parse_mac};
pub use neighbour::Neighbour;
pub use route::Route;
pub use socket::{Error, Reply, Socket};
pub use tc::Shape;

use crate::ns::Netns;

/// A socket for everything of rtnetlink.
pub struct Rtnl(Socket);

impl Rtnl {
    /// In the calling thread's namespace.
    pub fn open() -> Result<Rtnl, Error> {
        // Its protocol has the number zero, which is no protocol to the type.
        Socket::open(None).map(Rtnl)
    }

    /// In another namespace.
    pub fn open_in(netns: &Netns) -> Result<Rtnl, Error> {
        let opened = netns.run(|| Ok(Rtnl::open()));
        opened.map_err(|error| Error::new("enter the network namespace", error))?
    }
}

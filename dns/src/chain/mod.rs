//! The path of a query through the plugins of a server block. A [`Program`] is a compiled Corefile; it is replaced as a
//! whole when the Corefile changes.

mod autopath;
mod block;
mod log;
mod recursor;
mod rewrite;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;

pub use block::{Block, Resolution};

use crate::corefile::{Corefile, Kubernetes};
use crate::directory::Directory;
use crate::message::{Message, Name};
use crate::metrics::{Metrics, Transport};

/// A query and where it came from.
pub struct Query {
    /// The query.
    pub message: Message,
    /// The address of the client.
    pub source: SocketAddr,
    /// The address where it was received.
    pub local: SocketAddr,
    /// The transport of the query.
    pub transport: Transport,
    /// In bytes.
    pub size: usize,
}

/// The inputs of the compilation of a program.
pub struct Environment<'a> {
    /// The addresses of the server itself.
    pub own: Vec<SocketAddr>,
    /// The metrics of the server.
    pub metrics: Arc<Metrics>,
    /// The index for a `kubernetes` plugin, and whether pods are needed; None without an API server.
    pub directory: &'a dyn Fn(&Kubernetes, bool) -> Option<Arc<Directory>>,
    /// The search domains of the node, which follow those of the cluster.
    pub host_search: Vec<Name>,
    /// The text of a file; empty if there is none.
    pub read: &'a dyn Fn(&std::path::Path) -> String,
}

/// A compiled Corefile.
pub struct Program {
    /// The configuration.
    pub corefile: Corefile,
    routes: BTreeMap<u16, Arc<Routes>>,
}

/// The server blocks of a port.
pub struct Routes {
    blocks: Vec<Arc<Block>>,
}

impl Program {
    /// Compiles a Corefile. Caches of the previous program are kept where their configuration is the same.
    pub fn compile(corefile: Corefile, environment: &Environment, previous: Option<&Program>) -> Program {
        let mut routes: BTreeMap<u16, Vec<Arc<Block>>> = BTreeMap::new();
        for config in &corefile.blocks {
            let old = previous.and_then(|previous| previous.block(config.port, &config.zones));
            let block = Block::new(config.clone(), environment, old);
            routes.entry(config.port).or_default().push(Arc::new(block));
        }
        let routes = routes.into_iter().map(|(port, blocks)| (port, Arc::new(Routes { blocks })));
        Program { routes: routes.collect(), corefile }
    }

    /// The server blocks of a port.
    pub fn routes(&self, port: u16) -> Option<&Arc<Routes>> {
        self.routes.get(&port)
    }

    /// All server blocks.
    pub fn blocks(&self) -> impl Iterator<Item = &Arc<Block>> {
        self.routes.values().flat_map(|routes| &routes.blocks)
    }

    fn block(&self, port: u16, zones: &[Name]) -> Option<&Block> {
        let blocks = &self.routes.get(&port)?.blocks;
        blocks.iter().find(|block| block.config.zones == zones).map(|block| &**block)
    }

    /// Whether all names of the cluster are known.
    pub fn is_synced(&self) -> bool {
        self.blocks().all(|block| block.is_synced())
    }

    /// Whether a query came back from an upstream.
    pub fn has_loop(&self) -> bool {
        self.blocks().any(|block| block.has_loop())
    }
}

impl Routes {
    /// The block with the longest zone that a name is in, and that zone.
    pub fn find(&self, name: &Name) -> Option<(&Arc<Block>, &Name)> {
        let zones = self.blocks.iter().flat_map(|block| block.config.zones.iter().map(move |zone| (block, zone)));
        zones.filter(|(_, zone)| name.is_within(zone)).max_by_key(|(_, zone)| zone.as_wire().len())
    }
}

//! How the topology manager aligns resources to NUMA nodes.

use std::collections::BTreeMap;

use super::error::InvalidValue;
use super::values::policy_option;

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Policy {
    #[default]
    None,
    BestEffort,
    Restricted,
    SingleNumaNode,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Scope {
    #[default]
    Container,
    Pod,
}

/// `topologyManagerPolicyOptions`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Options {
    pub(crate) prefer_closest: bool,
    pub(crate) most_nodes: usize,
}

impl Default for Options {
    fn default() -> Options {
        Options { prefer_closest: false, most_nodes: MOST_NODES }
    }
}

/// The ways to choose among more are too many.
const MOST_NODES: usize = 8;

impl Options {
    pub(crate) fn read(settings: &BTreeMap<String, String>) -> Result<Options, InvalidValue> {
        let mut options = Options::default();
        for (name, value) in settings {
            match name.as_str() {
                "prefer-closest-numa-nodes" => options.prefer_closest = policy_option(name, value)?,
                "max-allowable-numa-nodes" => {
                    let most = value.parse().map_err(|_| {
                        let why =
                            format!("unable to convert policy option to integer {name:?}: {value:?} is not a number");
                        InvalidValue::new(why)
                    })?;
                    if most < MOST_NODES {
                        return Err(InvalidValue::new(format!(
                            "the minimum value of {name:?} should not be less than {MOST_NODES}, got {most}"
                        )));
                    }
                    options.most_nodes = most;
                }
                _ => return Err(InvalidValue::new(format!("unknown Topology Manager Policy option: {name:?}"))),
            }
        }
        Ok(options)
    }
}

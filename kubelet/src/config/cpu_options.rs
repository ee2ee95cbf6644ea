//! `cpuManagerPolicyOptions`.

use std::collections::BTreeMap;

use super::error::InvalidValue;

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Options {
    pub(crate) full_cores_only: bool,
    pub(crate) distribute_over_nodes: bool,
    pub(crate) align_by_socket: bool,
    pub(crate) distribute_over_cores: bool,
    /// Reserved CPUs are not shared either.
    pub(crate) strict_reservation: bool,
    pub(crate) prefer_cache: bool,
}

const FULL: &str = "full-pcpus-only";
const NODES: &str = "distribute-cpus-across-numa";
const SOCKET: &str = "align-by-socket";
const CORES: &str = "distribute-cpus-across-cores";
const STRICT: &str = "strict-cpu-reservation";
const CACHE: &str = "prefer-align-cpus-by-uncorecache";

/// Options that exclude each other.
const APART: [(&str, &str); 4] = [(FULL, CORES), (NODES, CORES), (CACHE, CORES), (CACHE, NODES)];

impl Options {
    pub(crate) fn read(settings: &BTreeMap<String, String>) -> Result<Options, InvalidValue> {
        let mut options = Options::default();
        for (name, value) in settings {
            let place = options
                .option_mut(name)
                .ok_or_else(|| InvalidValue::new(format!("unknown CPU Manager Policy option: {name:?}")))?;
            *place = super::values::policy_option(name, value)?;
        }
        for (one, other) in APART {
            if options.is_on(one) && options.is_on(other) {
                return Err(InvalidValue::new(format!(
                    "static policy options {one} and {other} can not be used at the same time"
                )));
            }
        }
        Ok(options)
    }

    fn option_mut(&mut self, name: &str) -> Option<&mut bool> {
        Some(match name {
            FULL => &mut self.full_cores_only,
            NODES => &mut self.distribute_over_nodes,
            SOCKET => &mut self.align_by_socket,
            CORES => &mut self.distribute_over_cores,
            STRICT => &mut self.strict_reservation,
            CACHE => &mut self.prefer_cache,
            _ => return None,
        })
    }

    fn is_on(mut self, name: &str) -> bool {
        self.option_mut(name).is_some_and(|on| *on)
    }
}

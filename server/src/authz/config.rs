//! Which authorizers there are, in which order.

use std::sync::Arc;

use super::abac::Policies;

/// One authorizer as it is configured.
#[derive(Debug, Clone)]
pub struct Setting {
    /// Stands before its reasons; upstream's default is the mode in lower case.
    pub name: String,
    pub mode: Mode,
}

#[derive(Debug, Clone)]
pub enum Mode {
    AlwaysAllow,
    AlwaysDeny,
    Abac(Arc<Policies>),
    Node,
    Rbac,
}

impl Mode {
    /// Under which name it is asked for.
    pub fn name(&self) -> &'static str {
        match self {
            Mode::AlwaysAllow => "AlwaysAllow",
            Mode::AlwaysDeny => "AlwaysDeny",
            Mode::Abac(_) => "ABAC",
            Mode::Node => "Node",
            Mode::Rbac => "RBAC",
        }
    }
}

impl From<Mode> for Setting {
    fn from(mode: Mode) -> Setting {
        Setting { name: mode.name().to_lowercase(), mode }
    }
}

/// What a cluster runs with that is told nothing.
pub fn node_and_rbac() -> Vec<Setting> {
    vec![Mode::Node.into(), Mode::Rbac.into()]
}

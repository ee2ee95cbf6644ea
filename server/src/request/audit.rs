//! The decision of the audit policy about a request, and the record of the request for its events.

use std::time::SystemTime;

use bytes::Bytes;

/// The amount that the audit log records of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum Level {
    #[default]
    None,
    Metadata,
    Request,
    RequestResponse,
}

impl Level {
    /// In increasing order.
    pub(crate) const ALL: [Level; 4] = [Level::None, Level::Metadata, Level::Request, Level::RequestResponse];

    /// The level's name in policies and events.
    pub fn name(self) -> &'static str {
        match self {
            Level::None => "None",
            Level::Metadata => "Metadata",
            Level::Request => "Request",
            Level::RequestResponse => "RequestResponse",
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stage {
    RequestReceived,
    ResponseStarted,
    ResponseComplete,
    Panic,
}

pub(crate) const STAGES: [(&str, Stage); 4] = [
    ("RequestReceived", Stage::RequestReceived),
    ("ResponseStarted", Stage::ResponseStarted),
    ("ResponseComplete", Stage::ResponseComplete),
    ("Panic", Stage::Panic),
];

impl Stage {
    pub(crate) fn name(self) -> &'static str {
        STAGES.iter().find(|(_, stage)| *stage == self).map_or("", |(name, _)| name)
    }
}

/// The decision of the policy about one request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Decision {
    pub level: Level,
    /// A bit for each omitted stage.
    pub omitted: u8,
    pub omit_managed_fields: bool,
}

impl Decision {
    pub(crate) fn records(&self, stage: Stage) -> bool {
        self.omitted & bit(stage) == 0
    }
}

pub(crate) fn bit(stage: Stage) -> u8 {
    1 << stage as u8
}

/// The parts of a request that its audit events contain.
pub(crate) struct RequestRecord {
    pub decision: Decision,
    pub received: SystemTime,
    /// The body, if the policy records it or the object's name is in it.
    pub request: Option<Bytes>,
}

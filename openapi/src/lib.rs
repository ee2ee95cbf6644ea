//! The OpenAPI documents: v3 with one document per group version, v2 with one for all, each as JSON and protobuf.
//! Everything is a pure function of the schema table, the kinds and the caller's additions; nothing is cached, since
//! the server stores the compressed bytes.

#![warn(unreachable_pub)]

mod convert;
mod custom;
mod document;
mod etag;
mod names;
mod nonresource;
mod operation;
mod parameters;
mod paths;
mod proto;
mod resource;
mod schemas;
pub mod v2;
pub mod v3;
mod writer;

pub use convert::convert_to_v3;
pub use etag::etag;
pub use resource::Resource;
pub use v2::{Part, PartIndex, Skeleton, join, restrict, skeleton};

use std::collections::BTreeSet;

use api::Map;
use kinds::Kind;

/// The API that the documents describe.
#[derive(Clone, Copy)]
pub struct Api<'a> {
    /// The version of `/version`, such as `v1.37.0`.
    pub version: &'a str,
    pub kinds: &'a [&'static Kind],
    pub texts: &'a dyn DescriptionSource,
    /// Custom resources and other served resources besides the kinds.
    pub extras: &'a [Extra],
}

/// Resources that are not in the schema table, with their schemas.
#[derive(Clone, Default)]
pub struct Extra {
    pub resources: Vec<Resource>,
    /// Schemas by name, in OpenAPI v3 form with references to `#/components/schemas/`; v2 is derived from them.
    pub schemas: Map,
}

/// The source of descriptions. Names are OpenAPI's: `io.k8s.api.core.v1.PodSpec`.
pub trait DescriptionSource {
    fn type_description(&self, ty: &str) -> Option<&str>;
    /// The description of a field of a type.
    fn field_description(&self, ty: &str, field: &str) -> Option<&str>;
}

/// Documents without descriptions.
pub struct NoDescriptions;

impl DescriptionSource for NoDescriptions {
    fn type_description(&self, _: &str) -> Option<&str> {
        None
    }

    fn field_description(&self, _: &str, _: &str) -> Option<&str> {
        None
    }
}

/// The encoding of a document.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Encoding {
    Json,
    /// gnostic's messages.
    Protobuf,
}

impl Api<'_> {
    /// Every group version that is served, sorted.
    fn group_versions(&self) -> BTreeSet<(String, String)> {
        self.resources().iter().map(|resource| (resource.group.to_string(), resource.version.to_string())).collect()
    }

    /// Every resource, built-in ones first.
    fn resources(&self) -> Vec<Resource> {
        let extras = self.extras.iter().flat_map(|extra| extra.resources.iter().cloned());
        self.kinds.iter().map(|kind| Resource::of(kind)).chain(extras).collect()
    }
}

//! Values of Kubernetes' libraries: URLs, quantities, addresses, versions, formats, and authorization checks.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use api::quantity::Quantity;
use stdx::cidr::IpNet;

use super::EvalError;
use crate::types::Type;

/// A value that only functions of the libraries understand.
#[derive(Debug, Clone)]
pub enum Opaque<'a> {
    Url(Arc<Url>),
    Quantity(Arc<Quantity>),
    Ip(IpAddr),
    Cidr(IpNet),
    Semver(Arc<Semver>),
    Format(&'static NamedFormat),
    Authorizer(Arc<AuthorizerValue<'a>>),
    PathCheck(Arc<(AuthorizerValue<'a>, Arc<str>)>),
    GroupCheck(Arc<(AuthorizerValue<'a>, Arc<str>)>),
    ResourceCheck(Arc<ResourceCheck<'a>>),
    Decision(Arc<Decision>),
}

/// The parts of a URL.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Url {
    pub(crate) scheme: String,
    /// The host with its port.
    pub(crate) host: String,
    pub(crate) path: String,
    pub(crate) query: String,
    /// The whole URL in its normal form: two URLs are equal if these are.
    pub(crate) text: String,
}

/// A semantic version.
#[derive(Debug, Clone, Default)]
pub struct Semver {
    pub(crate) numbers: [u64; 3],
    pub(crate) prerelease: Vec<String>,
}

/// A format whose names start with `format.`.
pub struct NamedFormat {
    pub(crate) name: &'static str,
    /// The length of the longest regular expression that validates it.
    pub(crate) regex_size: u64,
    pub(crate) validate: fn(&str) -> Vec<String>,
}

impl fmt::Debug for NamedFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "NamedFormat({})", self.name)
    }
}

/// The user of an authorization check: the user of the request, or a service account.
#[derive(Clone)]
pub struct AuthorizerValue<'a> {
    pub(crate) authorizer: &'a dyn Authorizer,
    /// The namespace and name of a service account that replaces the user.
    pub(crate) service_account: Option<(Arc<str>, Arc<str>)>,
}

impl fmt::Debug for AuthorizerValue<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Authorizer").field("service_account", &self.service_account).finish_non_exhaustive()
    }
}

/// A check of a resource that an expression builds.
#[derive(Debug, Clone)]
pub struct ResourceCheck<'a> {
    pub(crate) authorizer: AuthorizerValue<'a>,
    pub(crate) request: ResourceRequest,
}

/// The resource of a request to authorize.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct ResourceRequest {
    pub group: String,
    pub resource: String,
    pub subresource: String,
    pub namespace: String,
    pub name: String,
    pub field_selector: String,
    pub label_selector: String,
}

/// An authorization check of an expression.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuthorizerRequest<'r> {
    /// The namespace and name of a service account; the user of the request otherwise.
    pub service_account: Option<(&'r str, &'r str)>,
    pub verb: &'r str,
    pub target: AuthorizerTarget<'r>,
}

/// The target of the access.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AuthorizerTarget<'r> {
    Path(&'r str),
    /// A resource in any version.
    Resource(&'r ResourceRequest),
}

/// The decision of an authorizer.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Decision {
    pub allowed: bool,
    pub reason: String,
    pub error: Option<String>,
}

/// Authorizes the checks of expressions: `authorizer.…check(verb)`. The caller of an evaluation supplies it.
pub trait Authorizer: Send + Sync {
    /// Decides whether the request would be allowed.
    fn authorize(&self, request: &AuthorizerRequest<'_>) -> Decision;
}

impl Opaque<'_> {
    pub(crate) fn type_of(&self) -> Type {
        match self {
            Opaque::Url(_) => Type::object("kubernetes.URL"),
            Opaque::Quantity(_) => Type::object("kubernetes.Quantity"),
            Opaque::Semver(_) => Type::object("kubernetes.Semver"),
            Opaque::Format(_) => Type::object("kubernetes.NamedFormat"),
            Opaque::Ip(_) => Type::opaque("net.IP"),
            Opaque::Cidr(_) => Type::opaque("net.CIDR"),
            Opaque::Authorizer(_) => Type::object("kubernetes.authorization.Authorizer"),
            Opaque::PathCheck(_) => Type::object("kubernetes.authorization.PathCheck"),
            Opaque::GroupCheck(_) => Type::object("kubernetes.authorization.GroupCheck"),
            Opaque::ResourceCheck(_) => Type::object("kubernetes.authorization.ResourceCheck"),
            Opaque::Decision(_) => Type::object("kubernetes.authorization.Decision"),
        }
    }

    pub(crate) fn size(&self) -> usize {
        match self {
            Opaque::Ip(IpAddr::V4(_)) => 4,
            Opaque::Ip(IpAddr::V6(_)) => 16,
            Opaque::Cidr(cidr) => usize::from(cidr.prefix()).div_ceil(8),
            _ => 1,
        }
    }

    pub(crate) fn equal(&self, other: &Opaque<'_>) -> Result<bool, EvalError> {
        match (self, other) {
            (Opaque::Url(a), Opaque::Url(b)) => Ok(a.text == b.text),
            (Opaque::Quantity(a), Opaque::Quantity(b)) => Ok(a == b),
            (Opaque::Semver(a), Opaque::Semver(b)) => Ok(a.compare(b).is_eq()),
            (Opaque::Format(a), Opaque::Format(b)) => Ok(a.name == b.name),
            (Opaque::Ip(a), Opaque::Ip(b)) => Ok(a == b),
            (Opaque::Cidr(a), Opaque::Cidr(b)) => Ok(a == b),
            _ => Err(EvalError::overload()),
        }
    }
}

impl Semver {
    /// The precedence: a prerelease is before its release, and its parts are compared as numbers if they are.
    pub(crate) fn compare(&self, other: &Semver) -> std::cmp::Ordering {
        let numbers = self.numbers.cmp(&other.numbers);
        numbers.then_with(|| match (self.prerelease.is_empty(), other.prerelease.is_empty()) {
            (true, true) => std::cmp::Ordering::Equal,
            (true, false) => std::cmp::Ordering::Greater,
            (false, true) => std::cmp::Ordering::Less,
            (false, false) => compare_prereleases(&self.prerelease, &other.prerelease),
        })
    }
}

fn compare_prereleases(a: &[String], b: &[String]) -> std::cmp::Ordering {
    for (a, b) in a.iter().zip(b) {
        let order = match (a.parse::<u64>(), b.parse::<u64>()) {
            (Ok(a), Ok(b)) => a.cmp(&b),
            (Ok(_), Err(_)) => std::cmp::Ordering::Less,
            (Err(_), Ok(_)) => std::cmp::Ordering::Greater,
            (Err(_), Err(_)) => a.cmp(b),
        };
        if order.is_ne() {
            return order;
        }
    }
    a.len().cmp(&b.len())
}

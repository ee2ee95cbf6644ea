//! Parses names below the zone.

/// A name below the zone, by its labels.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Request<'a> {
    /// The zone itself, `svc` or `pod`: such names exist without records.
    Empty,
    /// `dns-version`.
    Version,
    /// `ns.dns`: the server itself.
    NameServer,
    /// `NAMESPACE.svc` or `NAMESPACE.pod`.
    Namespace(&'a str),
    Pod {
        namespace: &'a str,
        label: &'a str,
    },
    Service {
        namespace: &'a str,
        service: &'a str,
        part: Part<'a>,
    },
    /// No name of this kind exists.
    Nothing,
}

/// The part of a Service that a name refers to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Part<'a> {
    Whole,
    Endpoint(&'a str),
    Port { name: &'a str, protocol: &'a str },
}

impl Part<'_> {
    /// Whether a port belongs to it; all do unless one is named.
    pub(super) fn has_port(&self, name: &str, protocol: &str) -> bool {
        match self {
            Part::Whole | Part::Endpoint(_) => true,
            // Without underscores, either may be left out as in CoreDNS.
            Part::Port { name: port, protocol: of } => {
                (port.is_empty() || *port == name) && (of.is_empty() || *of == protocol)
            }
        }
    }
}

impl<'a> Request<'a> {
    /// From the labels before the zone, in lower case.
    pub(super) fn parse(labels: &[&'a str]) -> Request<'a> {
        match labels {
            [] | ["svc" | "pod"] => Request::Empty,
            ["dns-version"] => Request::Version,
            ["ns", "dns"] => Request::NameServer,
            [namespace, "svc" | "pod"] => Request::Namespace(namespace),
            [label, namespace, "pod"] => Request::Pod { namespace, label },
            [service, namespace, "svc"] => Request::Service { namespace, service, part: Part::Whole },
            [endpoint, service, namespace, "svc"] => {
                Request::Service { namespace, service, part: Part::Endpoint(endpoint) }
            }
            [port, protocol, service, namespace, "svc"] => {
                let (name, protocol) = (bare(port), bare(protocol));
                Request::Service { namespace, service, part: Part::Port { name, protocol } }
            }
            _ => Request::Nothing,
        }
    }
}

fn bare(label: &str) -> &str {
    label.strip_prefix('_').unwrap_or(label)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_names() {
        let check = |name: &str, want: Request| {
            let labels: Vec<&str> = name.split('.').filter(|label| !label.is_empty()).collect();
            assert_eq!(Request::parse(&labels), want, "{name}");
        };
        check("", Request::Empty);
        check("svc", Request::Empty);
        check("dns-version", Request::Version);
        check("ns.dns", Request::NameServer);
        check("dns", Request::Nothing);
        check("a.svc", Request::Namespace("a"));
        check("a.pod", Request::Namespace("a"));
        check("10-0-0-1.a.pod", Request::Pod { namespace: "a", label: "10-0-0-1" });
        check("x.10-0-0-1.a.pod", Request::Nothing);
        let service = |part| Request::Service { namespace: "a", service: "web", part };
        check("web.a.svc", service(Part::Whole));
        check("db-0.web.a.svc", service(Part::Endpoint("db-0")));
        check("_http._tcp.web.a.svc", service(Part::Port { name: "http", protocol: "tcp" }));
        check("x._http._tcp.web.a.svc", Request::Nothing);
        check("web.a", Request::Nothing);
    }
}

//! The query log, in CoreDNS' format.

use crate::chain::Query;
use crate::corefile::{Log, LogClass};
use crate::message::{Header, Message, Question, Rcode, class};
use crate::metrics::Transport;

/// The classes of a response.
fn class_of(response: &Message) -> LogClass {
    match response.header.rcode {
        Rcode::NO_ERROR if !response.answers.is_empty() => LogClass::Success,
        Rcode::NO_ERROR | Rcode::NAME_ERROR => LogClass::Denial,
        _ => LogClass::Error,
    }
}

/// Logs a query if it is selected.
pub(super) fn log(config: &Log, query: &Query, question: &Question, response: &Message, size: usize, seconds: f64) {
    let is_selected = config.classes.contains(&LogClass::All) || config.classes.contains(&class_of(response));
    if is_selected && config.zones.iter().any(|zone| question.name.is_within(zone)) {
        let line = format_line(&config.format, query, question, response, size, seconds);
        tracing::info!(target: "dns::query", "{line}");
    }
}

fn format_line(
    format: &str,
    query: &Query,
    question: &Question,
    response: &Message,
    size: usize,
    seconds: f64,
) -> String {
    let host = |address: std::net::IpAddr| if address.is_ipv6() { format!("[{address}]") } else { address.to_string() };
    let edns = query.message.edns.unwrap_or_default();
    let payload = match query.transport {
        Transport::Udp => edns.payload.max(512),
        Transport::Tcp => u16::MAX,
    };
    let values = [
        ("{remote}", host(query.source.ip())),
        ("{local}", host(query.local.ip())),
        ("{port}", query.source.port().to_string()),
        ("{>id}", query.message.header.id.to_string()),
        ("{type}", question.qtype.to_string()),
        ("{class}", class::text(question.class)),
        ("{name}", question.name.to_string()),
        ("{proto}", query.transport.name().to_string()),
        ("{size}", query.size.to_string()),
        ("{>do}", edns.dnssec_ok.to_string()),
        ("{>bufsize}", payload.to_string()),
        ("{>opcode}", query.message.header.opcode.to_string()),
        ("{rcode}", response.header.rcode.to_string()),
        ("{>rflags}", flags(&response.header)),
        ("{rsize}", size.to_string()),
        ("{duration}", format!("{seconds:.9}s")),
    ];
    values.iter().fold(format.to_string(), |line, (placeholder, value)| line.replace(placeholder, value))
}

fn flags(header: &Header) -> String {
    let flags = [
        ("qr", true),
        ("aa", header.authoritative),
        ("tc", header.truncated),
        ("rd", header.recursion_desired),
        ("ra", header.recursion_available),
        ("ad", header.authentic_data),
        ("cd", header.checking_disabled),
    ];
    let set: Vec<&str> = flags.into_iter().filter(|(_, is_set)| *is_set).map(|(name, _)| name).collect();
    set.join(",")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::corefile::Corefile;
    use crate::message::{Name, Type};

    #[test]
    fn lines_have_the_format_of_coredns() {
        let question = Question::new(Name::parse("example.org").expect("a name"), Type::A);
        let message = Message::query(29008, question.clone());
        let response = message.reply(Rcode::NO_ERROR);
        let query = Query {
            message,
            source: "[::1]:50759".parse().expect("an address"),
            local: "[::1]:53".parse().expect("an address"),
            transport: Transport::Udp,
            size: 41,
        };
        let corefile = Corefile::parse(". {\nlog\n}", &|_| None).expect("a Corefile");
        let line = format_line(&corefile.blocks[0].log[0].format, &query, &question, &response, 68, 0.037990251);
        assert_eq!(line, "[::1]:50759 - 29008 \"A IN example.org. udp 41 false 512\" NOERROR qr,rd 68 0.037990251s");
        assert_eq!(class_of(&response), LogClass::Denial);
    }
}

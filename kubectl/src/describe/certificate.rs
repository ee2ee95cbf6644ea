//! Certificate signing requests, with what their PEM says.

use std::net::IpAddr;

use api::{Tree, base64, time};
use x509_parser::certification_request::X509CertificationRequest;
use x509_parser::cri_attributes::ParsedCriAttribute;
use x509_parser::extensions::{GeneralName, ParsedExtension};
use x509_parser::pem::parse_x509_pem;
use x509_parser::prelude::{FromDer, X509Name};

use super::values::long_time;
use super::writer::{Writer, put};
use crate::error::{Error, Result};

pub(super) fn signing_request(w: &mut Writer, object: &Tree) -> Result<()> {
    let request = Request::decode(object.str("spec.request"))
        .ok_or_else(|| Error::new("Error parsing CSR: spec.request is not a PEM certificate request in base64"))?;
    w.field("Name", object.str("metadata.name"));
    w.labels("Labels", object.map("metadata.labels"));
    // Upstream prints them like labels here.
    w.labels("Annotations", object.map("metadata.annotations"));
    w.field("CreationTimestamp", long_time(object.str("metadata.creationTimestamp")));
    w.field("Requesting User", object.str("spec.username"));
    if !object.str("spec.signerName").is_empty() {
        w.field("Signer", object.str("spec.signerName"));
    }
    if let Some(seconds) = object.int("spec.expirationSeconds") {
        w.field("Requested Duration", time::human_duration(seconds));
    }
    w.field("Status", status(object));
    request.describe(w);
    Ok(())
}

/// `Approved,Issued`.
fn status(object: &Tree) -> String {
    let has = |kind: &str| object.list("status.conditions").iter().any(|condition| condition.str("type") == kind);
    let mut words = Vec::new();
    match (has("Approved"), has("Denied")) {
        (_, true) => words.push("Denied"),
        (true, false) => words.push("Approved"),
        (false, false) => words.push("Pending"),
    }
    if has("Failed") {
        words.push("Failed");
    }
    if !object.str("status.certificate").is_empty() {
        words.push("Issued");
    }
    words.join(",")
}

/// The parts of a request that are printed.
#[derive(Debug, Default)]
struct Request {
    /// Title and values, in the order of the output.
    subject: Vec<(&'static str, Vec<String>)>,
    common_name: String,
    serial_number: String,
    dns: Vec<String>,
    emails: Vec<String>,
    uris: Vec<String>,
    addresses: Vec<String>,
}

impl Request {
    fn decode(encoded: &str) -> Option<Request> {
        let bytes = base64::decode(encoded).ok()?;
        let (_, pem) = parse_x509_pem(&bytes).ok()?;
        let (_, csr) = X509CertificationRequest::from_der(&pem.contents).ok()?;
        let info = &csr.certification_request_info;
        let mut request = Request::of_subject(&info.subject);
        for attribute in info.attributes() {
            let ParsedCriAttribute::ExtensionRequest(wanted) = attribute.parsed_attribute() else { continue };
            for extension in &wanted.extensions {
                if let ParsedExtension::SubjectAlternativeName(names) = extension.parsed_extension() {
                    names.general_names.iter().for_each(|name| request.add_name(name));
                }
            }
        }
        Some(request)
    }

    fn of_subject(name: &X509Name<'_>) -> Request {
        const TITLES: [(&str, &str); 7] = [
            ("Organization", "2.5.4.10"),
            ("Organizational Unit", "2.5.4.11"),
            ("Country", "2.5.4.6"),
            ("Locality", "2.5.4.7"),
            ("Province", "2.5.4.8"),
            ("Street Address", "2.5.4.9"),
            ("Postal Code", "2.5.4.17"),
        ];
        let values = |oid: &str| -> Vec<String> {
            let found = name.iter_attributes().filter(|attribute| attribute.attr_type().to_id_string() == oid);
            found.filter_map(|attribute| attribute.as_str().ok()).map(str::to_string).collect()
        };
        let last = |oid: &str| values(oid).pop().unwrap_or_default();
        Request {
            subject: TITLES.iter().map(|(title, oid)| (*title, values(oid))).collect(),
            common_name: last("2.5.4.3"),
            serial_number: last("2.5.4.5"),
            ..Request::default()
        }
    }

    fn add_name(&mut self, name: &GeneralName<'_>) {
        match name {
            GeneralName::DNSName(name) => self.dns.push((*name).to_string()),
            GeneralName::RFC822Name(name) => self.emails.push((*name).to_string()),
            GeneralName::URI(name) => self.uris.push((*name).to_string()),
            GeneralName::IPAddress(bytes) => {
                let v4 = <[u8; 4]>::try_from(*bytes).map(IpAddr::from);
                let address = v4.or_else(|_| <[u8; 16]>::try_from(*bytes).map(IpAddr::from));
                self.addresses.extend(address.map(|address| address.to_string()).ok());
            }
            _ => {}
        }
    }

    fn describe(&self, w: &mut Writer) {
        w.write(0, "Subject:\n");
        put!(w, 0, "\tCommon Name:\t{}\n", self.common_name);
        put!(w, 0, "\tSerial Number:\t{}\n", self.serial_number);
        self.subject.iter().for_each(|(title, values)| put_list(w, title, values));
        let names = [
            ("DNS Names", &self.dns),
            ("Email Addresses", &self.emails),
            ("URIs", &self.uris),
            ("IP Addresses", &self.addresses),
        ];
        if names.iter().any(|(_, values)| !values.is_empty()) {
            w.write(0, "Subject Alternative Names:\n");
            names.iter().for_each(|(title, values)| put_list(w, title, values));
        }
    }
}

fn put_list(w: &mut Writer, title: &str, values: &[String]) {
    if !values.is_empty() {
        put!(w, 0, "\t{title}:\t{}\n", values.join("\n\t\t"));
    }
}

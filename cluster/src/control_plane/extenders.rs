//! The clients of the scheduler's extenders.

use std::sync::Arc;

use scheduler::config::ExtenderConfig;
use scheduler::extender::{ExtenderTransport, PostFuture};
use server::outbound::callout::{Client, Identity, Trust, Url};

/// A client for each extender, by its address.
pub(crate) struct ExtenderClients(Vec<(ExtenderConfig, Client)>);

impl ExtenderClients {
    /// Reads the files that the extenders name; an error names the invalid field.
    pub(crate) fn new(extenders: &[ExtenderConfig]) -> Result<Arc<ExtenderClients>, ExtenderError> {
        let client = |(index, one): (usize, &ExtenderConfig)| {
            let client = client(one).map_err(|error| ExtenderError { index, ..error })?;
            Ok((one.clone(), client))
        };
        Ok(Arc::new(ExtenderClients(extenders.iter().enumerate().map(client).collect::<Result<_, _>>()?)))
    }
}

/// An extender whose configuration cannot be used, by its field.
#[derive(Debug, thiserror::Error)]
#[error("extenders[{index}].{field}: {reason}")]
pub(crate) struct ExtenderError {
    index: usize,
    field: &'static str,
    reason: String,
}

fn invalid(field: &'static str, reason: impl std::fmt::Display) -> ExtenderError {
    ExtenderError { index: 0, field, reason: reason.to_string() }
}

fn client(extender: &ExtenderConfig) -> Result<Client, ExtenderError> {
    Url::parse(&extender.url_prefix).map_err(|why| invalid("urlPrefix", why))?;
    let tls = &extender.tls;
    let read = |field: &'static str, file: &str| {
        std::fs::read(file).map_err(|why| invalid(field, format_args!("{file}: {why}")))
    };
    let trust = match (tls.insecure, tls.ca_file.as_str()) {
        (true, _) => Trust::InsecureSkipVerify,
        (false, "") => Trust::System,
        (false, file) => {
            let pem = read("tlsConfig.caFile", file)?;
            Trust::pem(&pem).map_err(|why| invalid("tlsConfig.caFile", format_args!("{file}: {why}")))?
        }
    };
    let identity = match tls.cert_file.is_empty() {
        true => None,
        false => {
            let (chain, key) = (read("tlsConfig.certFile", &tls.cert_file)?, read("tlsConfig.keyFile", &tls.key_file)?);
            Some(Identity::pem(&chain, &key).map_err(|why| invalid("tlsConfig.certFile", why))?)
        }
    };
    let client = Client::new(&trust, identity.as_ref()).map_err(|why| invalid("tlsConfig", why))?;
    let name = (!tls.server_name.is_empty()).then(|| tls.server_name.clone());
    Ok(client.with_server_name(name))
}

impl ExtenderTransport for ExtenderClients {
    fn post<'a>(&'a self, extender: &'a ExtenderConfig, verb: &'a str, body: Vec<u8>) -> PostFuture<'a> {
        Box::pin(async move {
            let client = self.0.iter().find(|(known, _)| known == extender).map(|(_, client)| client);
            let client = client.ok_or("unknown extender")?;
            let url = Url::parse(&format!("{}/{}", extender.url_prefix, verb.trim_start_matches('/')));
            let url = url.map_err(|error| error.to_string())?;
            let answer = client.post_json(&url, body, extender.timeout).await.map_err(|error| error.to_string())?;
            match answer.code {
                200 => Ok(answer.body.to_vec()),
                code => Err(format!("{verb}: unexpected status code {code}").into()),
            }
        })
    }
}

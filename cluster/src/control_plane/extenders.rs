//! The way to the scheduler's extenders.

use std::sync::Arc;

use scheduler::config::ExtenderConfig;
use scheduler::extender::{ExtenderTransport, PostFuture};
use server::outbound::callout::{Client, Identity, Trust, Url};

/// A client for each extender, by its address.
pub(crate) struct ExtenderClients(Vec<(ExtenderConfig, Client)>);

impl ExtenderClients {
    /// Reads the files that the extenders name; an error names the invalid field.
    pub(crate) fn new(extenders: &[ExtenderConfig]) -> Result<Arc<ExtenderClients>, String> {
        let client = |(index, one): (usize, &ExtenderConfig)| {
            let client = client(one).map_err(|why| format!("extenders[{index}].{why}"))?;
            Ok((one.clone(), client))
        };
        Ok(Arc::new(ExtenderClients(extenders.iter().enumerate().map(client).collect::<Result<_, String>>()?)))
    }
}

fn client(extender: &ExtenderConfig) -> Result<Client, String> {
    Url::parse(&extender.url_prefix).map_err(|why| format!("urlPrefix: {why}"))?;
    let tls = &extender.tls;
    let read = |field: &str, file: &str| std::fs::read(file).map_err(|why| format!("tlsConfig.{field}: {file}: {why}"));
    let trust = match (tls.insecure, tls.ca_file.as_str()) {
        (true, _) => Trust::Anybody,
        (false, "") => Trust::System,
        (false, file) => {
            Trust::pem(&read("caFile", file)?).map_err(|why| format!("tlsConfig.caFile: {file}: {why}"))?
        }
    };
    let identity = match tls.cert_file.is_empty() {
        true => None,
        false => {
            let (chain, key) = (read("certFile", &tls.cert_file)?, read("keyFile", &tls.key_file)?);
            Some(Identity::pem(&chain, &key).map_err(|why| format!("tlsConfig.certFile: {why}"))?)
        }
    };
    let client = Client::new(&trust, identity.as_ref()).map_err(|why| format!("tlsConfig: {why}"))?;
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

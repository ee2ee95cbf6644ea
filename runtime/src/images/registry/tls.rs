//! The TLS configuration of registry clients.

use std::path::Path;
use std::sync::{Arc, OnceLock};

use http_client::{Identity, Trust, tls};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore};

use super::super::error::{Error, Result};
use super::hosts::Host;

/// Trusts the machine's CAs and those that are configured for this host.
pub(super) fn config(host: &Host) -> Result<Arc<ClientConfig>> {
    let configured = host.ca_files.iter().map(|path| cas(path)).collect::<Result<Vec<_>>>()?;
    let trust = match host.skip_verify {
        true => Trust::InsecureSkipVerify,
        false => Trust::CaBundle(system_cas().iter().cloned().chain(configured.into_iter().flatten()).collect()),
    };
    let identity = match &host.identity {
        Some((chain, key)) => {
            let pem = PrivateKeyDer::from_pem_file(key).map_err(|error| bad(key, &error))?;
            Some(Identity::new(certificates(chain)?, pem))
        }
        None => None,
    };
    let named = host.identity.as_ref().map_or(Path::new("TLS"), |(chain, _)| chain.as_path());
    tls::config(&trust, identity.as_ref(), &[tls::HTTP1]).map(Arc::new).map_err(|error| bad(named, &error))
}

/// Certificates that can all be used as a CA.
fn cas(path: &Path) -> Result<Vec<CertificateDer<'static>>> {
    let all = certificates(path)?;
    for certificate in &all {
        RootCertStore::empty().add(certificate.clone()).map_err(|error| bad(path, &error))?;
    }
    Ok(all)
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>> {
    let read = CertificateDer::pem_file_iter(path).map_err(|error| bad(path, &error))?;
    let all: Vec<_> = read.collect::<Result<_, _>>().map_err(|error| bad(path, &error))?;
    if all.is_empty() { Err(bad(path, &"contains no certificate")) } else { Ok(all) }
}

fn bad(path: &Path, why: &dyn std::fmt::Display) -> Error {
    Error::Hosts { path: path.to_owned(), why: why.to_string() }
}

fn system_cas() -> &'static [CertificateDer<'static>] {
    static CAS: OnceLock<Vec<CertificateDer<'static>>> = OnceLock::new();
    CAS.get_or_init(|| tls::system_bundle().unwrap_or_default())
}

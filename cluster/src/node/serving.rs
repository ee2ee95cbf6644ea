//! What the agent's port shows: a certificate of a file, one that the API server has signed, or one of its own.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::SystemTime;

use client::{Client, Random};
use kubelet::Config;
use server::http::tls::Serving;

use super::bootstrap::Rotated;
use super::request::{self, SERVING_SIGNER, Wanted};
use crate::error::{Error, Result};
use crate::pki::{self, Pair, write_private};

const BASE: &str = "kubelet-server";

/// The certificate to begin with, and what keeps it good; none where a file says it.
pub fn serving(
    config: &Config,
    client: &Client,
    addresses: Arc<dyn Fn() -> Vec<IpAddr> + Send + Sync>,
    random: Arc<Random>,
) -> Result<(Arc<Serving>, Option<Rotated>)> {
    let certificates = &config.certificates;
    if let (Some(certificate), Some(key)) = (&certificates.tls_cert_file, &certificates.tls_private_key_file) {
        return Ok((shown(&Pair::read(certificate, key)?)?, None));
    }
    let known: Vec<IpAddr> = addresses();
    let address = known.first().copied().unwrap_or(IpAddr::from([127, 0, 0, 1]));
    if !certificates.server_bootstrap {
        return Ok((shown(&own(config, address)?)?, None));
    }
    // Until it is signed the port shows one that nobody can verify, instead of none.
    let serving = shown(&pki::self_signed(&config.node_name, address)?)?;
    let (taken, node, name) = (serving.clone(), config.node_name.clone(), config.hostname.clone());
    let rotated = Rotated {
        dir: certificates.dir.clone().unwrap_or_else(|| config.root_dir.join("pki")),
        base: BASE,
        client: client.clone(),
        random,
        wanted: Box::new(move || {
            let addresses = addresses();
            let wanted = Wanted { signer: SERVING_SIGNER, node: node.clone(), names: vec![name.clone()], addresses };
            (!wanted.addresses.is_empty()).then_some(wanted)
        }),
        take: Box::new(move |pair| Ok(taken.replace(pki::certificates(pair)?, pki::private_key(pair)?)?)),
    };
    Ok((serving, Some(rotated)))
}

fn shown(pair: &Pair) -> Result<Arc<Serving>> {
    Ok(Arc::new(Serving::new(pki::certificates(pair)?, pki::private_key(pair)?)?))
}

/// The one that was made at an earlier start, while it is good.
fn own(config: &Config, address: IpAddr) -> Result<Pair> {
    let dir = config.certificates.dir.clone().unwrap_or_else(|| config.root_dir.join("pki"));
    let (certificate, key) = (dir.join("kubelet.crt"), dir.join("kubelet.key"));
    let is_good = |pair: &Pair| {
        let fits = pki::described(pair).is_ok_and(|known| known.addresses.contains(&address));
        let until = request::kept(&certificate).map(|(_, (_, until))| until);
        fits && until.is_none_or(|until| until > SystemTime::now())
    };
    if let Some(pair) = Pair::read(&certificate, &key).ok().filter(is_good) {
        return Ok(pair);
    }
    let pair = pki::self_signed(&config.node_name, address)?;
    std::fs::create_dir_all(&dir).map_err(Error::file(&dir))?;
    write_private(&key, &pair.key)?;
    write_private(&certificate, &pair.certificate)?;
    Ok(pair)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_certificate_of_its_own_comes_back_and_follows_its_address() {
        let dir = tempfile::tempdir().expect("a folder");
        let mut config = Config { node_name: "n1".to_string(), ..Config::default() };
        config.certificates.dir = Some(dir.path().to_path_buf());
        let made = |address: [u8; 4]| own(&config, IpAddr::from(address)).expect("a certificate").certificate;
        let first = made([10, 0, 0, 1]);
        assert_eq!(made([10, 0, 0, 1]), first);
        assert_ne!(made([10, 0, 0, 2]), first);
    }
}

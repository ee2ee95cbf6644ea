//! Flags of authentication and of TLS.

use std::path::PathBuf;
use std::time::Duration;

use server::authentication::request_header::Names;
use server::request::cors::Cors;
use server::tls;

use super::{Flag, flag, switch};
use crate::flags::FlagError;
use crate::flags::values::{boolean, duration, list, unknown};

/// The parsed flags. Contradictions are checked after all flags were parsed.
pub struct Authentication {
    pub anonymous: Option<bool>,
    pub api_audiences: Vec<String>,
    pub config_file: Option<PathBuf>,
    pub webhook_config_file: Option<PathBuf>,
    pub webhook_cache_ttl: Duration,
    pub webhook_version: String,
    pub basic_auth_file: Option<PathBuf>,
    pub token_auth_file: Option<PathBuf>,
    pub bootstrap_tokens: bool,
    pub oidc: Oidc,
    pub proxy_ca_file: Option<PathBuf>,
    pub proxy_allowed_names: Vec<String>,
    pub proxy_headers: Names,
    pub tls: tls::Options,
}

impl Default for Authentication {
    fn default() -> Authentication {
        Authentication {
            anonymous: None,
            api_audiences: Vec::new(),
            config_file: None,
            webhook_config_file: None,
            webhook_cache_ttl: Duration::from_secs(120),
            webhook_version: "v1beta1".to_string(),
            basic_auth_file: None,
            token_auth_file: None,
            bootstrap_tokens: false,
            oidc: Oidc::default(),
            proxy_ca_file: None,
            proxy_allowed_names: Vec::new(),
            proxy_headers: Names::default(),
            tls: tls::Options::default(),
        }
    }
}

impl Authentication {
    /// Whether clients can authenticate, even without a certificate.
    pub(crate) fn has_authenticators(&self) -> bool {
        let files = [&self.config_file, &self.webhook_config_file, &self.basic_auth_file, &self.token_auth_file];
        files.iter().any(|file| file.is_some()) || !self.oidc.issuer_url.is_empty()
    }
}

/// The OIDC provider that flags configure.
#[derive(Default)]
pub struct Oidc {
    pub issuer_url: String,
    pub client_id: String,
    pub ca_file: Option<PathBuf>,
    pub username_claim: Option<String>,
    pub username_prefix: Option<String>,
    pub groups_claim: String,
    pub groups_prefix: String,
    pub required_claims: Vec<(String, String)>,
    pub signing_algs: Vec<String>,
}

/// Sorted by name.
pub(crate) static FLAGS: &[Flag] = &[
    switch("anonymous-auth", "allow anonymous requests, subject to authorization [true]", |flags, value| {
        flags.authentication.anonymous = Some(boolean(value)?);
        Ok(())
    }),
    flag("api-audiences", "accepted audiences of tokens [the service account issuer]", |flags, value| {
        flags.authentication.api_audiences = list(value);
        Ok(())
    }),
    flag("authentication-config", "a file with an AuthenticationConfiguration", |flags, value| {
        flags.authentication.config_file = Some(value.into());
        Ok(())
    }),
    flag(
        "authentication-token-webhook-cache-ttl",
        "how long responses of the webhook are cached [2m]",
        |flags, value| {
            flags.authentication.webhook_cache_ttl = duration(value)?;
            Ok(())
        },
    ),
    flag(
        "authentication-token-webhook-config-file",
        "a kubeconfig of the token authentication webhook",
        |flags, value| {
            flags.authentication.webhook_config_file = Some(value.into());
            Ok(())
        },
    ),
    flag("authentication-token-webhook-version", "v1 or v1beta1 [v1beta1]", |flags, value| {
        flags.authentication.webhook_version = value.to_string();
        Ok(())
    }),
    flag("basic-auth-file", "a file of `password,user,uid,\"groups\"`", |flags, value| {
        flags.authentication.basic_auth_file = Some(value.into());
        Ok(())
    }),
    flag("cors-allowed-origins", "regular expressions of allowed CORS origins", |flags, value| {
        let patterns: Vec<&str> = value.split(',').collect();
        flags.config.cors = Cors::new(&patterns).map_err(|error| error.to_string())?;
        Ok(())
    }),
    switch("enable-bootstrap-token-auth", "accept bootstrap tokens of kube-system [false]", |flags, value| {
        flags.authentication.bootstrap_tokens = boolean(value)?;
        Ok(())
    }),
    flag("oidc-ca-file", "CA bundle for the provider's certificate [the system's]", |flags, value| {
        flags.authentication.oidc.ca_file = Some(value.into());
        Ok(())
    }),
    flag("oidc-client-id", "client ID that the provider's tokens must be issued for", |flags, value| {
        flags.authentication.oidc.client_id = value.to_string();
        Ok(())
    }),
    flag("oidc-groups-claim", "the claim that holds groups", |flags, value| {
        flags.authentication.oidc.groups_claim = value.to_string();
        Ok(())
    }),
    flag("oidc-groups-prefix", "prefix of groups", |flags, value| {
        flags.authentication.oidc.groups_prefix = value.to_string();
        Ok(())
    }),
    flag("oidc-issuer-url", "the OpenID Connect provider", |flags, value| {
        flags.authentication.oidc.issuer_url = value.to_string();
        Ok(())
    }),
    flag("oidc-required-claim", "a claim and the value that it must have; can be repeated", |flags, value| {
        for pair in value.split(',') {
            let (claim, value) =
                pair.split_once('=').ok_or_else(|| format!("{pair:?} is not of the form claim=value"))?;
            flags.authentication.oidc.required_claims.push((claim.to_string(), value.to_string()));
        }
        Ok(())
    }),
    flag("oidc-signing-algs", "accepted signing algorithms [RS256]", |flags, value| {
        flags.authentication.oidc.signing_algs = list(value);
        Ok(())
    }),
    flag("oidc-username-claim", "the claim that holds the user name [sub]", |flags, value| {
        flags.authentication.oidc.username_claim = Some(value.to_string());
        Ok(())
    }),
    flag("oidc-username-prefix", "prefix of user names; - for none [ISSUER#, or none for email]", |flags, value| {
        flags.authentication.oidc.username_prefix = Some(value.to_string());
        Ok(())
    }),
    flag("requestheader-allowed-names", "common names of accepted proxies [all]", |flags, value| {
        flags.authentication.proxy_allowed_names = list(value);
        Ok(())
    }),
    flag("requestheader-client-ca-file", "CA bundle for client certificates of proxies", |flags, value| {
        flags.authentication.proxy_ca_file = Some(value.into());
        Ok(())
    }),
    flag("requestheader-extra-headers-prefix", "prefixes of headers with extra user information", |flags, value| {
        flags.authentication.proxy_headers.extra_prefixes = list(value);
        Ok(())
    }),
    flag("requestheader-group-headers", "headers for groups", |flags, value| {
        flags.authentication.proxy_headers.groups = list(value);
        Ok(())
    }),
    flag("requestheader-uid-headers", "headers for the uid", |flags, value| {
        flags.authentication.proxy_headers.uid = list(value);
        Ok(())
    }),
    flag("requestheader-username-headers", "headers for the user name", |flags, value| {
        flags.authentication.proxy_headers.username = list(value);
        Ok(())
    }),
    flag(
        "strict-transport-security-directives",
        "directives of the Strict-Transport-Security header",
        |flags, value| {
            flags.config.strict_transport_security = Some(strict_transport_security(value)?);
            Ok(())
        },
    ),
    flag("tls-cipher-suites", "cipher suites, by Go's names [all secure ones]", |flags, value| {
        let names: Vec<&str> = value.split(',').map(str::trim).collect();
        flags.authentication.tls.ciphers = Some(tls::cipher_suites(&names).map_err(|error| error.to_string())?);
        Ok(())
    }),
    flag("tls-min-version", "VersionTLS12 or VersionTLS13 [VersionTLS12]", |flags, value| {
        flags.authentication.tls.only_tls13 = match value {
            "VersionTLS12" => false,
            "VersionTLS13" => true,
            "VersionTLS10" | "VersionTLS11" => return Err(format!("{value} is insecure and not supported").into()),
            _ => return Err(format!("unknown version {value:?}").into()),
        };
        Ok(())
    }),
    flag("token-auth-file", "a file of `token,user,uid,\"groups\"`", |flags, value| {
        flags.authentication.token_auth_file = Some(value.into());
        Ok(())
    }),
];

/// `max-age=31536000,includeSubDomains,preload`.
fn strict_transport_security(value: &str) -> Result<http::HeaderValue, FlagError> {
    for directive in value.split(',') {
        let age = directive.strip_prefix("max-age=").is_some_and(|age| age.parse::<u64>().is_ok());
        if !age && !matches!(directive, "includeSubDomains" | "preload") {
            return Err(unknown("directive", directive, "max-age=SECONDS, includeSubDomains, preload").into());
        }
    }
    value.split(',').collect::<Vec<_>>().join("; ").parse().map_err(|_| format!("invalid value {value:?}").into())
}

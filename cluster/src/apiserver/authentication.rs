//! The authenticators that the flags of `kube-apiserver` configure. An error names the file and never its secrets.

use std::fmt::Display;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use server::authentication::oidc::{Claim, Issuer, Rules};
use server::authentication::token::Tokens;
use server::authentication::webhook::Webhook;
use server::authentication::{self, Anonymous, CaBundle, PasswordFile, RequestHeader, TokenFile};
use server::outbound::callout::{Client, Trust, kubeconfig};

use super::flags::Flags;
use super::flags::authentication::Oidc;
use super::reload::{ApplyFile, ReloadedFile};
use crate::error::{Error, Result};
use crate::pki::credentials::Credentials;

pub(super) fn build(
    flags: &Flags,
    current: &Credentials,
    tokens: Option<Tokens>,
) -> Result<authentication::Authentication> {
    let given = &flags.authentication;
    let own = issuers(flags);
    let configuration = given.config_file.as_deref().map(|path| configuration(path, own));
    let configuration = configuration.transpose()?.unwrap_or_default();
    check(flags, &configuration)?;
    let mut rules = configuration.issuers;
    rules.extend(issuer_of_flags(&given.oidc, own)?);
    Ok(authentication::Authentication {
        clients: read_ca_bundle(current.clients.as_deref(), flags.client_ca_file.as_deref())?,
        request_header: request_header(flags, current)?,
        passwords: read_file(given.basic_auth_file.as_deref(), PasswordFile::read)?,
        token_file: read_file(given.token_auth_file.as_deref(), TokenFile::read)?,
        tokens,
        bootstrap_tokens: given.bootstrap_tokens,
        issuers: authentication::oidc::Issuers::from_pointee(providers(rules, &[])?),
        webhook: webhook(flags)?,
        anonymous: configuration.anonymous.unwrap_or_else(|| anonymous(flags)),
        audiences: audiences(flags),
        legacy_uses: Default::default(),
    })
}

/// As upstream, a server that allows everything rejects anonymous requests.
fn anonymous(flags: &Flags) -> Anonymous {
    match flags.authentication.anonymous {
        Some(false) => Anonymous::Never,
        _ if flags.authorization.allows_everything() => {
            tracing::warn!("--anonymous-auth is off because --authorization-mode has AlwaysAllow");
            Anonymous::Never
        }
        _ => Anonymous::Anywhere,
    }
}

fn audiences(flags: &Flags) -> Vec<String> {
    let given = &flags.authentication.api_audiences;
    if given.is_empty() { issuers(flags).to_vec() } else { given.clone() }
}

/// The issuer of service account tokens.
fn issuers(flags: &Flags) -> &[String] {
    if flags.issuers.is_empty() { &flags.config.issuers } else { &flags.issuers }
}

/// The configuration file, if there is one: changes of its providers are applied while the server runs.
pub(super) fn followed(flags: &Flags) -> Result<Option<ReloadedFile>> {
    let Some(file) = flags.authentication.config_file.clone() else { return Ok(None) };
    let own = issuers(flags).to_vec();
    let initial = configuration(&file, &own)?.anonymous;
    let path = file.clone();
    let apply: ApplyFile = Box::new(move |server, data| {
        let configuration = parse_configuration(&path, data, &own)?;
        if configuration.anonymous != initial {
            return Err(in_file(&path, "anonymous: Forbidden: changed from initial configuration file"));
        }
        let known = server.registry.authentication.config.issuers.load_full();
        server.registry.authentication.config.issuers.store(Arc::new(providers(configuration.issuers, &known)?));
        Ok(())
    });
    ReloadedFile::new("authentication", file, apply).map(Some)
}

fn refused(why: impl std::fmt::Display) -> Error {
    Error::Flags(vec![why.to_string()])
}

fn in_file(path: &Path, why: impl std::fmt::Display) -> Error {
    refused(format!("{}: {why}", path.display()))
}

/// Checks that the flags and the configuration file do not contradict each other.
fn check(flags: &Flags, configuration: &authentication::config::Configuration) -> Result<()> {
    let given = &flags.authentication;
    let mut errors = Vec::new();
    if given.config_file.is_some() && !given.oidc.issuer_url.is_empty() {
        errors.push("--authentication-config and --oidc-issuer-url exclude each other".to_string());
    }
    if configuration.anonymous.is_some() && given.anonymous.is_some() {
        errors.push("--anonymous-auth and `anonymous` of --authentication-config exclude each other".to_string());
    }
    if given.proxy_ca_file.is_none() && !given.proxy_headers.username.is_empty() {
        errors.push("--requestheader-username-headers needs --requestheader-client-ca-file".to_string());
    }
    if given.proxy_ca_file.is_some() && given.proxy_headers.username.is_empty() {
        errors.push("--requestheader-client-ca-file needs --requestheader-username-headers".to_string());
    }
    if errors.is_empty() { Ok(()) } else { Err(Error::Flags(errors)) }
}

fn configuration(path: &Path, own_issuers: &[String]) -> Result<authentication::config::Configuration> {
    parse_configuration(path, &fs::read(path).map_err(Error::file(path))?, own_issuers)
}

fn parse_configuration(
    path: &Path,
    text: &[u8],
    own_issuers: &[String],
) -> Result<authentication::config::Configuration> {
    authentication::config::read(text, own_issuers)
        .map_err(|errors| Error::Flags(errors.iter().map(|why| format!("{}: {why}", path.display())).collect()))
}

fn read_ca_bundle(pem: Option<&str>, path: Option<&Path>) -> Result<Option<CaBundle>> {
    let path = path.unwrap_or(Path::new("the client CA"));
    pem.map(CaBundle::new).transpose().map_err(|why| in_file(path, why))
}

fn request_header(flags: &Flags, current: &Credentials) -> Result<Option<RequestHeader>> {
    let given = &flags.authentication;
    let Some(ca_bundle) = read_ca_bundle(current.proxies.as_deref(), given.proxy_ca_file.as_deref())? else {
        return Ok(None);
    };
    let proxies = RequestHeader::new(ca_bundle, given.proxy_allowed_names.clone(), given.proxy_headers.clone());
    proxies.map(Some).map_err(refused)
}

fn read_file<T, E: Display>(path: Option<&Path>, read: fn(&str) -> Result<T, E>) -> Result<Option<T>> {
    let Some(path) = path else { return Ok(None) };
    let text = fs::read_to_string(path).map_err(Error::file(path))?;
    read(&text).map(Some).map_err(|why| in_file(path, why.to_string()))
}

fn webhook(flags: &Flags) -> Result<Option<Webhook>> {
    let given = &flags.authentication;
    let Some(path) = &given.webhook_config_file else { return Ok(None) };
    let remote = kubeconfig::read(path).map_err(|error| refused(error.to_string()))?;
    let webhook = Webhook::new(remote, &given.webhook_version, given.webhook_cache_ttl);
    webhook.map(Some).map_err(|why| refused(format!("--authentication-token-webhook-version: {why}")))
}

/// The provider of the --oidc flags.
fn issuer_of_flags(oidc: &Oidc, own_issuers: &[String]) -> Result<Option<Rules>> {
    if oidc.issuer_url.is_empty() && oidc.client_id.is_empty() {
        return Ok(None);
    }
    if oidc.issuer_url.is_empty() || oidc.client_id.is_empty() {
        return Err(refused("--oidc-issuer-url and --oidc-client-id must be set together"));
    }
    if !oidc.issuer_url.starts_with("https://") {
        return Err(refused("--oidc-issuer-url must begin with https://"));
    }
    if own_issuers.contains(&oidc.issuer_url) {
        return Err(refused("--oidc-issuer-url is the issuer of service account tokens"));
    }
    let algorithms = if oidc.signing_algs.is_empty() { vec!["RS256".to_string()] } else { oidc.signing_algs.clone() };
    if let Some(unknown) = algorithms.iter().find(|name| !authentication::ALGORITHMS.contains(&name.as_str())) {
        return Err(refused(format!("--oidc-signing-algs: unsupported signing alg: {unknown:?}")));
    }
    let certificate_authority = match &oidc.ca_file {
        Some(path) => Some(fs::read_to_string(path).map_err(Error::file(path))?),
        None => None,
    };
    let username = oidc.username_claim.clone().unwrap_or_else(|| "sub".to_string());
    let groups = Claim { name: oidc.groups_claim.clone(), prefix: oidc.groups_prefix.clone() };
    Ok(Some(Rules {
        url: oidc.issuer_url.clone(),
        discovery_url: None,
        certificate_authority,
        audiences: vec![oidc.client_id.clone()],
        algorithms,
        username: Claim { prefix: username_prefix(oidc, &username), name: username },
        groups: Some(groups).filter(|claim| !claim.name.is_empty()),
        uid: None,
        required: oidc.required_claims.clone(),
        expressions: Default::default(),
    }))
}

/// User names of a provider are prefixed by its URL, unless a prefix is set.
fn username_prefix(oidc: &Oidc, claim: &str) -> String {
    match oidc.username_prefix.as_deref() {
        Some("-") => String::new(),
        Some("") | None if claim == "email" => String::new(),
        Some("") | None => format!("{}#", oidc.issuer_url),
        Some(prefix) => prefix.to_string(),
    }
}

/// An existing provider keeps its keys.
fn providers(rules: Vec<Rules>, known: &[Arc<Issuer>]) -> Result<Vec<Arc<Issuer>>> {
    let provider = |rules: Rules| match known.iter().find(|issuer| issuer.rules == rules) {
        Some(issuer) => Ok(issuer.clone()),
        None => issuer(rules).map(Arc::new),
    };
    rules.into_iter().map(provider).collect()
}

fn issuer(rules: Rules) -> Result<Issuer> {
    let bad = |why: String| refused(format!("the issuer {}: {why}", rules.url));
    let trust = match &rules.certificate_authority {
        Some(pem) => Trust::pem(pem.as_bytes()).map_err(|error| bad(error.to_string()))?,
        None => Trust::System,
    };
    let client = Client::new(&trust, None).map_err(|error| bad(error.to_string()))?;
    Issuer::new(rules.clone(), client).map_err(|error| bad(error.to_string()))
}

/// Files that are reloaded while the server runs, besides those of the serving certificate.
pub(super) fn watched(flags: &Flags) -> Vec<PathBuf> {
    flags.client_ca_file.iter().chain(&flags.authentication.proxy_ca_file).cloned().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn built(arguments: &[&str]) -> Result<authentication::Authentication> {
        let arguments: Vec<String> = arguments.iter().map(ToString::to_string).collect();
        build(&super::super::flags::parse(&arguments)?, &Credentials::default(), None)
    }

    #[test]
    fn always_allow_disables_anonymous_requests() {
        let check = |arguments: &[&str], want: Anonymous| {
            let arguments = [&["--token-auth-file=/dev/null"], arguments].concat();
            assert_eq!(built(&arguments).expect("authentication").anonymous, want, "{arguments:?}");
        };
        check(&["--authorization-mode=Node,RBAC"], Anonymous::Anywhere);
        check(&["--authorization-mode=RBAC", "--anonymous-auth=false"], Anonymous::Never);
        check(&["--authorization-mode=AlwaysAllow"], Anonymous::Never);
        check(&["--authorization-mode=RBAC,AlwaysAllow", "--anonymous-auth=true"], Anonymous::Never);
    }

    #[test]
    fn rejects_conflicting_flags() {
        let cases: [(&[&str], &str); 8] = [
            (
                &["--oidc-issuer-url=https://kubernetes.default.svc", "--oidc-client-id=b"],
                "is the issuer of service account tokens",
            ),
            (&["--oidc-issuer-url=https://a"], "--oidc-issuer-url and --oidc-client-id must be set together"),
            (&["--oidc-issuer-url=http://a", "--oidc-client-id=b"], "must begin with https://"),
            (
                &["--oidc-issuer-url=https://a", "--oidc-client-id=b", "--oidc-signing-algs=none"],
                "--oidc-signing-algs: unsupported signing alg: \"none\"",
            ),
            (&["--requestheader-username-headers=X-A"], "needs --requestheader-client-ca-file"),
            (&["--requestheader-client-ca-file=/x"], "needs --requestheader-username-headers"),
            (&["--token-auth-file=/no/such"], "cannot use /no/such"),
            (&["--authentication-token-webhook-config-file=/no/such"], "/no/such: No such file"),
        ];
        for (arguments, want) in cases {
            let got = built(arguments).err().map(|error| error.describe()).unwrap_or_default();
            assert!(got.contains(want), "{arguments:?}: {got}");
        }
    }

    #[test]
    fn errors_name_file_and_line() {
        let dir = tempfile::tempdir().expect("a directory");
        let cases = [
            ("--token-auth-file", "a,b,c\nsecret,x\n", "f: line 2: at least 3 columns are needed"),
            ("--basic-auth-file", "a,b,c\n\"secret,x\n", "f: line 2: a quote is not closed"),
            ("--authentication-config", "kind: X\n", "f: kind: it must be AuthenticationConfiguration"),
            ("--authentication-config", "kind: X\n- a\n", "line"),
        ];
        for (flag, text, want) in cases {
            let path = dir.path().join("f");
            std::fs::write(&path, text).expect("a file");
            let got = built(&[&format!("{flag}={}", path.display())]).err().map(|error| error.describe());
            let got = got.unwrap_or_default();
            assert!(got.contains(want) && !got.contains("secret"), "{flag}: {got}");
        }
    }

    #[test]
    fn prefixes_user_names_with_the_issuer_url() {
        let cases =
            [("sub", None, "https://a#"), ("email", None, ""), ("sub", Some("-"), ""), ("sub", Some("x:"), "x:")];
        for (claim, prefix, want) in cases {
            let oidc = Oidc {
                issuer_url: "https://a".to_string(),
                username_prefix: prefix.map(str::to_string),
                ..Oidc::default()
            };
            assert_eq!(username_prefix(&oidc, claim), want, "{claim} {prefix:?}");
        }
    }
}

//! The server's credentials for webhooks: the users of a kubeconfig, named by the hosts that they are for.

use super::{Client, Credentials, Identity, Trust};

/// The configured certificate, token or password.
#[derive(Clone)]
pub(crate) struct Login {
    pub identity: Option<Identity>,
    pub credentials: Credentials,
}

impl Login {
    /// A client with these credentials, or without any.
    pub(crate) fn client(login: Option<&Login>, trust: &Trust) -> Result<Client, rustls::Error> {
        let client = Client::new(trust, login.and_then(|login| login.identity.as_ref()))?;
        Ok(match login {
            Some(login) => client.with_credentials(login.credentials.clone()),
            None => client,
        })
    }
}

#[derive(Clone, Default)]
pub(crate) struct Logins {
    pub named: Vec<(String, Login)>,
    /// The user of the current context: for hosts that are not named.
    pub current: Option<String>,
}

impl Logins {
    /// The login for `host:port`: first an exact match, then `*.` with a suffix of the host, then the same without the
    /// port if it is the default port, then `*`, then the current user.
    pub(crate) fn find(&self, target: &str) -> Option<&Login> {
        let bare = target.strip_suffix(":443");
        let names = candidates(target).chain(bare.into_iter().flat_map(candidates));
        let names = names.chain(["*".to_string()]).chain(self.current.clone());
        names.into_iter().find_map(|name| self.by_name(&name))
    }

    fn by_name(&self, name: &str) -> Option<&Login> {
        self.named.iter().find(|(known, _)| known == name).map(|(_, login)| login)
    }
}

fn candidates(host: &str) -> impl Iterator<Item = String> {
    let endings = host.match_indices('.').map(move |(at, _)| format!("*{}", &host[at..]));
    std::iter::once(host.to_string()).chain(endings)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_closest_name_wins() {
        let logins = |names: &[&str], current: Option<&str>| Logins {
            named: names
                .iter()
                .map(|name| {
                    (name.to_string(), Login { identity: None, credentials: Credentials::Bearer(name.to_string()) })
                })
                .collect(),
            current: current.map(str::to_string),
        };
        let all = logins(&["*", "*.svc", "*.ns.svc", "a.ns.svc", "a.ns.svc:8443", "*.svc:9443", "me"], Some("me"));
        let some = logins(&["*.svc", "me"], Some("me"));
        let found = |logins: &Logins, target: &str| match logins.find(target).map(|login| &login.credentials) {
            Some(Credentials::Bearer(name)) => name.clone(),
            _ => String::new(),
        };
        let cases = [
            (&all, "a.ns.svc:443", "a.ns.svc"),
            (&all, "a.ns.svc:8443", "a.ns.svc:8443"),
            (&all, "b.ns.svc:443", "*.ns.svc"),
            (&all, "b.other.svc:443", "*.svc"),
            (&all, "b.ns.svc:9443", "*.svc:9443"),
            // A name without a port matches the default port only.
            (&all, "b.ns.svc:1", "*"),
            (&all, "example.com:443", "*"),
            (&some, "example.com:443", "me"),
            (&some, "a.b.svc:443", "*.svc"),
        ];
        for (logins, target, want) in cases {
            assert_eq!(found(logins, target), want, "{target}");
        }
        assert!(Logins::default().find("a:443").is_none());
    }
}

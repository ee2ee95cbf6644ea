//! Signs approved requests with the CA of their signer.

use std::collections::BTreeMap;
use std::sync::Arc;

use api::Tree;
use client::{Error, Result, Store};

use super::x509::{self, Ca, Request};
use super::{REQUESTS, follow, plan};
use crate::options::{Signer, Signers};
use crate::support::done_if_not_found;
use crate::{Context, Outcome, Reconcile, ReconcileFuture, Setup};

struct Controller {
    requests: Arc<Store>,
    cas: BTreeMap<&'static str, Ca>,
    context: Context,
}

pub(crate) fn start(setup: &Setup, context: &Context) -> Option<Box<dyn Reconcile>> {
    let cas = cas(&context.options.cluster_signing);
    if cas.is_empty() {
        return None;
    }
    Some(Box::new(Controller { requests: follow(setup, context), cas, context: context.clone() }))
}

fn cas(signers: &Signers) -> BTreeMap<&'static str, Ca> {
    let all = [
        (plan::KUBELET_CLIENT, &signers.kubelet_client),
        (plan::KUBELET_SERVING, &signers.kubelet_serving),
        (plan::CLIENT, &signers.kube_apiserver_client),
        (plan::LEGACY_UNKNOWN, &signers.legacy_unknown),
    ];
    let read = |(name, signer): (&'static str, &Option<Signer>)| {
        let signer = signer.as_ref()?;
        let ca = Ca::read(&signer.certificate, &signer.key);
        let loaded = ca.inspect_err(|error| tracing::error!(signer = name, %error, "failed to load the CA of the signer, its requests are not signed"));
        Some((name, loaded.ok()?))
    };
    all.into_iter().filter_map(read).collect()
}

impl Controller {
    async fn sync(&self, name: &str) -> Result<Outcome> {
        let Some(request) = self.requests.get(name).filter(|request| plan::is_to_sign(request)) else {
            return Ok(Outcome::Done);
        };
        let Some(ca) = self.cas.get(request.str("spec.signerName")) else { return Ok(Outcome::Done) };
        let signed = self.sign(&request, ca).map_err(Error::failed)?;
        done_if_not_found(self.context.client.update_status(REQUESTS, "", name, &signed).await)
    }

    fn sign(&self, request: &Tree, ca: &Ca) -> std::result::Result<Tree, x509::Error> {
        let requested = Request::decode(request.str("spec.request"))?;
        let now = self.context.now_seconds();
        let usages = plan::usages(request);
        if let Err(why) = plan::check(request.str("spec.signerName"), &requested.subject, &usages) {
            return Ok(plan::failed(request, &why.to_string(), now));
        }
        let time = plan::duration(request, self.context.options.cluster_signing_duration);
        let seconds = i64::try_from(time.as_secs()).unwrap_or(i64::MAX / 4);
        Ok(plan::signed(request, &ca.sign(&requested, &usages, now, seconds)?))
    }
}

impl Reconcile for Controller {
    fn reconcile<'a>(&'a self, key: &'a str) -> ReconcileFuture<'a> {
        Box::pin(self.sync(key))
    }
}

//! The content of an image; the runtime pulls and mounts it.

use super::{Ask, Kind, Planning};
use crate::volumes::plan::Plan;

pub(crate) const KIND: Kind = Kind { field: "image", directory: "kubernetes.io~image", refreshes: false, plan };

fn plan<'a>(ask: &'a Ask<'a>) -> Planning<'a> {
    Box::pin(async move {
        let reference = ask.source.str("reference").to_string();
        Ok(Plan::Image { reference, pull_policy: ask.source.str("pullPolicy").to_string() })
    })
}

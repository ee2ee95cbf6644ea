//! The content of an image; the runtime pulls and mounts it.

use super::{Kind, PlanFuture, VolumeContext};
use crate::volumes::plan::Plan;

pub(crate) const KIND: Kind = Kind { field: "image", directory: "kubernetes.io~image", refreshes: false, plan };

fn plan<'a>(context: &'a VolumeContext<'a>) -> PlanFuture<'a> {
    Box::pin(async move {
        let reference = context.source.str("reference").to_string();
        Ok(Plan::Image { reference, pull_policy: context.source.str("pullPolicy").to_string() })
    })
}

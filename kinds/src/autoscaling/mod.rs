//! The kinds of the `autoscaling` group, a file a kind. HorizontalPodAutoscaler is stored as v2; v1
//! is another view of it.

mod conversion;
pub mod horizontal_pod_autoscaler;
pub mod horizontal_pod_autoscaler_v1;

//! The cluster DNS: answers the names of Services, endpoints and pods from an index that watches keep, and forwards all
//! other names. It is an ordinary API client, and knows neither the kubelet nor the service proxy.

pub mod corefile;
pub mod message;
pub mod zone;

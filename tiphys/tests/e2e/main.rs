//! Tests of the real binary with real clients, each with its own server and directory. A missing tool fails the test:
//! `./test` installs all of them.

// The limit is for production code: the steps of a test stay in one function.
#![allow(clippy::too_many_lines)]

mod agent;
mod bench;
#[path = "../../../runtime/tests/shared/busybox.rs"]
mod busybox;
mod chaos;
mod clients;
mod clocks;
mod config;
mod credentials;
mod custom_resources;
#[path = "../../../runtime/tests/shared/registry.rs"]
mod debian;
#[path = "../../../runtime/tests/shared/containerd.rs"]
mod debian_containerd;
#[path = "../../../runtime/tests/shared/nginx.rs"]
mod debian_nginx;
mod etcd;
mod etcd_servers;
mod field_paths;
mod files;
mod graph;
mod high_availability;
mod histories;
mod http2;
mod images;
mod initializers;
mod instances;
mod kubectl;
mod kubectl_diff;
mod layers;
mod manager;
mod manifests;
// The tests of the store use more of it.
#[allow(dead_code)]
#[path = "../../../store/tests/shared/members.rs"]
mod members;
mod node_faults;
mod past;
mod preflight;
mod process;
mod readme;
mod scheduler;
mod scheduling;
mod store;
mod support;
mod vocabulary;
mod wire;
mod workloads;

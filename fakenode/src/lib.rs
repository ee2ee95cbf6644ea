//! Nodes that run nothing but behave.
mod addresses;
mod bind;
mod node;
mod pod;

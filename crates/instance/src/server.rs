//! The process of an instance and its control socket.

pub mod answer;
pub(crate) mod commands;
pub mod control_client;
pub(crate) mod control_connections;
pub(crate) mod control_server;
pub mod request;
pub mod rights;
pub mod run;

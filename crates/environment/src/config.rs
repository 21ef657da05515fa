//! The configuration file, and errors.

pub mod address;
pub mod alert_config;
pub mod arbiter_config;
pub mod attribute_text;
pub mod destination_config;
pub mod error;
pub mod fast_start_failover_config;
pub mod properties;
pub mod role_change_config;
pub mod settings;
pub mod shared_configuration;

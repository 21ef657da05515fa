//! Settings that commands change while the instance runs.

use standfast_environment::config::role_change_config::RoleChangeConfig;
use standfast_environment::config::settings::DestinationConfig;

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Changeable {
    pub destinations: Vec<DestinationConfig>,
    pub role_change: RoleChangeConfig,
}

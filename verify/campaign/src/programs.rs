//! Finds the programs under test.

use crate::{CampaignError, During, Result};
use standfast_io::fault;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

#[derive(Clone, Debug)]
pub struct Programs {
    /// The daemon and its command line.
    pub standfast: PathBuf,
    pub extension: PathBuf,
    /// This crate's own program, which is also the application.
    pub campaign: PathBuf,
}

impl Programs {
    /// Returns the programs in `directory`.
    ///
    /// # Errors
    /// When one is missing.
    pub fn within(directory: &Path) -> Result<Programs> {
        // Processes are started in other directories, so the paths must be absolute.
        let directory = directory.canonicalize().during(|| format!("find {}", directory.display()))?;
        let find = |name: &str| {
            let path = directory.join(name);
            if path.is_file() { Ok(path) } else { Err(CampaignError::Missing { path }) }
        };
        Ok(Programs {
            standfast: find("standfast")?,
            extension: find("libstandfast.so")?,
            campaign: find("standfast-campaign")?,
        })
    }

    /// Checks that the daemon has fault points: a package has none, and a campaign with it would prove nothing.
    ///
    /// # Errors
    /// When it has none.
    pub fn check_fault_points(&self) -> Result<()> {
        static CHECKED: OnceLock<bool> = OnceLock::new();
        // A program that cannot be read cannot be started either, and that error is clearer.
        let has = || {
            std::fs::read(&self.standfast).map_or(true, |program| {
                let variable = fault::VARIABLE.unwrap_or_default().as_bytes();
                program.windows(variable.len().max(1)).any(|window| window == variable)
            })
        };
        let checked = *CHECKED.get_or_init(has);
        if checked { Ok(()) } else { Err(CampaignError::NoFaultPoints { path: self.standfast.clone() }) }
    }

    /// Returns the programs in `chosen`, else in `$STANDFAST_BIN`, else beside the running program, else in the
    /// `release` and then the `debug` directory above it, where a test finds them.
    ///
    /// # Errors
    /// When they are in none of these.
    pub fn find(chosen: Option<&Path>) -> Result<Programs> {
        let from_environment = std::env::var_os("STANDFAST_BIN").map(PathBuf::from);
        if let Some(directory) = chosen.map(Path::to_owned).or(from_environment) {
            return Programs::within(&directory);
        }
        let here = std::env::current_exe().during(|| "find the running program".into())?;
        let places = here
            .ancestors()
            .skip(1)
            .take(3)
            .flat_map(|above| [above.to_owned(), above.join("release"), above.join("debug")]);
        let mut missing = None;
        for place in places {
            match Programs::within(&place) {
                Ok(programs) => return Ok(programs),
                Err(error) => missing = missing.or(Some(error)),
            }
        }
        Err(missing.unwrap_or(CampaignError::Missing { path: here }))
    }
}

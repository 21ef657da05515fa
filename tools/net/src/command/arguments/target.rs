//! The server of a test, as a command line gives it.

use super::values::{Host, host};
use crate::Result;
use crate::auth::Key;
use crate::stream::Target;
use crate::terminal::tell;
use clap::Args;
use std::path::{Path, PathBuf};

/// The secret of an option, with a word to stderr when others can read it too.
pub fn key(option: &str, file: Option<&Path>) -> Result<Option<Key>> {
    let Some(file) = file else { return Ok(None) };
    let (key, exposed) = Key::load(option, file)?;
    if exposed {
        tell!("note: {} can be read by others on this host; chmod 600 ends that", file.display());
    }
    Ok(Some(key))
}

/// Where the server is.
#[derive(Clone, Debug, Args)]
pub struct TargetArgs {
    /// Host on which `standfast net server` runs, or HOST:PORT
    #[arg(value_parser = host)]
    pub host: Host,
    /// Its port, when HOST does not say it
    #[arg(long, default_value_t = 7460, value_parser = clap::value_parser!(u16).range(1..), allow_hyphen_values = true)]
    pub port: u16,
    /// Prove the secret in this file, and continue only with a server that has it too
    #[arg(long, value_name = "FILE")]
    psk_file: Option<PathBuf>,
}

impl TargetArgs {
    pub fn target(&self) -> Result<Target> {
        let key = key("--psk-file", self.psk_file.as_deref())?;
        Ok(Target { host: self.host.name.clone(), port: self.host.port.unwrap_or(self.port), key })
    }
}

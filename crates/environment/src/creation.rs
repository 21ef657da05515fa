//! What every new directory needs, an instance's and an observer's.

use crate::config::error::InstanceError;
use crate::config::settings::Config;
use crate::context::environment::keeper_of;
use crate::security::Keeper;
use crate::state::paths::Paths;
use standfast_tls::Token;
use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;

/// Makes a directory and those above it.
///
/// # Errors
/// When it cannot be made.
pub fn make_directory(path: &Path, mode: u32) -> Result<(), InstanceError> {
    DirBuilder::new()
        .recursive(true)
        .mode(mode)
        .create(path)
        .map_err(InstanceError::io("create the directory", path))
}

/// Makes `directory` and has `create` fill it. If that fails, removes it, if this call made it. Keeps it once it holds a
/// certificate: a token works once, and another attempt uses what the first one got.
///
/// # Errors
/// When it cannot be made, and those of `create`.
pub fn fill_directory<T>(
    directory: &Path,
    mode: u32,
    config: &mut Config,
    create: impl FnOnce(&mut Config) -> Result<T, InstanceError>,
) -> Result<T, InstanceError> {
    let existed = directory.exists();
    make_directory(directory, mode)?;
    let created = create(config);
    let paths = Paths::new(directory, config);
    let has_certificate = paths.is_ok_and(|paths| keeper_of(config, &paths).has_identity());
    if created.is_err() && !existed && !has_certificate {
        let _ = std::fs::remove_dir_all(directory);
    }
    created
}

/// Refuses a directory that already holds an instance or an observer.
///
/// # Errors
/// When it does.
pub fn refuse_taken(paths: &Paths) -> Result<(), InstanceError> {
    let files = [(&paths.control, "an instance"), (&paths.observer, "an observer")];
    let Some((_, what)) = files.into_iter().find(|(file, _)| file.exists()) else { return Ok(()) };
    Err(InstanceError::refused(
        format!("{} already holds {what}", paths.directory.display()),
        "name another directory with -D, or remove this one if it is no longer needed",
    ))
}

/// How a new directory got its certificate.
#[derive(Clone, Debug, Default)]
pub struct Joined {
    /// It already had one: the token was not needed and is still good.
    pub token_unused: bool,
    /// Authorities that came with the certificate and are not trusted, in words.
    pub notes: Vec<String>,
}

/// Has the instance at `from` issue a certificate, if there is none yet. `hint`: what to do when no certificate and no token
/// is there.
///
/// # Errors
/// When the instance refuses, or there is neither a certificate nor a token, and plain TCP is not allowed.
pub fn join(
    keeper: &Keeper,
    config: &Config,
    from: &str,
    token: Option<&Token>,
    hint: impl FnOnce() -> String,
) -> Result<Joined, InstanceError> {
    let has_identity = keeper.has_identity();
    match token {
        Some(token) if !has_identity => Ok(Joined { token_unused: false, notes: keeper.join(from, token)? }),
        _ if has_identity || config.instance.insecure => {
            Ok(Joined { token_unused: token.is_some() && has_identity, notes: Vec::new() })
        }
        _ => {
            let directory = keeper.directory();
            Err(InstanceError::refused(
                format!("no token, and {} holds no certificate", directory.display()),
                hint(),
            ))
        }
    }
}
